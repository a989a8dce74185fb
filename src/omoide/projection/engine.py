"""Projector protocol, marks, run.

Each projector has a mark in the agent's memory, in the space `projection`. It moves together with what was
projected, in one value, so that neither can be lost without the other.

A projector reads entries of the thread and returns another memory. It is pure: what it wants done elsewhere
it returns as directives.

Each projector gets what its mark does not cover yet, and the mark moves in the same memory. One that fails is
reported, and the others run all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec

from omoide import clock
from omoide.core import state
from omoide.core.action import Directive, MemoryDelete, MemoryQuery, MemoryUpsert
from omoide.core.agent import Agent, check_agent, clock_at
from omoide.core.codec import ListField, MapField
from omoide.core.execution import error_directive
from omoide.core.frozen import EMPTY_LIST, EMPTY_MAP, FrozenMap, check_text, freeze_map
from omoide.core.memory import Memory
from omoide.core.thread import Thread, ThreadEntry
from omoide.core.value import Count, Id, Millis, Value, check_count
from omoide.errors import Invalid, OmoideError, WrongType
from omoide.shortterm.memory import ROLES

# marks: Which entries of the thread has a projector covered?


SPACE = "projection"
"""The space of the memory that holds the marks, by the names of the projectors."""


class ProjectionCursor(Value, frozen=True, kw_only=True):
    """How far a projector has come in one thread."""

    thread: Id
    at: Millis
    """When it was last written."""
    covers_seq: ListField = EMPTY_LIST
    """The first and the last position covered; empty where none is."""
    pending: MapField = EMPTY_MAP
    """What was asked and not answered yet: `[first, last, at]` by request id."""
    kept: bool = False
    """Whether a provider kept anything of what is being asked."""
    broken: bool = False
    """Whether a request of those being asked failed as a whole."""
    missed: ListField = EMPTY_LIST
    """The keys of those being asked that a provider did not keep."""
    refused: MapField = EMPTY_MAP
    """How often a provider refused a key while it kept others."""
    failures: Count = 0
    """How often the projection failed since it last came further."""
    failed_at: Millis | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.covers_seq:
            _check_span(self.covers_seq, "covers_seq", 2)
        for request, span in self.pending.items():
            _check_span(span, f"pending.{request}", 3)
        for key, times in self.refused.items():
            check_count(times, f"refused.{key}")

    @property
    def next_seq(self) -> int:
        """The position of the first entry that is not covered."""
        return int(self.covers_seq[1]) + 1 if self.covers_seq else 0

    def advance(self, first: int, last: int, at: int) -> ProjectionCursor:
        """The mark moved to a position; whatever was under way is done with."""
        start = int(self.covers_seq[0]) if self.covers_seq else first
        return ProjectionCursor(thread=self.thread, at=at, covers_seq=[start, last])

    def with_requests(self, requests: Mapping[str, list[int]], at: int) -> ProjectionCursor:
        """The mark with requests under way in place of older ones."""
        return self.replace(pending=requests, at=at, kept=False, broken=False, missed=EMPTY_LIST)

    def with_failure(self, at: int) -> ProjectionCursor:
        """The mark where it was, free to be asked for again."""
        free = self.with_requests({}, at)
        return free.replace(failures=self.failures + 1, failed_at=at)

    def is_in_flight(self, now: int, retry_ms: int) -> bool:
        """Whether answers are still to be expected; a clock that was set back expects none."""
        return any(0 <= now - span[2] < retry_ms for span in self.pending.values())

    def is_backing_off(self, now: int, retry_ms: int) -> bool:
        """Whether it is too early to try again without being told to."""
        return self.failed_at is not None and 0 <= now - self.failed_at < retry_ms


def read_cursor(memory: Memory, name: str, thread_id: str, now: int) -> ProjectionCursor:
    """The mark of a projector for a thread; one for another thread, or an unreadable one, begins anew."""
    known = _cursors(memory).get(name)
    mark = None if known is None else _parse_cursor(known)
    return (
        mark if mark is not None and mark.thread == thread_id else ProjectionCursor(thread=thread_id, at=now)
    )


def iter_cursors(memory: Memory) -> Iterator[tuple[str, ProjectionCursor]]:
    """All marks that can be read, with the names of their projectors."""
    for name, known in _cursors(memory).items():
        mark = _parse_cursor(known)
        if mark is not None:
            yield name, mark


def write_cursor(memory: Memory, name: str, cursor: ProjectionCursor, now: int) -> Memory:
    """The memory with a mark in it."""
    plain = {
        field.name: getattr(cursor, field.name)
        for field in msgspec.structs.fields(ProjectionCursor)
        if getattr(cursor, field.name) != field.default
    }
    return memory.ensure_space(SPACE, {}, now=now).put_in_space(SPACE, name, plain, now=now)


def _cursors(memory: Memory) -> FrozenMap[str, Any]:
    space = memory.space(SPACE)
    return space.data if space is not None and isinstance(space.data, FrozenMap) else EMPTY_MAP


def _parse_cursor(known: object) -> ProjectionCursor | None:
    """A memory is open to whoever writes into it, so a mark may be anything."""
    if not isinstance(known, FrozenMap):
        return None
    try:
        return ProjectionCursor(**known)
    except (OmoideError, TypeError):
        return None


def _check_span(span: Any, field: str, size: int) -> None:
    if isinstance(span, (str, Mapping)) or len(span) != size:
        raise Invalid(field, "is no span", f"use {size} numbers")
    for number in span:
        check_count(number, field)
    if span[0] > span[1]:
        raise Invalid(field, "ends before it begins", "leave it to the projection")


# messages: What was said in an entry of the thread, and by whom?


MESSAGE_KINDS = ("message",)
"""The kinds of entries that projectors read unless they are told otherwise."""

_ROLE_ALIASES = {
    "agent": "assistant",
    "ai": "assistant",
    "bot": "assistant",
    "developer": "system",
    "function": "tool",
    "human": "user",
    "model": "assistant",
}


class ThreadMessage(NamedTuple):
    """One message: where it stands, who said it, and what."""

    entry: ThreadEntry
    role: str
    text: str


def messages_in(
    entries: Iterable[ThreadEntry], kinds: tuple[str, ...] = MESSAGE_KINDS
) -> Iterator[ThreadMessage]:
    """The messages among entries that have a text; who gives no role is taken for the user."""
    for entry in entries:
        text = entry.payload.get("content", entry.payload.get("text"))
        if entry.kind in kinds and isinstance(text, str) and text.strip():
            role = str(entry.payload.get("role", "user")).lower()
            yield ThreadMessage(entry, role if role in ROLES else _ROLE_ALIASES.get(role, "user"), text)


# projector: How does what happened become what the agent knows?


ProjectorResult: TypeAlias = Memory | tuple[Memory, Sequence[Directive]]


class ProjectionContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a projector knows of the run it is part of."""

    agent_id: str
    now: int
    """The moment of the run, in milliseconds."""
    since: int
    """The position of the first entry that this projector has not covered yet."""
    fresh: tuple[ThreadEntry, ...]
    """The entries to project, from there on; never empty."""
    config: FrozenMap[str, Any] = EMPTY_MAP


@runtime_checkable
class Projector(Protocol):
    """Compiles entries of a thread into a memory.

    Its name says which mark is its own. One with `confirmed = True` has covered entries only when all that it
    asked memory providers for was done; it may be asked for the same entries again, and so uses the same keys
    for them each time. `retry_ms` is how long it waits for that, and after a failure.
    """

    @property
    def name(self) -> str:
        """What it is called among the projectors of an agent."""
        ...

    def project(self, memory: Memory, thread: Thread, ctx: ProjectionContext) -> ProjectorResult:
        """The memory with what the fresh entries add to it, and directives where it needs any."""
        ...


# running: How are projectors run, so that each entry counts once?


RETRY_MS = 60_000
"""How long an answer is waited for, unless the projector says otherwise."""
MAX_BATCH = 1_000
"""How many entries a projector that waits for answers gets at once."""


def project(
    agent: Agent,
    projectors: Iterable[Projector],
    *,
    now: int | None = None,
    config: Mapping[str, Any] = EMPTY_MAP,
    backoff: bool = False,
) -> tuple[Agent, list[Directive]]:
    """The agent with what is new in its thread projected into its memory, and the directives for the rest.

    A failure is an `Error` among the directives. With `patient`, a projector that failed is left alone for a
    while.
    """
    check_agent(agent)
    known, settings = check_projectors(projectors), freeze_map(config, "config")
    thread = state.THREAD.get(agent)
    if thread is None:
        return agent, []
    before = memory = state.MEMORY.get_or_new(agent)
    directives: list[Directive] = []
    with clock_at(now):
        moment = clock.now()
        for projector in known:
            span = _due_span(projector, memory, thread, moment, backoff)
            try:
                if span is None:
                    memory = _clamp_cursor(projector, memory, thread, moment)
                    continue
                ctx = ProjectionContext(
                    agent_id=agent.id,
                    now=moment,
                    since=span[0],
                    fresh=tuple(thread.slice(*span)),
                    config=settings,
                )
                memory, more = _run(projector, memory, thread, ctx)
                directives += more
            except Exception as error:  # noqa: BLE001 - whatever a projector raises is told as ours
                directives.append(error_directive(error, "projection", projector.name))
                memory = _record_failure(projector, memory, thread, moment)
    return (agent if memory is before else state.MEMORY.put(agent, memory)), directives


def count_pending(agent: Agent, projectors: Iterable[Projector], *, now: int | None = None) -> int:
    """How many entries wait for the projector that has most to do, those that wait themselves aside."""
    thread = state.THREAD.get(check_agent(agent))
    if thread is None:
        return 0
    moment, memory = clock.resolve(now), state.MEMORY.get_or_new(agent)
    spans = [_due_span(projector, memory, thread, moment, True) for projector in projectors]
    return max((last - first + 1 for first, last in filter(None, spans)), default=0)


def check_projectors(projectors: object) -> tuple[Projector, ...]:
    """The projectors themselves, if they are such and have a name of their own each."""
    if isinstance(projectors, (str, bytes, Mapping)) or not isinstance(projectors, Iterable):
        raise WrongType("projectors", "a list of Projectors", projectors)
    known: dict[str, Projector] = {}
    for one in projectors:
        if isinstance(one, type) or not isinstance(one, Projector):
            raise WrongType("projectors", "Projectors only", one, "give it a name and project(…)")
        name = check_text(one.name, "projector name")
        if name in known:
            raise Invalid("projectors", f"has {name!r} twice", "give one of them another name")
        check_count(_retry_ms(one), f"projector {name!r}: retry_ms")
        known[name] = one
    return tuple(known.values())


def _retry_ms(projector: Projector) -> int:
    retry_ms: int = getattr(projector, "retry_ms", RETRY_MS)
    return retry_ms


def _needs_confirmation(projector: Projector) -> bool:
    return bool(getattr(projector, "confirmed", False))


def _due_span(
    projector: Projector, memory: Memory, thread: Thread, now: int, backoff: bool
) -> tuple[int, int] | None:
    """The first and the last position that the projector would read now."""
    size, retry_ms = len(thread.entries), _retry_ms(projector)
    mark = read_cursor(memory, projector.name, thread.id, now)
    if mark.next_seq >= size or mark.is_in_flight(now, retry_ms):
        return None
    if backoff and mark.is_backing_off(now, retry_ms):
        return None
    last = size - 1
    return mark.next_seq, min(last, mark.next_seq + MAX_BATCH - 1) if _needs_confirmation(projector) else last


def _run(
    projector: Projector, memory: Memory, thread: Thread, ctx: ProjectionContext
) -> tuple[Memory, list[Directive]]:
    first, last = ctx.since, ctx.fresh[-1].seq
    mark = read_cursor(memory, projector.name, thread.id, ctx.now)
    new, directives = _validate_result(projector.project(memory, thread, ctx), projector.name, memory)
    asked = [one for one in directives if isinstance(one, (MemoryQuery, MemoryUpsert, MemoryDelete))]
    if _needs_confirmation(projector) and asked:
        requests = {one.request_id: [first, last, ctx.now] for one in asked}
        if len(requests) != len(asked):
            raise Invalid("request_id", "is the same twice", "leave it out, so that each has its own")
        mark = mark.with_requests(requests, ctx.now)
    else:
        mark = mark.advance(first, last, ctx.now)
    return write_cursor(new, projector.name, mark, ctx.now), directives


def _validate_result(result: Any, name: str, before: Memory) -> tuple[Memory, list[Directive]]:
    """What a projector returned, if it is what it may return."""
    directives: Any = ()
    if isinstance(result, tuple) and len(result) == 2:
        result, directives = result
    if not isinstance(result, Memory):
        raise WrongType(f"the result of {name!r}", "a Memory, or (memory, [directives])", result)
    if result.id != before.id:
        raise Invalid(f"the memory of {name!r}", "is another one", "change the one that was given")
    if isinstance(directives, (str, bytes)) or not isinstance(directives, Sequence):
        raise WrongType(f"the directives of {name!r}", "a list", directives)
    for one in directives:
        if not isinstance(one, Directive):
            raise WrongType(f"the directives of {name!r}", "Directives only", one)
    return result, list(directives)


def _clamp_cursor(projector: Projector, memory: Memory, thread: Thread, now: int) -> Memory:
    """A thread that lost its end, as one from a backup may have, is covered only as far as it goes."""
    mark = read_cursor(memory, projector.name, thread.id, now)
    size = len(thread.entries)
    if mark.next_seq <= size:
        return memory
    shorter = ProjectionCursor(thread=thread.id, at=now, covers_seq=[0, size - 1] if size else EMPTY_LIST)
    return write_cursor(memory, projector.name, shorter, now)


def _record_failure(projector: Projector, memory: Memory, thread: Thread, now: int) -> Memory:
    with suppress(OmoideError):
        mark = read_cursor(memory, projector.name, thread.id, now)
        return write_cursor(memory, projector.name, mark.with_failure(now), now)
    return memory
