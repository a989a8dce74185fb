"""What would a user pick instead, and how fast is that?

Each peer runs its driver in a virtual environment of its own, made in the user's cache folder, with the same
thousand texts and the same vectors at hand. Peers take turns; the best of the rounds counts. A peer that
cannot be installed or run is named, with the reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec
import numpy as np

from bench import corpus, power
from bench.measure import Report, shown
from omoide.embedders import HashEmbedder

SIZE = 1_000
ROUNDS = 2
DRIVERS = Path(__file__).with_name("drivers.py")
PATIENCE = 900

_LANGGRAPH = (
    "langgraph==1.2.20",
    "langgraph-checkpoint-sqlite==3.1.2",
    "numpy==2.4.6",
    "pysqlite3-binary==0.5.4.post2",
)
_MEM0 = ("mem0ai==2.2.1", "qdrant-client==1.20.0", "faiss-cpu==1.15.1")


class Peer(NamedTuple):
    """One contender: what to install, where a text is once it has been kept, and what it is found by."""

    needs: tuple[str, ...]
    kept: str


PEERS = {
    "bare": Peer((), "on disk, hybrid"),
    "bare_power": Peer((), "on disk, hybrid"),
    "omoide": Peer((), "on disk, hybrid"),
    "omoide_power": Peer((), "on disk, hybrid"),
    "langgraph_memory": Peer(_LANGGRAPH, "in memory, vectors"),
    "langgraph_sqlite": Peer(_LANGGRAPH, "on disk, vectors"),
    "txtai": Peer(("txtai==9.14.0",), "in memory until saved, hybrid"),
    "mem0_qdrant": Peer(_MEM0, "on disk, vectors"),
    "mem0_faiss": Peer(_MEM0, "on disk, vectors"),
    "graphiti": Peer(("graphiti-core[kuzu]==0.30.2", "httpx==0.28.1"), "on disk, hybrid"),
    "chroma": Peer(("chromadb==1.5.9",), "on disk, vectors"),
    "llama_index": Peer(("llama-index-core==0.14.25",), "in memory until saved, vectors"),
}


class Failed(Exception):
    """A peer that could not be installed or run, and why."""


class Taken(msgspec.Struct):
    """What a driver tells: nanoseconds, megabytes, and how many texts it found."""

    add: float
    recall: float
    open: float
    resident: float
    found: int


def run(report: Report) -> None:
    """One row for each peer."""
    report.title(f"beside others, {SIZE:,} memories: median of keeping one")
    best: dict[str, Taken] = {}
    failed: dict[str, str] = {}
    for _ in range(ROUNDS):
        for name in (name for name in PEERS if name not in failed):
            try:
                got = _drive(name)
            except Failed as error:
                failed[name] = str(error)
            else:
                best[name] = better(got, best.get(name, got))
    for name, peer in PEERS.items():
        if name in failed:
            print(f"  {name:<46} does not run here: {failed[name]}")
        else:
            got = best[name]
            report.row(
                name,
                got.add,
                f"recall of {got.found} {shown(got.recall)}, import and open {shown(got.open)}, "
                f"{got.resident:.0f} MB, {_fsyncs(name)}, {peer.kept}",
            )


def better(one: Taken, other: Taken) -> Taken:
    """The better figures of two rounds."""
    return Taken(
        add=min(one.add, other.add),
        recall=min(one.recall, other.recall),
        open=min(one.open, other.open),
        resident=min(one.resident, other.resident),
        found=one.found,
    )


def _drive(name: str) -> Taken:
    with TemporaryDirectory(prefix="omoide-bench-") as folder:
        texts(Path(folder))
        return driven(name, PEERS[name], Path(folder), SIZE)


def driven(name: str, peer: Peer, folder: Path, adds: int) -> Taken:
    """What a driver tells that keeps so many of the texts of a folder."""
    done = _run([_python(peer.needs), str(DRIVERS), name, str(folder), str(adds)])
    return msgspec.json.decode(done.splitlines()[-1], type=Taken)


def _fsyncs(name: str) -> str:
    """How often keeping one text waits for the disk, taken from the difference of two runs."""
    if shutil.which("strace") is None:
        return "fsyncs not counted"
    counts = []
    for adds in (100, 200):
        with TemporaryDirectory(prefix="omoide-bench-") as folder:
            texts(Path(folder))
            counts.append(power.count([_python(PEERS[name].needs), str(DRIVERS), name, folder, str(adds)]))
    return f"{(counts[1] - counts[0]) / 100:.1f} fsyncs"


def texts(folder: Path, size: int = SIZE, asked: int = 200) -> None:
    """Put texts and questions into a folder, with their vectors."""
    items = [*corpus.items(size)]
    questions = [*dict.fromkeys(text for _, text in corpus.questions(items, asked))]
    said = [*dict.fromkeys(item.text for item in items)]
    (folder / "texts.json").write_text(json.dumps([said, questions]), encoding="utf-8")
    vectors = [found.pooled for found in HashEmbedder().embed([*said, *questions])]
    np.save(folder / "vectors.npy", np.stack(vectors))


def _python(needs: tuple[str, ...]) -> str:
    """The interpreter of an environment that has what is needed."""
    if not needs:
        return sys.executable
    root = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "omoide-bench"
    place = root / sha256("\n".join(needs).encode()).hexdigest()[:16]
    python = str(place / "bin" / "python")
    if not (place / "ready").exists():
        venv.create(place, with_pip=True, clear=True)
        _run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *needs])
        (place / "ready").touch()
    return python


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"took longer than {PATIENCE} s") from error
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no word"]
        raise Failed(said[-1][:300])
    return done.stdout
