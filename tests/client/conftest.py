"""A running service and clients for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.rest import Service, open_test_store, serve

from omoide.client import Client


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Service]:
    """A real server over a filled store."""
    with open_test_store(tmp_path) as store, serve(store, poll_interval=0.01) as running:
        yield running


@pytest.fixture
def client(server: Service) -> Iterator[Client]:
    """A client that may do everything in the usual namespace."""
    with Client(server.url, server.secrets.admin) as client:
        yield client
