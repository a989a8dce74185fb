"""Does an entry count, and if not, why?

An entry is *out* when it is superseded, invalidated or stale. It is *stale* when it is invalidated, or when
something it rests on is out or was erased. Where entries rest on one another in a circle, only those are
stale from which evidence leads to something that is out for a reason of its own.

"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from omoide import ids
from omoide.core.entry import Entry

SUPERSEDED, LIVE, STALE, SUPERSEDED_AND_STALE = 0, 1, 2, 3
"""How an entry stands: replaced or forgotten; counting; resting on what does not hold; both at once."""

INVALIDATED_BY = "invalidated_by"
"""The relation of a link that begins at an entry which no longer holds."""

_TO_STALE = {LIVE: STALE, SUPERSEDED: SUPERSEDED_AND_STALE}
_TO_CURRENT = {STALE: LIVE, SUPERSEDED_AND_STALE: SUPERSEDED}


def status_of(entry: Entry) -> int:
    """How an entry stands."""
    if entry.superseded_by is None:
        return STALE if entry.stale else LIVE
    return SUPERSEDED_AND_STALE if entry.stale else SUPERSEDED


def is_superseded(status: int) -> bool:
    """Whether an entry that stands so was replaced or forgotten."""
    return status in (SUPERSEDED, SUPERSEDED_AND_STALE)


def allowed_statuses(*, superseded: bool, stale: bool) -> tuple[int, ...]:
    """How the entries may stand that are asked for."""
    return (LIVE, *((SUPERSEDED, SUPERSEDED_AND_STALE) if superseded else ()), *((STALE,) if stale else ()))


def premises(entry: Entry) -> frozenset[str]:
    """The ids of the entries that an entry rests on; what is too long to be an id names none."""
    if not entry.evidence:
        return _NO_PREMISES
    refs = (one.ref for one in entry.evidence if one.kind == "entry")
    return frozenset(ref for ref in refs if len(ref) <= ids.MAX_BYTES)


_NO_PREMISES: frozenset[str] = frozenset()


class StaleTransition(NamedTuple):
    """An entry of some revision became stale at a moment, or current again."""

    rev: int
    at: int
    stale: bool


def was_stale_at(transitions: Sequence[StaleTransition], moment: int) -> bool:
    """Whether an entry was stale at a moment."""
    return next((flip.stale for flip in reversed(transitions) if flip.at <= moment), False)


def was_stale_in_rev(transitions: Sequence[StaleTransition], rev: int) -> bool:
    """Whether a revision of an entry was stale when the next one took its place, or is, if it is the last."""
    return next((flip.stale for flip in reversed(transitions) if flip.rev <= rev), False)


class DependencyIndex(Protocol):
    """What a store knows of the entries of one namespace."""

    def statuses(self, ids: Collection[str]) -> dict[str, int]:
        """How each of these stands that exists."""
        ...

    def dependents(self, ids: Collection[str]) -> dict[str, int]:
        """The entries that now rest on any of these, and how they stand."""
        ...

    def premises(self, ids: Collection[str]) -> Iterable[tuple[str, str]]:
        """Each of these with each of the ids it now rests on."""
        ...

    def invalidated_ids(self, ids: Collection[str]) -> set[str]:
        """Those of these at which a link begins that says so."""
        ...

    def erased_ids(self, ids: Collection[str]) -> set[str]:
        """Those of these, none of which exists, that did exist."""
        ...


def propagate(index: DependencyIndex, was_out: Mapping[str, bool]) -> dict[str, int]:
    """How entries stand that stand differently now, after something happened to some of them.

    Those must all be named, each with whether it was out before; one that was erased before was out. What is
    looked at is what rests on them, as far as it may be affected, each entry once.
    """
    noted = index.statuses(was_out.keys())
    doubted = _possibly_current(index, was_out, noted)
    now = {id: _TO_CURRENT[standing] if id in doubted else standing for id, standing in noted.items()}
    leading = {id for id, out in was_out.items() if not out and now.get(id) != LIVE}
    for id in _with_stale_reason(index, {*doubted, *(id for id in was_out if id in now)}, now):
        if now[id] == LIVE:
            leading.add(id)
        now[id] = _TO_STALE[now[id]]
    while leading:
        found = index.dependents(leading)
        leading = set()
        for id, standing in found.items():
            noted.setdefault(id, standing)
            standing = now.get(id, standing)
            if standing in _TO_STALE:
                now[id] = _TO_STALE[standing]
                if standing == LIVE:
                    leading.add(id)
    return {id: now[id] for id in sorted(now) if now[id] != noted[id]}


def _possibly_current(index: DependencyIndex, was_out: Mapping[str, bool], noted: dict[str, int]) -> set[str]:
    """The stale entries that may be stale no longer; how they stand is added to what is noted."""
    doubted = {id for id, standing in noted.items() if standing in _TO_CURRENT}
    leading = {id for id, out in was_out.items() if out and noted.get(id) in (LIVE, STALE)}
    while leading:
        leading -= index.invalidated_ids(leading)  # what is out for a reason of its own leads no further
        found = index.dependents(leading)
        fresh = {
            id: standing for id, standing in found.items() if standing in _TO_CURRENT and id not in doubted
        }
        noted.update(fresh)
        doubted.update(fresh)
        leading = {id for id, standing in fresh.items() if standing == STALE}
    return doubted


def _with_stale_reason(index: DependencyIndex, ids: set[str], now: Mapping[str, int]) -> set[str]:
    """Those that are invalidated, or rest on something that is out."""
    if not ids:
        return set()
    pairs = [*index.premises(ids)]
    named = {premise for _, premise in pairs if premise not in now}
    others = index.statuses(named) if named else {}
    absent = named - others.keys()
    erased = index.erased_ids(absent) if absent else set()
    found = index.invalidated_ids(ids)
    for id, premise in pairs:
        standing = now.get(premise, others.get(premise))
        if premise in erased if standing is None else standing != LIVE:
            found.add(id)
    return found


def reachable(roots: Iterable[str], dependents: Mapping[str, Iterable[str]]) -> set[str]:
    """All that rests on these, however far away."""
    found, leading = set[str](), [*roots]
    while leading:
        for id in dependents.get(leading.pop(), ()):
            if id not in found:
                found.add(id)
                leading.append(id)
    return found
