"""Agents with memory tools, and turns in which a scripted model calls them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from tests.support.turns import Talker, tool_calls

from omoide import Action, Agent, Entry, Scope, identity
from omoide.tools import memory_tools
from omoide.turns import AgentSpec, turn

ADA = Scope(agent_id="ada")


def a_spec(tools: Sequence[Action] | None = None, **fields: Any) -> AgentSpec:
    """Return an agent with all memory tools, unless the fields say otherwise."""
    given = {"id": "ada", "memory": True, "tools": memory_tools() if tools is None else tools, **fields}
    return AgentSpec.new(given)


async def call_tools(store: Any, *calls: tuple[str, dict[str, Any]], **options: Any) -> list[str]:
    """Run a turn that calls these tools, and return the tool messages for the model, in order."""
    spec = options.pop("spec", None) or a_spec(options.pop("tools", None))
    talker = Talker(tool_calls(*calls), "Done.")
    result = await turn(spec, options.pop("input", "Hello."), model=talker, store=store, **options)
    assert result.content == "Done."
    return [message.content for message in talker.prompts[-1].messages if message.role == "tool"]


async def call_tool(store: Any, tool: str, /, params: dict[str, Any] | None = None, **options: Any) -> Any:
    """Call one tool in a turn, and return its result as data."""
    (answer,) = await call_tools(store, (tool, params or {}), **options)
    return json.loads(answer)


async def call_error(store: Any, tool: str, /, params: dict[str, Any] | None = None, **options: Any) -> str:
    """Call one tool that fails, and return the error message for the model."""
    (answer,) = await call_tools(store, (tool, params or {}), **options)
    assert not answer.startswith("{"), answer
    return answer


async def remember_entry(store: Any, content: str, /, **params: Any) -> Entry:
    """Remember something with the tool in a turn of its own, and return the stored memory."""
    own = ("session_id", "project_id", "user_id", "spec")
    options = {name: params.pop(name) for name in own if name in params}
    answer = await call_tool(store, "remember", {"content": content, **params}, **options)
    found: Entry = await store.get(answer["memory_id"], Scope())
    return found


def agent_with(*tags: str, actions: Sequence[str] = ()) -> Agent:
    """Return the agent with an identity that declares tags and actions."""
    agent = Agent.new(a_spec().definition(), id="ada")
    for tag in tags:
        agent = identity.add_tag(agent, tag)
    for name in actions:
        agent = identity.add_action(agent, name)
    return agent
