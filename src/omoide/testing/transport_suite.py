"""Conformance tests for transports.

Subclass `TransportSuite` under a name that pytest collects, and open a fresh transport:

    class TestMyTransport(TransportSuite):
        def open_transport(self) -> AbstractAsyncContextManager[Transport]:
            return MyTransport("nats://localhost")

The suite needs pytest and nothing else beyond Omoide. Delivery may be slow and at least once, so handlers
count each signal id once.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from omoide.core.signal import Signal
from omoide.errors import Invalid, NotRunning, OmoideError
from omoide.runtime.transport import Transport
from omoide.testing.doubles import eventually

LAST_TYPE = "the.last"


class RecordingHandler:
    """A handler that records the signals it receives, each id once."""

    def __init__(self) -> None:
        self.signals: dict[str, Signal] = {}

    def __call__(self, signal: Signal) -> None:
        self.signals.setdefault(signal.id, signal)

    @property
    def types(self) -> list[str]:
        """The types of the recorded signals, in order of arrival."""
        return [signal.type for signal in self.signals.values()]

    async def wait_for(self, count: int) -> list[str]:
        """Wait until `count` signals are recorded, and return their types."""
        await eventually(lambda: len(self.signals) >= count)
        return self.types


class TransportSuite:
    """Every requirement on a transport."""

    pytestmark = pytest.mark.anyio

    def open_transport(self) -> AbstractAsyncContextManager[Transport]:
        """Return a context manager that opens a fresh transport."""
        raise NotImplementedError("say how a fresh transport is opened: def open_transport(self)")

    @pytest.fixture
    async def transport(self) -> AsyncIterator[Transport]:
        """Yield a transport without subscriptions."""
        async with self.open_transport() as transport:
            yield transport

    @pytest.mark.parametrize(
        ("pattern", "expected"),
        [
            ("door.opened", ["door.opened"]),
            ("door.*", ["door.opened"]),
            ("door.**", ["door", "door.opened", "door.opened.wide"]),
            ("**.opened", ["door.opened", "window.opened"]),
            ("**.opened.**", ["door.opened", "door.opened.wide", "window.opened"]),
            ("*", ["door"]),
            ("**", ["door", "door.opened", "door.opened.wide", "window.opened"]),
        ],
    )
    async def test_a_subscriber_is_told_what_fits_its_pattern(
        self, transport: Transport, pattern: str, expected: list[str]
    ) -> None:
        """A pattern matches the types it describes, and no others."""
        recorder = RecordingHandler()
        await transport.subscribe(pattern, recorder)
        await transport.subscribe(LAST_TYPE, recorder)
        for signal_type in ("door", "door.opened", "door.opened.wide", "window.opened", LAST_TYPE):
            await transport.publish(Signal(type=signal_type))
        # Two subscriptions are independent: the last signal of one may overtake those of the other.
        await eventually(lambda: {LAST_TYPE, *expected} <= {*recorder.types})
        assert sorted(recorder.types) == sorted([*expected, LAST_TYPE])

    async def test_a_signal_to_an_agent_reaches_that_agent_only(self, transport: Transport) -> None:
        """Neither other agents nor subscribers to broadcasts receive it."""
        ada, bob, everybody = RecordingHandler(), RecordingHandler(), RecordingHandler()
        await transport.subscribe("**", ada, agent="ada")
        await transport.subscribe("**", bob, agent="bob & co./*.>")
        await transport.subscribe("**", everybody)
        await transport.publish(Signal(type="private"), to="ada")
        await transport.publish(Signal(type="other"), to="bob & co./*.>")
        await transport.publish(Signal(type="public"))
        await transport.publish(Signal(type=LAST_TYPE), to="ada")
        assert await ada.wait_for(2) == ["private", LAST_TYPE]
        assert await bob.wait_for(1) == ["other"]
        assert await everybody.wait_for(1) == ["public"]

    async def test_an_agent_may_want_some_of_what_it_is_told(self, transport: Transport) -> None:
        """A pattern applies to signals addressed to an agent, too."""
        recorder = RecordingHandler()
        await transport.subscribe("door.*", recorder, agent="ada")
        for signal_type in ("window.opened", "door.opened"):
            await transport.publish(Signal(type=signal_type), to="ada")
        assert await recorder.wait_for(1) == ["door.opened"]

    async def test_nobody_has_to_listen(self, transport: Transport) -> None:
        """A broadcast needs no subscriber; a signal to an agent without one is at most refused."""
        await transport.publish(Signal(type="door.opened"))
        try:
            await transport.publish(Signal(type="door.opened"), to="nobody")
        except NotRunning as error:
            assert "nobody" in str(error)  # noqa: PT017 - a transport that keeps signals raises nothing

    async def test_a_signal_arrives_as_it_was_sent(self, transport: Transport) -> None:
        """Every attribute and all data are the same."""
        recorder = RecordingHandler()
        await transport.subscribe("**", recorder)
        data = {"text": "Grüße 🫖\n", "deep": [1, 2.5, None, {"": b"\x00\xff"}], "$set": {"a"}}
        fields = {"subject": "door 1", "datacontenttype": "application/json", "dataschema": "urn:door"}
        sent = Signal(
            type="door.opened", source="/hall", data=data, extensions={"level": 3}, time=5, **fields
        )
        await transport.publish(sent)
        await recorder.wait_for(1)
        assert recorder.signals == {sent.id: sent}

    async def test_each_subscriber_is_told_in_order(self, transport: Transport) -> None:
        """The signals of one publisher arrive in order, with slow handlers and fast ones."""
        quick, slow = RecordingHandler(), RecordingHandler()

        async def slowly(signal: Signal) -> None:
            for _ in range(3):
                await checkpoint()
            slow(signal)

        await transport.subscribe("n.*", quick)
        await transport.subscribe("**", slowly)
        types = [f"n.{number}" for number in range(20)]
        for signal_type in types:
            await transport.publish(Signal(type=signal_type))
        assert await quick.wait_for(20) == types
        assert await slow.wait_for(20) == types

    async def test_a_handler_has_one_signal_at_a_time(self, transport: Transport) -> None:
        """The next comes when it has returned, however many publish at once."""
        recorder, active, peak = RecordingHandler(), 0, 0

        async def handler(signal: Signal) -> None:
            nonlocal active, peak
            active += 1
            peak = max(peak, active)
            await checkpoint()
            active -= 1
            recorder(signal)

        await transport.subscribe("**", handler)
        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(transport.publish, Signal(type=f"n.{number}"))
        await recorder.wait_for(10)
        assert peak == 1

    async def test_a_handler_that_raises_harms_nobody(self, transport: Transport) -> None:
        """Others get the signal, the publisher sees no error, and the handler gets the next signal."""
        before, failing, after = RecordingHandler(), RecordingHandler(), RecordingHandler()

        async def fail(signal: Signal) -> None:
            failing(signal)
            raise ValueError("no")

        for handler in (before, fail, after):
            await transport.subscribe("**", handler)
        for signal_type in ("one", "two"):
            await transport.publish(Signal(type=signal_type))
        for recorder in (before, failing, after):
            assert await recorder.wait_for(2) == ["one", "two"]

    async def test_a_handler_may_publish(self, transport: Transport) -> None:
        """Even a type that it subscribes to itself, without a deadlock."""
        recorder = RecordingHandler()

        async def answer(signal: Signal) -> None:
            recorder(signal)
            if signal.type == "ask":
                await transport.publish(Signal(type="answer"))
                await transport.publish(Signal(type="answer.again"), to="ada")

        await transport.subscribe("**", answer)
        await transport.subscribe("**", answer, agent="ada")
        with anyio.fail_after(10):
            await transport.publish(Signal(type="ask"))
            assert sorted(await recorder.wait_for(3)) == ["answer", "answer.again", "ask"]

    async def test_a_closed_subscription_is_told_no_more(self, transport: Transport) -> None:
        """Others still are; closing it again does nothing, and the pattern can be subscribed to again."""
        closed, remaining, later = RecordingHandler(), RecordingHandler(), RecordingHandler()
        subscription = await transport.subscribe("a.b", closed, agent="ada")
        await transport.subscribe("a.*", remaining, agent="ada")
        await transport.publish(Signal(type="a.b"), to="ada")
        await closed.wait_for(1)
        await subscription.close()
        await transport.subscribe("a.b", later, agent="ada")
        await subscription.close()
        await transport.publish(Signal(type="a.b"), to="ada")
        assert await remaining.wait_for(2) == ["a.b", "a.b"]
        assert await later.wait_for(1) == ["a.b"]
        assert closed.types == ["a.b"]

    async def test_a_handler_may_close_its_own_subscription(self, transport: Transport) -> None:
        """It was then called for the last time."""
        recorder, last = RecordingHandler(), RecordingHandler()

        async def once(signal: Signal) -> None:
            recorder(signal)
            await subscription.close()

        subscription = await transport.subscribe("**", once)
        await transport.subscribe("**", last)
        for signal_type in ("one", "two"):
            await transport.publish(Signal(type=signal_type))
        await last.wait_for(2)
        assert recorder.types == ["one"]

    async def test_a_closed_transport_tells_nobody(self, transport: Transport) -> None:
        """Publishing and subscribing are refused, and closing again does nothing."""
        recorder = RecordingHandler()
        subscription = await transport.subscribe("**", recorder)
        await transport.close()
        with pytest.raises(OmoideError):
            await transport.publish(Signal(type="late"))
        with pytest.raises(OmoideError):
            await transport.subscribe("**", recorder)
        await subscription.close()
        await transport.close()
        assert recorder.types == []

    async def test_nonsense_is_refused(self, transport: Transport) -> None:
        """An invalid pattern, handler, agent or signal raises `Invalid`."""
        recorder: Any = RecordingHandler()
        wrong: list[tuple[Any, Any, Any]] = [
            ("a*", recorder, None),
            ("", recorder, None),
            (7, recorder, None),
            ("**", "heard", None),
            ("**", recorder, ""),
        ]
        for pattern, handler, agent in wrong:
            with pytest.raises(Invalid):
                await transport.subscribe(pattern, handler, agent=agent)
        nothing: Any = "door.opened"
        with pytest.raises(Invalid):
            await transport.publish(nothing)
        with pytest.raises(Invalid):
            await transport.publish(Signal(type="door.opened"), to="")
