"""A process of this Omoide that has a store open while a newer one migrates it, or that is killed migrating.

Run as a program it takes a job, the URL of a store, and a number.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
MIGRATING = ("ALTER", "CREATE", "INSERT", "PRAGMA user_version =")


def start(job: str, url: str, number: int = 0) -> subprocess.Popen[str]:
    """Start the process with pipes to its input and output."""
    command = [sys.executable, "-m", "tests.support.older_process", job, url, str(number)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)


def finish(process: subprocess.Popen[str], line: str = "") -> tuple[int, str]:
    """Give the process its last line, and return its exit code and what it said."""
    output, _ = process.communicate(line, timeout=60)
    return process.returncode, output


def say(line: str) -> None:
    """Write a line to the test."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def keep_open(url: str) -> None:
    """Write, wait for a line of input, and print for each kind of write what became of it."""
    from omoide import Entry, Scope, WriteRequest
    from omoide.errors import OmoideError
    from omoide.stores import Document, open_store

    store: Any = open_store(url, embedder="none").sync
    ada = Scope(agent_id="ada")

    def write(id: str, **fields: Any) -> object:
        return store.write(WriteRequest(entry=Entry.new(id=id, agent_id="ada", content="Tea.", **fields)))

    write("before", user_id="ann")
    store.save(Document(kind="session", id="before", agent_id="ada", body=1))
    say("open")
    sys.stdin.readline()
    document = Document(kind="session", id="after", agent_id="ada", body=1)
    calls: dict[str, Callable[[], object]] = {
        "write": lambda: write("after"),
        "write for a user": lambda: write("after", user_id="ann"),
        "revise": lambda: write("before", user_id="ann", confidence=0.5),
        "supersede": lambda: store.supersede("before", ada),
        "erase": lambda: store.erase(ada),
        "save": lambda: store.save(document),
        "append": lambda: store.append("session", "before", [1], ada),
        "claim": lambda: store.claim("session", "before", ada, owner="me", ttl_ms=1_000),
        "open": lambda: open_store(url, embedder="none"),
    }
    for name, call in calls.items():
        try:
            call()
        except OmoideError as error:
            say(f"{name}: {type(error).__name__}")
        else:
            say(f"{name}: done")
    store.close()


def add_migration(set_value: Callable[[object, str, Any], None]) -> None:
    """Make this process one of a newer Omoide, which has one more migration of every store."""
    from omoide.stores.postgres import schema
    from omoide.stores.redis import layout
    from omoide.stores.sqlite import connection

    module: Any
    for module in (connection, schema):
        newer = (*module.MIGRATIONS, "ALTER TABLE entries ADD COLUMN later TEXT")
        set_value(module, "MIGRATIONS", newer)
        set_value(module, "VERSION", len(newer))
    set_value(layout, "SCHEMA_VERSION", layout.SCHEMA_VERSION + 1)


def migrate_later(url: str) -> None:
    """Open a store as a newer Omoide does."""
    from omoide.stores import open_store

    add_migration(setattr)
    open_store(url, embedder="none").sync.close()
    say("migrated")


def migrate_and_die(url: str, number: int) -> None:
    """Open a store of an older schema, and be killed after a number of the statements of its migration."""
    from omoide.stores import open_store

    kind: Any
    if url.startswith("sqlite"):
        from omoide.stores.sqlite import connection as sqlite

        kind = sqlite.SQLiteConnection
    else:
        from omoide.stores.postgres import connection as postgres

        kind = postgres.PostgresSession
    execute, left = kind.execute, number

    def counted(self: Any, statement: str, *rest: Any) -> Any:
        nonlocal left
        found = execute(self, statement, *rest)
        if statement.strip().startswith(MIGRATING):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return found

    kind.execute = counted
    open_store(url, embedder="none")
    say(f"migrated with {number - left} statements")


if __name__ == "__main__":
    job, url, number = sys.argv[1:]
    if job == "keep_open":
        keep_open(url)
    elif job == "migrate_later":
        migrate_later(url)
    else:
        migrate_and_die(url, int(number))
