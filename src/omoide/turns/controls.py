"""Controls, reviews, turn context.

A control looks at what goes in, at each tool before it runs, and at what comes out. It lets it pass, refuses,
rewrites, or interrupts the turn until a person has decided.
"""

from __future__ import annotations

import inspect
import json
from base64 import b64encode
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from omoide import clock
from omoide.core.agent import Agent
from omoide.core.codec import Frozen, MapField, TextsField
from omoide.core.entry import Scope
from omoide.core.frozen import EMPTY_MAP, FrozenMap, freeze, freeze_map
from omoide.core.state import Context
from omoide.core.value import Id, Millis, Name, Value, check_choice
from omoide.errors import Invalid, Unsupported, WrongType
from omoide.stores.protocols import Store
from omoide.stores.redaction import is_secret, is_secret_key
from omoide.turns.messages import ToolCall, Usage

# context: What do tools and controls know about the turn they are part of?


REDACTED = "[removed]"
MIN_SECRET_LENGTH = 6
"""Shorter texts are too common to be taken out of what a tool says."""


class TurnRequest(Value, frozen=True, kw_only=True):
    """What a turn was asked, by whom and when: data that may be kept."""

    id: Id
    input: str
    session_id: Id | None = None
    project_id: Id | None = None
    context: MapField = EMPTY_MAP
    """What the program said about the turn, without what must not be kept."""
    controls: TextsField = ()
    """The kinds of controls that watch over it; a turn that is taken up again needs them again."""
    off_record: bool = False
    """Whether a session was told to leave its memory out of it; that holds however often it is resumed."""
    namespace: Id | None = None
    """Where the turn's memory lies; resolved once, so that a turn taken up again finds it there."""
    at: Millis


class TurnContext(Context):
    """The agent, what it was asked, and what the program gave it for this turn.

    `scope` is where the turn's memory lies, `reach` what its recall sees. `data` is the whole context,
    `secrets` what is for tools only; neither is written down. A tool that must not happen twice can pass
    `idempotency_key` on: it is the same when the call is repeated after a crash.
    """

    def __init__(
        self,
        agent: Agent,
        asked: TurnRequest,
        *,
        data: Mapping[str, Any] = EMPTY_MAP,
        secrets: Mapping[str, Any] = EMPTY_MAP,
        store: Store | None = None,
        scope: Scope | None = None,
        reach: Scope | None = None,
        call: ToolCall | None = None,
    ) -> None:
        super().__init__(agent)
        self.asked = asked
        self.request_id = asked.id
        self.session_id = asked.session_id
        self.data = data
        self.secrets = secrets
        self.store = store
        self.scope = scope
        self.reach = reach
        self.call = call

    @property
    def idempotency_key(self) -> str:
        """What this call is called, today and when it is repeated."""
        call = "" if self.call is None else self.call.id
        return f"{self.session_id or 'direct'}:{self.request_id}:{call}"


def check_context(context: object, field: str = "context") -> Mapping[str, Any]:
    """What a program says about a turn: a mapping whose keys are text."""
    if not isinstance(context, Mapping):
        raise WrongType(field, "a mapping", context, "pass a dict")
    for key in context:
        if not isinstance(key, str) or not key:
            raise Invalid(f"{field} key", f"is {key!r}", "use text")
    return context


def persistable_context(context: Mapping[str, Any]) -> FrozenMap[str, Any]:
    """The part of a context that may be kept: data, and no secrets."""
    return freeze_map(_split_secrets(context, "", [])[1], "context")


def secret_texts(context: Mapping[str, Any], secrets: Mapping[str, Any]) -> tuple[str, ...]:
    """The texts that must not be written down, as they are and as they stand in JSON, the longest first."""
    found: list[str] = []
    _split_secrets(context, "", found)
    found += _texts(secrets)
    whole = {text for text in found if len(text) >= MIN_SECRET_LENGTH}
    written = {json.dumps(text, ensure_ascii=ascii)[1:-1] for text in whole for ascii in (True, False)}
    return tuple(sorted(whole | written, key=len, reverse=True))


def redact(text: str, secrets: tuple[str, ...]) -> str:
    """A text from which what is hidden was taken out."""
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return text


def _split_secrets(value: Any, key: str, secret: list[str]) -> tuple[bool, Any]:
    """Whether anything of a value may be kept, and what; the texts of what is secret are collected."""
    if key and is_secret_key(key):
        secret += _texts(value)
        return False, None
    if isinstance(value, Mapping):
        inner = {str(name): _split_secrets(one, str(name), secret) for name, one in value.items()}
        return True, {name: kept for name, (some, kept) in inner.items() if some}
    if isinstance(value, (list, tuple)):
        several = [_split_secrets(one, key, secret) for one in value]
        return True, [kept for some, kept in several if some]
    if isinstance(value, (str, int, float)) and not isinstance(value, bool) and is_secret(key, value):
        secret += _texts(value)
        return False, None
    try:
        return True, freeze(value, f"context.{key}")
    except Unsupported:
        return False, None  # a connection, a function: for tools, not for keeping


def _texts(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case bool() | None:
            return []
        case int() | float():
            return [str(value)]
        case bytes():
            return [value.decode(errors="ignore"), b64encode(value).decode()]
        case Mapping():
            return [text for inner in value.values() for text in _texts(inner)]
        case list() | tuple() | set() | frozenset():
            return [text for inner in value for text in _texts(inner)]
        case _:
            return []


# controls: May this be said, done or answered?


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


ControlAnswer = Refuse | Rewrite | Interrupt | None


class Control:
    """Subclass it and override what is needed; methods may be async. None lets it pass."""

    def at_input(self, text: str, ctx: TurnContext) -> ControlAnswer | Awaitable[ControlAnswer]:
        """Look at what the user said."""
        return None

    def at_tool(self, call: ToolCall, ctx: TurnContext) -> ControlAnswer | Awaitable[ControlAnswer]:
        """Look at a tool that the model wants to have run."""
        return None

    def at_output(self, text: str, ctx: TurnContext) -> ControlAnswer | Awaitable[ControlAnswer]:
        """Look at what the model answered."""
        return None


class Approval(Control):
    """Asks a person before each of these tools."""

    def __init__(self, tools: Iterable[str]) -> None:
        self._tools = frozenset(tools)

    def at_tool(self, call: ToolCall, ctx: TurnContext) -> ControlAnswer:
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


def check_same_controls(request: TurnRequest, controls: Sequence[Control]) -> None:
    """Raise unless the controls that watched over a turn do so again."""
    here = {type(control).__name__ for control in controls}
    missing = [name for name in request.controls if name not in here]
    if missing:
        raise Invalid("controls", f"lack {', '.join(missing)}, which this turn began with", "pass them again")


async def apply_controls(
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
                subject, rewritten = _rewrite(subject, value), True
            case other:
                raise WrongType(
                    f"{type(control).__name__}.at_{boundary}", "None, Refuse, Rewrite or Interrupt", other
                )
    return subject, question, rewritten


def _rewrite(subject: Any, value: Any) -> Any:
    if isinstance(subject, ToolCall):
        return subject.replace(params=value)
    if not isinstance(value, str) or not value:
        raise Invalid("Rewrite.value", f"is {type(value).__name__}", "pass text for input and output")
    return value
