"""Contradictions and completeness.

Those that somebody related by `contradicts`, and those that give the same `key` of the same project and type
another value. Nothing is guessed from the words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations, islice, product
from typing import Any, NamedTuple

import msgspec

from omoide import clock
from omoide.core.entry import ROOT_TYPE, Entry, Filter, Scope, check_positive
from omoide.core.value import check_instance
from omoide.errors import Contradiction, Incomplete
from omoide.longterm import lineage, queries
from omoide.longterm.relations import CONTRADICTS, is_a
from omoide.stores.protocols import SupportsLinks
from omoide.stores.records import Link
from omoide.verbs import require

# completeness: Does a memory have everything that the ontology asks of its type?


ASSIGNED_TO = "assigned_to"
"""Where the metadata of a task says which agent has it."""


def missing_fields(entry: Entry) -> tuple[str, ...]:
    """The fields that a complete memory of this type would have, and this one lacks.

    Content, agent, time and confidence are always there. Where scope and enforcement of a convention or the
    status of an error are not said, they have their defaults.
    """
    check_instance(entry, "entry", kind=Entry)
    wanted = {
        "project_id": entry.project_id is not None,
        "session_id": entry.session_id is not None,
        "rationale": not is_a(entry, "decision") or bool((entry.rationale or "").strip()),
        f"metadata.{ASSIGNED_TO}": entry.type != "task" or bool(entry.metadata.get(ASSIGNED_TO)),
    }
    return tuple(name for name, given in wanted.items() if not given)


def check_complete(entry: Entry) -> None:
    """Raise where a memory lacks something."""
    lacking = missing_fields(entry)
    if lacking:
        raise Incomplete(entry.id, lacking)


# conflicts: Which memories cannot be true together?


KEY = "key"
VALUE = "value"
DECLARED = "declared"


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """Two live memories that cannot be true together, the older one first."""

    one: Entry
    other: Entry
    key: str | None = None
    """What both speak of; None where somebody said that they contradict each other."""

    @property
    def ids(self) -> tuple[str, str]:
        """The ids of both."""
        return self.one.id, self.other.id

    def of(self, id: str) -> Entry:
        """The one of both with this id."""
        return self.one if self.one.id == id else self.other

    def __str__(self) -> str:
        about = DECLARED if self.key is None else self.key
        return f"{about}: {lineage.render_entry(self.one)} contradicts {lineage.render_entry(self.other)}"


async def conflicts_of(store: Any, entry: Entry, scope: Scope | None = None) -> tuple[Disagreement, ...]:
    """What a memory contradicts, whether it is kept already or about to be, oldest first.

    All memories of its project are compared, or without a project those of its agent and session; a scope
    leaves out what it does not hold.
    """
    check_instance(entry, "entry", kind=Entry)
    known = await queries.find(store, entry.id, entry.scope)
    if not (known or entry).is_live(clock.now()):
        return ()
    found: dict[str, Disagreement] = {}
    if known is not None and isinstance(store, SupportsLinks):
        for other in await _declared_conflicts(store, entry):
            found[other.id] = _pair(entry, other)
    mine = _subject_of(entry)
    if mine is not None:
        async for other in queries.iter_entries(store, mine.scope, Filter(types=(mine.type,))):
            if other.id != entry.id and _subject_of(other) == mine and _value(other) != _value(entry):
                found[other.id] = _pair(entry, other, mine.key)
    seen = [one for id, one in found.items() if scope is None or scope.contains(one.of(id))]
    return tuple(sorted(seen, key=_sort_key))


async def refuse_conflicts(store: Any, entry: Entry) -> None:
    """Raise where a memory that is about to be kept contradicts others."""
    found = await conflicts_of(store, entry)
    if found:
        raise Contradiction(entry.id, [id for one in found for id in one.ids if id != entry.id])


async def link_conflicts(store: Any, entry: Entry, scope: Scope) -> tuple[Disagreement, ...]:
    """Link a memory that is kept to those it contradicts, so that either leads to the other."""
    check_instance(scope, "scope", kind=Scope)
    able: SupportsLinks = require(store, SupportsLinks, "relate memories")
    found = await conflicts_of(store, entry, scope)
    known = {frozenset(_ends(link)) for link in await able.links(entry.id, scope, relation=CONTRADICTS)}
    for one in found:
        if frozenset(one.ids) not in known:
            older, newer = one.ids
            await able.link(Link(source=newer, relation=CONTRADICTS, target=older), scope)
    return found


async def find_conflicts(store: Any, scope: Scope, *, limit: int = 100) -> tuple[Disagreement, ...]:
    """The contradictions among the live memories of a scope, oldest first, up to a limit.

    It takes one pass over what is live, and a look at the links.
    """
    check_instance(scope, "scope", kind=Scope)
    check_positive(limit, "limit")
    live = {entry.id: entry async for entry in queries.iter_entries(store, scope)}
    found: dict[frozenset[str], Disagreement] = {}
    for source, target in await queries.linked_pairs(store, live, scope, CONTRADICTS):
        if source != target:
            found[frozenset((source, target))] = _pair(live[source], live[target])
    for pair in islice(_by_key(live.values()), limit):
        found[frozenset(pair.ids)] = pair
    return tuple(sorted(found.values(), key=_sort_key)[:limit])


class _Subject(NamedTuple):
    """What a memory speaks of: two that speak of the same must say the same."""

    scope: Scope
    type: str
    key: str


def _subject_of(entry: Entry) -> _Subject | None:
    key = entry.metadata.get(KEY)
    if not isinstance(key, str) or not key:
        return None
    if entry.project_id is None:
        around = entry.scope
    else:
        around = Scope(namespace=entry.namespace, project_id=entry.project_id)
    return _Subject(around, entry.type or ROOT_TYPE, key)


def _value(entry: Entry) -> tuple[bool, Any]:
    value = entry.metadata.get(VALUE, entry.content)
    return isinstance(value, bool), value  # True is not 1


def _by_key(entries: Iterable[Entry]) -> Iterator[Disagreement]:
    """The pairs that give one key different values."""
    said: dict[_Subject, dict[tuple[bool, Any], list[Entry]]] = {}
    for entry in entries:
        place = _subject_of(entry)
        if place is not None:
            said.setdefault(place, {}).setdefault(_value(entry), []).append(entry)
    for place, values in said.items():
        for mine, theirs in combinations(values.values(), 2):
            for one, other in product(mine, theirs):
                yield _pair(one, other, place.key)


async def _declared_conflicts(store: SupportsLinks, entry: Entry) -> list[Entry]:
    """The live memories that somebody said it contradicts."""
    around, now = Scope(namespace=entry.namespace), clock.now()
    ids = {id for link in await store.links(entry.id, around, relation=CONTRADICTS) for id in _ends(link)}
    found = [await queries.find(store, id, around) for id in sorted(ids - {entry.id})]
    return [other for other in found if other is not None and other.is_live(now)]


def _ends(link: Link) -> tuple[str, str]:
    return link.source, link.target


def _pair(one: Entry, other: Entry, key: str | None = None) -> Disagreement:
    older, newer = sorted((one, other), key=lambda entry: (entry.created_at, entry.id))
    return Disagreement(one=older, other=newer, key=key)


def _sort_key(pair: Disagreement) -> tuple[int, int, str, str]:
    return pair.one.created_at, pair.other.created_at, *pair.ids
