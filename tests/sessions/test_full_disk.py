"""Tests of a session that continues after a full disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.turns import tool_calls

from omoide import AgentSpec, Scope, Session, action, open_store
from omoide.errors import DiskFull, OmoideError

ROOM = (60, 70, 80, 90, 120)
"""How many pages the file may have, a few more each time."""


async def finish_turn(session: Session) -> None:
    """Bring the turn that did not finish to its end; a tool of unknown outcome is looked up by hand."""
    for review in session.pending_reviews:
        await session.settle(review.id, "done")
    await session.resume()


async def fill_disk(session: Session, errors: list[OmoideError]) -> None:
    """Ask until there is no room left."""
    try:
        while session.status not in ("new", "finished"):
            await finish_turn(session)
        for _ in range(50):
            await session.run("Once more, please.")
    except OmoideError as error:
        errors.append(error)


async def test_nothing_is_lost_or_done_twice_when_the_disk_fills_up(tmp_path: Path) -> None:
    """Each time it is an error of its own kind; with room again, every turn is there and captured once."""
    paid: list[str] = []

    @action(effectful=True)
    async def pay(ctx: Any) -> str:
        """Pay."""
        paid.append(ctx.idempotency_key)
        return "x" * 3_000

    def model(request: Any, journal: Any) -> Any:
        return tool_calls(("pay", {})) if request.round == 0 else "Paid. " * 100

    spec = AgentSpec(id="a", tools=[pay], memory={"capture": "conversation"})
    url = f"sqlite:///{(tmp_path / 'full.db').as_posix()}"
    errors: list[OmoideError] = []
    for pages in ROOM:
        async with open_store(url, embedder="none", max_pages=pages) as store:
            try:
                async with Session.open(spec, "s", store=store, model=model) as session:
                    await fill_disk(session, errors)
            except DiskFull as error:
                errors.append(error)
    assert {type(error) for error in errors} == {DiskFull}
    async with (
        open_store(url, embedder="none") as store,
        Session.open(spec, "s", store=store, model=model) as session,
    ):
        while session.status not in ("new", "finished"):
            await finish_turn(session)
        await session.run("And a last one.")
        kept = await store.list_entries(Scope(agent_id="a"))
        turns = session.record.turns
    assert turns > len(ROOM)
    assert len(kept) == len({entry.metadata["request_id"] for entry in kept}) == turns
    assert len(paid) == len({*paid}) == turns


@pytest.mark.parametrize("pages", [1, 20])
async def test_a_session_that_finds_no_room_at_all_is_not_begun(pages: int, tmp_path: Path) -> None:
    """A store that is full from the start says so, and holds no half of a session."""
    url = f"sqlite:///{(tmp_path / 'full.db').as_posix()}"
    spec = AgentSpec(id="a", instructions="x" * 200_000)
    with pytest.raises(OmoideError):
        async with open_store(url, embedder="none", max_pages=pages) as store:
            await Session.start(spec, "s", store=store, model=lambda request, journal: "Hi.")
    async with (
        open_store(url, embedder="none") as store,
        Session.open(spec, "s", store=store, model=lambda request, journal: "Hi.") as session,
    ):
        assert (session.status, await session.chat("hello")) == ("new", "Hi.")
