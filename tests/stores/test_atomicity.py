"""An operation that fails midway changes nothing."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from tests.support.store_process import OPTIONS, act, state
from tests.support.stores import a_store

from omoide import Entry, Scope, WriteRequest, clock
from omoide.errors import OmoideError, StoreFailed
from omoide.testing import FrozenClock


class Fuse:
    """Interrupts SQLite after so many steps: once, or from then on, so that it cannot even undo them."""

    def __init__(self, store: Any, steps: int, *, stubborn: bool) -> None:
        self.left = steps
        self.stubborn = stubborn
        self.blown = False
        with store._db.exclusive_writer() as db:
            db.set_progress_handler(self.burn, 1)
            db.set_trace_callback(self.hear)

    def hear(self, statement: str) -> None:
        if statement == "COMMIT" and not self.blown:
            # SQLite may call even a commit that is done interrupted, which no other failure is.
            self.left = 1 << 60

    def burn(self) -> int:
        self.left -= 1
        if self.left >= 0 or (self.blown and not self.stubborn):
            return 0
        self.blown = True
        return 1


def outcome(store: Any, seed: int, n: int) -> type[OmoideError] | None:
    """What step n of a random life comes to: an error of ours, or nothing."""
    with clock.override(FrozenClock(1_000 + n)):
        try:
            act(store, random.Random(f"{seed}:{n}"), n)
        except OmoideError as error:
            return type(error)
    return None


@pytest.mark.timeout(0)
@pytest.mark.parametrize("stubborn", [False, True], ids=["once", "stubborn"])
def test_a_failure_at_any_point_leaves_nothing_behind(tmp_path: Path, stubborn: bool) -> None:
    """An operation that is cut off anywhere inside SQLite changes nothing, and can be repeated."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    chance = random.Random(seed)
    failures = 0
    with a_store("memory", tmp_path) as model, a_store("sqlite", tmp_path, **OPTIONS) as store:
        for n in range(3 * min(settings().max_examples, 300)):
            before = state(store)
            fuse = Fuse(store, int(chance.expovariate(1 / 800)), stubborn=stubborn)
            first = outcome(store, seed, n)
            with store._db.exclusive_writer() as db:
                db.set_progress_handler(None, 0)
                db.set_trace_callback(None)
            if fuse.blown and first is not None and issubclass(first, StoreFailed):
                assert state(store) == before, f"step {n}"
                failures += 1
                first = outcome(store, seed, n)
            assert first == outcome(model, seed, n), f"step {n}"
            assert state(store) == state(model), f"step {n}"
        assert store.check() == []
    assert failures > 0


def test_a_write_after_an_interrupted_one_is_found(tmp_path: Path) -> None:
    """An agent that an interrupted write was the first to name does not keep a number that was undone."""
    cut_off = 0
    with a_store("sqlite", tmp_path, **OPTIONS) as store:
        for steps in range(0, 1_200, 25):
            agent = f"agent {steps}"
            requests = [write(f"{agent} {n}", agent) for n in range(3)]
            fuse = Fuse(store, steps, stubborn=False)
            with suppress(StoreFailed):
                store.write_many(requests)
            with store._db.exclusive_writer() as db:
                db.set_progress_handler(None, 0)
                db.set_trace_callback(None)
            cut_off += fuse.blown
            store.write_many(requests)
            assert len(store.list_entries(Scope(agent_id=agent))) == 3, f"after {steps} steps"
    assert cut_off > 5


def write(content: str, agent: str) -> WriteRequest:
    return WriteRequest(entry=Entry(id=content, agent_id=agent, content=content))
