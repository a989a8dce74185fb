"""Run the benchmarks: `python -m bench [--full]`. Exits with 1 when a goal is missed."""

from __future__ import annotations

import argparse
import platform
import sys

from bench import core, start
from bench.measure import Report


def main() -> int:
    """Run everything and say which goals were missed."""
    parser = argparse.ArgumentParser(prog="bench", description="Ratios, measured side by side in one run.")
    parser.add_argument("--full", action="store_true", help="add what others would do")
    full = parser.parse_args().full
    print(f"Python {platform.python_version()}, {platform.machine()}; best of several rounds taken in turn")
    report = Report()
    start.run(report)
    core.run(report, full=full)
    print(f"\n{len(report.missed)} goals missed" + "".join(f"\n  {what}" for what in report.missed))
    return 1 if report.missed else 0


if __name__ == "__main__":
    sys.exit(main())
