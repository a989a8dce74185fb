"""What does a turn cost beside its model?

A turn recalls, assembles the prompt and captures what was said, around a model that answers at once. It
stands beside a program that only recalls and writes the same. Both are awaited and write to the same store,
and vectors are ready before the clock runs. `bench.parts` has what each part of a Session turn costs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from statistics import quantiles
from tempfile import TemporaryDirectory
from time import perf_counter_ns

import anyio

from bench import corpus
from bench.both import AGENT, Both, within
from bench.measure import Report, side_by_side
from omoide import Entry, Session, WriteRequest, turn
from omoide.turns import Exchange, Message
from omoide.turns.prompt import assemble
from omoide.turns.spec import AgentSpec

SIZE = 10_000
ROUNDS = 7
CALLS = 25
ANSWER = "That was said some time ago."
SPEC = AgentSpec(id=AGENT, instructions="Answer from memory.", memory={"capture": "conversation"})
OF_SESSION = SPEC.replace(memory={"capture": "conversation", "scope": "session"})
BARE = "recall and write"
IN_SESSION = f"a turn of a Session, the first {CALLS}"

Steps = dict[str, Callable[[str], Awaitable[object]]]


def run(report: Report) -> None:
    """The overhead of a turn, and the price of a prompt in a long conversation."""
    with TemporaryDirectory(prefix="omoide-bench-") as folder:
        both = Both(Path(folder), SIZE)
        both.build()
        report.title(f"a turn without its model, beside {SIZE:,} memories")
        wide = _table(report, anyio.run(rounds, both, _everything))
        report.goal("a turn, of bare recall and write", wide["a turn"] / wide[BARE], 2, at_most=True)
        report.goal("a Session turn, of the same", wide[IN_SESSION] / wide[BARE], 2.2, at_most=True)
        report.title(f"the same with the memory of a session, {corpus.PER_SESSION} of {SIZE:,}")
        _table(report, anyio.run(rounds, both, _in_session))
        prompts(report, both)
        both.close()


def prompts(report: Report, both: Both) -> None:
    """Putting a prompt together, with conversations of three lengths before it."""
    report.title("assemble alone, with five memories")
    (_, text), *_ = corpus.questions(both.sample, 1)
    recalled = both.ours.recall(within(None, text))
    for turns in (0, 100, 1_000):
        put = partial(assemble, SPEC, text, recalled=recalled, history=_conversation(turns))
        report.row(f"{turns:>5,} turns before it", side_by_side({"ours": put})["ours"])


def _table(report: Report, got: dict[str, float]) -> dict[str, float]:
    for name, ns in got.items():
        report.row(name, ns, f"{ns / got[BARE]:.2f}× the bare calls, {(ns - got[BARE]) / 1e6:+.2f} ms")
    return got


async def rounds(
    both: Both,
    contenders: Callable[[Both], Awaitable[Steps]],
    repeats: int = ROUNDS,
    order: Random | None = None,
) -> dict[str, float]:
    """Single calls taken in turn, every question asked once; the lower quartile of each.

    One after the other, not in blocks: a busy machine slows recall over everything for longer than a block
    takes, and whoever is measured then would look slow. Each writes once, so every recall has one write
    to catch up with. An order mixes them anew each time, so that nobody always comes after the dearest.
    """
    numbers = count()
    taken: dict[str, list[float]] = {}
    for _ in range(repeats):
        steps = await contenders(both)
        texts = {name: _prepared(both, numbers) for name in steps}
        for at in range(CALLS):
            turns = [*steps.items()]
            if order is not None:
                order.shuffle(turns)
            for name, step in turns:
                start = perf_counter_ns()
                await step(texts[name][at])
                taken.setdefault(name, []).append(perf_counter_ns() - start)
    return {name: quantiles(times, n=4)[0] for name, times in taken.items()}


async def _everything(both: Both) -> Steps:
    """Over all that the agent knows; the session is a new one each time, for its conversation grows."""
    session = await Session.start(SPEC, store=both.store, model=answer)
    return {
        BARE: partial(_bare, both),
        "a turn": partial(turn, SPEC, model=answer, store=both.store),
        IN_SESSION: session.run,
    }


async def _in_session(both: Both) -> Steps:
    """Over what one session holds."""
    place = both.sample[0].session
    asking = partial(turn, OF_SESSION, model=answer, store=both.store, session_id=place)
    return {BARE: partial(_bare, both, session=place), "a turn": asking}


async def _bare(both: Both, text: str, session: str | None = None) -> None:
    await both.store.recall(within(session, text))
    entry = Entry(agent_id=AGENT, session_id=session, content=_captured(text))
    await both.store.write(WriteRequest(entry=entry))


def answer(request: object, journal: object) -> str:
    """Answer at once."""
    return ANSWER


def _captured(text: str) -> str:
    return f"User: {text}\nAssistant: {ANSWER}"


def _prepared(both: Both, numbers: count[int]) -> list[str]:
    """Questions that nobody asked yet, with the vectors of all that will be embedded."""
    texts = [f"{text} {next(numbers)}" for _, text in corpus.questions(both.sample, CALLS)]
    both.embedder.prepare([*texts, *map(_captured, texts)])
    return texts


def _conversation(turns: int) -> tuple[Exchange, ...]:
    said = [(item.text, ANSWER) for item in corpus.items(turns)]
    return tuple(
        Exchange(
            request_id=f"req_{at}",
            messages=(Message(role="user", content=asked), Message(role="assistant", content=answer)),
        )
        for at, (asked, answer) in enumerate(said)
    )
