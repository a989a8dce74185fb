"""The memory slot of an agent."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.support.memory import check_remedy

from omoide import Agent, Context, Memory, Space, memory
from omoide.errors import WrongType

BARE = Agent.new("bare", state={"own": [1]})


def test_the_memory_lies_under_one_key_of_the_state() -> None:
    """The key is `__memory__`, and the state holds the memory itself there."""
    agent = memory.ensure(BARE)
    assert memory.key() == "__memory__"
    assert agent.state["__memory__"] is memory.get(agent)


def test_a_bare_agent_has_no_memory_at_all() -> None:
    """Nothing is allocated, not even the key, until something needs it; reading needs nothing."""
    assert "__memory__" not in BARE.state
    assert memory.get(BARE) is None
    assert not memory.has_memory(BARE)
    assert memory.spaces(BARE) is None
    assert memory.space(BARE, "world") is None
    assert not memory.has_space(BARE, "world")
    assert memory.get_in_space(BARE, "world", "a", "none") == "none"
    assert memory.world_get(BARE, "a", "none") == "none"
    assert memory.world(BARE) == {}
    assert memory.tasks(BARE) == memory.tasks_open(BARE) == []
    assert memory.tasks_next(BARE) is None
    assert "__memory__" not in BARE.state


def test_a_missing_memory_is_answered_with_the_default() -> None:
    """`get` gives None or the default without a memory, and the memory where there is one."""
    agent = memory.ensure(BARE)
    assert (memory.get(BARE), memory.get(BARE, "none")) == (None, "none")
    assert memory.get(agent, "none") == agent.state["__memory__"]


def test_a_memory_of_none_is_present_but_missing() -> None:
    """A key that holds None is answered with None, not with the default, and counts as no memory."""
    agent = Agent.new("odd", state={"__memory__": None})
    assert memory.get(agent, "none") is None
    assert not memory.has_memory(agent)
    assert memory.has_memory(memory.ensure(agent))
    assert memory.world_get(memory.world_put(agent, "a", 1), "a") == 1


def test_putting_a_memory_touches_nothing_else() -> None:
    """The memory is stored as it is, next to the rest of the state; the agent given stays as it was."""
    mine = Memory.new(rev=7, now=3)
    agent = memory.put(BARE, mine)
    assert memory.get(agent) is mine
    assert agent.state == {"own": [1], "__memory__": mine}
    assert BARE.state == {"own": [1]}
    assert (agent.id, agent.name, agent.definition) == (BARE.id, BARE.name, BARE.definition)


def test_updating_the_container_leaves_revisions_to_the_caller() -> None:
    """The function gets the memory, or None without one; revision and time are what it returns."""
    seen: list[Memory | None] = []

    def change(old: Memory | None) -> Memory:
        seen.append(old)
        return Memory.new(id="m", now=5) if old is None else msgspec.structs.replace(old, metadata={"a": 1})

    once = memory.update(BARE, change)
    twice = memory.update(once, change)
    assert seen == [None, Memory.new(id="m", now=5)]
    assert memory.get(twice) == Memory.new(id="m", now=5, metadata={"a": 1})


def test_ensuring_twice_changes_nothing() -> None:
    """A missing memory is made with the options; one that exists is kept, whatever the options say."""
    once = memory.ensure(BARE, id="mine", now=5, metadata={"by": "test"})
    assert memory.get(once) == Memory.new(id="mine", now=5, metadata={"by": "test"})
    assert memory.ensure(once, id="other", now=9, metadata={}) == once
    assert memory.has_memory(once)
    assert not memory.has_memory(BARE)


def test_everything_done_to_an_agent_can_be_done_to_a_memory() -> None:
    """Each operation on agents is also one on the memory alone, under the same name."""
    slot = {"key", "get", "of", "put", "update", "ensure", "has_memory", "reserved_spaces", "spaces"}
    assert [name for name in set(memory.__all__) - slot if not callable(getattr(Memory, name, None))] == []
    assert all(hasattr(memory, name) for name in memory.__all__)


# What has none


NOT_AGENTS: dict[str, Any] = {
    "none": None,
    "map": {"state": {}},
    "text": "agent",
    "memory": Memory.new(),
    "context": Context(BARE),
    "object": SimpleNamespace(state={}),
    "class": Agent,
}


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(["get", "of", "ensure", "has_memory", "spaces", "world"], ()),
    **dict.fromkeys(["tasks", "tasks_open", "tasks_next"], ()),
    **dict.fromkeys(["space", "has_space", "ensure_space"], ("world",)),
    **dict.fromkeys(["delete_space", "space_delete"], ("attic",)),
    **dict.fromkeys(["put_space", "space_put"], ("world", Space())),
    **dict.fromkeys(["update_space", "space_update"], ("world", lambda old: old)),
    **dict.fromkeys(["get_in_space", "delete_from_space"], ("world", "k")),
    **dict.fromkeys(["world_get", "world_delete", "tasks_add", "tasks_complete", "tasks_remove"], ("k",)),
    **dict.fromkeys(["append_to_space", "prepend_to_space", "remove_from_space"], ("tasks", "k")),
    "put": (Memory.new(),),
    "update": (lambda _: Memory.new(),),
    "put_in_space": ("world", "k", 1),
    "update_space_data": ("world", lambda old: old),
    "insert_in_space": ("tasks", 0, 1),
    "update_in_space": ("tasks", "k", lambda old: old),
    "world_put": ("k", 1),
    "world_update": (lambda old: old,),
    "tasks_insert": (0, "k"),
    "tasks_reorder": ([],),
}


@pytest.mark.parametrize("thing", NOT_AGENTS.values(), ids=NOT_AGENTS)
@pytest.mark.parametrize("operation", sorted(ARGUMENTS))
def test_what_is_no_agent_has_no_memory(operation: str, thing: Any) -> None:
    """Reading and changing anything but an agent is refused, also what has a state of its own."""
    with pytest.raises(WrongType, match="agent must be an Agent") as caught:
        getattr(memory, operation)(thing, *ARGUMENTS[operation])
    check_remedy(caught.value)


def test_every_operation_is_asked_about_what_is_no_agent() -> None:
    """The table above is complete."""
    assert set(ARGUMENTS) == set(memory.__all__) - {"key", "reserved_spaces"}


@pytest.mark.parametrize("thing", [None, {}, "memory", Space(), BARE, Memory])
def test_only_a_memory_is_put_into_an_agent(thing: Any) -> None:
    """Anything else is a type error that names the slot; so is what an update returns."""
    attempts: list[Callable[[], object]] = [
        lambda: memory.put(BARE, thing),
        lambda: memory.update(BARE, lambda _: thing),
    ]
    for attempt in attempts:
        with pytest.raises(TypeError, match="__memory__ must be a Memory") as caught:
            attempt()
        assert isinstance(caught.value, WrongType)
        check_remedy(caught.value)
    assert BARE.state == {"own": [1]}
