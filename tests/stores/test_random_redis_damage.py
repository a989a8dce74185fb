"""Random damage of values on a Redis server is noticed, never read as content, and repaired around.

`OMOIDE_DAMAGES` is the number of damages; `OMOIDE_DAMAGE_SEED` the seed of the first.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.stores.test_random_damage import DAMAGES, SEED, is_missing, try_all
from tests.support.stores import ADA, a_store, keep

from omoide import Scope
from omoide.errors import Busy, OmoideError
from omoide.stores import Document, Link
from omoide.stores.redis.layout import KEY_TYPES, decode_text
from omoide.testing import HashEmbedder

WITH: dict[str, Any] = {"embedder": HashEmbedder(32), "timeout": 5}
BODIES = {"rows": 1, "past": 0, "docs": 0, "doclog": 0}
"""The names of keys with a checksum, and how many entries one damage may cost."""


class Truth:
    """A store on a server, all that it holds, and its keys."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self._fill()
        self.entries = {entry.id: entry for entry in store.list_entries(Scope())}
        self.versions = {id: store.history(id, Scope()) for id in self.entries}
        self.documents = {id: store.load("session", id, Scope()) for id in ("d0", "d1", "d2")}
        assert store.check() == []
        pattern = store._transactions.keys("default").pattern
        self.dumps = {
            key: self.run("DUMP", key)
            for key in store._server.scan(pattern)
            if self.name_of(key) in KEY_TYPES
        }

    def _fill(self) -> None:
        store = self.store
        for n in range(40):
            agent = "ada" if n % 3 else "bob"
            key = f"cup{n}" if n % 4 == 0 else None
            keep(store, f"Tea number {n}.", id=f"e{n}", session_id=f"s{n % 5}", agent_id=agent, key=key)
        for n in range(0, 40, 10):
            old = store.get(f"e{n}", Scope())
            keep(store, f"Changed {n}.", id=f"e{n}", session_id=old.session_id, agent_id=old.agent_id)
        for n in range(3, 30, 9):
            evidence = [{"kind": "entry", "ref": f"e{n}"}]
            keep(
                store, f"Derived {n}.", id=f"f{n}", agent_id="bob", evidence=evidence, idempotency_key=f"k{n}"
            )
            store.supersede(f"e{n}", Scope())
        for n in range(20, 30, 2):
            store.link(Link(source=f"e{n}", relation="refines", target=f"e{n + 1}"), Scope())
        for n in range(3):
            store.save(Document(kind="session", id=f"d{n}", agent_id="ada", body={"text": "Tea. " * n}))
            store.append("session", f"d{n}", [{"n": n, "text": "Kettle."}] * 4, ADA)
        store.erase(Scope(), id="e5")
        store.record_access(["e6", "e7"], Scope())

    def run(self, *command: Any) -> Any:
        return self.store._server.execute(*command)

    def name_of(self, key: bytes) -> str:
        name: str = self.store._transactions.keys("default").split(key)[0]
        return name

    def reset(self) -> None:
        """Put everything back as it was."""
        for key in self.store._server.scan(self.store._transactions.keys("default").pattern):
            if key not in self.dumps:
                self.run("DEL", key)
        for key, dump in self.dumps.items():
            self.run("RESTORE", key, 0, dump, "REPLACE")


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Truth]:
    """The store that is damaged."""
    with a_store("redis", tmp_path_factory.mktemp("truth"), **WITH) as store:
        yield Truth(store)


def damage(truth: Truth, seed: int) -> tuple[str, str]:
    """Change a byte of a random value, field or member; return the name of its key, and what was done."""
    dice = random.Random(seed)
    name = dice.choice(
        sorted({truth.name_of(key) for key in truth.dumps} - {"gate", "done", "watch", "gone"})
    )
    key = dice.choice(sorted(key for key in truth.dumps if truth.name_of(key) == name))
    kind = KEY_TYPES[name]
    if kind == "hash":
        field = dice.choice(sorted(truth.run("HKEYS", key)))
        old = truth.run("HGET", key, field)
        new = flip(dice, old)
        truth.run("HSET", key, field, new)
    elif kind == "list":
        field = dice.randrange(truth.run("LLEN", key))
        old = truth.run("LINDEX", key, field)
        new = flip(dice, old)
        truth.run("LSET", key, field, new)
    elif kind == "stream":
        lines = truth.run("XRANGE", key, "-", "+")
        at = dice.randrange(len(lines))
        field, old = lines[at][0], lines[at][1][b"c"]
        new = flip(dice, old)
        truth.run("DEL", key)
        for number, fields in lines:
            truth.run("XADD", key, number, "c", new if number == field else fields[b"c"])
    else:
        add, remove, read = ("SADD", "SREM", "SMEMBERS") if kind == "set" else ("ZADD", "ZREM", "ZRANGE")
        field = dice.choice(sorted(truth.run(read, key, *(("0", "-1") if kind == "zset" else ()))))
        score = [truth.run("ZSCORE", key, field)] if kind == "zset" else []
        old, new = field, flip(dice, field)
        truth.run(remove, key, field)
        truth.run(add, key, *score, new)
    return name, f"seed {seed}: {decode_text(key)} {field!r}: {old!r} became {new!r}"


def flip(dice: random.Random, value: bytes) -> bytes:
    """Change one byte."""
    changed = bytearray(value or b"\0")
    changed[dice.randrange(len(changed))] ^= dice.randrange(1, 256)
    return bytes(changed)


def write_meanwhile(store: Any) -> None:
    """Write and erase; both may be refused, but not after endless tries."""
    try:
        keep(store, "Written meanwhile.", id="new")
        store.erase(Scope(), id="new")
    except Busy:
        raise
    except OmoideError:
        pass


def test_random_damage(truth: Truth, tmp_path: Path) -> None:
    """No traceback, nothing read wrongly, nothing missing without notice; and a repair keeps the rest."""
    store = truth.store
    for seed in range(SEED, SEED + DAMAGES):
        truth.reset()
        name, text = damage(truth, seed)
        wrong, notices = try_all(store, truth)  # type: ignore[arg-type]
        missing = is_missing(store, truth)  # type: ignore[arg-type]
        problems = store.check()
        assert wrong == [], text
        assert problems or notices or not missing, text
        write_meanwhile(store)
        file = tmp_path / str(seed)
        result = store.repair(file)
        assert store.check() == [], text
        assert (result.file is not None) == file.exists(), text
        kept = {entry.id: entry for entry in store.list_entries(Scope())}
        for id, entry in kept.items():
            assert entry.replace(stale=False) == truth.entries[id].replace(stale=False), text
        gone = truth.entries.keys() - kept.keys()
        assert len(gone) <= BODIES.get(name, 0), f"{text}: {gone}"
        assert problems or not gone, text
        assert set(store.erase(Scope()).ids) == kept.keys(), text


def test_a_damaged_entry_is_erased_with_the_rest(truth: Truth) -> None:
    """Whatever value was damaged, erasing everything leaves nothing, or says that it does."""
    store = truth.store
    for seed in range(SEED, SEED + DAMAGES):
        truth.reset()
        name, text = damage(truth, seed)
        try:
            receipt = store.erase(Scope())
        except OmoideError:
            assert name in ("meta", "time", "watch", "rows"), text
            continue
        left = truth.run("HLEN", store._transactions.keys("default")("rows"))
        assert left == 0 or name == "time", f"{text}: {receipt}"
