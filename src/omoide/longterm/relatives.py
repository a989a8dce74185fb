"""What is a memory related to, near and far?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from omoide.core.contract import check_choice
from omoide.core.entry import DELETED, Entry
from omoide.core.memory_types import ROOT
from omoide.core.recalling import Filter, check_positive
from omoide.core.scope import Scope
from omoide.core.value import check_instance
from omoide.errors import Invalid
from omoide.longterm import reading
from omoide.longterm.relations import DERIVED_FROM, IMPLICIT, SAME_TYPE, SUPERSEDED_BY, SUPERSEDES
from omoide.stores.records import Link

DIRECTIONS = ("both", "out", "in")
DEEPEST = 5
"""How many steps away from a memory others are looked for at most."""


class Related(msgspec.Struct, frozen=True, kw_only=True):
    """A memory that was reached from another."""

    entry: Entry
    relation: str
    via: str
    """The id of the memory from which it was reached."""
    depth: int = 1
    """How many steps it is away."""
    direction: str = "out"
    """`out`: the relation leads to it; `in`: it starts from it."""

    def __str__(self) -> str:
        arrow = f"—{self.relation}→" if self.direction == "out" else f"←{self.relation}—"
        return f"{self.via} {arrow} {self.entry.id}: {self.entry.content}"


async def related(
    store: Any,
    id: str,
    scope: Scope,
    relation: str | None = None,
    *,
    depth: int = 1,
    direction: str = "both",
    limit: int = 100,
) -> list[Related]:
    """The memories that a memory is related to, the nearest first, each once, whether they still hold or not.

    `derived_from`, `superseded_by` and `supersedes` are known from the memories themselves; `same_type` and
    `same_project` have to be asked for by name. Any other name is that of links somebody made.
    """
    check_instance(scope, "scope", kind=Scope)
    if relation is not None:
        check_instance(relation, "relation", kind=str)
    check_choice(direction, "direction", DIRECTIONS)
    check_positive(limit, "limit")
    if check_positive(depth, "depth") > DEEPEST:
        raise Invalid("depth", f"is {depth}", f"look at most {DEEPEST} steps far")
    first = await reading.get(store, id, scope)
    if relation in IMPLICIT:
        return await _alike(store, first, scope, relation, limit)
    search = _Search(store, scope, relation, direction)
    found: list[Related] = []
    seen, frontier = {first.id}, [first]
    for step in range(1, depth + 1):
        reached: list[Entry] = []
        for entry in frontier:
            for name, way, other in await search.neighbours(entry):
                if other.id in seen:
                    continue
                if len(found) == limit:
                    return found
                seen.add(other.id)
                reached.append(other)
                found.append(Related(entry=other, relation=name, via=entry.id, depth=step, direction=way))
        frontier = reached
    return found


async def _alike(store: Any, first: Entry, scope: Scope, relation: str, limit: int) -> list[Related]:
    """The newest memories of the same type, or of the same project."""
    by_type = relation == SAME_TYPE
    if by_type:
        filter = Filter(types=(first.type or ROOT,))
    else:
        if first.project_id is None:
            return []
        filter, scope = Filter(), scope.replace(project_id=first.project_id)
    found: list[Related] = []
    async for entry in reading.each(store, scope, filter):
        if entry.id == first.id or (by_type and entry.type != first.type):
            continue
        found.append(Related(entry=entry, relation=relation, via=first.id))
        if len(found) == limit:
            break
    return found


class _Search:
    """One search: which relations count, which way, and what was read for it already."""

    def __init__(self, store: Any, scope: Scope, relation: str | None, direction: str) -> None:
        self._store = store
        self._scope = scope
        self._relation = relation
        self._ways = ("out", "in") if direction == "both" else (direction,)
        self._backwards = reading.Backwards(store, scope)

    async def neighbours(self, entry: Entry) -> list[tuple[str, str, Entry]]:
        """The memories one step away: what relates them, which way it leads, and what is there."""
        found: dict[tuple[str, str, str], Entry] = {}
        for link in await reading.links(self._store, entry.id, self._scope, self._relation):
            for way, other in self._ends(link, entry.id):
                there = await reading.find(self._store, other, self._scope)
                if there is not None:
                    found[link.relation, way, other] = there
        for name in (DERIVED_FROM, SUPERSEDED_BY) if self._relation is None else (self._relation,):
            for way in self._ways:
                for there in await self._known(entry, name, way):
                    found.setdefault((name, way, there.id), there)
        return [(name, way, there) for (name, way, _), there in found.items()]

    def _ends(self, link: Link, id: str) -> Iterator[tuple[str, str]]:
        if link.source == id and "out" in self._ways:
            yield "out", link.target
        if link.target == id and "in" in self._ways:
            yield "in", link.source

    async def _known(self, entry: Entry, name: str, way: str) -> list[Entry]:
        """What memories say about each other themselves."""
        if name == SUPERSEDES:
            name, way = SUPERSEDED_BY, "in" if way == "out" else "out"
        match name, way:
            case "derived_from", "out":
                return await self._held(reading.premises(entry))
            case "derived_from", "in":
                return await self._backwards.resting_on(entry.id)
            case "superseded_by", "out":
                by = entry.superseded_by
                return await self._held(() if by is None or by == DELETED else (by,))
            case "superseded_by", "in":
                return await self._backwards.replaced_by(entry.id)
            case _:
                return []

    async def _held(self, ids: tuple[str, ...]) -> list[Entry]:
        found = [await reading.find(self._store, id, self._scope) for id in ids]
        return [entry for entry in found if entry is not None]
