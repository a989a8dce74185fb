"""Relate memories, and find related ones.

`RELATIONS` are the relations of the Jido ontology, each with its property and the types that it connects. A
store keeps links of any name; these have a defined meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import msgspec

from omoide.core import entry as memory_types
from omoide.core.entry import DELETED, ROOT_TYPE, Entry, Evidence, Filter, Scope, WriteRequest, check_positive
from omoide.core.value import check_choice, check_instance
from omoide.errors import Invalid, NotFound
from omoide.longterm import queries
from omoide.stores.protocols import Store, SupportsLinks
from omoide.stores.records import Link
from omoide.verbs import forget, require

CONTRADICTS = "contradicts"
DERIVED_FROM = "derived_from"
INVALIDATED_BY = "invalidated_by"
SUPERSEDED_BY = "superseded_by"
SUPERSEDES = "supersedes"
SAME_TYPE = "same_type"
SAME_PROJECT = "same_project"
ASSIGNED_TO = "assigned_to"
"""The metadata key of a task with the agent that it is assigned to."""


class Relation(msgspec.Struct, frozen=True):
    """A relation from one memory to another."""

    name: str
    property: str
    """Local name of its property in the ontology."""
    source: str
    """Type of the source memory, or a supertype of it."""
    target: str
    """Type of the target memory, or a supertype of it."""
    meaning: str
    inverted: bool = False
    """True if the property points from the target to the source."""


_ALL = (
    Relation("refines", "refines", "hypothesis", "hypothesis", "says the same more exactly"),
    Relation("confirms", "confirms", ROOT_TYPE, "fact", "is evidence for it"),
    Relation(CONTRADICTS, "contradicts", ROOT_TYPE, ROOT_TYPE, "cannot be true together with it"),
    Relation("has_alternative", "hasAlternative", "decision", "alternative", "was weighed against it"),
    Relation("selected_alternative", "selectedAlternative", "decision", "alternative", "chose it"),
    Relation("has_trade_off", "hasTradeOff", "decision", "trade_off", "accepts it"),
    Relation("justified_by", "justifiedBy", "decision", ROOT_TYPE, "was made because of it"),
    Relation("has_root_cause", "hasRootCause", "error", "root_cause", "happened because of it"),
    Relation("produced_lesson", "producedLesson", "error", "lesson_learned", "taught it"),
    Relation("related_error", "relatedError", "error", "error", "is related to it"),
    Relation(DERIVED_FROM, "derivedFrom", ROOT_TYPE, ROOT_TYPE, "is derived from it"),
    Relation(SUPERSEDED_BY, "supersededBy", ROOT_TYPE, ROOT_TYPE, "was replaced by it"),
    Relation(SUPERSEDES, "supersededBy", ROOT_TYPE, ROOT_TYPE, "replaced it", inverted=True),
    Relation(INVALIDATED_BY, "invalidatedBy", ROOT_TYPE, ROOT_TYPE, "is invalidated by it"),
    Relation("depends_on", "dependsOn", "task", "task", "needs it first"),
    Relation("blocked_by", "blockedBy", "task", "task", "cannot continue before it"),
    Relation("part_of_milestone", "partOfMilestone", "task", "milestone", "belongs to it"),
    Relation("part_of_plan", "partOfPlan", "task", "plan", "belongs to it"),
)

RELATIONS = MappingProxyType({relation.name: relation for relation in _ALL})

BY_PROPERTY = MappingProxyType({relation.property: relation for relation in _ALL if not relation.inverted})
"""The relation of each property of the ontology."""

STATUS_RELATIONS = frozenset({DERIVED_FROM, SUPERSEDED_BY, SUPERSEDES, INVALIDATED_BY})
"""Relations that decide whether a memory is live."""

IMPLICIT = (SAME_TYPE, SAME_PROJECT)
"""Relations that follow from fields of the memories."""


def get_relation(name: object) -> Relation:
    """Return the relation with a name, or raise `NotFound`."""
    if not isinstance(name, str) or name not in RELATIONS:
        raise NotFound("relation", name, f"use one of {', '.join(RELATIONS)}")
    return RELATIONS[name]


def check_ends(relation: Relation, source: Entry, target: Entry) -> None:
    """Raise `Invalid` unless both memories have the types that the relation connects."""
    for end, entry, wanted in (("source", source, relation.source), ("target", target, relation.target)):
        if not is_a(entry, wanted):
            raise Invalid(
                f"{end} {entry.id!r}",
                f"is {_type_label(entry)}, and {relation.name} takes a memory of type {wanted} there",
                "choose another memory or relation, or relate them without strict",
            )


def is_a(entry: Entry, wanted: str) -> bool:
    """Return True if a memory has a type or one of its subtypes."""
    return (ROOT_TYPE if entry.type is None else entry.type) in memory_types.with_subtypes(wanted)


def _type_label(entry: Entry) -> str:
    return "untyped" if entry.type is None else f"of type {entry.type}"


async def relate(
    store: Any,
    source: str,
    relation: str,
    target: str,
    scope: Scope,
    *,
    strict: bool = False,
    reason: str | None = None,
) -> Relation:
    """Relate one memory to another.

    `derived_from` adds evidence, `superseded_by` and `supersedes` replace a memory; all others add a link.

    Args:
        strict: Refuse memories of other types than the relation connects.
        reason: The reason that is stored with a replacement.

    Raises:
        NotFound: There is no such relation, or the scope does not contain a memory.
        Invalid: Source and target are the same memory, or `strict` refuses them.
    """
    check_instance(scope, "scope", kind=Scope)
    chosen = get_relation(relation)
    if source == target:
        raise Invalid("target", "is the same memory as the source", "name two memories")
    # Both are read first: an id outside the scope is refused before anything changes.
    first, second = await queries.get(store, source, scope), await queries.get(store, target, scope)
    if strict:
        check_ends(chosen, first, second)
    match chosen.name:
        case "derived_from":
            await _add_premise(store, first, second)
        case "superseded_by":
            await forget(store, source, scope, replacement=target, reason=reason)
        case "supersedes":
            await forget(store, target, scope, replacement=source, reason=reason)
        case name:
            linked: SupportsLinks = require(store, SupportsLinks, "relate memories")
            await linked.link(Link(source=source, relation=name, target=target), scope)
    return chosen


async def _add_premise(store: Any, entry: Entry, premise: Entry) -> None:
    """Add a premise to the evidence of a memory, which becomes stale with it."""
    if premise.id in queries.premises(entry):
        return
    writable: Store = require(store, Store, "keep memories")
    evidence = (*entry.evidence, Evidence(kind="entry", ref=premise.id))
    # A concurrent change of the memory is a Conflict, and is not overwritten.
    await writable.write(WriteRequest(entry=entry.replace(evidence=evidence), expected_rev=entry.rev))


DIRECTIONS = ("both", "out", "in")
MAX_DEPTH = 5
"""Largest number of steps from a memory to a related one."""


class Related(msgspec.Struct, frozen=True, kw_only=True):
    """A memory that was found through a relation."""

    entry: Entry
    relation: str
    via: str
    """The id of the memory that it is related to."""
    depth: int = 1
    """Number of steps from the first memory."""
    direction: str = "out"
    """`out` if it is the target of the relation, `in` if it is the source."""

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
    """Return the memories that a memory is related to, live or not, nearest first, each once.

    `derived_from`, `superseded_by` and `supersedes` are known from the memories themselves; `same_type` and
    `same_project` have to be asked for by name. Any other name is that of links.

    Args:
        store: store of the memories.
        id: id of the first memory.
        scope: memories that may be returned.
        relation: name of the relation; None for all but the implicit ones.
        depth: maximum number of steps, at most `MAX_DEPTH`.
        direction: `out`, `in` or `both`.
        limit: maximum number of memories.

    Raises:
        NotFound: the scope does not contain the memory.
        Invalid: the depth or the direction is invalid.
    """
    check_instance(scope, "scope", kind=Scope)
    if relation is not None:
        check_instance(relation, "relation", kind=str)
    check_choice(direction, "direction", DIRECTIONS)
    check_positive(limit, "limit")
    if check_positive(depth, "depth") > MAX_DEPTH:
        raise Invalid("depth", f"is {depth}", f"look at most {MAX_DEPTH} steps far")
    first = await queries.get(store, id, scope)
    if relation in IMPLICIT:
        return await _implicit_relatives(store, first, scope, relation, limit)
    search = _RelationSearch(store, scope, relation, direction)
    found: list[Related] = []
    seen, frontier = {first.id}, [first]
    for step in range(1, depth + 1):
        reached: list[Entry] = []
        for entry in frontier:
            for name, side, other in await search.neighbours(entry):
                if other.id in seen:
                    continue
                if len(found) == limit:
                    return found
                seen.add(other.id)
                reached.append(other)
                found.append(Related(entry=other, relation=name, via=entry.id, depth=step, direction=side))
        frontier = reached
    return found


async def _implicit_relatives(
    store: Any, first: Entry, scope: Scope, relation: str, limit: int
) -> list[Related]:
    """Return the newest memories of the same type, or of the same project."""
    by_type = relation == SAME_TYPE
    if by_type:
        filter = Filter(types=(first.type or ROOT_TYPE,))
    else:
        if first.project_id is None:
            return []
        filter, scope = Filter(), scope.replace(project_id=first.project_id)
    found: list[Related] = []
    async for entry in queries.iter_entries(store, scope, filter):
        # The filter passes subtypes; the same type is exactly the same.
        if entry.id == first.id or (by_type and entry.type != first.type):
            continue
        found.append(Related(entry=entry, relation=relation, via=first.id))
        if len(found) == limit:
            break
    return found


class _RelationSearch:
    """One search along relations, with what it has loaded."""

    def __init__(self, store: Any, scope: Scope, relation: str | None, direction: str) -> None:
        self._store = store
        self._scope = scope
        self._relation = relation
        self._directions = ("out", "in") if direction == "both" else (direction,)
        self._reverse = queries.ReverseIndex(store, scope)

    async def neighbours(self, entry: Entry) -> list[tuple[str, str, Entry]]:
        """Return relation, direction and memory for each neighbour."""
        found: dict[tuple[str, str, str], Entry] = {}
        for link in await queries.links(self._store, entry.id, self._scope, self._relation):
            for side, other in self._ends(link, entry.id):
                neighbour = await queries.find(self._store, other, self._scope)
                if neighbour is not None:
                    found[link.relation, side, other] = neighbour
        for name in (DERIVED_FROM, SUPERSEDED_BY) if self._relation is None else (self._relation,):
            for side in self._directions:
                for neighbour in await self._stated_neighbours(entry, name, side):
                    # The same relation may be a link as well.
                    found.setdefault((name, side, neighbour.id), neighbour)
        return [(name, side, neighbour) for (name, side, _), neighbour in found.items()]

    def _ends(self, link: Link, id: str) -> Iterator[tuple[str, str]]:
        if link.source == id and "out" in self._directions:
            yield "out", link.target
        if link.target == id and "in" in self._directions:
            yield "in", link.source

    async def _stated_neighbours(self, entry: Entry, name: str, direction: str) -> list[Entry]:
        """Return the neighbours that the fields of the memories name."""
        # Only `superseded_by` is stored; `supersedes` is the same field read from the other end.
        if name == SUPERSEDES:
            name, direction = SUPERSEDED_BY, "in" if direction == "out" else "out"
        match name, direction:
            case "derived_from", "out":
                return await self._find_many(queries.premises(entry))
            case "derived_from", "in":
                return await self._reverse.dependents(entry.id)
            case "superseded_by", "out":
                by = entry.superseded_by
                return await self._find_many(() if by is None or by == DELETED else (by,))
            case "superseded_by", "in":
                return await self._reverse.predecessors(entry.id)
            case _:
                return []

    async def _find_many(self, ids: tuple[str, ...]) -> list[Entry]:
        found = [await queries.find(self._store, id, self._scope) for id in ids]
        return [entry for entry in found if entry is not None]
