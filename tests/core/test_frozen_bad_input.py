"""Data that cannot be stored is refused with its path and a remedy."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from math import inf, nan
from pathlib import PurePath
from types import MappingProxyType
from typing import Any

import msgspec
import pydantic
import pytest
from tests.support.memory import check_remedy

from omoide.core import FrozenList, FrozenMap, freeze
from omoide.core.frozen import MAX_INPUT_DEPTH, check_text, freeze_list, freeze_map
from omoide.errors import Invalid, Unsupported, WrongType


class Word(str):
    __slots__ = ()


@dataclass
class Pair:
    x: int = 1


class Record(msgspec.Struct):
    x: int = 1


class Model(pydantic.BaseModel):
    x: int = 1


class Array:
    """Like numpy's, as far as anyone can tell from outside."""

    def tolist(self) -> list[int]:
        return [1, 2]


def nest(levels: int, wrap: Callable[[Any], Any] = lambda inner: [inner]) -> Any:
    value: Any = 0
    for _ in range(levels):
        value = wrap(value)
    return value


def itself() -> list[Any]:
    loop: list[Any] = [1]
    loop.append({"again": loop})
    return loop


UNKEEPABLE: dict[str, tuple[Any, str]] = {
    "object": (object(), "JSON types"),
    "function": (lambda: 1, "JSON types"),
    "builtin": (len, "JSON types"),
    "class": (dict, "JSON types"),
    "complex": (1j, "JSON types"),
    "iterator": (iter([1]), "JSON types"),
    "decimal": (Decimal("1.5"), "JSON types"),
    "fraction": (Fraction(1, 2), "JSON types"),
    "path": (PurePath("a"), "JSON types"),
    "timedelta": (timedelta(1), "JSON types"),
    "date": (date(2026, 1, 1), "isoformat"),
    "time": (time(1), "isoformat"),
    "dataclass": (Pair(), "asdict"),
    "struct": (Record(), "to_builtins"),
    "pydantic": (Model(), "model_dump"),
    "array": (Array(), "tolist"),
    "nan": (nan, "None or a string"),
    "infinity": (inf, "None or a string"),
    "minus-infinity": (-inf, "None or a string"),
    "too-large": (2**64, "string"),
    "too-small": (-(2**63) - 1, "string"),
    "nul": ("a\0b", "remove it"),
    "nul-in-subclass": (Word("a\0b"), "remove it"),
    "surrogate": ("\ud800", "decode the text"),
    "int-key": ({1: 2}, "str"),
    "none-key": ({None: 2}, "str"),
    "tuple-key": ({("a",): 2}, "str"),
    "bytes-key": ({b"a": 2}, "str"),
    "nul-key": ({"a\0": 2}, "remove it"),
    "surrogate-key": ({"\udfff": 2}, "decode the text"),
    "nan-in-set": ({nan}, "None or a string"),
    "contains-itself": (itself(), "flatten"),
    "deep-list": (nest(MAX_INPUT_DEPTH + 1), "flatten"),
    "deep-map": (nest(MAX_INPUT_DEPTH + 1, lambda inner: {"a": inner}), "flatten"),
    "bottomless": (nest(5000), "flatten"),
}


@pytest.mark.parametrize(("value", "remedy"), UNKEEPABLE.values(), ids=UNKEEPABLE)
def test_what_cannot_be_kept_is_refused_with_its_place_and_a_remedy(value: Any, remedy: str) -> None:
    """Nothing is dropped, rounded or turned into text on the way in: the path says where it lies."""
    with pytest.raises(Unsupported, match=remedy) as caught:
        freeze({"a": [0, value]}, "data")
    assert caught.value.path.startswith("data.a[1]")
    check_remedy(caught.value)


def test_data_may_be_nested_up_to_the_limit() -> None:
    """The deepest data allowed is kept and thawed unharmed."""
    value = nest(MAX_INPUT_DEPTH)
    assert freeze(value).to_python() == value


@pytest.mark.parametrize("value", [5, None, "text", [], [("a", 1)], object()])
def test_a_map_is_made_from_a_mapping_only(value: Any) -> None:
    """Anything else is of the wrong type, also for `update`; `|` is left to the other operand."""
    empty: FrozenMap[str, Any] = FrozenMap()
    attempts: list[Callable[[Any], object]] = [FrozenMap, freeze_map, empty.update]
    for attempt in attempts:
        with pytest.raises(WrongType) as caught:
            attempt(value)
        check_remedy(caught.value)
    with pytest.raises(TypeError):
        empty | value


def test_a_foreign_immutable_map_is_frozen_too() -> None:
    """Data that comes in a read-only map of another kind is checked and copied like any other."""
    inner = [1]
    frozen = FrozenMap(MappingProxyType({"a": inner}))
    inner.append(2)
    assert frozen == {"a": [1]}
    with pytest.raises(Unsupported):
        FrozenMap(MappingProxyType({1: 2}))


@pytest.mark.parametrize(
    "value", [5, None, "text", b"ab", bytearray(b"ab"), memoryview(b"ab"), {}, {1}, iter([1])]
)
def test_a_list_is_made_from_a_sequence_of_items_only(value: Any) -> None:
    """Text, bytes of any kind, maps, sets and iterators are no lists."""
    with pytest.raises(WrongType) as caught:
        freeze_list(value, "data")
    assert caught.value.field == "data"
    check_remedy(caught.value)


@pytest.mark.parametrize("value", [[1, 2], (1, 2), 5, "text"])
def test_calling_the_list_type_never_loses_items(value: Any) -> None:
    """Making a list by calling its type keeps the items, or says how to make one."""
    try:
        made: object = FrozenList(value)
    except Invalid as error:
        check_remedy(error)
    else:
        assert made == value


@pytest.mark.parametrize(
    ("value", "error"),
    [("", Invalid), (" \n", Invalid), (5, WrongType), (None, WrongType), ("\0", Unsupported)],
)
def test_required_text_is_text_with_something_in_it(value: object, error: type[Invalid]) -> None:
    """Empty, blank and unkeepable text is refused under the name of its field."""
    with pytest.raises(error) as caught:
        check_text(value, "title")
    assert caught.value.field == "title"
    check_remedy(caught.value)
    assert check_text(Word(" x "), "title") == " x "
