"""Time and ids come from one place that can be overridden, so that a run is reproducible."""

import asyncio
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.memory import check_remedy

from omoide import Agent, Memory, clock, ids, memory
from omoide.errors import Invalid
from omoide.testing import FrozenClock, counting_ids, reproducible

UUID7 = re.compile(r"[0-9a-f]{12}7[0-9a-f]{3}[89ab][0-9a-f]{15}")


def a_life() -> bytes:
    """Everything that stamps and names: an agent, its memory, tasks."""
    agent = Agent.new("tester")
    for n in range(3):
        agent = memory.tasks_add(memory.world_put(agent, "n", n), f"Task {n}")
    return agent.to_json() + memory.of(memory.ensure(Agent.new("other"))).to_json()


# Time


def test_the_clock_tells_milliseconds_since_1970() -> None:
    """Left alone it is the present, between two readings of the system's own."""
    before = time.time_ns() // 1_000_000
    now = clock.now()
    assert before <= now <= time.time_ns() // 1_000_000
    assert type(now) is int


def test_a_frozen_clock_moves_only_when_told() -> None:
    """It shows the same moment until it is advanced."""
    with clock.override(FrozenClock(5)) as frozen:
        assert (clock.now(), clock.now()) == (5, 5)
        assert isinstance(frozen, FrozenClock)
        assert frozen.advance(10) == clock.now() == 15
        assert frozen.advance(0) == 15


def test_a_moment_that_is_given_counts_more_than_the_clock() -> None:
    """`resolve` is the moment given, or the present."""
    with clock.override(FrozenClock(5)):
        assert (clock.resolve(7), clock.resolve(0), clock.resolve(None)) == (7, 0, 5)


@pytest.mark.parametrize("at", [-1, 1.5, "5", True, [5]])
def test_a_moment_is_an_int_from_zero(at: Any) -> None:
    """Anything else is refused wherever a moment is given: to `resolve`, or to a frozen clock."""
    attempts: list[Callable[[Any], object]] = [clock.resolve, FrozenClock, FrozenClock(5).advance]
    for attempt in attempts:
        with pytest.raises(Invalid) as caught:
            attempt(at)
        check_remedy(caught.value)


def test_a_frozen_clock_needs_a_moment() -> None:
    """None is not the present here: a clock that stands still has to stand somewhere."""
    with pytest.raises(Invalid):
        FrozenClock(None)  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", [1.5, "5", None, -1, True])
def test_a_clock_that_does_not_tell_milliseconds_is_refused(answer: Any) -> None:
    """A wrong clock spoils no value: it is found out at the first question."""
    old = Memory.new(now=5)
    attempts: list[Callable[[], object]] = [
        clock.now,
        Memory.new,
        lambda: old.world_put("k", 1),
        lambda: old.ensure_space("new"),
        lambda: memory.world_put(memory.put(Agent.new("a", id="a"), old), "k", 1),
        ids.uuid7,
    ]
    with clock.override(lambda: answer):
        for attempt in attempts:
            with pytest.raises(Invalid) as caught:
                attempt()
            check_remedy(caught.value)


# Ids


@given(st.integers(0, clock.MAX_TIMESTAMP))
def test_ids_are_version_seven_uuids_of_their_moment(at: int) -> None:
    """32 hexadecimal digits: the moment in 48 bits, version 7, variant 2, and chance."""
    with clock.override(FrozenClock(at)):
        made = ids.uuid7()
    assert UUID7.fullmatch(made)
    assert int(made[:12], 16) == at


@given(st.lists(st.integers(0, clock.MAX_TIMESTAMP), min_size=2, max_size=9, unique=True))
def test_ids_sort_by_time(moments: list[int]) -> None:
    """An id made later sorts later, as text."""
    made = []
    for at in sorted(moments):
        with clock.override(FrozenClock(at)):
            made.append(ids.new("mem_"))
    assert sorted(made) == made


def test_ids_of_one_moment_differ() -> None:
    """Chance keeps ids apart that were made in the same millisecond."""
    with clock.override(FrozenClock(5)):
        assert len({ids.uuid7() for _ in range(1_000)}) == 1_000


def test_a_new_id_begins_with_its_prefix() -> None:
    """The prefix says what kind of thing it names."""
    assert UUID7.fullmatch(ids.new("mem_").removeprefix("mem_"))


def test_counting_ids_count_for_each_prefix() -> None:
    """Every kind of thing has its own numbers, and every source its own count."""
    with ids.override(counting_ids()):
        assert [ids.new(prefix) for prefix in ("a_", "b_", "a_")] == ["a_1", "b_1", "a_2"]
    assert counting_ids()("a_") == "a_1"


@pytest.mark.parametrize("value", ["a", "mem_1", "ключ", "a b", "a \xa0b", "x" * 512, "é" * 256, "a/b?c#d"])
def test_an_id_is_any_short_text(value: str) -> None:
    """Up to 512 bytes in any script, and it is taken as it is."""
    assert ids.check(value) == value
    assert Memory.new(id=value).id == value


@pytest.mark.parametrize(
    "value",
    ["", "a\nb", "a\0b", "\x1f", "\x7f", "\x9f", "\ud800", "x" * 513, "é" * 257, 5, None, b"a", ["a"]],
)
def test_what_cannot_be_an_id_is_refused(value: Any) -> None:
    """Empty, too long, with control characters, or no text: given by a caller or by a source of ids."""
    with pytest.raises(Invalid, match="own_id") as caught:
        ids.check(value, "own_id")
    check_remedy(caught.value)
    with ids.override(lambda prefix: value), pytest.raises(Invalid, match="generated id"):
        Memory.new()


# Both


def test_two_runs_with_the_same_clock_and_ids_give_the_same_bytes() -> None:
    """With a frozen clock and counting ids nothing is left to chance."""
    runs = []
    for _ in range(2):
        with reproducible(7):
            runs.append(a_life())
    assert runs[0] == runs[1]
    assert b'"agent_1"' in runs[0]
    assert a_life() != a_life()


def test_the_clock_of_a_reproducible_run_can_be_moved() -> None:
    """It begins where it is told to and goes on by hand."""
    with reproducible(7) as frozen:
        old = Memory.new()
        frozen.advance(3)
        new = old.world_put("k", 1)
    assert (old.id, old.created_at, new.created_at, new.updated_at) == ("mem_1", 7, 7, 10)


USING: dict[str, tuple[Callable[[str], Any], Callable[[], str]]] = {
    "clock": (lambda mark: clock.override(lambda: int(mark)), lambda: str(clock.now())),
    "ids": (lambda mark: ids.override(lambda prefix: mark), lambda: ids.new("")),
}
either = pytest.mark.parametrize(("using", "ask"), USING.values(), ids=USING)


@either
def test_the_former_source_returns_when_a_block_ends(using: Any, ask: Callable[[], str]) -> None:
    """Blocks can be nested, and an exception ends one like any other way out."""
    with using("1"):
        with using("2"):
            assert ask() == "2"
        assert ask() == "1"
        with pytest.raises(KeyError, match="3"), using("3"):
            raise KeyError(ask())
        assert ask() == "1"
    assert len(ask()) > 5


@either
def test_a_source_serves_one_thread_only(using: Any, ask: Callable[[], str]) -> None:
    """Another thread, or a copy of the context taken before, keeps its own."""
    before = copy_context()
    with using("1"), ThreadPoolExecutor(1) as pool:
        assert len(pool.submit(ask).result()) > 5
        assert len(before.run(ask)) > 5
        assert copy_context().run(ask) == "1"


@either
def test_a_source_serves_one_task_only(using: Any, ask: Callable[[], str]) -> None:
    """Tasks that run at the same time each see what they asked for."""

    async def work(mark: str, mine: asyncio.Event, other: asyncio.Event) -> str:
        with using(mark):
            mine.set()
            await other.wait()
            return ask()

    async def main() -> tuple[str, str]:
        one, two = asyncio.Event(), asyncio.Event()
        first, second = await asyncio.gather(work("1", one, two), work("2", two, one))
        return first, second

    assert asyncio.run(main()) == ("1", "2")
