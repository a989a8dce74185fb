"""Copies to a PostgreSQL server and back."""

from __future__ import annotations

import random
import sys
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path

import anyio
from tests.service.test_copy import dump_store
from tests.support.servers import postgres
from tests.support.store_process import IDS, step
from tests.support.stores import ADA, write_request

from omoide import clock
from omoide.service import copy
from omoide.stores import Document, open_store
from omoide.testing import FrozenClock


async def test_a_store_that_went_around_is_what_it_was(tmp_path: Path) -> None:
    """From a file to a server, into memory, to another server and into a file: all is the same each time."""
    places = [
        f"sqlite:///{tmp_path / 'first.db'}",
        postgres().fresh_url(),
        "memory://",
        postgres().fresh_url(),
        f"sqlite:///{tmp_path / 'last.db'}",
    ]
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(open_store(url, embedder="none")) for url in places]
        for n in range(80):
            step(stores[0].sync, seed, n)
        with clock.override(FrozenClock(5_000)):
            for n in range(20):
                await stores[0].write(
                    write_request(f"Other {n}", id=f"o{n}", namespace="other %'", session_id="s")
                )
            await stores[0].record_access(IDS[:4], ADA)
            await stores[0].save(Document(kind="k?", id="d'", namespace="third", body={"a": [1, None]}))
        before = await dump_store(stores[0])
        assert len(before) > 3
        for source, target in pairwise(stores):
            first = await copy(source, target)
            assert (first.new, first.new_documents) == (first.memories, first.documents)
            assert await dump_store(target) == before
            again = await copy(source, target)
            assert (again.memories, again.new, again.new_documents) == (first.memories, 0, 0)
            assert await dump_store(target) == before
        for store in stores:
            assert (await copy(stores[-1], store)).new == 0 if store is not stores[-1] else True
            if hasattr(store.sync, "check"):
                assert store.sync.check() == []


async def test_the_command_copies_to_a_server_and_says_no_password(tmp_path: Path) -> None:
    """`omoide copy` does the same, twice, and what it prints holds no password."""
    file, url = tmp_path / "m.db", postgres().fresh_url()
    async with open_store(f"sqlite:///{file}", embedder="none") as source:
        for n in range(5):
            await source.write(write_request(f"Tea {n}.", id=f"e{n}"))
    command = [sys.executable, "-m", "omoide", "copy", "--from", f"sqlite:///{file}", "--to", url]
    for _ in range(2):
        done = await anyio.run_process(command, check=False)
        said = (done.stdout + done.stderr).decode()
        assert done.returncode == 0, said
        assert postgres().password not in said
        assert "%20password" not in said
    async with open_store(url, embedder="none") as target:
        assert sorted(entry.id for entry in await target.list_entries(ADA)) == [f"e{n}" for n in range(5)]
