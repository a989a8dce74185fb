"""What does `import omoide` cost?"""

from __future__ import annotations

import resource
import subprocess
import sys

from bench.measure import Report

RUNS = 10
ALLOWED_MS = 150


def run(report: Report) -> None:
    """CPU time of a program that only imports Omoide, beside one that does nothing."""
    report.title("import omoide: CPU time of a fresh interpreter")
    bare = imported = float("inf")
    for _ in range(RUNS):
        bare, imported = min(bare, _cpu_ns("pass")), min(imported, _cpu_ns("import omoide"))
    report.row("python -c pass", bare)
    report.row("python -c 'import omoide'", imported, f"{(imported - bare) / 1e6:.0f} ms more")
    report.goal(f"of the {ALLOWED_MS} ms allowed", (imported - bare) / 1e6 / ALLOWED_MS, 1, at_most=True)


def _cpu_ns(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e9
