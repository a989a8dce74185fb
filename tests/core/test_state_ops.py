"""State operations."""

from typing import Any, cast

from hypothesis import assume, given
from hypothesis import strategies as st
from tests.support.strategies import data, integers, maps, names

from omoide import Agent, Memory, action, directives, memory
from omoide.core import FrozenMap
from omoide.core.state import deep_merge
from omoide.directives import DeleteKeys, DeletePath, Directive, ReplaceState, SetPath, SetState, StateOp

paths = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(tuple)
nodes: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.dictionaries(st.sampled_from("abc"), integers, max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner | integers, max_size=3),
    max_leaves=8,
)


def after(
    state: dict[str, Any], *ops: StateOp | Directive, result: Any = None
) -> tuple[Any, list[Directive]]:
    """The state after an action that returns these operations, and its directives."""
    act = action(name="act")(cast("Any", lambda ctx: (result, [*ops])))
    agent, effects = Agent.new("a", state=state).cmd(act)
    return agent.state, effects


def test_set_state_merges_deeply() -> None:
    """Maps are merged, lists are replaced."""
    state, effects = after({"own": {"a": 1, "list": [1]}}, SetState(attrs={"own": {"b": 2, "list": [2]}}))
    assert state == {"own": {"a": 1, "b": 2, "list": [2]}}
    assert effects == []


def test_replace_state_takes_the_place_of_all() -> None:
    """Nothing of the old state is left."""
    assert after({"own": 1, "old": 2}, ReplaceState(state={"new": 3}))[0] == {"new": 3}


def test_delete_keys_removes_top_level_keys() -> None:
    """Keys that are not there are no matter."""
    assert after({"a": 1, "b": {"a": 2}}, DeleteKeys(keys=("a", "nope")))[0] == {"b": {"a": 2}}


def test_set_path_makes_the_maps_on_the_way() -> None:
    """A path of any length, through what exists and what does not."""
    state, _ = after(
        {"a": {"kept": 1}}, SetPath(path=("a", "b", "c"), value=[1]), SetPath(path=("d",), value=2)
    )
    assert state == {"a": {"kept": 1, "b": {"c": [1]}}, "d": 2}


def test_delete_path_removes_one_thing() -> None:
    """What is not there is no matter, on the way or at the end."""
    before = {"a": {"b": {"c": 1, "d": 2}}, "n": 1}
    assert after(before, DeletePath(path=("a", "b", "c")))[0] == {"a": {"b": {"d": 2}}, "n": 1}
    for path in (("a", "x", "c"), ("x",), ("n", "deep")):
        assert after(before, DeletePath(path=path))[0] == before


@given(state=nodes, path=paths, value=data)
def test_what_is_set_is_found_and_what_is_deleted_is_gone(
    state: Any, path: tuple[str, ...], value: Any
) -> None:
    """Setting then deleting a path leaves no value there; nothing beside it changes."""
    frozen = FrozenMap(state)
    assume(all(isinstance(node, FrozenMap) for node in walk(frozen, path[:-1])))
    written = SetPath(path=path, value=value).apply(frozen)
    assert walk(written, path)[-1] == value
    erased = DeletePath(path=path).apply(written)
    assert path[-1] not in walk(erased, path[:-1])[-1]
    for key in set(state) - {path[0]}:
        assert erased[key] == state[key]


def walk(node: Any, path: tuple[str, ...]) -> list[Any]:
    """The nodes along a path, as far as it exists; a missing one counts as an empty map."""
    found = [node]
    for key in path:
        node = node.get(key, FrozenMap()) if isinstance(node, FrozenMap) else None
        found.append(node)
    return found


def test_operations_are_applied_in_order_after_the_result() -> None:
    """Each sees what those before it left; directives between them go on."""
    stop = directives.Stop()
    state, effects = after(
        {"own": 1},
        SetPath(path=("log", "first"), value=1),
        stop,
        DeleteKeys(keys=("own",)),
        SetState(attrs={"log": {"second": 2}}),
        result={"own": 2, "log": {"result": 0}},
    )
    assert state == {"log": {"result": 0, "first": 1, "second": 2}}
    assert effects == [stop]


def test_operations_never_leave_cmd() -> None:
    """Only directives are handed over."""
    assert after({}, SetState(attrs={"a": 1}))[1] == []


def test_an_operation_may_put_a_slot_value() -> None:
    """A memory under its key is a memory of the agent."""
    mine = Memory.new().world_put("a", 1)
    put = action(name="put")(cast("Any", lambda ctx: (None, [SetState(attrs={"__memory__": mine})])))
    assert memory.get(Agent.new("a").cmd(put)[0]) == mine


def test_a_path_through_what_is_no_map_fails_and_changes_nothing() -> None:
    """The error names the key, and operations before it are undone with it."""
    state, (error,) = after({"n": 1}, SetState(attrs={"a": 1}), SetPath(path=("n", "deep"), value=1))
    assert isinstance(error, directives.Error)
    assert (error.context, error.field, error.action) == ("result", "state.n", "act")
    assert state == {"n": 1}


def test_replacing_the_state_cannot_break_a_slot() -> None:
    """Reserved keys hold their own kind of value or nothing."""
    state, (error,) = after({"own": 1}, ReplaceState(state={"__memory__": {"world": {}}}))
    assert isinstance(error, directives.Error)
    assert error.field == "state.__memory__"
    assert state == {"own": 1}


@given(base=maps, changes=maps)
def test_a_merge_keeps_what_was_not_changed(base: dict[str, Any], changes: dict[str, Any]) -> None:
    """Every changed key is there, every other key is as it was, and merging twice is merging once."""
    frozen = FrozenMap(base)
    merged = deep_merge(frozen, changes)
    assert set(merged) == {*base, *changes}
    for key in base:
        if key not in changes:
            assert merged[key] == frozen[key]
    assert deep_merge(merged, changes) == merged
    assert frozen == base


@given(key=names, value=data)
def test_setting_a_key_is_setting_a_path_of_one(key: str, value: Any) -> None:
    """Two ways to say the same where there is nothing to merge with."""
    empty: FrozenMap[str, Any] = FrozenMap()
    assert SetState(attrs={key: value}).apply(empty) == SetPath(path=(key,), value=value).apply(empty)
