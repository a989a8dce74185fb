"""Working context of a session: a scratchpad of named values.

Each value has a source and a confidence. The type that it would have as a memory follows from its key and
source unless the caller passes one. When a new value does not fit into the token budget, the least important
values are evicted.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, ClassVar, Self, cast

import msgspec

from omoide import clock
from omoide.core import codec
from omoide.core.codec import Frozen
from omoide.core.entry import check_positive, check_type
from omoide.core.frozen import EMPTY_MAP, FrozenMap, check_text, depth_of, freeze, value_type
from omoide.core.value import Count, Millis, Name, Record, check_choice, check_unit, set_field, shallow_copy
from omoide.errors import Invalid, InvalidRecord, WrongType
from omoide.retrieval.text import TokenCounter, estimate_tokens
from omoide.shortterm.importance import score

SUMMARY_KEY = "conversation_summary"
"""Key that holds the summary of the conversation; `to_dict` leaves it out."""

KEYS = (
    "active_file",
    "project_root",
    "primary_language",
    "framework",
    "current_task",
    "user_intent",
    "discovered_patterns",
    "active_errors",
    "pending_questions",
    "file_relationships",
    SUMMARY_KEY,
)
"""Conventional keys. Any other key is allowed, and is promoted only with a type of its own."""

SOURCES = ("inferred", "explicit", "tool")
MAX_DEPTH = 32
"""Maximum nesting of a value; leaves room for the record that it is stored in."""
ITEM_OVERHEAD_TOKENS = 2
"""Approximate number of tokens that a pair takes besides its text."""

# `active_file` and `active_errors` have no type on purpose: they describe the moment, and are promoted only
# with an explicit type.
_TYPE_BY_KEY_AND_SOURCE = MappingProxyType(
    {
        ("framework", "tool"): "fact",
        ("primary_language", "tool"): "fact",
        ("project_root", "tool"): "fact",
        ("current_task", "inferred"): "assumption",
        ("user_intent", "inferred"): "assumption",
    }
)
_TYPE_BY_KEY = MappingProxyType(
    {"discovered_patterns": "discovery", "file_relationships": "discovery", "pending_questions": "unknown"}
)


def infer_type(key: str, source: str) -> str | None:
    """Return the memory type that a key and a source imply; None if the value is not to be remembered."""
    return _TYPE_BY_KEY_AND_SOURCE.get((key, source)) or _TYPE_BY_KEY.get(key)


@value_type
class ContextItem(Record, frozen=True, kw_only=True):
    """One value with its source, its confidence and its usage."""

    LABEL: ClassVar[str] = "context item"

    key: Name
    value: Frozen = None
    source: str = "inferred"
    confidence: float = 0.7
    access_count: Count = 1
    first_seen: Millis
    last_accessed: Millis
    changed_at: Millis = cast("int", msgspec.UNSET)
    """Timestamp since which the value is unchanged."""
    suggested_type: str | None = None
    """Type that it would have as a memory; None if it is not to be remembered."""
    type_given: bool = False
    """True if the caller passed the type: it then stays with the key until another one is passed."""
    tokens: Count = 0

    def __post_init__(self) -> None:
        if cast("object", self.changed_at) is msgspec.UNSET:
            set_field(self, "changed_at", self.first_seen)
        super().__post_init__()

    def _check(self) -> None:
        check_choice(self.source, "source", SOURCES)
        set_field(self, "confidence", check_unit(self.confidence, "confidence"))
        if self.suggested_type is not None:
            set_field(self, "suggested_type", check_type(self.suggested_type, "memory_type"))

    @property
    def text(self) -> str:
        """The pair as text for a prompt."""
        return render_pair(self.key, self.value)


def render_pair(key: str, value: Any) -> str:
    """Return a pair as text for a prompt: strings as they are, other values as JSON."""
    return f"{key}: {value if isinstance(value, str) else codec.encode(value).decode()}"


class WorkingContext(Record, frozen=True, kw_only=True):
    """Named values within a token budget."""

    LABEL: ClassVar[str] = "working context"

    items: FrozenMap[str, ContextItem] = EMPTY_MAP
    max_tokens: int = 12_000
    current_tokens: Count = 0
    """Tokens of all items; always recomputed on construction."""

    def _check(self) -> None:
        check_positive(self.max_tokens, "max_tokens")
        for key, item in self.items.items():
            if not isinstance(item, ContextItem):
                raise WrongType(f"items.{key}", "a ContextItem", item)
            if item.key != key:
                raise Invalid(f"items.{key}.key", f"is {item.key!r}", "put items instead of placing them")
        set_field(self, "current_tokens", sum(item.tokens for item in self.items.values()))

    @classmethod
    def new(cls, max_tokens: Any = 12_000) -> Self:  # type: ignore[override]  # it begins empty
        """Return an empty context."""
        return cls(max_tokens=max_tokens)

    @property
    def size(self) -> int:
        """Number of items."""
        return len(self.items)

    def put(
        self,
        key: str,
        value: Any,
        *,
        source: str = "inferred",
        confidence: float = 0.7,
        memory_type: str | None = None,
        now: int | None = None,
        count: TokenCounter = estimate_tokens,
    ) -> tuple[Self, tuple[ContextItem, ...]]:
        """Return the context with a value under a key, and the items that were evicted for it.

        Args:
            key: name of the value.
            value: any JSON-like value.
            source: `inferred`, `explicit` or `tool`; replaces that of the previous value.
            confidence: from 0 to 1; replaces that of the previous value.
            memory_type: type as a memory. A type once passed stays with the key; otherwise it is inferred
                from key and source on every call.
            now: timestamp in milliseconds.
            count: token counter.

        Returns:
            The new context, and the evicted items with the least important first.

        Raises:
            InvalidRecord: the key or the value is invalid, or larger than the whole context.
        """
        try:
            item = self._item(key, value, source, confidence, memory_type, clock.resolve(now), count)
        except InvalidRecord:  # a subclass of Invalid that names its record already
            raise
        except Invalid as error:
            raise InvalidRecord(ContextItem.LABEL, error) from error
        # The new value stays: `_item` refuses a value that is larger than the whole budget.
        return self._with(item)._evict(item.last_accessed, protected_key=item.key)

    def resize(self, max_tokens: int, *, now: int | None = None) -> tuple[Self, tuple[ContextItem, ...]]:
        """Return the context with another token budget, and the items that no longer fit."""
        new = shallow_copy(self)
        set_field(new, "max_tokens", check_positive(max_tokens, "max_tokens"))
        return new._evict(clock.resolve(now))

    def _item(
        self,
        key: str,
        value: Any,
        source: str,
        confidence: float,
        memory_type: str | None,
        at: int,
        count: TokenCounter,
    ) -> ContextItem:
        key, frozen = check_text(key, "key"), freeze(value, "value")
        if depth_of(frozen) > MAX_DEPTH:
            raise Invalid("value", f"is nested deeper than {MAX_DEPTH} levels", "keep less inside of it")
        previous = self.items.get(key)
        tokens = count(render_pair(key, frozen)) + ITEM_OVERHEAD_TOKENS
        if tokens > self.max_tokens:
            raise Invalid(
                "value",
                f"takes {tokens} tokens, and the whole context has {self.max_tokens}",
                "keep it elsewhere and put its name here, or raise max_tokens",
            )
        if memory_type is None and previous is not None and previous.type_given:
            memory_type = previous.suggested_type
        return ContextItem(
            key=key,
            value=frozen,
            source=source,
            confidence=confidence,
            access_count=1 if previous is None else previous.access_count + 1,
            first_seen=at if previous is None else previous.first_seen,
            last_accessed=at,
            # Promotion takes this as the creation time of the memory.
            changed_at=previous.changed_at if previous is not None and previous.value == frozen else at,
            suggested_type=infer_type(key, source) if memory_type is None else memory_type,
            type_given=memory_type is not None,
            tokens=tokens,
        )

    def get(self, key: str, default: Any = None, *, now: int | None = None) -> tuple[Self, Any]:
        """Return the context with one more access counted, and the value.

        If there is no such key, the context is unchanged and `default` is returned.
        """
        item = self.items.get(key)
        if item is None:
            return self, default
        used = shallow_copy(item)
        set_field(used, "access_count", item.access_count + 1)
        set_field(used, "last_accessed", clock.resolve(now))
        return self._with(used), item.value

    def peek(self, key: str, default: Any = None) -> Any:
        """Return the value or the default without counting an access."""
        item = self.items.get(key)
        return default if item is None else item.value

    def item(self, key: str) -> ContextItem | None:
        """Return the item of a key, or None."""
        return self.items.get(key)

    def has(self, key: str) -> bool:
        """Return True if the key has a value, even None."""
        return key in self.items

    def delete(self, key: str) -> Self:
        """Return the context without a key; unknown keys are ignored."""
        item = self.items.get(key)
        if item is None:
            return self
        new = shallow_copy(self)
        set_field(new, "items", self.items.delete(key))
        set_field(new, "current_tokens", self.current_tokens - item.tokens)
        return new

    def clear(self) -> Self:
        """Return an empty context with the same budget."""
        return type(self)(max_tokens=self.max_tokens)

    def to_list(self) -> list[ContextItem]:
        """Return the items, sorted by key."""
        return [self.items[key] for key in sorted(self.items)]

    def to_dict(self) -> dict[str, Any]:
        """Return the values by key, without the summary of the conversation."""
        return {item.key: item.value for item in self.to_list() if item.key != SUMMARY_KEY}

    def _with(self, item: ContextItem) -> Self:
        previous = self.items.get(item.key)
        new = shallow_copy(self)
        set_field(new, "items", self.items.set(item.key, item))
        set_field(
            new, "current_tokens", self.current_tokens + item.tokens - (previous.tokens if previous else 0)
        )
        return new

    def _evict(self, now: int, protected_key: str | None = None) -> tuple[Self, tuple[ContextItem, ...]]:
        """Return the context reduced to its budget, and the evicted items, least important first."""
        new, evicted = self, []
        if self.current_tokens > self.max_tokens:
            for item in self._least_important(now):
                if new.current_tokens <= new.max_tokens:
                    break
                if item.key != protected_key:
                    evicted.append(item)
                    new = new.delete(item.key)
        return new, tuple(evicted)

    def _least_important(self, now: int) -> list[ContextItem]:
        def importance(item: ContextItem) -> tuple[float, int, str]:
            item_score = score(
                item.last_accessed, item.access_count, item.confidence, item.suggested_type, now
            )
            # Last access and key break ties, so that eviction is deterministic.
            return item_score.total, item.last_accessed, item.key

        return sorted(self.items.values(), key=importance)
