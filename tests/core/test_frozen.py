"""Frozen maps, lists and sets: immutability, equality and structural sharing."""

import copy
from collections import ChainMap, OrderedDict, UserDict, UserList
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone, tzinfo
from enum import IntEnum, StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.strategies import data, keys, lists, maps, scramble

from omoide.core import FrozenList, FrozenMap, freeze, thaw
from omoide.core.frozen import freeze_map


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Word(str):
    __slots__ = ()


class Point(NamedTuple):
    x: int
    y: int


class Summer(tzinfo):
    """A zone that is an hour ahead until it turns its clocks back at 3 on the 25th."""

    def utcoffset(self, at: datetime | None) -> timedelta:
        assert at is not None
        ahead = (at.day, at.hour, at.fold) < (25, 2, 1)
        return timedelta(hours=2 if ahead else 1)

    def tzname(self, at: datetime | None) -> str:
        return "summer"

    def dst(self, at: datetime | None) -> timedelta:
        return self.utcoffset(at) - timedelta(hours=1)


@given(data)
def test_frozen_data_equals_what_it_was_made_from(value: Any) -> None:
    """Freezing changes no content, seen from either side, and freezing again changes nothing."""
    frozen = freeze(value)
    assert frozen == value
    assert value == frozen
    assert freeze(frozen) == frozen


@given(data)
def test_thawing_gives_the_data_back(value: Any) -> None:
    """What is thawed is equal to what was frozen, and made of plain dicts, lists and sets."""
    thawed = thaw(freeze(value))
    assert thawed == value
    assert type(thawed) is (list if type(value) is tuple else type(value))


@given(data)
def test_equal_data_has_equal_hashes(value: Any) -> None:
    """Two frozen copies of one thing are one member of a set."""
    assert len({freeze(value), freeze(copy.deepcopy(value))}) == 1


@given(maps | lists)
def test_changing_the_original_changes_nothing_frozen(value: Any) -> None:
    """Freezing takes a copy all the way down."""
    before = copy.deepcopy(value)
    frozen = freeze(value)
    scramble(value)
    assert frozen == before


@given(maps | lists)
def test_changing_what_was_thawed_changes_nothing_frozen(value: Any) -> None:
    """`to_python` hands out a copy all the way down, sets included."""
    frozen = freeze(value)
    scramble(frozen.to_python())
    assert frozen == value


@given(st.lists(st.tuples(st.sampled_from("sdur"), keys, data), max_size=20))
def test_a_map_does_what_a_dict_does(changes: list[tuple[str, str, Any]]) -> None:
    """After any changes a map holds what a dict would, and every older version what it held."""
    model: dict[str, Any] = {}
    frozen: FrozenMap[str, Any] = FrozenMap()
    versions = []
    for change, key, value in changes:
        versions.append((frozen, dict(model)))
        match change:
            case "s":
                frozen, model = frozen.set(key, value), {**model, key: value}
            case "d":
                frozen, model = frozen.delete(key), {k: v for k, v in model.items() if k != key}
            case "u":
                frozen, model = frozen | {key: value}, model | {key: value}
            case _:
                frozen, model = {key: value} | frozen, {key: value} | model
        assert set(frozen) == set(model)
        assert len(frozen) == len(model)
        assert (key in frozen, frozen.get(key, "no")) == (key in model, model.get(key, "no"))
        assert sorted(frozen.keys()) == sorted(model)
        assert dict(frozen.items()) == model
    assert all(old == then for old, then in versions)


@given(maps, maps)
def test_maps_are_equal_exactly_when_dicts_are(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Comparing a map with a map, a dict or another mapping gives what comparing dicts gives."""
    frozen = freeze_map(one)
    assert (frozen == freeze_map(other)) == (one == other)
    assert (frozen == other) == (one == other)
    assert (frozen == UserDict(other)) == (one == other)
    assert frozen != list(one)


def test_a_missing_key_is_a_key_error() -> None:
    """A map without the key answers as a dict does, and `get` with None or the default."""
    frozen: FrozenMap[str, Any] = FrozenMap({"a": 1})
    with pytest.raises(KeyError):
        frozen["b"]
    assert (frozen.get("b"), frozen.get("b", 2), frozen.get("a", 2)) == (None, 2, 1)


def test_frozen_containers_cannot_be_written_to() -> None:
    """There is no item assignment, deletion or new attribute."""
    for frozen in (freeze({"a": 1}), freeze([1])):
        with pytest.raises(TypeError):
            frozen["a"] = 2
        with pytest.raises(TypeError):
            del frozen[0]
        with pytest.raises(AttributeError):
            frozen.extra = 1


def test_copying_frozen_data_is_free() -> None:
    """A copy of what cannot change is the thing itself."""
    for frozen in (freeze({"a": [1]}), freeze([{}])):
        assert copy.copy(frozen) is frozen
        assert copy.deepcopy(frozen) is frozen


@given(maps)
def test_keys_are_shown_in_order(value: dict[str, Any]) -> None:
    """A map is read, shown and thawed in the order in which it was filled."""
    backwards = dict(reversed(value.items()))
    assert list(freeze_map(value)) == list(freeze_map(value).to_python()) == list(value)
    assert list(freeze_map(backwards)) == list(backwards)
    assert repr(freeze({"b": 1, "a": [2]})) == "FrozenMap({'b': 1, 'a': [2]})"


@pytest.mark.parametrize(
    ("given_", "kept"),
    [
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        (Word("word"), "word"),
        (True, True),
        (Point(1, 2), [1, 2]),
        ((1, (2,)), [1, [2]]),
        (range(3), [0, 1, 2]),
        (UserList([1]), [1]),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
        (OrderedDict(a=1), {"a": 1}),
        (UserDict(a=[1]), {"a": [1]}),
        (MappingProxyType({"a": {1}}), {"a": {1}}),
        (ChainMap({"a": [1]}), {"a": [1]}),
        ({Colour.RED: 1, Word("w"): 2}, {"red": 1, "w": 2}),
        ({"a": 1}.keys(), {"a"}),
        ({(1, 2)}, {(1, 2)}),
        (-(2**63), -(2**63)),
        (2**64 - 1, 2**64 - 1),
    ],
)
def test_relatives_of_plain_data_become_plain(given_: object, kept: object) -> None:
    """Enums, subclasses, tuples, views and other mappings are kept as the plain data they stand for."""
    frozen = freeze({"at": given_})["at"]
    plain = {str, int, bool, bytes, frozenset, FrozenMap, FrozenList}
    assert frozen == kept
    assert type(frozen) in plain
    assert type(freeze(given_)) is type(frozen)
    assert all(type(part) in plain for part in frozen) if isinstance(frozen, Mapping) else True


def test_a_moment_keeps_its_offset_when_clocks_are_turned_back() -> None:
    """Two moments an hour apart that the wall clock shows alike stay an hour apart."""
    first = datetime(2026, 10, 25, 2, 30, tzinfo=Summer())
    early, late = freeze(first), freeze(first.replace(fold=1))
    assert (late - early, early.hour, late.hour) == (timedelta(hours=1), 2, 2)
    assert early.tzinfo == timezone(timedelta(hours=2))


def test_a_moment_without_zone_stays_without() -> None:
    """No zone is invented for a naive datetime."""
    assert freeze(datetime(2026, 1, 1)).tzinfo is None  # noqa: DTZ001 - the subject of the test
