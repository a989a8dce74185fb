"""Persistent maps in insertion order.

A map of at most `MAX_DICT` items is a plain dict that is copied on change. A larger one is a `Table`, of
which a change copies three small lists and one small dict, and shares everything else with the older version.
`pack`, `set_item`, `delete_item` and `set_items` return a new map and leave the given one unchanged; reading
is the same for both.

No version refers to a newer one, and nothing that a version refers to is ever written: any number of threads
may read and change any versions, and a version that is no longer used is freed at once.

As in a dict, a key that is set again keeps its place, and one that was deleted and set again is the last. The
order does not depend on hashes, which differ between processes.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from itertools import chain
from typing import Any, Generic, TypeVar, cast

K = TypeVar("K")
V = TypeVar("V")

MAX_DICT = 64  # beyond it, copying a dict takes longer than changing a table
LOAD = 8  # items per bucket on average, so that copying one is cheap
LOG_CHUNK = 32  # keys per chunk of the log

Bucket = dict[K, V]
Log = tuple[Any, tuple[Any, ...]]
"""The log before its last chunk, or None, and the last chunk."""


class Table(Generic[K, V]):
    """A persistent hash table that remembers the order in which its keys were set.

    Its buckets are dicts, numbered and held in lists of lists of lists. The table grows by linear hashing: a
    bucket is split whenever there are more than `LOAD` items per bucket, so no change rebuilds them all.

    The log has the keys in the order in which they were set first. A deleted key stays in it until it has as
    many deleted keys as others; the next deletion then makes a new map.
    """

    __slots__ = ("_count", "_log", "_mask", "_root", "_size", "_stale")

    _root: list[list[list[Bucket[K, V]]]]  # 32 × 32 buckets in each item, the last one may have fewer
    _count: int  # of buckets
    _mask: int  # the smallest 2ⁿ − 1 that no bucket's number exceeds
    _size: int
    _log: Log
    _stale: int  # keys in the log beyond those in the table

    @classmethod
    def build(cls, items: Mapping[K, V]) -> Table[K, V]:
        """Return a table of the items of a mapping."""
        new = cls()
        new._size = len(items)
        new._stale = 0
        new._count = count = len(items) // LOAD + 1
        new._mask = mask = (1 << (count - 1).bit_length()) - 1
        buckets: list[Bucket[K, V]] = [{} for _ in range(count)]
        for key, value in items.items():
            at = hash(key) & mask
            buckets[at if at < count else at & mask >> 1][key] = value
        rows = [buckets[start : start + 32] for start in range(0, count, 32)]
        new._root = [rows[start : start + 32] for start in range(0, len(rows), 32)]
        keys = tuple(items)
        log: Any = None
        for start in range(0, len(keys), LOG_CHUNK):
            log = (log, keys[start : start + LOG_CHUNK])
        new._log = log or (None, ())
        return new

    def __len__(self) -> int:
        return self._size

    # The lookup of a bucket is written out where it is frequent: a call takes as long as the lookup itself.

    def __getitem__(self, key: K) -> V:
        at = hash(key) & self._mask
        if at >= self._count:  # that bucket is not split off yet
            at &= self._mask >> 1
        return self._root[at >> 10][at >> 5 & 31][at & 31][key]

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value for a key, or the default."""
        at = hash(key) & self._mask
        if at >= self._count:
            at &= self._mask >> 1
        return self._root[at >> 10][at >> 5 & 31][at & 31].get(key, default)

    def __contains__(self, key: object) -> bool:
        at = self._number(key)
        return key in self._root[at >> 10][at >> 5 & 31][at & 31]

    def __iter__(self) -> Iterator[K]:
        return iter(self.to_dict()) if self._stale else self._logged()

    def keys(self) -> KeysView[K]:
        """Return the keys in order."""
        return self.to_dict().keys()

    def values(self) -> ValuesView[V]:
        """Return the values in the order of the keys."""
        return self.to_dict().values()

    def items(self) -> ItemsView[K, V]:
        """Return pairs of key and value in order."""
        return self.to_dict().items()

    def to_dict(self) -> dict[K, V]:
        """Return a dict with the same items in the same order."""
        items: dict[K, V] = {}
        for bucket in chain.from_iterable(chain.from_iterable(self._root)):
            items.update(bucket)
        if not self._stale:
            return {key: items[key] for key in self._logged()}
        # A key that was deleted and set again is in the log several times: its last place counts.
        places = dict.fromkeys(reversed([*self._logged()]))
        return {key: items[key] for key in reversed(places) if key in items}

    def __eq__(self, other: object) -> bool:
        if isinstance(other, dict):
            return len(other) == self._size and other == self.to_dict()
        if not isinstance(other, Table):
            return NotImplemented
        if self._count == other._count:  # equal keys are in the same bucket, and a shared one is not compared
            return self._root == other._root
        return self._size == other._size and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return pack, (self.to_dict(),)  # hashes, and so the buckets of keys, differ in another process

    def set(self, key: K, value: V) -> Table[K, V]:
        """Return a table with one item set."""
        at = hash(key) & self._mask
        if at >= self._count:
            at &= self._mask >> 1
        first, second, third = at >> 10, at >> 5 & 31, at & 31
        root = self._root.copy()
        rows = root[first] = root[first].copy()
        row = rows[second] = rows[second].copy()
        old = row[third]
        bucket = row[third] = old.copy()
        bucket[key] = value
        new: Table[K, V] = Table()
        new._root = root
        new._count = self._count
        new._mask = self._mask
        new._stale = self._stale
        if key in old:
            new._size = self._size
            new._log = self._log
            return new
        earlier, chunk = self._log
        new._size = self._size + 1
        new._log = (earlier, (*chunk, key)) if len(chunk) < LOG_CHUNK else (self._log, (key,))
        if new._size > LOAD * new._count:
            new._split_bucket()
        return new

    def delete(self, key: K) -> Items[K, V]:
        """Return a map without a key, which must exist."""
        if self._stale >= self._size:
            items = self.to_dict()
            del items[key]
            return pack(items)
        new: Table[K, V] = Table()
        new._root = self._root.copy()
        new._count = self._count
        new._mask = self._mask
        new._size = self._size - 1
        new._log = self._log
        new._stale = self._stale + 1
        del new._copy_bucket(self._number(key))[key]
        return new

    def _number(self, key: object) -> int:
        """Return the number of the bucket of a key."""
        at = hash(key) & self._mask
        return at if at < self._count else at & self._mask >> 1

    def _logged(self) -> Iterator[K]:
        """Return the keys of the log in order."""
        chunks: list[tuple[K, ...]] = []
        log: Any = self._log
        while log is not None:
            log, chunk = log
            chunks.append(chunk)
        return chain.from_iterable(reversed(chunks))

    # These change a new table, whose root nothing else refers to yet.

    def _copy_bucket(self, number: int) -> Bucket[K, V]:
        """Replace a bucket by a copy, and return the copy."""
        rows = self._root[number >> 10] = self._root[number >> 10].copy()
        row = rows[number >> 5 & 31] = rows[number >> 5 & 31].copy()
        bucket = row[number & 31] = row[number & 31].copy()
        return bucket

    def _split_bucket(self) -> None:
        """Add a bucket with the items of an older one that belong to it."""
        number = self._count
        if number > self._mask:
            self._mask = 2 * self._mask + 1
        self._count += 1
        old = self._copy_bucket(number & self._mask >> 1)
        moved = {key: old.pop(key) for key in [*old] if hash(key) & self._mask == number}
        if not number & 1023:
            self._root.append([[moved]])
        elif not number & 31:
            self._root[-1] = [*self._root[-1], [moved]]
        else:
            *rows, row = self._root[-1]
            self._root[-1] = [*rows, [*row, moved]]


Items = dict[K, V] | Table[K, V]


def pack(items: Mapping[K, V]) -> Items[K, V]:
    """Return a map of the items of a mapping."""
    return dict(items) if len(items) <= MAX_DICT else Table.build(items)


def set_item(items: Items[K, V], key: K, value: V) -> Items[K, V]:
    """Return a map with one item set."""
    if type(items) is Table:
        return items.set(key, value)
    new: dict[K, V] = items.copy()  # type: ignore[union-attr]  # a `cast` here would be a call
    new[key] = value
    return new if len(new) <= MAX_DICT else Table.build(new)


def delete_item(items: Items[K, V], key: K) -> Items[K, V]:
    """Return a map without a key, which must exist."""
    if type(items) is Table:
        return items.delete(key)
    new: dict[K, V] = items.copy()  # type: ignore[union-attr]
    del new[key]
    return new


def set_items(items: Items[K, V], changes: Mapping[K, V] | Table[K, V]) -> Items[K, V]:
    """Return a map with the items of another mapping set."""
    if isinstance(changes, Table):
        changes = changes.to_dict()
    if type(items) is not Table:
        return pack({**cast("dict[K, V]", items), **changes})
    if 4 * len(changes) > len(items):  # a new table takes less time than that many changes
        return Table.build({**items.to_dict(), **changes})
    new = items
    for key, value in changes.items():
        new = new.set(key, value)
    return new
