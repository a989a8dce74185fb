"""What does it cost to keep a memory and to get it back, and does that depend on how many there are?

Each figure stands beside that of a bare script over the same items. Vectors are ready before the clock runs;
what a user has to make for a call, such as the request, is made while it runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter_ns

import anyio

from bench import corpus, power
from bench.both import ASKED, BATCH, Both, newest, within
from bench.measure import Report, Work, in_turn, side_by_side

Turn = tuple[str, str]


def run(report: Report, *, full: bool) -> None:
    """All tables of the stores; with `full`, at a million as well."""
    taken = {}
    for size in (1_000, 100_000, 1_000_000) if full else (1_000, 100_000):
        with TemporaryDirectory(prefix="omoide-bench-") as folder:
            both = Both(Path(folder), size)
            taken[size] = newest_of_type(report, both)
            if size > 1_000:
                recall_in_session(report, both)
                recall_everywhere(report, both)
                remember(report, both)
                recall_after_write(report, both)
                awaited(report, both)
            both.close()
    report.title("newest 10 of a type, whatever the size")
    slowest = max(taken.values())
    report.goal("newest 10: of the 50 µs allowed", slowest / 50_000, 1, at_most=True)
    report.goal("newest 10: the slowest, of that at 1,000", slowest / taken[1_000], 1.5, at_most=True)
    power.run(report)


def newest_of_type(report: Report, both: Both) -> float:
    """The price of building, then the newest ten of a type; nanoseconds of ours."""
    report.title(f"import of {both.size:,} memories, {BATCH:,} at a time")
    for name, ns in both.build().items():
        report.row(name, ns, f"each; {1e9 / ns:,.0f} a second")
    report.title(f"newest 10 of a type, of {both.size:,} memories")
    kinds, session = cycle(corpus.TYPES), both.sample[-1].session
    got = side_by_side(
        {
            "ours": lambda: both.ours.query(newest(next(kinds))),
            "ours, in a session": lambda: both.ours.query(newest(next(kinds), session)),
            "bare script": lambda: both.bare.newest(next(kinds)),
        }
    )
    _rows(report, got)
    return got["ours"]


def recall_in_session(report: Report, both: Both) -> None:
    """Five memories of a session never asked before, of one of many, and of the same one again."""
    report.title(f"hybrid recall inside a session, {corpus.PER_SESSION} of {both.size:,} memories")
    found, given = both.questions()
    turns = [*{item.session: (item.session, text) for item, text in islice(found, ASKED)}.values()]
    asked, more = both.questions([*corpus.items(corpus.PER_SESSION)])
    again = [(item.session, text) for item, text in islice(asked, ASKED)]
    given |= more

    def pair(turns: Iterable[Turn]) -> dict[str, Work]:
        mine, others = cycle(turns), cycle(turns)

        def bare() -> object:
            session, text = next(others)
            return both.bare.recall_in(session, *given[text])

        return {"ours": lambda: both.ours.recall(within(*next(mine))), "bare script": bare}

    cold = in_turn(pair(turns), len(turns))
    many = side_by_side(pair(turns))
    same = side_by_side(pair(again))
    for name, got in (("first use", cold), ("in turn", many), ("the same", same)):
        _rows(report, got, f", {name}")
    for name, got in (("a session's first recall", cold), ("a session in use", same)):
        report.goal(f"{name}, of the bare script", got["ours"] / got["bare script"], 4, at_most=True)


def recall_everywhere(report: Report, both: Both) -> None:
    """Five memories out of all."""
    report.title(f"hybrid recall over {both.size:,} memories")
    found, given = both.questions()
    start = perf_counter_ns()
    both.bare.load()
    middle = perf_counter_ns()
    both.ours.recall(within(None, next(found)[1]))
    report.row("ours: the first, which builds the index", perf_counter_ns() - middle)
    report.row("bare script: building the index", middle - start)
    got = side_by_side(
        {
            "ours": lambda: both.ours.recall(within(None, next(found)[1])),
            "bare script": lambda: both.bare.recall(*given[next(found)[1]]),
        }
    )
    _rows(report, got)
    if both.size == 100_000:
        report.goal("recall over all, of the bare script", got["ours"] / got["bare script"], 2, at_most=True)
    right = bare = 0
    for _ in range(100):
        item, text = next(found)
        answer = both.ours.recall(within(None, text))
        right += any(entry.content == item.text for entry in answer.entries)
        bare += any(row[3] == item.text for row in both.bare.recall(*given[text]))
    print(f"  what was asked about is among the five: ours {right} %, bare script {bare} %")


def remember(report: Report, both: Both) -> None:
    """One memory at a time, each safe from a crash of the process."""
    report.title(f"remember one, crash-safe, beside {both.size:,} memories")
    got = side_by_side(writes(both))
    _rows(report, got)
    report.goal("remember one, of the bare script", got["ours"] / got["bare script"], 3, at_most=True)


def writes(both: Both) -> dict[str, Work]:
    """Single writes to either."""
    requests, items = both.further()
    return {
        "ours": lambda: both.ours.write(next(requests)),
        "bare script": lambda: both.bare.add(*next(items)),
    }


def recall_after_write(report: Report, both: Both) -> None:
    """A recall right after a write, as agents do it: what is held in memory has to follow."""
    report.title(f"recall after a write, beside {both.size:,} memories")
    requests, _ = both.further()
    found, _ = both.questions()
    session = next(requests).entry.session_id

    def after(where: str | None) -> float:
        work = {"recall": lambda: both.ours.recall(within(where, next(found)[1]))}
        return in_turn(work, 50, before=lambda: both.ours.write(next(requests)))["recall"]

    report.row("in the session", after(session))
    report.row("over everything", after(None))


def awaited(report: Report, both: Both) -> None:
    """The same through the event loop, which a worker thread keeps free."""
    report.title(f"the price of async, beside {both.size:,} memories")
    got = anyio.run(_rounds, both)
    for name in ("write", "recall in a session"):
        plain, hopped = got[name], got[f"{name}, awaited"]
        report.row(name, plain)
        report.row(f"{name}, awaited", hopped, f"{(hopped - plain) / 1e3:+.0f} µs")


async def _rounds(both: Both) -> dict[str, float]:
    """The best rounds of plain and awaited calls, taken in turn."""
    requests, _ = both.further()
    found, _ = both.questions()
    session = both.sample[0].session

    async def plainly(work: Work) -> object:
        return work()

    def write() -> object:
        return both.ours.write(next(requests))

    def recall() -> object:
        return both.ours.recall(within(session, next(found)[1]))

    works: dict[str, Callable[[], Awaitable[object]]] = {
        "write": lambda: plainly(write),
        "write, awaited": lambda: both.store.write(next(requests)),
        "recall in a session": lambda: plainly(recall),
        "recall in a session, awaited": lambda: both.store.recall(within(session, next(found)[1])),
    }
    best = dict.fromkeys(works, float("inf"))
    for _ in range(9):
        for name, work in works.items():
            start = perf_counter_ns()
            for _ in range(100):
                await work()
            best[name] = min(best[name], (perf_counter_ns() - start) / 100)
    return best


def _rows(report: Report, got: dict[str, float], of: str = "") -> None:
    for name, ns in got.items():
        report.row(f"{name}{of}", ns, f"{ns / got['bare script']:.2f}× the bare script")
