"""What do all agents of one kind share?

Name, schema of the state, plugins, actions, routes, strategy and hooks: the code of an agent, apart from its
data. It is checked once, when it is made, and then serves any number of agents.

"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Self, TypedDict

import msgspec

from omoide.core.action import Action
from omoide.core.execution import (
    AGENT_PRIORITY,
    STRATEGY_PRIORITY,
    Direct,
    Route,
    RouteLike,
    Strategy,
    SupportsSignalRoutes,
    as_routes,
)
from omoide.core.frozen import EMPTY_MAP, FrozenMap, check_str, check_text
from omoide.core.plugin import DefaultPluginOverrides, Plugin, PluginLike, as_plugin, select_default_plugins
from omoide.core.schema import Schema
from omoide.core.state import SLOTS
from omoide.core.value import check_count, check_instance
from omoide.errors import InvalidDefinition, InvalidState, NotFound, WrongType

_ABSENT = object()

Migration = Callable[[FrozenMap[str, Any], int], Mapping[str, Any]]
"""Turns the state of a version, which it is told, into the state of the next version."""


class DefinitionFields(TypedDict, total=False):
    """What a definition is made of, besides its name."""

    description: str
    schema: type | None
    plugins: Sequence[PluginLike]
    default_plugins: DefaultPluginOverrides
    actions: Sequence[Action]
    routes: Sequence[RouteLike]
    strategy: Strategy | None
    on_before_cmd: Callable[..., Any] | None
    on_after_cmd: Callable[..., Any] | None
    version: int
    migrate: Migration | None


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """The code of an agent."""

    name: str
    description: str = ""
    schema: Schema | None = None
    plugins: tuple[Plugin, ...] = ()
    actions: tuple[Action, ...] = ()
    routes: tuple[Route, ...] = ()
    strategy: Strategy = msgspec.field(default_factory=Direct)
    on_before_cmd: Callable[..., Any] | None = None
    on_after_cmd: Callable[..., Any] | None = None
    version: int = 1
    """Which form of the state this is; count it up when agents that were put aside need to be migrated."""
    migrate: Migration | None = None

    @classmethod
    def new(
        cls,
        name: str,
        *,
        description: str = "",
        schema: type | None = None,
        plugins: Sequence[PluginLike] = (),
        default_plugins: DefaultPluginOverrides = None,
        actions: Sequence[Action] = (),
        routes: Sequence[RouteLike] = (),
        strategy: Strategy | None = None,
        on_before_cmd: Callable[..., Any] | None = None,
        on_after_cmd: Callable[..., Any] | None = None,
        version: int = 1,
        migrate: Migration | None = None,
    ) -> Self:
        """A definition with every part checked against the others; default plugins come before yours."""
        owner = f"agent {check_text(name, 'name', 'name the agent')!r}"
        mounted = (
            *select_default_plugins(default_plugins),
            *(as_plugin(like) for like in _check_list(plugins, owner, "plugins")),
        )
        return cls(
            name=name,
            description=description,
            schema=None if schema is None else Schema(schema, owner),
            plugins=mounted,
            actions=tuple(_check_list(actions, owner, "actions")),
            routes=_collect_routes(owner, strategy, routes, mounted),
            strategy=Direct() if strategy is None else strategy,
            on_before_cmd=on_before_cmd,
            on_after_cmd=on_after_cmd,
            version=version,
            migrate=migrate,
        )

    def __post_init__(self) -> None:
        owner = f"agent {check_text(self.name, 'name', 'name the agent')!r}"
        check_str(self.description, f"{owner}: description")
        if self.schema is not None:
            check_instance(self.schema, f"{owner}: schema", kind=Schema)
        for field, kind in (("plugins", Plugin), ("actions", Action), ("routes", Route)):
            for part in check_instance(getattr(self, field), f"{owner}: {field}", kind=tuple):
                if not isinstance(part, kind):
                    raise WrongType(f"{owner}: {field}", f"{kind.__name__}s only", part)
        if isinstance(self.strategy, type) or not isinstance(self.strategy, Strategy):
            raise WrongType(
                f"{owner}: strategy", "a Strategy", self.strategy, "give it init, cmd, tick, snapshot"
            )
        if check_count(self.version, f"{owner}: version") < 1:
            raise InvalidDefinition(f"{owner}: version", "is 0", "count from 1")
        for field in ("on_before_cmd", "on_after_cmd", "migrate"):
            if getattr(self, field) is not None and not callable(getattr(self, field)):
                raise WrongType(f"{owner}: {field}", "a function", getattr(self, field))
        _check_plugins(self.plugins, self.schema, owner)
        self._check_action_names(owner)
        for route in self.routes:
            if route.action is not None and route.action not in self.action_names():
                raise InvalidDefinition(
                    f"{owner}: route {route.pattern!r}",
                    f"leads to {route.action!r}, which it does not have",
                    "pass the action itself, or give it to the agent",
                )

    def __repr__(self) -> str:
        return f"Definition({self.name!r})"

    def action_names(self) -> tuple[str, ...]:
        """The names of the actions that the agent really has: its own and those of its plugins."""
        return tuple(dict.fromkeys(action.name for action in self._all_actions()))

    def action(self, name: str) -> Action:
        """The action of this name."""
        for action in self._all_actions():
            if action.name == name:
                return action
        known = ", ".join(self.action_names()) or "no actions at all"
        raise NotFound("action", name, f"this agent has {known}; pass the action itself, or mount its plugin")

    def plugin_capabilities(self) -> tuple[str, ...]:
        """What the mounted plugins say they bring, which is not what the identity says the agent can do."""
        return tuple(dict.fromkeys(tag for plugin in self.plugins for tag in plugin.capabilities))

    def check_state(self, state: FrozenMap[str, Any], before: FrozenMap[str, Any] | None = None) -> None:
        """Raise unless the state fits the schema, and each slice its plugin's, where `before` was another."""
        known = EMPTY_MAP if before is None else before
        for plugin in self.plugins:
            if plugin.key in state and state[plugin.key] is not known.get(plugin.key, _ABSENT):
                plugin.check_slice(state[plugin.key])
        if self.schema is not None:
            own, old = self.own_state(state), self.own_state(known)
            if before is None or own.keys() != old.keys() or any(own[key] is not old[key] for key in own):
                self.schema.check(own, _state_error)

    def own_state(self, state: FrozenMap[str, Any]) -> dict[str, Any]:
        """The state without slots and slices."""
        owned = {*SLOTS, *(plugin.key for plugin in self.plugins)}
        return {key: value for key, value in state.items() if key not in owned}

    def _all_actions(self) -> list[Action]:
        return [*self.actions, *(action for plugin in self.plugins for action in plugin.offered_actions)]

    def _check_action_names(self, owner: str) -> None:
        """Two actions must not answer to one name, or which of them ran would depend on their order."""
        named: dict[str, Action] = {}
        for action in self._all_actions():
            if named.setdefault(action.name, action) is not action:
                raise InvalidDefinition(
                    f"{owner}: action {action.name!r}", "is offered twice", "rename one of them"
                )


def _check_list(given: object, owner: str, field: str) -> Sequence[Any]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
        raise WrongType(f"{owner}: {field}", "a list", given)
    return given


def _state_error(field: str, problem: str, remedy: str) -> InvalidState:
    return InvalidState(f"state.{field}", problem, remedy)


def _collect_routes(
    owner: str, strategy: Strategy | None, routes: Sequence[RouteLike], plugins: Sequence[Plugin]
) -> tuple[Route, ...]:
    asked: object = strategy
    wanted = asked.signal_routes() if isinstance(asked, SupportsSignalRoutes) else ()
    return (
        *as_routes(wanted, f"the strategy of {owner}", STRATEGY_PRIORITY),
        *as_routes(routes, owner, AGENT_PRIORITY),
        *(route for plugin in plugins for route in plugin.routes),
    )


def _check_plugins(plugins: Sequence[Plugin], schema: Schema | None, owner: str) -> None:
    labels: set[str] = set()
    keys: dict[str, str] = {}
    for plugin in plugins:
        at = f"{owner}: plugin {plugin.label!r}"
        if plugin.label in labels:
            remedy = "mount it once" if plugin.singleton else "mount it once, or give one of them an alias"
            raise InvalidDefinition(at, "is a duplicate", remedy)
        if plugin.key in keys:
            raise InvalidDefinition(
                at, f"shares the state key {plugin.key!r} with {keys[plugin.key]!r}", "rename one"
            )
        if schema is not None and plugin.key in schema.fields:
            raise InvalidDefinition(
                at, f"owns {plugin.key!r}, a key of the agent's schema", "rename one of them"
            )
        labels.add(plugin.label)
        keys[plugin.key] = plugin.label
    for plugin in plugins:
        for requirement in plugin.requires:
            _check_requirement(plugin, requirement, {other.name for other in plugins}, owner)


def _check_requirement(plugin: Plugin, requirement: str, mounted: set[str], owner: str) -> None:
    kind, _, name = requirement.partition(":")
    at = f"{owner}: plugin {plugin.label!r}"
    if kind == "config" and name:
        met, remedy = name in plugin.config, f"pass {name!r} in its configuration"
    elif kind == "plugin" and name:
        met, remedy = name in mounted, f"mount the plugin {name!r} too"
    elif kind == "package" and name:
        met, remedy = _is_installed(name), f"install the package {name!r}"
    else:
        raise InvalidDefinition(at, f"requires {requirement!r}", "write config:…, plugin:… or package:…")
    if not met:
        raise InvalidDefinition(at, f"requires {requirement}, which is missing", remedy)


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # a parent package is missing
        return False
