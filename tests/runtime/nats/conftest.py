"""Fixtures of the tests with a NATS server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleets import FleetBuilder, OpenTransport

from omoide import ids
from omoide.runtime.nats import NatsTransport
from omoide.testing import NatsServer


@pytest.fixture(scope="module")
def nats() -> Iterator[NatsServer]:
    """A server that the tests of one file share, each under a prefix of its own."""
    with NatsServer() as server:
        yield server


@pytest.fixture
def prefix() -> str:
    """A prefix that nobody has used."""
    return ids.new("p")


@pytest.fixture
def a_transport(nats: NatsServer, prefix: str) -> OpenTransport:
    """Makes transports on the shared server, all under one prefix."""

    def make(**settings: Any) -> NatsTransport:
        return NatsTransport(nats.url, **{"prefix": prefix, **settings})

    return make


@pytest.fixture
async def fleet(tmp_path: Path, a_transport: OpenTransport) -> AsyncIterator[FleetBuilder]:
    """Where runtimes are made."""
    async with AsyncExitStack() as stack:
        yield FleetBuilder(tmp_path, a_transport, stack)
