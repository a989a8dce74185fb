"""Auto-projection and signal capture plugins.

Rules say it, by patterns of signal types: the most specific one that matches decides. What is captured goes
to a memory provider under a key made from the signal, so that one which comes twice is kept once.

They are covered when every answer says that it was done. Otherwise they are free, and asked for at the next
run. A key that a provider refuses again and again while it keeps others is passed over, and reported: one
message that may not be kept must not hold up all that come after it.

`Projecting` is a strategy around another one: it projects at every tick, and after a command once enough is
new in the thread. `projecting_action` does it on demand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, TypeAlias, runtime_checkable

from omoide import clock
from omoide.core import codec, entry, state
from omoide.core import signal as pattern
from omoide.core.action import MEMORY_RESULT, Action, Directive, Error, Instruction, MemoryUpsert, action
from omoide.core.codec import MapField, TextsField
from omoide.core.definition import Plugin
from omoide.core.entry import check_positive
from omoide.core.execution import Direct, Outcome, RouteLike, Strategy, SupportsSignalRoutes, run_instruction
from omoide.core.frozen import EMPTY_MAP, FrozenMap, freeze_map
from omoide.core.memory import Memory
from omoide.core.signal import Signal
from omoide.core.state import Context, StrategyState
from omoide.core.value import Name, Record, check_function
from omoide.errors import Invalid, NotFound, WrongType
from omoide.projection import engine
from omoide.projection.engine import ProjectionCursor, Projector, check_projectors, count_pending, project

if TYPE_CHECKING:
    from omoide.core.agent import Agent


# capturing: Which signals are worth remembering?


MAX_CONTENT_LENGTH = 20_000
"""How many characters of a signal are kept."""
DEFAULT_PROVIDER = "memory"
"""Where captured signals go unless a rule says otherwise."""
IGNORED_TYPES = (MEMORY_RESULT, "jido.agent.error")
"""Signals that tell what became of a capture: capturing them would go on for ever."""
RUNTIME_PREFIX = "jido"
"""Signals of the runtime itself begin so; only a pattern that begins so, too, captures them."""

Content: TypeAlias = str | Callable[[Signal], str | None]

_FIELD = re.compile(r"\{([A-Za-z_][\w.\-]*)\}")
_SIGNAL_FIELDS = ("type", "id", "source", "subject", "time", "data")


@runtime_checkable
class SupportsCapture(Protocol):
    """A plugin that is shown every signal once it was handled."""

    def capture(self, signal: Signal, ctx: Context) -> list[Directive]:
        """What is to be done to keep it."""
        ...


class CaptureRule(Record, frozen=True, kw_only=True):
    """Which signals are kept, and as what."""

    LABEL: ClassVar[str] = "capture rule"

    pattern: Name
    content: Content | None = None
    """A text with `{data.city}` or `{subject}` in it, or a function of the signal; else what its data says.

    A signal without a field that is named is not kept, nor one for which the function returns None.
    """
    type: str | None = None
    """The type of memory it becomes."""
    tags: TextsField = ()
    metadata: MapField = EMPTY_MAP
    provider: Name | None = None
    skip: bool = False
    """Whether these signals are not kept."""
    merge: bool = False
    """Whether what it does not say, and tags and metadata besides, come from the next rule that matches."""

    def _check(self) -> None:
        pattern.check_pattern(self.pattern)
        if self.content is not None and not isinstance(self.content, str):
            check_function(self.content, "content")
        if self.type is not None:
            try:
                entry.check_memory_type(self.type)
            except NotFound as error:
                raise Invalid("type", f"is {self.type!r}", error.remedy) from error

    def with_defaults(self, defaults: CaptureRule) -> CaptureRule:
        """This rule with what a wider one adds to it."""
        return self.replace(
            content=defaults.content if self.content is None else self.content,
            type=self.type or defaults.type,
            tags=tuple(dict.fromkeys((*defaults.tags, *self.tags))),
            metadata=defaults.metadata.update(self.metadata),
            provider=self.provider or defaults.provider,
            merge=defaults.merge,
        )


class SignalCapture(Plugin):
    """Keeps signals as memories, once they were handled."""

    name = "signal_capture"
    description = "Keeps signals as memories, by rules"

    def __init__(
        self,
        config: Mapping[str, Any] = EMPTY_MAP,
        *,
        rules: Iterable[CaptureRule | Mapping[str, Any]] | None = None,
        alias: str | None = None,
    ) -> None:
        super().__init__(config, alias=alias)
        given = self.config.get("rules", ()) if rules is None else rules
        if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
            raise WrongType("rules", "a list of CaptureRules", given)
        known = [CaptureRule.new(rule) for rule in given]
        self.rules = tuple(sorted(known, key=lambda rule: pattern.specificity(rule.pattern), reverse=True))

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and isinstance(other, SignalCapture) and other.rules == self.rules

    __hash__ = Plugin.__hash__

    def capture(self, signal: Signal, ctx: Context) -> list[Directive]:
        """The directive that keeps a signal, if a rule says so."""
        rule = self.rule_for(signal)
        text = None if rule is None else _render_content(rule.content, signal)
        if rule is None or text is None or not text.strip():
            return []
        told = {"type": rule.type, "tags": rule.tags, "metadata": rule.metadata}
        item = {"key": self.key_of(signal), "value": text[:MAX_CONTENT_LENGTH]}
        return [
            MemoryUpsert(
                items=[item],
                provider=rule.provider or DEFAULT_PROVIDER,
                opts={name: value for name, value in told.items() if value},
            )
        ]

    def rule_for(self, signal: Signal) -> CaptureRule | None:
        """The rule that decides about a signal, complete; None where it is not kept."""
        found = [rule for rule in self.rules if _matches(rule.pattern, signal.type)]
        if not found:
            return None
        rule, *wider = found
        for other in wider:
            if not rule.merge or other.skip:
                break
            rule = rule.with_defaults(other)
        return None if rule.skip else rule

    def key_of(self, signal: Signal) -> str:
        """The key of a signal, which is the same whenever it comes."""
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
    """Data as text: its own words where it has some, else JSON; bytes have none."""
    if isinstance(data, FrozenMap):
        words = next((data[key] for key in ("text", "content") if isinstance(data.get(key), str)), None)
        if words is not None:
            return str(words)
    if data is None or isinstance(data, bytes):
        return None
    if isinstance(data, str):
        return data
    return codec.encode(data).decode()


# confirming: What becomes of entries whose projection was asked of a provider?


MAX_REFUSALS = 3
"""How often a provider may refuse a key before it is passed over."""
TIMED_OUT = "timed out"
"""What a provider that was too slow for a key is said to have done."""
_MAX_NAMED_KEYS = 5


class ProviderAnswer(NamedTuple):
    """What a provider answered to one request."""

    kept: bool
    """Whether it kept anything."""
    missed: list[str]
    """The keys that it did not keep."""
    broken: bool
    """Whether it failed for another reason than these keys."""


@action
def projection_result(
    ctx: Context, request_id: Any = None, status: Any = None, details: Any = None
) -> tuple[Memory | None, list[Directive]]:
    """Take in what a memory provider answered to a projector; answers to others are left alone."""
    now = clock.now()
    for name, mark in engine.iter_cursors(ctx.memory):
        if isinstance(request_id, str) and request_id in mark.pending:
            new, given_up = _apply_answer(mark, request_id, _parse_answer(status, details), now)
            told: list[Directive] = [_skipped_error(name, given_up)] if given_up else []
            return engine.write_cursor(ctx.memory, name, new, now), told
    return None, []


class ProjectionPlugin(Plugin):
    """Routes the answers of memory providers to projectors; `Projecting` does so by itself."""

    name = "projection"
    description = "Takes in what memory providers answer to projectors"
    actions = (projection_result,)

    def router(self, config: FrozenMap[str, Any]) -> Sequence[RouteLike]:
        """The one route."""
        return [(MEMORY_RESULT, projection_result)]


def _apply_answer(
    cursor: ProjectionCursor, request_id: str, answer: ProviderAnswer, now: int
) -> tuple[ProjectionCursor, list[str]]:
    """The mark after one answer, and the keys that are passed over from now on."""
    first, last, _ = cursor.pending[request_id]
    cursor = cursor.replace(
        pending=cursor.pending.delete(request_id),
        kept=cursor.kept or answer.kept,
        broken=cursor.broken or answer.broken,
        missed=[*cursor.missed, *answer.missed],
        at=now,
    )
    if cursor.pending:
        return cursor, []
    if not cursor.missed and not cursor.broken:
        return cursor.advance(first, last, now), []
    if cursor.kept and not cursor.broken:
        cursor = cursor.replace(refused={key: cursor.refused.get(key, 0) + 1 for key in cursor.missed})
    if not cursor.broken and all(cursor.refused.get(key, 0) >= MAX_REFUSALS for key in cursor.missed):
        return cursor.advance(first, last, now), [*cursor.missed]
    return cursor.with_failure(now), []


def _parse_answer(status: object, details: object) -> ProviderAnswer:
    """What an answer says; where a key came too late it says nothing about what the provider would keep."""
    known = () if isinstance(details, (str, bytes)) or not isinstance(details, Sequence) else details
    told = [one for one in known if isinstance(one, Mapping) and isinstance(one.get("key"), str)]
    missed = [one["key"] for one in told if one.get("status") != "ok"]
    late = any(TIMED_OUT in str(one.get("error", "")) for one in told)
    ok = status == "ok"
    return ProviderAnswer(
        kept=ok or len(missed) < len(told),
        missed=[] if ok else missed,
        broken=not ok and (late or not missed),
    )


def _skipped_error(name: str, keys: list[str]) -> Error:
    named = ", ".join(keys[:_MAX_NAMED_KEYS]) + (", …" if len(keys) > _MAX_NAMED_KEYS else "")
    return Error(
        message=f"projector {name!r}: its provider refused {named} {MAX_REFUSALS} times; passed over",
        context="projection",
        action=name,
        kind="Refused",
    )


# projecting: When does an agent project by itself?


class ProjectionStrategy:
    """Acts as the inner strategy does, and projects the thread into the memory.

    It takes in the answers of memory providers to its projectors, by a route of its own.
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
        return hash((type(self), self.after))

    def _identity(self) -> tuple[object, ...]:
        return self.projectors, self.inner, self.after, self.config

    def init(self, agent: Agent, ctx: Context) -> Outcome:
        """Prepare what the inner strategy needs."""
        return self.inner.init(agent, ctx)

    def cmd(self, agent: Agent, instructions: Sequence[Instruction], ctx: Context) -> Outcome:
        """Act as the inner strategy does, then project if `after` entries or more are not covered."""
        directives: list[Directive] = []
        rest = []
        for one in instructions:
            if _is_answer(one):  # none of the inner strategy's business, and not worth a note in the thread
                known = Instruction(action=one.action, params=one.params, target=projection_result)
                agent, more, _ = run_instruction(agent, known, ctx.signal)
                directives += more
            else:
                rest.append(one)
        if rest or not instructions:
            agent, more = self.inner.cmd(agent, rest, Context(agent, ctx.signal, ctx.config))
            directives += more
        if count_pending(agent, self.projectors) >= self.after:
            agent, more = project(agent, self.projectors, config=self.config, backoff=True)
            directives += more
        return agent, directives

    def tick(self, agent: Agent, ctx: Context) -> Outcome:
        """Tick as the inner strategy does, then project."""
        agent, directives = self.inner.tick(agent, ctx)
        agent, more = project(agent, self.projectors, config=self.config)
        return agent, [*directives, *more]

    def snapshot(self, agent: Agent) -> StrategyState:
        """How far the inner strategy has come."""
        return self.inner.snapshot(agent)

    def signal_routes(self) -> Sequence[RouteLike]:
        """The routes of the inner strategy, and one for the answers of memory providers."""
        inner = self.inner.signal_routes() if isinstance(self.inner, SupportsSignalRoutes) else ()
        return [*inner, (MEMORY_RESULT, projection_result)]


def projection_action(
    projectors: Iterable[Projector], name: str = "project", *, config: Mapping[str, Any] = EMPTY_MAP
) -> Action:
    """An action that projects what is new in the thread into the memory."""
    known, settings = check_projectors(projectors), freeze_map(config, "config")

    @action(name=name)
    def run_projectors(ctx: Context) -> tuple[Memory | None, list[Directive]]:
        """Project what is new in the thread into the memory."""
        agent, directives = project(ctx.agent, known, config=settings)
        return (None if agent is ctx.agent else state.MEMORY.get_or_new(agent)), directives

    return run_projectors


def _is_answer(instruction: Instruction) -> bool:
    return instruction.action == projection_result.name and instruction.target in (None, projection_result)
