"""A review shows what needs attention, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.custom_stores import ListStore
from tests.support.longterm import SHOP, keep

from omoide import Scope
from omoide.errors import Invalid
from omoide.longterm import review
from omoide.testing import reproducible


async def test_a_tidy_memory_is_clear(store: Any) -> None:
    """Where nothing contradicts, everything holds and no question is open, a review says so."""
    await keep(store, "one", type="fact")
    report = await review(store, SHOP)
    assert report.is_clear
    assert str(report) == "Nothing needs attention."


async def test_everything_that_needs_attention_is_shown(store: Any) -> None:
    """Contradictions, stale memories with the way to the reason, open questions, and what expires soon."""
    with reproducible(1_000):
        await keep(store, "pg", "Use Postgres.", type="decision", metadata={"key": "database"})
        await keep(store, "my", "Use MySQL.", type="decision", metadata={"key": "database"})
        await keep(store, "premise")
        await keep(store, "conclusion", on=["premise"])
        await store.supersede("premise", SHOP, reason="wrong")
        await keep(store, "question", "Which licence is it?", type="unknown")
        await keep(store, "soon", expires_at=5_000)
        await keep(store, "late", expires_at=10_000_000_000)
        await keep(store, "past", expires_at=1_000)
        report = await review(store, SHOP)
    assert [{*one.ids} for one in report.conflicts] == [{"pg", "my"}]
    (stale,) = report.stale
    assert (stale.entry.id, [chain.path for chain in stale.chains]) == (
        "conclusion",
        [("conclusion", "premise")],
    )
    assert [entry.id for entry in report.open_questions] == ["question"]
    assert [entry.id for entry in report.expiring] == ["soon"]
    assert not report.cut
    told = str(report)
    for words in ("Use MySQL.", "conclusion depends on premise: forgotten (wrong", "Which licence is it?"):
        assert words in told


async def test_a_review_changes_nothing(store: Any) -> None:
    """Looking leaves no link, no revision and no change behind."""
    for name in ("pg", "my"):
        await keep(store, name, type="decision", metadata={"key": "database"})
    before = await store.changes("default")
    await review(store, SHOP)
    assert await store.changes("default") == before


async def test_a_review_says_when_there_is_more(store: Any) -> None:
    """No more of each kind is shown than asked for, and that something was left out is said."""
    for at in range(3):
        await keep(store, f"q{at}", type="unknown")
    report = await review(store, SHOP, limit=2)
    assert (len(report.open_questions), report.cut) == (2, True)
    assert "There is more." in str(report)
    assert not (await review(store, SHOP, limit=3)).cut


async def test_a_review_stays_in_its_scope(store: Any) -> None:
    """What others do not know is their question, and wrong questions are refused."""
    await keep(store, "theirs", type="unknown", scope=Scope(agent_id="eve", project_id="shop"))
    assert (await review(store, SHOP)).is_clear
    with pytest.raises(Invalid, match="limit"):
        await review(store, SHOP, limit=0)
    with pytest.raises(Invalid, match="cannot list"):
        await review(ListStore(), SHOP)
