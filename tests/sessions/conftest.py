"""Stores of every kind that can persist a session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.sessions import KINDS

from omoide.stores import open_store


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    """A store of each kind."""
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'memory.db'}"
    async with open_store(url, embedder="none") as opened:
        yield opened


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[Any]:
    """A store in a file."""
    async with open_store(f"sqlite:///{tmp_path / 'memory.db'}", embedder="none") as opened:
        yield opened
