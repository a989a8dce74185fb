"""How does a memory tool look to the MCP SDK, and what does a call of it give?"""

from __future__ import annotations

from typing import Any

import msgspec
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.tools import Tool
from mcp.server.mcpserver.utilities.func_metadata import ArgModelBase, FuncMetadata
from mcp_types import CallToolResult, TextContent, ToolAnnotations
from pydantic import ConfigDict

from omoide.core.action import Action
from omoide.errors import OmoideError
from omoide.integrations.mcp.answers import schema_of
from omoide.integrations.mcp.calling import House
from omoide.integrations.mcp.guarding import forbidden
from omoide.integrations.mcp.offers import Offer
from omoide.integrations.mcp.slips import tidied
from omoide.service.problems import Problem, problem
from omoide.tools.desk import Setting
from omoide.turns.telling import clean, told

META = "omoide/problem"
"""Under this name an error's parts are told to programs."""


class Given(ArgModelBase):
    """Whatever a client sends: what it means is found out by us, not by the SDK."""

    model_config = ConfigDict(extra="allow")

    def model_dump_one_level(self) -> dict[str, Any]:
        return {"given": dict(self.model_extra or {})}


def tool_of(offer: Offer, house: House, setting: Setting) -> Tool:
    """A tool that the SDK can list and call."""
    action = offer.make(setting)
    schema = _schema(action)

    async def call(context: Context[Any, Any], given: dict[str, Any]) -> CallToolResult:
        refused = forbidden(context, offer.right, house.scope)
        if refused is not None:
            return failed(refused)
        try:
            params, notices = tidied(schema, given)
            answer = await action.run(house.call(), **action.check(params))
        except OmoideError as error:
            return failed(problem(error))
        return _answered({**answer, "notices": notices} if notices else answer)

    return Tool(
        fn=call,
        name=action.name,
        title=offer.title,
        description=" ".join(action.description.split()),
        parameters=schema,
        fn_metadata=FuncMetadata(arg_model=Given, output_schema=schema_of(offer.shape)),
        is_async=True,
        context_kwarg="context",
        annotations=ToolAnnotations(
            title=offer.title,
            read_only_hint=offer.right == "read",
            destructive_hint=offer.destructive,
            idempotent_hint=action.idempotent,
            open_world_hint=False,
        ),
    )


def failed(what: Problem) -> CallToolResult:
    """An error that the model can read and do something about; programs find its parts in the meta."""
    parts = {
        name: clean(value) if isinstance(value, str) else value
        for name, value in msgspec.to_builtins(what).items()
    }
    return CallToolResult(
        content=[TextContent(type="text", text=parts["detail"])], is_error=True, _meta={META: parts}
    )


def _answered(answer: dict[str, Any]) -> CallToolResult:
    text = told(answer)
    return CallToolResult(
        content=[TextContent(type="text", text=text)], structured_content=msgspec.json.decode(text)
    )


def _schema(action: Action) -> dict[str, Any]:
    schema = action.json_schema()
    schema.pop("title", None)
    return schema
