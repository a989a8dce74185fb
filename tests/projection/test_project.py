"""Each entry of the thread is projected once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.projection import (
    NOW,
    CountingProjector,
    ScriptedProjector,
    add_entries,
    agent,
    coverage_of,
    entries,
    errors,
    mark,
    message,
    note,
    splits,
)

from omoide import Agent, Memory, Signal, Thread, clock, memory, thread
from omoide.core.action import Emit
from omoide.errors import Invalid, WrongType
from omoide.projection import ProjectionContext, Projector, count_pending, project
from omoide.projection.engine import SPACE
from omoide.testing import FrozenClock


def test_a_projector_sees_what_is_new_and_its_mark_says_how_far_it_came() -> None:
    """The first run covers the whole thread, the second only what came after it."""
    counting = CountingProjector()
    first, _ = project(agent("a", "b"), [counting], now=NOW)
    second, _ = project(add_entries(first, [message("c")]), [counting], now=NOW + 1)
    assert counting.seen == [[0, 1], [2]]
    assert mark(first, "counting") == {"thread": thread.of(first).id, "covers_seq": [0, 1], "at": NOW}
    assert coverage_of(second, "counting") == [0, 2]
    assert memory.world_get(second, "counting") == 3


def test_running_again_changes_nothing() -> None:
    """On the same thread the same agent comes back, with its memory at the same revision."""
    once, _ = project(agent("a"), [CountingProjector()], now=NOW)
    twice, directives = project(once, [CountingProjector()], now=NOW + 1)
    assert twice is once
    assert directives == []


@pytest.mark.parametrize(
    "given", [Agent.new("bare"), thread.ensure(Agent.new("silent"))], ids=["none", "empty"]
)
def test_nothing_comes_of_nothing(given: Agent) -> None:
    """An agent without a thread, or with an empty one, stays as it is: it gets no memory and no mark."""
    counting = CountingProjector()
    assert project(given, [counting]) == (given, [])
    assert memory.get(given) is None
    assert counting.seen == []


def test_a_projector_that_fails_hinders_no_other() -> None:
    """Its failure is an Error that names it, its entries stay uncovered, and the others run."""
    broken, fine = CountingProjector("broken", fails=True), CountingProjector("fine")
    after, directives = project(agent("a"), [broken, fine], now=NOW)
    (error,) = errors(directives)
    assert (error.context, error.action, error.message) == ("projection", "broken", "RuntimeError: no idea")
    assert coverage_of(after, "broken") == []
    assert coverage_of(after, "fine") == [0, 0]
    broken.fails = False
    again, directives = project(after, [broken, fine], now=NOW + 1)
    assert coverage_of(again, "broken") == [0, 0]
    assert directives == []
    assert fine.seen == [[0]]


def test_what_a_failing_projector_wrote_is_not_kept() -> None:
    """Nothing is half projected: the memory of a projector that returned nonsense is not used."""
    given = agent("a")
    after, _ = project(given, [ScriptedProjector(lambda m: (m.world_put("x", 1), ["no directive"]))], now=NOW)
    assert memory.world_get(after, "x") is None


def test_a_failure_is_left_alone_for_a_while_by_a_patient_run() -> None:
    """A patient run passes a projector over that failed a short time ago; another run does not."""
    broken = CountingProjector(fails=True)
    given, _ = project(agent("a"), [broken], now=NOW)
    assert project(given, [broken], now=NOW + 59_999, backoff=True) == (given, [])
    assert count_pending(given, [broken], now=NOW + 59_999) == 0
    project(given, [broken], now=NOW + 1)
    assert count_pending(given, [broken], now=NOW + 60_000) == 1
    project(given, [broken], now=NOW + 60_000, backoff=True)
    assert len(broken.seen) == 3
    assert mark(given, "counting")["failures"] == 1


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (None, "a Memory"),
        (lambda m: (m, [], []), "a Memory"),
        (lambda m: (m, "ab"), "a list"),
        (lambda m: (m, [1]), "Directives only"),
        (lambda m: Memory.new(), "is another one"),
        ({}, "a Memory"),
    ],
)
def test_what_is_no_result_of_a_projector_is_an_error(result: Any, problem: str) -> None:
    """A projector has to return a memory, with a list of directives or without, and the one it was given."""
    _, directives = project(agent("a"), [ScriptedProjector(result)], now=NOW)
    assert [problem in error.message for error in errors(directives)] == [True]


def test_directives_come_in_the_order_of_the_projectors() -> None:
    """A projector may ask for anything that an agent may ask for."""
    signals = [Signal(type="one"), Signal(type="two")]

    class Telling(ScriptedProjector):
        def __init__(self, signal: Signal) -> None:
            super().__init__(lambda m: (m, [Emit(signal=signal)]))
            self.name = signal.type

    after, directives = project(agent("a"), [*map(Telling, signals)], now=NOW)
    assert directives == [Emit(signal=signal) for signal in signals]
    assert coverage_of(after, "two") == [0, 0]


def test_a_projector_knows_the_run_it_is_part_of() -> None:
    """The context tells whose run it is, when, from where on, and what was configured."""
    seen: list[tuple[ProjectionContext, int, int]] = []

    class Watching:
        name = "watching"

        def project(self, memory: Memory, thread: Thread, ctx: ProjectionContext) -> Memory:
            seen.append((ctx, len(thread.entries), clock.now()))
            return memory

    assert isinstance(Watching(), Projector)
    after, _ = project(agent("a"), [Watching()], now=NOW)
    project(add_entries(after, [note()]), [Watching()], now=NOW + 5, config={"language": "ja"})
    ctx, size, at = seen[1]
    assert (ctx.agent_id, ctx.now, ctx.since) == ("clerk-1", NOW + 5, 1)
    assert ctx.config["language"] == "ja"
    assert (ctx.fresh[0].kind, size, at) == ("note", 2, NOW + 5)


def test_without_a_moment_the_clock_tells_it() -> None:
    """Where `now` is left out, the time is the one of the clock in use."""
    with clock.override(FrozenClock(77)):
        after, _ = project(agent("a"), [CountingProjector()])
    assert mark(after, "counting")["at"] == 77


def test_another_thread_begins_anew() -> None:
    """A mark belongs to one thread: a new one, or a fork with another id, is read from its beginning."""
    counting = CountingProjector()
    first, _ = project(agent("a", "b"), [counting], now=NOW)
    forked = thread.put(first, Thread.new(id="fork").append([message("a")]))
    after, _ = project(forked, [counting], now=NOW)
    assert counting.seen == [[0, 1], [0]]
    assert mark(after, "counting")["thread"] == "fork"


def test_a_thread_that_lost_its_end_is_covered_as_far_as_it_goes() -> None:
    """What is said after a thread was put back to an earlier state is projected, too."""
    counting = CountingProjector()
    before = agent("a", "b")
    longer, _ = project(add_entries(before, [message("c"), message("d")]), [counting], now=NOW)
    back, _ = project(thread.put(longer, thread.of(before)), [counting], now=NOW)
    assert coverage_of(back, "counting") == [0, 1]
    after, _ = project(add_entries(back, [message(x) for x in "cdef"]), [counting], now=NOW)
    assert counting.seen == [[0, 1, 2, 3], [2, 3, 4, 5]]
    assert coverage_of(after, "counting") == [0, 5]
    emptied = thread.put(after, Thread.new(id=thread.of(after).id))
    none, _ = project(emptied, [counting], now=NOW)
    assert coverage_of(none, "counting") == []


@pytest.mark.parametrize(
    "nonsense",
    [
        "yes",
        {},
        {"thread": 5},
        {"thread": "t", "at": 1, "covers_seq": [0]},
        {"thread": "t", "at": 1, "covers_seq": [3, 1]},
        {"thread": "t", "at": 1, "covers_seq": "ab"},
        {"thread": "t", "at": 1, "pending": {"r": [0, 1]}},
        {"thread": "t", "at": 1, "pending": {"r": 7}},
        {"thread": "t", "at": 1, "refused": {"k": -1}},
        {"thread": "t", "at": 1, "moved": True},
    ],
)
def test_a_mark_that_cannot_be_read_begins_anew(nonsense: Any) -> None:
    """Whatever somebody wrote over a mark, the projector runs and leaves a right one."""
    given = thread.put(Agent.new("clerk"), Thread.new(id="t").append(message("a")))
    given = memory.put_in_space(memory.ensure_space(given, SPACE, {}), SPACE, "counting", nonsense)
    after, directives = project(given, [CountingProjector()], now=NOW)
    assert directives == []
    assert coverage_of(after, "counting") == [0, 0]


def test_a_space_of_another_kind_is_told() -> None:
    """Where the marks' own space holds a list, the run is an Error and nothing else changes."""
    given = memory.ensure_space(agent("a"), SPACE, [])
    after, directives = project(given, [CountingProjector()], now=NOW)
    assert after is given
    assert "projection" in errors(directives)[0].message


@pytest.mark.parametrize(
    ("projectors", "problem"),
    [
        ("ab", WrongType),
        (5, WrongType),
        ([CountingProjector], WrongType),
        ([object()], WrongType),
        ([CountingProjector(""), CountingProjector("b")], Invalid),
        ([CountingProjector("b"), CountingProjector("b")], Invalid),
    ],
)
def test_what_is_no_list_of_projectors_is_refused(projectors: Any, problem: type[Exception]) -> None:
    """Projectors have a name each, and no two the same."""
    with pytest.raises(problem):
        project(agent("a"), projectors)


@given(entries, st.data())
def test_however_the_thread_is_parted_the_same_is_covered(
    said: list[dict[str, Any]], data: st.DataObject
) -> None:
    """Any number of runs, wherever they fall, show each entry to a projector once and in order."""
    counting, parted = CountingProjector(), agent()
    for run in data.draw(splits(said)):
        parted, _ = project(add_entries(parted, run), [counting], now=NOW)
    assert [seq for seen in counting.seen for seq in seen] == [*range(len(said))]
    assert coverage_of(parted, "counting") == ([0, len(said) - 1] if said else [])
    assert count_pending(parted, [counting], now=NOW) == 0


def test_the_entries_that_wait_are_counted() -> None:
    """The count is that of the projector that has most to do."""
    one, two = CountingProjector("one"), CountingProjector("two")
    given, _ = project(agent("a", "b"), [one], now=NOW)
    given = add_entries(given, [note()])
    assert count_pending(given, [one], now=NOW) == 1
    assert count_pending(given, [one, two], now=NOW) == 3
    assert count_pending(Agent.new("bare"), [one]) == 0
    assert count_pending(given, []) == 0
