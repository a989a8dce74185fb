"""Random damage of a file is noticed, never read as content, and repaired around.

`OMOIDE_DAMAGES` is the number of damages; `OMOIDE_DAMAGE_SEED` the seed of the first.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.store_process import OPTIONS
from tests.support.stores import ADA, a_store, keep, open_core

from omoide import Entry, Filter, RecallRequest, Scope
from omoide.errors import OmoideError
from omoide.stores import Document, Link, Query
from omoide.stores.sqlite.salvage import repair_file

DAMAGES = int(os.environ.get("OMOIDE_DAMAGES", "20"))
SEED = int(os.environ.get("OMOIDE_DAMAGE_SEED", "0"))
CHUNKS = 10
PAGE = 4096
TABLE_LEAF, INDEX_LEAF, INTERIOR = 13, 10, (2, 5)
EVERYTHING = Filter(include_superseded=True, include_stale=True, include_expired=True)


class Truth:
    """A file, and all that it holds."""

    def __init__(self, folder: Path) -> None:
        with a_store("sqlite", folder, **OPTIONS) as store:
            self._fill(store)
            store.scrub()
            self.entries = {entry.id: entry for entry in store.list_entries(Scope())}
            self.versions = {id: store.history(id, Scope()) for id in self.entries}
            self.documents = {id: store.load("session", id, Scope()) for id in ("d0", "d1", "d2")}
            assert store.check() == []
        self.data = (folder / "memory.db").read_bytes()

    def _fill(self, store: Any) -> None:
        for n in range(150):
            text = f"Tea number {n} of many, with some words around it. " * (200 if n % 15 == 0 else 1)
            keep(store, text, id=f"e{n}", session_id=f"s{n % 5}", agent_id="ada" if n % 3 else "bob")
        for n in range(0, 150, 10):
            old = store.get(f"e{n}", Scope())
            keep(store, f"Changed {n}.", id=f"e{n}", session_id=old.session_id, agent_id=old.agent_id)
        for n in range(3, 60, 9):
            evidence = [{"kind": "entry", "ref": f"e{n}"}]
            keep(store, f"Derived from {n}.", id=f"f{n}", agent_id="bob", evidence=evidence)
            store.supersede(f"e{n}", Scope())
        for n in range(60, 100, 2):
            store.link(Link(source=f"e{n}", relation="refines", target=f"e{n + 1}"), Scope())
        for n in range(3):
            store.save(Document(kind="session", id=f"d{n}", agent_id="ada", body={"text": "Tea. " * n * 900}))
            store.append("session", f"d{n}", [{"n": n, "text": "Kettle. " * 30}] * 40, ADA)
        store.erase(Scope(), id="e5")


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Truth:
    """The file that is damaged."""
    return Truth(tmp_path_factory.mktemp("truth"))


class Damage:
    """One random damage: a byte, or a page."""

    def __init__(self, seed: int, data: bytes) -> None:
        dice = random.Random(seed)
        self.seed = seed
        self.page = dice.randrange(len(data) // PAGE) if dice.random() < 0.95 else 0
        start = self.page * PAGE
        self.header = start + (100 if self.page == 0 else 0)
        self.kind = data[self.header]
        self.cells = int.from_bytes(data[self.header + 3 : self.header + 5], "big")
        new = bytearray(data)
        self.is_byte = dice.random() < 0.6
        if self.is_byte:
            at = start + dice.randrange(PAGE)
            new[at] ^= dice.randrange(1, 256)
            self.text = f"seed {seed}: byte {at} on page {self.page}"
        else:
            size = dice.choice([PAGE, PAGE, 512])
            at = start + dice.randrange(PAGE - size + 1)
            junk = dice.choice([bytes(size), dice.randbytes(size), data[-size:]])
            new[at : at + size] = junk
            self.text = f"seed {seed}: {size} bytes from {at} on page {self.page}"
        self.data = bytes(new)

    @property
    def max_missing(self) -> int | None:
        """The number of entries that may be lost; None for pages on which others depend."""
        if self.page == 0 or self.kind in INTERIOR:
            return None
        if self.kind == TABLE_LEAF:
            return self.cells
        return 0 if self.kind == INDEX_LEAF else 1  # else overflow


def reads(store: Any) -> Iterator[tuple[Scope, Callable[[], Iterable[Entry]]]]:
    """All ways to read entries, and the scope of each."""
    for scope in (Scope(), ADA, Scope(agent_id="bob"), Scope(session_id="s1")):
        yield scope, partial(store.list_entries, scope)
        yield scope, partial(list_pages, store, Query(scope=scope, limit=500, filter=EVERYTHING))
    yield ADA, partial(recall, store, RecallRequest(agent_id="ada", query="tea number 7"))
    yield Scope(), lambda: store.change_feed("default").entries
    for id in ("e10", "e20", "e30"):
        yield Scope(), partial(get, store, id)


def list_pages(store: Any, query: Query) -> Iterable[Entry]:
    """The entries of the first page."""
    return tuple(store.query(query).entries)


def recall(store: Any, request: RecallRequest) -> Iterable[Entry]:
    """The entries that answer best."""
    return tuple(store.recall(request).entries)


def get(store: Any, id: str) -> Iterable[Entry]:
    """One entry."""
    return (store.get(id, Scope()),)


def try_all(store: Any, truth: Truth) -> tuple[list[str], list[str]]:
    """Return what is read wrongly, and the notices: typed errors."""
    wrong: list[str] = []
    notices: list[str] = []
    for scope, read in reads(store):
        try:
            wrong += [
                f"{scope}: {entry}"
                for entry in read()
                if truth.entries.get(entry.id) != entry or not scope.contains(entry)
            ]
        except OmoideError as error:
            notices.append(str(error))
    for id, history in truth.versions.items():
        if len(history) > 1:
            try:
                wrong += [str(one) for one in store.history(id, Scope()) if one not in history]
            except OmoideError as error:
                notices.append(str(error))
    for id, document in truth.documents.items():
        try:
            if (found := store.load("session", id, Scope())) != document:
                notices.append(f"document {id} is {found}") if found is None else wrong.append(str(found))
        except OmoideError as error:
            notices.append(str(error))
    return wrong, notices


def is_missing(store: Any, truth: Truth) -> bool:
    """Return True if a listing lacks an entry."""
    try:
        return len(store.list_entries(Scope())) < len(truth.entries)
    except OmoideError:
        return True


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_damage(truth: Truth, tmp_path: Path, chunk: int) -> None:
    """No traceback, nothing read wrongly, nothing missing without notice; and a repair keeps the rest."""
    for seed in range(SEED + chunk, SEED + DAMAGES, CHUNKS):
        damage = Damage(seed, truth.data)
        folder = tmp_path / str(seed)
        folder.mkdir()
        path = folder / "memory.db"
        path.write_bytes(damage.data)
        wrong: list[str] = []
        notices: list[str] = []
        missing = False
        try:
            with a_store("sqlite", folder, **OPTIONS) as store:
                wrong, notices = try_all(store, truth)
                missing = is_missing(store, truth)
                notices += store.check()
        except OmoideError as error:
            notices.append(str(error))
        assert wrong == [], damage.text
        assert notices or not missing, damage.text
        repair(path, damage, truth, bool(notices))
        for file in folder.iterdir():
            file.unlink()


def repair(path: Path, damage: Damage, truth: Truth, damaged: bool) -> None:
    """Repair a file, and compare what it holds."""
    try:
        result = repair_file(path)
    except OmoideError:
        assert damage.max_missing is None, damage.text
        return
    with closing(open_core("sqlite", path.parent, **OPTIONS)) as store:
        result = result or store.repair()
        assert store.check() == [], damage.text
        kept: dict[str, Entry] = {entry.id: entry for entry in store.list_entries(Scope())}
        for id, entry in kept.items():
            assert entry.replace(stale=False) == truth.entries[id].replace(stale=False), damage.text
        gone = truth.entries.keys() - kept.keys()
        if damage.max_missing is not None:
            assert len(gone) <= damage.max_missing, f"{damage.text}: {gone}"
        assert not gone or result.file, damage.text
        assert damaged or not gone, damage.text


def test_damaged_keys_of_several_types_are_salvaged(tmp_path: Path) -> None:
    """Links whose pages are gone and whose index has numbers and bytes among the ids end in no traceback."""
    path = tmp_path / "memory.db"
    with a_store("sqlite", tmp_path, embedder="none") as store:
        for n in range(60):
            keep(store, f"Tea number {n}.", id=f"e{n}")
        for n in range(59):
            store.link(Link(source=f"e{n}", relation="refines", target=f"e{n + 1}"), ADA)
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE links SET source = CAST(source AS BLOB) WHERE source LIKE 'e1_'")
        db.commit()
        (root,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'links'").fetchone()
        db.execute("PRAGMA journal_mode = DELETE")
    data = bytearray(path.read_bytes())
    data[(root - 1) * 4096] = 0x77
    path.write_bytes(data)
    repair_file(path)
    with a_store("sqlite", tmp_path, embedder="none") as store:
        assert store.check() == []
        assert len(store.list_entries(ADA)) == 60
