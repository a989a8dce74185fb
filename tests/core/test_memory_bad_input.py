"""Wrong arguments to memory operations raise a typed error with a remedy and change nothing."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.memory import Mind, attempt_to, on_both, refusal_of

from omoide import Agent, Memory, Space, memory
from omoide.errors import (
    Conflict,
    Invalid,
    NotFound,
    OmoideError,
    ReservedSpace,
    Unsupported,
    WrongSpaceType,
    WrongType,
)

Call = tuple[Any, ...]

# Every change with the space named by the first argument, and arguments that are right.
ON_A_NAME: list[Call] = [
    ("put_in_space", "k", 1),
    ("delete_from_space", "k"),
    ("update_space_data", dict),
    ("append_to_space", 1),
    ("prepend_to_space", 1),
    ("insert_in_space", 0, 1),
    ("remove_from_space", "i"),
    ("update_in_space", "i", dict),
    ("update_space", lambda old: old),
    ("space_update", lambda old: old),
]
MAKING: list[Call] = [("put_space", Space()), ("space_put", Space()), ("ensure_space", {})]
DELETING: list[Call] = [("delete_space",), ("space_delete",)]
READING: list[Call] = [("get_in_space", "k"), ("space",), ("has_space",)]


def first(call: Call) -> str:
    return str(call[0])


# Names


@on_both
@pytest.mark.parametrize("call", [*ON_A_NAME, *MAKING, *DELETING], ids=first)
@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("", Invalid),
        (" \n", Invalid),
        ("a\0b", Unsupported),
        ("\ud800", Unsupported),
        (None, WrongType),
        (5, WrongType),
        (b"world", WrongType),
        (("world",), WrongType),
        (["world"], WrongType),
        ({}, WrongType),
    ],
    ids=["empty", "blank", "nul", "surrogate", "none", "int", "bytes", "tuple", "list", "map"],
)
def test_a_space_is_named_by_text(mind: Mind, call: Call, name: Any, error: type[OmoideError]) -> None:
    """No change takes a name that is empty, no text, or text that cannot be kept."""
    wrong = refusal_of(mind, error, attempt_to(call[0], name, *call[1:]), "space name")
    assert isinstance(wrong, Invalid)
    assert wrong.field == "space name"


@on_both
@pytest.mark.parametrize("call", READING, ids=first)
@pytest.mark.parametrize("name", [["world"], {}, None, 5])
def test_a_space_is_read_by_its_text(mind: Mind, call: Call, name: Any) -> None:
    """A name of another type is not a space that is missing: the mistake is said aloud."""
    mind = mind.ensure_space("new")
    refusal_of(mind, WrongType, attempt_to(call[0], name, *call[1:]), "space name must be a string")


@on_both
@pytest.mark.parametrize("call", ON_A_NAME, ids=first)
def test_a_space_that_does_not_exist_is_never_made_by_a_change(mind: Mind, call: Call) -> None:
    """The memory is made where it is missing, custom spaces are not: the message says how to make one."""
    wrong = refusal_of(
        mind, NotFound, attempt_to(call[0], "attic", *call[1:]), "'attic' does not exist.*ensure_space"
    )
    assert isinstance(wrong, LookupError)
    if isinstance(mind.holder, Agent):
        assert memory.space(mind.holder, "attic") is None


# Kinds of spaces


@on_both
@pytest.mark.parametrize("call", ON_A_NAME[:3] + READING[:1], ids=first)
@pytest.mark.parametrize("name", ["tasks", "list", "odd"])
def test_map_operations_need_a_map_space(mind: Mind, call: Call, name: str) -> None:
    """A list, or other data, has no keys: writing, deleting and reading them is refused."""
    mind = mind.ensure_space("list", [{"id": "i"}]).ensure_space("odd", "text")
    wrong = refusal_of(mind, WrongSpaceType, attempt_to(call[0], name, *call[1:]), "is not a map space")
    assert isinstance(wrong, WrongSpaceType)
    assert (wrong.space, wrong.expected) == (name, "map")


@on_both
@pytest.mark.parametrize("operation", ["delete_space", "space_delete"])
@pytest.mark.parametrize("name", ["world", "tasks"])
def test_deleting_a_reserved_space_is_refused_before_any_memory_is_made(
    mind: Mind, operation: str, name: str
) -> None:
    """`world` and `tasks` cannot be deleted, whatever revision is expected; a bare agent stays bare."""
    for options in ({}, {"expected_rev": 0}, {"expected_rev": 99}, {"now": -1}):
        refusal_of(mind, ReservedSpace, attempt_to(operation, name, **options), "cannot delete reserved")
    if mind.holder == BARE:
        assert not memory.has_memory(mind.holder)


BARE = Agent.new("bare")


def test_an_attempt_on_a_bare_agent_leaves_it_bare() -> None:
    """A refused change does not leave an empty memory behind."""
    attempts: list[Callable[[Agent], object]] = [
        lambda agent: memory.delete_space(agent, "world"),
        lambda agent: memory.put_in_space(agent, "attic", "k", 1),
        lambda agent: memory.world_put(agent, "k", object()),
        lambda agent: memory.tasks_add(agent, ""),
        lambda agent: memory.world_put(agent, "k", 1, expected_rev=1),
    ]
    for attempt in attempts:
        with pytest.raises(OmoideError):
            attempt(BARE)
        assert not memory.has_memory(BARE)
        assert BARE.state == {}


@on_both
@pytest.mark.parametrize(
    ("name", "space"),
    [
        ("world", Space.new_list()),
        ("world", Space(data="text")),
        ("world", Space(data=None)),
        ("tasks", Space.new_kv()),
        ("tasks", Space(data={1})),
    ],
)
def test_a_reserved_space_keeps_its_kind(mind: Mind, name: str, space: Space) -> None:
    """Neither putting, updating nor constructing turns `world` into a list or `tasks` into a map."""
    kind = "map" if name == "world" else "list"
    for operation in ("put_space", "space_put"):
        refusal_of(mind, ReservedSpace, attempt_to(operation, name, space), f"change the kind.*{kind}")
    for operation in ("update_space", "space_update"):
        refusal_of(
            mind, ReservedSpace, attempt_to(operation, name, lambda _: space), f"change the kind.*{kind}"
        )
    with pytest.raises(ReservedSpace):
        Memory.new(spaces={name: space})


# Values, results and functions


UNKEEPABLE: list[tuple[Call, str]] = [
    (("put_in_space", "world", "k", {"a": [object()]}), "k.a[0]"),
    (("world_put", "k", {"a": {1: 2}}), "k.a.1"),
    (("world_put", 5, 1), "key"),
    (("put_in_space", "world", None, 1), "key"),
    (("put_in_space", "world", "a\0b", "NUL in the key"), "key"),
    (("put_in_space", "world", "\ud800", "surrogate in the key"), "key"),
    (("put_in_space", "world", "k", "a\0b"), "k"),
    (("world_delete", 5), "key"),
    (("delete_from_space", "world", ["k"]), "key"),
    (("world_update", lambda _: {"a": object()}), "the result of the update.a"),
    (("world_update", lambda _: {1: 2}), "the result of the update.1"),
    (("append_to_space", "tasks", [1, len]), "item[1]"),
    (("prepend_to_space", "tasks", {1: 2}), "item.1"),
    (("insert_in_space", "tasks", 0, float("nan")), "item"),
    (("update_in_space", "tasks", "t", lambda _: object()), "the result of the update"),
    (("remove_from_space", "tasks", object()), "item_id"),
    (("tasks_complete", object()), "item_id"),
    (("ensure_space", "new", {"a": object()}), "data.a"),
    (("ensure_space", "new", object()), "data"),
]


@on_both
@pytest.mark.parametrize(
    ("call", "place"), UNKEEPABLE, ids=[f"{call[0]}-{at}-{n}" for n, (call, at) in enumerate(UNKEEPABLE)]
)
def test_what_cannot_be_kept_is_refused_at_its_place(mind: Mind, call: Call, place: str) -> None:
    """No operation lets anything in that could not be written down; the path says what is meant."""
    mind = mind.tasks_add("Check", id="t")
    wrong = refusal_of(mind, Unsupported, attempt_to(*call))
    assert isinstance(wrong, Unsupported)
    assert wrong.path == place


@on_both
@pytest.mark.parametrize("result", [None, 5, [1], {}, "text", Memory.new(id="m", now=0)])
def test_an_update_has_to_return_what_it_was_given(mind: Mind, result: Any) -> None:
    """A space for a space, a map for a map; anything else is of the wrong type."""
    refusal_of(mind, WrongType, attempt_to("update_space", "world", lambda _: result), "result.*a Space")
    refusal_of(mind, WrongType, attempt_to("put_space", "new", result), "space must be a Space.*new_kv")
    if result != {}:
        refusal_of(mind, WrongType, attempt_to("world_update", lambda _: result), "result.*a mapping")
        refusal_of(
            mind, WrongType, attempt_to("update_space_data", "world", lambda _: result), "result.*mapping"
        )


@on_both
def test_an_update_that_forgets_to_return_is_refused(mind: Mind) -> None:
    """An item is not replaced by nothing because a function has no `return`."""
    mind = mind.tasks_add("Check", id="t")
    attempt = attempt_to("update_in_space", "tasks", "t", lambda _: None)
    refusal_of(mind, WrongType, attempt, "the result of the update.*return the changed item")


@on_both
@pytest.mark.parametrize("item_id", [None, object(), 1.5j, {"id": "t"}, ["t"]])
def test_an_item_is_found_by_what_can_be_an_id(mind: Mind, item_id: Any) -> None:
    """Nothing, an item itself, or what cannot be kept is a mistake, not an id that is unknown."""
    mind = mind.tasks_add("Check", id="t")
    refusal_of(mind, Invalid, attempt_to("remove_from_space", "tasks", item_id), "item_id")
    refusal_of(mind, Invalid, attempt_to("update_in_space", "tasks", item_id, lambda item: item), "item_id")
    refusal_of(mind, Invalid, attempt_to("tasks_complete", item_id), "item_id")
    refusal_of(mind, Invalid, attempt_to("tasks_remove", item_id), "item_id")


@on_both
@pytest.mark.parametrize("change", [None, 5, {}, "upper"])
def test_a_change_is_a_function(mind: Mind, change: Any) -> None:
    """What cannot be called is refused by name, not by the interpreter."""
    mind = mind.tasks_add("Check", id="t")
    for call in (
        ("update_space", "world", change),
        ("update_space_data", "world", change),
        ("world_update", change),
        ("update_in_space", "tasks", "t", change),
    ):
        refusal_of(mind, WrongType, attempt_to(*call), "change must be a function")
    with pytest.raises(WrongType, match="change must be a function"):
        memory.update(BARE, change)


@on_both
def test_an_error_in_a_change_comes_through_and_changes_nothing(mind: Mind) -> None:
    """Whatever the caller's function raises is the caller's, and the memory stays as it was."""
    mind = mind.tasks_add("Check", id="t")
    before = mind.holder.to_json()
    for call in (("update_space", "world"), ("world_update",), ("update_in_space", "tasks", "t")):
        with pytest.raises(ZeroDivisionError):
            attempt_to(*call, lambda _: 1 // 0)(mind)
        assert mind.holder.to_json() == before


@on_both
@pytest.mark.parametrize("index", [None, "0", 1.0, True])
def test_the_index_of_an_insertion_is_an_int(mind: Mind, index: Any) -> None:
    """Any other index is of the wrong type."""
    refusal_of(mind, WrongType, attempt_to("insert_in_space", "tasks", index, 1), "index must be an int")


# Options


@on_both
@pytest.mark.parametrize("now", [-1, 1.5, "now", True])
def test_a_moment_is_a_number_of_milliseconds(mind: Mind, now: Any) -> None:
    """`now` is an int from 0 upwards, for every change and for a new memory."""
    for call in (("world_put", "k", 1), ("tasks_add", "x"), ("ensure_space", "new"), ("delete_space", "new")):
        refusal_of(mind, Invalid, attempt_to(*call, now=now), "now")
    with pytest.raises(Invalid, match="now"):
        Memory.new(now=now)
    with pytest.raises(Invalid, match="now"):
        memory.ensure(BARE, now=now)


@on_both
@pytest.mark.parametrize("expected", ["1", 1.0, True, [1]])
def test_an_expected_revision_is_an_int(mind: Mind, expected: Any) -> None:
    """What only looks like the revision is refused as the wrong type, not taken for it."""
    mind = mind.world_put("k", 1)
    for option in ("expected_rev", "expected_space_rev"):
        refusal_of(mind, WrongType, attempt_to("world_put", "k", 2, **{option: expected}), "expected")


def test_a_conflict_is_no_mistake_in_what_was_given() -> None:
    """Whoever catches bad input does not catch conflicts, and the other way round."""
    assert not issubclass(Conflict, Invalid)
    assert issubclass(Conflict, OmoideError)
