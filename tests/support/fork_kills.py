"""Processes that share one SQLite file, fork at random in the middle of writes, and are killed at random.

`python -m tests.support.fork_kills FOLDER SEED KILLS` runs rounds until so many processes were killed, and
prints what it found as JSON. In each round some processes do random steps with several handles and threads:
they write, revise, erase, read, back up, open and close handles by other paths, and start children in every
way. They are forked from a process that has imported everything, so that a round costs little; in half of
the rounds that process has the store open as well, as a server has that preloads.

Each acknowledged step is noted in a file outside the store, one line a step, after the store returned:
`id rev` for a write, `id ?` before an erasure, and `id -` after it.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import multiprocessing
import os
import random
import select
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NoReturn

from tests.support.stores import ADA, list_ids, recall_ids, write_request

from omoide import forks
from omoide.errors import Forked
from omoide.stores import open_store
from omoide.stores.sqlite import store as _loaded  # noqa: F401 - before the forks

ROOT = Path(__file__).parents[2]
KILLS_PER_ROUND = 25
PROCESSES = 3
MAX_DEPTH = 3
DEADLINE = 60.0
"""Seconds within which the processes of a round that were not killed have to end."""


def pause(seconds: float) -> None:
    """Let others work."""
    select.select([], [], [], seconds)


def open_handle(path: Path) -> Any:
    """Return a handle of the store in a file."""
    return open_store(f"sqlite:///{path}", embedder="none").sync


class Notes:
    """The files beside a store: what was acknowledged, who lives, and what went wrong."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, int] = {}

    def add(self, name: str, line: str) -> None:
        """Append a line to a file, in one piece."""
        if name not in self._files:
            self._files[name] = os.open(self.folder / name, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        os.write(self._files[name], f"{line}\n".encode())

    def read(self, name: str) -> list[str]:
        """Return the lines of a file; a last one that was cut off is none."""
        path = self.folder / name
        return path.read_text().split("\n")[:-1] if path.exists() else []

    @property
    def is_over(self) -> bool:
        """True once all processes have to end."""
        return (self.folder / "over").exists()


class Program:
    """Random steps of one process."""

    def __init__(self, folder: Path, name: str, seed: str, depth: int = 0) -> None:
        self.folder, self.seed = folder, seed
        self.notes = Notes(folder)
        self.handles: list[Any] = []
        self._begin(name, depth)

    def _begin(self, name: str, depth: int) -> None:
        self.name, self.depth = name, depth
        self.chance = random.Random(f"{self.seed}:{name}")
        self.count = 0
        self.mine: dict[str, int] = {}
        self.notes.add("pids", str(os.getpid()))
        forks.FORK_TIMEOUT = self.chance.choice((0.0, 0.02, 5.0, 5.0))

    def run(self) -> NoReturn:
        """Take steps until killed, or until all have to end, and end in one of the ways that there are."""
        self.folder.joinpath("stacks").mkdir(exist_ok=True)
        with self.folder.joinpath("stacks", str(os.getpid())).open("w") as stacks:
            faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)
            status = 0
            try:
                while not self.notes.is_over and not (self.depth and self.chance.random() < 0.01):
                    self.step()
                    pause(self.chance.random() * 0.004)
            except Forked:
                pass  # it was forked in the middle of an operation
            except BaseException:  # noqa: BLE001 - whatever it is, the test wants to know
                self.notes.add("errors", json.dumps(f"{self.name}: {traceback.format_exc()}"))
                status = 1
        if self.chance.random() < 0.5:
            with suppress(Forked):
                for handle in self.handles:
                    handle.close()
        if self.chance.random() < 0.5:
            sys.stdout = sys.stderr = None
            with suppress(SystemExit):
                sys.exit(status)
        os._exit(status)

    def step(self) -> None:
        """Take one step."""
        chance = self.chance
        self.count += 1
        if not self.handles:
            self._open()
        store = chance.choice(self.handles)
        match chance.randrange(40):
            case 0 if len(self.handles) < 3:
                self._open()
            case 1 if len(self.handles) > 1:
                self.handles.pop(chance.randrange(len(self.handles))).close()
            case 2 | 3 if self.depth < MAX_DEPTH:
                self._start_child()
            case 4:
                recall_ids(store, "tea", limit=5)
            case 5:
                target = self.folder / f"backup-{self.name}-{self.count}"
                store.backup(target)
                target.unlink()
            case 6 if chance.random() < 0.3:
                found = store.check()
                assert found == [], found
            case 7 | 8 if self.mine:
                self._erase(store, chance.choice(list(self.mine)))
            case 9 | 10 | 11 if self.mine:
                self._write(store, chance.choice(list(self.mine)))
            case 12:
                with store._db.read_transaction() as db:
                    db.execute("SELECT count(*) FROM entries").fetchone()
                    if self.depth < MAX_DEPTH and chance.random() < 0.3:
                        self._fork(python=True)  # inside a read
            case _:
                self._write(store, f"{self.name}-{self.count}")

    def _open(self) -> None:
        way = self.chance.choice(("memory.db", "memory.db", "link.db", "sub/../memory.db"))
        self.handles.append(open_handle(self.folder / way))

    def _write(self, store: Any, id: str) -> None:
        size = self.chance.choice((5, 40, 40, 2_000))
        result = store.write(write_request(f"Tea {self.count} for {id}. " + "leaf " * size, id=id))
        self.notes.add("acknowledged", f"{id} {result.entry.rev}")
        self.mine[id] = result.entry.rev

    def _erase(self, store: Any, id: str) -> None:
        self.notes.add("acknowledged", f"{id} ?")
        store.erase(ADA, id=id)
        self.notes.add("acknowledged", f"{id} -")
        del self.mine[id]

    # Children

    def _start_child(self) -> None:
        threads = [
            threading.Thread(target=self._write_all, args=(f"{self.name}-{self.count}t{n}",), daemon=True)
            for n in range(self.chance.choice((0, 1, 2)))
        ]
        for thread in threads:
            thread.start()
        match self.chance.randrange(12):
            case 0 | 1 | 2:
                self._start_by_multiprocessing("fork")
            case 3:
                self._start_by_multiprocessing("forkserver")
            case 4 if self.chance.random() < 0.1:
                self._start_by_multiprocessing("spawn")
            case 5 | 6:
                self._fork(python=False)
            case 7:
                subprocess.run(["true"], check=True)
            case _:
                self._fork(python=True)
        for thread in threads:
            thread.join()

    def _write_all(self, name: str) -> None:
        try:
            store = self.handles[0]
            for n in range(5):
                result = store.write(write_request(f"Tea for {name}.", id=f"{name}-{n}"))
                self.notes.add("acknowledged", f"{name}-{n} {result.entry.rev}")
        except Forked:
            pass
        except BaseException:  # noqa: BLE001 - whatever it is, the test wants to know
            self.notes.add("errors", json.dumps(f"{name}: {traceback.format_exc()}"))

    def _fork(self, *, python: bool) -> None:
        # C code that forks while it has the interpreter's lock; its child could not go on without.
        child = os.fork() if python else int(ctypes.PyDLL(None).fork())
        if child == 0:
            self._begin(f"{self.name}.{self.count}", self.depth + 1)
            self.run()

    def _start_by_multiprocessing(self, method: str) -> None:
        context: Any = multiprocessing.get_context(method)
        name = f"{self.name}.{self.count}"
        if method == "fork":
            context.Process(target=self._run_child, args=(name,)).start()
        else:
            if method == "forkserver":
                multiprocessing.set_forkserver_preload(["tests.support.fork_kills"])
            args = (str(self.folder), name, self.seed, self.depth + 1)
            context.Process(target=run_program, args=args).start()

    def _run_child(self, name: str) -> None:
        self._begin(name, self.depth + 1)
        self.run()


def run_program(folder: str, name: str, seed: str, depth: int) -> None:
    """Do random steps in a process that inherited nothing."""
    Program(Path(folder), name, seed, depth).run()


# The process that kills


class Round:
    """One file, the processes that use it, and those that are killed."""

    def __init__(self, folder: Path, seed: str, *, preload: bool) -> None:
        folder.joinpath("sub").mkdir(parents=True)
        folder.joinpath("link.db").symlink_to("memory.db")
        self.folder, self.seed = folder, seed
        self.chance = random.Random(seed)
        self.notes = Notes(folder)
        self.preloaded = open_handle(folder / "memory.db") if preload else None
        self.groups: list[int] = []

    def start(self) -> None:
        """Fork a process, which becomes the leader of a group of its own."""
        name = f"p{len(self.groups)}"
        child = os.fork()
        if child == 0:
            os.setsid()
            program = Program(self.folder, name, self.seed)
            program.handles += [self.preloaded] if self.preloaded else []
            program.run()
        self.groups.append(child)

    def living(self) -> list[int]:
        """Return the processes of the round that run."""
        return [pid for pid in map(int, self.notes.read("pids")) if self._is_running(pid)]

    def _is_running(self, pid: int) -> bool:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return False
        return fields[0] not in "ZX" and int(fields[3]) in self.groups  # of its session: no number is reused

    def kill(self, pids: list[int]) -> int:
        """Kill processes, and return how many."""
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(pids)

    def run(self, kills: int) -> int:
        """Kill processes at random moments, some one by one and the rest at once; return how many."""
        killed = 0
        while killed < kills:
            reap()
            living = self.living()
            if len([pid for pid in living if pid in self.groups]) < PROCESSES:
                self.start()
                continue
            pause(self.chance.random() * 0.08)
            if self.preloaded is not None and self.chance.random() < 0.2:
                id = f"preloaded-{killed}-{len(self.groups)}"
                result = self.preloaded.write(write_request(f"Tea for {id}.", id=id))
                self.notes.add("acknowledged", f"{id} {result.entry.rev}")
            killed += self.kill([self.chance.choice(living)])
        if self.chance.random() < 0.5:
            killed += self.kill(self.living())
        return killed

    def end(self) -> dict[str, Any]:
        """Let the processes that are left end, look everything up, and report."""
        self.folder.joinpath("over").touch()
        deadline = time.monotonic() + DEADLINE
        while (living := self.living()) and time.monotonic() < deadline:
            reap()
            pause(0.01)
        problems = [json.loads(line) for line in self.notes.read("errors")]
        for pid in living:
            os.kill(pid, signal.SIGUSR1)
            pause(0.2)
            problems.append(f"{pid} hangs: {(self.folder / 'stacks' / str(pid)).read_text()}")
        self.kill(living)
        if self.preloaded is not None:
            self.preloaded.close()
        return {"problems": [*problems, *self.check()], "acknowledged": len(self.notes.read("acknowledged"))}

    def check(self) -> list[str]:
        """Return what is wrong with the file, and what is lost."""
        problems = []
        with closing(sqlite3.connect(self.folder / "memory.db")) as db:
            said = [text for (text,) in db.execute("PRAGMA integrity_check")]
            problems += [f"integrity check: {text}" for text in said if text != "ok"]
        with closing(open_handle(self.folder / "memory.db")) as store:
            problems += [f"check: {text}" for text in store.check()]
            kept = {entry.id: entry.rev for entry in store.list_entries(ADA)}
            listed = Counter(list_ids(store, ADA))
        problems += [f"{id} is there {count} times" for id, count in listed.items() if count > 1]
        last = dict(line.split(" ") for line in self.notes.read("acknowledged"))
        for id, state in last.items():
            if state == "-" and id in kept:
                problems.append(f"{id} was erased, and is there")
            elif state.isdigit() and kept.get(id, 0) < int(state):
                problems.append(f"revision {state} of {id} is lost, {kept.get(id)} is there")
        return problems


def reap() -> None:
    """Collect the processes that ended, also those whose parents were killed."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def adopt_orphans() -> None:
    """Become the parent of processes whose parents are killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def main(folder: str, seed: str, kills: str) -> None:
    """Run rounds until enough processes were killed."""
    adopt_orphans()
    report: dict[str, Any] = {"kills": 0, "processes": 0, "acknowledged": 0, "problems": []}
    turn = 0
    while report["kills"] < int(kills) and not report["problems"]:
        place = Path(folder) / str(turn)
        current = Round(place, f"{seed}:{turn}", preload=turn % 2 == 1)
        report["kills"] += current.run(min(KILLS_PER_ROUND, int(kills) - report["kills"]))
        report["processes"] += len(current.notes.read("pids"))
        found = current.end()
        report["acknowledged"] += found["acknowledged"]
        report["problems"] += [f"round {turn}: {problem}" for problem in found["problems"]]
        turn += 1
    sys.stdout.write(json.dumps({**report, "rounds": turn}))


if __name__ == "__main__":
    # By its name, so that processes of `multiprocessing` find what they run.
    from tests.support import fork_kills

    fork_kills.main(*sys.argv[1:])
