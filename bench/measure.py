"""How is a ratio measured so that it can be believed?

Contenders take turns in one process, round after round, and the best round of each counts: noise only ever
adds time. Garbage collection is off while the clock runs.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from statistics import quantiles
from time import perf_counter_ns

Work = Callable[[], object]

ROUNDS = 9
TARGET_NS = (
    60_000_000  # about how long one round of one contender takes: long enough for caches to warm up again
)


def side_by_side(contenders: Mapping[str, Work], rounds: int = ROUNDS) -> dict[str, float]:
    """Nanoseconds per call of each contender, the best of several rounds taken in turn."""
    repeats = {name: _repeats(work) for name, work in contenders.items()}
    best = dict.fromkeys(contenders, float("inf"))
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, work in contenders.items():
                best[name] = min(best[name], _timed(work, repeats[name]))
    finally:
        if collecting:
            gc.enable()
    return best


def in_turn(
    contenders: Mapping[str, Work], calls: int, before: Callable[[], object] = lambda: None
) -> dict[str, float]:
    """Nanoseconds of single calls taken in turn, for work that is not the same when repeated.

    The lower quartile counts: a busy machine holds up long calls more often than short ones.
    """
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(calls):
            for name, work in contenders.items():
                before()
                taken[name].append(_timed(work, 1))
    finally:
        if collecting:
            gc.enable()
    return {name: quantiles(times, n=4)[0] for name, times in taken.items()}


def _timed(work: Work, repeats: int) -> float:
    turns = range(repeats)
    start = perf_counter_ns()
    for _ in turns:
        work()
    return (perf_counter_ns() - start) / repeats


def _repeats(work: Work) -> int:
    work()
    once = max(_timed(work, 1), 1)
    return max(1, min(200_000, int(TARGET_NS / once)))


def shown(ns: float) -> str:
    """A time that a person can read."""
    for limit, unit, scale in ((1e3, "ns", 1.0), (1e6, "µs", 1e3), (1e9, "ms", 1e6)):
        if ns < limit:
            return f"{ns / scale:.3g} {unit}"
    return f"{ns / 1e9:.3g} s"


class Report:
    """Prints rows, and remembers which goals were missed."""

    def __init__(self) -> None:
        self.missed: list[str] = []

    def title(self, text: str) -> None:
        """Begin a table."""
        print(f"\n{text}\n{'-' * len(text)}")

    def row(self, what: str, ns: float, note: str = "") -> None:
        """A time, with a remark."""
        print(f"  {what:<46} {shown(ns):>10}  {note}".rstrip())
        sys.stdout.flush()

    def goal(self, what: str, ratio: float, bound: float, *, at_most: bool) -> None:
        """A ratio, and whether it keeps its bound."""
        kept = ratio <= bound if at_most else ratio >= bound
        words = "at most" if at_most else "at least"
        print(f"  {what:<46} {ratio:>9.3g}×  {'ok' if kept else 'MISSED'}: {words} {bound:g}×")
        if not kept:
            self.missed.append(what)
