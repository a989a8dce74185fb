"""Run projectors, which compile the thread of an agent into its memory.

A projector is pure: it reads entries of the thread and returns another memory, with directives for what has
to be done elsewhere. Its cursor lies in the agent's memory, in the space `omoide:projection`, and advances in
the same value as what was projected, so that neither can be lost without the other. A projector that fails is
reported, and the others run all the same; an entry on which it fails again and again is skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec

from omoide import clock
from omoide.core import state
from omoide.core.action import Directive, Error, MemoryDelete, MemoryQuery, MemoryUpsert
from omoide.core.agent import Agent, check_agent, clock_at
from omoide.core.codec import ListField, MapField
from omoide.core.definition import error_directive
from omoide.core.frozen import EMPTY_LIST, EMPTY_MAP, FrozenMap, check_text, freeze_map
from omoide.core.memory import Memory
from omoide.core.thread import Thread, ThreadEntry
from omoide.core.value import Count, Id, Millis, Value, check_count
from omoide.errors import Invalid, OmoideError, WrongType
from omoide.shortterm.memory import ROLES

SPACE = "omoide:projection"
"""The space of the memory with the cursors, by the names of the projectors."""


class ProjectionCursor(Value, frozen=True, kw_only=True):
    """The position of a projector in one thread."""

    thread: Id
    at: Millis
    """Time of its last change."""
    covers_seq: ListField = EMPTY_LIST
    """The first and the last position covered; empty at the start."""
    pending: MapField = EMPTY_MAP
    """Requests without an answer: `[first, last, at]` by request id."""
    kept: bool = False
    """True if a provider stored anything of the current requests."""
    broken: bool = False
    """True if one of the current requests failed as a whole."""
    missed: ListField = EMPTY_LIST
    """The keys of the current requests that a provider did not store."""
    refused: MapField = EMPTY_MAP
    """Number of times that a provider refused each key while it stored others."""
    failures: Count = 0
    """Failures since the cursor last advanced."""
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
        """Return the cursor after a covered span, without pending requests and failures."""
        start = int(self.covers_seq[0]) if self.covers_seq else first
        return ProjectionCursor(thread=self.thread, at=at, covers_seq=[start, last])

    def with_requests(self, requests: Mapping[str, list[int]], at: int) -> ProjectionCursor:
        """Return the cursor with these pending requests in place of older ones."""
        return self.replace(pending=requests, at=at, kept=False, broken=False, missed=EMPTY_LIST)

    def with_failure(self, at: int) -> ProjectionCursor:
        """Return the cursor at the same position with one failure more and nothing pending."""
        return self.with_requests({}, at).replace(failures=self.failures + 1, failed_at=at)

    def is_in_flight(self, now: int, retry_ms: int) -> bool:
        """Return True if answers are awaited; none are after the clock was set back."""
        return any(0 <= now - span[2] < retry_ms for span in self.pending.values())

    def is_backing_off(self, now: int, retry_ms: int) -> bool:
        """Return True if the last failure was less than `retry_ms` ago."""
        return self.failed_at is not None and 0 <= now - self.failed_at < retry_ms


def read_cursor(memory: Memory, name: str, thread_id: str, now: int) -> ProjectionCursor:
    """Return the cursor of a projector for a thread; a new one if there is none that can be read."""
    value = _cursors(memory).get(name)
    cursor = None if value is None else _parse_cursor(value)
    # The positions of another thread have no meaning in this one.
    if cursor is None or cursor.thread != thread_id:
        return ProjectionCursor(thread=thread_id, at=now)
    return cursor


def iter_cursors(memory: Memory) -> Iterator[tuple[str, ProjectionCursor]]:
    """Yield the readable cursors with the names of their projectors."""
    for name, value in _cursors(memory).items():
        cursor = _parse_cursor(value)
        if cursor is not None:
            yield name, cursor


def write_cursor(memory: Memory, name: str, cursor: ProjectionCursor, now: int) -> Memory:
    """Return the memory with a cursor in it."""
    # Defaults are left out: cursors are part of the agent's state, and of each checkpoint of it.
    plain = {
        field.name: getattr(cursor, field.name)
        for field in msgspec.structs.fields(ProjectionCursor)
        if getattr(cursor, field.name) != field.default
    }
    return memory.ensure_space(SPACE, {}, now=now).put_in_space(SPACE, name, plain, now=now)


def _cursors(memory: Memory) -> FrozenMap[str, Any]:
    space = memory.space(SPACE)
    return space.data if space is not None and isinstance(space.data, FrozenMap) else EMPTY_MAP


def _parse_cursor(value: object) -> ProjectionCursor | None:
    """Parse a cursor; None for anything else, because actions may write to the space as well."""
    if not isinstance(value, FrozenMap):
        return None
    try:
        return ProjectionCursor(**value)
    except (OmoideError, TypeError):
        return None


def _check_span(span: Any, field: str, size: int) -> None:
    if isinstance(span, (str, Mapping)) or len(span) != size:
        raise Invalid(field, "is not a span", f"use {size} numbers")
    for number in span:
        check_count(number, field)
    if span[0] > span[1]:
        raise Invalid(field, "ends before it begins", "do not write cursors yourself")


MESSAGE_KINDS = ("message",)
"""Default kinds of thread entries that projectors read."""

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
    """A message of the thread: its entry, role and text."""

    entry: ThreadEntry
    role: str
    text: str


def messages_in(
    entries: Iterable[ThreadEntry], kinds: tuple[str, ...] = MESSAGE_KINDS
) -> Iterator[ThreadMessage]:
    """Yield the messages with a text among entries; without a role they are the user's."""
    for entry in entries:
        text = entry.payload.get("content", entry.payload.get("text"))
        if entry.kind in kinds and isinstance(text, str) and text.strip():
            role = str(entry.payload.get("role", "user")).lower()
            yield ThreadMessage(entry, role if role in ROLES else _ROLE_ALIASES.get(role, "user"), text)


ProjectorResult: TypeAlias = Memory | tuple[Memory, Sequence[Directive]]


class ProjectionContext(msgspec.Struct, frozen=True, kw_only=True):
    """The context of one run of a projector."""

    agent_id: str
    now: int
    """Time of the run in milliseconds."""
    since: int
    """Position of the first entry that this projector has not covered yet."""
    fresh: tuple[ThreadEntry, ...]
    """The entries from there on; never empty."""
    config: FrozenMap[str, Any] = EMPTY_MAP


@runtime_checkable
class Projector(Protocol):
    """Compiles entries of a thread into a memory.

    The name identifies its cursor. With `confirmed = True` entries are covered once memory providers have
    answered all of its requests; it may get the same entries again, and must use the same keys for them.
    `retry_ms` is how long it waits for answers, and after a failure.
    """

    @property
    def name(self) -> str:
        """Name that is unique among the projectors of an agent."""

    def project(self, memory: Memory, thread: Thread, ctx: ProjectionContext) -> ProjectorResult:
        """Return the memory with the fresh entries projected, optionally with directives."""


RETRY_MS = 60_000
"""Default time to wait for an answer."""
MAX_BATCH = 1_000
"""Entries that a projector with `confirmed` gets at once."""
MAX_TRIES = 3
"""Runs in which a projector may fail on an entry before the entry is skipped."""


def project(
    agent: Agent,
    projectors: Iterable[Projector],
    *,
    now: int | None = None,
    config: Mapping[str, Any] = EMPTY_MAP,
    backoff: bool = False,
) -> tuple[Agent, list[Directive]]:
    """Project what is new in the thread of an agent into its memory.

    Args:
        backoff: Skip projectors that failed less than their `retry_ms` ago.

    Returns:
        The new agent, and the directives of the projectors. The failure of a projector is an `Error` among
        them.
    """
    check_agent(agent)
    checked, settings = check_projectors(projectors), freeze_map(config, "config")
    thread = state.THREAD.get(agent)
    if thread is None:
        return agent, []
    # Cursors are part of the memory: what is projected and its cursor change together or not at all.
    before = memory = state.MEMORY.get_or_new(agent)
    directives: list[Directive] = []
    # Projectors, and the memory that they change, see one time.
    with clock_at(now):
        moment = clock.now()
        for projector in checked:
            span = _due_span(projector, memory, thread, moment, backoff)
            try:
                if span is None:
                    memory = _clamp_cursor(projector, memory, thread, moment)
                    continue
                run = _Run(projector, thread, agent.id, moment, settings)
                memory, more = run.project(memory, *span)
                directives += more
            except Exception as error:  # noqa: BLE001 - whatever a projector raises is reported as ours
                directives.append(error_directive(error, "projection", projector.name))
                memory = _record_failure(projector, memory, thread, moment)
    return (agent if memory is before else state.MEMORY.put(agent, memory)), directives


def count_pending(agent: Agent, projectors: Iterable[Projector], *, now: int | None = None) -> int:
    """Return the largest number of entries that a projector would get now."""
    thread = state.THREAD.get(check_agent(agent))
    if thread is None:
        return 0
    moment, memory = clock.resolve(now), state.MEMORY.get_or_new(agent)
    spans = [_due_span(projector, memory, thread, moment, True) for projector in projectors]
    return max((last - first + 1 for first, last in filter(None, spans)), default=0)


def check_projectors(projectors: object) -> tuple[Projector, ...]:
    """Return the projectors as a tuple.

    Raises:
        WrongType: an item is not a projector.
        Invalid: two projectors have the same name.
    """
    if isinstance(projectors, (str, bytes, Mapping)) or not isinstance(projectors, Iterable):
        raise WrongType("projectors", "a list of Projectors", projectors)
    by_name: dict[str, Projector] = {}
    for projector in projectors:
        if isinstance(projector, type) or not isinstance(projector, Projector):
            raise WrongType("projectors", "Projectors only", projector, "give it a name and project(…)")
        name = check_text(projector.name, "projector name")
        if name in by_name:
            raise Invalid("projectors", f"has {name!r} twice", "give one of them another name")
        check_count(_retry_ms(projector), f"projector {name!r}: retry_ms")
        by_name[name] = projector
    return tuple(by_name.values())


def _retry_ms(projector: Projector) -> int:
    retry_ms: int = getattr(projector, "retry_ms", RETRY_MS)
    return retry_ms


def _needs_confirmation(projector: Projector) -> bool:
    return bool(getattr(projector, "confirmed", False))


def _due_span(
    projector: Projector, memory: Memory, thread: Thread, now: int, backoff: bool
) -> tuple[int, int] | None:
    """Return the first and the last position that a projector would read now."""
    size, retry_ms = len(thread.entries), _retry_ms(projector)
    cursor = read_cursor(memory, projector.name, thread.id, now)
    if cursor.next_seq >= size or cursor.is_in_flight(now, retry_ms):
        return None
    if backoff and cursor.is_backing_off(now, retry_ms):
        return None
    # A batch to be confirmed is requested again as a whole after a failure, so its size is limited.
    first, last = cursor.next_seq, size - 1
    return first, min(last, first + MAX_BATCH - 1) if _needs_confirmation(projector) else last


class _Run:
    """One run of a projector, which fails on an entry or gets past it."""

    def __init__(
        self, projector: Projector, thread: Thread, agent_id: str, now: int, config: FrozenMap[str, Any]
    ) -> None:
        self._projector = projector
        self._thread = thread
        self._agent_id = agent_id
        self._now = now
        self._config = config

    def project(self, memory: Memory, first: int, last: int) -> tuple[Memory, list[Directive]]:
        """Project the entries of a span.

        Where the projector fails, the entries before the one that it fails on are projected, and the failure
        is counted. After `MAX_TRIES` of them the entry is skipped, and the run goes on behind it.
        """
        directives: list[Directive] = []
        while first <= last:
            try:
                memory, more = self._project_span(memory, first, last)
                return memory, [*directives, *more]
            except Exception as error:  # noqa: BLE001 - whatever a projector raises is reported as ours
                failed_at, failure = self._find_failure(memory, first, last, error)
            if failed_at > first:
                memory, more = self._project_span(memory, first, failed_at - 1)
                directives += more
            cursor = read_cursor(memory, self._projector.name, self._thread.id, self._now)
            if cursor.failures + 1 < MAX_TRIES or cursor.pending:
                directives.append(error_directive(failure, "projection", self._projector.name))
                if not cursor.pending:
                    memory = _record_failure(self._projector, memory, self._thread, self._now)
                return memory, directives
            directives.append(self._skipped_error(failed_at, failure))
            cursor = cursor.advance(failed_at, failed_at, self._now)
            memory = write_cursor(memory, self._projector.name, cursor, self._now)
            first = failed_at + 1
        return memory, directives

    def _find_failure(self, memory: Memory, start: int, last: int, error: Exception) -> tuple[int, Exception]:
        """Return the end of the shortest span that fails, and its error; projectors are pure, so it tries."""
        low = start
        while low < last:
            middle = (low + last) // 2
            try:
                self._project_span(memory, start, middle)
            except Exception as shorter:  # noqa: BLE001
                last, error = middle, shorter
            else:
                low = middle + 1
        return last, error

    def _project_span(self, memory: Memory, first: int, last: int) -> tuple[Memory, list[Directive]]:
        projector, thread = self._projector, self._thread
        ctx = ProjectionContext(
            agent_id=self._agent_id,
            now=self._now,
            since=first,
            fresh=tuple(thread.slice(first, last)),
            config=self._config,
        )
        # Read before the projector runs, so that it cannot move its own cursor.
        cursor = read_cursor(memory, projector.name, thread.id, ctx.now)
        new, directives = _validate_result(projector.project(memory, thread, ctx), projector.name, memory)
        pending = [one for one in directives if isinstance(one, (MemoryQuery, MemoryUpsert, MemoryDelete))]
        if _needs_confirmation(projector) and pending:
            requests = {one.request_id: [first, last, ctx.now] for one in pending}
            if len(requests) != len(pending):
                raise Invalid("request_id", "is the same twice", "leave it out, so that each has its own")
            # The cursor advances when all answers are in; see `projection_result`.
            cursor = cursor.with_requests(requests, ctx.now)
        else:
            cursor = cursor.advance(first, last, ctx.now)
        return write_cursor(new, projector.name, cursor, ctx.now), directives

    def _skipped_error(self, seq: int, failure: Exception) -> Error:
        name = self._projector.name
        reason = error_directive(failure, "projection", name).message
        return Error(
            message=f"projector {name!r}: entry {seq} of thread {self._thread.id!r} was skipped after "
            f"{MAX_TRIES} tries: {reason}",
            context="projection",
            action=name,
            kind="Skipped",
        )


def _validate_result(result: Any, name: str, before: Memory) -> tuple[Memory, list[Directive]]:
    """Return memory and directives of a result, or raise if it is something else."""
    directives: Any = ()
    if isinstance(result, tuple) and len(result) == 2:
        result, directives = result
    if not isinstance(result, Memory):
        raise WrongType(f"the result of {name!r}", "a Memory, or (memory, [directives])", result)
    if result.id != before.id:
        raise Invalid(f"the memory of {name!r}", "is another one", "return a copy of the memory passed")
    if isinstance(directives, (str, bytes)) or not isinstance(directives, Sequence):
        raise WrongType(f"the directives of {name!r}", "a list", directives)
    for directive in directives:
        if not isinstance(directive, Directive):
            raise WrongType(f"the directives of {name!r}", "Directives only", directive)
    return result, list(directives)


def _clamp_cursor(projector: Projector, memory: Memory, thread: Thread, now: int) -> Memory:
    """Move a cursor back to the end of a thread that became shorter, as by a restored backup."""
    cursor = read_cursor(memory, projector.name, thread.id, now)
    size = len(thread.entries)
    if cursor.next_seq <= size:
        return memory
    shorter = ProjectionCursor(thread=thread.id, at=now, covers_seq=[0, size - 1] if size else EMPTY_LIST)
    return write_cursor(memory, projector.name, shorter, now)


def _record_failure(projector: Projector, memory: Memory, thread: Thread, now: int) -> Memory:
    # The cursor cannot be written if an action made the space a list; the failure is reported anyway.
    with suppress(OmoideError):
        cursor = read_cursor(memory, projector.name, thread.id, now)
        return write_cursor(memory, projector.name, cursor.with_failure(now), now)
    return memory
