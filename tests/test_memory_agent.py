"""Where does an agent keep its memory?"""

import msgspec

from omoide import Agent, Memory, memory

BARE = Agent.new("bare", state={"own": [1]})


def test_the_memory_lies_under_one_key_of_the_state() -> None:
    """The key is `__memory__`, and the state holds the memory itself there."""
    agent = memory.ensure(BARE)
    assert memory.key() == memory.KEY == "__memory__"
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
    slot = {"KEY", "key", "get", "of", "put", "update", "ensure", "has_memory", "reserved_spaces", "spaces"}
    assert [name for name in set(memory.__all__) - slot if not callable(getattr(Memory, name, None))] == []
    assert all(hasattr(memory, name) for name in memory.__all__)
