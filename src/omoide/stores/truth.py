"""Maintain which entries are live, superseded or stale (truth maintenance).

As in a truth maintenance system, an entry is *out* if it is superseded, invalidated or stale. It is *stale*
if it is invalidated, or if something it depends on is out or was erased. In a cycle of dependencies only
those entries are stale from which evidence leads to something that is out for a reason of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from omoide import ids
from omoide.core.entry import Entry

SUPERSEDED, LIVE, STALE, SUPERSEDED_AND_STALE = 0, 1, 2, 3
"""Status of an entry, as stored in the column `live`."""

INVALIDATED_BY = "invalidated_by"
"""Relation of a link whose source is invalidated."""

_TO_STALE = {LIVE: STALE, SUPERSEDED: SUPERSEDED_AND_STALE}
_TO_CURRENT = {STALE: LIVE, SUPERSEDED_AND_STALE: SUPERSEDED}


def status_of(entry: Entry) -> int:
    """Return the status of an entry."""
    if entry.superseded_by is None:
        return STALE if entry.stale else LIVE
    return SUPERSEDED_AND_STALE if entry.stale else SUPERSEDED


def is_superseded(status: int) -> bool:
    """Return True if a status means superseded or forgotten."""
    return status in (SUPERSEDED, SUPERSEDED_AND_STALE)


def allowed_statuses(*, superseded: bool, stale: bool) -> tuple[int, ...]:
    """Return the statuses that a filter admits."""
    return (LIVE, *((SUPERSEDED, SUPERSEDED_AND_STALE) if superseded else ()), *((STALE,) if stale else ()))


def premises(entry: Entry) -> frozenset[str]:
    """Return the ids of the entries that an entry depends on; references too long for an id are ignored."""
    if not entry.evidence:
        return _NO_PREMISES
    refs = (evidence.ref for evidence in entry.evidence if evidence.kind == "entry")
    return frozenset(ref for ref in refs if len(ref) <= ids.MAX_BYTES)


_NO_PREMISES: frozenset[str] = frozenset()


class StaleTransition(NamedTuple):
    """An entry, at some revision, became stale or current at a time."""

    rev: int
    at: int
    stale: bool


def was_stale_at(transitions: Sequence[StaleTransition], moment: int) -> bool:
    """Return True if an entry was stale at a time."""
    return next((transition.stale for transition in reversed(transitions) if transition.at <= moment), False)


def was_stale_in_rev(transitions: Sequence[StaleTransition], rev: int) -> bool:
    """Return True if a revision was stale when it was replaced, or is stale if it is the newest."""
    return next((transition.stale for transition in reversed(transitions) if transition.rev <= rev), False)


class DependencyIndex(Protocol):
    """The statuses and dependencies of the entries of one namespace."""

    def statuses(self, ids: Collection[str]) -> dict[str, int]:
        """Return the status of each of these entries that exists."""
        ...

    def dependents(self, ids: Collection[str]) -> dict[str, int]:
        """Return the entries that currently depend on any of these, with their statuses."""
        ...

    def premises(self, ids: Collection[str]) -> Iterable[tuple[str, str]]:
        """Yield each of these ids with each id it currently depends on."""
        ...

    def invalidated_ids(self, ids: Collection[str]) -> set[str]:
        """Return those that have an `invalidated_by` link."""
        ...

    def erased_ids(self, ids: Collection[str]) -> set[str]:
        """Return those that were erased; none of them exists."""
        ...


def propagate(index: DependencyIndex, was_out: Mapping[str, bool]) -> dict[str, int]:
    """Return the new status of every entry whose status changes after some entries changed.

    Each affected entry is visited once; nothing else is read.

    Args:
        was_out: Every entry that changed, with whether it was out before. An entry that was erased
            earlier was out.
    """
    before = index.statuses(was_out.keys())
    uncertain = _possibly_current(index, was_out, before)
    now = {id: _TO_CURRENT[status] if id in uncertain else status for id, status in before.items()}
    frontier = {id for id, out in was_out.items() if not out and now.get(id) != LIVE}
    for id in _with_stale_reason(index, {*uncertain, *(id for id in was_out if id in now)}, now):
        if now[id] == LIVE:
            frontier.add(id)
        now[id] = _TO_STALE[now[id]]
    while frontier:
        dependents = index.dependents(frontier)
        frontier = set()
        for id, status in dependents.items():
            before.setdefault(id, status)
            status = now.get(id, status)
            if status in _TO_STALE:
                now[id] = _TO_STALE[status]
                if status == LIVE:
                    frontier.add(id)
    return {id: now[id] for id in sorted(now) if now[id] != before[id]}


def _possibly_current(
    index: DependencyIndex, was_out: Mapping[str, bool], before: dict[str, int]
) -> set[str]:
    """Return the stale entries that may have become current; add their statuses to `before`."""
    uncertain = {id for id, status in before.items() if status in _TO_CURRENT}
    frontier = {id for id, out in was_out.items() if out and before.get(id) in (LIVE, STALE)}
    while frontier:
        frontier -= index.invalidated_ids(frontier)  # what is out for a reason of its own leads no further
        dependents = index.dependents(frontier)
        fresh = {
            id: status for id, status in dependents.items() if status in _TO_CURRENT and id not in uncertain
        }
        before.update(fresh)
        uncertain.update(fresh)
        frontier = {id for id, status in fresh.items() if status == STALE}
    return uncertain


def _with_stale_reason(index: DependencyIndex, ids: set[str], now: Mapping[str, int]) -> set[str]:
    """Return those that are invalidated or depend on something that is out."""
    if not ids:
        return set()
    pairs = [*index.premises(ids)]
    premise_ids = {premise for _, premise in pairs if premise not in now}
    others = index.statuses(premise_ids) if premise_ids else {}
    absent = premise_ids - others.keys()
    erased = index.erased_ids(absent) if absent else set()
    stale = index.invalidated_ids(ids)
    for id, premise in pairs:
        status = now.get(premise, others.get(premise))
        if premise in erased if status is None else status != LIVE:
            stale.add(id)
    return stale


def reachable(roots: Iterable[str], dependents: Mapping[str, Iterable[str]]) -> set[str]:
    """Return everything that depends on the roots, directly or not."""
    found, frontier = set[str](), [*roots]
    while frontier:
        for id in dependents.get(frontier.pop(), ()):
            if id not in found:
                found.add(id)
                frontier.append(id)
    return found
