"""Jobs that use one SQLite file through several handles, threads and forked processes.

`python -m tests.support.fork_process JOB …` does one of the jobs below. Each acknowledged write is noted in a
file, one id a line, after the store returned.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tests.support.stores import write_request

from omoide import forks
from omoide.errors import Forked
from omoide.stores import open_store

ROOT = Path(__file__).parents[2]
HANDLES: list[Any] = []


def start(job: str, *args: object, **options: Any) -> subprocess.Popen[bytes]:
    """Start a process that does a job, as the leader of a process group."""
    command = [sys.executable, "-m", "tests.support.fork_process", job, *map(str, args)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdout=pipe, stdin=pipe, start_new_session=True, **options)


def open_handle(path: str) -> Any:
    """Return a handle of the store in a file."""
    return open_store(f"sqlite:///{path}", embedder="none").sync


class Journal:
    """A file with the ids of all acknowledged writes."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)

    def write(self, store: Any, id: str) -> None:
        """Write an entry, and note its id once it is acknowledged."""
        store.write(write_request(f"Tea for {id}. " + "leaf " * 40, id=id))
        os.write(self._file, f"{id}\n".encode())


def acknowledged(path: Path) -> list[str]:
    """Return the ids of the acknowledged writes; a last line that was cut off is not one."""
    return path.read_text().split("\n")[:-1] if path.exists() else []


def leave(way: str) -> None:
    """End a process without, or with, what the interpreter does at its end."""
    os._exit(0) if way == "exit" else sys.exit(0)


# One fork, each way


def both(path: str, log: str, first: str, way: str) -> None:
    """Write before a fork, and after it in both processes; `first` ends first."""
    store, journal = open_handle(path), Journal(log)
    journal.write(store, "before")
    reader, writer = os.pipe()
    child = os.fork()
    mine = "child" if child == 0 else "parent"
    for n in range(20):
        journal.write(store, f"{mine}-{n}")
    if mine == first:
        if child:
            store.close()
        os.write(writer, b".")
        leave(way)
    os.read(reader, 1)
    for n in range(20, 40):
        journal.write(store, f"{mine}-{n}")
    store.close()
    leave(way)


def daemon(path: str, log: str) -> None:
    """Fork twice after opening, as a daemon does, while both parents end."""
    store, journal = open_handle(path), Journal(log)
    journal.write(store, "first")
    if os.fork():
        sys.exit(0)
    os.setsid()
    if os.fork():
        sys.exit(0)
    for n in range(20):
        journal.write(store, f"daemon-{n}")
    store.close()
    os.write(1, b"done")


def write_inherited(log: str, names: list[str]) -> None:
    """Write with a handle of the parent, or a new one where nothing was inherited."""
    store = HANDLES[0] if HANDLES else open_handle(os.environ["STORE"])
    journal = Journal(log)
    for name in names:
        journal.write(store, name)


def pool(path: str, log: str, method: str) -> None:
    """Let processes of `multiprocessing` write, however they are started, while this one writes too."""
    os.environ["STORE"] = path
    store, journal = open_handle(path), Journal(log)
    HANDLES.append(store)
    journal.write(store, "before")
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(3, mp_context=context) as executor:
        jobs = [executor.submit(write_inherited, log, [f"{j}-{n}" for n in range(10)]) for j in range(6)]
        for n in range(20):
            journal.write(store, f"parent-{n}")
        for job in jobs:
            job.result()
    for n in range(20, 30):
        journal.write(store, f"parent-{n}")
    store.close()


def busy(path: str, log: str, who: str, fork: str) -> None:
    """Fork while a transaction is open, in this thread or in another; print what the child gets.

    A child that inherited open connections may use neither the handle nor a new one.
    """
    forks.FORK_TIMEOUT = 0.1
    store, journal = open_handle(path), Journal(log)
    journal.write(store, "before")
    inside, end = threading.Event(), threading.Event()

    def hold() -> None:
        with store._db.write_transaction() as db:
            db.execute("INSERT INTO settings VALUES ('held', 'x')")
            inside.set()
            end.wait(30)

    def divide() -> int:
        return os.fork() if fork == "python" else int(ctypes.CDLL(None).fork())

    child = 0
    try:
        if who == "self":
            with store._db.write_transaction() as db:
                db.execute("INSERT INTO settings VALUES ('held', 'x')")
                child = divide()
        else:
            thread = threading.Thread(target=hold)
            if who == "other":
                thread.start()
                inside.wait(30)
            child = divide()
    except Forked:
        os.write(1, b"inside ")
    if child == 0:
        _try_in_child(path, journal, store, fork)
    end.set()
    os.waitpid(child, 0)
    journal.write(store, "after")  # after the thread, which has the lock
    (held,) = store._db.read_once(
        lambda db: db.execute("SELECT count(*) FROM settings WHERE name='held'").fetchone()
    )
    os.write(1, f"held {held}".encode())
    store.close()


def _try_in_child(path: str, journal: Journal, store: Any, fork: str) -> None:
    for attempt in (lambda: journal.write(store, "child"), lambda: open_handle(path).close()):
        try:
            attempt()
        except Forked:
            os.write(1, b"refused ")
        else:
            os.write(1, b"used ")
    # With all destructors, where the interpreter knows of the fork; it would wait for threads that are gone.
    leave("return" if fork == "python" else "exit")


def exit_unseen(path: str, log: str, who: str) -> None:
    """Have C code fork while a transaction is open; the child ends without using the store.

    `self`: this thread is inside the transaction, which the child leaves by an exception. `other`: another
    thread is, and the child ends with all destructors.
    """
    store, journal = open_handle(path), Journal(log)
    HANDLES.append(store)
    journal.write(store, "before")
    inside, end = threading.Event(), threading.Event()

    def hold() -> None:
        with store._db.write_transaction() as db:
            _spill(db)
            inside.set()
            end.wait(30)

    # Not released during the call, as in a C extension: the interpreter could not go on in the child.
    fork = ctypes.PyDLL(None).fork
    if who == "self":
        with store._db.write_transaction() as db:
            _spill(db)
            child = int(fork())
            if child == 0:
                sys.exit(0)
            os.waitpid(child, 0)
    else:
        thread = threading.Thread(target=hold, daemon=True)
        thread.start()
        inside.wait(30)
        child = int(fork())
        if child == 0:
            sys.exit(0)
        os.waitpid(child, 0)
        end.set()
        thread.join()
    journal.write(store, "after")
    (held,) = store._db.read_once(
        lambda db: db.execute("SELECT count(*) FROM settings WHERE name LIKE 'held%'").fetchone()
    )
    os.write(1, f"held {held}".encode())
    os._exit(0)


def _spill(db: Any) -> None:
    """Write more than the cache holds, so that a part of the transaction is in the log already."""
    db.execute("PRAGMA cache_size = 10")
    db.executemany("INSERT INTO settings VALUES (?, ?)", [(f"held{n}", "x" * 3_000) for n in range(500)])


def from_signals(path: str, log: str) -> None:
    """Fork again and again in the handler of a timer, wherever this thread is, and go on writing."""
    store, journal = open_handle(path), Journal(log)
    forks_so_far = 0

    def divide(_signal: int, _frame: Any) -> None:
        nonlocal forks_so_far
        forks_so_far += 1
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        signal.setitimer(signal.ITIMER_REAL, 0.0005)

    signal.signal(signal.SIGALRM, divide)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    for n in range(60):
        journal.write(store, f"w{n}")
        if n % 5 == 0:
            open_handle(path).close()
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    os.write(1, b"forked" if forks_so_far > 10 else b"never forked")
    store.close()


def beside(path: str, log: str) -> None:
    """Keep one handle open, open and close a second one, and write once for each line of input."""
    store, journal = open_handle(path), Journal(log)
    journal.write(store, "first-0")
    open_handle(path).close()
    for n, _ in enumerate(sys.stdin, 1):
        journal.write(store, f"first-{n}")
        os.write(1, b"ok\n")
    os._exit(0)  # as a killed process: what was acknowledged has to be there


if __name__ == "__main__":
    jobs: list[Callable[..., None]] = [both, daemon, pool, busy, exit_unseen, from_signals, beside]
    {job.__name__: job for job in jobs}[sys.argv[1]](*sys.argv[2:])
