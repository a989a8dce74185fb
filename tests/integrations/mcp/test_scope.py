"""A client cannot reach beyond the scope of its server."""

from __future__ import annotations

from typing import Any

import pytest
from mcp import MCPError
from tests.support.longterm import keep
from tests.support.mcp_clients import ADA, call, call_error, connect_client, fill_store

from omoide import Scope

HOME = Scope(namespace="home", agent_id="ada", project_id="shop")
ELSEWHERE = {
    "namespace": HOME.replace(namespace="work"),
    "agent": HOME.replace(agent_id="eve"),
    "project": HOME.replace(project_id="bank"),
}
BY_ID = ("forget", "get", "history", "provenance", "related", "restore")


@pytest.mark.parametrize("where", ELSEWHERE)
async def test_what_lies_elsewhere_is_answered_like_what_nobody_has(store: Any, where: str) -> None:
    """By id, an entry of another namespace, agent or project is told apart from none by no tool."""
    await keep(store, "theirs", "The safe opens with 1234.", ELSEWHERE[where])
    await keep(store, "ours", "The shop sells tea.", HOME)
    async with connect_client(store, HOME, all_tools=True) as client:
        for tool in BY_ID:
            said = await call_error(client, tool, memory_id="theirs")
            nobody = await call_error(client, tool, memory_id="nobody")
            assert said == nobody.replace("nobody", "theirs"), tool
        for ends in (("theirs", "ours"), ("ours", "theirs")):
            said = await call_error(
                client, "relate", source_id=ends[0], relation="supersedes", target_id=ends[1]
            )
            assert "'theirs' does not exist" in said
        said = await call_error(client, "forget", memory_id="ours", replacement_id="theirs")
        assert "'theirs' does not exist" in said
        with pytest.raises(MCPError) as told_of_theirs:
            await client.read_resource("memory://entries/theirs")
        with pytest.raises(MCPError) as told_of_nobody:
            await client.read_resource("memory://entries/nobody")
    assert str(told_of_theirs.value) == str(told_of_nobody.value).replace("nobody", "theirs")
    (kept,) = await store.list_entries(ELSEWHERE[where])
    assert kept.superseded_by is None


async def test_an_empty_answer_is_plain(store: Any) -> None:
    """A model whose memory is empty does not learn that others have any, nor whose it is."""
    for scope in ELSEWHERE.values():
        await keep(store, f"{scope.agent_id}-{scope.project_id}", "The safe opens with 1234.", scope)
    async with connect_client(store, HOME, all_tools=True) as client:
        for tool, arguments in (("recall", {"query": "safe"}), ("list", {})):
            said = str(await call(client, tool, **arguments))
            assert not any(word in said for word in ("eve", "bank", "work", "others"))


@pytest.mark.parametrize("where", ELSEWHERE)
async def test_what_lies_elsewhere_is_never_found(store: Any, where: str) -> None:
    """Neither by recall nor in lists, figures, reviews, queries, the index or the prompt."""
    await keep(store, "theirs", "The safe opens with 1234.", ELSEWHERE[where], type="unknown")
    async with connect_client(store, HOME, all_tools=True) as client:
        answers = [
            await call(client, "recall", query="The safe opens with 1234.", min_confidence=0),
            await call(client, "recall"),
            await call(client, "list", forgotten=True),
            await call(client, "review"),
            await call(client, "memory_status"),
            await call(client, "sparql", query="SELECT * { ?s ?p ?o FILTER(isLiteral(?o)) }", limit=200),
            await call(client, "sparql", query='ASK { ?m jido:summary "The safe opens with 1234." }'),
            (await client.read_resource("memory://index")).model_dump(),
            (await client.get_prompt("review")).model_dump(),
        ]
        assert "1234" not in str(answers)
        assert "theirs" not in str(answers)
        assert (await call(client, "memory_status"))["memories"] == 0


async def test_new_memories_belong_to_the_scope_of_the_server(store: Any) -> None:
    """Agent, project, session and namespace come from whoever started it, whatever a model names."""
    scope = HOME.replace(session_id="conv-1")
    async with connect_client(store, scope) as client:
        await call(
            client,
            "remember",
            content="Tea is green.",
            namespace="work",
            agent="eve",
            project="bank",
            session="s",
        )
    (kept,) = await store.list_entries(Scope(namespace="home"))
    assert kept.scope == scope
    assert await store.list_entries(Scope(namespace="work")) == []


async def test_agents_are_those_of_the_namespace_and_spaces_those_of_the_agent(store: Any) -> None:
    """Who can do something is asked in the namespace; what another agent believes is not for this server."""
    eve = ELSEWHERE["agent"]
    await fill_store(store, HOME)
    await fill_store(store, ELSEWHERE["namespace"])
    async with connect_client(store, eve) as client:
        assert [one["id"] for one in (await call(client, "who_can", action="summarise"))["agents"]] == ["ada"]
        await client.read_resource("memory://identity/ada")
        with pytest.raises(MCPError, match="does not exist"):
            await client.read_resource("memory://spaces/ada/world")
    async with connect_client(store, Scope(namespace="nowhere", agent_id="ada")) as client:
        assert (await call(client, "who_can", action="summarise"))["count"] == 0
        with pytest.raises(MCPError, match="does not exist"):
            await client.read_resource("memory://identity/ada")


async def test_tokens_are_no_memories(store: Any) -> None:
    """The place where tokens are kept holds nothing that a server for it would show."""
    from omoide.service import auth

    await auth.create(store, "editor", ["admin"], ["*"])
    async with connect_client(store, auth.TOKEN_SCOPE.replace(agent_id="ada"), all_tools=True) as client:
        assert (await call(client, "list"))["count"] == 0
        assert "digest" not in str(await client.read_resource("memory://index"))
    async with connect_client(store, ADA) as client:
        assert "tok_" not in str(await client.read_resource("memory://index"))
