"""What does it cost when a memory no longer holds, and others rest on it?

The time is that of one transaction in which everything that rests on a memory goes out, or comes back. It
must grow with what is affected, and not with what else is kept.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from bench.measure import Report, in_turn
from omoide import Entry, Evidence, Scope, WriteRequest, open_store

DEPTH = 50
SIZES = (200, 2_000, 20_000)
CALLS = 8
AGENT = Scope(agent_id="agent")


def run(report: Report) -> None:
    """Memories fifty deep below one: all of them go out and come back, at three sizes."""
    each: dict[int, float] = {}
    with TemporaryDirectory(prefix="omoide-bench-") as folder:
        for size in SIZES:
            report.title(f"truth maintenance: {size:,} memories rest on one, {DEPTH} deep")
            got = _flipped(Path(folder) / f"{size}.db", size)
            for name, ns in got.items():
                report.row(name, ns, f"{ns / size / 1e3:.2f} µs for each memory affected")
            each[size] = sum(got.values()) / size
    small, large = each[SIZES[0]], each[SIZES[-1]]
    report.goal(f"one of {SIZES[-1]:,}, of one of {SIZES[0]:,}", large / small, 2, at_most=True)


def _flipped(path: Path, size: int) -> dict[str, float]:
    """Nanoseconds of going out and of coming back, beside as many memories again that are not affected."""
    with open_store(f"sqlite:///{path}", embedder="none") as store:
        entries = [Entry(id="root", agent_id="agent", content="The water boils.")]
        entries += [_derived(at, "root") for at in range(size)]
        entries += [_derived(at, "other") for at in range(size)]
        store.sync.write_many([WriteRequest(entry=entry) for entry in entries])
        return in_turn(
            {
                "superseded: all of them are stale": lambda: store.sync.supersede("root", AGENT),
                "restored: all of them count again": lambda: store.sync.reinstate("root", AGENT),
            },
            CALLS,
        )


def _derived(at: int, root: str) -> Entry:
    above = root if at % DEPTH == 0 else f"{root}-{at - 1}"
    return Entry(
        id=f"{root}-{at}",
        agent_id="agent",
        content=f"So the tea of table {at} is hot.",
        evidence=(Evidence(kind="entry", ref=above),),
    )
