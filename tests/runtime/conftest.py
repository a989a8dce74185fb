"""Fixtures of the runtime tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.runtime_agents import ErrorRecorder, GatedCheckpointStore, SignalRecorder

from omoide.runtime import DocumentCheckpointStore
from omoide.stores import open_store


@pytest.fixture
def recorder() -> SignalRecorder:
    """Signals that an action kept."""
    return SignalRecorder()


@pytest.fixture
def errors() -> ErrorRecorder:
    """A policy that keeps the errors."""
    return ErrorRecorder()


@pytest.fixture
async def a_store() -> AsyncIterator[Any]:
    """A store in memory."""
    async with open_store("memory://", embedder="none") as opened:
        yield opened


@pytest.fixture
def checkpoints(a_store: Any) -> GatedCheckpointStore:
    """A checkpoint store that can be made to wait, or to fail."""
    return GatedCheckpointStore(DocumentCheckpointStore(a_store))
