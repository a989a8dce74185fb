"""Memories and the operations on their spaces."""

import copy
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.memory import Mind, check_remedy, on_both
from tests.support.strategies import data, keys, maps, names, scramble

from omoide import Agent, Memory, Space, memory
from omoide.core import FrozenMap
from omoide.core.memory import reserved_spaces
from omoide.errors import Invalid, OmoideError, Unsupported, WrongType


class Room(StrEnum):
    WORLD = "world"
    TASKS = "tasks"
    ATTIC = "attic"


# What a memory is


def test_a_memory_begins_with_two_empty_spaces() -> None:
    """A new memory has an empty map `world` and an empty list `tasks`, all at revision 0."""
    fresh = Memory.new()
    assert fresh.spaces == {"tasks": Space(data=[]), "world": Space(data={})}
    assert fresh.rev == 0
    assert fresh.metadata == {}
    assert Space.is_map(fresh.space("world"))
    assert Space.is_list(fresh.space("tasks"))


def test_a_memory_cannot_be_changed() -> None:
    """Its fields are read-only: a change is another memory."""
    for field in ("id", "rev", "spaces", "metadata", "created_at", "updated_at"):
        with pytest.raises(AttributeError):
            setattr(Memory.new(), field, 1)


def test_tasks_and_world_are_the_reserved_spaces() -> None:
    """The names of the reserved spaces can be asked for."""
    assert reserved_spaces() == memory.reserved_spaces() == ("tasks", "world")


def test_ids_begin_with_a_prefix_unless_one_is_given() -> None:
    """A generated id begins with `mem_` and is fresh each time; one that is given is taken verbatim."""
    assert Memory.new().id.startswith("mem_")
    assert Memory.new().id != Memory.new().id
    assert Memory.new(id="mine").id == "mine"


def test_a_new_memory_was_updated_when_it_was_created() -> None:
    """Both times are the moment of creation, which can be given."""
    fresh, dated = Memory.new(), Memory.new(now=1_234)
    assert fresh.created_at == fresh.updated_at > 0
    assert dated.created_at == dated.updated_at == 1_234


@given(maps)
def test_a_memory_carries_metadata(metadata: dict[str, Any]) -> None:
    """Metadata is any map, and is not shared with whoever gave it."""
    made = Memory.new(metadata=metadata)
    assert made.metadata == metadata
    before = copy.deepcopy(metadata)
    scramble(metadata)
    assert made.metadata == before


@pytest.mark.parametrize("spaces", [{}, {"mine": Space()}, {"world": Space.new_kv({"a": 1}, rev=4)}])
def test_however_a_memory_is_made_the_reserved_spaces_exist(spaces: dict[str, Space]) -> None:
    """The constructor, `new` and reading JSON fill in what is missing and keep what is given."""
    whole = {"tasks": Space.new_list(), "world": Space.new_kv(), **spaces}
    made = Memory(id="m", spaces=FrozenMap(spaces), created_at=0)
    assert made.spaces == whole
    assert Memory.new(spaces=spaces).spaces == whole
    for reserved in reserved_spaces():
        plain = msgspec.json.decode(made.to_json())
        del plain["spaces"][reserved]
        assert Memory.from_json(msgspec.json.encode(plain)).has_space(reserved)


WRONG_FIELDS: list[tuple[dict[str, Any], type[OmoideError], str]] = [
    ({"id": ""}, Invalid, "id"),
    ({"id": 5}, Invalid, "id"),
    ({"id": "a\n"}, Invalid, "id"),
    ({"id": "\ud800"}, Invalid, "id"),
    ({"id": "a" * 513}, Invalid, "id"),
    ({"rev": -1}, Invalid, "rev"),
    ({"rev": "0"}, WrongType, "rev"),
    ({"rev": True}, WrongType, "rev"),
    ({"created_at": -1}, Invalid, "created_at"),
    ({"created_at": 1.5}, Invalid, "created_at"),
    ({"updated_at": "now"}, Invalid, "updated_at"),
    ({"updated_at": -1}, Invalid, "updated_at"),
    ({"metadata": []}, WrongType, "metadata"),
    ({"metadata": {"a": object()}}, Unsupported, "metadata.a"),
    ({"spaces": []}, WrongType, "spaces"),
    ({"spaces": {"a": {}}}, WrongType, "spaces.a"),
    ({"spaces": {"a": None}}, WrongType, "spaces.a"),
    ({"spaces": {5: Space()}}, Unsupported, "spaces.5"),
    ({"spaces": {"": Space()}}, Invalid, "space name"),
]


@pytest.mark.parametrize(("fields", "error", "field"), WRONG_FIELDS)
def test_every_field_of_a_memory_is_checked(
    fields: dict[str, Any], error: type[OmoideError], field: str
) -> None:
    """A memory is not made from a wrong field, directly, with `new` or by `ensure`."""
    attempts: list[Callable[[], object]] = [
        lambda: Memory(**fields),
        lambda: Memory.new(**fields),
        lambda: memory.ensure(Agent.new("bare"), **fields),
    ]
    for attempt in attempts:
        with pytest.raises(error) as caught:
            attempt()
        assert getattr(caught.value, "field", None) == field
        check_remedy(caught.value)


# Spaces


@on_both
def test_a_space_is_made_once(mind: Mind) -> None:
    """`ensure_space` makes a map or a list space; one that exists is kept, whatever the default."""
    mind = mind.ensure_space("board", {}).ensure_space("rag:cache", [1])
    assert (mind.space("board"), mind.space("rag:cache")) == (Space.new_kv(), Space.new_list([1]))
    mind = mind.put_in_space("board", "a", 1)
    again = mind.ensure_space("board", []).ensure_space("world", []).ensure_space("tasks")
    assert again.memory == mind.memory
    assert mind.ensure_space("nameless").space("nameless") == Space.new_kv()


@on_both
def test_spaces_are_found_by_name(mind: Mind) -> None:
    """All spaces, one of them, or whether there is one: reading makes none."""
    mind = mind.ensure_space("board", {})
    assert set(mind.memory.spaces) == {"tasks", "world", "board"}
    assert (mind.has_space("board"), mind.has_space("attic")) == (True, False)
    assert mind.space("attic") is None
    if isinstance(mind.holder, Agent):
        assert memory.spaces(mind.holder) == mind.memory.spaces


@on_both
@pytest.mark.parametrize(
    ("put", "update", "delete"),
    [("put_space", "update_space", "delete_space"), ("space_put", "space_update", "space_delete")],
)
def test_spaces_are_put_updated_and_deleted_under_both_spellings(
    mind: Mind, put: str, update: str, delete: str
) -> None:
    """A space can be replaced whole, changed by a function, and deleted, verb or noun first."""
    mind = getattr(mind, put)("board", Space.new_kv({"a": 1}))
    assert mind.data("board") == {"a": 1}
    mind = getattr(mind, put)("board", Space.new_list([1]))
    assert mind.data("board") == [1]
    mind = getattr(mind, update)("board", lambda old: Space(data=[*old.data, 2], metadata={"by": "test"}))
    assert (mind.data("board"), mind.space("board").metadata) == ([1, 2], {"by": "test"})
    mind = getattr(mind, delete)("board")
    assert not mind.has_space("board")
    assert set(mind.memory.spaces) == {"tasks", "world"}


@on_both
def test_deleting_an_unknown_space_succeeds(mind: Mind) -> None:
    """It counts as a change and leaves the spaces as they were."""
    after = mind.delete_space("attic")
    assert after.revs() == {"": 1, "world": 0, "tasks": 0}


@on_both
def test_a_space_of_other_data_is_changed_by_its_owner(mind: Mind) -> None:
    """Data that is neither map nor list is put and updated whole."""
    mind = mind.put_space("odd", Space(data=1)).update_space("odd", lambda old: Space(data=old.data + 1))
    assert mind.data("odd") == 2
    assert mind.ensure_space("text", "abc").data("text") == "abc"


@on_both
def test_the_reserved_spaces_may_be_replaced_by_their_own_kind(mind: Mind) -> None:
    """`world` takes another map and `tasks` another list."""
    mind = mind.put_space("world", Space.new_kv({"a": 1})).update_space("tasks", lambda _: Space(data=[1]))
    assert (mind.data("world"), mind.data("tasks")) == ({"a": 1}, [1])


@on_both
def test_a_text_enum_names_a_space_as_its_text(mind: Mind) -> None:
    """A name from an enum is the name of its text in every operation, and plain text is what is kept."""
    mind = mind.ensure_space(Room.ATTIC, []).append_to_space(Room.ATTIC, 1).put_in_space(Room.WORLD, "a", 1)
    mind = mind.append_to_space(Room.TASKS, 2).put_space(Room.ATTIC, Space.new_list([1]))
    mind = mind.update_space(Room.ATTIC, lambda old: old).update_space_data(Room.WORLD, lambda old: old)
    assert (mind.data("attic"), mind.data("world"), mind.data("tasks")) == ([1], {"a": 1}, [2])
    assert mind.get_in_space(Room.WORLD, "a") == 1
    assert {type(name) for name in mind.memory.spaces} == {str}
    assert not mind.delete_space(Room.ATTIC).has_space("attic")


# Map spaces and the world


@on_both
@given(key=keys, value=data, other=keys)
def test_what_is_put_under_a_key_is_found_there(mind: Mind, key: str, value: Any, other: str) -> None:
    """Put, get and delete work on `world` and on any map space, and leave other keys alone."""
    mind = mind.ensure_space("board", {}).put_in_space("board", "kept", 0)
    mind = mind.put_in_space("board", key, value).world_put(key, value)
    assert mind.get_in_space("board", key) == mind.world_get(key) == value
    if other != key:
        assert mind.get_in_space("world", other, "none") == mind.world_get(other, "none") == "none"
    mind = mind.delete_from_space("board", key).world_delete(key)
    assert mind.get_in_space("board", key, "none") == mind.world_get(key, "none") == "none"
    assert mind.world() == mind.data("world") == {}
    assert mind.data("board") == ({} if key == "kept" else {"kept": 0})


@on_both
def test_a_value_of_none_or_false_is_not_missing(mind: Mind) -> None:
    """The default is for keys that are absent, not for values that are empty."""
    empty: list[Any] = [None, False, 0, "", [], {}]
    for value in empty:
        assert mind.world_put("a", value).world_get("a", "none") == value


@on_both
def test_a_space_that_does_not_exist_is_answered_with_the_default(mind: Mind) -> None:
    """Reading a key of no space gives None or the default."""
    assert mind.get_in_space("attic", "a") is None
    assert mind.get_in_space("attic", "a", 1) == 1


@on_both
@given(value=maps)
def test_a_whole_map_is_changed_by_a_function(mind: Mind, value: dict[str, Any]) -> None:
    """The function gets the map and returns the new one, for `world` and for any map space."""
    mind = mind.ensure_space("board", {"old": 1}).update_space_data("board", lambda old: {**old, **value})
    assert mind.data("board") == {"old": 1, **value}
    assert mind.world_update(lambda old: old | value).world() == value
    assert mind.world_update(lambda old: {"seen": old}).world() == {"seen": {}}


@on_both
def test_the_conventional_keys_of_the_world_are_just_keys(mind: Mind) -> None:
    """Facts, scratch, tool state, summary, pointers and a profile take any data."""
    for key in ("facts", "scratch", "tool_state", "summary", "pointers", "profile"):
        mind = mind.world_put(key, {"a": 1}).world_put(key, "text")
    assert set(mind.world().values()) == {"text"}


# Purity


@on_both
@given(name=names, key=keys, value=maps, items=st.lists(maps, max_size=3))
def test_no_change_reaches_what_was_there_before(
    mind: Mind, name: str, key: str, value: dict[str, Any], items: list[Any]
) -> None:
    """The memory given stays as it was, and shares nothing with what the caller holds."""
    before = mind.holder.to_json()
    given_ = copy.deepcopy((value, items))
    after = mind.world_put(key, value).put_space(name + "!", Space(data=items))
    after = after.append_to_space("tasks", value).update_space_data("world", lambda old: {**old, "k": items})
    written = after.holder.to_json()
    assert (value, items) == given_
    for held in (value, items, after.data("world"), after.data("tasks"), after.data(name + "!")):
        scramble(held)
    assert after.holder.to_json() == written
    assert mind.holder.to_json() == before
