"""Tests of the testing package: lazy imports and polling."""

from __future__ import annotations

import subprocess
import sys

import pytest

from omoide import testing
from omoide.testing import eventually


def test_every_name_is_there() -> None:
    """What `__all__` promises can be had, and nothing else."""
    assert [name for name in testing.__all__ if not hasattr(testing, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'sleep'"):
        testing.sleep  # noqa: B018


def test_a_clock_for_tests_needs_no_test_framework() -> None:
    """Neither pytest nor NumPy nor an event loop is loaded before something of theirs is asked for."""
    program = "import sys, omoide.testing; print(*(name for name in sys.argv[1:] if name in sys.modules))"
    unwanted = ["pytest", "numpy", "anyio", "asyncio", "sqlite3"]
    printed = subprocess.run(
        [sys.executable, "-c", program, *unwanted], check=True, capture_output=True, text=True
    )
    assert printed.stdout.split() == []


async def test_waiting_ends_as_soon_as_it_is_so() -> None:
    """What is seen then is given back; a plain function and an async one do alike."""
    seen: list[int] = []

    def look() -> int:
        seen.append(len(seen))
        return len(seen) if len(seen) >= 3 else 0

    async def look_async() -> int:
        return look()

    assert await eventually(look, interval=0) == 3
    assert await eventually(look_async, interval=0) == 4


async def test_waiting_has_an_end() -> None:
    """What never becomes so fails, and shows what was seen last."""
    with pytest.raises(AssertionError, match="last seen: 0"):
        await eventually(lambda: 0, timeout=0.02, interval=0.001)


async def test_a_failed_assertion_means_not_yet() -> None:
    """It is tried again, and shown when time is up."""
    tries: list[int] = []

    def look() -> bool:
        tries.append(1)
        assert len(tries) > 2, "too early"
        return True

    def never() -> bool:
        raise AssertionError("nobody came")

    assert await eventually(look, interval=0)
    with pytest.raises(AssertionError, match="nobody came"):
        await eventually(never, timeout=0.02, interval=0.001)
