"""Tools, their descriptions and their results, over every transport."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from mcp import Client
from tests.support.longterm import a_store, keep
from tests.support.mcp_clients import (
    ADA,
    CALLS,
    DEFAULT_TOOLS,
    EXTRA_TOOLS,
    call,
    call_error,
    connect_client,
    connect_http,
    connect_stdio,
    fill_store,
    http_server,
    text_of,
)
from tests.support.stores import rate_hits

from omoide import Scope
from omoide.errors import QueryStopped, WrongType
from omoide.graph import sandbox
from omoide.integrations.mcp import create_server


async def test_five_tools_are_offered_unless_all_are_asked_for(store: Any) -> None:
    """A model chooses better among few."""
    async with connect_client(store) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == DEFAULT_TOOLS
    async with connect_client(store, all_tools=True) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == DEFAULT_TOOLS + EXTRA_TOOLS


async def test_recall_gives_everything_with_its_relevance(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless a call names a relevance; the memory that updates another one is named beside it."""
    await keep(store, "old", "The door is red.", scope=ADA)
    await keep(store, "new", "The door is blue.", scope=ADA)
    rate_hits(monkeypatch, {"old": "new"}, new=0.9, old=0.01)
    async with connect_client(store) as client:
        found = await call(client, "recall", query="door")
        shown = {one["id"]: (one["relevance"], one.get("newer")) for one in found["memories"]}
        assert shown == {"new": (0.9, None), "old": (0.01, "new")}
        strict = await call(client, "recall", query="door", min_relevance=0.5)
        assert ([one["id"] for one in strict["memories"]], strict["withheld"]) == (["new"], 1)


async def test_who_serves_nobody_in_particular_cannot_write(store: Any) -> None:
    """Without an agent there is nobody whose memory it would become: tools that write are not offered."""
    await fill_store(store)
    async with connect_client(store, Scope(), all_tools=True) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {*DEFAULT_TOOLS, *EXTRA_TOOLS} - names == {"remember", "forget", "relate", "restore"}
        assert (await call(client, "recall", query="tea"))["count"] == 2
        assert (await call(client, "memory_status"))["writable"] is False
        assert "Unknown tool" in await call_error(client, "remember", content="Tea is green.")
    with pytest.raises(WrongType, match="scope"):
        create_server(store, "ada")  # type: ignore[arg-type]


async def test_clients_are_told_what_tools_do(store: Any) -> None:
    """Each says whether it reads or writes and what may be lost, and nothing reaches beyond the memory."""
    async with connect_client(store, all_tools=True) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    hints = {name: tool.annotations for name, tool in tools.items()}
    assert all(tool.title and tool.description and tool.output_schema for tool in tools.values())
    assert {name for name, hint in hints.items() if hint and not hint.read_only_hint} == {
        "remember",
        "forget",
        "relate",
        "restore",
    }
    assert {name for name, hint in hints.items() if hint and hint.destructive_hint} == {"forget", "relate"}
    assert all(hint and hint.idempotent_hint and hint.open_world_hint is False for hint in hints.values())


async def test_schemas_are_short_and_name_no_scope(store: Any) -> None:
    """The five take little room in a prompt, every parameter is explained, and none says whose it is."""
    async with connect_client(store, all_tools=True) as client:
        tools = (await client.list_tools()).tools
    usual = [
        tool.model_dump(by_alias=True, exclude_none=True) for tool in tools if tool.name in DEFAULT_TOOLS
    ]
    assert len(json.dumps(usual)) < 8_000
    for tool in tools:
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        assert "$ref" not in json.dumps([tool.input_schema, tool.output_schema])
        properties = tool.input_schema["properties"]
        assert all(parameter["description"] for parameter in properties.values())
        assert not {*properties} & {"agent", "agent_id", "namespace", "project", "session", "scope"}


@pytest.mark.parametrize("way", ["memory", "legacy", "stdio", "http"])
async def test_every_tool_can_be_called_however_a_client_is_connected(way: str, tmp_path: Path) -> None:
    """In this process, in the older protocol, through pipes and over HTTP all tools answer with data."""
    async with a_store("sqlite", tmp_path) as store, AsyncExitStack() as stack:
        await fill_store(store)
        client: Client
        if way == "stdio":
            client = await stack.enter_async_context(connect_stdio(tmp_path, "--all-tools"))
        elif way == "http":
            url = stack.enter_context(http_server(tmp_path, "--all-tools"))
            client = await stack.enter_async_context(connect_http(url))
        else:
            mode = "auto" if way == "memory" else way
            client = await stack.enter_async_context(connect_client(store, mode=mode, all_tools=True))
        assert client.server_info is not None
        assert client.server_info.name == "omoide"
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {*tools} == {*CALLS}
        for name, params in CALLS.items():
            result = await client.call_tool(name, params)
            assert not result.is_error, (name, text_of(result))
            assert json.loads(text_of(result)) == result.structured_content
            jsonschema.validate(result.structured_content, tools[name].output_schema or {})
        kept = await store.list_entries(ADA)
        assert [entry.content for entry in kept][-1] == "Prices are kept in cents."


async def test_what_is_remembered_is_recalled_and_forgotten(store: Any) -> None:
    """The same words are kept once; after they were forgotten they can be kept anew."""
    async with connect_client(store, all_tools=True) as client:
        first = await call(client, "remember", content="The database is Postgres.", tags=["infra"])
        again = await call(client, "remember", content="The database is Postgres.")
        assert (again["memory_id"], again["message"]) == (
            first["memory_id"],
            f"This was known already, as {first['memory_id']}.",
        )
        (found,) = (await call(client, "recall", query="which database?", tags=["infra"]))["memories"]
        assert (found["id"], found["content"]) == (first["memory_id"], "The database is Postgres.")
        assert found["why"]
        assert (await call(client, "recall", query="which database?", tags=["other"]))["count"] == 0
        await call(client, "forget", memory_id=first["memory_id"], reason="moved")
        assert (await call(client, "recall", query="which database?"))["count"] == 0
        anew = await call(client, "remember", content="The database is Postgres.")
        assert anew["memory_id"] != first["memory_id"]
        assert (await call(client, "recall", query="which database?"))["count"] == 1
        status = await call(client, "memory_status")
        assert (status["memories"], status["forgotten"], status["by_type"]) == (1, 1, {"fact": 2})


async def test_closer_looks_tell_what_happened(store: Any) -> None:
    """What rests on something forgotten is stale, until it is restored; versions and origins are told."""
    await fill_store(store)
    async with connect_client(store, all_tools=True) as client:
        await call(client, "forget", memory_id="one", reason="closed")
        one = (await call(client, "get", memory_id="one"))["memory"]
        assert (one["forgotten"], one["reason"]) == (True, "closed")
        (stale,) = (await call(client, "review"))["stale"]
        assert stale["id"] == "two"
        assert (await call(client, "list"))["count"] == 0
        assert (await call(client, "list", forgotten=True))["count"] == 2
        assert (await call(client, "restore", memory_id="one"))["message"] == "It is recalled again."
        assert (await call(client, "list"))["count"] == 2
        assert [one["rev"] for one in (await call(client, "history", memory_id="one"))["versions"]] == [
            1,
            2,
            3,
        ]
        tree = (await call(client, "provenance", memory_id="two"))["tree"]
        assert "The shop sells tea." in tree
        found = await call(client, "related", memory_id="one")
        assert [other["memory"]["id"] for other in found["related"]] == ["two"]


async def test_lists_come_in_pages(store: Any) -> None:
    """The cursor of a page leads to the next, and the last one has none."""
    async with connect_client(store, all_tools=True) as client:
        for number in range(5):
            await call(client, "remember", content=f"Number {number}.")
        seen, cursor = [], ""
        while True:
            page = await call(client, "list", limit=2, cursor=cursor)
            seen += [memory["content"] for memory in page["memories"]]
            if not (cursor := page.get("cursor", "")):
                break
        assert sorted(seen) == [f"Number {number}." for number in range(5)]


async def test_agents_that_can_do_something_are_found(store: Any) -> None:
    """Who declares an action is named with the reason; nobody is no error."""
    await fill_store(store)
    async with connect_client(store) as client:
        (found,) = (await call(client, "who_can", action="summarise"))["agents"]
        assert (found["id"], found["name"]) == ("ada", "coder")
        assert "declares summarise" in found["reason"]
        assert await call(client, "who_can", action="fly") == {"agents": [], "count": 0}
        for needed, count in (({"network": False}, 1), ({"network": True}, 0)):
            assert (await call(client, "who_can", action="summarise", io=needed))["count"] == count


async def test_strict_servers_refuse_what_is_incomplete(store: Any) -> None:
    """A decision without its reason is refused in words that help."""
    async with connect_client(store, strict=True) as client:
        assert "rationale" in await call_error(
            client, "remember", content="We use Postgres.", type="decision"
        )


async def test_answers_in_sparql_are_rows_truths_or_triples(store: Any) -> None:
    """Each form of query has its own kind of answer, and nothing can be changed or fetched."""
    await fill_store(store)
    async with connect_client(store, all_tools=True) as client:
        rows = await call(client, "sparql", query="SELECT ?t { ?m jido:summary ?t } ORDER BY ?t", limit=1)
        assert rows == {"kind": "rows", "rows": [{"t": "The shop is open."}], "more": True}
        assert await call(client, "sparql", query="ASK { ?m jido:summary ?t }") == {
            "kind": "truth",
            "truth": True,
        }
        made = await call(client, "sparql", query="CONSTRUCT { ?m a jido:X } { ?m jido:summary ?t }")
        assert (made["kind"], len(made["triples"])) == ("triples", 2)
        for query in ("DELETE WHERE { ?a ?b ?c }", "SELECT * { SERVICE <http://x> { ?a ?b ?c } }", "SELECT"):
            assert await call_error(client, "sparql", query=query)


async def test_a_query_always_has_a_process_of_its_own(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked there, with a limit of time, and that it was stopped is told to the model."""
    asked: list[float] = []

    async def stopped(*_: object, **options: Any) -> None:
        asked.append(options["timeout"])
        raise QueryStopped("isolated query", "took longer than 10 s", "ask for less")

    monkeypatch.setattr(sandbox, "run_in_process", stopped)
    await fill_store(store)
    async with connect_client(store, all_tools=True) as client:
        assert "took longer" in await call_error(client, "sparql", query="SELECT * { ?a ?b ?c }")
    assert asked == [10.0]
