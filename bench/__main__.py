"""Run the benchmarks: `python -m bench [--full] [--check] [--only PART …]`."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Callable
from functools import partial

from bench import core, graph, living, parts, peers, postgres, sessions, start, stores, truth, turns, web
from bench.measure import Report


def main() -> int:
    """Run everything and say which goals were missed."""
    parser = argparse.ArgumentParser(prog="bench", description="Ratios, measured side by side in one run.")
    parser.add_argument("--full", action="store_true", help="a million memories, and what others do")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a goal is missed")
    names = [*_measurements(full=False)]
    parser.add_argument("--only", choices=names, nargs="+", metavar="PART", help="of " + ", ".join(names))
    chosen = parser.parse_args()
    print(f"Python {platform.python_version()}, {platform.machine()}; best of several rounds taken in turn")
    report = Report()
    usual = [name for name in names if name != "peers" or chosen.full]
    for name, measure in _measurements(full=chosen.full).items():
        if name in (chosen.only or usual):
            measure(report)
    print(f"\n{len(report.missed)} goals missed" + "".join(f"\n  {what}" for what in report.missed))
    if report.missed:
        print("Goals are ratios, but a busy machine can still miss one: run it again when nothing else does.")
    return 1 if report.missed and chosen.check else 0


def _measurements(full: bool) -> dict[str, Callable[[Report], None]]:
    """The parts of the benchmark in their order."""
    return {
        "start": start.run,
        "core": partial(core.run, full=full),
        "stores": partial(stores.run, full=full),
        "turns": turns.run,
        "parts": parts.run,
        "truth": truth.run,
        "graph": partial(graph.run, full=full),
        "sessions": sessions.run,
        "living": living.run,
        "web": web.run,
        "postgres": partial(postgres.run, full=full),
        "peers": peers.run,
    }


if __name__ == "__main__":
    sys.exit(main())
