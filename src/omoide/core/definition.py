"""Plugins, and the definition that all agents of a kind share.

A definition is the code of an agent: schema of the state, plugins, actions, routes, strategy and hooks. It is
validated once, when it is made, and serves any number of agents.

A plugin owns one key of the state, its slice. It may offer actions, route and watch signals, and write the
agent's memory, identity and thread when it is mounted. Plugins are pure: effects are directives that their
actions return.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypedDict

import msgspec

from omoide.core import signal as pattern
from omoide.core.action import Action
from omoide.core.codec import Frozen
from omoide.core.execution import (
    AGENT_PRIORITY,
    PLUGIN_PRIORITY,
    STRATEGY_PRIORITY,
    Direct,
    Route,
    RouteLike,
    Strategy,
    SupportsSignalRoutes,
    as_routes,
)
from omoide.core.frozen import EMPTY_MAP, FrozenMap, check_str, check_text, freeze_map
from omoide.core.schema import Schema
from omoide.core.signal import Signal
from omoide.core.state import IDENTITY, MEMORY, SLOTS, THREAD, Context
from omoide.core.thread import Thread
from omoide.core.value import Name, Value, check_count, check_instance, check_texts
from omoide.errors import InvalidDefinition, InvalidState, NotFound, WrongType

if TYPE_CHECKING:
    from omoide.core.agent import Agent


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class Externalize(Value, frozen=True, kw_only=True):
    """Keep a slice out of the checkpoint and leave a pointer to it there."""

    key: Name
    pointer: Frozen


CheckpointDecision = Literal["keep", "drop"] | Externalize


class Plugin:
    """Subclass it, name it, and override what is needed; `config` is frozen."""

    name: ClassVar[str] = ""
    state_key: ClassVar[str] = ""
    actions: ClassVar[Sequence[Action]] = ()
    description: ClassVar[str] = ""
    category: ClassVar[str] = ""
    vsn: ClassVar[str] = ""
    schema: ClassVar[type | None] = None
    config_schema: ClassVar[type | None] = None
    signal_patterns: ClassVar[Sequence[str]] = ()
    tags: ClassVar[Sequence[str]] = ()
    capabilities: ClassVar[Sequence[str]] = ()
    requires: ClassVar[Sequence[str]] = ()
    subscriptions: ClassVar[Sequence[Any]] = ()
    schedules: ClassVar[Sequence[Any]] = ()
    singleton: ClassVar[bool] = False

    def __init__(self, config: Mapping[str, Any] = EMPTY_MAP, *, alias: str | None = None) -> None:
        owner = f"plugin {self.name or type(self).__name__!r}"
        for field in ("name", "state_key", "description", "category", "vsn"):
            check_str(getattr(self, field), f"{owner}: {field}")
        for field in ("signal_patterns", "tags", "capabilities", "requires"):
            check_texts(getattr(self, field), f"{owner}: {field}")
        check_instance(self.singleton, f"{owner}: singleton", kind=bool)
        if not _NAME.match(self.name):
            raise InvalidDefinition(
                f"{owner}: name", f"is {self.name!r}", "use letters, digits and underscores"
            )
        if self.state_key:
            check_text(self.state_key, f"{owner}: state_key")
        if alias is not None and self.singleton:
            raise InvalidDefinition(
                owner, "is a singleton: Cannot alias singleton plugin", "mount it once, without alias"
            )
        if alias is not None and not _NAME.match(check_text(alias, f"{owner}: alias")):
            raise InvalidDefinition(f"{owner}: alias", f"is {alias!r}", "use letters, digits and underscores")
        self.alias = alias
        self.slice_schema = None if self.schema is None else Schema(self.schema, owner)
        self.config: FrozenMap[str, Any] = self._validate_config(config, owner)
        if not isinstance(self.actions, Sequence):
            raise WrongType(f"{owner}: actions", "a list of Actions", self.actions)
        self.offered_actions = tuple(self.actions)
        for offered in self.offered_actions:
            if not isinstance(offered, Action):
                raise WrongType(f"{owner}: actions", "Actions only", offered, "decorate it with @action")
        for wanted in self.signal_patterns:
            pattern.check_pattern(wanted, f"{owner}: signal_patterns")
        self.routes = as_routes(self._build_routes(owner), owner, PLUGIN_PRIORITY)

    def _build_routes(self, owner: str) -> Sequence[RouteLike]:
        try:
            return self.router(self.config)
        except Exception as error:
            raise InvalidDefinition(
                f"{owner}: router", f"failed ({type(error).__name__}: {error})", "mend it"
            ) from error

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and (other.config, other.alias) == (self.config, self.alias)

    def __hash__(self) -> int:
        return hash((type(self), self.config, self.alias))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.label!r})"

    @property
    def key(self) -> str:
        """The key of the state that this plugin owns."""
        key = self.state_key or self.name
        return key if self.alias is None else f"{key}_{self.alias}"

    @property
    def label(self) -> str:
        """The name it is known by among the plugins of an agent."""
        return self.name if self.alias is None else f"{self.name}:{self.alias}"

    def accepts_signal(self, signal: Signal) -> bool:
        """Whether `handle_signal` is asked about a signal: always, or where one of the patterns matches."""
        return not self.signal_patterns or any(
            pattern.matches_pattern(p, signal.type) for p in self.signal_patterns
        )

    def check_slice(self, slice: object) -> None:
        """Raise unless the slice fits the plugin's schema."""
        if self.slice_schema is not None:
            self.slice_schema.check(
                freeze_map(EMPTY_MAP if slice is None else slice, f"state.{self.key}"), self._slice_error
            )

    def _slice_error(self, field: str, problem: str, remedy: str) -> InvalidState:
        return InvalidState(f"state.{self.key}.{field}", problem, remedy)

    # What a plugin may override

    def mount(self, agent: Agent, config: FrozenMap[str, Any]) -> Any:
        """Join an agent that is being made.

        Return None, or a mapping that goes over the plugin's slice; to write the agent's memory, identity or
        thread as well, return the changed agent, alone or with the mapping. Other keys of the state are
        not the plugin's to write.
        """
        return None

    def router(self, config: FrozenMap[str, Any]) -> Sequence[RouteLike]:
        """Routes `(pattern, target)` with full signal types; nothing is prefixed."""
        return ()

    def handle_signal(self, signal: Signal, ctx: Context) -> Any:
        """Look at a signal before it is routed.

        Return None to let it go on, a Signal to go on in its place, or an action (as `cmd` takes it) to run
        instead of the routes.
        """
        return None

    def on_checkpoint(self, state: Any, ctx: Context) -> CheckpointDecision:
        """What becomes of the slice when the agent is saved: "keep", "drop", or `Externalize`."""
        return "keep"

    def on_restore(self, pointer: Any, ctx: Context) -> Any:
        """The slice that an externalized pointer stands for; None leaves it to whoever restores the agent."""
        return None

    def _validate_config(self, config: Mapping[str, Any], owner: str) -> FrozenMap[str, Any]:
        given = freeze_map(config, f"{owner}: config")
        if self.config_schema is None:
            return given

        def refuse(field: str, problem: str, remedy: str) -> InvalidDefinition:
            return InvalidDefinition(f"{owner}: config.{field}", problem, remedy)

        schema = Schema(self.config_schema, owner)
        schema.check(given, refuse)
        return freeze_map(schema.defaults(), "config").update(given)


PluginLike = Plugin | type[Plugin] | tuple[type[Plugin], Mapping[str, Any]]


def as_plugin(like: object) -> Plugin:
    """A plugin from an instance, a class, or a class with its configuration."""
    match like:
        case Plugin():
            return like
        case type() if issubclass(like, Plugin):
            return like()
        case (type() as kind, Mapping() as config) if issubclass(kind, Plugin):
            return kind(config)
    raise WrongType("plugins", "Plugin classes, instances, or (class, config)", like)


# default plugins: Which plugins does every agent have?


class ThreadPlugin(Plugin):
    """Owns what happened. A checkpoint holds a pointer to it; the log itself is kept beside."""

    name = "thread"
    state_key = THREAD.key
    capabilities = ("thread",)
    singleton = True

    def on_checkpoint(self, state: Any, ctx: Context) -> CheckpointDecision:
        """The log grows without bound, so only its id and revision go into the checkpoint."""
        if not isinstance(state, Thread):
            return "keep"
        return Externalize(key="thread", pointer={"id": state.id, "rev": state.rev})


class IdentityPlugin(Plugin):
    """Owns what the agent is."""

    name = "identity"
    state_key = IDENTITY.key
    capabilities = ("identity",)
    singleton = True


class MemoryPlugin(Plugin):
    """Owns what the agent believes and wants."""

    name = "memory"
    state_key = MEMORY.key
    capabilities = ("memory",)
    singleton = True


DEFAULT_PLUGINS: tuple[type[Plugin], ...] = (ThreadPlugin, IdentityPlugin, MemoryPlugin)

DefaultPluginOverrides = None | bool | Mapping[str, Any]


def select_default_plugins(overrides: DefaultPluginOverrides = None) -> list[Plugin]:
    """All of them for None, none for False; or changed by state key: False, a plugin, (class, config)."""
    if overrides is None or overrides is True:
        return [kind() for kind in DEFAULT_PLUGINS]
    if overrides is False:
        return []
    if not isinstance(overrides, Mapping):
        raise WrongType("default_plugins", "None, False or a mapping by state key", overrides)
    known = {kind.state_key: kind for kind in DEFAULT_PLUGINS}
    for key in overrides:
        if key not in known:
            raise InvalidDefinition(
                f"default_plugins[{key!r}]", "is not a default plugin", f"use {', '.join(known)}"
            )
    chosen = []
    for key, kind in known.items():
        wanted = overrides.get(key, True)
        if wanted is False:
            continue
        plugin = kind() if wanted is True else as_plugin(wanted)
        if plugin.key != key:
            raise InvalidDefinition(
                f"default_plugins[{key!r}]", f"would own {plugin.key!r}", f"give it state_key = {key!r}"
            )
        chosen.append(plugin)
    return chosen


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
