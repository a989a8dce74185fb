"""Tests of the memory tools: names, descriptions and capabilities."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.longterm import keep
from tests.support.memory_tools import ADA, a_spec, agent_with, call_error, call_tool, call_tools
from tests.support.turns import Talker, tool_calls

from omoide import Agent, Context, cmd
from omoide.core import MEMORY_TYPES
from omoide.errors import Invalid, MissingStore, NotFound, WrongType
from omoide.longterm import RELATIONS
from omoide.sessions import Session
from omoide.tools import MEMORY_TOOLS, memory_tools
from omoide.turns import turn

READING: dict[str, dict[str, Any]] = {"recall": {}, "review": {}}
WRITING: dict[str, dict[str, Any]] = {
    "remember": {"content": "Tea is green."},
    "forget": {"memory_id": "one"},
    "relate": {"source_id": "one", "relation": "refines", "target_id": "two"},
}


def test_all_tools_or_those_named() -> None:
    """Without names all tools are given, with names those, in that order; unknown names are refused."""
    assert tuple(tool.name for tool in memory_tools()) == MEMORY_TOOLS
    assert MEMORY_TOOLS == ("remember", "recall", "forget", "relate", "review")
    assert [tool.name for tool in memory_tools("recall", "remember")] == ["recall", "remember"]
    with pytest.raises(NotFound, match="remember"):
        memory_tools("memorise")
    with pytest.raises(Invalid, match="reach"):
        memory_tools(reach="namespace")
    with pytest.raises(WrongType):
        memory_tools(strict="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize("tool", memory_tools(), ids=lambda tool: tool.name)
def test_models_are_told_what_each_parameter_is(tool: Any) -> None:
    """Every tool and every parameter has a description, and nothing in a schema names a scope or an owner."""
    schema = tool.json_schema()
    assert tool.description
    assert schema["type"] == "object"
    for name, parameter in schema["properties"].items():
        assert parameter["description"], name
        assert all("type" in choice for choice in parameter.get("anyOf", [parameter]))
    assert not {*schema["properties"]} & {"agent_id", "session_id", "project_id", "namespace", "scope"}
    assert json.loads(json.dumps(schema)) == schema
    assert tool.effectful
    assert tool.idempotent


def test_schemas_name_the_choices() -> None:
    """Types and relations are listed, with all for recall, and limits are said."""
    remember, recall, forget, relate, _ = [tool.json_schema() for tool in memory_tools()]
    assert remember["properties"]["type"]["enum"] == [*MEMORY_TYPES]
    assert recall["properties"]["type"]["enum"] == ["all", *MEMORY_TYPES]
    assert relate["properties"]["relation"]["enum"] == [*RELATIONS]
    limit = recall["properties"]["limit"]
    assert (limit["minimum"], limit["maximum"], limit["default"]) == (1, 50, 10)
    assert (remember["required"], recall["required"], forget["required"]) == (["content"], [], ["memory_id"])


async def test_a_model_is_shown_the_tools(store: Any) -> None:
    """What a turn tells its model about the tools is what they are."""
    talker = Talker("Done.")
    await turn(a_spec(), "Hello.", model=talker, store=store)
    shown = {operation.name: operation.schema for operation in talker.prompts[0].operations}
    assert shown == {tool.name: tool.json_schema() for tool in memory_tools()}


async def capable(store: Any, agent: Agent, tools: dict[str, dict[str, Any]]) -> list[bool]:
    """Whether the agent may use each of the tools."""
    await keep(store, "one", scope=ADA)
    await keep(store, "two", scope=ADA)
    answers = await call_tools(store, *tools.items(), agent=agent)
    return ["does not declare" not in answer for answer in answers]


@pytest.mark.parametrize(
    ("agent", "reads", "writes"),
    [
        (agent_with(), True, True),
        (agent_with("CanQueryMemory"), True, False),
        (agent_with("CanWriteMemory"), False, True),
        (agent_with("can_query_memory", "can_write_memory"), True, True),
        (agent_with("CanPlan"), False, False),
        (agent_with(actions=["fetch_url"]), False, False),
        (agent_with(actions=[*READING]), True, False),
        (agent_with(actions=[*WRITING]), False, True),
    ],
)
async def test_an_identity_that_declares_something_means_it(
    store: Any, agent: Agent, reads: bool, writes: bool
) -> None:
    """Reading and writing memory are capabilities, asked for as soon as an identity declares any."""
    assert await capable(store, agent, READING) == [reads] * 2
    assert await capable(store, agent, WRITING) == [writes] * 3
    kept = {entry.id for entry in await store.list_entries(ADA)}
    assert len(kept) == (3 if writes else 2)


async def test_what_is_missing_is_named(store: Any) -> None:
    """A model that may not use a tool is told which capability it lacks."""
    words = await call_error(store, "recall", agent=agent_with("CanPlan"))
    assert "agent 'ada' does not declare 'CanQueryMemory'" in words


async def test_a_plain_context_has_no_memory_to_use() -> None:
    """Outside of a turn a tool says what it lacks, and `cmd` hands it on instead of running it."""
    agent = agent_with()
    for tool in memory_tools():
        with pytest.raises(MissingStore):
            await tool(Context(agent), **({**READING, **WRITING}[tool.name]))
    _, asked_for = cmd(agent, (memory_tools("recall")[0], {}))
    assert len(asked_for) == 1


async def test_off_the_record_nothing_is_remembered(store: Any) -> None:
    """A session that is told to leave its memory out of a turn has none for the tools either."""
    talker = Talker(tool_calls(("remember", {"content": "A secret."})), "Done.")
    session = await Session.start(a_spec(), "conv", store=store, model=talker)
    await session.chat("Between us.", store=None)
    assert "store is missing" in talker.prompts[-1].messages[-1].content
    assert await store.list_entries(ADA) == []


async def test_tools_work_together_in_one_conversation(store: Any) -> None:
    """What was kept in a turn is found, replaced and reviewed in the next ones."""
    first = await call_tool(store, "remember", {"content": "The shop uses MySQL.", "type": "fact"})
    second = await call_tool(store, "remember", {"content": "The shop uses Postgres.", "type": "fact"})
    ids = {"memory_id": first["memory_id"], "replacement_id": second["memory_id"], "reason": "migrated"}
    await call_tool(store, "forget", ids)
    found = await call_tool(store, "recall", {"query": "Which database does the shop use?"})
    assert [one["content"] for one in found["memories"]] == ["The shop uses Postgres."]
