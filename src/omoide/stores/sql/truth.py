"""Which entries of a file rest on what does not hold?

How an entry stands is in its row. It changes in the same transaction as what it rests on, and each change is
in the log, so that what others hold in memory hears of it.

"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from omoide import clock
from omoide.stores import codec, truth
from omoide.stores.sql import rows
from omoide.stores.sql.database import Database
from omoide.stores.truth import INVALIDATED_BY, LIVE, STALE, SUPERSEDED_AND_STALE, StaleTransition

_TRANSITION_OPS = "op IN ('stale', 'current', 'erase')"  # as in the index
_STALE_SCHEMA = 3
"""The schema since which files know what is stale."""


class SQLDependencyIndex:
    """The entries of one namespace."""

    def __init__(self, db: Database, namespace: str) -> None:
        self._db = db
        self._namespace = namespace
        self._rows: dict[str, tuple[int, int]] = {}

    def statuses(self, ids: Collection[str]) -> dict[str, int]:
        """How each of these stands that exists."""
        return self._read_statuses(
            "SELECT id, live, no, rev FROM entries WHERE namespace=? AND id IN ({marks})", ids
        )

    def dependents(self, ids: Collection[str]) -> dict[str, int]:
        """The entries that now rest on any of these, and how they stand."""
        return self._read_statuses(
            f"SELECT e.id, e.live, e.no, e.rev FROM supports s {self._db.dialect.join_order_hint}"
            " JOIN entries e ON e.no = s.no WHERE s.namespace=? AND s.id IN ({marks}) AND s.present = 1",
            ids,
        )

    def _read_statuses(self, statement: str, ids: Collection[str]) -> dict[str, int]:
        found = {}
        for id, live, no, rev in self._select(statement, ids):
            found[id] = live
            self._rows[id] = no, rev
        return found

    def premises(self, ids: Collection[str]) -> Iterable[tuple[str, str]]:
        """Each of these with each of the ids it now rests on."""
        return self._select(
            f"SELECT e.id, s.id FROM entries e {self._db.dialect.join_order_hint} JOIN supports s"
            " ON s.no = e.no AND s.present = 1 WHERE e.namespace=? AND e.id IN ({marks})",
            ids,
        )

    def invalidated_ids(self, ids: Collection[str]) -> set[str]:
        """Those of these at which a link begins that says so."""
        found = self._select(
            "SELECT source FROM links WHERE namespace=? AND source IN ({marks})"
            f" AND relation='{INVALIDATED_BY}'",
            ids,
        )
        return {id for (id,) in found}

    def erased_ids(self, ids: Collection[str]) -> set[str]:
        """Those of these, none of which exists, that did exist."""
        found = self._select("SELECT id FROM tombstones WHERE namespace=? AND id IN ({marks})", ids)
        return {id for (id,) in found}

    def _select(self, statement: str, ids: Collection[str]) -> Iterator[Any]:
        for some in rows.batches(ids):
            marks = ",".join("?" * len(some))
            yield from self._db.execute(statement.format(marks=marks), (self._namespace, *some))

    def save_statuses(self, changed: Mapping[str, int], now: int) -> None:
        """Let entries that were looked at stand otherwise."""
        flips = [(*self._rows[id], id, live) for id, live in changed.items()]
        self._db.executemany(
            "UPDATE entries SET live=? WHERE no=?", sorted((live, no) for no, _, _, live in flips)
        )
        self._db.executemany(
            "INSERT INTO log (namespace, id, no, op, rev, at) VALUES (?,?,?,?,?,?)",
            [
                (self._namespace, id, no, "stale" if live >= STALE else "current", rev, now)
                for no, rev, id, live in flips
            ],
        )


def propagate(db: Database, namespace: str, was_out: Mapping[str, bool], now: int) -> Mapping[str, int]:
    """Bring what rests on some entries in line with how they are now; how those stand that changed."""
    ledger = SQLDependencyIndex(db, namespace)
    changed = truth.propagate(ledger, was_out)
    if changed:
        ledger.save_statuses(changed, now)
    return changed


def is_premise(db: Database, namespace: str, id: str) -> bool:
    """Whether anything now rests on an entry."""
    found = db.execute(
        "SELECT 1 FROM supports WHERE namespace=? AND id=? AND present = 1 LIMIT 1", (namespace, id)
    )
    return found.fetchone() is not None


def has_stale_reason(db: Database, no: int) -> bool:
    """Whether an entry rests on anything that is out."""
    found = db.execute(
        "SELECT 1 FROM supports s LEFT JOIN entries p ON p.namespace = s.namespace AND p.id = s.id"
        " WHERE s.no=? AND s.present = 1 AND CASE WHEN p.no IS NOT NULL THEN p.live != ? ELSE EXISTS"
        " (SELECT 1 FROM tombstones t WHERE t.namespace = s.namespace AND t.id = s.id) END LIMIT 1",
        (no, LIVE),
    )
    return found.fetchone() is not None


def is_erased(db: Database, namespace: str, id: str) -> bool:
    """Whether an entry of this id was ever erased."""
    found = db.execute("SELECT 1 FROM tombstones WHERE namespace=? AND id=? LIMIT 1", (namespace, id))
    return found.fetchone() is not None


def stale_transitions(
    db: Database, condition: str, parameters: Iterable[Any]
) -> dict[int, list[StaleTransition]]:
    """When the entries whose numbers a condition names became stale or current; of erased ones nothing."""
    found: dict[int, list[StaleTransition]] = {}
    for no, op, rev, at in db.execute(
        f"SELECT no, op, rev, at FROM log WHERE {_TRANSITION_OPS} AND no {condition} ORDER BY seq",
        [*parameters],
    ):
        if op == "erase":
            found.pop(no, None)  # the number may be another's now
        else:
            found.setdefault(no, []).append(StaleTransition(rev, at, op == "stale"))
    return found


def stale_ids(db: Database, namespace: str) -> set[str]:
    """The ids of the entries that have to be stale, found from nothing but what is kept."""
    resting: dict[str, list[str]] = {}
    for premise, id in db.execute(
        "SELECT s.id, e.id FROM supports s JOIN entries e ON e.no = s.no"
        " WHERE s.namespace=? AND s.present = 1",
        (namespace,),
    ):
        resting.setdefault(premise, []).append(id)
    ledger = SQLDependencyIndex(db, namespace)
    known = ledger.statuses(resting)
    erased = ledger.erased_ids([id for id in resting if id not in known])
    superseded = {id for id, live in known.items() if truth.is_superseded(live)}
    linked = db.execute(
        f"SELECT DISTINCT source FROM links WHERE namespace=? AND relation='{INVALIDATED_BY}'", (namespace,)
    )
    invalidated = {id for (id,) in linked}
    return invalidated | truth.reachable([*invalidated, *superseded, *erased], resting)


def check(db: Database) -> list[str]:
    """The namespaces in which entries stand otherwise than what they rest on says."""
    problems = []
    for (namespace,) in db.execute("SELECT DISTINCT namespace FROM owners").fetchall():
        marked = db.execute("SELECT id FROM entries WHERE namespace=? AND live >= ?", (namespace, STALE))
        wrong = {id for (id,) in marked} ^ stale_ids(db, namespace)
        if wrong:
            problems.append(f"entries that are stale and should not be, or the other way round: {len(wrong)}")
    return problems


def migrate_staleness(db: Database, version: int) -> None:
    """Find out what is stale in a file that was made before files knew."""
    if not 0 < version < _STALE_SCHEMA:
        return
    resting = db.execute("SELECT no, body FROM entries WHERE no IN (SELECT no FROM supports)").fetchall()
    for no, body in resting:
        with suppress(msgspec.DecodeError):  # damage is not found here
            rows.update_premises(db, codec.decode_entry(body), no)
    for (namespace,) in db.execute("SELECT DISTINCT namespace FROM owners").fetchall():
        ids = sorted(stale_ids(db, namespace))
        ledger = SQLDependencyIndex(db, namespace)
        lives = ledger.statuses(ids)
        ledger.save_statuses(
            {id: STALE if lives[id] == LIVE else SUPERSEDED_AND_STALE for id in ids}, clock.now()
        )
