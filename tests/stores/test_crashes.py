"""After a crash, everything acknowledged is there, and nothing half written."""

from __future__ import annotations

import os
import random
import select
import time
from pathlib import Path

import pytest
from tests.support.store_process import OPTIONS, start, state, step
from tests.support.stores import a_store, keep, list_ids, recall_ids, url

from omoide import Scope
from omoide.stores import Document

KILLS = int(os.environ.get("OMOIDE_KILLS", "10"))


def kill_while_writing(*args: object, chance: random.Random) -> int:
    """Let a process live until some moment, kill it, and count the steps that it acknowledged."""
    process = start("live", *args)
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    enough, acknowledged, deadline = chance.choice((0, 0, *range(1, 60, 3))), 0, time.monotonic() + 60
    while acknowledged < enough and time.monotonic() < deadline:
        acknowledged += len(os.read(pipe, 1)) if select.select([pipe], [], [], 1.0)[0] else 0
        if process.poll() is not None:
            break
    # A random moment between two acknowledgements, or while the file is still being opened.
    select.select([], [], [], chance.random() * (0.003 if enough else 0.6))
    process.kill()
    rest, _ = process.communicate()
    assert process.returncode == -9, "the process ended by itself"
    return acknowledged + len(rest)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("durability", ["crash", "power"])
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, durability: str) -> None:
    """After each `kill -9` every acknowledged step is there, and the one after them wholly or not at all."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    chance = random.Random(seed)
    done = 0
    with a_store("memory", tmp_path, **OPTIONS) as model:
        for _ in range(-(-KILLS // 2)):
            steps = kill_while_writing(tmp_path / "memory.db", seed, done, durability, chance=chance)
            for n in range(done, done + steps):
                step(model, seed, n)
            done += steps
            with a_store("sqlite", tmp_path, durability=durability, **OPTIONS) as store:
                assert store.check() == []
                kept = state(store)
            if kept != state(model):
                step(model, seed, done)
                done += 1
                assert kept == state(model), f"after {done} steps"
    assert done > 0


def test_a_killed_restore_leaves_no_copy_behind(tmp_path: Path) -> None:
    """After each kill there is the store, with the content of the backup, and no other file."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    chance = random.Random(seed)
    place, path, backup = tmp_path / "place", tmp_path / "place" / "memory.db", tmp_path / "backup.db"
    place.mkdir()
    with a_store("sqlite", place, **OPTIONS) as store:
        keep(store, id="a")
        for n in range(10):  # large, so that copying takes a while
            store.save(Document(kind="k", id=f"d{n}", agent_id="ada", body={"said": "x" * 1_000_000}))
        store.backup(backup)
    for _ in range(-(-KILLS // 2)):
        process = start("restore", path, backup)
        assert process.stdout is not None
        assert process.stdout.read(1) == b"."
        select.select([], [], [], chance.random() * 0.1)  # a random moment of the next restores
        process.kill()
        process.communicate()
        assert {file.name for file in place.iterdir()} <= {"memory.db", "memory.db-wal", "memory.db-shm"}
        with a_store("sqlite", place, **OPTIONS) as store:
            assert list_ids(store) == ["a"]
            assert store.check() == []


def test_a_forked_process_uses_connections_of_its_own(tmp_path: Path) -> None:
    """Both sides of a fork read and write, and the file is whole."""
    process = start("fork", tmp_path / "memory.db")
    process.communicate(timeout=60)
    assert process.returncode == 0
    with a_store("sqlite", tmp_path, **OPTIONS) as store:
        assert sorted(list_ids(store, Scope())) == ["before", "child", "parent"]
        assert store.check() == []


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_what_another_process_erases_is_gone_at_the_next_recall(tmp_path: Path, kind: str) -> None:
    """Neither process needs to open the store again to see what the other did."""
    with a_store(kind, tmp_path, **OPTIONS) as store:
        for id in ("a", "b", "c"):
            keep(store, f"Tea {id}.", id=id)
        assert sorted(recall_ids(store, "tea")) == ["a", "b", "c"]
        process = start("erase", url(kind, tmp_path), "b")
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            assert sorted(process.stdout.readline().split()) == [b"a", b"b", b"c"]
            process.stdin.write(b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"done\n"
            assert sorted(recall_ids(store, "tea b")) == ["a", "c"]
            keep(store, "Tea d.", id="d")
            said, _ = process.communicate(b"\n", timeout=60)
            assert sorted(said.split()) == [b"a", b"c", b"d"]
        finally:
            process.kill()
            process.wait()
