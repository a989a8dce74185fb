"""May this be said, done or answered?

A control looks at what goes in, at each tool before it runs, and at what comes out. It lets it pass, refuses,
rewrites, or interrupts the turn until a person has decided.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any

import msgspec

from omoide import clock
from omoide.core.codec import Frozen
from omoide.core.contract import check_choice
from omoide.core.value import Id, Millis, Name, Value
from omoide.errors import Invalid, WrongType
from omoide.turns.context import Asked, TurnContext
from omoide.turns.messages import ToolCall, Usage

BOUNDARIES = ("input", "tool", "output")
VERDICTS = ("approve", "deny", "settle")


class Refuse(Value, frozen=True, kw_only=False):
    """It must not be."""

    reason: Name


class Rewrite(Value, frozen=True, kw_only=False):
    """Something else in its place: text for input and output, parameters for a tool."""

    value: Frozen


class Interrupt(Value, frozen=True, kw_only=False):
    """A person has to decide."""

    question: Name


Answer = Refuse | Rewrite | Interrupt | None


class Control:
    """Subclass it and override what is needed; methods may be async. None lets it pass."""

    def at_input(self, text: str, ctx: TurnContext) -> Answer | Awaitable[Answer]:
        """Look at what the user said."""
        return None

    def at_tool(self, call: ToolCall, ctx: TurnContext) -> Answer | Awaitable[Answer]:
        """Look at a tool that the model wants to have run."""
        return None

    def at_output(self, text: str, ctx: TurnContext) -> Answer | Awaitable[Answer]:
        """Look at what the model answered."""
        return None


class Approval(Control):
    """Asks a person before each of these tools."""

    def __init__(self, tools: Iterable[str]) -> None:
        self._tools = frozenset(tools)

    def at_tool(self, call: ToolCall, ctx: TurnContext) -> Answer:
        """Interrupt for the tools named."""
        return Interrupt(f"Run {call.name}?") if call.name in self._tools else None


class Review(Value, frozen=True, kw_only=True):
    """A question that a person has to answer before a turn can go on."""

    id: Id
    boundary: str
    question: Name
    request_id: Id
    call: ToolCall | None = None
    """The tool in question."""
    draft: str | None = None
    """The words in question."""
    usage: Usage | None = None
    model: str | None = None
    """What the draft took, and who wrote it."""
    unknown: bool = False
    """Whether the tool began before a crash, and nobody knows whether it took effect."""
    at: Millis = msgspec.field(default_factory=clock.now)


class Decision(Value, frozen=True, kw_only=True):
    """What a person decided: `approve` (for a tool of unknown outcome: run it again), `deny`, or `settle`."""

    verdict: str
    reason: str = ""
    result: Frozen = None
    """What the tool is to have answered, where it was settled by hand."""
    at: Millis = msgspec.field(default_factory=clock.now)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.verdict, "verdict", VERDICTS)


def check_controls(controls: object) -> tuple[Control, ...]:
    """Several controls, in the order in which they are asked."""
    if isinstance(controls, Control):
        return (controls,)
    if not isinstance(controls, (list, tuple)):
        raise WrongType("controls", "a list of Controls", controls)
    for at, one in enumerate(controls):
        if not isinstance(one, Control):
            raise WrongType(f"controls[{at}]", "a Control", one, "subclass Control")
    return tuple(controls)


def check_watched(asked: Asked, controls: Sequence[Control]) -> None:
    """Raise unless the controls that watched over a turn do so again."""
    here = {type(control).__name__ for control in controls}
    missing = [name for name in asked.controls if name not in here]
    if missing:
        raise Invalid("controls", f"lack {', '.join(missing)}, which this turn began with", "pass them again")


async def asked(
    controls: Sequence[Control], boundary: str, subject: Any, ctx: TurnContext
) -> tuple[Any, Refuse | Interrupt | None, bool]:
    """The subject as the controls leave it, what stops it, if anything does, and whether it was rewritten."""
    rewritten = False
    question: Interrupt | None = None
    for control in controls:
        answer: Any = getattr(control, f"at_{boundary}")(subject, ctx)
        if inspect.isawaitable(answer):
            answer = await answer
        match answer:
            case None:
                continue
            case Refuse():
                return subject, answer, rewritten
            case Interrupt():
                question = question or answer
            case Rewrite(value=value):
                subject, rewritten = _rewritten(subject, value), True
            case other:
                raise WrongType(
                    f"{type(control).__name__}.at_{boundary}", "None, Refuse, Rewrite or Interrupt", other
                )
    return subject, question, rewritten


def _rewritten(subject: Any, value: Any) -> Any:
    if isinstance(subject, ToolCall):
        return subject.replace(params=value)
    if not isinstance(value, str) or not value:
        raise Invalid("Rewrite.value", f"is {type(value).__name__}", "pass text for input and output")
    return value
