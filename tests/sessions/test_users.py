"""A session of a user reads and writes the memory of that user alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.stores import url

from omoide import AgentSpec, Scope, Session, erase_user, open_store
from omoide.errors import Invalid, MissingScope, NotFound
from omoide.sessions import sessions
from omoide.turns import preflight, recall, turn, write

CLERK = AgentSpec(id="clerk", memory={"capture": "conversation"})


def answer(*_: Any) -> str:
    """What every model of these tests says."""
    return "Understood."


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A store."""
    with open_store(url(request.param, tmp_path), embedder="none") as opened:
        yield opened


async def test_what_a_session_captures_belongs_to_its_user(store: Any) -> None:
    """Another user's session recalls nothing of it, and the first user's next session does."""
    async with Session.open(CLERK, "a", store=store, user_id="ann", model=answer) as session:
        await session.chat("My shoe size is 38.")
        await session.remember("Ann prefers red shoes.")
        assert session.record.user_id == "ann"
    kept = await store.list_entries(Scope(agent_id="clerk"))
    assert {entry.user_id for entry in kept} == {"ann"}
    for user, found in (("ann", True), ("bob", False)):
        async with Session.open(CLERK, f"next-{user}", store=store, user_id=user, model=answer) as session:
            prompt = (await session.preflight("Which shoes does she like?")).prompt
            shown = prompt.memory is not None and bool(prompt.memory["entries"])
            assert shown is found
            context = await session.assemble_context("shoes", reach="user")
            assert ("red shoes" in context.text) is found


async def test_a_session_stays_with_its_user(store: Any) -> None:
    """It is resumed without naming the user, and refused to another one, without telling whose it is."""
    async with Session.open(CLERK, "a", store=store, user_id="ann", model=answer) as session:
        await session.chat("Hello.")
    async with Session.open(CLERK, "a", store=store, model=answer) as session:
        await session.chat("Hello again.")
        assert (await session.remember("Ann waits.")).entry.user_id == "ann"
        with pytest.raises(Invalid, match="user_id"):
            await session.chat("Hello.", user_id="bob")
    with pytest.raises(Invalid, match="not of this user") as raised:
        await Session.load("a", CLERK, store=store, user_id="bob")
    assert "ann" not in str(raised.value)
    async with Session.open(CLERK, "of-none", store=store, model=answer) as session:
        await session.chat("Hello.")
    with pytest.raises(Invalid, match="not of this user"):
        await Session.load("of-none", CLERK, store=store, user_id="bob")
    assert [one.session_id for one in await sessions(store, user_id="ann")] == ["a"]


async def test_erasing_a_user_takes_the_sessions(store: Any) -> None:
    """Record, transcript and notes go with the memories; those of others stay."""
    for user in ("ann", "bob"):
        async with Session.open(CLERK, user, store=store, user_id=user, model=answer) as session:
            await session.chat(f"I am {user}.")
    for wrong in ("", None, 5):
        with pytest.raises(Invalid, match="user_id"):
            await erase_user(store, wrong)  # type: ignore[arg-type]
    assert (await erase_user(store, "ann", namespace="elsewhere")).documents == 0
    receipt = await erase_user(store, "ann", reason="account closed")
    assert receipt.reason == "account closed"
    assert receipt.documents >= 2
    assert not any("transcript" in line for line in receipt.unreachable)
    assert [one.session_id for one in await sessions(store)] == ["bob"]
    assert {entry.user_id for entry in await store.list_entries(Scope())} == {"bob"}


async def test_a_key_outlives_the_session(store: Any) -> None:
    """The next session replaces the value, for the same user only."""
    for name, user, city in (("a", "ann", "Berlin."), ("b", "bob", "Oslo."), ("c", "ann", "Paris.")):
        async with Session.open(CLERK, name, store=store, user_id=user, model=answer) as session:
            await session.remember(city, key="home_city", id=city)
    live = [entry for entry in await store.list_entries(Scope()) if entry.key and not entry.superseded_by]
    assert [(entry.user_id, entry.content) for entry in live] == [("bob", "Oslo."), ("ann", "Paris.")]


@pytest.mark.parametrize("owner", ["ann", None])
async def test_a_fork_belongs_to_the_same_user(store: Any, owner: str | None) -> None:
    """What was said in a session becomes nobody else's, and goes with its user."""
    async with Session.open(CLERK, "a", store=store, user_id=owner, model=answer) as session:
        await session.chat("My shoe size is 38.")
        with pytest.raises(Invalid, match="user_id is 'ben', and this session is not of that user"):
            await session.fork("b", user_id="ben")
        assert (await session.fork("c", user_id=owner)).record.user_id == owner
    assert {record.session_id for record in await sessions(store)} == {"a", "c"}
    if owner is not None:
        await erase_user(store, owner)
        assert await sessions(store) == []


async def test_memory_of_scope_user_spans_agents(store: Any) -> None:
    """A policy of scope `user` needs the user, and recalls what other agents know."""
    spec = AgentSpec(id="guide", memory={"scope": "user"})
    await write(CLERK, "Ann likes museums.", store=store, user_id="ann")
    await write(CLERK, "Bob likes museums.", store=store, user_id="bob")
    found = await recall(spec, "Who likes museums?", store=store, user_id="ann")
    assert found is not None
    assert [entry.content for entry in found.entries] == ["Ann likes museums."]
    with pytest.raises(MissingScope, match="user_id"):
        await recall(spec, "Who likes museums?", store=store)
    with pytest.raises(Invalid, match="user_id"):
        await preflight(CLERK, "Hello.", store=store, user_id="")


async def test_two_users_may_send_the_same_request_id(store: Any) -> None:
    """Turns outside of sessions are captured for each, once."""
    options = {"store": store, "request_id": "1", "model": answer}
    for user in ("ann", "ben", None):
        for _ in range(2):
            result = await turn(CLERK, f"I am {user}.", user_id=user, **options)
            assert (result.memory is not None, result.notices) == (True, ())
    kept = await store.list_entries(Scope(agent_id="clerk"))
    assert {entry.user_id: entry.content.splitlines()[0] for entry in kept} == {
        "ann": "User: I am ann.", "ben": "User: I am ben.", None: "User: I am None.",
    }  # fmt: skip
    assert len(kept) == 3


async def test_a_session_that_is_open_elsewhere_writes_nothing_of_an_erased_user(store: Any) -> None:
    """Its next turn, and what it would save at its end, find no session."""
    async with Session.open(CLERK, "a", store=store, user_id="ann", model=answer) as session:
        await session.chat("My shoe size is 38.")
        receipt = await erase_user(store, "ann")
        assert len(receipt.ids) == 1
        with pytest.raises(NotFound, match="erased"):
            await session.chat("And I like red.")
    assert await store.list_entries(Scope()) == []
    assert await sessions(store) == []
    assert await store.kinds("default") == []
