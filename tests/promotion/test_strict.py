"""Strict promotion refuses contradictions and incomplete memories."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.promotion import (
    NOW,
    SCOPE,
    all_entries,
    fact,
    item,
    live_contents,
    marks_after,
    plan_of,
    short_term,
)

from omoide import Entry, Scope, WriteRequest, clock
from omoide.longterm import find_conflicts, review
from omoide.promotion import PromotionRun, promote
from omoide.testing import FrozenClock

PROJECT = Scope(project_id="shop")


async def run(store: Any, *, strict: bool, session: str = "s1", **given: Any) -> PromotionRun:
    """Promote what is given in a session of the project, and give the run."""
    options = {name: given.pop(name) for name in ("marks", "scope") if name in given}
    options.setdefault("scope", SCOPE.replace(session_id=session))
    with clock.override(FrozenClock(NOW)):
        plan = plan_of(short_term(session_id=session, **given), **options)
        done = await promote(store, plan, strict=strict)
    assert done.run is not None
    return done.run


@pytest.mark.parametrize("type", ["fact", "convention", "coding_standard"])
async def test_a_second_opinion_is_refused_when_strict(store: Any, type: str) -> None:
    """Another value for the key of another session of the project is not kept, and both are named."""
    given = {value: {"framework": fact(value, memory_type=type)} for value in ("Phoenix", "Rails")}
    first = await run(store, strict=True, context=given["Phoenix"])
    second = await run(store, strict=True, session="s2", context=given["Rails"])
    assert await live_contents(store) == ["framework: Phoenix"]
    assert second.promoted == ()
    (failure,) = second.failed
    assert failure.kind == "Contradiction"
    assert first.promoted[0].id in failure.problem
    assert await store.links(first.promoted[0].id, PROJECT) == []


async def test_the_same_opinion_is_no_contradiction(store: Any) -> None:
    """A second session may know what the first one knows."""
    await run(store, strict=True, context={"framework": fact("Phoenix")})
    second = await run(store, strict=True, session="s2", context={"framework": fact("Phoenix")})
    assert second.failed == ()


async def test_a_changed_mind_is_no_contradiction(store: Any) -> None:
    """A value that replaces the one before is kept, also when strict."""
    first = await run(store, strict=True, context={"framework": fact("A")})
    second = await run(store, strict=True, context={"framework": fact("B")}, marks=marks_after(first))
    assert second.failed == ()
    assert await live_contents(store) == ["framework: B"]


@pytest.mark.parametrize(
    ("other", "about"),
    [
        ({"project_id": "barn"}, {}),
        ({"namespace": "elsewhere"}, {}),
        ({}, {"memory_type": "hypothesis", "confidence": 1.0}),
    ],
)
async def test_other_projects_and_kinds_are_no_contradiction(
    store: Any, other: dict[str, Any], about: dict[str, Any]
) -> None:
    """Only the same key of the same project and type has to have the same value."""
    await run(store, strict=True, context={"framework": fact("Phoenix")})
    scope = SCOPE.replace(session_id="s2", **other)
    second = await run(
        store, strict=True, session="s2", scope=scope, context={"framework": fact("Rails", **about)}
    )
    assert (len(second.promoted), second.failed) == (1, ())


@pytest.mark.parametrize(
    ("fields", "scope", "lacking"),
    [
        ({"type": "decision"}, SCOPE, "rationale"),
        ({"type": "decision", "rationale": " "}, SCOPE, "rationale"),
        ({"type": "task"}, SCOPE, "assigned_to"),
        ({}, SCOPE.replace(project_id=None), "project_id"),
        ({}, SCOPE.replace(session_id=None), "session_id"),
    ],
)
async def test_what_lacks_something_is_refused_when_strict(
    store: Any, fields: dict[str, Any], scope: Scope, lacking: str
) -> None:
    """A decision needs its reason, a task its agent, and every memory its project and session."""
    done = await run(store, strict=True, waiting=[item("w", **fields)], scope=scope)
    (failure,) = done.failed
    assert (failure.id, failure.kind) == ("w", "Incomplete")
    assert lacking in failure.problem
    assert await all_entries(store) == []
    lenient = await run(store, strict=False, waiting=[item("w", **fields)], scope=scope)
    assert [one.id for one in lenient.promoted] == ["w"]


async def test_what_is_complete_is_kept_when_strict(store: Any) -> None:
    """A decision with its reason and a task with its agent are kept."""
    waiting = [
        item("d", type="decision", rationale="It is fast."),
        item("t", type="task", metadata={"assigned_to": "ada"}),
        item("f"),
    ]
    done = await run(store, strict=True, waiting=waiting)
    assert ({one.id for one in done.promoted}, done.failed) == ({"d", "t", "f"}, ())


async def test_one_that_is_refused_does_not_hinder_the_others(store: Any) -> None:
    """What is fit is kept, whatever comes before it."""
    done = await run(store, strict=True, waiting=[item("d", 0.9, type="decision"), item("f", 0.7)])
    assert [one.id for one in done.promoted] == ["f"]
    assert [one.id for one in done.failed] == ["d"]


async def test_a_contradiction_is_linked_and_listed_otherwise(store: Any) -> None:
    """Both memories are kept, either leads to the other, and a review shows them."""
    first = await run(store, strict=False, context={"framework": fact("Phoenix")})
    second = await run(store, strict=False, session="s2", context={"framework": fact("Rails")})
    one, other = first.promoted[0].id, second.promoted[0].id
    assert await live_contents(store) == ["framework: Phoenix", "framework: Rails"]
    for id in (one, other):
        (link,) = await store.links(id, PROJECT, relation="contradicts")
        assert {link.source, link.target} == {one, other}
    (pair,) = await find_conflicts(store, PROJECT)
    assert {*pair.ids} == {one, other}
    report = await review(store, PROJECT)
    assert [{*found.ids} for found in report.conflicts] == [{one, other}]


async def test_a_contradiction_is_linked_once(store: Any) -> None:
    """However often the same is promoted, there is one link."""
    await run(store, strict=False, context={"framework": fact("Phoenix")})
    for _ in range(3):
        await run(store, strict=False, session="s2", context={"framework": fact("Rails")})
    for one in await all_entries(store):
        assert len(await store.links(one.id, PROJECT)) == 1


async def test_a_replaced_value_is_not_contradicted(store: Any) -> None:
    """Between a value and the one before there is no link."""
    first = await run(store, strict=False, context={"framework": fact("A")})
    await run(store, strict=False, context={"framework": fact("B")}, marks=marks_after(first))
    assert await store.links(first.promoted[0].id, PROJECT, relation="contradicts") == []


async def test_what_somebody_contradicted_by_hand_counts_too(store: Any) -> None:
    """A value that contradicts a memory of another agent of the project is refused as well."""
    metadata = {"key": "framework", "value": "Rails"}
    theirs = Entry(
        id="theirs", agent_id="bob", project_id="shop", type="fact", content="Rails.", metadata=metadata
    )
    await store.write(WriteRequest(entry=theirs))
    done = await run(store, strict=True, context={"framework": fact("Phoenix")})
    assert [(one.kind, "theirs" in one.problem) for one in done.failed] == [("Contradiction", False)]
    assert "1 of other agents" in done.failed[0].problem
