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
from omoide.core.signal import Signal, check_pattern, matches_pattern
from omoide.core.state import IDENTITY, MEMORY, SLOTS, THREAD, Context
from omoide.core.thread import Thread
from omoide.core.value import Name, Value, check_count, check_instance, check_texts
from omoide.errors import InvalidDefinition, InvalidState, NotFound, WrongType

if TYPE_CHECKING:
    from omoide.core.agent import Agent


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class Externalize(Value, frozen=True, kw_only=True):
    """A decision to leave a slice out of the checkpoint and store a pointer in its place."""

    key: Name
    pointer: Frozen


CheckpointDecision = Literal["keep", "drop"] | Externalize


class Plugin:
    """Base class of plugins: set `name`, and override what is needed; `config` is frozen."""

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
        for action in self.offered_actions:
            if not isinstance(action, Action):
                raise WrongType(f"{owner}: actions", "Actions only", action, "decorate it with @action")
        for pattern in self.signal_patterns:
            check_pattern(pattern, f"{owner}: signal_patterns")
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
        """The key of the state that the plugin owns."""
        key = self.state_key or self.name
        return key if self.alias is None else f"{key}_{self.alias}"

    @property
    def label(self) -> str:
        """The name of the plugin among those of an agent, with its alias."""
        return self.name if self.alias is None else f"{self.name}:{self.alias}"

    def accepts_signal(self, signal: Signal) -> bool:
        """Return True if `handle_signal` is called for a signal: no patterns are set, or one matches."""
        return not self.signal_patterns or any(
            matches_pattern(pattern, signal.type) for pattern in self.signal_patterns
        )

    def check_slice(self, slice: object) -> None:
        """Raise `InvalidState` if a slice does not fit the plugin's schema."""
        if self.slice_schema is not None:
            self.slice_schema.check(
                freeze_map(EMPTY_MAP if slice is None else slice, f"state.{self.key}"), self._slice_error
            )

    def _slice_error(self, field: str, problem: str, remedy: str) -> InvalidState:
        return InvalidState(f"state.{self.key}.{field}", problem, remedy)

    # Hooks to override

    def mount(self, agent: Agent, config: FrozenMap[str, Any]) -> Any:
        """Prepare an agent that is being created.

        Returns:
            None, or a mapping that is merged into the plugin's slice. To write the agent's memory, identity
                or thread as well, return the changed agent, alone or with the mapping. Other keys of the
                state may not change.
        """
        return None

    def router(self, config: FrozenMap[str, Any]) -> Sequence[RouteLike]:
        """Return routes `(pattern, target)` with full signal types; nothing is prefixed."""
        return ()

    def handle_signal(self, signal: Signal, ctx: Context) -> Any:
        """Inspect a signal before it is routed.

        Returns:
            None to route it, a Signal to route in its place, or an action (as `cmd` takes it) to run instead.
        """
        return None

    def on_checkpoint(self, state: Any, ctx: Context) -> CheckpointDecision:
        """Decide what becomes of the slice when the agent is saved: "keep", "drop", or `Externalize`."""
        return "keep"

    def on_restore(self, pointer: Any, ctx: Context) -> Any:
        """Return the slice for an externalized pointer; None leaves it to the checkpoint store."""
        return None

    def _validate_config(self, config: Mapping[str, Any], owner: str) -> FrozenMap[str, Any]:
        values = freeze_map(config, f"{owner}: config")
        if self.config_schema is None:
            return values

        def config_error(field: str, problem: str, remedy: str) -> InvalidDefinition:
            return InvalidDefinition(f"{owner}: config.{field}", problem, remedy)

        schema = Schema(self.config_schema, owner)
        schema.check(values, config_error)
        return freeze_map(schema.defaults(), "config").update(values)


PluginLike = Plugin | type[Plugin] | tuple[type[Plugin], Mapping[str, Any]]


def as_plugin(like: object) -> Plugin:
    """Build a plugin from an instance, a class, or a class with its configuration."""
    match like:
        case Plugin():
            return like
        case type() if issubclass(like, Plugin):
            return like()
        case (type() as kind, Mapping() as config) if issubclass(kind, Plugin):
            return kind(config)
    raise WrongType("plugins", "Plugin classes, instances, or (class, config)", like)


class ThreadPlugin(Plugin):
    """The owner of the thread. A checkpoint holds a pointer to it; its entries are stored apart."""

    name = "thread"
    state_key = THREAD.key
    capabilities = ("thread",)
    singleton = True

    def on_checkpoint(self, state: Any, ctx: Context) -> CheckpointDecision:
        """Externalize the thread: it grows without bound, so a checkpoint has its id and revision only."""
        if not isinstance(state, Thread):
            return "keep"
        return Externalize(key="thread", pointer={"id": state.id, "rev": state.rev})


class IdentityPlugin(Plugin):
    """The owner of the identity."""

    name = "identity"
    state_key = IDENTITY.key
    capabilities = ("identity",)
    singleton = True


class MemoryPlugin(Plugin):
    """The owner of the memory."""

    name = "memory"
    state_key = MEMORY.key
    capabilities = ("memory",)
    singleton = True


DEFAULT_PLUGINS: tuple[type[Plugin], ...] = (ThreadPlugin, IdentityPlugin, MemoryPlugin)

DefaultPluginOverrides = None | bool | Mapping[str, Any]


def select_default_plugins(overrides: DefaultPluginOverrides = None) -> list[Plugin]:
    """Return the default plugins.

    Args:
        overrides: None for all, False for none, or a mapping from a state key to False, a plugin, or (class,
            config).
    """
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
    plugins = []
    for key, kind in known.items():
        override = overrides.get(key, True)
        if override is False:
            continue
        plugin = kind() if override is True else as_plugin(override)
        if plugin.key != key:
            raise InvalidDefinition(
                f"default_plugins[{key!r}]", f"would own {plugin.key!r}", f"give it state_key = {key!r}"
            )
        plugins.append(plugin)
    return plugins


_ABSENT = object()

Migration = Callable[[FrozenMap[str, Any], int], Mapping[str, Any]]
"""Converts the state of the given version to the state of the next one."""


class DefinitionFields(TypedDict, total=False):
    """The arguments of `Definition.new` besides the name."""

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
    """The code that all agents of a kind share."""

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
    """The version of the state; increase it when saved agents need to be migrated."""
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
        """Build a definition; default plugins come before the given ones.

        Raises:
            InvalidDefinition: if its parts do not fit together.
        """
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
        """Return the names of the actions that agents have: their own and those of their plugins."""
        return tuple(dict.fromkeys(action.name for action in self._all_actions()))

    def action(self, name: str) -> Action:
        """Return the action with a name, or raise `NotFound`."""
        for action in self._all_actions():
            if action.name == name:
                return action
        known = ", ".join(self.action_names()) or "no actions at all"
        raise NotFound("action", name, f"this agent has {known}; pass the action itself, or mount its plugin")

    def plugin_capabilities(self) -> tuple[str, ...]:
        """Return the capabilities that the plugins declare, which are not the identity's."""
        return tuple(dict.fromkeys(tag for plugin in self.plugins for tag in plugin.capabilities))

    def check_state(self, state: FrozenMap[str, Any], before: FrozenMap[str, Any] | None = None) -> None:
        """Raise `InvalidState` if what differs from `before` does not fit the schemas."""
        known = EMPTY_MAP if before is None else before
        for plugin in self.plugins:
            if plugin.key in state and state[plugin.key] is not known.get(plugin.key, _ABSENT):
                plugin.check_slice(state[plugin.key])
        if self.schema is not None:
            own, old = self.own_state(state), self.own_state(known)
            if before is None or own.keys() != old.keys() or any(own[key] is not old[key] for key in own):
                self.schema.check(own, _state_error)

    def own_state(self, state: FrozenMap[str, Any]) -> dict[str, Any]:
        """Return the state without slots and slices."""
        owned = {*SLOTS, *(plugin.key for plugin in self.plugins)}
        return {key: value for key, value in state.items() if key not in owned}

    def _all_actions(self) -> list[Action]:
        return [*self.actions, *(action for plugin in self.plugins for action in plugin.offered_actions)]

    def _check_action_names(self, owner: str) -> None:
        """Raise if two actions share a name: which one ran would depend on their order."""
        named: dict[str, Action] = {}
        for action in self._all_actions():
            if named.setdefault(action.name, action) is not action:
                raise InvalidDefinition(
                    f"{owner}: action {action.name!r}", "is offered twice", "rename one of them"
                )


def _check_list(value: object, owner: str, field: str) -> Sequence[Any]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise WrongType(f"{owner}: {field}", "a list", value)
    return value


def _state_error(field: str, problem: str, remedy: str) -> InvalidState:
    return InvalidState(f"state.{field}", problem, remedy)


def _collect_routes(
    owner: str, strategy: Strategy | None, routes: Sequence[RouteLike], plugins: Sequence[Plugin]
) -> tuple[Route, ...]:
    candidate: object = strategy
    own_routes = candidate.signal_routes() if isinstance(candidate, SupportsSignalRoutes) else ()
    return (
        *as_routes(own_routes, f"the strategy of {owner}", STRATEGY_PRIORITY),
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
