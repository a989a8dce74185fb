"""ShortTerm, conversation buffer, token budget.

The newest that fit into a number of tokens. What has to leave leaves from the front, and is handed back: it
may be worth remembering.
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

# buffer: Which messages of the conversation are still at hand?


ROLES = ("user", "assistant", "system", "tool")
MESSAGE_OVERHEAD_TOKENS = 4
"""About how many tokens a message takes besides its words."""


@value_type
class BufferMessage(Record, frozen=True, kw_only=True):
    """One message, with the tokens that it takes and its place in the thread, where that is known."""

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
        """A message from a mapping or keywords; where it does not say how many tokens it takes, `count` does.

        >>> BufferMessage.new(role="user", content="hello").token_count
        5
        """
        if isinstance(given, cls):
            given = {name: getattr(given, name) for name in cls.__struct_fields__}
        known = {**given, **fields} if isinstance(given, Mapping) else fields
        if "token_count" not in known and isinstance(known.get("content"), str):
            fields["token_count"] = count_message_tokens(known["content"], known.get("tool_calls"), count)
        return super().new(given, **fields)


def count_message_tokens(content: str, tool_calls: Any = None, count: TokenCounter = estimate_tokens) -> int:
    """How many tokens a message takes: its words, the calls it makes, and what stands around them."""
    calls = codec.encode(freeze_list(tool_calls, "tool_calls")).decode() if tool_calls else ""
    return MESSAGE_OVERHEAD_TOKENS + count(content) + (count(calls) if calls else 0)


class ConversationBuffer(Record, frozen=True, kw_only=True):
    """The newest messages of a conversation, oldest first."""

    LABEL: ClassVar[str] = "conversation buffer"

    messages: FrozenList[BufferMessage] = EMPTY_LIST
    max_tokens: int = 20_000
    current_tokens: Count = 0
    """What the messages take; counted, whatever is given."""

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
        """An empty buffer."""
        return cls(max_tokens=max_tokens)

    @property
    def overflow(self) -> bool:
        """Whether its one message is larger than the whole buffer should be."""
        return self.current_tokens > self.max_tokens

    @property
    def size(self) -> int:
        """How many messages there are."""
        return len(self.messages)

    def add(self, message: BufferMessage) -> tuple[Self, tuple[BufferMessage, ...]]:
        """With one more message, and those that had to leave for it, oldest first.

        No more leave than must. A message larger than the buffer stays alone, and is an `overflow`.
        """
        if not isinstance(message, BufferMessage):
            raise WrongType("message", "a BufferMessage", message, "make one with BufferMessage.new(…)")
        kept, used, evicted = _evict_oldest(
            self.messages, self.current_tokens, self.max_tokens - message.token_count
        )
        return self._with(kept.append(message), used + message.token_count), evicted

    def add_all(self, messages: Iterable[BufferMessage]) -> tuple[Self, tuple[BufferMessage, ...]]:
        """With these messages after each other, and all that had to leave, oldest first."""
        buffer = self
        evicted: list[BufferMessage] = []
        for message in messages:
            buffer, left = buffer.add(message)
            evicted += left
        return buffer, tuple(evicted)

    def resize(self, max_tokens: int) -> tuple[Self, tuple[BufferMessage, ...]]:
        """With room for another number of tokens, and the messages that no longer fit; the newest stays."""
        room = check_positive(max_tokens, "max_tokens")
        kept, used, evicted = _evict_oldest(self.messages, self.current_tokens, room, min_messages=1)
        new = self._with(kept, used)
        set_field(new, "max_tokens", room)
        return new, evicted

    def to_list(self) -> list[BufferMessage]:
        """The messages, oldest first."""
        return [*self.messages]

    def clear(self) -> Self:
        """The same buffer, empty."""
        return self._with(EMPTY_LIST, 0)

    def _with(self, messages: FrozenList[BufferMessage], used: int) -> Self:
        new = shallow_copy(self)
        set_field(new, "messages", messages)
        set_field(new, "current_tokens", used)
        return new


def _evict_oldest(
    messages: FrozenList[BufferMessage], used: int, budget: int, min_messages: int = 0
) -> tuple[FrozenList[BufferMessage], int, tuple[BufferMessage, ...]]:
    """The newest messages that fit into the room, what they take, and the others; `least` stay anyway."""
    evicted: list[BufferMessage] = []
    for message in messages:
        if used <= budget or len(messages) - len(evicted) <= min_messages:
            break
        evicted.append(message)
        used -= message.token_count
    if len(evicted) == len(messages):
        return EMPTY_LIST, used, tuple(evicted)
    for _ in evicted:
        messages = messages.delete(0)
    return messages, used, tuple(evicted)


# token budget: How much room does short-term memory have?


class TokenBudget(Record, frozen=True, kw_only=True):
    """Tokens for the whole of a session's short-term memory, and for its two parts that have a size."""

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


# short term: What does a session hold in its head?


class ShortTerm(Record, frozen=True, kw_only=True):
    """A session's memory of the moment: what was said, understood, noticed and used."""

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
        """An empty one, whose parts have the room that the budget gives them."""
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
