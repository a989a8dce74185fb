"""Jobs that the tests of crashes and of concurrency run in other processes.

`python -m tests.support.store_process JOB …` does one of the jobs below.
"""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.stores import ADA, keep, open_core, recall_ids, write_request

from omoide import RecallRequest, Scope, clock
from omoide.errors import Busy, Conflict, DiskFull, OmoideError, StoreFailed
from omoide.stores import Document, Link, open_store
from omoide.stores.sqlite import store as _loaded  # noqa: F401 - while everything may be read
from omoide.testing import FrozenClock, HashEmbedder

ROOT = Path(__file__).parents[2]
IDS = [f"e{at}" for at in range(12)]
COUNTERS = ("c0", "c1", "c2")
OPTIONS: dict[str, Any] = {"embedder": HashEmbedder(32)}


def start(job: str, *args: object, **options: Any) -> subprocess.Popen[bytes]:
    """A process that does a job."""
    command = [sys.executable, "-m", "tests.support.store_process", job, *map(str, args)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stdin=subprocess.PIPE, **options)


def open_at(place: str, **options: Any) -> Any:
    """Open the store at an address, or in the file of a path."""
    if "://" in place:
        return open_store(place, **OPTIONS, **options).sync
    return open_core("sqlite", Path(place).parent, **OPTIONS, **options)


# Steps that can be repeated elsewhere: what a step does depends on its number and the seed alone.


def step(store: Any, seed: int, n: int) -> None:
    """Do step number n of a random life; what is refused is refused wherever it is repeated."""
    chance = random.Random(f"{seed}:{n}")
    with clock.override(FrozenClock(1_000 + n)), suppress(OmoideError):
        act(store, chance, n)


def act(store: Any, chance: random.Random, n: int) -> None:
    """Do something to a store, or be refused."""
    id, other = chance.sample(IDS, 2)
    words = " ".join(chance.choices(("tea", "coffee", "Lisbon", "moved", "never", "again"), k=40))
    match chance.randrange(14):
        case 0 | 1 | 2 | 3:
            keep(store, f"{words} {n}", id=id, message={"thread": "t", "seq": IDS.index(id)})
        case 12 | 13:
            premises = [{"kind": "entry", "ref": name} for name in chance.sample(IDS, 2)]
            keep(store, f"{words} {n}", id=id, evidence=premises)
        case 4:
            keep(store, f"{words} {n}", id=id, supersedes=other)
        case 5:
            store.write_many(
                [write_request(f"{words} {n} {name}", id=name) for name in IDS[n % 4 : n % 4 + 6]]
            )
        case 6:
            store.supersede(id, ADA, reason=words)
        case 7:
            store.reinstate(id, ADA)
        case 8:
            link = Link(source=id, relation=chance.choice(("refines", "invalidated_by")), target=other)
            store.unlink(link, ADA) if chance.random() < 0.3 else store.link(link, ADA)
        case 9:
            store.erase(ADA, id=id, reason="asked to")
        case 10:
            store.save(Document(kind="session", id=id, agent_id="ada", body={"words": words}))
        case _:
            store.append("session", id, [words, n], ADA)


def state(store: Any) -> list[Any]:
    """All that can be seen of a store after such a life."""
    everything = Scope()
    told = [change.replace(seq=0) for change in store.changes("default", limit=1_000_000)]
    seen: list[Any] = [store.list_entries(everything), told]
    for id in IDS:
        seen.append(store.load("session", id, everything))
        for look in (store.history, store.links):
            try:
                seen.append(look(id, everything))
            except OmoideError as error:
                seen.append(type(error))
    return seen


def live(path: str, seed: str, first: str, durability: str) -> None:
    """Take step after step, and write a byte after each, until killed."""
    store = open_at(path, durability=durability)
    n = int(first)
    while True:
        step(store, int(seed), n)
        os.write(1, b".")
        n += 1


# Many at once.


def mix(path: str, name: str, threads: str, seconds: str) -> None:
    """Use one file from several threads at once; print what was done, and any error but a conflict."""
    store = open_at(path)
    until = time.monotonic() + float(seconds)
    reports: list[dict[str, Any]] = []

    def run(thread: int) -> None:
        report: dict[str, Any] = {"raised": Counter(), "kept": [], "erased": [], "errors": [], "saved": 0}
        reports.append(report)
        chance = random.Random(f"{name}:{thread}")
        n = 0
        while time.monotonic() < until:
            n += 1
            try:
                _mix_once(store, chance, f"{name}-{thread}-{n}", report)
            except Conflict:
                report["conflicts"] = report.get("conflicts", 0) + 1
            except Exception as error:  # noqa: BLE001 - whatever it is, the test wants to know
                report["errors"].append(repr(error))
                return

    workers = [threading.Thread(target=run, args=(at,)) for at in range(int(threads))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    store.close()
    sys.stdout.write(json.dumps(reports))


def _mix_once(store: Any, chance: random.Random, name: str, report: dict[str, Any]) -> None:
    match chance.randrange(8):
        case 0 | 1 | 2:
            counter = chance.choice(COUNTERS)
            seen = store.get(counter, ADA)
            keep(store, str(int(seen.content) + 1), id=counter, expected_rev=seen.rev)
            report["raised"][counter] += 1
        case 3 | 4:
            keep(store, f"Tea of {name}.", id=name, session_id=f"s{chance.randrange(3)}")
            report["kept"].append(name)
        case 5 if report["kept"]:
            mine = chance.choice(report["kept"])
            if chance.random() < 0.5:
                store.supersede(mine, ADA, reason=name)
                store.reinstate(mine, ADA)
            else:
                report["kept"].remove(mine)
                store.erase(ADA, id=mine)
                report["erased"].append(mine)
                assert mine not in recall_ids(store, f"Tea of {mine}.", limit=50)
        case 6:
            result = store.recall(RecallRequest(agent_id="ada", query="Tea of whom?", limit=10))
            assert all(entry.superseded_by is None for entry in result.entries)
            assert not set(report["erased"]) & {entry.id for entry in result.entries}
        case _:
            lease = store.claim("tally", "d", ADA, owner=name, ttl_ms=120_000)
            if lease is not None:
                # Safe without an expected revision, because nobody else holds it.
                document = store.load("tally", "d", ADA)
                store.save(document.replace(body=document.body + 1))
                report["saved"] += 1
                assert store.release("tally", "d", ADA, owner=name)


# Others.


def erase(path: str, id: str) -> None:
    """Recall once, wait for a line, erase an entry, and say so."""
    store = open_at(path)
    print(*recall_ids(store, "tea"), flush=True)  # noqa: T201
    sys.stdin.readline()
    store.erase(ADA, id=id)
    print("done", flush=True)  # noqa: T201
    sys.stdin.readline()
    print(*recall_ids(store, "tea"), flush=True)  # noqa: T201


def value(path: str, name: str, count: str) -> None:
    """Open a store, wait for a line, and write values of one key."""
    store = open_at(path)
    print("ready", flush=True)  # noqa: T201
    sys.stdin.readline()
    for n in range(int(count)):
        keep(store, f"Value {name} {n}.", id=f"v{name}-{n}", key="city")
    store.close()


def forget(path: str, id: str) -> None:
    """Forget an entry."""
    store = open_at(path)
    store.supersede(id, ADA)
    store.close()


def fill(path: str, size: str) -> None:
    """Write until the system allows the file to grow no more; print what was acknowledged."""
    store = open_at(path)
    keep(store, "Here before.", id="before")
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), int(size)))
    acknowledged = ["before"]
    try:
        for n in range(10_000):
            keep(store, f"Number {n} " + "tea " * 500, id=f"n{n}")
            acknowledged.append(f"n{n}")
    except DiskFull as error:
        acknowledged.append(type(error).__name__)
    sys.stdout.write(json.dumps(acknowledged))


def erase_when_full(path: str, size: str) -> None:
    """Write until the system allows no file to grow, then erase everything; print what is left."""
    store = open_at(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), int(size)))
    with suppress(DiskFull):
        for n in range(10_000):
            keep(store, f"Number {n} " + "tea " * 500, id=f"n{n}")
    receipt = store.erase(ADA)
    keep(store, "There is room again.", id="after")
    answer = [
        len(receipt.ids),
        receipt.scrubbed,
        receipt.pending,
        [entry.id for entry in store.list_entries(ADA)],
    ]
    sys.stdout.write(json.dumps(answer))


def restore(path: str, source: str) -> None:
    """Restore a backup again and again; say so after each time."""
    store = open_at(path)
    while True:
        store.restore_backup(source)
        sys.stdout.write(".")
        sys.stdout.flush()


def back_up(path: str, target: str) -> None:
    """Back a store up; say so before the copy is complete, and go on after a line of input."""

    def wait(done: int, total: int) -> None:
        sys.stdout.write(f"{done < total}\n")
        sys.stdout.flush()
        sys.stdin.readline()

    open_at(path).backup(target, wait)


def protected(path: str) -> None:
    """Open and write as a user who may not; print what was raised."""
    open_core("memory", Path(path).parent, **OPTIONS).write(write_request())  # loads the rest
    if os.getuid() == 0:
        os.setuid(65534)
    try:
        keep(open_at(path), "Tea.", id="mine")
    except StoreFailed as error:
        sys.stdout.write(type(error).__name__)


def read_protected(path: str, *commands: str) -> None:
    """Run commands as a user who may not write a store; print their exit codes and output."""
    from click.testing import CliRunner

    from omoide.cli.app import app

    os.environ.update(OMOIDE_EMBEDDER="none", OMOIDE_AGENT="ada", OMOIDE_PROJECT="")

    def run(store: Path) -> list[tuple[int, str, str]]:
        found = []
        for command in commands:
            result = CliRunner().invoke(
                app, [*command.format(folder=store.parent).split(), "--store", str(store)]
            )
            found.append((result.exit_code, result.stdout, result.stderr))
        return found

    with TemporaryDirectory() as folder:
        own = Path(folder, "memory.db")
        Path(folder, "out").mkdir()
        keep(open_at(str(own)), "Tea.", id="e1")
        run(own)  # loads the rest
    os.chdir("/")
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    sys.stdout.write(json.dumps(run(Path(path))))


def hold_protected(path: str) -> None:
    """Read a store again and again as a user who may not write it: once more after each line of input."""
    keep(open_core("memory", Path(path).parent, **OPTIONS), "Tea.")  # loads the rest
    if os.getuid() == 0:
        os.setgid(65534)
        os.setuid(65534)
    store = open_at(path, read_only=True)

    def wait(text: str) -> None:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
        sys.stdin.readline()

    wait(" ".join(entry.id for entry in store.list_entries(ADA)))
    wait(" ".join(entry.id for entry in store.list_entries(ADA)))
    try:
        with store._db.read_transaction() as db:
            wait(str(db.execute("SELECT count(*) FROM entries").fetchone()[0]))
    except Busy as error:
        wait(str(error))
    wait(" ".join(entry.id for entry in store.list_entries(ADA)))


def fork(path: str) -> None:
    """Use a store before and after a fork, in both processes."""
    store = open_at(path)
    keep(store, "Tea.", id="before")
    child = os.fork()
    keep(store, "Tea.", id="parent" if child else "child")
    if child == 0:
        os._exit(0 if "before" in recall_ids(store, "tea") else 1)
    _, status = os.waitpid(child, 0)
    store.close()
    sys.exit(status)


if __name__ == "__main__":
    jobs: list[Callable[..., None]] = [
        live,
        mix,
        erase,
        value,
        forget,
        fill,
        erase_when_full,
        restore,
        back_up,
        protected,
        read_protected,
        hold_protected,
        fork,
    ]
    {job.__name__: job for job in jobs}[sys.argv[1]](*sys.argv[2:])
