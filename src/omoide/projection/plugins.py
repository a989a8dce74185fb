"""Project automatically, handle the answers of memory providers, and capture signals as memories.

`ProjectionStrategy` wraps another strategy: it projects at every tick, and after a command once enough is new
in the thread. `projection_action` projects on demand.

Entries of a projector with `confirmed` are covered once every request was answered with success; otherwise
they are requested again at the next run. A key that a provider refuses repeatedly while it stores others is
skipped and reported, so that one message does not block all that follow.

`SignalCapture` stores signals by rules: the most specific pattern that matches the type decides. The key is
made from the signal, so that a signal which arrives twice is stored once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias, runtime_checkable

from omoide import clock
from omoide.core import codec, state
from omoide.core import signal as pattern
from omoide.core.action import MEMORY_RESULT, Action, Directive, Error, Instruction, MemoryUpsert, action
from omoide.core.codec import MapField, TextsField
from omoide.core.definition import (
    Direct,
    Outcome,
    Plugin,
    RouteLike,
    Strategy,
    SupportsSignalRoutes,
    run_instruction,
)
from omoide.core.entry import check_positive, check_type
from omoide.core.frozen import EMPTY_MAP, FrozenMap, freeze_map
from omoide.core.memory import Memory
from omoide.core.signal import Signal
from omoide.core.state import Context, StrategyState
from omoide.core.value import Name, Record, check_function, set_field
from omoide.errors import WrongType
from omoide.projection import engine
from omoide.projection.engine import ProjectionCursor, Projector, check_projectors, count_pending, project

if TYPE_CHECKING:
    from omoide.core.agent import Agent


MAX_CONTENT_LENGTH = 20_000
"""Characters of a signal that are stored."""
DEFAULT_PROVIDER = "memory"
"""The memory provider of rules without one."""
IGNORED_TYPES = (MEMORY_RESULT, "jido.agent.error")
"""Results of captures: capturing them would never end."""
RUNTIME_PREFIX = "jido"
"""First word of the runtime's own signals; only patterns that begin with it capture them."""

Content: TypeAlias = str | Callable[[Signal], str | None]

_FIELD = re.compile(r"\{([A-Za-z_][\w.\-]*)\}")
_SIGNAL_FIELDS = ("type", "id", "source", "subject", "time", "data")


@runtime_checkable
class SupportsCapture(Protocol):
    """A plugin that gets every signal after it was handled."""

    def capture(self, signal: Signal, ctx: Context) -> list[Directive]:
        """Return the directives that store a signal."""


class CaptureRule(Record, frozen=True, kw_only=True):
    """Pattern of the signals to store, and the form in which they are stored."""

    LABEL: ClassVar[str] = "capture rule"

    pattern: Name
    content: Content | None = None
    """A template such as `{data.city}` or `{subject}`, or a function of the signal; default: its data.

    A signal that lacks a named field is not stored, nor one for which the function returns None.
    """
    type: str | None = None
    """The memory type of the stored entry."""
    tags: TextsField = ()
    metadata: MapField = EMPTY_MAP
    provider: Name | None = None
    skip: bool = False
    """True if matching signals are not stored."""
    merge: bool = False
    """Take fields that are not set, and further tags and metadata, from the next rule that matches."""

    def _check(self) -> None:
        pattern.check_pattern(self.pattern)
        if self.content is not None and not isinstance(self.content, str):
            check_function(self.content, "content")
        if self.type is not None:
            set_field(self, "type", check_type(self.type))

    def with_defaults(self, defaults: CaptureRule) -> CaptureRule:
        """Return this rule, completed by a less specific one."""
        return self.replace(
            content=defaults.content if self.content is None else self.content,
            type=self.type or defaults.type,
            tags=tuple(dict.fromkeys((*defaults.tags, *self.tags))),
            metadata=defaults.metadata.update(self.metadata),
            provider=self.provider or defaults.provider,
            merge=defaults.merge,
        )


class SignalCapture(Plugin):
    """Stores signals as memories after they were handled."""

    name = "signal_capture"
    description = "Stores signals as memories by rules"

    def __init__(
        self,
        config: Mapping[str, Any] = EMPTY_MAP,
        *,
        rules: Iterable[CaptureRule | Mapping[str, Any]] | None = None,
        alias: str | None = None,
    ) -> None:
        super().__init__(config, alias=alias)
        rules = self.config.get("rules", ()) if rules is None else rules
        if isinstance(rules, (str, bytes, Mapping)) or not isinstance(rules, Iterable):
            raise WrongType("rules", "a list of CaptureRules", rules)
        parsed = [CaptureRule.new(rule) for rule in rules]
        # The sort is stable: of equally specific rules the first one wins.
        self.rules = tuple(sorted(parsed, key=lambda rule: pattern.specificity(rule.pattern), reverse=True))

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and isinstance(other, SignalCapture) and other.rules == self.rules

    __hash__ = Plugin.__hash__

    def capture(self, signal: Signal, ctx: Context) -> list[Directive]:
        """Return the directive that stores a signal, if a rule asks for it."""
        rule = self.rule_for(signal)
        text = None if rule is None else _render_content(rule.content, signal)
        if rule is None or text is None or not text.strip():
            return []
        options = {"type": rule.type, "tags": rule.tags, "metadata": rule.metadata}
        item = {"key": self.key_of(signal), "value": text[:MAX_CONTENT_LENGTH]}
        return [
            MemoryUpsert(
                items=[item],
                provider=rule.provider or DEFAULT_PROVIDER,
                opts={name: value for name, value in options.items() if value},
            )
        ]

    def rule_for(self, signal: Signal) -> CaptureRule | None:
        """Return the merged rule for a signal, or None if it is not stored."""
        found = [rule for rule in self.rules if _matches(rule.pattern, signal.type)]
        if not found:
            return None
        rule, *wider = found
        for other in wider:
            # A wider rule that skips signals has nothing to merge.
            if not rule.merge or other.skip:
                break
            rule = rule.with_defaults(other)
        return None if rule.skip else rule

    def key_of(self, signal: Signal) -> str:
        """Return the key of a signal, the same at every delivery."""
        place = f"{self.label}\0{signal.source}\0{signal.id}"
        return f"signal_{sha256(place.encode()).hexdigest()[:32]}"


def _matches(wanted: str, signal_type: str) -> bool:
    if signal_type in IGNORED_TYPES or (_is_runtime_type(signal_type) and not _is_runtime_type(wanted)):
        return False
    return pattern.matches_pattern(wanted, signal_type)


def _is_runtime_type(dotted: str) -> bool:
    return dotted.split(".", 1)[0] == RUNTIME_PREFIX


def _render_content(content: Content | None, signal: Signal) -> str | None:
    if content is None:
        return _to_text(signal.data)
    if isinstance(content, str):
        fields = {name: _signal_field(name, signal) for name in _FIELD.findall(content)}
        if None in fields.values():
            return None
        return _FIELD.sub(lambda match: str(fields[match[1]]), content)
    text = content(signal)
    if text is not None and not isinstance(text, str):
        raise WrongType("the content of a captured signal", "a string or None", text)
    return text


def _signal_field(path: str, signal: Signal) -> str | None:
    first, *rest = path.split(".")
    if first not in _SIGNAL_FIELDS:
        return None
    found = getattr(signal, first)
    for key in rest:
        found = found.get(key) if isinstance(found, FrozenMap) else None
    return _to_text(found)


def _to_text(data: Any) -> str | None:
    """Return the `text` or `content` of data, else its JSON; None for bytes."""
    if isinstance(data, FrozenMap):
        text = next((data[key] for key in ("text", "content") if isinstance(data.get(key), str)), None)
        if text is not None:
            return str(text)
    if data is None or isinstance(data, bytes):
        return None
    if isinstance(data, str):
        return data
    return codec.encode(data, sort_keys=True).decode()  # equal data, equal words: a duplicate is found


MAX_REFUSALS = 3
"""Refusals of a key after which it is skipped."""
TIMED_OUT = "timed out"
"""Part of the error of a key that timed out."""
_MAX_NAMED_KEYS = 5


class ProviderAnswer(NamedTuple):
    """The answer of a provider to one request."""

    kept: bool
    """True if it stored anything."""
    missed: list[str]
    """The keys that it did not store."""
    broken: bool
    """True if it failed for another reason than these keys."""


@action
def projection_result(
    ctx: Context, request_id: Any = None, status: Any = None, details: Any = None
) -> tuple[Memory | None, list[Directive]]:
    """Apply the answer of a memory provider to the cursor that requested it; ignore other answers."""
    now = clock.now()
    for name, cursor in engine.iter_cursors(ctx.memory):
        if isinstance(request_id, str) and request_id in cursor.pending:
            new, skipped = _apply_answer(cursor, request_id, _parse_answer(status, details), now)
            errors: list[Directive] = [_skipped_error(name, skipped)] if skipped else []
            return engine.write_cursor(ctx.memory, name, new, now), errors
    return None, []


class ProjectionPlugin(Plugin):
    """Routes the answers of memory providers to projectors; `ProjectionStrategy` needs no plugin."""

    name = "projection"
    description = "Applies the answers of memory providers to the cursors of projectors"
    actions = (projection_result,)

    def router(self, config: FrozenMap[str, Any]) -> Sequence[RouteLike]:
        """Return the route of `jido.memory.result`."""
        return [(MEMORY_RESULT, projection_result)]


def _apply_answer(
    cursor: ProjectionCursor, request_id: str, answer: ProviderAnswer, now: int
) -> tuple[ProjectionCursor, list[str]]:
    """Return the cursor after an answer, and the keys that are skipped from now on."""
    first, last, _ = cursor.pending[request_id]
    cursor = cursor.replace(
        pending=cursor.pending.delete(request_id),
        kept=cursor.kept or answer.kept,
        broken=cursor.broken or answer.broken,
        missed=[*cursor.missed, *answer.missed],
        at=now,
    )
    # The span is judged once, when all of its requests are answered.
    if cursor.pending:
        return cursor, []
    if not cursor.missed and not cursor.broken:
        return cursor.advance(first, last, now), []
    # A refusal counts only while other keys were stored: a provider that stores nothing is down, and none of
    # the messages may be skipped for that. Keys that were stored this time lose their count.
    if cursor.kept and not cursor.broken:
        cursor = cursor.replace(refused={key: cursor.refused.get(key, 0) + 1 for key in cursor.missed})
    if not cursor.broken and all(cursor.refused.get(key, 0) >= MAX_REFUSALS for key in cursor.missed):
        return cursor.advance(first, last, now), [*cursor.missed]
    return cursor.with_failure(now), []


def _parse_answer(status: object, details: object) -> ProviderAnswer:
    """Parse an answer; a timeout does not count as a refusal of the key."""
    items = () if isinstance(details, (str, bytes)) or not isinstance(details, Sequence) else details
    results = [item for item in items if isinstance(item, Mapping) and isinstance(item.get("key"), str)]
    missed = [result["key"] for result in results if result.get("status") != "ok"]
    late = any(TIMED_OUT in str(result.get("error", "")) for result in results)
    ok = status == "ok"
    return ProviderAnswer(
        kept=ok or len(missed) < len(results),
        missed=[] if ok else missed,
        broken=not ok and (late or not missed),
    )


def _skipped_error(name: str, keys: list[str]) -> Error:
    named = ", ".join(keys[:_MAX_NAMED_KEYS]) + (", …" if len(keys) > _MAX_NAMED_KEYS else "")
    return Error(
        message=f"projector {name!r}: its provider refused {named} {MAX_REFUSALS} times; skipped",
        context="projection",
        action=name,
        kind="Refused",
    )


class ProjectionStrategy:
    """A strategy that runs another one, and projects the thread into the memory.

    It routes the answers of memory providers to its projectors.

    Args:
        projectors: Run in this order.
        inner: The strategy that runs the instructions; `Direct` by default.
        after: Number of uncovered entries after which a command projects.
        config: Passed to the projectors in their context.
    """

    def __init__(
        self,
        projectors: Iterable[Projector],
        inner: Strategy | None = None,
        *,
        after: int = 20,
        config: Mapping[str, Any] = EMPTY_MAP,
    ) -> None:
        self.projectors = check_projectors(projectors)
        self.inner: Strategy = Direct() if inner is None else inner
        if isinstance(inner, type) or not isinstance(self.inner, Strategy):
            raise WrongType("inner", "a Strategy", inner, "give it init, cmd, tick, snapshot")
        self.after = check_positive(after, "after")
        self.config = freeze_map(config, "config")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._identity() == self._identity()

    def __hash__(self) -> int:
        # Projectors and the inner strategy need not be hashable.
        return hash((type(self), self.after))

    def _identity(self) -> tuple[object, ...]:
        return self.projectors, self.inner, self.after, self.config

    def init(self, agent: Agent, ctx: Context) -> Outcome:
        """Initialize the inner strategy."""
        return self.inner.init(agent, ctx)

    def cmd(self, agent: Agent, instructions: Sequence[Instruction], ctx: Context) -> Outcome:
        """Run the inner strategy, then project if `after` entries or more are not covered."""
        directives: list[Directive] = []
        rest = []
        for one in instructions:
            if _is_answer(one):  # not for the inner strategy, and not recorded in the thread
                known = Instruction(action=one.action, params=one.params, target=projection_result)
                agent, more, _ = run_instruction(agent, known, ctx.signal)
                directives += more
            else:
                rest.append(one)
        if rest or not instructions:
            agent, more = self.inner.cmd(agent, rest, Context(agent, ctx.signal, ctx.config))
            directives += more
        # Commands may be frequent, so a failed projector waits for `retry_ms`; a tick retries at once.
        if count_pending(agent, self.projectors) >= self.after:
            agent, more = project(agent, self.projectors, config=self.config, backoff=True)
            directives += more
        return agent, directives

    def tick(self, agent: Agent, ctx: Context) -> Outcome:
        """Tick the inner strategy, then project."""
        agent, directives = self.inner.tick(agent, ctx)
        agent, more = project(agent, self.projectors, config=self.config)
        return agent, [*directives, *more]

    def snapshot(self, agent: Agent) -> StrategyState:
        """Return the state of the inner strategy."""
        return self.inner.snapshot(agent)

    def signal_routes(self) -> Sequence[RouteLike]:
        """Return the routes of the inner strategy, and one for the answers of memory providers."""
        inner = self.inner.signal_routes() if isinstance(self.inner, SupportsSignalRoutes) else ()
        return [*inner, (MEMORY_RESULT, projection_result)]


def projection_action(
    projectors: Iterable[Projector], name: str = "project", *, config: Mapping[str, Any] = EMPTY_MAP
) -> Action:
    """Return an action that projects what is new in the thread into the memory."""
    known, settings = check_projectors(projectors), freeze_map(config, "config")

    @action(name=name)
    def run_projectors(ctx: Context) -> tuple[Memory | None, list[Directive]]:
        """Project what is new in the thread into the memory."""
        agent, directives = project(ctx.agent, known, config=settings)
        return (None if agent is ctx.agent else state.MEMORY.get_or_new(agent)), directives

    return run_projectors


def _is_answer(instruction: Instruction) -> bool:
    return instruction.action == projection_result.name and instruction.target in (None, projection_result)
