"""Find contradictions between memories, and check that memories are complete.

Two live memories contradict each other if a `contradicts` link says so, or if they give the same key of the
same user, project and type different values. The key is that of the memory, or `key` in its metadata. Two
values of one slot never contradict each other: the second supersedes the first. Nothing is inferred from
their text.
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
from omoide.longterm.relations import ASSIGNED_TO, CONTRADICTS, is_a
from omoide.stores.protocols import SupportsLinks
from omoide.stores.records import Link
from omoide.verbs import require


def missing_fields(entry: Entry) -> tuple[str, ...]:
    """Return the fields that a complete memory of this type has, and this one lacks.

    Content, agent, time and confidence are always set. Scope and enforcement of a convention and the status
    of an error have defaults.
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
    """Raise `Incomplete` if a memory lacks a field."""
    lacking = missing_fields(entry)
    if lacking:
        raise Incomplete(entry.id, lacking)


KEY = "key"
VALUE = "value"
DECLARED = "declared"


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    """Two live memories that contradict each other, the older one first."""

    one: Entry
    other: Entry
    key: str | None = None
    """The key that both give a value; None if a link says that they contradict each other."""

    @property
    def ids(self) -> tuple[str, str]:
        """The ids of both memories."""
        return self.one.id, self.other.id

    def of(self, id: str) -> Entry:
        """Return the memory with this id."""
        return self.one if self.one.id == id else self.other

    def __str__(self) -> str:
        about = DECLARED if self.key is None else self.key
        return f"{about}: {lineage.render_entry(self.one)} contradicts {lineage.render_entry(self.other)}"


async def conflicts_of(store: Any, entry: Entry, scope: Scope | None = None) -> tuple[Disagreement, ...]:
    """Return the contradictions of a memory, stored or not, oldest first.

    Memories of the same project are compared, or those of the same agent and session without one.

    Args:
        scope: Leave out memories outside this scope.
    """
    check_instance(entry, "entry", kind=Entry)
    known = await queries.find(store, entry.id, entry.scope)
    # The stored status decides: the caller's copy may be older.
    if not (known or entry).is_live(clock.now()):
        return ()
    found: dict[str, Disagreement] = {}
    if known is not None and isinstance(store, SupportsLinks):
        for other in await _declared_conflicts(store, entry):
            found[other.id] = _pair(entry, other)
    subject = _subject_of(entry)
    if subject is not None:
        async for other in queries.iter_entries(store, subject.scope, Filter(types=(subject.type,))):
            replaced = entry.shares_slot(other)
            if (
                other.id != entry.id
                and not replaced
                and _subject_of(other) == subject
                and _value(other) != _value(entry)
            ):
                found[other.id] = _pair(entry, other, subject.key)
    # Links may cross scopes, so the scope is applied to the result.
    visible = [pair for id, pair in found.items() if scope is None or scope.contains(pair.of(id))]
    return tuple(sorted(visible, key=_sort_key))


async def refuse_conflicts(store: Any, entry: Entry) -> None:
    """Raise `Contradiction` if a memory that is about to be stored contradicts others."""
    found = await conflicts_of(store, entry)
    if found:
        sides = [side for pair in found for side in (pair.one, pair.other) if side.id != entry.id]
        raise contradiction(entry, sides)


def contradiction(entry: Entry, others: Iterable[Entry]) -> Contradiction:
    """Return the error for a memory that contradicts others; it names those of its agent and user only."""
    others = [*others]
    own = Scope(namespace=entry.namespace, agent_id=entry.agent_id, user_id=entry.user_id)
    named = [other.id for other in others if own.contains(other)]
    return Contradiction(entry.id, named, len(others) - len(named))


async def link_conflicts(store: Any, entry: Entry, scope: Scope) -> tuple[Disagreement, ...]:
    """Link a stored memory to those that it contradicts, and return the contradictions."""
    check_instance(scope, "scope", kind=Scope)
    linked: SupportsLinks = require(store, SupportsLinks, "relate memories")
    found = await conflicts_of(store, entry, scope)
    known = {frozenset(_ends(link)) for link in await linked.links(entry.id, scope, relation=CONTRADICTS)}
    for pair in found:
        # `contradicts` is symmetric: one link per pair, in either direction.
        if frozenset(pair.ids) not in known:
            older, newer = pair.ids
            await linked.link(Link(source=newer, relation=CONTRADICTS, target=older), scope)
    return found


async def find_conflicts(store: Any, scope: Scope, *, limit: int = 100) -> tuple[Disagreement, ...]:
    """Return the contradictions among the live memories of a scope, oldest first, up to a limit.

    Takes one pass over the live memories and one over their links.
    """
    check_instance(scope, "scope", kind=Scope)
    check_positive(limit, "limit")
    live = {entry.id: entry async for entry in queries.iter_entries(store, scope)}
    found: dict[frozenset[str], Disagreement] = {}
    for source, target in await queries.linked_pairs(store, live, scope, CONTRADICTS):
        if source != target:
            found[frozenset((source, target))] = _pair(live[source], live[target])
    # The pairs of one key grow with the square of its values, so they are never all listed.
    # A pair that is declared, too, is reported with its key.
    for pair in islice(_by_key(live.values()), limit):
        found[frozenset(pair.ids)] = pair
    return tuple(sorted(found.values(), key=_sort_key)[:limit])


class _Subject(NamedTuple):
    """The key that a memory sets, with scope and type; memories of one subject must agree on the value."""

    scope: Scope
    type: str
    key: str


def _subject_of(entry: Entry) -> _Subject | None:
    key = entry.key or entry.metadata.get(KEY)
    if not isinstance(key, str) or not key:
        return None
    # A project shares its keys among all agents and sessions; without one they belong to the owner.
    if entry.project_id is None:
        around = entry.scope
    else:
        around = Scope(namespace=entry.namespace, user_id=entry.user_id, project_id=entry.project_id)
    return _Subject(around, entry.type or ROOT_TYPE, key)


def _value(entry: Entry) -> tuple[bool, Any]:
    value = entry.metadata.get(VALUE, entry.content)
    return isinstance(value, bool), value  # True and 1 are equal in Python, and are different values here


def _by_key(entries: Iterable[Entry]) -> Iterator[Disagreement]:
    """Yield the pairs that give one key different values."""
    by_subject: dict[_Subject, dict[tuple[bool, Any], list[Entry]]] = {}
    for entry in entries:
        subject = _subject_of(entry)
        if subject is not None:
            by_subject.setdefault(subject, {}).setdefault(_value(entry), []).append(entry)
    for subject, values in by_subject.items():
        for mine, theirs in combinations(values.values(), 2):
            for one, other in product(mine, theirs):
                yield _pair(one, other, subject.key)


async def _declared_conflicts(store: SupportsLinks, entry: Entry) -> list[Entry]:
    """Return the live memories with a `contradicts` link to this one."""
    # The other end of a link may have any owner of the namespace.
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
