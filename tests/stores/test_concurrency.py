"""Many processes and threads use one store at once, and lose nothing."""

from __future__ import annotations

import json
import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.support.store_process import COUNTERS, OPTIONS, start
from tests.support.stores import ADA, KINDS, a_store, keep, list_ids, url

from omoide.errors import Conflict
from omoide.stores import Change, Document

SECONDS = float(os.environ.get("OMOIDE_SECONDS", "3"))
PROCESSES, THREADS = map(int, os.environ.get("OMOIDE_WORKERS", "2x2").split("x"))


def reports_of_many(place: str) -> list[dict[str, Any]]:
    """Let the processes work side by side; what their threads say that they did."""
    processes = [start("mix", place, f"p{at}", THREADS, SECONDS) for at in range(PROCESSES)]
    try:
        said = [process.communicate(timeout=SECONDS + 120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0] * PROCESSES
    return [report for words in said for report in json.loads(words)]


def replay(changes: list[Change]) -> dict[str, tuple[int, bool]]:
    """What the log alone says: the revision of each entry, and whether it counts."""
    kept: dict[str, tuple[int, bool]] = {}
    for change in changes:
        if change.op == "erase":
            del kept[change.id]
            continue
        rev, counts = kept.get(change.id, (0, True))
        assert change.rev == rev + 1, change
        counts = change.op == "restore" or (counts and change.op != "supersede")
        kept[change.id] = (change.rev, counts)
    return kept


@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_many_at_once_lose_nothing(tmp_path: Path, kind: str) -> None:
    """Every acknowledged update counts, only conflicts are raised, and the log tells the same story."""
    with a_store(kind, tmp_path, **OPTIONS) as store:
        for counter in COUNTERS:
            keep(store, "0", id=counter)
        store.save(Document(kind="tally", id="d", agent_id="ada", body=0))
        reports = reports_of_many(url(kind, tmp_path))
        assert [error for report in reports for error in report["errors"]] == []
        raised = sum((Counter(report["raised"]) for report in reports), Counter())
        assert {name: int(store.get(name, ADA).content) for name in COUNTERS} == {
            name: raised[name] for name in COUNTERS
        }
        assert store.load("tally", "d", ADA).body == sum(report["saved"] for report in reports)
        expected = {name for report in reports for name in report["kept"]} | {*COUNTERS}
        assert set(list_ids(store)) == expected
        changes = store.changes("default", limit=10_000_000)
        assert all(one.seq < other.seq for one, other in pairwise(changes))
        assert replay(changes) == {
            entry.id: (entry.rev, entry.superseded_by is None) for entry in store.list_entries(ADA)
        }
        assert store.check() == []
        assert sum(raised.values()) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_threads_share_a_store(tmp_path: Path, kind: str) -> None:
    """Of writes that expect the same revision one wins, and nobody sees half of a batch."""
    with a_store(kind, tmp_path) as store, ThreadPoolExecutor(4) as pool:
        keep(store, "0", id="c")

        def raise_by_one(_: int) -> int:
            while True:
                seen = store.get("c", ADA)
                try:
                    return keep(store, str(int(seen.content) + 1), id="c", expected_rev=seen.rev).rev
                except Conflict:
                    continue

        revs = list(pool.map(raise_by_one, range(60)))
        assert sorted(revs) == list(range(2, 62))
        assert store.get("c", ADA).content == "60"
