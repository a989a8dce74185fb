"""Pruning forgets only what it may, and names what depends on it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.custom_stores import ListStore
from tests.support.longterm import SHOP, a_store, keep

from omoide import Scope
from omoide.core import MEMORY_TYPES
from omoide.core.entry import with_subtypes
from omoide.errors import Invalid, NotFound
from omoide.longterm import PruneReport, prune
from omoide.longterm.upkeep import PROTECTED_TYPES
from omoide.testing import reproducible

DAY = 24 * 3_600_000
NOW = 20_000 * DAY


def ids(report: PruneReport) -> list[str]:
    return [one.entry.id for one in report.candidates]


async def keep_aged(store: Any, id: str, days: int, **fields: Any) -> None:
    """A memory that is so many days old at the moment of pruning."""
    with reproducible(NOW - days * DAY):
        await keep(store, id, **fields)


async def test_a_dry_run_changes_nothing(store: Any) -> None:
    """Unless told otherwise, pruning only says what could go, why, and how much stays."""
    await keep_aged(store, "old", 40, type="fact")
    await keep_aged(store, "young", 1, type="fact")
    report = await prune(store, SHOP, older_than_ms=30 * DAY, now=NOW)
    assert (ids(report), report.kept, report.pruned, report.dry_run) == (["old"], 1, (), True)
    assert report.candidates[0].reasons == ("40 days old",)
    assert (await store.get("old", SHOP)).superseded_by is None
    assert "1 memories would be pruned, 1 stay" in str(report)


async def test_what_is_pruned_is_forgotten_with_the_reason_and_can_come_back(store: Any) -> None:
    """Pruning supersedes softly: the memory is there with its reason, and restoring undoes it."""
    await keep_aged(store, "old", 40, type="fact", confidence=0.2)
    report = await prune(store, SHOP, older_than_ms=30 * DAY, max_confidence=0.3, now=NOW, dry_run=False)
    assert (report.pruned, report.dry_run) == (("old",), False)
    gone = await store.get("old", SHOP)
    assert gone.superseded_by == "deleted"
    assert gone.superseded_reason == "pruned: 40 days old, confidence 0.2"
    assert (await store.reinstate("old", SHOP)).superseded_by is None
    assert len(await store.history("old", SHOP)) == 3


async def test_all_criteria_have_to_hold(store: Any) -> None:
    """A memory goes only if it is old enough, unsure enough and little used enough, all at once."""
    await keep_aged(store, "goes", 40, confidence=0.2)
    await keep_aged(store, "young", 10, confidence=0.2)
    await keep_aged(store, "sure", 40, confidence=0.9)
    await keep_aged(store, "used", 40, confidence=0.2)
    for _ in range(3):
        await store.record_access(["used"], SHOP)
    report = await prune(store, SHOP, older_than_ms=30 * DAY, max_confidence=0.5, max_access=2, now=NOW)
    assert (ids(report), report.kept) == (["goes"], 3)
    assert report.candidates[0].reasons == ("40 days old", "confidence 0.2", "used 0 times")
    used = await prune(store, SHOP, max_access=2, now=NOW)
    assert "used" not in ids(used)
    assert len(used.candidates) == 3


async def test_the_bounds_are_exact(store: Any) -> None:
    """Older means older, at most means at most."""
    await keep_aged(store, "one", 30, confidence=0.5)
    await store.record_access(["one"], SHOP)
    for criteria, goes in (
        ({"older_than_ms": 30 * DAY}, False),
        ({"older_than_ms": 30 * DAY - 1}, True),
        ({"max_confidence": 0.5}, True),
        ({"max_confidence": 0.49}, False),
        ({"max_access": 1}, True),
        ({"max_access": 0}, False),
    ):
        assert bool((await prune(store, SHOP, now=NOW, **criteria)).candidates) == goes


async def test_protected_types_never_go(store: Any) -> None:
    """Decisions, conventions and lessons stay, with what refines them, unless others are protected."""
    for type in MEMORY_TYPES:
        await keep_aged(store, type, 40, type=type)
    report = await prune(store, SHOP, older_than_ms=DAY, now=NOW, dry_run=False)
    safe = {name for one in PROTECTED_TYPES for name in with_subtypes(one)}
    assert safe == {
        *("decision", "architectural_decision", "implementation_decision", "lesson_learned"),
        *("convention", "coding_standard", "architectural_convention", "agent_rule", "process_convention"),
    }
    assert {*report.pruned} == {*MEMORY_TYPES} - safe
    assert report.protected == len(safe)
    others = await prune(store, SHOP, older_than_ms=DAY, now=NOW, protected=["decision"])
    assert "coding_standard" in ids(others)
    assert "architectural_decision" not in ids(others)


async def test_types_narrow_what_may_go(store: Any) -> None:
    """Only the types named, and those that refine them, are looked at."""
    for type in ("bug", "error", "fact"):
        await keep_aged(store, type, 40, type=type)
    report = await prune(store, SHOP, older_than_ms=DAY, types=["error"], now=NOW)
    assert ({*ids(report)}, report.kept) == ({"bug", "error"}, 1)


async def test_what_would_no_longer_hold_is_named(store: Any) -> None:
    """A candidate names the memories that rest on it, and they are stale once it is gone."""
    await keep_aged(store, "premise", 40)
    await keep_aged(store, "conclusion", 1, on=["premise"])
    report = await prune(store, SHOP, older_than_ms=30 * DAY, now=NOW)
    assert report.candidates[0].supports == ("conclusion",)
    assert "conclusion depends on it" in str(report)
    await prune(store, SHOP, older_than_ms=30 * DAY, now=NOW, dry_run=False)
    assert (await store.get("conclusion", SHOP)).stale


async def test_the_oldest_go_first_and_no_more_than_allowed(store: Any) -> None:
    """A limit holds, and the report says how many more could go."""
    for at in range(5):
        await keep_aged(store, f"m{at}", 50 - at)
    report = await prune(store, SHOP, older_than_ms=DAY, now=NOW, limit=2, dry_run=False)
    assert (report.pruned, report.cut) == (("m0", "m1"), 3)
    assert "3 above the limit" in str(report)
    again = await prune(store, SHOP, older_than_ms=DAY, now=NOW, dry_run=False)
    assert again.pruned == ("m2", "m3", "m4")


async def test_what_changed_in_the_meantime_is_left_alone(store: Any, monkeypatch: Any) -> None:
    """A memory that somebody wrote after it was looked at is passed over, and the others go."""
    await keep_aged(store, "one", 40)
    await keep_aged(store, "two", 39)
    supersede = store.supersede

    async def later(id: str, scope: Scope, **how: Any) -> Any:
        if id == "one":
            await keep(store, "one", "Somebody changed it.")
        return await supersede(id, scope, **how)

    monkeypatch.setattr(store, "supersede", later)
    report = await prune(store, SHOP, older_than_ms=DAY, now=NOW, dry_run=False)
    assert (report.pruned, report.passed_over) == (("two",), ("one",))
    assert (await store.get("one", SHOP)).superseded_by is None


async def test_others_memories_are_out_of_reach(store: Any) -> None:
    """Pruning a scope takes nothing from outside it."""
    await keep_aged(store, "theirs", 40, scope=Scope(agent_id="eve", project_id="shop"))
    report = await prune(store, SHOP, older_than_ms=DAY, now=NOW, dry_run=False)
    assert (report.candidates, report.pruned, report.kept) == ((), (), 0)


async def test_pruning_needs_a_criterion(store: Any) -> None:
    """Nothing is pruned without saying what may go, and wrong criteria are refused."""
    with pytest.raises(Invalid, match="older_than_ms"):
        await prune(store, SHOP)
    for wrong in ({"older_than_ms": -1}, {"max_confidence": 2.0}, {"max_access": -1}, {"limit": 0}):
        with pytest.raises(Invalid, match=next(iter(wrong))):
            await prune(store, SHOP, **{"max_access": 1, **wrong})  # type: ignore[arg-type]
    with pytest.raises(NotFound, match="lesson_learned"):
        await prune(store, SHOP, max_access=0, types=["gossip"])
    with pytest.raises(Invalid, match="protected"):
        await prune(store, SHOP, max_access=0, protected="decision")
    with pytest.raises(Invalid, match="cannot list"):
        await prune(ListStore(), SHOP, max_access=0)


Kept = tuple[str, float, int]


@given(
    st.lists(st.tuples(st.sampled_from(MEMORY_TYPES), st.floats(0, 1), st.integers(0, 50)), max_size=8),
    st.none() | st.integers(0, 50),
    st.floats(0, 1),
)
async def test_every_live_memory_is_accounted_for(
    written: list[Kept], days: int | None, confidence: float
) -> None:
    """Candidates, kept and protected add up, and a candidate meets the criteria and is not protected."""
    safe = {name for one in PROTECTED_TYPES for name in with_subtypes(one)}
    async with a_store("memory") as store:
        for at, (type, sure, age) in enumerate(written):
            await keep_aged(store, f"m{at}", age, type=type, confidence=sure)
        report = await prune(
            store,
            SHOP,
            older_than_ms=None if days is None else days * DAY,
            max_confidence=confidence,
            now=NOW,
        )
        expected = {
            f"m{at}"
            for at, (type, sure, age) in enumerate(written)
            if type not in safe and sure <= confidence and (days is None or age > days)
        }
        assert {*ids(report)} == expected
        assert len(report.candidates) + report.kept + report.protected == len(written)
