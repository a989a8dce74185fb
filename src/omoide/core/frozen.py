"""Deeply frozen maps, lists and sets, and the limits of what they hold.

`freeze` copies the data of a caller: a dict becomes a `FrozenMap`, a list or tuple a `FrozenList`, a set a
frozenset. Both containers are a Mapping or a Sequence, equal a dict or list with the same items, share
structure between versions, and convert back with `.to_python()`. Data that a codec cannot encode without
loss is refused with its path.

Maps keep the order in which their keys were set, and equal other maps whatever their order: see `maps`.

Every map and list knows its depth, because deep data can be built from shallow frozen parts. One that would
become too deep is refused, so all frozen data can be compared, printed and encoded recursively.

Lists are built on `Vector`, a persistent sequence. Its items are in small chunks, stored in a
map under numbers that never change; the last few items are in a tail. A change copies one chunk
and shares everything else with the older version. A list that only grew has its chunks numbered in order;
once a chunk was split or removed, a spine has the order of the numbers. Because numbers are stable, an index
from an item's id to its chunk survives insertions and removals: finding, changing and removing by id do not
depend on the length. The index is built by the first search by id and maintained from then on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import (
    Callable,
    Hashable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    Sequence,
    ValuesView,
)
from collections.abc import Set as AbstractSet
from datetime import datetime, timezone
from enum import Enum
from functools import cache
from itertools import accumulate, chain
from math import isfinite
from operator import index
from typing import Any, Generic, Self, SupportsIndex, TypeVar, cast, get_args, overload

import msgspec

from omoide.core.maps import MAX_DICT, Items, delete_item, pack, set_item, set_items
from omoide.errors import Invalid, Unsupported, WrongType

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S", bound=type)

MAX_INPUT_DEPTH = 64  # of data that is frozen in one call
MAX_STORED_DEPTH = 2 * MAX_INPUT_DEPTH  # of data that is built from frozen parts
MAX_NODES = 10_000_000
MIN_INT, MAX_INT = -(2**63), 2**64 - 1  # what fits into 64 bits, signed or unsigned
CHUNK_SIZE = 8  # a chunk is split beyond twice this; a change copies one chunk, so it is small
MAX_INDEXED_PER_ID = 16  # items with one id; with more of them, the whole list is scanned instead

SCALAR_TYPES = frozenset({str, int, float, bool, type(None), bytes, datetime})
"""Types that are not containers."""

VALUE_TYPES: dict[type, str] = {}
"""Structs that free data may hold, with the names under which they are encoded."""

Chunk = tuple[Any, ...]
Positions = tuple[tuple[int, int], ...]  # number of a chunk, and the offset at the time of indexing
# By `(id,)`: an int is its own hash, so ids with equal low bits would share a bucket.
Index = Items[tuple[Hashable], Positions]
Freezer = Callable[[Any, int, "_Budget"], Any]

allocate = object.__new__
"""Creates a FrozenMap whose `_map` the caller sets; one call less, and every change creates several maps."""

_ABSENT = object()
_BYTES_TYPES = (bytes, bytearray, memoryview)
_EMPTY: dict[Any, Any] = {}
_NO_CHUNKS: Items[int, Chunk] = {}


def value_type(cls: S) -> S:
    """Register a struct as a value that maps and lists may hold and the codec restores; a decorator."""
    VALUE_TYPES[cls] = cls.__name__
    return cls


def depth_of(value: Any) -> int:
    """Return the number of container levels in frozen data."""
    kind = type(value)
    if kind in SCALAR_TYPES:
        return 0
    if kind in VALUE_TYPES:
        holders: tuple[str, ...] = _container_fields(cast("Any", kind))
        return 1 + max([depth_of(getattr(value, field)) for field in holders], default=0)
    if kind in (frozenset, tuple):  # sets are plain frozensets and cannot store their depth
        return 1 + max(map(depth_of, value), default=0)
    try:
        depth: int = value._depth  # maps and lists store it
    except AttributeError:  # of `wrap_map_lazy`; two threads that compute it set the same number
        depth = value._depth = 1 + max(map(depth_of, value.values()), default=0)
    return depth


@cache
def _container_fields(kind: Any) -> tuple[str, ...]:
    """Return the fields of a struct that can hold containers."""
    return tuple(field.name for field in msgspec.structs.fields(kind) if not _is_scalar(field.type))


def _is_scalar(kind: Any) -> bool:
    inner = [arg for arg in get_args(kind) if isinstance(arg, type)]
    return kind in SCALAR_TYPES if not inner else all(arg in SCALAR_TYPES for arg in inner)


def check_depth(depth: int, item: Any, path: str) -> int:
    """Return the depth of a container with one more item, or raise `Unsupported` if it is too deep."""
    if type(item) in SCALAR_TYPES:
        return depth
    depth = max(depth, 1 + depth_of(item))
    # A value type has a few levels of its own around the data that it holds.
    if depth > (MAX_STORED_DEPTH + 8 if type(item) in VALUE_TYPES else MAX_STORED_DEPTH):
        raise Unsupported(path, f"would be nested deeper than {MAX_STORED_DEPTH} levels", "flatten it")
    return depth


def container_depth(items: Iterable[Any]) -> int:
    """Return the depth of a container of these items."""
    depth = 1
    for item in items:
        if type(item) not in SCALAR_TYPES:
            depth = check_depth(depth, item, "value")
    return depth


def check_encodable(value: str, path: str) -> str:
    """Return the plain text of a string, or raise `Unsupported` if a store or codec cannot hold it."""
    # PostgreSQL cannot store NUL in text, and UTF-8 has no form of a lone surrogate.
    if "\0" in value:
        raise Unsupported(path, "contains a NUL character", "remove it, or store bytes")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unsupported(path, "contains a lone surrogate", "decode the text properly first") from None
    return str.__str__(value)


def check_str(value: object, field: str) -> str:
    """Return text that can be stored, empty or not."""
    if not isinstance(value, str):
        raise WrongType(field, "a string", value)
    return check_encodable(value, field)


def check_text(value: object, field: str, remedy: str = "pass non-empty text") -> str:
    """Return text that can be stored and is not empty."""
    text = check_str(value, field)
    if not text.strip():
        raise Invalid(field, "is empty", remedy)
    return text


class Vector(Generic[T]):
    """A persistent sequence; every method returns a new one and leaves this one unchanged."""

    __slots__ = (
        "_chunks",
        "_dense",
        "_depth",
        "_index",
        "_last",
        "_next",
        "_size",
        "_spine",
        "_starts",
        "_tail",
    )

    _chunks: Items[int, Chunk]
    _spine: tuple[int, ...] | None  # the chunks' numbers in order; None while they are 0, 1, 2, …
    _tail: Chunk
    _size: int
    _last: int  # the tail's number
    _next: int  # the next number that is free
    _dense: bool  # all chunks but the tail are CHUNK_SIZE long, so positions can be computed
    _index: Index | None  # built by the first search by id; None: not built, or not worth keeping
    _starts: list[int] | None  # cache of `_locate` where chunks differ in length
    _depth: int  # set by FrozenList; 1 is a list of scalars

    @classmethod
    def _build(
        cls,
        chunks: Items[int, Chunk] = _NO_CHUNKS,
        spine: tuple[int, ...] | None = None,
        tail: Chunk = (),
        size: int = 0,
        last: int = 0,
        following: int = 1,
        dense: bool = True,
        index: Index | None = None,
        depth: int = 1,
    ) -> Self:
        new = object.__new__(cls)
        new._chunks = chunks
        new._spine = spine
        new._tail = tail
        new._size = size
        new._last = last
        new._next = following
        new._dense = dense
        new._index = index
        new._starts = None
        new._depth = depth
        return new

    @staticmethod
    def id_of(item: Any) -> Hashable:
        """Return the id of an item, or None if it has none; subclasses override it."""
        raise NotImplementedError

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        if not self._chunks:
            return iter(self._tail)
        return chain(chain.from_iterable(map(self._chunks.__getitem__, self._chunk_numbers())), self._tail)

    def at(self, position: int) -> T:
        """Return the item at an existing position."""
        number, offset = self._locate(position)
        item: T = self._chunk(number)[offset]
        return item

    def extends(self, older: Vector[T]) -> bool:
        """Return True if it begins with all items of an older one; shared chunks are not compared."""
        if self._size < older._size:
            return False
        if self._spine is None and older._spine is None and self._dense and older._dense:
            # Chunks are numbered in order and of one length, so the same number is the same positions.
            shared = older._last
            mine, theirs = self._chunks, older._chunks
            if any(mine[n] is not theirs[n] and mine[n] != theirs[n] for n in range(shared)):
                return False
            rest = self._tail if self._last == shared else mine[shared]
            return rest[: len(older._tail)] == older._tail
        return all(own is other or own == other for own, other in zip(self, older, strict=False))

    def find_by_id(self, item_id: Hashable) -> list[T]:
        """Return the items with this id, in the order of the list."""
        positions = self._id_index().get((item_id,), ())
        if len(positions) > MAX_INDEXED_PER_ID:
            return [item for item in self if self.id_of(item) == item_id]
        chunks = [self._chunk(number) for number in self._chunk_numbers_at(positions)]
        return [item for chunk in chunks for item in chunk if self.id_of(item) == item_id]

    def _append(self, item: T) -> Self:
        """Return a vector with one more item at the end."""
        index = self._index
        if index is not None:
            index = _add_to_index(index, self.id_of(item), self._last, len(self._tail))
        return self._replace_chunk(self._last, (*self._tail, item), index)

    def _extend(self, items: Iterable[T]) -> Self:
        """Return a vector with more items at the end."""
        pending = [*self._tail, *items]
        size = self._size - len(self._tail) + len(pending)
        added: dict[int, Chunk] = {}
        number, following = self._last, self._next
        full = len(pending) - len(pending) % CHUNK_SIZE
        for start in range(0, full, CHUNK_SIZE):
            added[number] = tuple(pending[start : start + CHUNK_SIZE])
            number, following = following, following + 1
        tail = tuple(pending[full:])
        spine = None if self._spine is None else (*self._spine, *added)
        chunks = set_items(self._chunks, added) if added else self._chunks
        return self._build(chunks, spine, tail, size, number, following, self._dense, None, self._depth)

    def _insert(self, position: int, item: T) -> Self:
        """Return a vector with an item before `position`, which is between 0 and the length."""
        if position == self._size:
            return self._append(item)
        number, offset = self._locate(position)
        chunk = self._chunk(number)
        index = self._index
        if index is not None:
            index = _add_to_index(index, self.id_of(item), number, offset)
        return self._replace_chunk(number, (*chunk[:offset], item, *chunk[offset:]), index)

    def _set_at(self, position: int, item: T) -> Self:
        """Return a vector with another item at `position`."""
        number, offset = self._locate(position)
        chunk = self._chunk(number)
        # None drops the index: the ids of the old and the new item may differ.
        return self._replace_chunk(number, (*chunk[:offset], item, *chunk[offset + 1 :]), None)

    def _delete_at(self, position: int) -> Self:
        """Return a vector without the item at `position`."""
        number, offset = self._locate(position)
        chunk = self._chunk(number)
        return self._replace_chunk(number, chunk[:offset] + chunk[offset + 1 :], None)

    def _update_by_id(self, item_id: Hashable, change: Callable[[T], T]) -> Self:
        """Return a vector with `change` applied to every item with this id; itself if there is none."""
        index = self._id_index()
        positions = index.get((item_id,), ())
        if not positions:
            return self
        if len(positions) > 1:
            return self._update_all_by_id(item_id, positions, change)
        number, hint = positions[0]
        chunk = [*self._chunk(number)]
        at = self._offset_of(chunk, hint, item_id)
        chunk[at] = changed = change(chunk[at])
        new_id = self.id_of(changed)
        new_index = (
            index if new_id == item_id else _add_to_index(delete_item(index, (item_id,)), new_id, number, at)
        )
        return self._replace_chunk(number, tuple(chunk), new_index)

    def _update_all_by_id(self, item_id: Hashable, positions: Positions, change: Callable[[T], T]) -> Self:
        if len(positions) > MAX_INDEXED_PER_ID:
            items = [change(item) if self.id_of(item) == item_id else item for item in self]
            return self._build(depth=self._depth)._extend(items)
        new, index = self, self._index
        # Replacing a chunk by one of the same length neither splits nor removes it: the numbers stay valid.
        for number in self._chunk_numbers_at(positions):
            chunk = [change(item) if self.id_of(item) == item_id else item for item in self._chunk(number)]
            new = new._replace_chunk(number, tuple(chunk), None)
            if self._has_new_ids(number, chunk):
                index = None  # rare, so it is rebuilt when needed
        new._index = index
        return new

    def _has_new_ids(self, number: int, chunk: list[Any]) -> bool:
        """Return True if the items of a chunk have other ids than before."""
        return [self.id_of(item) for item in chunk] != [self.id_of(item) for item in self._chunk(number)]

    def _remove_by_id(self, item_id: Hashable) -> Self:
        """Return a vector without the items with this id; itself if there is none."""
        index = self._id_index()
        positions = index.get((item_id,), ())
        if not positions:
            return self
        if len(positions) > MAX_INDEXED_PER_ID:
            items = [item for item in self if self.id_of(item) != item_id]
            return self._build(depth=self._depth)._extend(items)
        new = self
        for number in self._chunk_numbers_at(positions):
            chunk = [*self._chunk(number)]
            if len(positions) == 1:
                del chunk[self._offset_of(chunk, positions[0][1], item_id)]
            else:
                chunk = [item for item in chunk if self.id_of(item) != item_id]
            new = new._replace_chunk(number, tuple(chunk), None)
        # Positions of other items may be off within their chunk now; `_offset_of` takes them as hints only.
        new._index = delete_item(index, (item_id,))
        return new

    def _offset_of(self, chunk: list[Any], hint: int, item_id: Hashable) -> int:
        """Return the offset of the one item with this id: the hint, unless items before it came or went."""
        if hint < len(chunk) and self.id_of(chunk[hint]) == item_id:
            return hint
        return next(at for at, item in enumerate(chunk) if self.id_of(item) == item_id)

    def _chunk(self, number: int) -> Chunk:
        return self._tail if number == self._last else self._chunks[number]

    def _locate(self, position: int) -> tuple[int, int]:
        """Return the number of the chunk that holds a position, and the offset in it."""
        in_tail = position - (self._size - len(self._tail))
        if in_tail >= 0:
            return self._last, in_tail
        numbers = self._chunk_numbers()
        if position == 0:  # needs no `_starts`, so repeated insertion at the front stays cheap
            return numbers[0], 0
        if self._dense:
            return numbers[position // CHUNK_SIZE], position % CHUNK_SIZE
        starts = self._starts
        if starts is None:
            # Set by one assignment, once complete: another thread computes the same list at worst.
            sizes = (len(self._chunks[number]) for number in numbers)
            starts = self._starts = list(accumulate(sizes, initial=0))
        at = bisect_right(starts, position) - 1
        return numbers[at], position - starts[at]

    def _chunk_numbers(self) -> Sequence[int]:
        """Return the numbers of the chunks in order, without the tail."""
        return range(self._last) if self._spine is None else self._spine

    def _chunk_numbers_at(self, positions: Positions) -> list[int]:
        """Return the numbers of the chunks at these positions, each once, in order."""
        if len(positions) == 1:
            return [positions[0][0]]
        numbers = {number for number, _ in positions}
        if self._spine is None:
            return sorted(numbers)
        return [number for number in (*self._spine, self._last) if number in numbers]

    def _id_index(self) -> Index:
        index = self._index
        if index is None:
            positions_by_id: dict[Hashable, list[tuple[int, int]]] = {}
            for number in (*self._chunk_numbers(), self._last):
                for at, item in enumerate(self._chunk(number)):
                    item_id = self.id_of(item)
                    if item_id is not None:
                        positions_by_id.setdefault(item_id, []).append((number, at))
            index = self._index = pack(
                {(item_id,): tuple(positions) for item_id, positions in positions_by_id.items()}
            )
        return index

    def _replace_chunk(self, number: int, chunk: Chunk, index: Index | None) -> Self:
        """Return a vector with another chunk: removed if empty, split if too long."""
        if number == self._last:
            size = self._size - len(self._tail) + len(chunk)
            if len(chunk) < CHUNK_SIZE:  # appending copies the tail alone, not a path of the map
                return self._build(
                    self._chunks,
                    self._spine,
                    chunk,
                    size,
                    number,
                    self._next,
                    self._dense,
                    index,
                    self._depth,
                )
            # A full tail becomes a chunk under its number, so positions in the index stay valid.
            return self._build(
                set_item(self._chunks, number, chunk),
                None if self._spine is None else (*self._spine, number),
                (),
                size,
                self._next,
                self._next + 1,
                self._dense,
                index,
                self._depth,
            )
        old = self._chunks[number]
        size = self._size - len(old) + len(chunk)
        chunks, spine, following = self._chunks, self._spine, self._next
        dense = self._dense and len(chunk) == CHUNK_SIZE
        if not chunk:
            spine = tuple(self._chunk_numbers())
            at = spine.index(number)
            chunks, spine = delete_item(chunks, number), spine[:at] + spine[at + 1 :]
        elif len(chunk) > 2 * CHUNK_SIZE:
            spine = tuple(self._chunk_numbers())
            at = spine.index(number)
            # The first part keeps the number; only items that move to the new one have to be indexed again.
            chunk, moved = chunk[:CHUNK_SIZE], chunk[CHUNK_SIZE:]
            chunks = set_item(set_item(chunks, number, chunk), following, moved)
            spine = (*spine[: at + 1], following, *spine[at + 1 :])
            index = None if index is None else self._reindex(index, moved, number)
            following += 1
        else:
            chunks = set_item(chunks, number, chunk)
        return self._build(chunks, spine, self._tail, size, self._last, following, dense, index, self._depth)

    def _reindex(self, index: Index, items: Chunk, number: int) -> Index:
        """Return the index after `items` moved from chunk `number` to the next free one."""
        for at, item in enumerate(items):
            item_id = self.id_of(item)
            if item_id is not None:
                positions = list(index[(item_id,)])
                # One position for each item moved: others with the same id may have stayed.
                moved = next(n for n, (chunk_number, _) in enumerate(positions) if chunk_number == number)
                positions[moved] = (self._next, at)
                index = set_item(index, (item_id,), tuple(positions))
        return index


def _add_to_index(index: Index | None, item_id: Hashable, number: int, at: int) -> Index | None:
    """Return the index with one more position for an id, or None if the id has many positions already."""
    if index is None or item_id is None:
        return index
    positions = index.get((item_id,), ())
    # Each addition copies the positions of the id: n items with one id would cost n² in total.
    return (
        None
        if len(positions) > MAX_INDEXED_PER_ID
        else set_item(index, (item_id,), (*positions, (number, at)))
    )


class FrozenMap(Mapping[K, V]):
    """An immutable mapping with text keys; `set`, `delete`, `update` and `|` return a new one."""

    __slots__ = ("_depth", "_map")

    _map: Items[K, V]
    _depth: int  # levels of containers; not set on states and spaces until it is needed

    def __new__(cls, items: Mapping[K, V] = _EMPTY) -> FrozenMap[K, V]:
        """Freeze the items of a mapping."""
        return freeze_map(items)

    def __getitem__(self, key: K) -> V:
        return self._map[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._map)

    def __len__(self) -> int:
        return len(self._map)

    def __contains__(self, key: object) -> bool:
        return key in self._map

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, default: V | T, /) -> V | T: ...
    def get(self, key: K, default: Any = None, /) -> Any:
        """Return the value for a key, or the default."""
        return self._map.get(key, default)

    def keys(self) -> KeysView[K]:
        """Return the keys."""
        return self._map.keys()

    def values(self) -> ValuesView[V]:
        """Return the values."""
        return self._map.values()

    def items(self) -> ItemsView[K, V]:
        """Return pairs of key and value."""
        return self._map.items()

    def __eq__(self, other: object) -> bool:
        if type(other) is FrozenMap:
            return self._map == other._map
        if not isinstance(other, Mapping) or len(other) != len(self._map):
            return NotImplemented if not isinstance(other, Mapping) else False
        return all(self._map.get(key, _ABSENT) == value for key, value in other.items())

    def __hash__(self) -> int:
        return hash(frozenset(self._map.items()))

    def __repr__(self) -> str:
        return f"FrozenMap({self.to_python()!r})"

    def set(self, key: K, value: V) -> FrozenMap[K, V]:
        """Return a map with one item set."""
        name = freeze_key(key)
        frozen = freeze(value, name)
        return wrap_map(set_item(self._map, name, frozen), check_depth(depth_of(self), frozen, name))

    def delete(self, key: K) -> FrozenMap[K, V]:
        """Return a map without a key, which need not exist."""
        # The depth may be less now; an upper bound is enough to refuse data that is too deep.
        return wrap_map(delete_item(self._map, key), depth_of(self)) if key in self._map else self

    def update(self, changes: Mapping[K, V]) -> FrozenMap[K, V]:
        """Return a map with the items of another mapping set."""
        new = freeze_map(changes)
        return wrap_map(set_items(self._map, new._map), max(depth_of(self), depth_of(new)))

    def __or__(self, other: Mapping[K, V]) -> FrozenMap[K, V]:
        return self.update(other) if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Mapping[K, V]) -> FrozenMap[K, V]:
        return freeze_map(other).update(self) if isinstance(other, Mapping) else NotImplemented

    def to_python(self) -> dict[Any, Any]:
        """Return a dict with all containers thawed."""
        return {key: thaw(value) for key, value in self._map.items()}

    # Deeply frozen, so a copy is the map itself.
    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


def wrap_map(items: Items[K, V], depth: int) -> FrozenMap[K, V]:
    """Return a FrozenMap over a map that holds frozen data only, of this depth."""
    new: FrozenMap[K, V] = allocate(FrozenMap)
    new._map = items
    new._depth = depth
    return new


def wrap_map_lazy(items: Items[K, V]) -> FrozenMap[K, V]:
    """Return a FrozenMap whose depth is computed when needed: seldom, for states and spaces."""
    new: FrozenMap[K, V] = allocate(FrozenMap)
    new._map = items
    return new


def map_of(items: Mapping[K, V]) -> FrozenMap[K, V]:
    """Return a FrozenMap of values that are frozen already."""
    small = len(items) <= MAX_DICT  # as most are
    return wrap_map(dict(items) if small else pack(items), container_depth(items.values()))


class FrozenList(Vector[T], Sequence[T]):
    """An immutable sequence; changes return a new one, and items that are maps are found by their `id`."""

    __slots__ = ()

    def __new__(cls, items: Iterable[T] = ()) -> Self:
        """Freeze the items of an iterable."""
        if isinstance(items, (str, *_BYTES_TYPES)) or not isinstance(items, Iterable):
            raise WrongType("items", "a list", items)
        return cls._build().extend(items)

    @staticmethod
    def id_of(item: Any) -> Hashable:
        """Return the `id` of an item that is a map."""
        return item._map.get("id") if type(item) is FrozenMap else None

    @overload
    def __getitem__(self, at: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> FrozenList[T]: ...
    def __getitem__(self, at: SupportsIndex | slice) -> T | FrozenList[T]:
        if isinstance(at, slice):
            return list_of([self.at(i) for i in range(*at.indices(self._size))])
        return self.at(self._normalize_index(index(at)))

    def _normalize_index(self, at: int) -> int:
        """Return a position counted from the front, or raise `IndexError`."""
        if type(at) is not int:
            raise WrongType("position", "an int", at)
        if not -self._size <= at < self._size:
            raise IndexError(f"position {at} of a list of {self._size}")
        return at % self._size

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (FrozenList, list, tuple)):
            return NotImplemented
        # Item by item: equal lists may be cut into chunks differently.
        return len(other) == self._size and all(
            mine == theirs for mine, theirs in zip(self, other, strict=True)
        )

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"FrozenList({self.to_python()!r})"

    def append(self, item: T) -> Self:
        """Return a list with one more item at the end."""
        frozen = freeze(item, f"[{self._size}]")
        return self._with_depth(self._append(frozen), frozen)

    def insert(self, position: int, item: T) -> Self:
        """Return a list with an item before `position`; −1 and past the end append, −2 is before the last."""
        if type(position) is not int:
            raise WrongType("index", "an int", position)
        if position < 0:
            position += self._size + 1
        frozen = freeze(item, f"[{position}]")
        return self._with_depth(self._insert(min(max(position, 0), self._size), frozen), frozen)

    def set(self, position: int, item: T) -> Self:
        """Return a list with another item at an existing position."""
        frozen = freeze(item, f"[{position}]")
        return self._with_depth(self._set_at(self._normalize_index(position), frozen), frozen)

    def delete(self, position: int) -> Self:
        """Return a list without the item at an existing position."""
        return self._delete_at(self._normalize_index(position))

    def extend(self, items: Iterable[T]) -> Self:
        """Return a list with more items at the end."""
        frozen = [freeze(item, f"[+{at}]") for at, item in enumerate(items)]
        new = self._extend(frozen)
        new._depth = max(self._depth, container_depth(frozen))
        return new

    def change(self, item_id: Hashable, change: Callable[[T], T]) -> Self:
        """Return a list with `change` applied to the items with this id; itself if there is none."""
        depth = self._depth

        def apply(item: T) -> Any:
            nonlocal depth
            frozen: Any = freeze(change(item), "the result of the update")
            if frozen is None:
                raise WrongType("the result of the update", "an item", frozen, "return the changed item")
            if depth_of(frozen) >= depth:  # otherwise the list does not become deeper
                depth = check_depth(depth, frozen, "the result of the update")
            return frozen

        new = self._update_by_id(item_id if type(item_id) is str else _check_item_id(item_id), apply)
        new._depth = depth
        return new

    def remove(self, item_id: Hashable) -> Self:
        """Return a list without the items with this id; itself if there is none."""
        return self._remove_by_id(item_id if type(item_id) is str else _check_item_id(item_id))

    def _with_depth(self, new: Self, frozen: T) -> Self:
        new._depth = check_depth(self._depth, frozen, "item")
        return new

    def __add__(self, other: Iterable[T]) -> Self:
        return self.extend(other) if isinstance(other, (FrozenList, list, tuple)) else NotImplemented

    def __radd__(self, other: Iterable[T]) -> Self:
        return type(self)(other).extend(self) if isinstance(other, (list, tuple)) else NotImplemented

    def to_python(self) -> list[Any]:
        """Return a list with all containers thawed."""
        return [thaw(item) for item in self]

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


def _check_item_id(item_id: Hashable) -> Hashable:
    frozen: Hashable = freeze(item_id, "item_id")
    if frozen is None or type(frozen) not in SCALAR_TYPES:
        raise WrongType("item_id", "the id of an item", item_id, 'pass item["id"]')
    return frozen


def list_of(items: list[T]) -> FrozenList[T]:
    """Return a FrozenList of items that are frozen already."""
    new: FrozenList[T] = FrozenList[T]._build()._extend(items)
    new._depth = container_depth(items)
    return new


def freeze(value: Any, path: str = "value") -> Any:
    """Return a frozen copy of `value`, or raise `Unsupported` with the path of the unsupported part."""
    # The commonest types first, without a call; `isascii` only reads a flag of the string.
    kind = type(value)
    if kind is str:
        return value if value.isascii() and "\0" not in value else check_encodable(value, path)
    if kind is int:
        if MIN_INT <= value <= MAX_INT:
            return value
        raise Unsupported(path, "is an integer beyond 64 bits", "store it as a string")
    if kind is bool or value is None or kind is FrozenMap or kind is FrozenList or kind in VALUE_TYPES:
        return value
    try:
        return _freeze(value, 0, _Budget())
    except Unsupported as error:
        raise error.with_path_prefix(path) from None


def is_storable_scalar(value: Any) -> bool:
    """Return True for the commonest values, which need no freezing."""
    kind = type(value)
    if kind is str:
        return bool(value.isascii() and "\0" not in value)
    if kind is int:
        return bool(MIN_INT <= value <= MAX_INT)
    return kind is bool or value is None or (kind is float and isfinite(value))


def freeze_map(value: object, path: str = "map") -> FrozenMap[Any, Any]:
    """Freeze a value that has to be a mapping."""
    if type(value) is not FrozenMap and not isinstance(value, Mapping):
        raise WrongType(path, "a mapping", value, "pass a dict")
    frozen: FrozenMap[Any, Any] = freeze(value, path)
    return frozen


def freeze_list(value: object, path: str = "list") -> FrozenList[Any]:
    """Freeze a value that has to be a list."""
    if isinstance(value, (str, *_BYTES_TYPES)) or not isinstance(value, Sequence):
        raise WrongType(path, "a list", value)
    frozen: FrozenList[Any] = freeze(value, path)
    return frozen


def freeze_key(key: object, path: str = "key") -> Any:
    """Return the key of a map as text."""
    if type(key) is str:
        return key if key.isascii() and "\0" not in key else check_encodable(key, path)
    if isinstance(key, str):
        return check_encodable(key.value if isinstance(key, Enum) else str.__str__(key), path)
    raise Unsupported(path, f"is a {type(key).__name__}; keys are text", f"use str({key!r})")


def thaw(value: Any) -> Any:
    """Return new dicts, lists and sets in place of frozen ones."""
    if isinstance(value, (FrozenMap, FrozenList)):
        return value.to_python()
    if type(value) is frozenset:
        # A dict or list cannot be a member of a set: those members stay frozen.
        return set(value)
    return value


class _Budget:
    """The number of values that one call of `freeze` may still freeze, and the containers frozen so far.

    A list that holds another list twice, which holds another twice, and so on, is small in memory and grows
    exponentially when encoded: each part is frozen once, and counted as often as it occurs.
    """

    __slots__ = ("_frozen", "_remaining")

    def __init__(self) -> None:
        self._remaining = MAX_NODES
        self._frozen: dict[int, tuple[Any, Any, int]] = {}

    def spend(self, count: int) -> None:
        self._remaining -= count
        if self._remaining < 0:
            raise Unsupported("", f"holds more than {MAX_NODES:,} values", "freeze it in parts")

    def freeze_container(self, value: Any, freezer: Freezer, depth: int) -> Any:
        known = self._frozen.get(id(value))
        # A part that is found again deeper down could exceed the depth there: it is checked anew.
        if known is not None and depth + depth_of(known[1]) <= MAX_INPUT_DEPTH:
            self.spend(known[2])
            return known[1]
        before = self._remaining
        self.spend(len(value))
        frozen = freezer(value, depth, self)
        self._frozen[id(value)] = value, frozen, before - self._remaining  # a reference keeps the id unique
        return frozen


def _freeze(value: Any, depth: int, budget: _Budget) -> Any:
    """Freeze a value at some depth; an error gets its path on the way out."""
    if depth > MAX_INPUT_DEPTH:
        raise Unsupported(
            "", f"is nested deeper than {MAX_INPUT_DEPTH} levels, or contains itself", "flatten it"
        )
    kind = type(value)
    if kind is FrozenMap or kind is FrozenList or kind in VALUE_TYPES:
        return value
    freezer = _FREEZERS_BY_TYPE.get(kind)
    if freezer is None:
        freezer = next((freezer for base, freezer in _FREEZERS_BY_BASE if isinstance(value, base)), None)
    if freezer is None:
        raise Unsupported("", f"is of type {kind.__name__}, which cannot be stored", _remedy(value))
    return (
        budget.freeze_container(value, freezer, depth)
        if freezer in _CONTAINER_FREEZERS
        else freezer(value, depth, budget)
    )


def _freeze_float(value: float, depth: int, budget: _Budget) -> float:
    if not isfinite(value):
        raise Unsupported("", f"is {value!r}, which JSON cannot express", "store None or a string")
    return float(value)


def _freeze_datetime(value: datetime, depth: int, budget: _Budget) -> datetime:
    # A named zone would be decoded as an offset; converting it now keeps equality exact.
    offset = value.utcoffset()
    if offset is not None and offset.microseconds:
        raise Unsupported("", "has an offset with fractions of a second", "use astimezone(timezone.utc)")
    zone = None if offset is None else timezone(offset)
    return datetime(
        value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond, zone
    )


def _freeze_mapping(value: Mapping[Any, Any], depth: int, budget: _Budget) -> FrozenMap[Any, Any]:
    frozen = {}
    for key, item in value.items():
        if is_storable_scalar(item) and type(key) is str and key.isascii() and "\0" not in key:
            frozen[key] = item
            continue
        try:
            frozen[freeze_key(key, "")] = _freeze(item, depth + 1, budget)
        except Unsupported as error:
            raise error.with_path_prefix(str(key)) from None
    return map_of(frozen)


def _freeze_sequence(value: Sequence[Any], depth: int, budget: _Budget) -> FrozenList[Any]:
    frozen = []
    for at, item in enumerate(value):
        try:
            frozen.append(item if is_storable_scalar(item) else _freeze(item, depth + 1, budget))
        except Unsupported as error:
            raise error.with_path_prefix(f"[{at}]") from None
    return list_of(frozen)


def _freeze_set(value: AbstractSet[Any], depth: int, budget: _Budget) -> frozenset[Any]:
    return frozenset([_freeze(item, depth + 1, budget) for item in value])


def _remedy(value: object) -> str:
    if hasattr(value, "__dataclass_fields__"):
        return "use dataclasses.asdict"
    if hasattr(value, "to_json"):
        return "store its id, or the result of its to_json()"
    if hasattr(value, "__struct_fields__"):
        return "use msgspec.to_builtins"
    if hasattr(value, "model_dump"):
        return "use model_dump()"
    if hasattr(value, "isoformat"):
        return "use isoformat(), or a datetime"
    if hasattr(value, "tolist"):
        return "use tolist()"
    return "use JSON types, datetime, bytes, sets, or Omoide's own values"


_FREEZERS_BY_TYPE: dict[type, Freezer] = {
    str: lambda value, depth, budget: check_encodable(value, ""),
    int: lambda value, depth, budget: freeze(value, ""),
    float: _freeze_float,
    bool: lambda value, depth, budget: value,
    type(None): lambda value, depth, budget: value,
    dict: _freeze_mapping,
    list: _freeze_sequence,
    tuple: _freeze_sequence,
    set: _freeze_set,
    frozenset: _freeze_set,
    bytes: lambda value, depth, budget: value,
    datetime: _freeze_datetime,
}

# Only these recurse, so only these are remembered and counted by the budget.
_CONTAINER_FREEZERS = (_freeze_mapping, _freeze_sequence, _freeze_set)

# For subclasses and other implementations. The order matters: an enum, which may be a str or an int as well,
# is its value, and bytes are sequences, too.
_FREEZERS_BY_BASE: tuple[tuple[Any, Freezer], ...] = (
    (Enum, lambda value, depth, budget: _freeze(value.value, depth + 1, budget)),
    (str, _FREEZERS_BY_TYPE[str]),
    (int, lambda value, depth, budget: freeze(int(value), "")),
    (float, _freeze_float),
    (Mapping, _freeze_mapping),
    (_BYTES_TYPES, lambda value, depth, budget: bytes(value)),
    (AbstractSet, _freeze_set),
    (datetime, _freeze_datetime),
    (Sequence, _freeze_sequence),
)

EMPTY_MAP: FrozenMap[Any, Any] = wrap_map(_EMPTY, 1)
EMPTY_LIST: FrozenList[Any] = FrozenList()
