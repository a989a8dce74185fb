"""Functions on the memory of an agent.

Each takes an agent and returns a new one, and the given agent stays as it was. Changes create the memory if
it is missing, reads never do. The operations are methods of `Memory` with the same names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Unpack

from omoide import clock
from omoide.clock import get_override, system_ns
from omoide.core.agent import Agent
from omoide.core.codec import ReadOnlyDict, read_only
from omoide.core.frozen import (
    EMPTY_LIST,
    EMPTY_MAP,
    MAX_INT,
    MIN_INT,
    FrozenMap,
    allocate,
    is_storable_scalar,
    wrap_map_lazy,
)
from omoide.core.maps import set_item
from omoide.core.memory import ChangeOptions, Memory, Space, Spaces, Task, Tasks, reserved_spaces
from omoide.core.state import MEMORY, copy_method_metadata, with_state
from omoide.core.value import set_field, shallow_copy

P = ParamSpec("P")

_KEY = MEMORY.key
get = MEMORY.get
of = MEMORY.get_or_new
put = MEMORY.put
update = MEMORY.update
ensure = MEMORY.ensure
has_memory = MEMORY.has


def key() -> str:
    """Return the key of the state that holds the memory."""
    return _KEY


def _agent_function(
    method: Callable[Concatenate[Memory, P], Memory],
) -> Callable[Concatenate[Agent, P], Agent]:
    """Wrap a method of Memory as a function on agents."""
    get_memory = MEMORY.get_or_new

    def on_agent(agent: Agent, /, *args: P.args, **kwargs: P.kwargs) -> Agent:
        before = get_memory(agent)
        after = method(before, *args, **kwargs)
        if after is before and agent.state.get(_KEY) is before:
            return agent
        return _with_memory(agent, after)

    return copy_method_metadata(on_agent, method, __name__)


def _with_memory(agent: Agent, memory: Memory) -> Agent:
    """Return the agent with a memory, like `put` without its checks."""
    # Safe: `get_or_new` checked the agent, and methods of Memory return a Memory.
    return with_state(agent, wrap_map_lazy(set_item(agent.state._map, _KEY, memory)))


ensure_space = _agent_function(Memory.ensure_space)
put_space = space_put = _agent_function(Memory.put_space)
update_space = space_update = _agent_function(Memory.update_space)
delete_space = space_delete = _agent_function(Memory.delete_space)

delete_from_space = _agent_function(Memory.delete_from_space)
update_space_data = _agent_function(Memory.update_space_data)

append_to_space = _agent_function(Memory.append_to_space)
prepend_to_space = _agent_function(Memory.prepend_to_space)
insert_in_space = _agent_function(Memory.insert_in_space)
remove_from_space = _agent_function(Memory.remove_from_space)
update_in_space = _agent_function(Memory.update_in_space)

world_put = _agent_function(Memory.world_put)
world_delete = _agent_function(Memory.world_delete)
world_update = _agent_function(Memory.world_update)

tasks_add = _agent_function(Memory.tasks_add)
tasks_insert = _agent_function(Memory.tasks_insert)
tasks_complete = _agent_function(Memory.tasks_complete)
tasks_remove = _agent_function(Memory.tasks_remove)
tasks_reorder = _agent_function(Memory.tasks_reorder)


def put_in_space(agent: Agent, space: str, key: str, value: Any, **options: Unpack[ChangeOptions]) -> Agent:
    """Return the agent with a value set for a key of a map space."""
    # The most frequent change. The common case is inlined here and takes half the time of the general path,
    # which handles all other cases; a test compares the results of both.
    if options:
        return _put_in_space(agent, space, key, value, **options)
    try:
        memory: Any = agent.state._map.get(_KEY)
        old = memory.spaces._map.get(space)
        inner = old.data
        before, depth = inner._map, inner._depth
        plain = key.isascii() and "\0" not in key and old.max_items is None and old.max_item_bytes is None
        plain = plain and old.ttl_ms is None
    except (AttributeError, TypeError):  # no agent, memory, space or map, no text, or no depth yet
        return _put_in_space(agent, space, key, value)
    if (
        not plain
        or type(key) is not str  # a member of an enum is stored as its text
        or type(space) is not str
        or type(agent) is not Agent
        or not (MIN_INT <= value <= MAX_INT if type(value) is int else is_storable_scalar(value))
    ):
        return _put_in_space(agent, space, key, value)
    # A scalar adds no level, so the depth of the data stays. The spaces and the state get no depth: it is
    # computed when one of them is stored inside other data, which is rare.
    data: FrozenMap[str, Any] = allocate(FrozenMap)
    data._map = set_item(before, key, value)
    data._depth = depth
    new_space = shallow_copy(old)
    set_field(new_space, "data", data)
    set_field(new_space, "rev", old.rev + 1)
    spaces: Spaces = allocate(Spaces)
    by_name = memory.spaces._map
    if type(by_name) is dict:  # `set_item`, for a key that is there already
        spaces._map = by_name = by_name.copy()
        by_name[space] = new_space
    else:
        spaces._map = set_item(by_name, space, new_space)
    new_memory = shallow_copy(memory)
    set_field(new_memory, "spaces", spaces)
    set_field(new_memory, "rev", memory.rev + 1)
    set_field(new_memory, "updated_at", system_ns() // 1_000_000 if get_override() is None else clock.now())
    state: FrozenMap[str, Any] = allocate(FrozenMap)
    by_key = agent.state._map
    if type(by_key) is dict:
        state._map = by_key = by_key.copy()
        by_key[_KEY] = new_memory
    else:
        state._map = set_item(by_key, _KEY, new_memory)
    result = shallow_copy(agent)
    set_field(result, "state", state)
    return result


_put_in_space = _agent_function(Memory.put_in_space)


def space(agent: Agent, name: str, *, now: int | None = None) -> Space | None:
    """Return a space, or None if there is no such space or no memory."""
    memory = get(agent)
    return None if memory is None else memory.space(name, now=now)


def spaces(agent: Agent) -> Spaces | None:
    """Return all spaces by name, or None if there is no memory."""
    memory = get(agent)
    return None if memory is None else memory.spaces


def has_space(agent: Agent, name: str) -> bool:
    """Return True if there is a space with this name."""
    memory = get(agent)
    return memory is not None and memory.has_space(name)


def get_in_space(agent: Agent, space: str, key: str, default: Any = None, *, now: int | None = None) -> Any:
    """Return the value for a key of a map space; the default if key, space or memory is missing."""
    memory = get(agent)
    return default if memory is None else memory.get_in_space(space, key, default, now=now)


def world_get(agent: Agent, key: str, default: Any = None) -> Any:
    """Return the value for a key of the world, or the default."""
    return get_in_space(agent, "world", key, default)


def world(agent: Agent) -> ReadOnlyDict:
    """Return the data of the world as a read-only dict, a copy; `Memory.world` returns it without one."""
    memory = get(agent)
    data: ReadOnlyDict = read_only(EMPTY_MAP if memory is None else memory.world())
    return data


def tasks(agent: Agent) -> Tasks:
    """Return all tasks in order of priority."""
    memory = get(agent)
    return EMPTY_LIST if memory is None else memory.tasks()


def tasks_open(agent: Agent) -> list[Task]:
    """Return the open tasks in order."""
    memory = get(agent)
    return [] if memory is None else memory.tasks_open()


def tasks_next(agent: Agent) -> Task | None:
    """Return the first open task, or None."""
    memory = get(agent)
    return None if memory is None else memory.tasks_next()


__all__ = [
    "append_to_space",
    "delete_from_space",
    "delete_space",
    "ensure",
    "ensure_space",
    "get",
    "get_in_space",
    "has_memory",
    "has_space",
    "insert_in_space",
    "key",
    "of",
    "prepend_to_space",
    "put",
    "put_in_space",
    "put_space",
    "remove_from_space",
    "reserved_spaces",
    "space",
    "space_delete",
    "space_put",
    "space_update",
    "spaces",
    "tasks",
    "tasks_add",
    "tasks_complete",
    "tasks_insert",
    "tasks_next",
    "tasks_open",
    "tasks_remove",
    "tasks_reorder",
    "update",
    "update_in_space",
    "update_space",
    "update_space_data",
    "world",
    "world_delete",
    "world_get",
    "world_put",
    "world_update",
]
