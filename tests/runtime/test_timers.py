"""Timers fire on time, once, whatever else happens."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from hypothesis import given
from hypothesis import strategies as st

from omoide import clock
from omoide.errors import Invalid
from omoide.runtime import SystemTiming, Timers
from omoide.runtime.scheduler import FIRE_BATCH, MAX_CANCELLED
from omoide.testing import FrozenClock, ManualTiming, eventually


class Run:
    """Timers that run by hand-moved time, and what they called when."""

    def __init__(self, at: int = 1_000) -> None:
        self.timing = ManualTiming(at)
        self.timers = Timers(self.timing)
        self.fired: list[tuple[str, int]] = []

    def note(self, name: str) -> Callable[[], None]:
        return lambda: self.fired.append((name, self.timing.now()))

    async def __aenter__(self) -> Run:
        self.tasks = await anyio.create_task_group().__aenter__()
        self.tasks.start_soon(self.timers.run)
        return self

    async def __aexit__(self, *error: Any) -> None:
        self.tasks.cancel_scope.cancel()
        await self.tasks.__aexit__(None, None, None)


async def test_a_timer_fires_at_its_moment_once() -> None:
    """Not a millisecond earlier, and never again."""
    async with Run() as run:
        run.timers.at(1_500, run.note("a"))
        await run.timing.advance(499)
        assert run.fired == []
        await run.timing.advance(1)
        await run.timing.advance(10_000)
        assert run.fired == [("a", 1_500)]


async def test_each_fires_at_its_own_moment_however_far_time_is_moved() -> None:
    """Moments come in order; those of one moment in the order in which they were set."""
    async with Run() as run:
        for name, when in (("c", 3_000), ("a", 2_000), ("d", 3_000), ("b", 2_001)):
            run.timers.at(when, run.note(name))
        run.timers.after(500, run.note("first"))
        await run.timing.advance(100_000)
    assert run.fired == [("first", 1_500), ("a", 2_000), ("b", 2_001), ("c", 3_000), ("d", 3_000)]


async def test_an_earlier_timer_is_not_kept_waiting() -> None:
    """It wakes the task that waits for a later one, or for none."""
    async with Run() as run:
        await wait_all_tasks_blocked()
        run.timers.at(9_000, run.note("late"))
        await wait_all_tasks_blocked()
        run.timers.at(2_000, run.note("early"))
        await run.timing.advance(1_000)
        assert run.fired == [("early", 2_000)]


async def test_what_has_passed_is_due_at_once() -> None:
    """A moment before now, and a delay of nothing."""
    async with Run() as run:
        run.timers.at(10, run.note("past"))
        run.timers.after(0, run.note("now"))
        await run.timing.advance(0)
        assert run.fired == [("past", 1_000), ("now", 1_000)]


async def test_a_cancelled_timer_does_not_fire() -> None:
    """Before its moment, among others of the same moment, and by one of them; later it does no harm."""
    async with Run() as run:
        first = run.timers.at(2_000, run.note("first"))
        victim = run.timers.at(2_000, run.note("victim"))
        killer = run.timers.at(1_999, lambda: victim.cancel())
        gone = run.timers.after(100, run.note("gone"))
        gone.cancel()
        assert (len(run.timers), gone.active, first.active) == (3, False, True)
        await run.timing.advance(5_000)
        for timer in (first, victim, killer, gone):
            timer.cancel()
            assert not timer.active
        assert run.fired == [("first", 2_000)]
        assert len(run.timers) == 0


async def test_a_timer_may_set_the_next_one() -> None:
    """A job that comes again and again is exact, and other tasks run in between even if it is always due."""
    async with Run() as run:

        def again() -> None:
            run.note("tick")()
            if len(run.fired) < 4:
                run.timers.after(250, again)

        run.timers.after(250, again)
        await run.timing.advance(1_000)
        assert [at for _, at in run.fired] == [1_250, 1_500, 1_750, 2_000]

        def busy() -> None:
            run.timers.after(0, busy)

        run.timers.after(0, busy)
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        run.timers.after(0, run.note("not starved"))
        await eventually(lambda: run.fired[-1][0] == "not starved")


async def test_a_callback_that_raises_is_logged_and_the_rest_go_on(caplog: pytest.LogCaptureFixture) -> None:
    """The line has the type of the error and none of its words."""

    def fail() -> None:
        raise ValueError("secret words")

    async with Run() as run:
        run.timers.at(2_000, fail)
        run.timers.at(2_000, run.note("next"))
        await run.timing.advance(2_000)
        assert run.fired == [("next", 2_000)]
    assert [(record.levelno, "ValueError" in record.message) for record in caplog.records] == [
        (logging.ERROR, True)
    ]
    assert "secret" not in caplog.text


async def test_a_clock_that_is_set_forward_fires_what_is_due_once() -> None:
    """All that lies between is late and comes now, in order."""
    async with Run() as run:
        for when in (2_000, 3_000, 900_000):
            run.timers.at(when, run.note(str(when)))
        await run.timing.jump(100_000)
        assert run.fired == [("2000", 100_000), ("3000", 100_000)]
        await run.timing.advance(1_000_000)
        assert run.fired[2:] == [("900000", 900_000)]


async def test_a_clock_that_is_set_back_fires_nothing_twice() -> None:
    """What fired stays fired; a moment on the clock comes when the clock shows it."""
    async with Run(at=1_000_000) as run:
        run.timers.at(1_000_500, run.note("before"))
        run.timers.at(1_002_000, run.note("on the clock"))
        await run.timing.advance(1_000)
        await run.timing.jump(500_000)
        await run.timing.advance(600_000)
        assert run.fired == [("before", 1_000_500), ("on the clock", 1_002_000)]


async def test_a_delay_does_not_grow_when_the_clock_is_set_back() -> None:
    """Two seconds are two seconds if the timers looked shortly before, however often the clock is set."""
    async with Run(at=1_000_000) as run:
        run.timers.after(2_000, run.note("a"))
        run.timers.after(500, lambda: None)
        await run.timing.advance(500)
        await run.timing.jump(400_000)
        run.timers.after(1_600, run.note("b"))
        run.timers.after(1_000, lambda: None)
        await run.timing.advance(1_000)
        await run.timing.jump(100_000)
        await run.timing.advance(499)
        assert run.fired == []
        await run.timing.advance(1_000)
        assert run.fired == [("a", 100_500), ("b", 100_600)]


async def test_a_hundred_thousand_timers_are_fine() -> None:
    """Setting, cancelling and firing them is quick, and other tasks get their turns between the batches."""
    async with Run() as run:
        count, turns = 0, list[int]()

        def fire() -> None:
            nonlocal count
            count += 1

        async def others() -> None:
            while count < 100_000:
                turns.append(count)
                await anyio.lowlevel.checkpoint()

        def begin() -> None:
            run.tasks.start_soon(others)

        with anyio.fail_after(60):
            run.timers.at(1_999, begin)
            for number in range(200_000):
                timer = run.timers.at(2_000 + number % 7, fire)
                if number % 2:
                    timer.cancel()
            assert len(run.timers) == 100_001
            await run.timing.jump(3_000)
            await eventually(lambda: count == 100_000)
    steps = [after - before for before, after in pairwise(turns)]
    assert max(steps) <= FIRE_BATCH


async def test_cancelled_timers_do_not_pile_up() -> None:
    """A program that sets and cancels for ever, as for every answer in time, keeps little of it."""
    timers = Timers(ManualTiming())
    keep = [timers.at(9_000_000, lambda: None) for _ in range(10)]
    for _ in range(10_000):
        timers.at(9_000_000, lambda: None).cancel()
    assert len(timers) == len(keep)
    assert len(timers._wall._heap) <= 2 * len(keep) + MAX_CANCELLED + 2


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("at"), st.integers(0, 60)),
            st.tuples(st.just("after"), st.integers(0, 30)),
            st.tuples(st.just("cancel"), st.integers(0, 20)),
            st.tuples(st.just("advance"), st.integers(0, 20)),
        ),
        max_size=30,
    )
)
def test_timers_fire_as_a_list_that_is_searched_every_millisecond_says(steps: list[tuple[str, int]]) -> None:
    """Whatever is set, cancelled and waited for: each fires once, in the first millisecond it is due."""

    async def played() -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
        async with Run(at=20) as run:
            set_so_far, expected, open_ = list[Any](), list[tuple[str, int]](), dict[int, int]()
            for what, number in steps:
                if what == "cancel" and set_so_far:
                    place = number % len(set_so_far)
                    set_so_far[place].cancel()
                    open_.pop(place, None)
                elif what == "advance":
                    # The timers get to know the time as soon as the loop runs, also of a timer that is due.
                    for now in range(run.timing.now(), run.timing.now() + number + 1):
                        due = sorted((when, place) for place, when in open_.items() if when <= now)
                        expected += [(str(place), now) for _, place in due]
                        for _, place in due:
                            del open_[place]
                    await run.timing.advance(number)
                elif what in ("at", "after"):
                    place = len(set_so_far)
                    set_so_far.append(getattr(run.timers, what)(number, run.note(str(place))))
                    open_[place] = number if what == "at" else run.timing.now() + number
            return sorted(run.fired, key=lambda one: one[1]), expected

    fired, expected = anyio.run(played)
    assert [at for _, at in fired] == [at for _, at in expected]
    assert sorted(fired) == sorted(expected)


async def test_timers_run_in_one_task_at_a_time() -> None:
    """A second run is refused; after the first has ended, what is left goes on."""
    run = Run()
    run.timers.at(2_000, run.note("a"))
    async with run:
        await wait_all_tasks_blocked()
        with pytest.raises(Invalid, match="another task"):
            await run.timers.run()
    async with run:
        await run.timing.advance(1_000)
    assert run.fired == [("a", 2_000)]


async def test_timers_by_the_system_clock() -> None:
    """Real time passes by itself: a short delay fires, after it is over."""
    seen: list[int] = []
    timers, begin = Timers(), clock.now()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(timers.run)
        timers.after(20, lambda: seen.append(clock.now()))
        timers.at(begin + 10, lambda: seen.append(clock.now()))
        await eventually(lambda: len(seen) == 2)
        tasks.cancel_scope.cancel()
    assert seen[0] >= begin + 10
    assert seen[1] >= begin + 20


async def test_the_system_waits_in_slices() -> None:
    """A clock that is set while somebody waits for a far moment is noticed within a slice."""
    timing, seen = SystemTiming(max_sleep=0.01), list[str]()
    with clock.override(FrozenClock(1_000)) as frozen:
        timers = Timers(timing)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(timers.run)
            timers.at(4_000_000, lambda: seen.append("noticed"))
            await wait_all_tasks_blocked()
            frozen.at = 5_000_000
            await eventually(lambda: seen)
            tasks.cancel_scope.cancel()
        with anyio.fail_after(5):
            await timing.wait(10)


def test_nonsense_is_refused() -> None:
    """A moment, a delay, a slice or a callback that is none; nothing is set then."""
    timers, wrong = Timers(ManualTiming()), list[Callable[[], object]]()
    call: Any = "call"
    number: Any = 1.5
    wrong += [lambda: timers.at(-1, print), lambda: timers.at(number, print), lambda: timers.at(1, call)]
    wrong += [
        lambda: timers.after(-1, print),
        lambda: timers.after(number, print),
        lambda: timers.after(1, call),
    ]
    wrong += [lambda: SystemTiming(0), lambda: SystemTiming(float("nan")), lambda: SystemTiming(call)]
    for nonsense in wrong:
        with pytest.raises(Invalid):
            nonsense()
    assert len(timers) == 0


async def test_time_in_tests_stops_at_every_moment_that_somebody_waits_for() -> None:
    """A chain of waits ends exactly where it says, however far time is moved at once."""
    timing, seen = ManualTiming(), list[int]()

    async def walk() -> None:
        for _ in range(3):
            await timing.wait(timing.now() + 100)
            seen.append(timing.now())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(walk)
        assert await timing.advance(250) == 1_250
        assert seen == [1_100, 1_200]
        assert await timing.advance(50) == 1_300
        assert seen == [1_100, 1_200, 1_300]
    await timing.wait(5)
    assert (timing.now(), timing._waiters) == (1_300, [])


async def test_time_in_tests_is_a_clock_and_can_be_set() -> None:
    """Values are stamped with it; who waits looks again when it was set."""
    timing, looks = ManualTiming(5_000), list[int]()

    async def wait() -> None:
        while timing.now() != 7:
            await timing.wait(9_000)
            looks.append(timing.now())

    with clock.override(timing):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            assert await timing.jump(3) == 3
            assert await timing.jump(7) == 7
        assert clock.now() == 7
    assert looks == [3, 7]
    for wrong in (timing.advance(-1), timing.jump(-1), timing.advance(clock.MAX_TIMESTAMP)):
        with pytest.raises(Invalid):
            await wrong
