"""After `scrubbed=True` no erased byte is in the files of a SQLite store, whatever its history."""

from __future__ import annotations

import os
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.support.stores import ADA, a_store, keep

from omoide import Scope
from omoide.stores import Document, Link
from omoide.testing import HashEmbedder

HISTORIES = max(3, int(os.environ.get("OMOIDE_EXAMPLES", "30")) // 10)
STEPS = 250
SEEDS = [int(os.environ.get("OMOIDE_SEED", "0")) + n for n in range(HISTORIES)]


class History:
    """A random life of a store: texts of 1 byte to 1 MB in entries, versions, documents and their logs."""

    def __init__(self, store: Any, seed: int) -> None:
        self.store = store
        self.chance = random.Random(seed)
        self.markers: dict[tuple[str, str], list[bytes]] = {}
        """Texts that were written, by what has to be erased for them to go."""
        self.erased: list[bytes] = []

    def text(self, owner: tuple[str, str]) -> str:
        """A text of random length; one of at least 12 bytes repeats a marker that no other text has."""
        size = int(10 ** (self.chance.choices((2, 3, 4, 6), (4, 8, 3, 1))[0] * self.chance.random()))
        marker = f"{self.chance.getrandbits(80):020x}"[: max(1, size)]
        if size >= 12:
            self.markers.setdefault(owner, []).append(marker.encode())
        return (f"{marker} " * (size // len(marker) + 1))[:size].strip()

    def step(self) -> None:
        """Write, change or erase something."""
        session = f"s{self.chance.randrange(12)}"
        id = f"{session}-{self.chance.randrange(8)}"
        steps = [self.write, self.write, self.write, self.save, self.append, self.supersede, self.link]
        steps += [self.erase_entry] * 2
        if self.chance.random() < 0.15:
            steps = [self.erase_session]
        self.chance.choice(steps)(session, id)

    def write(self, session: str, id: str) -> None:
        owner = ("entry", id)
        keep(self.store, self.text(owner), id=id, session_id=session, rationale=self.text(owner))

    def supersede(self, session: str, id: str) -> None:
        if ("entry", id) in self.markers:
            self.store.supersede(id, ADA, reason=self.text(("entry", id))[:1_000])
            self.store.reinstate(id, ADA)

    def link(self, session: str, id: str) -> None:
        other = f"{session}-{self.chance.randrange(8)}"
        if id != other and {("entry", id), ("entry", other)} <= {*self.markers}:
            self.store.link(Link(source=id, relation="refines", target=other), ADA)

    def save(self, session: str, id: str) -> None:
        body = {"said": self.text(("document", session))}
        self.store.save(Document(kind="k", id=session, agent_id="ada", session_id=session, body=body))

    def append(self, session: str, id: str) -> None:
        if self.store.load("k", session, ADA) is not None:
            said = [self.text(("document", session)) for _ in range(self.chance.randrange(1, 9))]
            self.store.append("k", session, said, ADA)

    def erase_entry(self, session: str, id: str) -> None:
        if ("entry", id) in self.markers:
            self.forget_markers(self.store.erase(ADA, id=id), [("entry", id)])

    def erase_session(self, session: str, id: str) -> None:
        gone = [("document", session), *(("entry", f"{session}-{n}") for n in range(8))]
        self.forget_markers(self.store.erase(Scope(agent_id="ada", session_id=session)), gone)

    def forget_markers(self, receipt: Any, owners: list[tuple[str, str]]) -> None:
        assert (receipt.scrubbed, receipt.pending) == (True, ())
        for owner in owners:
            self.erased += self.markers.pop(owner, [])

    def assert_no_trace(self, folder: Path) -> None:
        """Look for every marker in the raw bytes of every file."""
        data = b"\n".join(path.read_bytes() for path in folder.iterdir() if path.is_file())
        found = [marker for marker in self.erased if marker in data]
        assert not found, f"{len(found)} of {len(self.erased)} erased texts are in the files"


def pages(path: Path) -> bytes:
    """The pages of a database, without the counters in its header that each change raises."""
    data = path.read_bytes()
    return data[:24] + data[28:40] + data[44:92] + data[100:]


def rewritten_pages(folder: Path) -> bytes:
    """The pages that a database has when nothing but its rows decides on them."""
    fresh = folder / "fresh" / "memory.db"
    fresh.parent.mkdir()
    with closing(sqlite3.connect(folder / "memory.db")) as db:
        db.execute("VACUUM INTO ?", (str(fresh),))
    with closing(sqlite3.connect(fresh)) as db:
        db.execute("PRAGMA journal_mode = WAL")  # which the header notes
    return pages(fresh)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_byte_is_left_after_a_random_history(seed: int, tmp_path: Path) -> None:
    """Each receipt of the history says `scrubbed`, and no erased text is in the file or its log."""
    with a_store("sqlite", tmp_path, embedder=HashEmbedder(32)) as store:
        history = History(store, seed)
        for _ in range(STEPS):
            before = len(history.erased)
            history.step()
            if len(history.erased) > before:
                history.assert_no_trace(tmp_path)
        assert history.erased
        assert store.check() == []
        assert store.scrub().scrubbed
        assert (tmp_path / "memory.db-wal").read_bytes() == b""
    # For texts too short to be searched: the file has only bytes that the present rows put there.
    assert pages(tmp_path / "memory.db") == rewritten_pages(tmp_path)


def test_a_byte_that_stays_would_be_noticed(tmp_path: Path) -> None:
    """A file with a history that was not rewritten differs from one that has only its rows."""
    with a_store("sqlite", tmp_path, embedder=HashEmbedder(32)) as store:
        history = History(store, SEEDS[0])
        for _ in range(STEPS):
            history.step()
        keep(store, id="last")
    assert pages(tmp_path / "memory.db") != rewritten_pages(tmp_path)
