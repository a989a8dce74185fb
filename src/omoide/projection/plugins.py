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
from omoide.core.execution import Direct, Outcome, Routed, RouteLike, Strategy, run
from omoide.core.frozen import EMPTY_MAP, FrozenMap, freeze_map
from omoide.core.memory import Memory
from omoide.core.plugin import Plugin
from omoide.core.requests import check_positive
from omoide.core.signal import Signal
from omoide.core.state import Context, StrategyState
from omoide.core.value import Name, Record, check_function
from omoide.errors import Invalid, NotFound, WrongType
from omoide.projection import engine
from omoide.projection.engine import Mark, Projector, check_projectors, project, waiting

if TYPE_CHECKING:
    from omoide.core.agent import Agent


# capturing: Which signals are worth remembering?


LONGEST = 20_000
"""How many characters of a signal are kept."""
PROVIDER = "memory"
"""Where captured signals go unless a rule says otherwise."""
NEVER = (MEMORY_RESULT, "jido.agent.error")
"""Signals that tell what became of a capture: capturing them would go on for ever."""
OWN = "jido"
"""Signals of the runtime itself begin so; only a pattern that begins so, too, captures them."""

Content: TypeAlias = str | Callable[[Signal], str | None]

_FIELD = re.compile(r"\{([A-Za-z_][\w.\-]*)\}")
_ABOUT = ("type", "id", "source", "subject", "time", "data")


@runtime_checkable
class Captures(Protocol):
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
        pattern.check(self.pattern)
        if self.content is not None and not isinstance(self.content, str):
            check_function(self.content, "content")
        if self.type is not None:
            try:
                entry.check(self.type)
            except NotFound as error:
                raise Invalid("type", f"is {self.type!r}", error.remedy) from error

    def over(self, wider: CaptureRule) -> CaptureRule:
        """This rule with what a wider one adds to it."""
        return self.replace(
            content=wider.content if self.content is None else self.content,
            type=self.type or wider.type,
            tags=tuple(dict.fromkeys((*wider.tags, *self.tags))),
            metadata=wider.metadata.update(self.metadata),
            provider=self.provider or wider.provider,
            merge=wider.merge,
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
        text = None if rule is None else _text(rule.content, signal)
        if rule is None or text is None or not text.strip():
            return []
        told = {"type": rule.type, "tags": rule.tags, "metadata": rule.metadata}
        item = {"key": self.key_of(signal), "value": text[:LONGEST]}
        return [
            MemoryUpsert(
                items=[item],
                provider=rule.provider or PROVIDER,
                opts={name: value for name, value in told.items() if value},
            )
        ]

    def rule_for(self, signal: Signal) -> CaptureRule | None:
        """The rule that decides about a signal, complete; None where it is not kept."""
        found = [rule for rule in self.rules if _speaks_of(rule.pattern, signal.type)]
        if not found:
            return None
        rule, *wider = found
        for other in wider:
            if not rule.merge or other.skip:
                break
            rule = rule.over(other)
        return None if rule.skip else rule

    def key_of(self, signal: Signal) -> str:
        """The key of a signal, which is the same whenever it comes."""
        place = f"{self.label}\0{signal.source}\0{signal.id}"
        return f"signal_{sha256(place.encode()).hexdigest()[:32]}"


def _speaks_of(wanted: str, signal_type: str) -> bool:
    if signal_type in NEVER or (_begins(signal_type) and not _begins(wanted)):
        return False
    return pattern.matches(wanted, signal_type)


def _begins(dotted: str) -> bool:
    return dotted.split(".", 1)[0] == OWN


def _text(content: Content | None, signal: Signal) -> str | None:
    if content is None:
        return _plain(signal.data)
    if isinstance(content, str):
        fields = {name: _field(name, signal) for name in _FIELD.findall(content)}
        if None in fields.values():
            return None
        return _FIELD.sub(lambda match: str(fields[match[1]]), content)
    text = content(signal)
    if text is not None and not isinstance(text, str):
        raise WrongType("the content of a captured signal", "a string or None", text)
    return text


def _field(path: str, signal: Signal) -> str | None:
    first, *rest = path.split(".")
    if first not in _ABOUT:
        return None
    found = getattr(signal, first)
    for key in rest:
        found = found.get(key) if isinstance(found, FrozenMap) else None
    return _plain(found)


def _plain(data: Any) -> str | None:
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


TRIES = 3
"""How often a provider may refuse a key before it is passed over."""
LATE = "timed out"
"""What a provider that was too slow for a key is said to have done."""
_NAMED = 5


class Answer(NamedTuple):
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
    for name, mark in engine.every(ctx.memory):
        if isinstance(request_id, str) and request_id in mark.pending:
            new, given_up = _answered(mark, request_id, _read(status, details), now)
            told: list[Directive] = [_passed_over(name, given_up)] if given_up else []
            return engine.write(ctx.memory, name, new, now), told
    return None, []


class ProjectionPlugin(Plugin):
    """Routes the answers of memory providers to projectors; `Projecting` does so by itself."""

    name = "projection"
    description = "Takes in what memory providers answer to projectors"
    actions = (projection_result,)

    def router(self, config: FrozenMap[str, Any]) -> Sequence[RouteLike]:
        """The one route."""
        return [(MEMORY_RESULT, projection_result)]


def _answered(mark: Mark, request_id: str, answer: Answer, now: int) -> tuple[Mark, list[str]]:
    """The mark after one answer, and the keys that are passed over from now on."""
    first, last, _ = mark.pending[request_id]
    mark = mark.replace(
        pending=mark.pending.delete(request_id),
        kept=mark.kept or answer.kept,
        broken=mark.broken or answer.broken,
        missed=[*mark.missed, *answer.missed],
        at=now,
    )
    if mark.pending:
        return mark, []
    if not mark.missed and not mark.broken:
        return mark.covering(first, last, now), []
    if mark.kept and not mark.broken:
        mark = mark.replace(refused={key: mark.refused.get(key, 0) + 1 for key in mark.missed})
    if not mark.broken and all(mark.refused.get(key, 0) >= TRIES for key in mark.missed):
        return mark.covering(first, last, now), [*mark.missed]
    return mark.failing(now), []


def _read(status: object, details: object) -> Answer:
    """What an answer says; where a key came too late it says nothing about what the provider would keep."""
    known = () if isinstance(details, (str, bytes)) or not isinstance(details, Sequence) else details
    told = [one for one in known if isinstance(one, Mapping) and isinstance(one.get("key"), str)]
    missed = [one["key"] for one in told if one.get("status") != "ok"]
    late = any(LATE in str(one.get("error", "")) for one in told)
    ok = status == "ok"
    return Answer(
        kept=ok or len(missed) < len(told),
        missed=[] if ok else missed,
        broken=not ok and (late or not missed),
    )


def _passed_over(name: str, keys: list[str]) -> Error:
    named = ", ".join(keys[:_NAMED]) + (", …" if len(keys) > _NAMED else "")
    return Error(
        message=f"projector {name!r}: its provider refused {named} {TRIES} times; passed over",
        context="projection",
        action=name,
        kind="Refused",
    )


# projecting: When does an agent project by itself?


class Projecting:
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
        return type(other) is type(self) and other._parts() == self._parts()

    def __hash__(self) -> int:
        return hash((type(self), self.after))

    def _parts(self) -> tuple[object, ...]:
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
                agent, more, _ = run(agent, known, ctx.signal)
                directives += more
            else:
                rest.append(one)
        if rest or not instructions:
            agent, more = self.inner.cmd(agent, rest, Context(agent, ctx.signal, ctx.config))
            directives += more
        if waiting(agent, self.projectors) >= self.after:
            agent, more = project(agent, self.projectors, config=self.config, patient=True)
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
        inner = self.inner.signal_routes() if isinstance(self.inner, Routed) else ()
        return [*inner, (MEMORY_RESULT, projection_result)]


def projecting_action(
    projectors: Iterable[Projector], name: str = "project", *, config: Mapping[str, Any] = EMPTY_MAP
) -> Action:
    """An action that projects what is new in the thread into the memory."""
    known, settings = check_projectors(projectors), freeze_map(config, "config")

    @action(name=name)
    def run_projectors(ctx: Context) -> tuple[Memory | None, list[Directive]]:
        """Project what is new in the thread into the memory."""
        agent, directives = project(ctx.agent, known, config=settings)
        return (None if agent is ctx.agent else state.MEMORY.value(agent)), directives

    return run_projectors


def _is_answer(instruction: Instruction) -> bool:
    return instruction.action == projection_result.name and instruction.target in (None, projection_result)
