"""Message, ToolCall, Usage, context window.

Whole turns leave, the oldest first: a question never stands without its answer, nor a tool's result without
its call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

from omoide import ids
from omoide.core import codec
from omoide.core.codec import MapField
from omoide.core.frozen import EMPTY_MAP
from omoide.core.value import Count, Id, Name, Value, check_choice, check_tuple, set_field
from omoide.errors import Invalid, WrongType

# messages: What do people, models and tools say to each other?


ROLES = ("system", "user", "assistant", "tool")


class ToolCall(Value, frozen=True, kw_only=True):
    """A model's wish to have an action run."""

    id: Id
    name: Name
    params: MapField = EMPTY_MAP
    invalid: str | None = None
    """What the model wrote for parameters, where that is no JSON object."""

    @classmethod
    def new(cls, name: str, params: Mapping[str, Any] = EMPTY_MAP, *, id: str | None = None) -> Self:
        """A call, with an id of its own where none is given."""
        return cls(id=ids.new("call_") if id is None else id, name=name, params=params)


class Message(Value, frozen=True, kw_only=True):
    """One message of a prompt."""

    EXCLUDED_FIELDS: ClassVar[frozenset[str]] = frozenset({"native"})

    role: str
    content: str = ""
    calls: tuple[ToolCall, ...] = ()
    """What an assistant's message asks to have run."""
    call_id: Id | None = None
    """Which call a tool's message answers."""
    name: Name | None = None
    """Which tool a tool's message comes from."""
    native: Any = None
    """The provider's own form of a reply, for the rest of the turn; it is never written down."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.role, "role", ROLES)
        set_field(self, "calls", check_tuple(self.calls, "calls", ToolCall))
        if self.calls and self.role != "assistant":
            raise Invalid("calls", f"come with role {self.role!r}", "only an assistant asks for tools")
        if self.role == "tool" and (self.call_id is None or self.name is None):
            raise Invalid("call_id", "or name is missing", "say which call of which tool is answered")


class Usage(Value, frozen=True, kw_only=True):
    """How many tokens were used."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    requests: Count = 0

    @property
    def total_tokens(self) -> int:
        """Both directions together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            requests=self.requests + other.requests,
        )


def check_non_empty(content: object, field: str = "input") -> str:
    """What a user said, if there is something in it."""
    if not isinstance(content, str):
        raise WrongType(field, "text", content)
    if not content.strip():
        raise Invalid(field, "is empty", "say something")
    return content


# window: Which turns of a conversation does a model still see?


TokenCounter = Callable[[str], int]

MESSAGE_OVERHEAD = 4
"""About how many tokens a message takes besides its words."""


class Exchange(Value, frozen=True, kw_only=True):
    """One turn that is over: what was said, from the user's words to the answer."""

    messages: tuple[Message, ...] = ()
    request_id: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        set_field(self, "messages", check_tuple(self.messages, "messages", Message))


def as_exchanges(history: object) -> tuple[Exchange, ...]:
    """A conversation as turns; messages given one after the other are parted where the user speaks."""
    if isinstance(history, (str, bytes)) or not isinstance(history, Sequence):
        raise WrongType("history", "a list of messages or of turns", history)
    found: list[Exchange] = []
    loose: list[Message] = []
    for at, one in enumerate(history):
        if isinstance(one, Exchange):
            found += [*_group_messages(loose), one]
            loose = []
            continue
        if isinstance(one, Mapping):
            one = _parse_message(one, f"history[{at}]")
        if not isinstance(one, Message):
            raise WrongType(f"history[{at}]", "a Message", one)
        if one.role == "user":
            found += _group_messages(loose)
            loose = []
        loose.append(one)
    return (*found, *_group_messages(loose))


def _parse_message(given: Mapping[str, Any], field: str) -> Message:
    """A message in the form that most programs have it."""
    try:
        return Message(**given)
    except Invalid as error:
        raise error.with_path_prefix(field) from error
    except TypeError as error:
        raise Invalid(field, f"is no message ({error})", "give it role and content") from error


def _group_messages(loose: list[Message]) -> list[Exchange]:
    return [Exchange(messages=tuple(loose))] if loose else []


def message_tokens(messages: Sequence[Message], count: TokenCounter) -> int:
    """How many tokens messages take."""
    return sum(_tokens_of(message, count) for message in messages)


def _tokens_of(message: Message, count: TokenCounter) -> int:
    calls = "".join(
        f"{call.name}{call.invalid or codec.encode(call.params).decode()}" for call in message.calls
    )
    return MESSAGE_OVERHEAD + count(message.content) + (count(calls) if calls else 0)


class TokenCounts:
    """How many tokens each turn of a conversation takes, counted once."""

    def __init__(self, count: TokenCounter) -> None:
        self.count = count
        self._cache: dict[int, tuple[Exchange, int]] = {}  # the turn is held, so its number stays its own

    def of(self, turn: Exchange) -> int:
        """What a turn takes."""
        known = self._cache.get(id(turn))
        if known is None:
            known = self._cache[id(turn)] = (turn, message_tokens(turn.messages, self.count))
        return known[1]


def newest_exchanges(turns: Sequence[Exchange], budget: int, counts: TokenCounts) -> tuple[Exchange, ...]:
    """The newest turns that fit into the room, in their order."""
    kept = 0
    for turn in reversed(turns):
        budget -= counts.of(turn)
        if budget < 0:
            break
        kept += 1
    return tuple(turns[len(turns) - kept :])


def truncate(text: str, budget: int, count: TokenCounter) -> str:
    """A text, or as much of its beginning as the room holds, with a remark that it was cut."""
    if len(text) <= budget or count(text) <= budget:
        return text

    def cut(length: int) -> str:
        return f"{text[:length]}\n(cut, {len(text) - length:,} characters more)"

    low, high = 0, min(len(text), budget * 16)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(cut(middle)) <= budget else (low, middle - 1)
    return cut(low)
