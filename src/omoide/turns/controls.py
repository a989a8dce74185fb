"""Controls and reviews of a turn, and the context that tools and controls receive.

A control checks the input, each tool call before it runs, and the answer. It lets its subject pass, refuses
or rewrites it, or interrupts the turn until a person has decided.
"""

from __future__ import annotations

import inspect
import json
from base64 import b64encode
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from omoide import clock
from omoide.core import codec
from omoide.core.agent import Agent
from omoide.core.codec import Frozen, MapField, TextsField
from omoide.core.entry import Scope
from omoide.core.frozen import EMPTY_MAP, FrozenMap, freeze, freeze_map, thaw
from omoide.core.state import Context
from omoide.core.value import Id, Millis, Name, Value, check_choice
from omoide.errors import Invalid, Unsupported, WrongType
from omoide.stores.protocols import Store
from omoide.stores.redaction import is_secret, is_secret_key
from omoide.turns.prompt import ToolCall, Usage

REDACTED = "[removed]"
MIN_SECRET_LENGTH = 6
"""Secrets shorter than this are too common as words to be redacted."""


class TurnRequest(Value, frozen=True, kw_only=True):
    """The persisted part of a turn's input and options."""

    id: Id
    input: str
    session_id: Id | None = None
    project_id: Id | None = None
    user_id: Id | None = None
    context: MapField = EMPTY_MAP
    """The context of the turn, without secrets and what is no data."""
    controls: TextsField = ()
    """Class names of the controls; a resumed turn needs them again."""
    off_record: bool = False
    """True for a turn of a session without memory; it stays so when resumed."""
    namespace: Id | None = None
    """The namespace of the turn's memory, resolved once, so that a resumed turn has the same."""
    at: Millis


class TurnContext(Context):
    """The agent, the request, and the resources that tools and controls may use.

    `scope` is where the turn writes memories, `reach` where it recalls them, those below `min_relevance` left
    out. `data` is the whole context and
    `secrets` are for tools only; neither is persisted. A tool that must not happen twice can pass
    `idempotency_key` on: it is the same when the call is repeated after a crash.
    """

    def __init__(
        self,
        agent: Agent,
        request: TurnRequest,
        *,
        data: Mapping[str, Any] = EMPTY_MAP,
        secrets: Mapping[str, Any] = EMPTY_MAP,
        store: Store | None = None,
        scope: Scope | None = None,
        reach: Scope | None = None,
        min_relevance: float | None = None,
        call: ToolCall | None = None,
        scratchpad: Any = None,
    ) -> None:
        super().__init__(agent)
        self.request = request
        self.request_id = request.id
        self.session_id = request.session_id
        self.data = data
        self.secrets = secrets
        self.store = store
        self.scope = scope
        self.reach = reach
        self.min_relevance = min_relevance
        self.call = call
        self._scratchpad = scratchpad

    @property
    def context(self) -> Any:
        """The working context of the session: `ctx.context.put("framework", "Phoenix 1.7")`.

        Raises:
            Invalid: the turn is of no session.
        """
        if self._scratchpad is None:
            raise Invalid("context", "is of a session, and this turn has none", "run it with Session")
        return self._scratchpad

    def record_use(self, ids: Sequence[str]) -> None:
        """Record the memories that a tool recalled in the access log of the session, if there is one."""
        if self._scratchpad is not None:
            self._scratchpad.record_use(ids)

    @property
    def idempotency_key(self) -> str:
        """A key of this tool call that stays the same when it is repeated."""
        call = "" if self.call is None else self.call.id
        return f"{self.session_id or 'direct'}:{self.request_id}:{call}"


def check_context(context: object, field: str = "context") -> Mapping[str, Any]:
    """Return the context if it is a mapping whose keys are text, or raise."""
    if not isinstance(context, Mapping):
        raise WrongType(field, "a mapping", context, "pass a dict")
    for key in context:
        if not isinstance(key, str) or not key:
            raise Invalid(f"{field} key", f"is {key!r}", "use text")
    return context


def persistable_context(context: Mapping[str, Any]) -> FrozenMap[str, Any]:
    """Return the part of a context that may be persisted: data without secrets."""
    return freeze_map(_split_secrets(context, "", [])[1], "context")


def secret_texts(context: Mapping[str, Any], secrets: Mapping[str, Any]) -> tuple[str, ...]:
    """Return texts that must not be persisted, plain and as they appear in JSON and base64, longest first."""
    texts: list[str] = []
    _split_secrets(context, "", texts)
    texts += _texts(secrets)
    plain = {text for text in texts if len(text) >= MIN_SECRET_LENGTH}
    escaped = {json.dumps(text, ensure_ascii=ascii)[1:-1] for text in plain for ascii in (True, False)}
    escaped |= {form for text in plain for form in _base64_forms(text.encode(errors="replace"))}
    # Longest first: replacing a secret inside a longer one would leave the rest of that in the text.
    return tuple(sorted(plain | escaped, key=len, reverse=True))


def redact(text: str, secrets: tuple[str, ...]) -> str:
    """Replace secrets in a text."""
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return text


def _split_secrets(value: Any, key: str, secret: list[str]) -> tuple[bool, Any]:
    """Return whether a value may be persisted, and what of it; collect the texts of its secrets."""
    # By the name of its key first: such a value is secret whatever it looks like.
    if key and is_secret_key(key):
        secret += _texts(value)
        return False, None
    if isinstance(value, Mapping):
        inner = {str(name): _split_secrets(item, str(name), secret) for name, item in value.items()}
        return True, {name: plain for name, (allowed, plain) in inner.items() if allowed}
    if isinstance(value, (list, tuple)):
        several = [_split_secrets(item, key, secret) for item in value]
        return True, [plain for allowed, plain in several if allowed]
    if isinstance(value, (str, int, float)) and not isinstance(value, bool) and is_secret(key, value):
        secret += _texts(value)
        return False, None
    try:
        return True, freeze(value, f"context.{key}")
    except Unsupported:
        return False, None  # a connection or a function, for tools only


def _texts(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case bool() | None:
            return []
        case int() | float():
            return [str(value)]
        case bytes():
            return [value.decode(errors="ignore"), *_base64_forms(value)]
        case Mapping():
            return [text for inner in value.values() for text in _texts(inner)]
        case list() | tuple() | set() | frozenset():
            return [text for inner in value for text in _texts(inner)]
        case _:
            return []


def _base64_forms(secret: bytes) -> list[str]:
    """Return how a secret looks in base64, alone and inside of longer bytes, at each of three offsets."""
    if len(secret) < MIN_SECRET_LENGTH:
        return []
    inside = []
    for offset in range(3):
        encoded = b64encode(bytes(offset) + secret).decode()
        # Only characters whose bits are all of the secret: the others depend on what stands beside it.
        inside.append(encoded[(8 * offset + 5) // 6 : 8 * (offset + len(secret)) // 6])
    return [b64encode(secret).decode(), *inside]


VERDICTS = ("approve", "deny", "settle")


class Refuse(Value, frozen=True, kw_only=False):
    """A control's answer: the subject must not pass."""

    reason: Name


class Rewrite(Value, frozen=True, kw_only=False):
    """A control's answer: another subject instead; text for input and output, parameters for a tool."""

    value: Frozen


class Interrupt(Value, frozen=True, kw_only=False):
    """A control's answer: a person has to decide."""

    question: Name


ControlAnswer = Refuse | Rewrite | Interrupt | None


class Control:
    """Base class of controls. Methods may be async; None lets the subject pass."""

    def at_input(self, text: str, ctx: TurnContext) -> ControlAnswer | Awaitable[ControlAnswer]:
        """Check the user's input."""
        return None

    def at_tool(self, call: ToolCall, ctx: TurnContext) -> ControlAnswer | Awaitable[ControlAnswer]:
        """Check a tool call before it runs."""
        return None

    def at_output(self, text: str, ctx: TurnContext) -> ControlAnswer | Awaitable[ControlAnswer]:
        """Check the model's answer."""
        return None


class Approval(Control):
    """A control that asks a person before each call of certain tools."""

    def __init__(self, tools: Iterable[str]) -> None:
        self._tools = frozenset(tools)

    def at_tool(self, call: ToolCall, ctx: TurnContext) -> ControlAnswer:
        """Interrupt before the named tools."""
        return Interrupt(f"Run {call.name}?") if call.name in self._tools else None


class Review(Value, frozen=True, kw_only=True):
    """A question that a person has to decide before a turn can go on."""

    id: Id
    boundary: str
    question: Name
    request_id: Id
    call: ToolCall | None = None
    """The tool call in question."""
    draft: str | None = None
    """The text in question."""
    usage: Usage | None = None
    model: str | None = None
    """Token usage of the draft, and the model that wrote it."""
    unknown: bool = False
    """True if the tool started before a crash, and may or may not have taken effect."""
    at: Millis = msgspec.field(default_factory=clock.now)


class Decision(Value, frozen=True, kw_only=True):
    """A person's decision on a review: `approve` (or run a tool again), `deny`, or `settle`."""

    verdict: str
    reason: str = ""
    result: Frozen = None
    """The result to use for `settle`, in place of running the tool or of the draft."""
    at: Millis = msgspec.field(default_factory=clock.now)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.verdict, "verdict", VERDICTS)


def decode_decisions(decisions: Mapping[str, Any]) -> dict[str, Decision]:
    """Decode persisted decisions by review id."""
    return {key: codec.from_builtins(thaw(plain), Decision) for key, plain in decisions.items()}


def check_controls(controls: object) -> tuple[Control, ...]:
    """Return controls as a tuple, in the order in which they are applied."""
    if isinstance(controls, Control):
        return (controls,)
    if not isinstance(controls, (list, tuple)):
        raise WrongType("controls", "a list of Controls", controls)
    for at, control in enumerate(controls):
        if not isinstance(control, Control):
            raise WrongType(f"controls[{at}]", "a Control", control, "subclass Control")
    return tuple(controls)


def check_same_controls(request: TurnRequest, controls: Sequence[Control]) -> None:
    """Raise unless a resumed turn has the controls that it started with."""
    present = {type(control).__name__ for control in controls}
    missing = [name for name in request.controls if name not in present]
    # Without them, a resumed turn could pass what they would have refused.
    if missing:
        raise Invalid("controls", f"lack {', '.join(missing)}, which this turn began with", "pass them again")


async def apply_controls(
    controls: Sequence[Control], boundary: str, subject: Any, ctx: TurnContext
) -> tuple[Any, Refuse | Interrupt | None, bool]:
    """Apply controls to a subject.

    Returns:
        The subject as the controls leave it, the answer that stops it (a refusal before an interrupt), and
        whether it was rewritten.
    """
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
                # Only the first question is asked; later controls may still refuse or rewrite.
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
