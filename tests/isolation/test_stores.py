"""Nothing crosses from one scope into another in any store, tried at random."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.isolation import StoreTries, World, seed_of, state_of, tries
from tests.support.stores import a_store

COUNTS = {"sqlite": tries(1), "memory": tries(10), "redis": tries(10), "postgres": tries(10)}
PARTS = 4
"""The tries are in parts, which run beside each other."""
BATCH = 5_000
"""After so many tries everything is compared with what it was."""


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("kind", COUNTS)
def test_nothing_crosses_in_a_store(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str, part: int
) -> None:
    """No operation of a scope shows, changes, uses or removes what belongs to another one."""
    world = World(seed_of(request) + part)
    with a_store(kind, tmp_path) as store:
        world.fill(store)
        before = state_of(store, world, uses=True)
        left = -(-COUNTS[kind] // PARTS)
        hostile = StoreTries(store, world)
        while left > 0:
            hostile.run(min(left, BATCH))
            left -= BATCH
            assert state_of(store, world, uses=True) == before, f"seed {world.seed}, up to try {world.tries}"
