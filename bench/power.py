"""How often does a write that survives a power failure wait for the disk?

Counted from outside, by `strace`, over a process that opens a store, writes and closes it; what it would
do without writing is taken off.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.both import Both
from bench.measure import Report, side_by_side

WRITES = 2_000


def run(report: Report) -> None:
    """Time of a power-safe write beside the bare script's, and fsyncs per commit."""
    report.title("remember one, power-safe")
    with TemporaryDirectory(prefix="omoide-bench-") as folder:
        both = Both(Path(folder), 0, durability="power")
        requests, items = both.further()
        got = side_by_side(
            {
                "ours": lambda: both.ours.write(next(requests)),
                "bare script": lambda: both.bare.add(*next(items)),
            }
        )
        both.close()
    for name, ns in got.items():
        report.row(name, ns, f"{ns / got['bare script']:.2f}× the bare script")
    if shutil.which("strace") is None:
        print("  fsyncs were not counted: strace is not here")
    else:
        report.goal("fsyncs per commit", (_fsyncs(WRITES) - _fsyncs(0)) / WRITES, 1.05, at_most=True)


def _fsyncs(writes: int) -> int:
    with TemporaryDirectory(prefix="omoide-bench-") as folder:
        child = [sys.executable, "-m", "bench.power", folder, str(writes)]
        return count(child)


def count(command: list[str]) -> int:
    """How often a command waits for the disk."""
    with TemporaryDirectory(prefix="omoide-bench-") as folder:
        log = Path(folder) / "calls"
        calls = "trace=fsync,fdatasync"
        traced = ["strace", "-f", "-o", str(log), "-e", calls, *command]
        subprocess.run(traced, check=True, capture_output=True)
        return log.read_text(encoding="utf-8").count("sync(")


def _write(folder: str, writes: int) -> None:
    both = Both(Path(folder), 0, durability="power")
    requests, _ = both.further()
    for _ in range(writes):
        both.ours.write(next(requests))
    both.close()


if __name__ == "__main__":
    _write(sys.argv[1], int(sys.argv[2]))
