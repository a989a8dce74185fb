"""Map names in directives to code: kinds of agents, sensors, processes, dispatchers and executors.

Directives are data, so they name what they want: a kind of agent, a sensor, a process, a target of a signal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from omoide.core.action import Directive
from omoide.core.definition import Definition
from omoide.core.frozen import EMPTY_MAP, check_text
from omoide.core.value import check_function
from omoide.errors import IdTaken, Invalid, NotFound, WrongType
from omoide.runtime.executors import BUILT_IN_EXECUTORS, DISPATCH_TARGETS, Executor

NamedFunctions = Mapping[str, Callable[..., Any]]
T = TypeVar("T")


class Registry:
    """The kinds, sensors, processes, dispatchers and executors of a runtime."""

    def __init__(
        self,
        *,
        kinds: Iterable[Definition] = (),
        sensors: NamedFunctions = EMPTY_MAP,
        processes: NamedFunctions = EMPTY_MAP,
        dispatchers: NamedFunctions = EMPTY_MAP,
        executors: Mapping[type[Directive], Executor] = EMPTY_MAP,
    ) -> None:
        self.kinds: dict[str, Definition] = {}
        for kind in kinds:
            self.add_kind(kind)
        self.sensors = _check_functions(sensors, "sensors")
        self.processes = _check_functions(processes, "processes")
        self.dispatchers = _check_functions(dispatchers, "dispatchers")
        for name in self.dispatchers:
            if name in DISPATCH_TARGETS:
                raise Invalid(f"dispatchers.{name}", "is a built-in target", "choose another name")
        for name, process in self.processes.items():
            if not iscoroutinefunction(process):
                raise WrongType(f"processes.{name}", "an async function of its config", process)
        for name, sensor in self.sensors.items():
            if iscoroutinefunction(sensor):
                raise WrongType(f"sensors.{name}", "an async generator of its config", sensor, "let it yield")
        self._executors: dict[type[Directive], Executor | None] = {**BUILT_IN_EXECUTORS}
        for directive, executor in executors.items():
            self.add_executor(directive, executor)

    def add_kind(self, kind: Definition) -> None:
        """Register a kind of agent under its name; another definition of the same name is `IdTaken`."""
        if not isinstance(kind, Definition):
            raise WrongType("kinds", "Definitions", kind, "pass agent.definition or Definition.new(…)")
        if self.kinds.get(kind.name, kind) != kind:
            raise IdTaken(kind.name)
        self.kinds[kind.name] = kind

    def add_executor(self, directive: type[Directive], executor: Executor) -> None:
        """Register an executor of a directive class; it replaces a built-in one."""
        if not isinstance(directive, type) or not issubclass(directive, Directive):
            raise WrongType("executors", "classes of directives as keys", directive, "subclass Directive")
        # Forget the classes that had no executor: they may be subclasses of this one.
        self._executors = {
            cls: function
            for cls, function in self._executors.items()
            if cls in BUILT_IN_EXECUTORS or function is not None
        }
        self._executors[directive] = check_function(executor, f"executor of {directive.__name__}")

    def executor(self, directive: Directive) -> Executor | None:
        """Return the executor of a directive's class or of its nearest base class, or None."""
        cls = type(directive)
        if cls not in self._executors:
            executors = (self._executors.get(base) for base in cls.__mro__)
            self._executors[cls] = next((executor for executor in executors if executor is not None), None)
        return self._executors[cls]

    def kind(self, name: str) -> Definition:
        """Return a kind of agent; raise `NotFound` if there is none."""
        return _lookup(self.kinds, "kind of agent", name)

    def sensor(self, name: str) -> Callable[..., Any]:
        """Return a sensor; raise `NotFound` if there is none."""
        return _lookup(self.sensors, "sensor", name)

    def process(self, name: str) -> Callable[..., Any]:
        """Return a process; raise `NotFound` if there is none."""
        return _lookup(self.processes, "process", name)


def _lookup(registered: Mapping[str, T], what: str, name: str) -> T:
    if name not in registered:
        names = ", ".join(sorted(registered)) or "none"
        raise NotFound(what, name, f"the runtime knows: {names}")
    return registered[name]


def _check_functions(functions: NamedFunctions, field: str) -> dict[str, Callable[..., Any]]:
    if not isinstance(functions, Mapping):
        raise WrongType(field, "functions by their names", functions)
    return {
        check_text(name, field): check_function(function, f"{field}.{name}")
        for name, function in functions.items()
    }
