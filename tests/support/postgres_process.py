"""Jobs that the tests of PostgreSQL run in other processes.

`python -m tests.support.postgres_process JOB URL …` does one of the jobs below.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.stores import ADA, keep, recall_ids, write_request

from omoide import Scope
from omoide.stores import open_store

ROOT = Path(__file__).parents[2]


def start(job: str, *args: object) -> subprocess.Popen[bytes]:
    """A process that does a job."""
    command = [sys.executable, "-m", "tests.support.postgres_process", job, *map(str, args)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stdin=subprocess.PIPE)


def open_core(url: str, **options: Any) -> Any:
    """Open the synchronous core of the store at an address."""
    return open_store(url, **{"embedder": "none", **options}).sync


def say(*words: object) -> None:
    """Tell whoever started this process."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def first(url: str, name: str) -> None:
    """Wait for a line, open a store that may not be there yet, and write into it."""
    say("ready")
    sys.stdin.readline()
    store = open_core(url)
    keep(store, f"Tea of {name}.", id=name)
    say(json.dumps(sorted(recall_ids(store, "tea", limit=20))))
    store.close()


def spread(url: str, name: str, threads: str, count: str) -> None:
    """Write into two namespaces from several threads, some of it and some of both; say what was kept."""
    store = open_core(url)
    kept: list[tuple[str, str]] = []

    def run(thread: int) -> None:
        for n in range(int(count)):
            id = f"{name}-{thread}-{n}"
            spaces = [("one",), ("two",), ("one", "two")][n % 3]
            store.write_many([write_request("Tea.", id=id, namespace=space) for space in spaces])
            kept.extend((space, id) for space in spaces)

    workers = [threading.Thread(target=run, args=(at,)) for at in range(int(threads))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    store.close()
    sys.stdout.write(json.dumps(kept))


def change(url: str) -> None:
    """Carry out what each line says, and say so: write, supersede or erase an entry."""
    store = open_core(url)
    for line in sys.stdin:
        op, id = line.split()
        match op:
            case "write":
                keep(store, f"It says {id}.", id=id, session_id="s")
            case "supersede":
                store.supersede(id, ADA)
            case _:
                store.erase(ADA, id=id)
        say("done")
    store.close()


def ask(url: str) -> None:
    """For each line, say what a query by SPARQL finds at once."""
    asyncio.run(_ask(url))


async def _ask(url: str) -> None:
    from omoide import graph

    said = "SELECT ?said WHERE { ?m jido:summary ?said FILTER NOT EXISTS { ?m jido:supersededBy ?n } }"
    async with open_store(url, embedder="none") as store, graph.open(store) as view:
        while await asyncio.to_thread(sys.stdin.readline):
            found = (await view.sparql(said, Scope(agent_id="ada"))).values("said")
            say(json.dumps(sorted(map(str, found))))


def fork(url: str) -> None:
    """Use a store before and after a fork, in both processes; the child's end must not end the parent's."""
    store = open_core(url)
    keep(store, "Tea.", id="before")
    child = os.fork()
    keep(store, "Tea.", id="parent" if child else "child")
    if child == 0:
        found = sorted(recall_ids(store, "tea", limit=10))
        store.close()
        os._exit(0 if {"before", "child"} <= {*found} else 1)
    _, status = os.waitpid(child, 0)
    keep(store, "Tea.", id="after")
    store.close()
    sys.exit(status)


if __name__ == "__main__":
    jobs: list[Callable[..., None]] = [first, spread, change, ask, fork]
    {job.__name__: job for job in jobs}[sys.argv[1]](*sys.argv[2:])
