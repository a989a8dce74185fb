"""Short-term memory of a session, its conversation buffer and its token budget.

The buffer holds the newest messages that fit into a number of tokens. It evicts from the front and returns
what it evicted, because evicted messages are candidates for promotion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import msgspec

from omoide import clock, ids
from omoide.core import codec
from omoide.core.codec import ListField, MapField
from omoide.core.entry import check_positive
from omoide.core.frozen import EMPTY_LIST, EMPTY_MAP, FrozenList, freeze_list, value_type
from omoide.core.value import Count, Id, Millis, Record, check_choice, set_field, shallow_copy
from omoide.errors import Invalid, WrongType
from omoide.retrieval.text import TokenCounter, estimate_tokens
from omoide.shortterm.context import WorkingContext
from omoide.shortterm.importance import AccessLog
from omoide.shortterm.pending import PendingMemories

ROLES = ("user", "assistant", "system", "tool")
MESSAGE_OVERHEAD_TOKENS = 4
"""Approximate number of tokens that a message takes besides its text."""


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
