"""A persistent list that changes without copying its items.

Items are in small chunks, stored in an `immutables.Map` under numbers that never change; the last few items
are in a tail. A change copies one chunk and shares everything else with the older version. A list that only
grew has its chunks numbered in order; once a chunk was split or removed, a spine has the order of the
numbers.

Because numbers are stable, an index from an item's id to its chunk survives insertions and removals: finding,
changing and removing by id do not depend on the length. The index is built by the first search by id and
maintained from then on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, Generic, Self, TypeVar

from immutables import Map

T = TypeVar("T")

CHUNK_SIZE = 8  # a chunk is split beyond twice this; a change copies one chunk, so it is small

MAX_INDEXED_PER_ID = 16  # items with one id; with more of them, the whole list is scanned instead

Chunk = tuple[Any, ...]
Positions = tuple[tuple[int, int], ...]  # number of a chunk, and the offset at the time of indexing
Index = Map[Hashable, Positions]

_NO_CHUNKS: Map[int, Chunk] = Map()


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

    _chunks: Map[int, Chunk]
    _spine: tuple[int, ...] | None  # the chunks' numbers in order; None while they are 0, 1, 2, …
    _tail: Chunk
    _size: int
    _last: int  # the tail's number
    _next: int  # the next number that is free
    _dense: bool  # all chunks but the tail are WIDTH long, so positions can be computed
    _index: Index | None
    _starts: list[int] | None
    _depth: int  # set by FrozenList; 1 is a list of scalars

    @classmethod
    def _build(
        cls,
        chunks: Map[int, Chunk] = _NO_CHUNKS,
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
            shared = older._last
            mine, theirs = self._chunks, older._chunks
            if any(mine[n] is not theirs[n] and mine[n] != theirs[n] for n in range(shared)):
                return False
            rest = self._tail if self._last == shared else mine[shared]
            return rest[: len(older._tail)] == older._tail
        return all(own is other or own == other for own, other in zip(self, older, strict=False))

    def find_by_id(self, item_id: Hashable) -> list[T]:
        """Return the items with this id, in the order of the list."""
        positions = self._id_index().get(item_id, ())
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
        chunks, added, number, following = self._chunks.mutate(), [], self._last, self._next
        full = len(pending) - len(pending) % CHUNK_SIZE
        for start in range(0, full, CHUNK_SIZE):
            chunks[number] = tuple(pending[start : start + CHUNK_SIZE])
            added.append(number)
            number, following = following, following + 1
        tail = tuple(pending[full:])
        spine = None if self._spine is None else (*self._spine, *added)
        return self._build(
            chunks.finish(), spine, tail, size, number, following, self._dense, None, self._depth
        )

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
        return self._replace_chunk(number, (*chunk[:offset], item, *chunk[offset + 1 :]), None)

    def _delete_at(self, position: int) -> Self:
        """Return a vector without the item at `position`."""
        number, offset = self._locate(position)
        chunk = self._chunk(number)
        return self._replace_chunk(number, chunk[:offset] + chunk[offset + 1 :], None)

    def _update_by_id(self, item_id: Hashable, change: Callable[[T], T]) -> Self:
        """Return a vector with `change` applied to every item with this id; itself if there is none."""
        index = self._id_index()
        positions = index.get(item_id, ())
        if not positions:
            return self
        if len(positions) > 1:
            return self._update_all_by_id(item_id, positions, change)
        number, hint = positions[0]
        chunk = [*self._chunk(number)]
        at = self._offset_of(chunk, hint, item_id)
        chunk[at] = changed = change(chunk[at])
        new_id = self.id_of(changed)
        new_index = index if new_id == item_id else _add_to_index(index.delete(item_id), new_id, number, at)
        return self._replace_chunk(number, tuple(chunk), new_index)

    def _update_all_by_id(self, item_id: Hashable, positions: Positions, change: Callable[[T], T]) -> Self:
        if len(positions) > MAX_INDEXED_PER_ID:
            items = [change(item) if self.id_of(item) == item_id else item for item in self]
            return self._build(depth=self._depth)._extend(items)
        new, index = self, self._index
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
        positions = index.get(item_id, ())
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
        new._index = index.delete(item_id)
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
        if position == 0:
            return numbers[0], 0
        if self._dense:
            return numbers[position // CHUNK_SIZE], position % CHUNK_SIZE
        starts = self._starts
        if starts is None:
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
            index = self._index = Map(
                {item_id: tuple(positions) for item_id, positions in positions_by_id.items()}
            )
        return index

    def _replace_chunk(self, number: int, chunk: Chunk, index: Index | None) -> Self:
        """Return a vector with another chunk: removed if empty, split if too long."""
        if number == self._last:
            size = self._size - len(self._tail) + len(chunk)
            if len(chunk) < CHUNK_SIZE:
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
            return self._build(
                self._chunks.set(number, chunk),
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
            chunks, spine = chunks.delete(number), spine[:at] + spine[at + 1 :]
        elif len(chunk) > 2 * CHUNK_SIZE:
            spine = tuple(self._chunk_numbers())
            at = spine.index(number)
            chunk, moved = chunk[:CHUNK_SIZE], chunk[CHUNK_SIZE:]
            chunks = chunks.set(number, chunk).set(following, moved)
            spine = (*spine[: at + 1], following, *spine[at + 1 :])
            index = None if index is None else self._reindex(index, moved, number)
            following += 1
        else:
            chunks = chunks.set(number, chunk)
        return self._build(chunks, spine, self._tail, size, self._last, following, dense, index, self._depth)

    def _reindex(self, index: Index, items: Chunk, number: int) -> Index:
        """Return the index after `items` moved from chunk `number` to the next free one."""
        for at, item in enumerate(items):
            item_id = self.id_of(item)
            if item_id is not None:
                positions = list(index[item_id])
                # One position for each item moved: others with the same id may have stayed.
                moved = next(n for n, (chunk_number, _) in enumerate(positions) if chunk_number == number)
                positions[moved] = (self._next, at)
                index = index.set(item_id, tuple(positions))
        return index


def _add_to_index(index: Index | None, item_id: Hashable, number: int, at: int) -> Index | None:
    """Return the index with one more position for an id, or None if the id has many: each would copy all."""
    if index is None or item_id is None:
        return index
    positions = index.get(item_id, ())
    return None if len(positions) > MAX_INDEXED_PER_ID else index.set(item_id, (*positions, (number, at)))
