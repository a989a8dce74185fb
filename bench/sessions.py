"""What does a session cost that nobody talks to?"""

from __future__ import annotations

import gc
import resource
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter_ns
from tracemalloc import get_traced_memory, start, stop

import anyio

from bench.measure import Report
from omoide import AgentSpec, Session, open_store

SESSIONS = 1_000
SPEC = AgentSpec(id="agent", instructions="Answer.", memory={"scope": "session"})


def run(report: Report) -> None:
    """Many sessions open at once, each with its own promotion going on."""
    report.title(f"{SESSIONS:,} sessions open at once, each after one turn")
    anyio.run(_idle, report)


async def _idle(report: Report) -> None:
    with TemporaryDirectory(prefix="omoide-bench-") as folder:
        async with AsyncExitStack() as stack:
            url = f"sqlite:///{Path(folder) / 'm.db'}"
            store = await stack.enter_async_context(open_store(url, embedder="none", durability="crash"))
            await _opened(stack, store, "warm-up")
            gc.collect()
            start()
            before, begun = get_traced_memory()[0], perf_counter_ns()
            for number in range(SESSIONS):
                await _opened(stack, store, f"s{number}")
            taken = perf_counter_ns() - begun
            gc.collect()
            held = get_traced_memory()[0] - before
            stop()
            report.row("opened, and one turn in it", taken / SESSIONS)
            print(f"  {'memory of each':<46} {held / SESSIONS / 1024:>7.1f} kB")
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"  {'the whole process at its largest':<46} {peak:>7.0f} MB")
            begun = perf_counter_ns()
        report.row("closed again", (perf_counter_ns() - begun) / SESSIONS)


async def _opened(stack: AsyncExitStack, store: object, id: str) -> None:
    session = await stack.enter_async_context(Session.open(SPEC, id, store=store, model=_answer))
    await session.chat("We use Phoenix 1.7 for the shop.")
    session.context.put("framework", "Phoenix 1.7", source="tool")


def _answer(request: object, journal: object) -> str:
    return "Noted."
