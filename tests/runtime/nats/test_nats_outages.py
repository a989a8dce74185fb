"""Signals, senders and receivers survive outages of NATS."""

from __future__ import annotations

import builtins
import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import anyio
import pytest
from tests.support.signal_recorders import SignalRecorder

from omoide import Signal
from omoide.errors import Invalid, MissingExtra, NotAllowed, OmoideError, ServiceFailed, Unreachable
from omoide.runtime.nats import NatsTransport
from omoide.testing import NatsServer, eventually
from omoide.testing.servers import free_port

PASSWORD = "open-sesame"


class Guarded(NatsServer):
    """A server that asks who is there."""

    def _command(self) -> Sequence[str]:
        return [*super()._command(), "--user", "ali", "--pass", PASSWORD]


class Forgetful(NatsServer):
    """A server that keeps nothing."""

    def _command(self) -> Sequence[str]:
        return [one for one in super()._command() if one != "-js"]


def has(published: list[int], enough: int) -> bool:
    """Whether so many were published."""
    return len(published) >= enough


@pytest.fixture
def server() -> Iterator[NatsServer]:
    """A server of the test's own."""
    with NatsServer() as server:
        yield server


async def test_nothing_that_was_accepted_is_lost_when_the_server_is_killed(server: NatsServer) -> None:
    """It comes back on the same port; publishers and receivers go on by themselves, in order."""
    recorder, everybody = SignalRecorder(), SignalRecorder()
    published: list[int] = []
    async with (
        NatsTransport(server.url, ack_wait=1.0) as sender,
        NatsTransport(server.url, ack_wait=1.0) as receiver,
    ):
        await receiver.subscribe("**", recorder, agent="ada")
        await receiver.subscribe("n", everybody)

        async def publish() -> None:
            for number in range(300):
                await sender.publish(Signal(type="n", data=number), to="ada")
                await sender.publish(Signal(type="n", data=number))
                published.append(number)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(publish)
            for enough in (50, 150):
                await eventually(partial(has, published, enough), timeout=20)
                server.kill()
                server.start()
        await eventually(lambda: len(recorder) >= 300 and len(everybody) >= 300, timeout=20)
    assert recorder.data == everybody.data == [*range(300)]


async def test_publishing_waits_for_the_server_to_come_back(server: NatsServer) -> None:
    """And returns when the signal is there."""
    recorder = SignalRecorder()
    async with NatsTransport(server.url) as transport:
        await transport.subscribe("**", recorder, agent="ada")
        server.kill()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: transport.publish(Signal(type="n", data=1), to="ada"))
            await anyio.wait_all_tasks_blocked()
            server.start()
        await eventually(lambda: recorder.data == [1], timeout=20)


async def test_publishing_gives_up_after_the_time_that_was_set(server: NatsServer) -> None:
    """With an error that says so; later it works again."""
    recorder = SignalRecorder()
    async with NatsTransport(server.url, request_timeout=0.5) as transport:
        await transport.subscribe("**", recorder, agent="ada")
        server.kill()
        with pytest.raises(Unreachable, match=r"within 0\.5 s .*; start the server"):
            await transport.publish(Signal(type="n"), to="ada")
        server.start()

        async def published() -> bool:
            try:
                await transport.publish(Signal(type="n", data=2), to="ada")
            except Unreachable:
                return False
            return True

        await eventually(published, timeout=20)
        await eventually(lambda: 2 in recorder.data, timeout=20)


async def test_a_server_that_hangs_is_given_up_and_found_again(server: NatsServer) -> None:
    """It takes connections and says nothing, and then goes on."""
    recorder = SignalRecorder()
    async with NatsTransport(server.url, request_timeout=0.5) as transport:
        await transport.subscribe("**", recorder, agent="ada")
        server.pause()
        number = 0
        with pytest.raises(Unreachable):  # noqa: PT012 - it may take a moment until the server hangs
            for number in range(1_000):
                await transport.publish(Signal(type="n", data=number, id=f"sig_{number}"), to="ada")
        server.resume()
        await transport.publish(Signal(type="n", data=number, id=f"sig_{number}"), to="ada")
        await transport.publish(Signal(type="n", data="last"), to="ada")
        await eventually(lambda: "last" in recorder.data, timeout=20)
    assert recorder.data == [*range(number + 1), "last"]


async def test_a_server_that_is_not_there_is_said_to_be(caplog: pytest.LogCaptureFixture) -> None:
    """With its address, and never with the password in it."""
    caplog.set_level(logging.DEBUG)
    url = f"nats://ali:{PASSWORD}@127.0.0.1:{free_port()}"
    with pytest.raises(Unreachable, match=r"nats://127\.0\.0\.1.*start the server") as caught:
        async with NatsTransport(url, connect_timeout=0.5):
            pass
    assert PASSWORD not in f"{caught.value!r} {caught.value.__cause__!r}" + caplog.text


async def test_a_wrong_password_is_said_to_be_wrong(caplog: pytest.LogCaptureFixture) -> None:
    """At once, and not repeated; the right one works."""
    caplog.set_level(logging.DEBUG)
    with Guarded() as server:
        host = f"127.0.0.1:{server.port}"
        for sign_in in ("ali:open-barley@", "", "bob@"):
            with pytest.raises(NotAllowed, match="check the user, the password") as caught:
                async with NatsTransport(f"nats://{sign_in}{host}"):
                    pass
            assert "barley" not in f"{caught.value!r} {caught.value.__cause__!r}" + caplog.text
        async with NatsTransport(f"nats://ali:{PASSWORD}@{host}") as transport:
            await transport.publish(Signal(type="n"))
            assert PASSWORD not in repr(transport)


async def test_a_server_without_jetstream_is_said_to_lack_it() -> None:
    """With how it is started."""
    with Forgetful() as server, pytest.raises(ServiceFailed, match="nats-server -js"):
        async with NatsTransport(server.url, connect_timeout=1.0):
            pass


async def test_a_single_server_keeps_no_replicas(server: NatsServer) -> None:
    """With what would."""
    with pytest.raises(ServiceFailed, match="use replicas=1, or three servers"):
        async with NatsTransport(server.url, replicas=3):
            pass


async def test_a_stream_of_another_kind_is_not_taken(server: NatsServer) -> None:
    """A prefix that somebody else uses for something else."""
    import nats as client

    other = await client.connect(server.url)
    await other.jetstream().add_stream(name="omoide_to", subjects=["something.else"])
    await other.close()
    with pytest.raises(ServiceFailed, match="choose another prefix"):
        async with NatsTransport(server.url, connect_timeout=2.0):
            pass


async def test_streams_follow_their_settings(server: NatsServer) -> None:
    """Opened with others, they are changed, and what is in them stays."""
    recorder = SignalRecorder()
    async with NatsTransport(server.url) as transport:
        await transport.publish(Signal(type="n", data=1), to="ada")
    async with NatsTransport(server.url, max_age=1_000.0, max_bytes=1_000_000, discard="old") as transport:
        info = await transport._connection._js.stream_info("omoide_to")
        assert (info.config.max_age, info.config.max_bytes) == (1_000.0, 1_000_000)
        await transport.subscribe("**", recorder, agent="ada")
        await eventually(lambda: recorder.data == [1])


async def test_a_full_stream_refuses_and_loses_nothing(server: NatsServer) -> None:
    """What was accepted stays; there is room again when it was handled."""
    recorder = SignalRecorder()
    async with NatsTransport(server.url, max_bytes=50_000) as transport:
        accepted = 0
        with pytest.raises(ServiceFailed, match="raise max_bytes"):  # noqa: PT012 - until one is refused
            for number in range(1_000):
                await transport.publish(Signal(type="n", data=[number, "x" * 1_000]), to="ada")
                accepted += 1
        await transport.subscribe("**", recorder, agent="ada")
        await eventually(lambda: len(recorder) == accepted)
        await transport.publish(Signal(type="n", data="more"), to="ada")
        await eventually(lambda: len(recorder) == accepted + 1)


async def test_it_can_be_opened_once_and_used_only_while_it_is_open(server: NatsServer) -> None:
    """Before and after, it says so."""
    transport = NatsTransport(server.url)
    with pytest.raises(Invalid, match="async with"):
        await transport.publish(Signal(type="n"))
    async with transport:
        with pytest.raises(Invalid, match="opened before"):
            await transport.__aenter__()
    with pytest.raises(OmoideError, match="is closed"):
        await transport.publish(Signal(type="n"))


async def test_what_a_block_raises_is_what_comes_out(server: NatsServer) -> None:
    """Not a group around it."""
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is what is tested
        async with NatsTransport(server.url) as transport:
            await transport.subscribe("**", SignalRecorder())
            raise ZeroDivisionError


def test_another_event_loop_is_refused() -> None:
    """nats-py runs on asyncio only; here there is no loop at all."""
    opening = NatsTransport("nats://localhost").__aenter__()
    with pytest.raises(Invalid, match="run with asyncio"):
        opening.send(None)


async def test_without_nats_py_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra is named."""
    real = builtins.__import__

    def without(name: str, *args: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "nats":
            raise ImportError(name)
        return real(name, *args, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"omoide\[nats\]"):
        async with NatsTransport("nats://localhost"):
            pass


async def test_a_server_without_tls_is_told_no_password_where_tls_was_wanted() -> None:
    """Nobody signs in over an open line who asked for a closed one."""
    with NatsServer() as server:
        address = server.url.replace("nats://", "tls://ada:secret@")
        with pytest.raises(ServiceFailed, match="has no TLS") as raised:
            async with NatsTransport(address):
                pass
        assert "secret" not in str(raised.value)
        assert "secret" not in server.log()
