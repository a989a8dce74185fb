"""What do the tests of the client start from?"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.web.serving import Server, opened, served

from omoide.client import Client


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A real server over a filled store."""
    with opened(tmp_path) as store, served(store, poll_interval=0.01) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    """A client that may do everything in the usual namespace."""
    with Client(server.url, server.secrets.admin) as client:
        yield client
