"""What does an operation know of the server?

It notes everything that it was told, so that a commit can make sure that it still holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from omoide.stores.indexing import Indexed
from omoide.stores.records import Access, Link, Version
from omoide.stores.redis import packing
from omoide.stores.redis.connections import Ask, Connections
from omoide.stores.redis.held import Held
from omoide.stores.redis.keys import Keys, parted
from omoide.stores.redis.packing import Row
from omoide.stores.redis.parts import MANY, Part
from omoide.stores.reference_state import DocumentKey, Kept, LinkKey, State
from omoide.stores.reference_state import Key as Name

T = TypeVar("T")


class Known(State):
    """What has been asked for, and where it was found."""

    def __init__(self, server: Connections, keys: Callable[[str], Keys], model: str) -> None:
        super().__init__()
        self.parts: dict[str, Part] = {}
        self.trips = 0
        self._server = server
        self._keys = keys
        self._model = model
        self._absent: set[Name] = set()
        self._removed: set[Name] = set()
        self._rested: dict[Name, dict[str, bool]] = {}
        self._invalid: dict[Name, int] = {}
        self._unburied: set[Name] = set()
        self._unlinked: set[LinkKey] = set()
        self._asked: set[Name] = set()
        """The idempotency keys that were looked for."""
        self._models: dict[str, tuple[str, bytes | None]] = {}
        self._oldest: dict[str, list[tuple[str, str, float]]] = {}
        self._quoted: dict[Name, list[str]] = {}
        self._answered: dict[Name, list[str]] = {}
        self._dropped: set[DocumentKey] = set()

    def part(self, namespace: str) -> Part:
        """The share of a namespace."""
        found = self.parts.get(namespace)
        if found is None:
            found = self.parts[namespace] = Part(self._keys(namespace))
        return found

    def ask(self, asks: Sequence[Ask]) -> list[Any]:
        """The answers of the server, all of one moment."""
        if not asks:
            return []
        self.trips += 1
        return self._server.read(asks)

    def _hold(self, key: Name, row: Row) -> Held:
        one = Held(row, self._found_of, self._access_of)
        self.kept[key] = one
        return one

    def _new(self, version: Version, found: Indexed, seq: int) -> Kept:
        model = self._model if found.pooled is not None else ""
        one = Held(
            Row(seq, seq, version.rev, version, model, found.given, []), self._found_of, self._access_of
        )
        one.found, one.renewed = found, True
        return one

    def _found_of(self, one: Held) -> Indexed:
        entry = one.entry
        (raw,) = self.ask([["HGET", self._keys(entry.namespace)("found"), entry.id]])
        return packing.found(raw)[1]

    def _access_of(self, one: Held) -> Access:
        entry = one.entry
        keys = self._keys(entry.namespace)
        count, last = self.ask([["HGET", keys("access"), entry.id], ["ZSCORE", keys("used"), entry.id]])
        return Access(count=int(count or 0), last=None if last is None else int(float(last)))

    # What was told

    def _know_rows(self, namespace: str, ids: Sequence[str], values: Sequence[bytes | None]) -> None:
        part = self.part(namespace)
        for id, raw in zip(ids, values, strict=True):
            key = (namespace, id)
            part.check("rows", id, raw)
            if key in self._removed:
                continue
            if raw is None:
                self._absent.add(key)
            elif key not in self.kept:
                self._hold(key, packing.row(raw, id))

    def _know_found(self, namespace: str, ids: Sequence[str], values: Sequence[bytes | None]) -> None:
        for id, raw in zip(ids, values, strict=True):
            one = self.kept.get((namespace, id))
            if one is not None and not held(one).is_described:
                one.found = packing.found(raw)[1]

    def _know_stones(self, namespace: str, ids: Sequence[str], values: Sequence[bytes | None]) -> None:
        part = self.part(namespace)
        for id, raw in zip(ids, values, strict=True):
            part.check("stones", id, raw)
            if raw is None:
                self._unburied.add((namespace, id))
            else:
                self.stones[namespace, id] = packing.stones(raw, id, namespace)

    def _know_invalid(self, namespace: str, ids: Sequence[str], values: Sequence[bytes | None]) -> None:
        part = self.part(namespace)
        for id, raw in zip(ids, values, strict=True):
            part.check("invalid", id, raw)
            self._invalid[namespace, id] = int(raw or 0)

    def _know_links(self, namespace: str, fields: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        part = self.part(namespace)
        for field, raw in zip(fields, values, strict=True):
            source, target, relation = parted(field, 3)
            key = (namespace, source, relation, target)
            part.check("links", field, raw)
            if raw is not None and key not in self._unlinked:
                self.links.setdefault(
                    key, Link(source=source, relation=relation, target=target, created_at=int(raw))
                )

    def _know_receipts(self, namespace: str, names: Sequence[str], values: Sequence[bytes | None]) -> None:
        part = self.part(namespace)
        for name, raw in zip(names, values, strict=True):
            part.check("receipts", name, raw)
            self._asked.add((namespace, name))
            if raw is not None:
                self.receipts[namespace, name] = packing.receipt(raw)

    def _know_model(self, namespace: str, values: Sequence[bytes | None]) -> None:
        model, vectors = values
        self._models[namespace] = ((model or b"").decode(), vectors)


def held(one: Kept) -> Held:
    """An entry of this store."""
    assert isinstance(one, Held)
    return one


def portions(some: Sequence[T], size: int | None = None) -> Iterator[Sequence[T]]:
    """In portions that fit into one command."""
    step = size or MANY
    return (some[at : at + step] for at in range(0, len(some), step))
