"""The state of an agent: slots, the context of an action, and state operations.

A slot is a reserved key of the state for a value of the framework: memory, identity, thread, strategy,
parent.

A mapping that an action returns is merged deeply: maps into maps; everything else, lists and value types too,
replaces what was there. State operations express what a merge cannot; `cmd` applies them and never returns
them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, overload

from omoide.core.codec import Frozen, MapField, TextsField
from omoide.core.frozen import EMPTY_MAP, FrozenMap, check_text, freeze_map, map_of, value_type, wrap_map_lazy
from omoide.core.identity import Identity
from omoide.core.maps import set_item
from omoide.core.memory import Memory
from omoide.core.signal import Signal
from omoide.core.thread import Thread
from omoide.core.value import (
    CHANGED_MEANWHILE,
    Id,
    Value,
    check_function,
    merge_changes,
    set_field,
    shallow_copy,
)
from omoide.errors import Conflict, Invalid, InvalidState, NotFound, WrongType

if TYPE_CHECKING:
    from omoide.core.agent import Agent


@value_type
class Parent(Value, frozen=True, kw_only=True):
    """The agent that spawned another, and the tag of the child; set once."""

    id: Id
    tag: Id | None = None
    metadata: MapField = EMPTY_MAP


STATUSES = ("idle", "running", "waiting", "success", "failure")


@value_type
class StrategyState(Value, frozen=True, kw_only=True):
    """The state that a strategy keeps between two commands."""

    status: str = "idle"
    data: MapField = EMPTY_MAP

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.status not in STATUSES:
            raise Invalid("status", f"is {self.status!r}", f"use one of {', '.join(STATUSES)}")

    @property
    def done(self) -> bool:
        """True if there is nothing left to do."""
        return self.status in ("success", "failure")


T = TypeVar("T")
D = TypeVar("D")
F = TypeVar("F", bound=Callable[..., Any])


class Stateful(Value, frozen=True, kw_only=True):
    """A value with a state: the base class of agents."""

    IS_WATCHED: ClassVar[bool] = False
    """True for an agent that records the agents made from it."""

    state: FrozenMap[str, Any] = EMPTY_MAP

    def record_change(self) -> None:
        """Record an agent made from a watched one."""


class Slot(Generic[T]):
    """A reserved key of the state, and the type of its value."""

    def __init__(
        self,
        key: str,
        kind: type[T],
        factory: Callable[..., T],
        check: Callable[[Agent, T], None] | None = None,
    ) -> None:
        self.key = key
        self.kind = kind
        self._factory = factory
        self._check = check

    @overload
    def get(self, agent: Agent) -> T | None: ...
    @overload
    def get(self, agent: Agent, default: D) -> T | D | None: ...
    def get(self, agent: Agent, default: Any = None) -> Any:
        """Return the value, or the default if the key is absent."""
        return _state_of(agent)._map.get(self.key, default)  # `_map`: slots are read in every command

    def put(self, agent: Agent, value: T) -> Agent:
        """Return the agent with another value in the slot; nothing else of its state changes."""
        if not isinstance(value, self.kind):
            raise WrongType(self.key, f"a {self.kind.__name__}", value)
        state = _state_of(agent)
        if self._check is not None:
            self._check(agent, value)
        return with_state(agent, wrap_map_lazy(set_item(state._map, self.key, value)))

    def update(self, agent: Agent, change: Callable[[T | None], T]) -> Agent:
        """Return the agent with `change` applied to the value or None; revisions are left to the caller.

        Raises:
            NotFound: if the slot is empty and `change` cannot take None.
        """
        value = self.get(agent)
        if value is not None:
            return self.put(agent, check_function(change)(value))
        remedy = "call ensure first, or let the function make one from None"
        check_function(change)
        try:
            new = change(None)
        except (AttributeError, TypeError) as error:
            if "NoneType" not in str(error):
                raise
            raise NotFound(f"{self.kind.__name__.lower()} of agent", agent.id, remedy) from error
        if new is None:
            raise WrongType(self.key, f"a {self.kind.__name__}", new, remedy)
        return self.put(agent, new)

    def ensure(self, agent: Agent, **options: Any) -> Agent:
        """Return the agent with a value in the slot, created with `options` if there is none."""
        return agent if self.get(agent) is not None else self.put(agent, self._factory(**options))

    def get_or_new(self, agent: Agent) -> T:
        """Return the value, or the one that `ensure` would create."""
        value: T | None = _state_of(agent)._map.get(self.key)
        return self._factory() if value is None else value

    def has(self, agent: Agent) -> bool:
        """Return True if there is a value."""
        return self.get(agent) is not None

    def merge(self, base: T | None, own: Any, other: Any) -> Any:
        """Return what becomes of a value that was changed here and, at the same time, elsewhere.

        Raises:
            Conflict: if both changed the same part of it.
        """
        if other is base:
            return own
        if own is base or not isinstance(other, self.kind):  # of another kind: refused with the whole state
            return other
        if isinstance(own, self.kind) and hasattr(own, "merge"):
            try:
                return own.merge(base, other)
            except Conflict as error:
                thing = f"{error.thing} of {self.key}"
                raise Conflict(thing, error.expected, error.actual, CHANGED_MEANWHILE) from None
        rev = getattr(base, "rev", 0)
        return merge_changes(base, own, other, lambda: Conflict(self.key, rev, rev, CHANGED_MEANWHILE))


def _state_of(agent: Stateful) -> FrozenMap[str, Any]:
    if not isinstance(agent, Stateful):
        raise WrongType("agent", "an Agent", agent, "pass what Agent.new(…) returned")
    return agent.state


def with_state(agent: Agent, state: FrozenMap[str, Any]) -> Agent:
    """Return the agent with another state, unchecked."""
    new = shallow_copy(agent)
    set_field(new, "state", state)
    if new.IS_WATCHED:
        new.record_change()
    return new


def _check_extensions(agent: Agent, identity: Identity) -> None:
    agent.definition.check_extensions(identity, IDENTITY.get(agent))


MEMORY = Slot("__memory__", Memory, Memory.new)
IDENTITY = Slot("__identity__", Identity, Identity.new, _check_extensions)
THREAD = Slot("__thread__", Thread, Thread.new)
STRATEGY = Slot("__strategy__", StrategyState, StrategyState)
PARENT = Slot("__parent__", Parent, Parent)

SLOTS: dict[str, Slot[Any]] = {slot.key: slot for slot in (MEMORY, IDENTITY, THREAD, STRATEGY, PARENT)}


_SLOTS_BY_TYPE: dict[type, Slot[Any]] = {slot.kind: slot for slot in SLOTS.values()}


def slot_of(value: object) -> Slot[Any] | None:
    """Return the slot of a value, by its type, or None."""
    return _SLOTS_BY_TYPE.get(type(value))


def copy_method_metadata(function: F, method: Callable[..., Any], module: str) -> F:
    """Give a function on agents the signature and docstring of the method that it wraps.

    Args:
        function: the function, which takes an agent in place of `self` and returns one.
        method: the method of a slot value.
        module: the module that the function belongs to.
    """
    signature = inspect.signature(method)
    agent = inspect.Parameter("agent", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="Agent")
    parameters = [agent, *list(signature.parameters.values())[1:]]
    vars(function)["__signature__"] = signature.replace(parameters=parameters, return_annotation="Agent")
    function.__name__ = function.__qualname__ = method.__name__
    function.__module__ = module  # pickle looks the function up there
    # "Return the memory with …" is true of the method; the function returns the agent with it.
    function.__doc__ = re.sub(r"^Return the (memory|identity)", "Return the agent", method.__doc__ or "")
    return function


class Context:
    """The context of an action: the agent before it, the signal that led to it, and a plugin's config.

    `memory`, `identity` and `thread` are always set: if the agent has none, they are the ones it would get.
    """

    def __init__(
        self, agent: Agent, signal: Signal | None = None, config: FrozenMap[str, Any] = EMPTY_MAP
    ) -> None:
        self.agent = agent
        self.signal = signal
        self.config = config

    @property
    def state(self) -> FrozenMap[str, Any]:
        """The agent's state."""
        return self.agent.state

    @cached_property
    def memory(self) -> Memory:
        """The agent's memory."""
        return MEMORY.get_or_new(self.agent)

    @cached_property
    def identity(self) -> Identity:
        """The agent's identity."""
        return IDENTITY.get_or_new(self.agent)

    @cached_property
    def thread(self) -> Thread:
        """The agent's thread."""
        return THREAD.get_or_new(self.agent)


State = FrozenMap[str, Any]


class StateOp(Value, frozen=True, kw_only=True):
    """Base class of the state operations."""

    def apply(self, state: State) -> State:
        """Return the state after the operation."""
        raise NotImplementedError


class SetState(StateOp, frozen=True, kw_only=True):
    """Merge attributes deeply."""

    attrs: MapField

    def apply(self, state: State) -> State:
        """Return the state with the attributes merged."""
        return merge_state(state, self.attrs)


class ReplaceState(StateOp, frozen=True, kw_only=True):
    """Replace the whole state; slots that the new one does not name stay."""

    state: MapField

    def apply(self, state: State) -> State:
        """Return the new state."""
        # An action that replaces its data must not lose memory, identity or thread by omission.
        slots = {key: state[key] for key in SLOTS if key in state}
        new_state: State = map_of(slots).update(self.state)
        return new_state


class DeleteKeys(StateOp, frozen=True, kw_only=True):
    """Remove top-level keys."""

    keys: TextsField

    def apply(self, state: State) -> State:
        """Return the state without the keys."""
        for key in self.keys:
            state = state.delete(key)
        return state


class SetPath(StateOp, frozen=True, kw_only=True):
    """Set a value at a path, creating the maps on the way."""

    path: TextsField
    value: Frozen

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_path(self.path)

    def apply(self, state: State) -> State:
        """Return the state with the value at the path."""
        return _set_path(state, self.path, self.value)


class DeletePath(StateOp, frozen=True, kw_only=True):
    """Remove the value at a path, if there is one."""

    path: TextsField

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_path(self.path)

    def apply(self, state: State) -> State:
        """Return the state without the value."""
        return _delete_path(state, self.path)


def deep_merge(base: State, changes: Mapping[str, Any]) -> State:
    """Return `base` with `changes` merged into it: maps are merged, everything else is replaced."""
    merged = base
    for key, value in freeze_map(changes, "changes").items():
        old = merged.get(key)
        if type(old) is FrozenMap and type(value) is FrozenMap:
            value = deep_merge(old, value)
        merged = merged.set(key, value)
    return merged


def merge_result(state: State, result: object) -> State:
    """Return the state with the result of an action: a mapping is merged, a slot value replaces its slot."""
    if result is None:
        return state
    slot = slot_of(result)
    if slot is not None:
        return wrap_map_lazy(set_item(state._map, slot.key, result))
    if not isinstance(result, Mapping):
        raise WrongType(
            "result",
            "a mapping, a Memory, an Identity, a Thread, an Agent or None",
            result,
            "return one, alone or with a list of directives",
        )
    changes = freeze_map(result, "result")
    for key in changes:
        check_text(key, "state key")
    return merge_state(state, changes)


def merge_state(state: State, changes: FrozenMap[str, Any]) -> State:
    """Return the state with changes merged; only the values of its keys have a depth limit."""
    for key, value in changes.items():
        old = state.get(key)
        if type(old) is FrozenMap and type(value) is FrozenMap:
            value = deep_merge(old, value)
        # Not `state.set`: it would compute the depth of the whole state on every merge.
        state = wrap_map_lazy(set_item(state._map, key, value))
    return state


def check_state(state: State) -> State:
    """Return the state, or raise `InvalidState` if a slot holds a value of another type."""
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
