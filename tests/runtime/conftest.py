"""Fixtures of the runtime tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.runtime_agents import Errors, Heard, Watched

from omoide.runtime import DocumentCheckpointStore
from omoide.stores.factory import open_store


@pytest.fixture
def heard() -> Heard:
    """Signals that an action kept."""
    return Heard()


@pytest.fixture
def errors() -> Errors:
    """A policy that keeps the errors."""
    return Errors()


@pytest.fixture
async def a_store() -> AsyncIterator[Any]:
    """A store in memory."""
    async with open_store("memory://", embedder="none") as opened:
        yield opened


@pytest.fixture
def checkpoints(a_store: Any) -> Watched:
    """A checkpoint store that can be made to wait, or to fail."""
    return Watched(DocumentCheckpointStore(a_store))
