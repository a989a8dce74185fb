"""Where in an agent's state does a value of the framework live?

One mechanism serves every reserved key: get, put, update, ensure, has.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from omoide.core.frozen import EMPTY_MAP, FrozenMap, bare_map
from omoide.core.identity import Identity
from omoide.core.memory import Memory
from omoide.core.parent import Parent
from omoide.core.strategy_state import StrategyState
from omoide.core.thread import Thread
from omoide.core.value import Value, check_function, copied, force
from omoide.errors import WrongType

if TYPE_CHECKING:
    from omoide.core.agent import Agent

T = TypeVar("T")
D = TypeVar("D")
F = TypeVar("F", bound=Callable[..., Any])


class Stateful(Value, frozen=True, kw_only=True):
    """What slots are in: a value with a state."""

    state: FrozenMap[str, Any] = EMPTY_MAP


class Slot(Generic[T]):
    """A reserved key of the state and the type of value it holds."""

    def __init__(self, key: str, kind: type[T], make: Callable[..., T]) -> None:
        self.key = key
        self.kind = kind
        self._make = make

    @overload
    def get(self, agent: Agent) -> T | None: ...
    @overload
    def get(self, agent: Agent, default: D) -> T | D | None: ...
    def get(self, agent: Agent, default: Any = None) -> Any:
        """The value, or the default where the key is absent."""
        return _state(agent)._map.get(self.key, default)

    def put(self, agent: Agent, value: T) -> Agent:
        """The agent with another value in the slot; nothing else of its state changes."""
        if not isinstance(value, self.kind):
            raise WrongType(self.key, f"a {self.kind.__name__}", value)
        state = _state(agent)
        new = copied(agent)
        force(new, "state", bare_map(state._map.set(self.key, value)))
        return new

    def update(self, agent: Agent, change: Callable[[T | None], T]) -> Agent:
        """The agent with `change` applied to the value or None; revisions are the caller's."""
        return self.put(agent, check_function(change)(self.get(agent)))

    def ensure(self, agent: Agent, **options: Any) -> Agent:
        """The agent with a value in the slot, made with `options` unless there is one already."""
        return agent if self.get(agent) is not None else self.put(agent, self._make(**options))

    def value(self, agent: Agent) -> T:
        """The value, or the one that `ensure` would make."""
        found: T | None = _state(agent)._map.get(self.key)
        return self._make() if found is None else found

    def has(self, agent: Agent) -> bool:
        """Whether there is a value."""
        return self.get(agent) is not None


def _state(agent: Stateful) -> FrozenMap[str, Any]:
    if not isinstance(agent, Stateful):
        raise WrongType("agent", "an Agent", agent, "pass what Agent.new(…) returned")
    return agent.state


def with_state(agent: Agent, state: FrozenMap[str, Any]) -> Agent:
    """The agent with another state, taken as it is."""
    new = copied(agent)
    force(new, "state", state)
    return new


MEMORY = Slot("__memory__", Memory, Memory.new)
IDENTITY = Slot("__identity__", Identity, Identity.new)
THREAD = Slot("__thread__", Thread, Thread.new)
STRATEGY = Slot("__strategy__", StrategyState, StrategyState)
PARENT = Slot("__parent__", Parent, Parent)

SLOTS: dict[str, Slot[Any]] = {slot.key: slot for slot in (MEMORY, IDENTITY, THREAD, STRATEGY, PARENT)}


_BY_KIND: dict[type, Slot[Any]] = {slot.kind: slot for slot in SLOTS.values()}


def slot_of(value: object) -> Slot[Any] | None:
    """The slot that a value belongs into, by its type."""
    return _BY_KIND.get(type(value))


def described(function: F, method: Callable[..., Any], module: str) -> F:
    """A function on agents made of a method: it takes its words, and says that it lives in `module`."""
    signature = inspect.signature(method)
    agent = inspect.Parameter("agent", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="Agent")
    parameters = [agent, *list(signature.parameters.values())[1:]]
    vars(function)["__signature__"] = signature.replace(parameters=parameters, return_annotation="Agent")
    function.__name__ = function.__qualname__ = method.__name__
    function.__module__, function.__doc__ = module, method.__doc__
    return function
