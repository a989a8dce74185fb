"""What do people, models and tools say to each other?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from omoide import ids
from omoide.core.codec import MapField
from omoide.core.contract import check_choice, check_tuple
from omoide.core.frozen import EMPTY_MAP
from omoide.core.value import Count, Id, Name, Value, force
from omoide.errors import Invalid, WrongType

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

    UNWRITTEN: ClassVar[frozenset[str]] = frozenset({"native"})

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
        force(self, "calls", check_tuple(self.calls, "calls", ToolCall))
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


def said(content: object, field: str = "input") -> str:
    """What a user said, if there is something in it."""
    if not isinstance(content, str):
        raise WrongType(field, "text", content)
    if not content.strip():
        raise Invalid(field, "is empty", "say something")
    return content
