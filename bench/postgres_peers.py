"""What would a user of PostgreSQL pick instead, and how fast is that?

Each peer has a database of its own on the same server, where each commit waits for the disk, and the same
texts and vectors at hand. Peers take turns; the best of the rounds counts.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from bench.measure import Report, shown
from bench.peers import ROUNDS, Failed, Peer, Taken, better, driven, texts

ASKED = 500
SIZES = (1_000, 20_000)

_LANGGRAPH = (
    "langgraph==1.2.20",
    "langgraph-checkpoint-postgres==3.2.0",
    "psycopg[binary]==3.3.8",
    "numpy==2.4.6",
)
_MEM0 = ("mem0ai==2.2.1", "psycopg[binary,pool]==3.3.8")

PEERS = {
    "omoide_postgres": Peer((), "hybrid, exact"),
    "langgraph_postgres": Peer(_LANGGRAPH, "vectors, hnsw"),
    "mem0_pgvector": Peer(_MEM0, "vectors, hnsw; a history in SQLite beside it"),
}

_numbers = count()


def run(report: Report, url: str) -> None:
    """One row for each peer and size; after the small size, one round has to do."""
    failed: dict[str, str] = {}
    for size in SIZES:
        report.title(f"beside others on PostgreSQL, {size:,} memories: median of keeping one")
        best: dict[str, Taken] = {}
        for _ in range(ROUNDS if size == SIZES[0] else 1):
            for name in (name for name in PEERS if name not in failed):
                try:
                    got = _drive(name, url, size)
                except Failed as error:
                    failed[name] = str(error)
                else:
                    best[name] = better(got, best.get(name, got))
        for name, peer in PEERS.items():
            if name in failed:
                print(f"  {name:<46} does not run here: {failed[name]}")
            else:
                got = best[name]
                told = f"search of {got.found} {shown(got.recall)}, import and open {shown(got.open)}"
                report.row(name, got.add, f"{told}, {got.resident:.0f} MB, {peer.kept}")


def _drive(name: str, url: str, size: int) -> Taken:
    database = f"peer_{next(_numbers)}"
    with psycopg.connect(url, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {database}")
        with TemporaryDirectory(prefix="omoide-bench-") as folder:
            texts(Path(folder), size, ASKED)
            (Path(folder) / "server").write_text(f"{url.rpartition('/')[0]}/{database}", encoding="utf-8")
            try:
                return driven(name, PEERS[name], Path(folder), size)
            finally:
                server.execute(f"DROP DATABASE {database} WITH (FORCE)")
