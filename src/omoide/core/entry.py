"""Entry, Evidence, Scope, memory types.

The 25 types of the Jido ontology with the type each one refines, as data. The root, `memory_item`, is what an
untyped memory is.

Every operation on a store, by id too, takes a scope. Each field that is given narrows it: an entry lies
inside when its namespace is the same and every other field given is the same, byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

import msgspec

from omoide import clock, ids
from omoide.core.codec import MapField, TextsField
from omoide.core.frozen import EMPTY_MAP, own
from omoide.core.value import (
    Count,
    Id,
    Millis,
    Name,
    Record,
    Value,
    check_choice,
    check_tuple,
    check_unit,
    force,
)
from omoide.errors import Invalid, InvalidRecord, NotFound

# memory types: What kinds of memory are there?


ROOT = "memory_item"

PARENTS = MappingProxyType(
    {
        "fact": ROOT,
        "assumption": ROOT,
        "hypothesis": ROOT,
        "discovery": ROOT,
        "risk": ROOT,
        "unknown": ROOT,
        "decision": ROOT,
        "architectural_decision": "decision",
        "implementation_decision": "decision",
        "alternative": ROOT,
        "trade_off": ROOT,
        "convention": ROOT,
        "coding_standard": "convention",
        "architectural_convention": "convention",
        "agent_rule": "convention",
        "process_convention": "convention",
        "error": ROOT,
        "bug": "error",
        "failure": "error",
        "incident": "error",
        "root_cause": ROOT,
        "lesson_learned": ROOT,
        "task": ROOT,
        "milestone": ROOT,
        "plan": ROOT,
    }
)

MEMORY_TYPES = tuple(PARENTS)


def check(name: object) -> str:
    """The name itself, if it is a type or the root."""
    if not isinstance(name, str) or (name != ROOT and name not in PARENTS):
        raise NotFound("memory type", name, f"use one of {', '.join(MEMORY_TYPES)}")
    return name


def ancestors(name: str) -> tuple[str, ...]:
    """The types it refines, nearest first, up to the root."""
    found = []
    while check(name) != ROOT:
        name = PARENTS[name]
        found.append(name)
    return tuple(found)


def with_subtypes(name: str) -> tuple[str, ...]:
    """The type and everything that refines it."""
    check(name)
    return (name, *(other for other in MEMORY_TYPES if name in ancestors(other)))


def ontology_class(name: str) -> str:
    """The name of its class in the ontology: `trade_off` is `TradeOff`."""
    return "".join(part.capitalize() for part in check(name).split("_"))


# scope: Whose is it?


DEFAULT_NAMESPACE = "default"


class Scope(Record, frozen=True, kw_only=True):
    """The part of a store that an operation sees."""

    LABEL: ClassVar[str] = "scope"

    agent_id: Id | None = None
    session_id: Id | None = None
    project_id: Id | None = None
    namespace: Id = DEFAULT_NAMESPACE

    def holds(self, entry: Any) -> bool:
        """Whether an entry, or anything else that says whose it is, lies inside."""
        return (
            entry.namespace == self.namespace
            and self.agent_id in (None, entry.agent_id)
            and self.session_id in (None, entry.session_id)
            and self.project_id in (None, entry.project_id)
        )

    def owner(self) -> str:
        """The agent that what is written here belongs to."""
        if self.agent_id is None:
            raise Invalid("scope.agent_id", "is missing", "name the agent whose memory this becomes")
        return self.agent_id


# entry: What is one durable memory?


SOURCES = ("user", "agent", "tool", "external_document")
EVIDENCE = ("entry", "message", "tool", "document")
DELETED = "deleted"
"""What an entry that was forgotten without a successor is superseded by."""


@own
class MessageRef(Value, frozen=True, kw_only=True):
    """The message that a memory is: its place in a conversation and who said it."""

    thread: Id
    seq: Count
    role: Name | None = None
    speaker: Name | None = None


@own
class Evidence(Value, frozen=True, kw_only=True):
    """Where a memory comes from."""

    kind: str
    ref: Name
    quote: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.kind, "kind", EVIDENCE)


@own
class Entry(Record, frozen=True, kw_only=True):
    """One memory: what is remembered, whose it is, how sure that is, where it comes from, and when."""

    LABEL: ClassVar[str] = "memory entry"

    id: Id = msgspec.field(default_factory=lambda: ids.new("mem_"))
    agent_id: Id
    session_id: Id | None = None
    content: Name
    metadata: MapField = EMPTY_MAP
    namespace: Id = DEFAULT_NAMESPACE
    project_id: Id | None = None
    type: str | None = None
    confidence: float = 1.0
    importance: float | None = None
    source: str | None = None
    tags: TextsField = ()
    rationale: str | None = None
    message: MessageRef | None = None
    evidence: tuple[Evidence, ...] = ()
    created_at: Millis = msgspec.field(default_factory=clock.now)
    occurred_at: Millis | None = None
    expires_at: Millis | None = None
    superseded_by: Id | None = None
    superseded_at: Millis | None = None
    superseded_reason: str | None = None
    stale: bool = False
    """Whether something it rests on no longer holds; said by the store, whatever is written."""
    rev: Count = 0

    def _check(self) -> None:
        if self.id == DELETED:
            raise Invalid("id", f"is {DELETED!r}, which marks what was forgotten", "choose another id")
        if self.type is not None:
            try:
                check(self.type)
            except NotFound as error:
                raise Invalid("type", f"is {self.type!r}", error.remedy) from error
        if self.source is not None:
            check_choice(self.source, "source", SOURCES)
        if self.confidence != 1.0:
            force(self, "confidence", check_unit(self.confidence, "confidence"))
        if self.importance is not None:
            force(self, "importance", check_unit(self.importance, "importance"))
        if self.tags:
            force(self, "tags", tuple(dict.fromkeys(self.tags)))
        if self.evidence != ():
            force(self, "evidence", check_tuple(self.evidence, "evidence", Evidence))

    @classmethod
    def new(
        cls,
        given: Self | Mapping[str, Any] | None = None,
        /,
        *,
        id_generator: Callable[[str], str] | None = None,
        **fields: Any,
    ) -> Self:
        """An entry from a mapping or keywords; where no id is given, `id_generator("mem_")` makes one."""
        if id_generator is not None:
            named = isinstance(given, cls) or (isinstance(given, Mapping) and "id" in given)
            if not named and "id" not in fields:
                fields["id"] = _generated(id_generator)
        return super().new(given, **fields)

    @property
    def scope(self) -> Scope:
        """The narrowest scope that holds it."""
        return Scope(
            namespace=self.namespace,
            agent_id=self.agent_id,
            session_id=self.session_id,
            project_id=self.project_id,
        )

    def is_live(self, now: int) -> bool:
        """Whether it is neither superseded nor stale nor expired."""
        expired = self.expires_at is not None and self.expires_at <= now
        return self.superseded_by is None and not self.stale and not expired


def _generated(generator: object) -> str:
    if not callable(generator):
        raise InvalidRecord(
            Entry.LABEL, Invalid("id_generator", "is no function", "pass one that takes a prefix")
        )
    try:
        made = generator("mem_")
    except Exception as error:
        raise InvalidRecord(
            Entry.LABEL, Invalid("id_generator", f"failed ({error!r})", "pass one that returns an id")
        ) from error
    try:
        return ids.check(made, "generated id")
    except Invalid as error:
        raise InvalidRecord(Entry.LABEL, error) from error
