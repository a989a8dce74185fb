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
from omoide.core.frozen import EMPTY_MAP, value_type
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
    set_field,
)
from omoide.errors import Invalid, InvalidRecord, NotFound

# memory types: What kinds of memory are there?


ROOT_TYPE = "memory_item"

PARENT_TYPES = MappingProxyType(
    {
        "fact": ROOT_TYPE,
        "assumption": ROOT_TYPE,
        "hypothesis": ROOT_TYPE,
        "discovery": ROOT_TYPE,
        "risk": ROOT_TYPE,
        "unknown": ROOT_TYPE,
        "decision": ROOT_TYPE,
        "architectural_decision": "decision",
        "implementation_decision": "decision",
        "alternative": ROOT_TYPE,
        "trade_off": ROOT_TYPE,
        "convention": ROOT_TYPE,
        "coding_standard": "convention",
        "architectural_convention": "convention",
        "agent_rule": "convention",
        "process_convention": "convention",
        "error": ROOT_TYPE,
        "bug": "error",
        "failure": "error",
        "incident": "error",
        "root_cause": ROOT_TYPE,
        "lesson_learned": ROOT_TYPE,
        "task": ROOT_TYPE,
        "milestone": ROOT_TYPE,
        "plan": ROOT_TYPE,
    }
)

MEMORY_TYPES = tuple(PARENT_TYPES)


def check_memory_type(name: object) -> str:
    """The name itself, if it is a type or the root."""
    if not isinstance(name, str) or (name != ROOT_TYPE and name not in PARENT_TYPES):
        raise NotFound("memory type", name, f"use one of {', '.join(MEMORY_TYPES)}")
    return name


def supertypes(name: str) -> tuple[str, ...]:
    """The types it refines, nearest first, up to the root."""
    found = []
    while check_memory_type(name) != ROOT_TYPE:
        name = PARENT_TYPES[name]
        found.append(name)
    return tuple(found)


def with_subtypes(name: str) -> tuple[str, ...]:
    """The type and everything that refines it."""
    check_memory_type(name)
    return (name, *(other for other in MEMORY_TYPES if name in supertypes(other)))


def ontology_class(name: str) -> str:
    """The name of its class in the ontology: `trade_off` is `TradeOff`."""
    return "".join(part.capitalize() for part in check_memory_type(name).split("_"))


# scope: Whose is it?


DEFAULT_NAMESPACE = "default"


class Scope(Record, frozen=True, kw_only=True):
    """The part of a store that an operation sees."""

    LABEL: ClassVar[str] = "scope"

    agent_id: Id | None = None
    session_id: Id | None = None
    project_id: Id | None = None
    namespace: Id = DEFAULT_NAMESPACE

    def contains(self, entry: Any) -> bool:
        """Whether an entry, or anything else that says whose it is, lies inside."""
        return (
            entry.namespace == self.namespace
            and self.agent_id in (None, entry.agent_id)
            and self.session_id in (None, entry.session_id)
            and self.project_id in (None, entry.project_id)
        )

    def require_agent_id(self) -> str:
        """The agent that what is written here belongs to."""
        if self.agent_id is None:
            raise Invalid("scope.agent_id", "is missing", "name the agent whose memory this becomes")
        return self.agent_id


# entry: What is one durable memory?


SOURCES = ("user", "agent", "tool", "external_document")
EVIDENCE_KINDS = ("entry", "message", "tool", "document")
DELETED = "deleted"
"""What an entry that was forgotten without a successor is superseded by."""


@value_type
class MessageRef(Value, frozen=True, kw_only=True):
    """The message that a memory is: its place in a conversation and who said it."""

    thread: Id
    seq: Count
    role: Name | None = None
    speaker: Name | None = None


@value_type
class Evidence(Value, frozen=True, kw_only=True):
    """Where a memory comes from."""

    kind: str
    ref: Name
    quote: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.kind, "kind", EVIDENCE_KINDS)


@value_type
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
                check_memory_type(self.type)
            except NotFound as error:
                raise Invalid("type", f"is {self.type!r}", error.remedy) from error
        if self.source is not None:
            check_choice(self.source, "source", SOURCES)
        if self.confidence != 1.0:
            set_field(self, "confidence", check_unit(self.confidence, "confidence"))
        if self.importance is not None:
            set_field(self, "importance", check_unit(self.importance, "importance"))
        if self.tags:
            set_field(self, "tags", tuple(dict.fromkeys(self.tags)))
        if self.evidence != ():
            set_field(self, "evidence", check_tuple(self.evidence, "evidence", Evidence))

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
                fields["id"] = _generate_id(id_generator)
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


def _generate_id(generator: object) -> str:
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
