"""A running service and its application."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from tests.support.rest import Service, bearer, open_test_store, serve


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Service]:
    """A real server over a filled store."""
    with open_test_store(tmp_path) as store, serve(store) as running:
        yield running


@pytest.fixture
def ada(server: Service) -> Iterator[httpx2.Client]:
    """Somebody who may read, write and erase in the usual namespace of a real server."""
    with httpx2.Client(base_url=server.url, headers=bearer(server.secrets.all), timeout=20) as client:
        yield client
