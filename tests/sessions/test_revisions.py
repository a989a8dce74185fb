"""Tests of known values about which something new is learned: each is one memory with a history."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from tests.support.promotion import FailingStore
from tests.support.sessions import a_spec, reopen, talker

from omoide import Entry, Evidence, Scope, Signal, clock, graph
from omoide.errors import StoreFailed
from omoide.promotion import PromotionMark, PromotionPolicy
from omoide.sessions import Session

NEVER = PromotionPolicy(enabled=False)
CAUSE = "The pool is too small."


def make_session(store: Any, id: str = "s1", **options: Any) -> Session:
    """A session to be entered."""
    return Session.open(a_spec(memory=True), id, **{"store": store, "model": talker(), **options})


def suspect(session: Session, **about: Any) -> None:
    """Put a cause, as a hypothesis unless it is said otherwise."""
    given = {"source": "inferred", "confidence": 0.9, "memory_type": "hypothesis", **about}
    session.context.put("cause", CAUSE, **given)


async def promote_all(session: Session) -> None:
    """Promote whatever it scores."""
    await session.promote(threshold=0.0)


async def only_entry(store: Any) -> Entry:
    """The one memory that there is."""
    (entry,) = await store.list_entries(Scope())
    found: Entry = entry
    return found


async def live(store: Any) -> list[str]:
    """What counts now, in words."""
    found = await store.list_entries(Scope())
    return sorted(one.content for one in found if one.is_live(clock.now()))


CHANGES: dict[str, dict[str, Any]] = {
    "type": {"memory_type": "fact"},
    "source": {"source": "tool"},
    "confidence": {"confidence": 0.5},
}


@pytest.mark.parametrize("what", CHANGES)
async def test_what_is_new_about_a_known_value_is_a_revision(store: Any, what: str) -> None:
    """Another type, source or confidence is written to the same memory, and its history has both."""
    async with make_session(store) as session:
        suspect(session)
        await promote_all(session)
        before = await only_entry(store)
        suspect(session, **CHANGES[what])
        plan = (await session.promote(dry_run=True, threshold=1.0)).plan
        assert [(one.verdict, one.is_revision) for one in plan.candidates] == [("promote", True)]
        assert what in plan.candidates[0].why
        assert (await only_entry(store)) == before
        await session.promote(threshold=1.0)
        after = await only_entry(store)
        assert (after.id, after.rev, after.created_at) == (before.id, 2, before.created_at)
        expected = {"type": "fact", "source": "tool", "confidence": 0.5}[what]
        assert getattr(after, what) == expected
        versions = [version.entry for version in await store.history(after.id, Scope())]
        assert sorted(versions, key=lambda one: one.rev) == [before, after]
        assert [one.verdict for one in (await session.promote(dry_run=True)).plan.candidates] == ["unchanged"]
        assert session.promotion_stats.total_promoted == 1


async def test_a_hypothesis_that_becomes_a_fact_is_one_in_the_graph(store: Any) -> None:
    """SPARQL finds it under its new type alone, with its new source."""
    types = "PREFIX jido: <https://jido.ai/ontology#> SELECT ?t WHERE { ?m a ?t ; jido:assertedIn ?s }"
    async with make_session(store) as session:
        view = graph.open(store)
        suspect(session)
        await promote_all(session)
        assert [str(name).rpartition("#")[2] for name in (await view.sparql(types, Scope())).values("t")] == [
            "Hypothesis"
        ]
        suspect(session, source="explicit", memory_type="fact")
        await promote_all(session)
        assert [str(name).rpartition("#")[2] for name in (await view.sparql(types, Scope())).values("t")] == [
            "Fact"
        ]
        sources = "PREFIX jido: <https://jido.ai/ontology#> SELECT ?s WHERE { ?m jido:hasSourceType ?s }"
        (source,) = (await view.sparql(sources, Scope())).values("s")
        assert str(source).endswith("UserSource")


async def test_a_value_that_the_user_confirms_keeps_its_type(store: Any) -> None:
    """A source that implies no type takes nothing away: the fact of a tool becomes one of the user."""
    async with make_session(store) as session:
        session.context.put("framework", "Phoenix", source="tool", confidence=0.9)
        await promote_all(session)
        session.context.put("framework", "Phoenix", source="explicit", confidence=1.0)
        await promote_all(session)
    entry = await only_entry(store)
    assert (entry.type, entry.source, entry.confidence, entry.rev) == ("fact", "user", 1.0, 2)


@pytest.mark.parametrize(("source", "confirms"), [("explicit", True), ("tool", True), ("inferred", False)])
async def test_a_confirmation_adds_its_evidence(store: Any, source: str, confirms: bool) -> None:
    """Said again in another message it is confirmed; what the agent infers twice is not."""
    async with make_session(store) as session:
        await session.add_message("user", "The pool is too small.")
        suspect(session, source=source)
        await promote_all(session)
        await session.add_message("user", "As I said, it is the pool.")
        suspect(session, source=source)
        await promote_all(session)
        thread = session.thread.id
    entry = await only_entry(store)
    assert entry.evidence == tuple(
        Evidence(kind="message", ref=f"{thread}:{at}") for at in range(2 if confirms else 1)
    )
    assert entry.rev == (2 if confirms else 1)


async def test_a_value_that_left_the_context_is_revised_too(store: Any) -> None:
    """Pushed out of the working context after it was confirmed, it still confirms its memory."""
    budget = {"total": 2_000, "conversation": 1_000, "context": 60}
    async with make_session(
        store, token_budget=budget, count_tokens=lambda text: len(text.split()), promotion=NEVER
    ) as session:
        session.context.put("framework", "Phoenix", source="tool", confidence=0.9)
        await promote_all(session)
        session.context.put("framework", "Phoenix", source="explicit", confidence=0.3)
        session.context.put("notes", "word " * 55, confidence=1.0)
        assert not session.context.item("framework")
        await promote_all(session)
    entry = await only_entry(store)
    assert (entry.type, entry.source, entry.confidence, entry.rev) == ("fact", "user", 0.3, 2)


async def test_a_proposal_of_a_known_memory_adds_what_is_new(store: Any) -> None:
    """The same text with more confidence is the next revision; with less, it is only more evidence."""
    one, two, three = (Evidence(kind="document", ref=f"notes.md#{at}") for at in range(3))
    async with make_session(store) as session:
        for confidence, evidence in ((0.6, one), (0.9, two), (0.2, three)):
            session.propose(CAUSE, type="fact", confidence=confidence, importance=0.9, evidence=[evidence])
            await session.promote()
        entry = await only_entry(store)
        assert (entry.confidence, entry.rev, entry.evidence) == (0.9, 3, (one, two, three))
        item = session.propose(CAUSE, id=entry.id, type="root_cause", confidence=0.4, importance=0.9)
        await session.promote()
        assert item.id == entry.id
        entry = await only_entry(store)
        assert (entry.type, entry.confidence, entry.rev) == ("root_cause", 0.4, 4)


async def test_an_undone_revision_restores_the_one_before(store: Any) -> None:
    """The memory is as it was, and what is held back waits for something new."""
    async with make_session(store) as session:
        suspect(session)
        await promote_all(session)
        before = await only_entry(store)
        suspect(session, memory_type="fact")
        await promote_all(session)
        await session.undo_promotion()
        after = await only_entry(store)
        assert after.replace(rev=1) == before
        assert [one.verdict for one in (await session.promote(dry_run=True)).plan.candidates] == ["held"]
        suspect(session, memory_type="fact", confidence=1.0)
        await promote_all(session)
        entry = await only_entry(store)
        assert (entry.type, entry.confidence) == ("fact", 1.0)


async def test_an_undone_proposal_of_a_known_memory_waits_again(store: Any) -> None:
    """The memory that was there first stays, as it was."""
    async with make_session(store, promotion=NEVER) as session:
        kept = (await session.remember(CAUSE, type="fact", confidence=0.5)).entry
        session.propose(CAUSE, type="fact", confidence=0.9, importance=0.9)
        await session.promote()
        assert (await only_entry(store)).confidence == 0.9
        await session.undo_promotion()
        assert (await only_entry(store)).replace(rev=1) == kept
        assert [one.content for one in session.short_term.pending.list_implicit()] == [CAUSE]


@pytest.mark.parametrize("order", [*permutations(range(3))], ids=str)
async def test_when_all_runs_are_undone_nothing_of_a_revised_memory_counts(
    store: Any, order: tuple[int, ...]
) -> None:
    """In whatever order: a revision does not outlive the memory that it revises."""
    async with make_session(store, promotion=NEVER) as session:
        runs = []
        for about in ({}, {"memory_type": "fact"}, {"confidence": 1.0}):
            suspect(session, **about)
            done = await session.promote(threshold=0.0)
            assert done.run is not None
            runs.append(done.run.id)
        for at in order:
            await session.undo_promotion(runs[at])
        assert await live(store) == []
        assert all(one.undone_at is not None for one in session.promotions)


async def test_what_was_changed_since_is_not_undone(store: Any) -> None:
    """A revision that somebody else wrote meanwhile stays."""
    async with make_session(store, promotion=NEVER) as session:
        suspect(session)
        await promote_all(session)
        suspect(session, memory_type="fact")
        await promote_all(session)
        entry = await only_entry(store)
        await session.remember(CAUSE, id=entry.id, type="fact", confidence=0.1)
        changed = await only_entry(store)
        await session.undo_promotion()
        assert await only_entry(store) == changed


@pytest.mark.parametrize("elsewhere", [True, False])
async def test_an_interrupted_revision_is_finished_by_the_next_run(store: Any, elsewhere: bool) -> None:
    """It is written once, and the run that finishes it can be undone."""
    ill = FailingStore(store)
    session = await make_session(ill, promotion=NEVER).__aenter__()
    suspect(session)
    await promote_all(session)
    suspect(session, memory_type="fact")
    await session.add_message("user", "Go on.")
    ill.calls = {"save notes"}
    with pytest.raises(StoreFailed):
        await promote_all(session)
    ill.calls = set()
    if elsewhere:
        await session._stop_background()  # the process dies here
        session = await reopen(session, promotion=NEVER)
    await promote_all(session)
    entry = await only_entry(store)
    assert (entry.type, entry.rev) == ("fact", 2)
    await session.undo_promotion()
    assert (await only_entry(store)).type == "hypothesis"
    await session.close()


async def test_a_forgotten_memory_is_not_brought_back_by_a_confirmation(store: Any) -> None:
    """What the user wanted forgotten stays so, and nothing is written to it."""
    async with make_session(store) as session:
        suspect(session)
        await promote_all(session)
        entry = await only_entry(store)
        await store.supersede(entry.id, Scope(), reason="not wanted")
        forgotten = await only_entry(store)
        suspect(session, source="explicit", memory_type="fact")
        await promote_all(session)
        assert await only_entry(store) == forgotten


async def test_a_session_that_an_older_version_stored_learns_as_well(store: Any) -> None:
    """Its marks have no types; what is put later is compared with what the working context had."""
    async with make_session(store) as session:
        suspect(session)
        await promote_all(session)
        session._memory.apply(
            lambda notes: notes.replace(
                marks=tuple(
                    PromotionMark(key=mark.key, id=mark.id, digest=mark.digest) for mark in notes.marks
                )
            )
        )
    async with make_session(store) as session:
        assert [one.verdict for one in (await session.promote(dry_run=True)).plan.candidates] == ["unchanged"]
        suspect(session, memory_type="fact")
        await promote_all(session)
    entry = await only_entry(store)
    assert (entry.type, entry.rev) == ("fact", 2)


async def test_listeners_hear_of_a_revision(store: Any) -> None:
    """By a signal of its own, which has no content."""
    heard: list[Signal] = []
    async with make_session(store, on_signal=heard.append) as session:
        suspect(session)
        await promote_all(session)
        suspect(session, memory_type="fact")
        heard.clear()
        await promote_all(session)
        await session.undo_promotion()
    assert [one.type for one in heard] == ["memory.revised", "memory.promoted", "memory.revised"]
    assert CAUSE not in "".join(one.to_json().decode() for one in heard)


async def test_evidence_has_a_limit(store: Any) -> None:
    """However often a value is confirmed, its memory has the first evidence and the latest."""
    async with make_session(store) as session:
        for at in range(130):
            session.context.put(
                "cause", CAUSE, source="tool", confidence=0.9, memory_type="fact",
                evidence=Evidence(kind="tool", ref=f"t:{at}"),
            )  # fmt: skip
            await promote_all(session)
        entry = await only_entry(store)
    refs = [one.ref for one in entry.evidence]
    assert (len(refs), refs[0], refs[1], refs[-1]) == (100, "t:0", "t:31", "t:129")
