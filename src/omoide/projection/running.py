"""How are projectors run, so that each entry counts once?

Each projector gets what its mark does not cover yet, and the mark moves in the same memory. One that fails is
reported, and the others run all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from omoide import clock
from omoide.core import slot
from omoide.core.agent import Agent, at, check_agent
from omoide.core.directives import Directive, MemoryDelete, MemoryQuery, MemoryUpsert
from omoide.core.frozen import EMPTY_LIST, EMPTY_MAP, freeze_map
from omoide.core.memory import Memory
from omoide.core.running import failure
from omoide.core.texts import check_text
from omoide.core.thread import Thread
from omoide.core.value import check_count
from omoide.errors import Invalid, OmoideError, WrongType
from omoide.projection import marks
from omoide.projection.marks import Mark
from omoide.projection.projector import ProjectionContext, Projector

RETRY_MS = 60_000
"""How long an answer is waited for, unless the projector says otherwise."""
MOST = 1_000
"""How many entries a projector that waits for answers gets at once."""


def project(
    agent: Agent,
    projectors: Iterable[Projector],
    *,
    now: int | None = None,
    config: Mapping[str, Any] = EMPTY_MAP,
    patient: bool = False,
) -> tuple[Agent, list[Directive]]:
    """The agent with what is new in its thread projected into its memory, and the directives for the rest.

    A failure is an `Error` among the directives. With `patient`, a projector that failed is left alone for a
    while.
    """
    check_agent(agent)
    known, settings = check_projectors(projectors), freeze_map(config, "config")
    thread = slot.THREAD.get(agent)
    if thread is None:
        return agent, []
    before = memory = slot.MEMORY.value(agent)
    directives: list[Directive] = []
    with at(now):
        moment = clock.now()
        for projector in known:
            span = _due(projector, memory, thread, moment, patient)
            try:
                if span is None:
                    memory = _shortened(projector, memory, thread, moment)
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
                directives.append(failure(error, "projection", projector.name))
                memory = _noted(projector, memory, thread, moment)
    return (agent if memory is before else slot.MEMORY.put(agent, memory)), directives


def waiting(agent: Agent, projectors: Iterable[Projector], *, now: int | None = None) -> int:
    """How many entries wait for the projector that has most to do, those that wait themselves aside."""
    thread = slot.THREAD.get(check_agent(agent))
    if thread is None:
        return 0
    moment, memory = clock.resolve(now), slot.MEMORY.value(agent)
    spans = [_due(projector, memory, thread, moment, True) for projector in projectors]
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


def _confirmed(projector: Projector) -> bool:
    return bool(getattr(projector, "confirmed", False))


def _due(
    projector: Projector, memory: Memory, thread: Thread, now: int, patient: bool
) -> tuple[int, int] | None:
    """The first and the last position that the projector would read now."""
    size, retry_ms = len(thread.entries), _retry_ms(projector)
    mark = marks.read(memory, projector.name, thread.id, now)
    if mark.next_seq >= size or mark.in_flight(now, retry_ms):
        return None
    if patient and mark.just_failed(now, retry_ms):
        return None
    last = size - 1
    return mark.next_seq, min(last, mark.next_seq + MOST - 1) if _confirmed(projector) else last


def _run(
    projector: Projector, memory: Memory, thread: Thread, ctx: ProjectionContext
) -> tuple[Memory, list[Directive]]:
    first, last = ctx.since, ctx.fresh[-1].seq
    mark = marks.read(memory, projector.name, thread.id, ctx.now)
    new, directives = _checked(projector.project(memory, thread, ctx), projector.name, memory)
    asked = [one for one in directives if isinstance(one, (MemoryQuery, MemoryUpsert, MemoryDelete))]
    if _confirmed(projector) and asked:
        requests = {one.request_id: [first, last, ctx.now] for one in asked}
        if len(requests) != len(asked):
            raise Invalid("request_id", "is the same twice", "leave it out, so that each has its own")
        mark = mark.asking(requests, ctx.now)
    else:
        mark = mark.covering(first, last, ctx.now)
    return marks.write(new, projector.name, mark, ctx.now), directives


def _checked(result: Any, name: str, before: Memory) -> tuple[Memory, list[Directive]]:
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


def _shortened(projector: Projector, memory: Memory, thread: Thread, now: int) -> Memory:
    """A thread that lost its end, as one from a backup may have, is covered only as far as it goes."""
    mark = marks.read(memory, projector.name, thread.id, now)
    size = len(thread.entries)
    if mark.next_seq <= size:
        return memory
    shorter = Mark(thread=thread.id, at=now, covers_seq=[0, size - 1] if size else EMPTY_LIST)
    return marks.write(memory, projector.name, shorter, now)


def _noted(projector: Projector, memory: Memory, thread: Thread, now: int) -> Memory:
    with suppress(OmoideError):
        mark = marks.read(memory, projector.name, thread.id, now)
        return marks.write(memory, projector.name, mark.failing(now), now)
    return memory
