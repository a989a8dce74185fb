"""Handlers that record signals, and views of streams, for tests over NATS."""

from __future__ import annotations

from typing import Any

from omoide import Signal
from omoide.runtime.nats import NatsTransport


class SignalRecorder(list[Signal]):
    """A handler that records every signal, each time it comes."""

    def __call__(self, signal: Signal) -> None:
        self.append(signal)

    @property
    def data(self) -> list[Any]:
        """What they brought, in order."""
        return [signal.data for signal in self]


class ErrorRecorder(list[tuple[Signal | None, Exception]]):
    """An `on_error` that records every error."""

    def __call__(self, signal: Signal | None, error: Exception) -> None:
        self.append((signal, error))

    @property
    def kinds(self) -> list[str]:
        """The names of the errors, in order."""
        return [type(error).__name__ for _, error in self]


def jetstream(transport: NatsTransport) -> Any:
    """JetStream itself, as the transport uses it."""
    return transport._connection._js


async def message_count(transport: NatsTransport, name: str) -> int:
    """Return how many messages are in a stream."""
    return int((await jetstream(transport).stream_info(name)).state.messages)


async def consumer_names(transport: NatsTransport, name: str) -> list[str]:
    """Return the consumers of a stream."""
    return [info.name for info in await jetstream(transport).consumers_info(name)]
