"""Deeply frozen maps, lists, sets; text and depth limits.

Deep data can be made of frozen parts that are shallow themselves. So every map and list knows its depth, and
is refused where it would go too deep: what is kept can always be compared, printed and written.

`freeze` takes a copy of what a caller gives, deeply: a dict becomes a `FrozenMap`, a list or tuple a
`FrozenList`, a set a frozenset. Both read as the Mapping or Sequence they came from, compare equal to a dict
or list, share structure between versions, and thaw with `.to_python()`. What no codec could hold without loss
is refused with its path.

Maps have no order of their own: wherever one is shown or written, its keys are sorted.
"""

from __future__ import annotations

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
from math import isfinite
from operator import index
from typing import Any, Self, SupportsIndex, TypeVar, cast, get_args, overload

import msgspec
from immutables import Map

from omoide.core.vector import Vector
from omoide.errors import Invalid, Unsupported, WrongType

# nesting: How deeply may data be nested?


S = TypeVar("S", bound=type)

MAX_INPUT_DEPTH = 64  # of what is given to be frozen
MAX_STORED_DEPTH = 2 * MAX_INPUT_DEPTH  # of what arises by keeping frozen data inside of other data

SCALAR_TYPES = frozenset({str, int, float, bool, type(None), bytes, datetime})
"""The types that are no containers."""

VALUE_TYPES: dict[type, str] = {}
"""The frozen structs that may stand inside other data, with the names they are written under."""


def value_type(cls: S) -> S:
    """Decorator: values of this struct may be held in maps and lists, and come back as what they were."""
    VALUE_TYPES[cls] = cls.__name__
    return cls


def depth_of(value: Any) -> int:
    """How many levels of containers frozen data has."""
    kind = type(value)
    if kind in SCALAR_TYPES:
        return 0
    if kind in VALUE_TYPES:
        holders: tuple[str, ...] = _container_fields(cast("Any", kind))
        return 1 + max([depth_of(getattr(value, field)) for field in holders], default=0)
    if kind in (frozenset, tuple):
        return 1 + max(map(depth_of, value), default=0)
    try:
        depth: int = value._depth  # maps and lists keep theirs
    except AttributeError:
        depth = value._depth = 1 + max(map(depth_of, value.values()), default=0)
    return depth


@cache
def _container_fields(kind: Any) -> tuple[str, ...]:
    """The fields of a struct that can hold containers."""
    return tuple(field.name for field in msgspec.structs.fields(kind) if not _is_scalar(field.type))


def _is_scalar(kind: Any) -> bool:
    inner = [arg for arg in get_args(kind) if isinstance(arg, type)]
    return kind in SCALAR_TYPES if not inner else all(arg in SCALAR_TYPES for arg in inner)


def check_depth(depth: int, item: Any, path: str) -> int:
    """The depth of a container once it holds something more, if that is not too deep to be written."""
    if type(item) in SCALAR_TYPES:
        return depth
    depth = max(depth, 1 + depth_of(item))
    # A value of ours has a few levels of its own around the data that it keeps.
    if depth > (MAX_STORED_DEPTH + 8 if type(item) in VALUE_TYPES else MAX_STORED_DEPTH):
        raise Unsupported(
            path, f"would be nested deeper than {MAX_STORED_DEPTH} levels", "keep less inside of it"
        )
    return depth


def container_depth(items: Iterable[Any]) -> int:
    """The depth of a container of these items."""
    depth = 1
    for item in items:
        if type(item) not in SCALAR_TYPES:
            depth = check_depth(depth, item, "value")
    return depth


# texts: Is this text that can be kept?


def check_encodable(value: str, path: str) -> str:
    """The plain text of a string, if every store and codec can hold it."""
    if "\0" in value:
        raise Unsupported(path, "contains a NUL character", "remove it, or keep bytes")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unsupported(path, "contains a lone surrogate", "decode the text properly first") from None
    return str.__str__(value)


def check_str(value: object, field: str) -> str:
    """Text that can be kept, empty or not."""
    if not isinstance(value, str):
        raise WrongType(field, "a string", value)
    return check_encodable(value, field)


def check_text(value: object, field: str, remedy: str = "pass non-empty text") -> str:
    """Text that can be kept and is not empty."""
    text = check_str(value, field)
    if not text.strip():
        raise Invalid(field, "is empty", remedy)
    return text


# frozen: How is data kept so that nobody can change it behind an agent's back?


K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

MAX_NODES = 10_000_000
MIN_INT, MAX_INT = -(2**63), 2**64 - 1

_ABSENT = object()
_BYTES_TYPES = (bytes, bytearray, memoryview)

allocate = object.__new__
"""Makes a FrozenMap whose `_map` the caller sets at once; a call less, and every change makes several."""
_EMPTY: Map[Any, Any] = Map()


class FrozenMap(Mapping[K, V]):
    """An immutable mapping with text keys; `set`, `delete`, `update` and `|` return a new one."""

    __slots__ = ("_depth", "_map")

    _map: Map[K, V]
    _depth: int  # how many levels of containers it has; not set on states and spaces until somebody asks

    def __new__(cls, items: Mapping[K, V] = _EMPTY) -> FrozenMap[K, V]:
        """The entries of a mapping, frozen."""
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
        """The value under a key, or the default."""
        return self._map.get(key, default)

    def keys(self) -> KeysView[K]:
        """The keys."""
        return cast("KeysView[K]", self._map.keys())

    def values(self) -> ValuesView[V]:
        """The values."""
        return cast("ValuesView[V]", self._map.values())

    def items(self) -> ItemsView[K, V]:
        """Pairs of key and value."""
        return cast("ItemsView[K, V]", self._map.items())

    def __eq__(self, other: object) -> bool:
        if type(other) is FrozenMap:
            return self._map == other._map
        if not isinstance(other, Mapping) or len(other) != len(self._map):
            return NotImplemented if not isinstance(other, Mapping) else False
        return all(self._map.get(key, _ABSENT) == value for key, value in other.items())

    def __hash__(self) -> int:
        return hash(self._map)

    def __repr__(self) -> str:
        return f"FrozenMap({self.to_python()!r})"

    def set(self, key: K, value: V) -> FrozenMap[K, V]:
        """With one entry put."""
        name = freeze_key(key)
        held = freeze(value, name)
        return wrap_map(self._map.set(name, held), check_depth(depth_of(self), held, name))

    def delete(self, key: K) -> FrozenMap[K, V]:
        """Without one key, whether it was there or not."""
        return wrap_map(self._map.delete(key), depth_of(self)) if key in self._map else self

    def update(self, changes: Mapping[K, V]) -> FrozenMap[K, V]:
        """With the entries of another mapping put over these."""
        new = freeze_map(changes)
        return wrap_map(self._map.update(new._map), max(depth_of(self), depth_of(new)))

    def __or__(self, other: Mapping[K, V]) -> FrozenMap[K, V]:
        return self.update(other) if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Mapping[K, V]) -> FrozenMap[K, V]:
        return freeze_map(other).update(self) if isinstance(other, Mapping) else NotImplemented

    def to_python(self) -> dict[Any, Any]:
        """A dict of one's own, thawed all the way down."""
        return {key: thaw(self._map[key]) for key in sorted(cast("Map[Any, Any]", self._map))}

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


def wrap_map(items: Map[K, V], depth: int) -> FrozenMap[K, V]:
    """A FrozenMap over a Map that is known to hold frozen data only, of this depth."""
    new: FrozenMap[K, V] = allocate(FrozenMap)
    new._map = items
    new._depth = depth
    return new


def wrap_map_lazy(items: Map[K, V]) -> FrozenMap[K, V]:
    """The same, of a depth that is found out when somebody asks, as happens seldom with states and spaces."""
    new: FrozenMap[K, V] = allocate(FrozenMap)
    new._map = items
    return new


def map_of(items: Mapping[K, V]) -> FrozenMap[K, V]:
    """A FrozenMap of values that are frozen already."""
    return wrap_map(Map(items), container_depth(items.values()))


class FrozenList(Vector[T], Sequence[T]):
    """An immutable sequence; every change returns a new one, and maps in it can be found by their `id`."""

    __slots__ = ()

    def __new__(cls, items: Iterable[T] = ()) -> Self:
        """The items of an iterable, frozen."""
        if isinstance(items, (str, *_BYTES_TYPES)) or not isinstance(items, Iterable):
            raise WrongType("items", "a list", items)
        return cls._build().extend(items)

    @staticmethod
    def id_of(item: Any) -> Hashable:
        """The `id` of a map item."""
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
        """A position counted from the front, if there is an item."""
        if type(at) is not int:
            raise WrongType("position", "an int", at)
        if not -self._size <= at < self._size:
            raise IndexError(f"position {at} of a list of {self._size}")
        return at % self._size

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (FrozenList, list, tuple)):
            return NotImplemented
        return len(other) == self._size and all(
            mine == theirs for mine, theirs in zip(self, other, strict=True)
        )

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"FrozenList({self.to_python()!r})"

    def append(self, item: T) -> Self:
        """With one more item at the end."""
        held = freeze(item, f"[{self._size}]")
        return self._with_depth(self._append(held), held)

    def insert(self, position: int, item: T) -> Self:
        """With an item before `position`; past the end appends, −1 appends, −2 is before the last."""
        if type(position) is not int:
            raise WrongType("index", "an int", position)
        if position < 0:
            position += self._size + 1
        held = freeze(item, f"[{position}]")
        return self._with_depth(self._insert(min(max(position, 0), self._size), held), held)

    def set(self, position: int, item: T) -> Self:
        """With another item at a position that exists."""
        held = freeze(item, f"[{position}]")
        return self._with_depth(self._set_at(self._normalize_index(position), held), held)

    def delete(self, position: int) -> Self:
        """Without the item at a position that exists."""
        return self._delete_at(self._normalize_index(position))

    def extend(self, items: Iterable[T]) -> Self:
        """With these items at the end."""
        held = [freeze(item, f"[+{at}]") for at, item in enumerate(items)]
        new = self._extend(held)
        new._depth = max(self._depth, container_depth(held))
        return new

    def change(self, item_id: Hashable, change: Callable[[T], T]) -> Self:
        """With `change` applied to the items of this id; itself when there is none."""
        depth = self._depth

        def changed(item: T) -> Any:
            nonlocal depth
            held: Any = freeze(change(item), "the result of the update")
            if held is None:
                raise WrongType("the result of the update", "an item", held, "return the changed item")
            if depth_of(held) >= depth:
                depth = check_depth(depth, held, "the result of the update")
            return held

        new = self._update_by_id(item_id if type(item_id) is str else _check_item_id(item_id), changed)
        new._depth = depth
        return new

    def remove(self, item_id: Hashable) -> Self:
        """Without the items of this id; itself when there is none."""
        return self._remove_by_id(item_id if type(item_id) is str else _check_item_id(item_id))

    def _with_depth(self, new: Self, held: T) -> Self:
        new._depth = check_depth(self._depth, held, "item")
        return new

    def __add__(self, other: Iterable[T]) -> Self:
        return self.extend(other) if isinstance(other, (FrozenList, list, tuple)) else NotImplemented

    def __radd__(self, other: Iterable[T]) -> Self:
        return type(self)(other).extend(self) if isinstance(other, (list, tuple)) else NotImplemented

    def to_python(self) -> list[Any]:
        """A list of one's own, thawed all the way down."""
        return [thaw(item) for item in self]

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self


def _check_item_id(item_id: Hashable) -> Hashable:
    held: Hashable = freeze(item_id, "item_id")
    if held is None or type(held) not in SCALAR_TYPES:
        raise WrongType("item_id", "the id of an item", item_id, 'pass item["id"]')
    return held


def list_of(items: list[T]) -> FrozenList[T]:
    """A FrozenList of items that are frozen already."""
    new: FrozenList[T] = FrozenList[T]._build()._extend(items)
    new._depth = container_depth(items)
    return new


def freeze(value: Any, path: str = "value") -> Any:
    """A frozen copy of `value`, or `Unsupported` naming the place of what cannot be kept."""
    kind = type(value)
    if kind is str:
        return value if value.isascii() and "\0" not in value else check_encodable(value, path)
    if kind is int:
        if MIN_INT <= value <= MAX_INT:
            return value
        raise Unsupported(path, "is an integer beyond 64 bits", "keep it as a string")
    if kind is bool or value is None or kind is FrozenMap or kind is FrozenList or kind in VALUE_TYPES:
        return value
    try:
        return _freeze(value, 0, _Budget())
    except Unsupported as error:
        raise error.with_path_prefix(path) from None


def is_storable_scalar(value: Any) -> bool:
    """Whether a value is of the commonest kinds, and needs no further look."""
    kind = type(value)
    if kind is str:
        return bool(value.isascii() and "\0" not in value)
    if kind is int:
        return bool(MIN_INT <= value <= MAX_INT)
    return kind is bool or value is None or (kind is float and isfinite(value))


def freeze_map(value: object, path: str = "map") -> FrozenMap[Any, Any]:
    """The same for a value that has to be a mapping."""
    if type(value) is not FrozenMap and not isinstance(value, Mapping):
        raise WrongType(path, "a mapping", value, "pass a dict")
    frozen: FrozenMap[Any, Any] = freeze(value, path)
    return frozen


def freeze_list(value: object, path: str = "list") -> FrozenList[Any]:
    """The same for a value that has to be a list."""
    if isinstance(value, (str, *_BYTES_TYPES)) or not isinstance(value, Sequence):
        raise WrongType(path, "a list", value)
    frozen: FrozenList[Any] = freeze(value, path)
    return frozen


def freeze_key(key: object, path: str = "key") -> Any:
    """A key that a map can have: text."""
    if type(key) is str:
        return key if key.isascii() and "\0" not in key else check_encodable(key, path)
    if isinstance(key, str):
        return check_encodable(key.value if isinstance(key, Enum) else str.__str__(key), path)
    raise Unsupported(path, f"is a {type(key).__name__}; keys are text", f"use str({key!r})")


def thaw(value: Any) -> Any:
    """Plain dicts, lists and sets of one's own in place of frozen ones."""
    if isinstance(value, (FrozenMap, FrozenList)):
        return value.to_python()
    if type(value) is frozenset:
        # A thawed dict or list cannot be a member of a set: those members stay frozen.
        return set(value)
    return value


Freezer = Callable[[Any, int, "_Budget"], Any]


class _Budget:
    """How much one call of `freeze` may still take, and what it has taken already.

    A list held twice by a list that is held twice, and so on, is small to hold and endless to write: each
    part is frozen once, and counted as often as it occurs.
    """

    __slots__ = ("_left", "_taken")

    def __init__(self) -> None:
        self._left = MAX_NODES
        self._taken: dict[int, tuple[Any, Any, int]] = {}

    def spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise Unsupported("", f"holds more than {MAX_NODES:,} values", "put them in piece by piece")

    def freeze_container(self, value: Any, freezer: Freezer, depth: int) -> Any:
        known = self._taken.get(id(value))
        if known is not None and depth + depth_of(known[1]) <= MAX_INPUT_DEPTH:
            self.spend(known[2])
            return known[1]
        before = self._left
        self.spend(len(value))
        frozen = freezer(value, depth, self)
        self._taken[id(value)] = value, frozen, before - self._left  # held, so that its id stays its own
        return frozen


def _freeze(value: Any, depth: int, budget: _Budget) -> Any:
    """What `freeze` does at some depth; places are added to an error on its way out."""
    if depth > MAX_INPUT_DEPTH:
        raise Unsupported(
            "", f"is nested deeper than {MAX_INPUT_DEPTH} levels, or contains itself", "flatten it"
        )
    kind = type(value)
    if kind is FrozenMap or kind is FrozenList or kind in VALUE_TYPES:
        return value
    take = _FREEZERS_BY_TYPE.get(kind)
    if take is None:
        take = next((take for accepted, take in _FREEZERS_BY_BASE if isinstance(value, accepted)), None)
    if take is None:
        raise Unsupported("", f"is of type {kind.__name__}, which cannot be kept", _remedy(value))
    return (
        budget.freeze_container(value, take, depth)
        if take in _CONTAINER_FREEZERS
        else take(value, depth, budget)
    )


def _freeze_float(value: float, depth: int, budget: _Budget) -> float:
    if not isfinite(value):
        raise Unsupported("", f"is {value!r}, which JSON has no word for", "keep None or a string")
    return float(value)


def _freeze_datetime(value: datetime, depth: int, budget: _Budget) -> datetime:
    # A named zone would come back as an offset; taking it now keeps equality exact, around clock changes too.
    offset = value.utcoffset()
    if offset is not None and offset.microseconds:
        raise Unsupported("", "is in a zone that is off by parts of a second", "use astimezone(timezone.utc)")
    zone = None if offset is None else timezone(offset)
    return datetime(
        value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond, zone
    )


def _freeze_mapping(value: Mapping[Any, Any], depth: int, budget: _Budget) -> FrozenMap[Any, Any]:
    held = {}
    for key, item in value.items():
        if is_storable_scalar(item) and type(key) is str and key.isascii() and "\0" not in key:
            held[key] = item
            continue
        try:
            held[freeze_key(key, "")] = _freeze(item, depth + 1, budget)
        except Unsupported as error:
            raise error.with_path_prefix(str(key)) from None
    return map_of(held)


def _freeze_sequence(value: Sequence[Any], depth: int, budget: _Budget) -> FrozenList[Any]:
    held = []
    for at, item in enumerate(value):
        try:
            held.append(item if is_storable_scalar(item) else _freeze(item, depth + 1, budget))
        except Unsupported as error:
            raise error.with_path_prefix(f"[{at}]") from None
    return list_of(held)


def _freeze_set(value: AbstractSet[Any], depth: int, budget: _Budget) -> frozenset[Any]:
    return frozenset([_freeze(item, depth + 1, budget) for item in value])


def _remedy(value: object) -> str:
    if hasattr(value, "__dataclass_fields__"):
        return "use dataclasses.asdict"
    if hasattr(value, "to_json"):
        return "keep its id, or what its to_json() gives"
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

_CONTAINER_FREEZERS = (_freeze_mapping, _freeze_sequence, _freeze_set)

# What is not exactly one of these types may still be one of their kind; an enum counts as its value.
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
