"""Run the benchmarks: `python -m bench [--full] [--check]`."""

from __future__ import annotations

import argparse
import platform
import sys

from bench import core, graph, living, peers, postgres, sessions, start, stores, truth, turns, web
from bench.measure import Report


def main() -> int:
    """Run everything and say which goals were missed."""
    parser = argparse.ArgumentParser(prog="bench", description="Ratios, measured side by side in one run.")
    parser.add_argument("--full", action="store_true", help="a million memories, and what others do")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a goal is missed")
    chosen = parser.parse_args()
    print(f"Python {platform.python_version()}, {platform.machine()}; best of several rounds taken in turn")
    report = Report()
    start.run(report)
    core.run(report, full=chosen.full)
    stores.run(report, full=chosen.full)
    turns.run(report)
    truth.run(report)
    graph.run(report, full=chosen.full)
    sessions.run(report)
    living.run(report)
    web.run(report)
    postgres.run(report, full=chosen.full)
    if chosen.full:
        peers.run(report)
    print(f"\n{len(report.missed)} goals missed" + "".join(f"\n  {what}" for what in report.missed))
    if report.missed:
        print("Goals are ratios, but a busy machine can still miss one: run it again when nothing else does.")
    return 1 if report.missed and chosen.check else 0


if __name__ == "__main__":
    sys.exit(main())
