"""What does each part of a Session turn cost?

A turn of a Session with everything off, and the same with one part each: values, messages, turns before it,
memories, pins, captures. They take turns, call by call, each with a session of its own that is new in every
round. A part that the prompt does not show stops the run, so no row measures nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import anyio

from bench import corpus
from bench.both import AGENT, Both
from bench.measure import Report
from bench.turns import ANSWER, CALLS, SIZE, Steps, answer, rounds
from omoide import AgentSpec, Session
from omoide.shortterm import TokenBudget

ROUNDS = 5
TEN = 10
FEW = 5
TOLD = 30
SMALL = TokenBudget(total=700, conversation=300, context=300)

Fill = Callable[[Session], Awaitable[object]]


async def put_values(session: Session) -> None:
    """Put ten values into the working context."""
    for number in range(TEN):
        session.context.put(f"value {number}", f"number {number}", source="tool", confidence=1.0)


async def add_messages(session: Session) -> None:
    """Add ten messages that belong to no turn."""
    for number in range(TEN):
        await session.add_message("user", f"Message {number} from elsewhere.")


async def tell(session: Session) -> None:
    """Have thirty turns before the first that is measured."""
    for number in range(TOLD):
        await session.run(f"We decided to use database {number}, because it is fast enough for all of it.")


async def remember_few(session: Session) -> None:
    """Remember five things that every question is about."""
    for number in range(FEW):
        await session.remember(f"The user likes tea number {number} of the shop.")


async def pin_few(session: Session) -> None:
    """Remember five things, and pin five others."""
    await remember_few(session)
    for number in range(FEW):
        receipt = await session.remember(f"Answer in the manner number {number}.")
        await session.pin(receipt.entry.id)


class Part(NamedTuple):
    """A part of a turn: the policy and budget that it needs, what fills it, what the prompt shows of it."""

    name: str
    shown: str | None = None
    fill: Fill | None = None
    memory: dict[str, Any] | None = None
    budget: TokenBudget | None = None
    put: bool = False
    beside: str | None = None
    """Another part that it cannot be without."""
    wide: bool = False
    """True where it recalls from all memories of the benchmark."""


OFF = "a turn of a Session with everything off"
FOUND = "five memories of five, in the instructions"
LOOSE = {"min_relevance": None}

PARTS = (
    Part(OFF),
    Part("ten values of the working context", "context", put_values),
    Part("a value that is put before the turn", "context", put=True),
    Part("ten messages added", "messages", add_messages),
    Part("thirty turns before it", "history", tell),
    Part("thirty turns before it, mostly in a summary", "summary", tell, budget=SMALL),
    Part(FOUND, "memory", remember_few, LOOSE),
    Part("the same in a message", "memory", remember_few, {**LOOSE, "inject": "message"}, beside=FOUND),
    Part("the same of 10,000", "memory", None, LOOSE, beside=FOUND, wide=True),
    Part("five pins", "pinned", pin_few, LOOSE, beside=FOUND),
    *(
        Part(f"capture {capture!r}", "memory", remember_few, {**LOOSE, "capture": capture}, beside=FOUND)
        for capture in ("user", "messages", "conversation")
    ),
)


def run(report: Report) -> None:
    """The cost of each part, in milliseconds and as a ratio of the turn without it."""
    report.title(f"each part of a Session turn alone, the first {CALLS} turns")
    with TemporaryDirectory(prefix="omoide-bench-") as folder:
        both = Both(Path(folder), SIZE)
        both.build()
        taken = anyio.run(rounds, both, partial(_sessions, numbers=count()), ROUNDS, Random(corpus.SEED))
        both.close()
    for part in PARTS:
        ns = taken[part.name]
        note = f"{ns / taken[OFF]:.2f}× everything off, {(ns - taken[OFF]) / 1e6:+.2f} ms"
        if part.beside is not None:
            note += f"; {(ns - taken[part.beside]) / 1e6:+.2f} ms beside five memories"
        report.row(part.name, ns, note)


async def _sessions(both: Both, numbers: count[int]) -> Steps:
    both.embedder.prepare([ANSWER])
    return {part.name: await _step(both, part, next(numbers)) for part in PARTS}


async def _step(both: Both, part: Part, number: int) -> Callable[[str], Awaitable[object]]:
    """Start the session of a part, and make sure that its prompt shows the part."""
    agent = AGENT if part.wide else f"{AGENT}-{number}"
    spec = AgentSpec(id=agent, instructions="Answer from memory.", memory=part.memory or False)
    session = await Session.start(spec, store=both.store, model=answer, token_budget=part.budget)
    if part.fill is not None:
        await part.fill(session)
    step = partial(_put_and_run, session) if part.put else session.run
    if part.put:
        session.context.put("step", 0, source="tool", confidence=1.0)
    tokens = (await session.preflight("Which tea does the user like?")).prompt.tokens
    if part.shown is not None and not tokens.get(part.shown):
        raise RuntimeError(f"{part.name}: the prompt shows nothing of {part.shown}, but {dict(tokens)}")
    return step


async def _put_and_run(session: Session, text: str) -> None:
    session.context.put("step", text, source="tool", confidence=1.0)
    await session.run(text)
