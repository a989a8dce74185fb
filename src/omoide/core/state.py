"""How does what an action returns become the new state?

A mapping is merged deeply: maps into maps, everything else (lists, values of our own) replaces what was
there. State operations say the rarer things; they are applied by `cmd` and never leave it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omoide.core.codec import Frozen, MapField, TextsField
from omoide.core.frozen import EMPTY_MAP, FrozenMap, bare_map, freeze_map, map_of
from omoide.core.slot import SLOTS, slot_of
from omoide.core.texts import check_text
from omoide.core.value import Value
from omoide.errors import Invalid, InvalidState, WrongType

State = FrozenMap[str, Any]


class StateOp(Value, frozen=True, kw_only=True):
    """The base of the state operations."""

    def apply(self, state: State) -> State:
        """The state after the operation."""
        raise NotImplementedError


class SetState(StateOp, frozen=True, kw_only=True):
    """Merge attributes deeply."""

    attrs: MapField

    def apply(self, state: State) -> State:
        """The state with the attributes merged into it."""
        return merged_state(state, self.attrs)


class ReplaceState(StateOp, frozen=True, kw_only=True):
    """Put another state in place of the whole; slots that it does not speak of stay."""

    state: MapField

    def apply(self, state: State) -> State:
        """The other state."""
        slots = {key: state[key] for key in SLOTS if key in state}
        whole: State = map_of(slots).update(self.state)
        return whole


class DeleteKeys(StateOp, frozen=True, kw_only=True):
    """Remove top-level keys."""

    keys: TextsField

    def apply(self, state: State) -> State:
        """The state without the keys."""
        for key in self.keys:
            state = state.delete(key)
        return state


class SetPath(StateOp, frozen=True, kw_only=True):
    """Set a value at a path, making the maps on the way."""

    path: TextsField
    value: Frozen

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_path(self.path)

    def apply(self, state: State) -> State:
        """The state with the value at the path."""
        return _set_path(state, self.path, self.value)


class DeletePath(StateOp, frozen=True, kw_only=True):
    """Remove what lies at a path, if anything does."""

    path: TextsField

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_path(self.path)

    def apply(self, state: State) -> State:
        """The state without what lay there."""
        return _delete_path(state, self.path)


def deep_merge(base: State, changes: Mapping[str, Any]) -> State:
    """`base` with `changes` merged into it: only maps are merged, all else replaces."""
    merged = base
    for key, value in freeze_map(changes, "changes").items():
        old = merged.get(key)
        if type(old) is FrozenMap and type(value) is FrozenMap:
            value = deep_merge(old, value)
        merged = merged.set(key, value)
    return merged


def merged(state: State, result: object) -> State:
    """The state with what an action returned: a mapping is merged deeply, a slot value replaces its slot."""
    if result is None:
        return state
    slot = slot_of(result)
    if slot is not None:
        return bare_map(state._map.set(slot.key, result))
    if not isinstance(result, Mapping):
        raise WrongType(
            "result",
            "a mapping, a Memory, an Identity, a Thread or None",
            result,
            "return one, alone or with a list of directives",
        )
    changes = freeze_map(result, "result")
    for key in changes:
        check_text(key, "state key")
    return merged_state(state, changes)


def merged_state(state: State, changes: FrozenMap[str, Any]) -> State:
    """The state with changes merged into it; only what lies inside of its keys has a depth to mind."""
    for key, value in changes.items():
        old = state.get(key)
        if type(old) is FrozenMap and type(value) is FrozenMap:
            value = deep_merge(old, value)
        state = bare_map(state._map.set(key, value))
    return state


def check_state(state: State) -> State:
    """The state itself, if its slots hold what belongs there."""
    for key, slot in SLOTS.items():
        value = state.get(key)
        if value is not None and not isinstance(value, slot.kind):
            raise InvalidState(
                f"state.{key}",
                f"must hold a {slot.kind.__name__}, not {type(value).__name__}",
                f"return the {slot.kind.__name__} itself, as ctx offers it",
            )
    return state


def _check_path(path: tuple[str, ...]) -> None:
    if not path:
        raise Invalid("path", "is empty", "name at least one key, or use ReplaceState")


def _set_path(node: State, path: tuple[str, ...], value: Any) -> State:
    key, rest = path[0], path[1:]
    if not rest:
        return node.set(key, value)
    inner = node.get(key, EMPTY_MAP)
    if type(inner) is not FrozenMap:
        raise InvalidState(
            f"state.{key}", f"holds {type(inner).__name__}, not a map", "set the whole key instead"
        )
    return node.set(key, _set_path(inner, rest, value))


def _delete_path(node: State, path: tuple[str, ...]) -> State:
    key, rest = path[0], path[1:]
    if not rest:
        return node.delete(key)
    inner = node.get(key)
    return node.set(key, _delete_path(inner, rest)) if type(inner) is FrozenMap else node
