"""What does it cost to have many agents live?

A hundred agents and ten thousand live in one process, in a runtime each, and are told things in turns; what a
signal costs with the many is compared with what it costs with the few. Senders wait for each answer before
they send again, so that what is measured is the way there and back.
"""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import cycle, islice
from statistics import median, quantiles
from time import perf_counter_ns
from tracemalloc import get_traced_memory
from tracemalloc import start as trace
from tracemalloc import stop as untrace

import anyio

from bench.measure import Report, shown
from omoide import Agent, Context, Definition, Memory, Runtime, Signal, action

FEW, MANY = 100, 10_000
EACH = 100
"""How many signals each of the many gets in all."""
ROUNDS = 10
TOLD = {FEW: 10_000, MANY: MANY * EACH // ROUNDS}
"""How many signals there are in one round."""
SENDERS = 64
GROWTH = 1.5


@action
def note(ctx: Context, n: int) -> Memory:
    """Keep a reading."""
    return ctx.memory.world_put("n", n)


KIND = Definition.new("sensor", routes=[("reading", note)])


def run(report: Report) -> None:
    """Signals to few and to many, and what one more agent costs."""
    report.title(f"{MANY:,} agents in one process, {EACH} signals to each")
    anyio.run(_compared, report)


async def _compared(report: Report) -> None:
    async with AsyncExitStack() as stack:
        held = {count: await _settled(stack, count) for count in (FEW, MANY)}
        report.row("started", held[MANY][2])
        print(f"  {'memory of each, after its first signal':<46} {held[MANY][1] / 1024:>7.1f} kB")
        taken: dict[int, list[float]] = {FEW: [], MANY: []}
        waited: dict[int, list[int]] = {FEW: [], MANY: []}
        for _ in range(ROUNDS):
            for count, (runtime, *_) in held.items():
                gc.collect()
                begun = perf_counter_ns()
                waited[count] += await _told(runtime, TOLD[count])
                taken[count].append((perf_counter_ns() - begun) / TOLD[count])
        for count in held:
            waits = quantiles(waited[count], n=100)
            rate = 1e9 / median(taken[count])
            report.row(f"a signal, {count:,} agents live", median(taken[count]), f"{rate:,.0f} a second")
            worst = f"99 of 100 within {shown(waits[98])}"
            report.row(f"its answer, {SENDERS} senders at once", waits[49], worst)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"  {'the whole process at its largest':<46} {peak:>7.0f} MB")
        grown = median(taken[MANY]) / median(taken[FEW])
        report.goal(f"a signal, {MANY:,} agents of {FEW}", grown, GROWTH, at_most=True)


async def _settled(stack: AsyncExitStack, count: int) -> tuple[Runtime, float, float]:
    """So many agents that have begun to live: their runtime, and the memory and time that each took."""
    runtime = await stack.enter_async_context(Runtime())
    gc.collect()
    trace()
    before, begun = get_traced_memory()[0], perf_counter_ns()
    for number in range(count):
        await runtime.start(Agent.new(KIND, id=f"a{number}"))
    taken = perf_counter_ns() - begun
    await _told(runtime, count)
    gc.collect()
    held = get_traced_memory()[0] - before
    untrace()
    return runtime, held / count, taken / count


async def _told(runtime: Runtime, count: int) -> list[int]:
    """How long each of so many calls took, to one agent after the other."""
    waited: list[int] = []
    work = islice(zip(cycle(runtime.ids()), range(count), strict=False), count)

    async def send(work: Iterator[tuple[str, int]]) -> None:
        for id, n in work:
            begun = perf_counter_ns()
            await runtime.call(id, Signal(type="reading", data={"n": n}))
            waited.append(perf_counter_ns() - begun)

    async with anyio.create_task_group() as senders:
        for _ in range(SENDERS):
            senders.start_soon(send, work)
    return waited
