"""Stores of each kind for the memory tools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.longterm import KINDS, a_store


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    """An empty store of each kind."""
    async with a_store(request.param, tmp_path) as opened:
        yield opened
