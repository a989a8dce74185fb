"""What do the tests of the service start from?"""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from tests.web.serving import Server, bearer, opened, served


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A real server over a filled store."""
    with opened(tmp_path) as store, served(store) as running:
        yield running


@pytest.fixture
def ada(server: Server) -> Iterator[httpx2.Client]:
    """Somebody who may read, write and erase in the usual namespace of a real server."""
    with httpx2.Client(base_url=server.url, headers=bearer(server.secrets.all), timeout=20) as client:
        yield client
