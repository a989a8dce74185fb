"""The bus delivers signals inside a process in order, and isolates handlers."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio import wait_all_tasks_blocked
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from omoide import Signal
from omoide.core import signal as patterns
from omoide.errors import Dropped, Invalid, MailboxFull, NotRunning
from omoide.runtime import Bus, Transport
from omoide.runtime.transport import BusSubscription, _PatternNode
from omoide.testing import TransportSuite

TYPES = st.lists(st.sampled_from("abc"), min_size=1, max_size=4).map(".".join)
PATTERNS = st.lists(st.sampled_from(["a", "b", "c", "*", "**"]), min_size=1, max_size=4).map(".".join)


class TestBus(TransportSuite):
    def open_transport(self) -> AbstractAsyncContextManager[Transport]:
        return Bus()


def make_signal(signal_type: str, **fields: Any) -> Signal:
    return Signal(type=signal_type, **fields)


def ignore(signal: Signal) -> None: ...


async def test_a_handler_that_goes_on_telling_itself_lets_others_have_their_turn() -> None:
    """Though nothing in it ever waits."""
    handled, enough = 0, False

    async def again(signal: Signal) -> None:
        nonlocal handled
        handled += 1
        if not enough and handled < 10_000:
            await bus.publish(signal)

    async with Bus() as bus, anyio.create_task_group() as group:
        await bus.subscribe("a", again)
        group.start_soon(bus.publish, make_signal("a"))
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        enough = True
    assert 0 < handled < 1_000


async def test_publishing_waits_for_those_who_are_told() -> None:
    """A handler that takes its time slows the publisher down, and no other subscriber."""
    gate, quick, done = anyio.Event(), list[str](), list[str]()

    async def slow(signal: Signal) -> None:
        await gate.wait()

    async def publish(bus: Bus) -> None:
        await bus.publish(make_signal("a"))
        done.append("published")

    async with Bus() as bus, anyio.create_task_group() as tasks:
        await bus.subscribe("a", slow)
        await bus.subscribe("a", lambda signal: quick.append(signal.type))
        tasks.start_soon(publish, bus)
        await wait_all_tasks_blocked()
        assert (quick, done) == (["a"], [])
        gate.set()
        await wait_all_tasks_blocked()
        assert done == ["published"]


async def test_a_publisher_that_gives_up_takes_nothing_back() -> None:
    """A signal that waits for a busy handler arrives although nobody waits for that any more."""
    gate, recorder = anyio.Event(), list[str]()

    async def slow(signal: Signal) -> None:
        await gate.wait()
        recorder.append(signal.type)

    async with Bus() as bus:
        await bus.subscribe("*", slow)
        for signal_type in ("a", "b"):
            with anyio.move_on_after(0):
                await bus.publish(make_signal(signal_type))
        await wait_all_tasks_blocked()
        assert recorder == []
        gate.set()
        await bus.publish(make_signal("c"))
        assert recorder == ["a", "b", "c"]


async def test_signals_of_several_publishers_come_in_the_order_of_publishing() -> None:
    """A subscriber that was busy gets what waited in the order it was published, and so do all others."""
    gate, first, second = anyio.Event(), list[str](), list[str]()

    async def slow(signal: Signal) -> None:
        await gate.wait()
        first.append(signal.type)

    async with Bus() as bus, anyio.create_task_group() as tasks:
        await bus.subscribe("**", slow)
        await bus.subscribe("**", lambda signal: second.append(signal.type))
        said = [f"n.{number}" for number in range(50)]
        for signal_type in said:
            tasks.start_soon(bus.publish, make_signal(signal_type))
        await wait_all_tasks_blocked()
        assert (first, second) == ([], said)
        gate.set()
        await wait_all_tasks_blocked()
        assert first == said


async def test_two_handlers_that_tell_each_other_do_not_wait_for_each_other() -> None:
    """Handlers only queue what they publish, so that no circle of waiting can arise, not even by tasks."""
    recorder: list[str] = []
    async with Bus() as bus:

        async def ping(signal: Signal) -> None:
            recorder.append(signal.type)
            await anyio.lowlevel.checkpoint()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(bus.publish, make_signal("pong"))

        async def pong(signal: Signal) -> None:
            recorder.append(signal.type)
            await anyio.lowlevel.checkpoint()
            if len(recorder) < 20:
                await bus.publish(make_signal("ping"))

        await bus.subscribe("ping", ping)
        await bus.subscribe("pong", pong)
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(bus.publish, make_signal("ping"))
                tasks.start_soon(bus.publish, make_signal("pong"))
            await wait_all_tasks_blocked()
    assert {recorder.count("ping"), recorder.count("pong")} <= {9, 10, 11, 12}


async def test_a_task_that_a_handler_leaves_behind_waits_like_any_other() -> None:
    """Only while the handler is at work is publishing without waiting."""
    gate, order = anyio.Event(), list[str]()

    async def later(bus: Bus) -> None:
        await wait_all_tasks_blocked()
        await bus.publish(make_signal("slow"))
        order.append("later")

    async def slow(signal: Signal) -> None:
        await gate.wait()
        order.append("slow")

    async with Bus() as bus, anyio.create_task_group() as tasks:

        def begin(signal: Signal) -> None:
            tasks.start_soon(later, bus)

        await bus.subscribe("begin", begin)
        await bus.subscribe("slow", slow)
        await bus.publish(make_signal("begin"))
        await anyio.lowlevel.checkpoint()
        gate.set()
    assert order == ["slow", "later"]


async def test_a_loop_of_handlers_is_cut_off() -> None:
    """What handlers publish beyond what may wait is dropped and reported; nothing grows without end."""
    errors: list[Exception] = []
    async with Bus(on_error=lambda signal, error: errors.append(error), max_pending=3) as bus:

        async def flood(signal: Signal) -> None:
            if signal.type == "begin":
                for number in range(5):
                    await bus.publish(make_signal(f"more.{number}"))
            recorder.append(signal.type)

        recorder: list[str] = []
        await bus.subscribe("**", flood)
        await bus.publish(make_signal("begin"))
        await bus.publish(make_signal("end"))
    assert recorder == ["begin", "more.0", "more.1", "more.2", "end"]
    assert [type(error) for error in errors] == [MailboxFull, MailboxFull]


async def test_what_handlers_raise_is_reported() -> None:
    """`on_error` gets the signal and the error, plain or async, and giving up is one as well."""
    seen: list[tuple[str, str]] = []

    def plain(signal: Signal) -> None:
        raise ValueError("plain")

    async def gives_up(signal: Signal) -> None:
        waiting = asyncio.get_running_loop().create_future()
        waiting.cancel()
        await waiting

    async with Bus(on_error=lambda signal, error: seen.append((signal.type, type(error).__name__))) as bus:
        await bus.subscribe("a", plain)
        await bus.subscribe("b", gives_up)
        for signal_type in "abab":
            await bus.publish(make_signal(signal_type))
    assert seen == [("a", "ValueError"), ("b", Dropped.__name__)] * 2


async def test_a_log_line_names_ids_and_types_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    """Without `on_error`, or where it fails itself, the failure is logged, without what was said."""

    def fail(signal: Signal) -> None:
        raise ValueError("secret words")

    def worse(signal: Signal, error: Exception) -> None:
        raise KeyError("more secret words")

    for on_error in (None, worse):
        async with Bus(on_error=on_error) as bus:
            await bus.subscribe("a", fail, agent="ada")
            await bus.publish(make_signal("a", id="sig_7", data="secret data"), to="ada")
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3
    assert "sig_7" in caplog.text
    assert "ValueError" in caplog.text
    assert "KeyError" in caplog.text
    assert "secret" not in caplog.text


async def test_closing_cancels_handlers_and_frees_publishers() -> None:
    """Whoever waits when the bus is closed hears that his signal may not have arrived, and nobody hangs."""
    recorder, outcomes = list[str](), list[str]()

    async def hang(signal: Signal) -> None:
        recorder.append(signal.type)
        await anyio.sleep_forever()

    async def publish(bus: Bus, signal_type: str) -> None:
        try:
            await bus.publish(make_signal(signal_type))
        except Invalid as error:
            outcomes.append(str(error))

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks, Bus() as bus:
            await bus.subscribe("**", hang)
            for signal_type in "ab":
                tasks.start_soon(publish, bus, signal_type)
            await wait_all_tasks_blocked()
            await bus.close()
            await wait_all_tasks_blocked()
            assert len(outcomes) == 2
    assert recorder == ["a"]
    assert all("closed" in outcome for outcome in outcomes)


async def test_closing_a_subscription_frees_publishers() -> None:
    """What waited for it counts as dealt with; the call that is going on may end."""
    gate, recorder = anyio.Event(), list[str]()

    async def slow(signal: Signal) -> None:
        await gate.wait()
        recorder.append(signal.type)

    async with Bus() as bus, anyio.create_task_group() as tasks:
        subscription = await bus.subscribe("**", slow)
        for signal_type in "abc":
            tasks.start_soon(bus.publish, make_signal(signal_type))
        await wait_all_tasks_blocked()
        await subscription.close()
        gate.set()
    assert recorder == ["a"]


async def test_an_error_inside_the_block_comes_out_as_it_is() -> None:
    """The bus wraps nothing, and ends its handlers; so does cancellation."""

    async def hang(signal: Signal) -> None:
        await anyio.sleep_forever()

    async def fail(error: Exception) -> None:
        async with Bus() as bus:
            await bus.subscribe("a", hang)
            with anyio.move_on_after(0):
                await bus.publish(make_signal("a"))
            await wait_all_tasks_blocked()
            raise error

    with pytest.raises(KeyError, match="mine"):
        await fail(KeyError("mine"))
    with anyio.move_on_after(0.01) as scope:
        async with Bus() as bus:
            await bus.subscribe("a", hang)
            await bus.publish(make_signal("a"))
    assert scope.cancelled_caught


async def test_a_bus_is_used_inside_its_block_once() -> None:
    """Before the block there is no bus, after it there is none any more."""
    bus = Bus()
    with pytest.raises(Invalid, match="not open"):
        await bus.publish(make_signal("a"))
    async with bus:
        pass
    with pytest.raises(Invalid, match="closed"):
        await bus.subscribe("a", ignore)
    with pytest.raises(Invalid, match="opened before"):
        await bus.__aenter__()


async def test_an_agent_that_nobody_listens_for_is_not_running() -> None:
    """It was never there, or its last subscription was closed."""
    async with Bus() as bus:
        subscription = await bus.subscribe("**", ignore, agent="ada")
        await bus.publish(make_signal("a"), to="ada")
        await subscription.close()
        for name in ("ada", "bob"):
            with pytest.raises(NotRunning, match=name):
                await bus.publish(make_signal("a"), to=name)


@given(st.lists(PATTERNS, max_size=12), TYPES)
def test_the_tree_of_patterns_says_what_matching_says(wanted: list[str], signal_type: str) -> None:
    """Looking a type up finds each subscription whose pattern fits, once, the oldest first."""
    root, bus = _PatternNode(), Bus()
    for number, pattern in enumerate(wanted):
        root.add(BusSubscription(bus, pattern, ignore, None, number))
    expected = [pattern for pattern in wanted if patterns.matches_pattern(pattern, signal_type)]
    assert [found.pattern for found in root.find(signal_type)] == expected


class Subscribing(RuleBasedStateMachine):
    """Subscriptions come and go; the tree always tells those that are there, and keeps no empty branch."""

    def __init__(self) -> None:
        super().__init__()
        self.root = _PatternNode()
        self.there: list[BusSubscription] = []
        self.count = 0

    @rule(pattern=PATTERNS)
    def come(self, pattern: str) -> None:
        self.count += 1
        self.there.append(BusSubscription(Bus(), pattern, ignore, None, self.count))
        self.root.add(self.there[-1])

    @rule(data=st.data())
    def go(self, data: st.DataObject) -> None:
        if self.there:
            gone = self.there.pop(data.draw(st.integers(0, len(self.there) - 1)))
            for _ in range(2):
                self.root.remove(gone)

    @rule(signal_type=TYPES)
    def tell(self, signal_type: str) -> None:
        expected = [one for one in self.there if patterns.matches_pattern(one.pattern, signal_type)]
        assert self.root.find(signal_type) == expected

    @invariant()
    def no_empty_branch(self) -> None:
        assert sorted(one.pattern for one in self.root.all_subscriptions()) == sorted(
            one.pattern for one in self.there
        )
        places = [*self.root.children.values()]
        while places:
            place = places.pop()
            assert place.subscriptions or place.children
            places += place.children.values()


TestSubscribing = Subscribing.TestCase
