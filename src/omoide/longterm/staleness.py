"""Why does a memory no longer hold?

A memory is stale when something it rests on is out: superseded, invalidated, erased, or stale itself. The
answer is the way from the memory to what is out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from omoide.core.entry import DELETED, Entry
from omoide.core.recalling import check_positive
from omoide.core.scope import Scope
from omoide.core.value import check_instance
from omoide.longterm import reading, rendering
from omoide.longterm.relations import INVALIDATED_BY

SUPERSEDED = "superseded"
FORGOTTEN = "forgotten"
INVALIDATED = "invalidated"
ERASED = "erased"
UNSEEN = "outside the scope"


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """The way from a stale memory to the premise that is out."""

    path: tuple[str, ...]
    """The ids on the way: the memory itself first, what is out last."""
    cause: str
    """`superseded`, `forgotten`, `invalidated`, `erased`, or that it lies `outside the scope`."""
    by: str | None = None
    """The memory that superseded or invalidated it."""
    reason: str | None = None
    at: int | None = None

    def __str__(self) -> str:
        way = " rests on ".join(self.path)
        by = "" if self.by is None else f" by {self.by}"
        said = "no cause is to be seen in the scope" if self.cause == UNSEEN else f"{self.cause}{by}"
        return rendering.line(f"{way}: {said}", None, self.reason, self.at)


async def why_stale(store: Any, id: str, scope: Scope, *, limit: int = 10) -> tuple[Chain, ...]:
    """Why a memory is stale, the shortest ways first; nothing where it is not stale."""
    check_instance(scope, "scope", kind=Scope)
    check_positive(limit, "limit")
    first = await reading.get(store, id, scope)
    if not first.stale:
        return ()
    found: list[Chain] = []
    came: dict[str, str | None] = {first.id: None}
    frontier = [first]
    while frontier and len(found) < limit:
        reached: list[Entry] = []
        for entry in frontier:
            invalid = await _invalidation(store, entry, scope)
            found += () if invalid is None else (_chain(came, entry.id, invalid),)
            for premise in reading.premises(entry):
                if premise in came:
                    continue
                came[premise] = entry.id
                other = await reading.find(store, premise, scope)
                out = await _erasure(store, premise, scope) if other is None else _supersession(other)
                found += () if out is None else (_chain(came, premise, out),)
                if other is not None and out is None:
                    reached.append(other)
        frontier = [entry for entry in reached if entry.stale]
    # Whoever may not see the cause may still know that there is one.
    return tuple(found[:limit]) or (Chain(path=(first.id,), cause=UNSEEN),)


def _chain(came: dict[str, str | None], last: str, end: Chain) -> Chain:
    return msgspec.structs.replace(end, path=tuple(_back(came, last))[::-1])


def _back(came: dict[str, str | None], last: str) -> Iterator[str]:
    at: str | None = last
    while at is not None:
        yield at
        at = came[at]


def _supersession(entry: Entry) -> Chain | None:
    by = entry.superseded_by
    if by is None:
        return None
    return Chain(
        path=(),
        cause=FORGOTTEN if by == DELETED else SUPERSEDED,
        by=None if by == DELETED else by,
        reason=entry.superseded_reason,
        at=entry.superseded_at,
    )


async def _erasure(store: Any, id: str, scope: Scope) -> Chain | None:
    stone = await reading.stone(store, id, scope)
    return None if stone is None else Chain(path=(), cause=ERASED, reason=stone.reason, at=stone.at)


async def _invalidation(store: Any, entry: Entry, scope: Scope) -> Chain | None:
    for link in await reading.links(store, entry.id, scope, INVALIDATED_BY):
        if link.source == entry.id:
            return Chain(path=(), cause=INVALIDATED, by=link.target, at=link.created_at)
    return None
