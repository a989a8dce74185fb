"""Plugin base and the built-in plugins.

A plugin owns one key of the state, its slice, and may offer actions, route and watch signals, and write the
agent's memory, identity and thread when it is mounted. Plugins are pure: what they want done in the world,
their actions ask for with directives.

One for each of the three values an agent is made of. They own their slot, allocate nothing, and can be
replaced or left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from omoide.core import signal as pattern
from omoide.core.action import Action
from omoide.core.codec import Frozen
from omoide.core.execution import PLUGIN_PRIORITY, RouteLike, as_routes
from omoide.core.frozen import EMPTY_MAP, FrozenMap, check_str, check_text, freeze_map
from omoide.core.schema import Schema
from omoide.core.signal import Signal
from omoide.core.state import IDENTITY, MEMORY, THREAD, Context
from omoide.core.thread import Thread
from omoide.core.value import Name, Value, check_instance, check_texts
from omoide.errors import InvalidDefinition, InvalidState, WrongType

if TYPE_CHECKING:
    from omoide.core.agent import Agent


# plugin: How is an agent extended?


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
