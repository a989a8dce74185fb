"""Spaces: kind, data and limits."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.memory import check_remedy
from tests.support.strategies import data, json_data, lists, maps, scramble

from omoide import Memory, Space
from omoide.core import FrozenList, FrozenMap
from omoide.errors import Invalid, OmoideError, TooLarge, Unsupported, WrongSpaceType, WrongType


def test_a_space_begins_empty_and_unchanged() -> None:
    """By default a space is an empty map at revision 0 with no metadata and no limits."""
    space = Space()
    assert (space.data, space.rev, space.metadata) == ({}, 0, {})
    assert (space.max_items, space.max_item_bytes) == (None, None)
    assert Space.new_kv() == space
    assert Space.new_list() == Space(data=[])


@given(data, st.integers(0, 99), maps)
def test_a_space_holds_any_data(value: Any, rev: int, metadata: dict[str, Any]) -> None:
    """Data, revision and metadata are those given; other data than maps and lists is allowed."""
    space = Space(data=value, rev=rev, metadata=metadata)
    assert (space.data, space.rev, space.metadata) == (value, rev, metadata)


@given(maps)
def test_a_map_space_is_made_from_a_map(value: dict[str, Any]) -> None:
    """`new_kv` gives a map space with the fields asked for."""
    space = Space.new_kv(value, rev=3, metadata={"by": "test"})
    assert (space.data, space.rev, space.metadata) == (value, 3, {"by": "test"})
    assert (Space.is_map(space), Space.is_list(space)) == (True, False)


@given(lists)
def test_a_list_space_is_made_from_a_list(value: list[Any]) -> None:
    """`new_list` gives a list space with the fields asked for."""
    space = Space.new_list(value, metadata={"by": "test"})
    assert (space.data, space.rev, space.metadata) == (value, 0, {"by": "test"})
    assert (Space.is_map(space), Space.is_list(space)) == (False, True)
    assert Space.new_list(tuple(value)) == Space.new_list(value)


@pytest.mark.parametrize("value", [[], [("a", 1)], None, 5, "text", {1}, Space()], ids=repr)
def test_a_map_space_needs_a_map(value: Any) -> None:
    """`new_kv` checks the type of its data."""
    with pytest.raises(WrongType, match="data must be a mapping") as caught:
        Space.new_kv(value)
    check_remedy(caught.value)


@pytest.mark.parametrize(
    "value", [{}, None, 5, "text", b"bytes", bytearray(b"bytes"), {1}, Space()], ids=repr
)
def test_a_list_space_needs_a_list(value: Any) -> None:
    """`new_list` checks the type of its data; text and bytes are no lists."""
    with pytest.raises(WrongType, match="data must be a list") as caught:
        Space.new_list(value)
    check_remedy(caught.value)


@pytest.mark.parametrize("value", [None, 5, "text", b"bytes", {1, 2}, Space()], ids=repr)
def test_other_data_is_neither_a_map_nor_a_list(value: Any) -> None:
    """A space of other data has no generic operations: its owner changes it whole."""
    space = Space(data=value)
    assert (Space.is_map(space), Space.is_list(space)) == (False, False)
    for read in (space._map_data, space._list_data):
        with pytest.raises(WrongSpaceType) as caught:
            read("odd")
        check_remedy(caught.value)


@pytest.mark.parametrize(
    "value", [None, {}, [], FrozenMap(), FrozenList(), "text", Space, Memory.new(), object()]
)
def test_what_is_no_space_has_no_kind(value: object) -> None:
    """Asked about anything that is no space, both questions are answered with no, not with an error."""
    assert (Space.is_map(value), Space.is_list(value)) == (False, False)


@given(maps, maps)
def test_a_space_shares_nothing_with_its_maker(value: dict[str, Any], metadata: dict[str, Any]) -> None:
    """Changing what was given, or what was thawed, leaves the space as it was."""
    space = Space(data=value, metadata=metadata)
    written = space.to_json()
    scramble(value)
    scramble(metadata)
    scramble(space.data.to_python())
    assert space.to_json() == written


def test_a_space_cannot_be_changed() -> None:
    """Its fields are read-only."""
    with pytest.raises(AttributeError):
        Space().rev = 1  # type: ignore[misc]


WRONG: dict[str, tuple[dict[str, Any], type[OmoideError], str]] = {
    "data-object": ({"data": object()}, Unsupported, "data"),
    "data-inside": ({"data": {"a": [1, {2: 3}]}}, Unsupported, "data.a[1].2"),
    "rev-text": ({"rev": "1"}, WrongType, "rev"),
    "rev-none": ({"rev": None}, WrongType, "rev"),
    "rev-bool": ({"rev": True}, WrongType, "rev"),
    "rev-float": ({"rev": 1.0}, WrongType, "rev"),
    "rev-negative": ({"rev": -1}, Invalid, "rev"),
    "metadata-list": ({"metadata": []}, WrongType, "metadata"),
    "metadata-none": ({"metadata": None}, WrongType, "metadata"),
    "metadata-inside": ({"metadata": {"a": object()}}, Unsupported, "metadata.a"),
    "max_items-text": ({"max_items": "5"}, WrongType, "max_items"),
    "max_items-bool": ({"max_items": True}, WrongType, "max_items"),
    "max_items-negative": ({"max_items": -1}, Invalid, "max_items"),
    "max_item_bytes-float": ({"max_item_bytes": 1.5}, WrongType, "max_item_bytes"),
    "max_item_bytes-negative": ({"max_item_bytes": -1}, Invalid, "max_item_bytes"),
    "limit-on-text": ({"data": "text", "max_items": 5}, WrongType, "data"),
    "limit-on-nothing": ({"data": None, "max_item_bytes": 5}, WrongType, "data"),
}


@pytest.mark.parametrize(("fields", "error", "field"), WRONG.values(), ids=WRONG)
def test_every_field_of_a_space_is_checked(
    fields: dict[str, Any], error: type[OmoideError], field: str
) -> None:
    """A wrong field is a typed error that names it and says what to do, made anew or changed."""
    with pytest.raises(error) as caught:
        Space(**fields)
    assert getattr(caught.value, "field", None) == field
    check_remedy(caught.value)
    with pytest.raises(error):
        msgspec.structs.replace(Space(), **fields)


@pytest.mark.parametrize(
    ("value", "limits", "limit"),
    [
        ([1, 2], {"max_items": 1}, "max_items"),
        ({"a": 1}, {"max_items": 0}, "max_items"),
        (["abc"], {"max_item_bytes": 4}, "max_item_bytes"),
        ({"a": 1, "b": [1, 2, 3]}, {"max_item_bytes": 6}, "max_item_bytes"),
    ],
)
def test_a_space_is_not_made_beyond_its_limits(value: Any, limits: dict[str, int], limit: str) -> None:
    """Too many or too large items are refused with the limit, what is allowed, and what was tried."""
    with pytest.raises(TooLarge, match=limit) as caught:
        Space(data=value, **limits)
    assert (caught.value.limit, caught.value.allowed) == (limit, limits[limit])
    assert caught.value.actual > caught.value.allowed
    check_remedy(caught.value)


@given(st.lists(json_data, max_size=4).filter(lambda items: b"$" not in msgspec.json.encode(items)))
def test_a_space_is_made_exactly_up_to_its_limits(items: list[Any]) -> None:
    """A limit is the largest number that is allowed; an item is as large as its JSON."""
    largest = max((len(msgspec.json.encode(item)) for item in items), default=0)
    space = Space(data=items, max_items=len(items), max_item_bytes=largest)
    assert space.data == items
    assert Space.from_json(space.to_json()) == space
    if items:
        with pytest.raises(TooLarge):
            msgspec.structs.replace(space, max_items=len(items) - 1)
        with pytest.raises(TooLarge):
            msgspec.structs.replace(space, max_item_bytes=largest - 1)


def test_a_space_is_made_from_a_mapping_or_keywords() -> None:
    """Either gives what the constructor gives, and an unknown field is refused by name."""
    assert Space.new({"data": [1], "rev": 2}) == Space.new(data=[1], rev=2) == Space(data=[1], rev=2)
    assert Space.new() == Space()
    with pytest.raises(Invalid, match=r"Space\.colour is an unknown field"):
        Space.new(colour="red")


def test_a_value_is_replaced_field_by_field_and_checked() -> None:
    """What is not named stays, limits among it; what does not fit is refused."""
    space = Space(data=[1], max_items=2, metadata={"owner": "me"})
    grown = space.replace(data=[1, 2])
    assert (grown.data, grown.max_items, grown.metadata) == ([1, 2], 2, {"owner": "me"})
    with pytest.raises(Invalid, match="max_items"):
        space.replace(data=[1, 2, 3])
    with pytest.raises(Invalid, match="is an unknown field"):
        space.replace(colour="red")
