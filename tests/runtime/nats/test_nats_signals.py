"""A signal over NATS arrives once, in order, and only at its receivers."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fleets import OpenTransport
from tests.support.signal_recorders import (
    ErrorRecorder,
    SignalRecorder,
    consumer_names,
    jetstream,
    message_count,
)

from omoide import Signal
from omoide.errors import Invalid, SignalTooLarge
from omoide.runtime.nats import NatsTransport, connection
from omoide.runtime.nats import transport as channel
from omoide.testing import NatsServer, eventually


def sig(data: Any = None, type: str = "n", **more: Any) -> Signal:
    """A signal with a number."""
    return Signal(type=type, data=data, **more)


def either(entered: anyio.Event, problems: ErrorRecorder) -> bool:
    """Whether a handler was called, or something was reported."""
    return entered.is_set() or bool(problems)


async def test_what_is_published_again_arrives_once(a_transport: OpenTransport) -> None:
    """A publisher that did not hear back publishes again; the server knows the source and the id."""
    recorder = SignalRecorder()
    async with a_transport() as transport:
        await transport.subscribe("**", recorder, agent="ada")
        one = sig(1)
        for _ in range(3):
            await transport.publish(one, to="ada")
        await transport.publish(sig(2), to="ada")
        await transport.publish(sig(3, id=one.id, source="/another"), to="ada")
        await eventually(lambda: len(recorder) >= 3)
        assert recorder.data == [1, 2, 3]
        assert transport.stats()["repeated"] == 2


async def test_one_signal_may_go_to_several_agents_and_to_all(a_transport: OpenTransport) -> None:
    """It is a duplicate only where it went before."""
    ada, bob, everybody = SignalRecorder(), SignalRecorder(), SignalRecorder()
    async with a_transport() as transport:
        await transport.subscribe("**", ada, agent="ada")
        await transport.subscribe("**", bob, agent="bob")
        await transport.subscribe("**", everybody)
        one = sig(1)
        for to in ("ada", "bob", None):
            await transport.publish(one, to=to)
        await eventually(lambda: ada and bob and everybody)
        assert ada == bob == everybody == [one]


async def test_what_the_server_forgot_is_dropped_by_the_receiver(a_transport: OpenTransport) -> None:
    """A duplicate that comes after the server's window has passed is not handled again."""
    recorder = SignalRecorder()
    async with a_transport(duplicate_window=0.1) as transport:
        await transport.subscribe("**", recorder, agent="ada")
        one = sig(1)

        async def published_again() -> bool:
            before = transport.stats()["repeated"]
            await transport.publish(one, to="ada")
            return transport.stats()["repeated"] == before

        await transport.publish(one, to="ada")
        await eventually(published_again)
        await transport.publish(sig(2), to="ada")
        await eventually(lambda: 2 in recorder.data)
        assert recorder.data == [1, 2]
        assert transport.stats()["again"] == 1


async def test_a_signal_whose_receiver_breaks_off_comes_to_the_next_one(a_transport: OpenTransport) -> None:
    """One that was not accepted is kept, in its place before those that came later."""
    recorder, entered = SignalRecorder(), anyio.Event()

    async def never(signal: Signal) -> None:
        entered.set()
        await anyio.sleep_forever()

    async with a_transport() as sender:
        async with a_transport() as first:
            await first.subscribe("**", never, agent="ada")
            for number in range(5):
                await sender.publish(sig(number), to="ada")
            await entered.wait()
        async with a_transport() as second:
            await second.subscribe("**", recorder, agent="ada")
            await eventually(lambda: len(recorder) >= 5)
    assert recorder.data == [*range(5)]


async def test_who_subscribes_for_an_agent_last_reads_its_post(a_transport: OpenTransport) -> None:
    """Whoever did so before is told, and gets nothing any more; nothing is lost in between."""
    problems, before, after = ErrorRecorder(), SignalRecorder(), SignalRecorder()
    async with a_transport(on_error=problems) as first, a_transport() as second:
        await first.subscribe("**", before, agent="ada")
        await first.publish(sig(0), to="ada")
        await eventually(lambda: before.data == [0])
        await second.subscribe("**", after, agent="ada")
        for number in range(1, 20):
            await first.publish(sig(number), to="ada")
        await eventually(lambda: len(after) == 19)
        assert before.data + after.data == [*range(20)]
        await eventually(lambda: problems.kinds == ["OwnedElsewhere"])


async def test_signals_wait_for_an_agent_that_nobody_subscribed_for(a_transport: OpenTransport) -> None:
    """They are kept until it lives."""
    recorder = SignalRecorder()
    async with a_transport() as transport:
        for number in range(3):
            await transport.publish(sig(number), to="ada")
        assert await message_count(transport, transport.settings.agent_stream) == 3
        await transport.subscribe("**", recorder, agent="ada")
        await eventually(lambda: recorder.data == [0, 1, 2])

        async def none_is_left() -> bool:
            return await message_count(transport, transport.settings.agent_stream) == 0

        await eventually(none_is_left)


async def test_each_publisher_is_heard_in_order(a_transport: OpenTransport) -> None:
    """Three publishers at once, with a handler that sometimes fails at first."""
    recorder, failed = SignalRecorder(), set()

    async def sometimes(signal: Signal) -> None:
        if signal.data % 7 == 0 and signal.id not in failed:
            failed.add(signal.id)
            raise ValueError("not yet")
        recorder(signal)

    async def publish(transport: NatsTransport, source: str) -> None:
        for number in range(40):
            await transport.publish(sig(number, source=source), to="ada")

    async with a_transport() as one, a_transport() as two:
        await one.subscribe("**", sometimes, agent="ada")
        async with anyio.create_task_group() as tasks:
            for transport, source in ((one, "/a"), (two, "/b"), (two, "/c")):
                tasks.start_soon(publish, transport, source)
        await eventually(lambda: len(recorder) == 120, timeout=20)
    for source in ("/a", "/b", "/c"):
        assert [signal.data for signal in recorder if signal.source == source] == [*range(40)]


async def test_a_signal_that_fails_too_often_is_laid_aside(a_transport: OpenTransport) -> None:
    """Each failure is reported, and in the end that it was given up; the next one is handled."""
    problems, recorder = ErrorRecorder(), SignalRecorder()

    def fail(signal: Signal) -> None:
        if signal.data == "bad":
            raise ValueError("no")
        recorder(signal)

    async with a_transport(on_error=problems, max_deliver=3) as transport:
        await transport.subscribe("**", fail, agent="ada")
        await transport.publish(sig("bad"), to="ada")
        await transport.publish(sig("good"), to="ada")
        await eventually(lambda: recorder.data == ["good"])
        assert problems.kinds == ["ValueError"] * 3 + ["Dropped"]
        assert await message_count(transport, transport.settings.dead_letter_stream) == 1
        assert transport.stats()["dropped"] == 1


async def test_a_signal_that_ends_its_reader_again_and_again_is_laid_aside(
    a_transport: OpenTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count goes on when another process takes the post over from one that vanished."""
    problems = ErrorRecorder()
    monkeypatch.setattr(channel, "LEAVE_TIMEOUT_S", 0.05)
    seen: list[bool] = []
    for _ in range(4):
        async with a_transport(on_error=problems, max_deliver=3) as transport:
            entered = anyio.Event()

            async def vanish(signal: Signal, entered: anyio.Event = entered) -> None:
                entered.set()
                await anyio.sleep_forever()

            await transport.subscribe("**", vanish, agent="ada")
            await transport.publish(sig("bad", id="sig_bad"), to="ada")
            await eventually(partial(either, entered, problems))
            seen.append(entered.is_set())
            if not problems:
                transport._connection._closing = True  # as if the process were gone: nothing is tidied up
                await transport._connection.client.close()
    assert seen == [True, True, True, False]
    assert problems.kinds == ["Dropped"]


async def test_hostile_messages_are_dropped_and_stop_nobody(a_transport: OpenTransport, prefix: str) -> None:
    """Whatever bytes come, they are reported, and the next signal is handled."""
    problems, recorder = ErrorRecorder(), SignalRecorder()
    hostile: list[bytes] = [
        b"",
        b"\xff\xfe\x00",
        b"not json",
        b"[]",
        b"null",
        b'{"type": 7}',
        b'{"type": "n", "id": ""}',
        b"[" * 100_000,
        b'{"type": "n", "data": ' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}",
        b"\x80\x04\x95",
        Signal(type="another.type").to_json(),
    ]
    async with a_transport(on_error=problems) as transport:
        await transport.subscribe("**", recorder, agent="ada")
        await transport.subscribe("n", recorder)
        for data in hostile:
            for subject in (f"{prefix}.to.ada.n", f"{prefix}.all.n"):
                await jetstream(transport).publish(subject, data, headers={"Status": "409", "odd": "x"})
        await transport.publish(sig(1), to="ada")
        await transport.publish(sig(2))
        await eventually(lambda: sorted(recorder.data) == [1, 2])
        assert len(problems) == 2 * len(hostile)
        assert {signal for signal, _ in problems} == {None}
        assert transport.stats()["dropped"] == 2 * len(hostile)


async def test_a_signal_that_is_too_large_is_refused(a_transport: OpenTransport) -> None:
    """Before it is sent, with what to do; and the transport goes on."""
    recorder = SignalRecorder()
    async with a_transport() as transport:
        await transport.subscribe("**", recorder, agent="ada")
        with pytest.raises(SignalTooLarge, match="store the content, and send a reference") as caught:
            await transport.publish(sig("x" * 2_000_000), to="ada")
        assert caught.value.actual > caught.value.allowed > 1_000_000
        await transport.publish(sig("x" * 1_000_000), to="ada")
        await eventually(lambda: len(recorder) == 1)


async def test_fleets_on_one_server_do_not_hear_each_other(nats: NatsServer, prefix: str) -> None:
    """Each prefix has its own streams."""
    one, two = SignalRecorder(), SignalRecorder()
    async with (
        NatsTransport(nats.url, prefix=prefix) as first,
        NatsTransport(nats.url, prefix=f"{prefix}-2") as second,
    ):
        for transport, recorder in ((first, one), (second, two)):
            await transport.subscribe("**", recorder)
            await transport.subscribe("**", recorder, agent="ada")
        await first.publish(sig(1))
        await first.publish(sig(2), to="ada")
        await second.publish(sig(3))
        await eventually(lambda: sorted(one.data) == [1, 2] and two.data == [3])


async def test_nothing_is_left_after_the_end(a_transport: OpenTransport) -> None:
    """No reader on the server, and no task here."""
    import asyncio

    before = len(asyncio.all_tasks())
    async with a_transport() as watching:
        async with a_transport() as transport:
            for at in range(5):
                await transport.subscribe("**", SignalRecorder(), agent=f"a{at}")
                await transport.subscribe(f"t.{at}", SignalRecorder())
            gone = await transport.subscribe("gone.**", SignalRecorder())
            assert len(await consumer_names(watching, watching.settings.broadcast_stream)) == 6
            await gone.close()
            assert len(await consumer_names(watching, watching.settings.broadcast_stream)) == 5
        assert await consumer_names(watching, watching.settings.broadcast_stream) == []
        assert await consumer_names(watching, watching.settings.agent_stream) == []
    await eventually(lambda: len(asyncio.all_tasks()) <= before)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"prefix": "a.b"}, "prefix"),
        ({"replicas": 2}, "replicas"),
        ({"max_deliver": 0}, "max_deliver"),
        ({"request_timeout": 0}, "request_timeout"),
        ({"discard": "some"}, "discard"),
        ({"max_age": 1.0}, "duplicate_window"),
        ({"colour": "blue"}, "colour"),
        ({"on_error": 7}, "on_error"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], told: str) -> None:
    """With the name of the setting."""
    with pytest.raises(Invalid, match=told):
        NatsTransport("nats://localhost", **settings)


@pytest.mark.parametrize("url", ["", "localhost", "http://a", "nats://", "nats://a:b", [], [7], 7])
def test_addresses_that_are_none_are_refused(url: Any) -> None:
    """Without repeating them: there may be a password in one."""
    with pytest.raises(Invalid, match="nats://host:4222"):
        NatsTransport(url)


@given(st.text(min_size=1), st.text(min_size=1))
def test_no_two_texts_share_a_token(one: str, two: str) -> None:
    """And a token is nothing that NATS reads as something else."""
    try:
        tokens = connection.to_token(one), connection.to_token(two)
    except UnicodeEncodeError:
        return
    assert (tokens[0] == tokens[1]) is (one == two)
    assert all(letter.isascii() and (letter.isalnum() or letter in "-_=") for letter in tokens[0])
    assert 0 < len(tokens[0]) <= connection.MAX_TOKEN_LENGTH


async def test_a_child_closes_the_inherited_socket_without_a_word_to_the_server(
    a_transport: OpenTransport,
) -> None:
    """The parent's connection goes on, also after the child has ended."""
    async with a_transport() as transport:
        socket = transport._connection.client._transport._io_writer.get_extra_info("socket")
        child = os.fork()
        if child == 0:
            os._exit(0 if os.readlink(f"/proc/self/fd/{socket.fileno()}") == os.devnull else 1)
        assert os.waitpid(child, 0)[1] == 0  # noqa: ASYNC222 - the loop has nothing else to do
        await transport._connection.client.flush()
