"""Memory and identity read as the documents write them."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from enum import Enum, StrEnum
from typing import Any

import pytest
from hypothesis import given
from tests.support.strategies import maps

from omoide import Agent, Identity, Memory, Space, Thread, memory
from omoide.core import FrozenMap
from omoide.errors import Conflict, Invalid, OmoideError, WrongType


class Key(StrEnum):
    """Keys of a program."""

    WORLD = "world"
    FACTS = "facts"
    TEMPERATURE = "temperature"


class OldKey(str, Enum):  # noqa: UP042
    """Keys as they were declared before there was StrEnum."""

    WORLD = "world"
    FACTS = "facts"
    TEMPERATURE = "temperature"


# Attributes


def test_a_space_reads_as_an_attribute() -> None:
    """`memory.spaces.world` is the space; through every change, and after a round trip."""
    held = Memory.new()
    assert (held.spaces.world.data, held.spaces.world.rev) == ({}, 0)
    assert (held.spaces.tasks.data, held.spaces.tasks.rev) == ([], 0)
    agent = memory.put_in_space(Agent.new("a"), "world", "temperature", 22)
    agent = memory.ensure_space(agent, "sensors", {})
    held = memory.of(memory.put_in_space(agent, "sensors", "lidar", "active"))
    held = held.delete_space("absent").update_space("sensors", lambda space: space)
    for one in (
        held,
        Memory.from_json(held.to_json()),
        held.replace(metadata={"n": 1}),
    ):
        assert one.spaces.world.data == {"temperature": 22}
        assert one.spaces.sensors is one.space("sensors")
        assert FrozenMap in type(one.spaces).__mro__
        assert {**one.spaces} == {
            "world": one.spaces.world,
            "tasks": one.spaces.tasks,
            "sensors": one.spaces.sensors,
        }
    assert Memory.from_json(held.to_json()) == held
    spaces = memory.spaces(agent)
    assert spaces is not None
    assert spaces.world.data == {"temperature": 22}
    assert Agent.from_json(agent.to_json()) == agent


def test_a_space_that_is_not_there_is_no_attribute() -> None:
    """The error names the spaces; a name that is no identifier is read with brackets."""
    held = Memory.new().ensure_space("rag:cache", [])
    with pytest.raises(AttributeError, match=r"no space 'sensors'.*rag:cache, tasks, world"):
        held.spaces.sensors  # noqa: B018
    assert not hasattr(held.spaces, "sensors")
    assert held.spaces["rag:cache"].data == []


# Coercion


def test_a_memory_is_made_from_a_mapping() -> None:
    """As a space is: of its fields, and of the fields of its spaces."""
    made = Memory.new(
        {"id": "mem_1", "rev": 3, "spaces": {"world": {"data": {"n": 1}, "rev": 2}, "log": {"data": [1]}}},
        now=5,
    )
    assert (made.id, made.rev, made.created_at) == ("mem_1", 3, 5)
    assert made.spaces.world == Space(data={"n": 1}, rev=2)
    assert made.spaces.log == Space(data=[1])
    assert made.spaces.tasks == Space(data=[])
    assert Memory.new({"spaces": {"log": Space.new_list()}}, metadata={"n": 1}).metadata == {"n": 1}
    assert Memory.new(made) == made
    assert Memory.new(None, now=5).created_at == 5


def test_an_identity_is_made_from_a_mapping() -> None:
    """Keywords stand over it, and missing parts get their defaults."""
    made = Identity.new({"profile": {"age": 3}, "capabilities": {"tags": ["web"]}}, now=5, rev=2)
    assert (made.age, [*made.tags()], [*made.actions()], made.rev, made.created_at) == (3, ["web"], [], 2, 5)
    assert Identity.new(made) == made
    assert Thread.new({"id": "t"}).id == "t"


@pytest.mark.parametrize(
    ("make", "error", "problem"),
    [
        (lambda: Memory.new({"space": {}}), Invalid, "Memory.space"),
        (lambda: Memory.new([1]), WrongType, "attrs"),  # type: ignore[arg-type]
        (lambda: Memory.new({"spaces": {"log": {"data": 1, "content": 1}}}), Invalid, "Space.content"),
        (lambda: Memory.new({"spaces": {"world": {"data": []}}}), OmoideError, "world"),
        (lambda: Memory.new({"spaces": {"log": 5}}), WrongType, "spaces.log"),
        (lambda: Memory.new({"spaces": 5}), WrongType, "spaces"),
        (lambda: Identity.new({"age": 5}), Invalid, "Identity.age"),
        (lambda: Identity.new("x"), WrongType, "attrs"),  # type: ignore[arg-type]
    ],
    ids=range(8),
)
def test_what_does_not_describe_a_value_makes_none(
    make: Callable[[], object], error: type[Exception], problem: str
) -> None:
    """The error names the field."""
    with pytest.raises(error, match=problem):
        make()


# JSON


@given(maps)
def test_the_world_is_written_by_the_json_module(content: dict[str, Any]) -> None:
    """At any depth, as long as it holds what JSON can express."""
    try:
        expected = json.dumps(content, sort_keys=True)
    except (TypeError, ValueError):
        return
    agent = memory.world_update(Agent.new("a"), lambda old: content)
    assert json.dumps(memory.world(agent), sort_keys=True) == expected


def test_the_world_is_read_only_data() -> None:
    """It equals what the memory holds, nested parts too, and a change of it is refused."""
    agent = memory.world_put(Agent.new("a"), "facts", {"list": [1, {"a": 2}]})
    world = memory.world(agent)
    assert json.loads(json.dumps(world)) == {"facts": {"list": [1, {"a": 2}]}}
    assert world == {"facts": {"list": [1, {"a": 2}]}} == memory.of(agent).world()
    changes: list[Callable[[], object]] = [
        lambda: world.__setitem__("x", 1),
        lambda: world["facts"].update(x=1),
        lambda: world["facts"].pop("list"),
        lambda: world["facts"]["list"].append(1),
        lambda: world["facts"]["list"].__setitem__(0, 1),
        lambda: world.setdefault("x", 1),
        lambda: world.clear(),
        lambda: world.__delitem__("facts"),
        lambda: world.__ior__({"x": 1}),
    ]
    for change in changes:
        with pytest.raises(TypeError, match="world_put"):
            change()
    assert memory.world(agent) == {"facts": {"list": [1, {"a": 2}]}}
    again = memory.world_put(Agent.new("b"), "copy", world)
    assert memory.of(again).world()["copy"] == world
    assert world.to_python() == {"facts": {"list": [1, {"a": 2}]}}
    own = copy.deepcopy(world)
    own["facts"]["list"][1]["a"] = 3
    assert (own["facts"]["list"][1], world["facts"]["list"][1]) == ({"a": 3}, {"a": 2})
    assert copy.copy(world) == world
    assert memory.world(Agent.new("bare")) == {}
    assert json.dumps(memory.world(Agent.new("bare"))) == "{}"


# Enum keys


@pytest.mark.parametrize("enum", [Key, OldKey])
def test_keys_of_an_enum_are_stored_as_text(enum: Any) -> None:
    """Keys and names of spaces, also on the fast path: what is stored is a plain string."""
    agent = memory.ensure_space(memory.ensure(Agent.new("a")), enum.FACTS, {})
    agent = memory.put_in_space(agent, enum.WORLD, enum.TEMPERATURE, 22)
    agent = memory.put_in_space(agent, enum.FACTS, enum.TEMPERATURE, 1)
    agent = memory.update_space(agent, enum.FACTS, lambda space: space)
    agent = memory.put_space(agent, enum.FACTS, Space.new_kv({enum.TEMPERATURE: 2}))
    agent = memory.update_space_data(agent, enum.WORLD, lambda old: {**old, enum.FACTS: 1})
    held = memory.of(agent)
    names = [*held.spaces, *held.spaces.world.data, *held.spaces.facts.data]
    assert {type(name) for name in names} == {str}
    assert memory.get_in_space(agent, enum.WORLD, enum.TEMPERATURE) == 22
    assert memory.world_get(agent, "temperature") == 22
    assert sorted(held.spaces) == ["facts", "tasks", "world"]
    assert held == Memory.from_json(held.to_json())
    gone = memory.delete_space(memory.delete_from_space(agent, enum.WORLD, enum.TEMPERATURE), enum.FACTS)
    assert (memory.world_get(gone, "temperature"), memory.has_space(gone, "facts")) == (None, False)


# Revisions of a space that was deleted and made again


def test_a_stale_revision_of_a_space_that_was_made_again_is_refused() -> None:
    """It goes on from the revision that was deleted, so that none comes twice."""
    held = Memory.new().ensure_space("facts", {}).put_in_space("facts", "k", 1)
    stale = held.spaces.facts.rev
    for again in (
        held.delete_space("facts").ensure_space("facts", {}),
        held.delete_space("facts").put_space("facts", Space.new_kv()),
        Memory.from_json(held.delete_space("facts").to_json()).ensure_space("facts", []),
        held.delete_space("facts")
        .delete_space("facts")
        .ensure_space("facts", {})
        .update_space("facts", lambda s: s),
    ):
        for rev in range(stale + 1):
            with pytest.raises(Conflict):
                again.put_space("facts", again.spaces.facts, expected_space_rev=rev)
        assert again.spaces.facts.rev > stale


def test_only_a_space_that_was_deleted_goes_on() -> None:
    """A new one is at 0, one that is put keeps a higher revision, and absence is revision 0."""
    held = Memory.new().ensure_space("facts", {}).delete_space("facts")
    assert held.ensure_space("other", {}).spaces.other.rev == 0
    assert held.put_space("facts", Space(data={}, rev=9)).spaces.facts.rev == 9
    assert held.ensure_space("facts", {}, expected_space_rev=0).spaces.facts.rev == 1
    assert held.ensure_space("facts", {}).deleted == {}
    assert held.deleted == {"facts": 0}
    assert Memory.new().delete_space("never").deleted == {}
