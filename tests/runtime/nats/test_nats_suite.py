"""The transport over NATS passes the conformance suite."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from omoide import ids
from omoide.runtime import Transport
from omoide.runtime.nats import NatsTransport
from omoide.testing import NatsServer, TransportSuite


class TestNats(TransportSuite):
    """A real server, and a prefix for each test."""

    @pytest.fixture(autouse=True)
    def at(self, nats: NatsServer) -> None:
        """Where the server is."""
        self.url = nats.url

    def open_transport(self) -> AbstractAsyncContextManager[Transport]:
        transport: Any = NatsTransport(self.url, prefix=ids.new("p"))
        return transport  # type: ignore[no-any-return]
