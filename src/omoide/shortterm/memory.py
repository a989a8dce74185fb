"""Short-term memory of a session: conversation buffer, token budget, and memories that wait for promotion.

The buffer holds the newest messages that fit into a number of tokens. It evicts from the front and returns
what it evicted, because evicted messages are candidates for promotion.

A pending item holds the entry that it would become. Implicit items wait until they are important enough;
decisions of the agent are promoted in any case.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Any, ClassVar, Self

import msgspec

from omoide import clock, ids
from omoide.core import codec
from omoide.core.codec import ListField, MapField
from omoide.core.entry import Entry, Evidence, check_positive
from omoide.core.frozen import EMPTY_LIST, EMPTY_MAP, FrozenList, freeze_list, value_type
from omoide.core.value import (
    Count,
    Id,
    Millis,
    Record,
    check_choice,
    check_number,
    check_texts,
    check_tuple,
    set_field,
    shallow_copy,
)
from omoide.errors import Invalid, InvalidRecord, WrongType
from omoide.retrieval.text import TokenCounter, estimate_tokens
from omoide.shortterm.context import WorkingContext
from omoide.shortterm.importance import AccessLog, reaches

ROLES = ("user", "assistant", "system", "tool")
MESSAGE_OVERHEAD_TOKENS = 4
"""Approximate number of tokens that a message takes besides its text."""

SUGGESTED_BY = ("implicit", "agent")
RELATIONS = ("adds", "confirms", "updates", "contradicts")
DEFAULT_IMPORTANCE = 0.5
"""Importance of an item without a score."""

# Names of these fields in the pending memories of JidoCode.
_ALIASES = MappingProxyType(
    {
        "memory_type": "type",
        "suggested_type": "type",
        "source_type": "source",
        "importance_score": "importance",
        "evidence_refs": "evidence",
    }
)
_REQUIRED = ("content", "type", "confidence", "source")
_OWN_FIELDS = ("suggested_by", "access_count", "durable", "from_eviction", "relation", "target")


@value_type
class BufferMessage(Record, frozen=True, kw_only=True):
    """One message with its number of tokens and, if known, its position in the thread."""

    LABEL: ClassVar[str] = "buffer message"

    id: Id = msgspec.field(default_factory=lambda: ids.new("msg_"))
    role: str
    content: str
    timestamp: Millis = msgspec.field(default_factory=clock.now)
    token_count: int
    tool_calls: ListField | None = None
    metadata: MapField = EMPTY_MAP
    seq: Count | None = None

    def _check(self) -> None:
        check_choice(self.role, "role", ROLES)
        check_positive(self.token_count, "token_count")

    @classmethod
    def new(
        cls,
        given: Self | Mapping[str, Any] | None = None,
        /,
        *,
        count: TokenCounter = estimate_tokens,
        **fields: Any,
    ) -> Self:
        """Return a message from a mapping or keywords.

        Args:
            given: a message or a mapping of its fields.
            count: token counter, used if `token_count` is missing.
            **fields: fields that replace those of `given`.

        >>> BufferMessage.new(role="user", content="hello").token_count
        5
        """
        if isinstance(given, cls):
            given = {name: getattr(given, name) for name in cls.__struct_fields__}
        merged = {**given, **fields} if isinstance(given, Mapping) else fields
        if "token_count" not in merged and isinstance(merged.get("content"), str):
            fields["token_count"] = count_message_tokens(merged["content"], merged.get("tool_calls"), count)
        return super().new(given, **fields)


def count_message_tokens(content: str, tool_calls: Any = None, count: TokenCounter = estimate_tokens) -> int:
    """Return the number of tokens of a message: text, tool calls and overhead."""
    calls = codec.encode(freeze_list(tool_calls, "tool_calls")).decode() if tool_calls else ""
    return MESSAGE_OVERHEAD_TOKENS + count(content) + (count(calls) if calls else 0)


class ConversationBuffer(Record, frozen=True, kw_only=True):
    """The newest messages of a conversation, oldest first."""

    LABEL: ClassVar[str] = "conversation buffer"

    messages: FrozenList[BufferMessage] = EMPTY_LIST
    max_tokens: int = 20_000
    current_tokens: Count = 0
    """Tokens of all messages; always recomputed on construction."""

    def _check(self) -> None:
        check_positive(self.max_tokens, "max_tokens")
        for at, message in enumerate(self.messages):
            if not isinstance(message, BufferMessage):
                raise WrongType(f"messages[{at}]", "a BufferMessage", message)
        set_field(self, "current_tokens", sum(message.token_count for message in self.messages))
        # A single message may exceed the budget: `add` keeps it rather than lose the newest one.
        if self.overflow and len(self.messages) > 1:
            raise Invalid(
                "messages",
                f"take {self.current_tokens} tokens, and {self.max_tokens} are allowed",
                "add them one by one, or raise max_tokens",
            )

    @classmethod
    def new(cls, max_tokens: Any = 20_000) -> Self:  # type: ignore[override]  # it begins empty
        """Return an empty buffer."""
        return cls(max_tokens=max_tokens)

    @property
    def overflow(self) -> bool:
        """True if the only message is larger than the whole buffer."""
        return self.current_tokens > self.max_tokens

    @property
    def size(self) -> int:
        """Number of messages."""
        return len(self.messages)

    def add(self, message: BufferMessage) -> tuple[Self, tuple[BufferMessage, ...]]:
        """Return the buffer with one more message, and the messages evicted for it, oldest first.

        No more messages are evicted than necessary. A message larger than the buffer stays alone; `overflow`
        is then True.
        """
        if not isinstance(message, BufferMessage):
            raise WrongType("message", "a BufferMessage", message, "make one with BufferMessage.new(…)")
        messages, tokens, evicted = _evict_oldest(
            self.messages, self.current_tokens, self.max_tokens - message.token_count
        )
        return self._with(messages.append(message), tokens + message.token_count), evicted

    def add_all(self, messages: Iterable[BufferMessage]) -> tuple[Self, tuple[BufferMessage, ...]]:
        """Return the buffer with several more messages, and all evicted ones, oldest first."""
        buffer = self
        evicted: list[BufferMessage] = []
        for message in messages:
            buffer, dropped = buffer.add(message)
            evicted += dropped
        return buffer, tuple(evicted)

    def resize(self, max_tokens: int) -> tuple[Self, tuple[BufferMessage, ...]]:
        """Return the buffer with another budget, and the messages that no longer fit; the newest stays."""
        budget = check_positive(max_tokens, "max_tokens")
        messages, tokens, evicted = _evict_oldest(self.messages, self.current_tokens, budget, min_messages=1)
        new = self._with(messages, tokens)
        set_field(new, "max_tokens", budget)
        return new, evicted

    def to_list(self) -> list[BufferMessage]:
        """Return the messages, oldest first."""
        return [*self.messages]

    def clear(self) -> Self:
        """Return an empty buffer with the same budget."""
        return self._with(EMPTY_LIST, 0)

    def _with(self, messages: FrozenList[BufferMessage], tokens: int) -> Self:
        new = shallow_copy(self)
        set_field(new, "messages", messages)
        set_field(new, "current_tokens", tokens)
        return new


def _evict_oldest(
    messages: FrozenList[BufferMessage], tokens: int, budget: int, min_messages: int = 0
) -> tuple[FrozenList[BufferMessage], int, tuple[BufferMessage, ...]]:
    """Return the newest messages that fit into the budget, their tokens, and the evicted messages.

    At least `min_messages` stay.
    """
    evicted: list[BufferMessage] = []
    for message in messages:
        if tokens <= budget or len(messages) - len(evicted) <= min_messages:
            break
        evicted.append(message)
        tokens -= message.token_count
    if len(evicted) == len(messages):
        return EMPTY_LIST, tokens, tuple(evicted)
    # Deleting from the front shares the rest of the list; rebuilding it would copy every message.
    for _ in evicted:
        messages = messages.delete(0)
    return messages, tokens, tuple(evicted)


class TokenBudget(Record, frozen=True, kw_only=True):
    """Tokens for all of short-term memory, and for its conversation and its working context."""

    LABEL: ClassVar[str] = "token budget"

    total: int = 32_000
    conversation: int = 20_000
    context: int = 12_000

    def _check(self) -> None:
        for field in self.__struct_fields__:
            check_positive(getattr(self, field), field)
        parts = self.conversation + self.context
        if parts > self.total:
            raise Invalid(
                "total",
                f"is {self.total}, and its parts together are {parts}",
                "raise it, or give conversation and context less",
            )


class PendingItem(Record, frozen=True, kw_only=True):
    """An entry that is not written yet, and its origin: `implicit` or `agent`."""

    LABEL: ClassVar[str] = "pending memory"

    entry: Entry
    suggested_by: str = "implicit"
    access_count: Count = 0
    durable: bool = False
    """True once it is saved with its session; until then it is lost if the process is killed."""
    from_eviction: bool = False
    """True for a statement of a message that left the buffer; it gives way to all other items."""
    relation: str = "adds"
    """What it does to the memory `target`: `confirms`, `updates` or `contradicts`; or `adds`."""
    target: Id | None = None

    def _check(self) -> None:
        check_choice(self.suggested_by, "suggested_by", SUGGESTED_BY)
        check_choice(self.relation, "relation", RELATIONS)

    @classmethod
    def new(cls, given: Self | Mapping[str, Any] | None = None, /, **fields: Any) -> Self:
        """Return an item from the fields of an entry, by their own names or by aliases.

        `memory_type` and `suggested_type` are aliases of `type`, `source_type` of `source`,
        `importance_score` of `importance`; a string among the evidence names a document.

        Raises:
            InvalidRecord: content, type, confidence or source is missing, or a field is invalid.
        """
        if isinstance(given, cls):
            return given.replace(**fields)
        try:
            return cls._parse(given, fields)
        except InvalidRecord as error:
            raise _relabel_error(error) from error
        except Invalid as error:
            raise InvalidRecord(cls.LABEL, error) from error

    @classmethod
    def _parse(cls, given: object, fields: dict[str, Any]) -> Self:
        if given is not None and not isinstance(given, Mapping):
            raise WrongType(cls.LABEL, "a mapping or a PendingItem", given)
        merged = _resolve_aliases({**(given or {}), **fields})
        own = {name: merged.pop(name) for name in _OWN_FIELDS if name in merged}
        for name in _REQUIRED:
            if merged.get(name) is None:
                raise Invalid(name, "is missing", "it is required")
        if merged.get("importance") is None:
            merged["importance"] = DEFAULT_IMPORTANCE
        return cls(entry=Entry.new(merged), **own)

    @property
    def id(self) -> str:
        """Id of the future memory."""
        return self.entry.id

    @property
    def content(self) -> str:
        """Content of the future memory."""
        return self.entry.content

    @property
    def memory_type(self) -> str | None:
        """Type of the future memory."""
        return self.entry.type

    @property
    def suggested_type(self) -> str | None:
        """Alias of `memory_type`."""
        return self.entry.type

    @property
    def confidence(self) -> float:
        """Confidence of the future memory."""
        return self.entry.confidence

    @property
    def source_type(self) -> str | None:
        """Source of the future memory."""
        return self.entry.source

    @property
    def evidence(self) -> tuple[Evidence, ...]:
        """Evidence of the future memory."""
        return self.entry.evidence

    @property
    def rationale(self) -> str | None:
        """Rationale of the future memory."""
        return self.entry.rationale

    @property
    def importance_score(self) -> float:
        """Importance from 0 to 1."""
        return DEFAULT_IMPORTANCE if self.entry.importance is None else self.entry.importance

    @property
    def created_at(self) -> int:
        """Creation timestamp in milliseconds."""
        return self.entry.created_at

    def with_score(self, score: float) -> Self:
        """Return the item with another importance, clamped to 0 to 1."""
        number = check_number(score, "score")
        if number != number:
            raise Invalid("score", "is no number", "pass one from 0 to 1")
        new = shallow_copy(self)
        set_field(new, "entry", self.entry.replace(importance=min(max(number, 0.0), 1.0)))
        return new


class PendingMemories(Record, frozen=True, kw_only=True):
    """Implicit items, oldest first, and decisions of the agent, newest first; ids are unique over both."""

    LABEL: ClassVar[str] = "pending memories"

    items: tuple[PendingItem, ...] = ()
    agent_decisions: tuple[PendingItem, ...] = ()
    max_items: int = 500
    max_agent_decisions: int = 100

    def _check(self) -> None:
        check_positive(self.max_items, "max_items")
        check_positive(self.max_agent_decisions, "max_agent_decisions")
        seen: set[str] = set()
        for field in ("items", "agent_decisions"):
            checked = check_tuple(getattr(self, field), field, PendingItem)
            set_field(self, field, checked)
            for at, item in enumerate(checked):
                if item.id in seen:
                    raise Invalid(f"{field}[{at}].id", f"is {item.id!r} once more", "add it once")
                seen.add(item.id)

    @property
    def size(self) -> int:
        """Number of items."""
        return len(self.items) + len(self.agent_decisions)

    def add_implicit(self, item: PendingItem) -> tuple[Self, tuple[PendingItem, ...]]:
        """Return the collection with an implicit item, and the evicted items.

        The item replaces an older one of its id, but never a decision of the agent. If there are too many,
        the least important one is evicted, which may be the new one; statements of evicted messages go first.
        """
        _check_item(item)
        # A decision outranks a suggestion of the same memory.
        if any(decision.id == item.id for decision in self.agent_decisions):
            return self, ()
        items = (*_without(self.items, {item.id}), _with_suggested_by(item, "implicit"))
        if len(items) <= self.max_items:
            return self._with(items, self.agent_decisions), ()
        # Of several equally unimportant items, `min` returns the first, which is the oldest.
        least = min(items, key=lambda candidate: (not candidate.from_eviction, candidate.importance_score))
        return self._with(_without(items, {least.id}), self.agent_decisions), (least,)

    def add_agent_decision(self, item: PendingItem) -> tuple[Self, tuple[PendingItem, ...]]:
        """Return the collection with a decision of the agent, and the evicted (oldest) decisions."""
        _check_item(item)
        # The score only sorts decisions first: no threshold applies to them.
        decision = _with_suggested_by(item.with_score(1.0), "agent")
        others = _without(self.agent_decisions, {item.id})
        capacity = self.max_agent_decisions - 1
        return self._with(_without(self.items, {item.id}), (decision, *others[:capacity])), others[capacity:]

    def ready_for_promotion(self, threshold: float = 0.6) -> list[PendingItem]:
        """Return all decisions and the implicit items that reach the threshold.

        The most important come first, then the oldest.
        """
        check_number(threshold, "threshold")
        implicit = [item for item in self.items if reaches(item.importance_score, threshold)]
        return sorted(
            [*self.agent_decisions, *implicit],
            key=lambda ready: (-ready.importance_score, ready.suggested_by, ready.created_at, ready.id),
        )

    def clear_promoted(self, ids: Iterable[str]) -> Self:
        """Return the collection without the items of these ids."""
        promoted = {*check_texts(ids, "ids")}
        return self._with(_without(self.items, promoted), _without(self.agent_decisions, promoted))

    def get(self, id: str) -> PendingItem | None:
        """Return the item of an id, or None."""
        return next((item for item in (*self.items, *self.agent_decisions) if item.id == id), None)

    def update_score(self, id: str, score: float) -> Self:
        """Return the collection with another importance for an implicit item, clamped to 0 to 1."""
        # Decisions keep their score of 1.
        items = tuple(item.with_score(score) if item.id == id else item for item in self.items)
        return self._with(items, self.agent_decisions)

    def as_durable(self) -> Self:
        """Return the collection as it is once it is saved."""
        if all(item.durable for item in (*self.items, *self.agent_decisions)):
            return self
        return self._with(_as_durable(self.items), _as_durable(self.agent_decisions))

    def list_implicit(self) -> list[PendingItem]:
        """Return the implicit items, oldest first."""
        return [*self.items]

    def list_agent_decisions(self) -> list[PendingItem]:
        """Return the decisions of the agent, newest first."""
        return [*self.agent_decisions]

    def clear(self) -> Self:
        """Return an empty collection with the same limits."""
        return self._with((), ())

    def _with(self, items: tuple[PendingItem, ...], decisions: tuple[PendingItem, ...]) -> Self:
        new = shallow_copy(self)
        set_field(new, "items", items)
        set_field(new, "agent_decisions", decisions)
        return new


def _without(items: tuple[PendingItem, ...], ids: AbstractSet[str]) -> tuple[PendingItem, ...]:
    return tuple([item for item in items if item.entry.id not in ids])


def _as_durable(items: tuple[PendingItem, ...]) -> tuple[PendingItem, ...]:
    saved = []
    for item in items:
        if not item.durable:
            item = shallow_copy(item)
            set_field(item, "durable", True)
        saved.append(item)
    return tuple(saved)


def _check_item(item: object) -> None:
    if not isinstance(item, PendingItem):
        raise WrongType("item", "a PendingItem", item, "make one with PendingItem.new(…)")


def _with_suggested_by(item: PendingItem, origin: str) -> PendingItem:
    return item if item.suggested_by == origin else item.replace(suggested_by=origin)


def _resolve_aliases(given: Mapping[str, Any]) -> dict[str, Any]:
    resolved: dict[str, Any] = {}
    for name, value in given.items():
        field = _ALIASES.get(name, name)
        if field in resolved and resolved[field] != value:
            raise Invalid(name, f"differs from {field}", "pass one of them")
        resolved[field] = value
    return resolved


def _relabel_error(error: InvalidRecord) -> InvalidRecord:
    # Callers pass the fields of a pending memory; the entry inside of it is an implementation detail.
    return InvalidRecord(PendingItem.LABEL, Invalid(error.field, error.problem, error.remedy))


class ShortTerm(Record, frozen=True, kw_only=True):
    """Short-term memory of a session: conversation, working context, pending memories and access log."""

    LABEL: ClassVar[str] = "short-term memory"

    session_id: Id
    conversation: ConversationBuffer = ConversationBuffer()
    context: WorkingContext = WorkingContext()
    pending: PendingMemories = PendingMemories()
    access_log: AccessLog = AccessLog()
    token_budget: TokenBudget = TokenBudget()
    created_at: Millis = msgspec.field(default_factory=clock.now)

    @classmethod
    def new(  # type: ignore[override]  # it begins empty
        cls,
        session_id: str,
        *,
        token_budget: TokenBudget | Mapping[str, Any] | None = None,
        now: int | None = None,
    ) -> Self:
        """Return an empty short-term memory whose parts have the budget given."""
        budget = _to_budget(token_budget)
        return cls(
            session_id=session_id,
            conversation=ConversationBuffer.new(budget.conversation),
            context=WorkingContext.new(budget.context),
            token_budget=budget,
            created_at=clock.resolve(now),
        )


def _to_budget(given: TokenBudget | Mapping[str, Any] | None) -> TokenBudget:
    if given is None:
        return TokenBudget()
    if isinstance(given, (TokenBudget, Mapping)):
        return TokenBudget.new(given)
    raise WrongType("token_budget", "a TokenBudget", given)
