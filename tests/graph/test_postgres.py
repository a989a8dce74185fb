"""A graph over PostgreSQL is never older than an acknowledged write of another process."""

from __future__ import annotations

import json
import os
import random
from subprocess import Popen

from tests.support.postgres_process import start
from tests.support.servers import postgres

ROUNDS = 3 * int(os.environ.get("OMOIDE_KILLS", "10"))


def ask_process(process: Popen[bytes], line: str) -> str:
    """What a process answers to a line."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{line}\n".encode())
    process.stdin.flush()
    return process.stdout.readline().decode()


def test_a_query_sees_what_another_process_was_told_is_done() -> None:
    """What one process has written is found by the other at once; what it erased or replaced is not."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    chance = random.Random(seed)
    url = postgres().fresh_url()
    with start("change", url) as writer, start("ask", url) as reader:
        try:
            there: set[str] = set()
            for n in range(ROUNDS):
                for step in range(chance.randrange(1, 4)):
                    op = chance.choice(("write", "write", "supersede", "erase")) if there else "write"
                    id = f"m{n}-{step}" if op == "write" else chance.choice(sorted(there))
                    assert ask_process(writer, f"{op} {id}") == "done\n"
                    there.symmetric_difference_update({id})
                assert json.loads(ask_process(reader, "ask")) == sorted(f"It says {id}." for id in there)
        finally:
            for process in (writer, reader):
                assert process.stdin is not None
                process.stdin.close()
    assert (writer.returncode, reader.returncode) == (0, 0)
