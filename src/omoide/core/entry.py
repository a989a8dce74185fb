"""What is one durable memory?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import msgspec

from omoide import clock, ids
from omoide.core import memory_types
from omoide.core.codec import MapField, TextsField
from omoide.core.contract import Record, check_choice, check_tuple, check_unit
from omoide.core.frozen import EMPTY_MAP
from omoide.core.nesting import own
from omoide.core.scope import DEFAULT_NAMESPACE, Scope
from omoide.core.value import Count, Id, Millis, Name, Value, force
from omoide.errors import Invalid, InvalidRecord, NotFound

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
                memory_types.check(self.type)
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
