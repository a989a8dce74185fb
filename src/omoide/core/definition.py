"""Definitions of agents: routes, strategies and plugins; execution of instructions.

A definition is the code that all agents of a kind share: schema of the state, plugins, actions, routes,
strategy and hooks. It is validated once, when it is made, and serves any number of agents.

If several routes match a signal, they run in this order: the more specific pattern, the higher priority, the
one registered earlier.

A strategy turns instructions into a new agent and directives. `Direct` runs them one after the other and has
no state of its own. An action that fails raises nothing: an `Error` directive reports it, and the agent stays
as it was.

A plugin owns one key of the state, its slice. It may offer actions, route and watch signals, and write the
agent's memory, identity and thread when it is mounted. Plugins are pure: effects are directives that their
actions return.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, TypedDict, cast, runtime_checkable

import msgspec

from omoide.core import codec
from omoide.core.action import Action, Directive, Error, Instruction, RunInstruction, check_name
from omoide.core.codec import Frozen
from omoide.core.frozen import (
    EMPTY_MAP,
    FrozenMap,
    check_str,
    check_text,
    freeze_map,
    map_of,
    wrap_map_lazy,
)
from omoide.core.identity import PUBLIC_KEY, Identity
from omoide.core.maps import set_item
from omoide.core.memory import Memory, reserved_spaces
from omoide.core.schema import Schema
from omoide.core.signal import Signal, check_pattern, matches_pattern, specificity
from omoide.core.state import (
    IDENTITY,
    MEMORY,
    PARENT,
    SLOTS,
    STRATEGY,
    THREAD,
    Context,
    DeleteKeys,
    SetPath,
    Stateful,
    StateOp,
    StrategyState,
    check_state,
    merge_result,
    with_state,
)
from omoide.core.thread import Thread
from omoide.core.value import Name, Value, check_count, check_instance, check_texts, set_field
from omoide.errors import (
    Invalid,
    InvalidDefinition,
    InvalidParams,
    InvalidState,
    NotFound,
    OmoideError,
    Unsupported,
    WrongType,
)

if TYPE_CHECKING:
    from omoide.core.agent import Agent

# Defaults for routes of one pattern: the strategy comes first, plugins give way to the agent.
STRATEGY_PRIORITY, AGENT_PRIORITY, PLUGIN_PRIORITY = 50, 0, -10
STRATEGY_CMD, STRATEGY_TICK = "strategy_cmd", "strategy_tick"

Migration = Callable[[FrozenMap[str, Any], int], Mapping[str, Any]]
"""Converts the state of the given version to the state of the next one."""

Outcome = tuple["Agent", list[Directive]]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_RESERVED_KEY = re.compile(r"__.*__\Z", re.DOTALL)
_ABSENT = object()


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A pattern of signal types, and the target of signals that match it."""

    pattern: str
    target: Any
    priority: int = AGENT_PRIORITY

    def __post_init__(self) -> None:
        check_pattern(self.pattern)
        if type(self.priority) is not int or not -100 <= self.priority <= 100:
            raise Invalid("priority", f"is {self.priority!r}", "use an int from -100 to 100")
        match self.target:
            case (kind,) | kind if kind == STRATEGY_TICK:
                return
            case (kind, _) if kind == STRATEGY_CMD:
                return
            case Action():
                return
            case str(name):
                check_name(name, "target")
            case (Action() | str() as first, Mapping() as params):
                if isinstance(first, str):
                    check_name(first, "target")
                set_field(self, "target", (first, freeze_map(params, "target params")))
            case _:
                raise WrongType("target", "an Action, its name, or (action, params)", self.target)

    @property
    def action(self) -> str | None:
        """The name of the action that it leads to, if the target is a name."""
        first = self.target[0] if isinstance(self.target, tuple) else self.target
        return first if isinstance(first, str) and first not in (STRATEGY_CMD, STRATEGY_TICK) else None

    @classmethod
    def of(cls, like: object, owner: str, priority: int) -> Route:
        """Build a route from `(pattern, target)`, `(pattern, target, priority)` or a Route."""
        match like:
            case Route():
                return like
            case (str(pattern), target):
                return cls(pattern=pattern, target=target, priority=priority)
            case (str(pattern), target, int(own_priority)):
                return cls(pattern=pattern, target=target, priority=own_priority)
            case _:
                raise InvalidDefinition(
                    f"route of {owner}",
                    f"is {like!r}",
                    "use (pattern, target) or (pattern, target, priority)",
                )


RouteLike = Route | tuple[str, Any] | tuple[str, Any, int]


def as_routes(likes: object, owner: str, priority: int) -> tuple[Route, ...]:
    """Build routes from a list of the forms that `Route.of` takes."""
    if isinstance(likes, (str, bytes)) or not isinstance(likes, Sequence):
        raise WrongType(f"routes of {owner}", "a list of (pattern, target)", likes)
    return tuple(Route.of(like, owner, priority) for like in likes)


def matching_routes(routes: Iterable[Route], signal_type: str) -> list[Route]:
    """Return the routes for a signal type, in the order in which they run."""
    # The sort is stable also in reverse, so equal routes stay in the order of registration.
    matches = [route for route in routes if matches_pattern(route.pattern, signal_type)]
    return sorted(matches, key=lambda route: (specificity(route.pattern), route.priority), reverse=True)


def run_instruction(
    agent: Agent, instruction: Instruction, signal: Signal | None = None
) -> tuple[Agent, list[Directive], str]:
    """Run one instruction; return the agent, its directives, and a status: ok, error, or deferred."""
    stage = "normalize"  # the context of the Error directive, if something raises
    try:
        action = instruction.target or agent.definition.action(instruction.action)
        stage = "params"
        params = action.check(instruction.params)
        if action.effectful:
            return (
                agent,
                [RunInstruction(instruction=_with_defaults(action, instruction, params))],
                "deferred",
            )
        stage = "run"
        result = action.run(Context(agent, signal), **params)
        stage = "result"
        agent, directives = apply_result(agent, result)
    except Exception as error:
        return agent, [error_directive(error, stage, instruction.action)], "error"
    return agent, directives, "ok"


def apply_result(agent: Agent, result: object) -> tuple[Agent, list[Directive]]:
    """Merge the result of an action into an agent; return the agent and the directives.

    Raises:
        WrongType: if the result is not one that an action may return.
        InvalidState: if the new state is not allowed.
    """
    result, effects = _split_result(result)
    state = agent.state
    if isinstance(result, Stateful):
        state, result = check_same_agent(cast("Agent", result), "the action", agent).state, None
    return _outcome(agent, _next_state(state, result, effects), effects)


def apply_late_result(before: Agent, agent: Agent, result: object) -> tuple[Agent, list[Directive]]:
    """Merge the result of an action that began on an older version of the agent.

    What the action returned as a whole, an agent or a slot, is compared with what it began with: only what it
    changed is taken over. All else is merged as in `apply_result`.

    Args:
        before: the agent as the action saw it.
        agent: the agent as it is now.
        result: what the action returned.

    Raises:
        WrongType: if the result is not one that an action may return.
        InvalidState: if the new state is not allowed.
        Conflict: if the action changed a space, or another part of a slot, that was changed meanwhile.
    """
    result, effects = _split_result(changes_since(before, result))
    state = _next_state(agent.state, result, effects)
    slots = map_of({key: slot.get(before) for key, slot in SLOTS.items() if slot.has(before)})
    changed = _next_state(slots, result, effects)
    for key, slot in SLOTS.items():
        value = slot.merge(slots.get(key), slot.get(agent), changed.get(key))
        if value is None:
            state = state.delete(key)
        elif value is not state.get(key):
            state = wrap_map_lazy(set_item(state._map, key, value))
    return _outcome(agent, state, effects)


def _split_result(result: object) -> tuple[object, Sequence[Any]]:
    """Return the result itself, and the directives and state operations that came with it."""
    effects: Sequence[Any] = ()
    if isinstance(result, tuple):
        if len(result) != 2:
            raise WrongType("result", "a result, or (result, [directives])", result)
        if not isinstance(result[1], (list, tuple)):
            raise WrongType("the second part of the result", "a list of directives", result[1])
        result, effects = result
    for effect in effects:  # all are checked before the first is applied
        if not isinstance(effect, (Directive, StateOp)):
            raise WrongType("directives", "Directives and state operations only", effect)
    return result, effects


def _next_state(state: FrozenMap[str, Any], result: object, effects: Sequence[Any]) -> FrozenMap[str, Any]:
    state = merge_result(state, result)
    for effect in effects:
        if isinstance(effect, StateOp):
            state = effect.apply(state)
    return state


def _outcome(
    agent: Agent, state: FrozenMap[str, Any], effects: Sequence[Any]
) -> tuple[Agent, list[Directive]]:
    """Return the agent with a state, and the directives, with a report of what was written beside memory."""
    misplaced = agent.definition.misplaced_keys(state, agent.state)
    directives = [effect for effect in effects if isinstance(effect, Directive)]
    return with_checked_state(agent, state), [*directives, *map(_misplaced_error, misplaced)]


def _misplaced_error(key: str) -> Error:
    return Error(
        message=f"state.{key} was written, which is not the space {key!r} of the memory; change ctx.memory "
        f"and return that, or declare {key!r} in the agent's schema",
        context="result",
        field=f"state.{key}",
        kind="Misplaced",
    )


def with_checked_state(agent: Agent, state: FrozenMap[str, Any]) -> Agent:
    """Return the agent with another state, or raise `InvalidState` if it may not have it."""
    if state is agent.state:
        return agent
    check_state(state)
    # The thread is append-only, and an emptied slot would lose data that nothing else holds.
    before, after = THREAD.get(agent), state.get(THREAD.key)
    if before is not None and after is not before and (after is None or not after.extends(before)):
        raise InvalidState(
            "state.__thread__", "would lose or rewrite entries", "append to ctx.thread and return that"
        )
    for key, slot in SLOTS.items():
        if slot.has(agent) and state.get(key) is None:
            raise InvalidState(f"state.{key}", "would be lost", f"return a {slot.kind.__name__} in its place")
    known: Memory | None = MEMORY.get(agent)
    memory: Memory | None = state.get(MEMORY.key)
    if known is not None and memory is not None and memory is not known:
        memory.check_continues(known)
    check_parent(agent.state, state)
    agent.definition.check_state(state, agent.state)
    return with_state(agent, state)


def check_parent(before: FrozenMap[str, Any], after: FrozenMap[str, Any]) -> None:
    """Raise `InvalidState` if a state has another parent than the one before: it is set once."""
    parent = before.get(PARENT.key)
    if parent is not None and after.get(PARENT.key) != parent:
        raise InvalidState(f"state.{PARENT.key}", f"is set once, to agent {parent.id!r}", "leave it as it is")


def changes_since(before: Agent, result: object) -> object:
    """Return the result of an action that took time: an Agent becomes the changes that it makes.

    The agent may have changed meanwhile, so that the returned one as a whole would undo that.
    """
    value, effects = result if isinstance(result, tuple) and len(result) == 2 else (result, ())
    if not isinstance(value, Stateful):
        return result
    state = check_same_agent(cast("Agent", value), "the action", before).state
    changed = [key for key in state if state[key] is not before.state.get(key, _ABSENT)]
    # A mapping would be merged into the maps of other keys, and keep what the action removed from them.
    ops: list[StateOp] = [SetPath(path=[key], value=state[key]) for key in changed if key not in SLOTS]
    removed = [key for key in before.state if key not in state]
    if removed:
        ops.append(DeleteKeys(keys=removed))
    return {key: state[key] for key in changed if key in SLOTS}, [*ops, *effects]


def check_outcome(result: Any, who: str, before: Agent) -> tuple[Agent, list[Directive]]:
    """Check the result of a strategy or a hook; return the agent and the directives.

    Args:
        result: the value returned.
        who: the strategy or hook, for the error message.
        before: the agent that it was given; only the state may differ.
    """
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[0], type(before)):
        raise WrongType(f"the result of {who}", "(agent, [directives])", result)
    agent, directives = result
    if not isinstance(directives, (list, tuple)):
        raise WrongType(f"the directives of {who}", "a list", directives)
    for directive in directives:
        if not isinstance(directive, Directive):
            raise WrongType(f"the directives of {who}", "Directives only", directive)
    return check_same_agent(agent, who, before), list(directives)


def check_same_agent(agent: Agent, who: str, before: Agent) -> Agent:
    """Raise `InvalidState` if more than the state of an agent was changed."""
    if agent is not before:
        if (agent.id, agent.name) != (before.id, before.name):
            raise InvalidState(
                f"the agent of {who}", f"is {agent.id!r}, not {before.id!r}", "change its state only"
            )
        if agent.definition != before.definition:
            raise InvalidState(f"the agent of {who}", "has another definition", "change its state only")
        with_checked_state(before, agent.state)
    return agent


def error_directive(error: Exception, context: str, action: str | None = None) -> Error:
    """Return the directive that reports an exception."""
    message, trace = _error_message(error), ""
    if not isinstance(error, OmoideError):
        import traceback  # costly to import, and needed for a failing action only

        message = f"{type(error).__name__}: {message}" if message else type(error).__name__
        trace = _clean_text("".join(traceback.format_exception(error)))
    field = error.parameter if isinstance(error, InvalidParams) else getattr(error, "field", None)
    return Error(
        message=message,
        context=context,
        action=action,
        field=_clean_text(field) if isinstance(field, str) else None,
        kind=type(error).__name__,
        trace=trace,
    )


def _error_message(error: Exception) -> str:
    try:
        return _clean_text(str(error)).strip()
    except Exception:
        return "its message cannot be read"


def _clean_text(text: str) -> str:
    """Replace NUL characters and lone surrogates, which a directive cannot hold."""
    return text.replace("\0", "␀").encode(errors="replace").decode()


def _with_defaults(action: Action, instruction: Instruction, params: dict[str, Any]) -> Instruction:
    """Fill in the defaults of the parameters, as far as they are plain data."""
    # The directive is complete by itself: a run at a later time does not depend on the defaults of the code.
    complete = instruction.params
    for name in params:
        if name not in complete:
            with suppress(Unsupported):
                complete = complete.set(name, params[name])
    return Instruction(action=action.name, params=complete, target=action)


@runtime_checkable
class Strategy(Protocol):
    """A way to execute commands. `init` may run more than once and must be idempotent."""

    def init(self, agent: Agent, ctx: Context) -> Outcome:
        """Prepare the agent's `__strategy__` state."""

    def cmd(self, agent: Agent, instructions: Sequence[Instruction], ctx: Context) -> Outcome:
        """Execute instructions."""

    def tick(self, agent: Agent, ctx: Context) -> Outcome:
        """Continue work in progress."""

    def snapshot(self, agent: Agent) -> StrategyState:
        """Return the status of the strategy."""


@runtime_checkable
class SupportsSignalRoutes(Protocol):
    """A strategy with routes of its own."""

    def signal_routes(self) -> Sequence[RouteLike]:
        """Return routes; the targets `("strategy_cmd", x)` and `("strategy_tick",)` call the strategy."""


class Direct:
    """The strategy that runs each instruction at once, in order.

    One that fails changes nothing, and the next ones still run. With `thread=True`, or if the agent has a
    thread, each run appends `instruction_start` and `instruction_end` to it; the status of an effectful
    action, which the runtime runs later, is `deferred`.
    """

    def __init__(self, *, thread: bool = False) -> None:
        self.thread = thread

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.thread == self.thread

    def __hash__(self) -> int:
        return hash((type(self), self.thread))

    def init(self, agent: Agent, ctx: Context) -> Outcome:
        """Do nothing: there is no state to prepare."""
        return agent, []

    def cmd(self, agent: Agent, instructions: Sequence[Instruction], ctx: Context) -> Outcome:
        """Run the instructions, each on the state that the one before left."""
        directives: list[Directive] = []
        for instruction in instructions:
            agent, more = self._run_and_log(agent, instruction, ctx)
            directives += more
        return agent, directives

    def tick(self, agent: Agent, ctx: Context) -> Outcome:
        """Do nothing: nothing is ever in progress."""
        return agent, []

    def snapshot(self, agent: Agent) -> StrategyState:
        """Return the stored state, or an idle one."""
        return STRATEGY.get(agent) or StrategyState()

    def _run_and_log(self, agent: Agent, instruction: Instruction, ctx: Context) -> Outcome:
        if not (self.thread or THREAD.has(agent)):
            agent, directives, _ = run_instruction(agent, instruction, ctx.signal)
            return agent, directives
        # The keys only: values of parameters may be secret.
        started = {"action": instruction.action, "param_keys": sorted(instruction.params)}
        agent = _append_to_thread(agent, "instruction_start", started)
        agent, directives, status = run_instruction(agent, instruction, ctx.signal)
        ended = {"action": instruction.action, "status": status}
        return _append_to_thread(agent, "instruction_end", ended), directives


def _append_to_thread(agent: Agent, kind: str, payload: dict[str, Any]) -> Agent:
    return THREAD.put(agent, THREAD.get_or_new(agent).append({"kind": kind, "payload": payload}))


class Externalize(Value, frozen=True, kw_only=True):
    """A decision to leave a slice out of the checkpoint and store a pointer in its place."""

    key: Name
    pointer: Frozen


CheckpointDecision = Literal["keep", "drop"] | Externalize


class Plugin:
    """Base class of plugins: set `name`, and override the hooks that are needed; `config` is frozen."""

    name: ClassVar[str] = ""
    state_key: ClassVar[str] = ""
    actions: ClassVar[Sequence[Action]] = ()
    description: ClassVar[str] = ""
    category: ClassVar[str] = ""
    vsn: ClassVar[str] = ""
    schema: ClassVar[type | None] = None
    config_schema: ClassVar[type | None] = None
    extension_schema: ClassVar[type | None] = None
    """The shape of the plugin's slice of the identity; it need not name `__public__`."""
    extension_max_bytes: ClassVar[int | None] = 65_536
    """The size that the slice may have, encoded as JSON; None for any."""
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
        _check_key(self.state_key or self.name, owner)
        if alias is not None and self.singleton:
            raise InvalidDefinition(
                owner, "is a singleton: Cannot alias singleton plugin", "mount it once, without alias"
            )
        if alias is not None and not _NAME.match(check_text(alias, f"{owner}: alias")):
            raise InvalidDefinition(f"{owner}: alias", f"is {alias!r}", "use letters, digits and underscores")
        self.alias = alias
        self.slice_schema = None if self.schema is None else Schema(self.schema, owner)
        self._extension_schema = (
            None if self.extension_schema is None else Schema(self.extension_schema, f"{owner}: extension")
        )
        if self.extension_max_bytes is not None:
            check_count(self.extension_max_bytes, f"{owner}: extension_max_bytes")
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
                f"{owner}: router", f"failed ({type(error).__name__}: {error})", "fix it"
            ) from error

    # By value: definitions are compared when agents are, and each mount makes an instance of its own.
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

    def check_extension(self, slice: object) -> None:
        """Raise `InvalidState` if a slice of the identity is too large or does not fit the schema."""
        size = len(msgspec.json.encode(codec.dump(slice)))
        if self.extension_max_bytes is not None and size > self.extension_max_bytes:
            raise InvalidState(
                f"identity.extensions.{self.label}",
                f"allows extension_max_bytes {self.extension_max_bytes}, this would make {size}",
                "keep a short description here, and data in memory or a store",
            )
        schema = self._extension_schema
        if schema is not None:
            values = freeze_map(slice, f"identity.extensions.{self.label}")
            if PUBLIC_KEY not in schema.fields:
                values = values.delete(PUBLIC_KEY)
            schema.check(values, self._extension_error)

    def _extension_error(self, field: str, problem: str, remedy: str) -> InvalidState:
        return InvalidState(f"identity.extensions.{self.label}.{field}", problem, remedy)

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
        """Return the decision about the slice when the agent is saved: "keep", "drop", or `Externalize`."""
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


def _check_key(key: str, owner: str) -> None:
    if _RESERVED_KEY.match(key) and key not in SLOTS:
        raise InvalidDefinition(
            f"{owner}: state_key",
            f"{key!r} would be a new reserved key",
            "use a key without underscores around it, or a memory space",
        )


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
        schema: type | Schema | None = None,
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
            schema=schema if schema is None or isinstance(schema, Schema) else Schema(schema, owner),
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
                    f"leads to the unknown action {route.action!r}",
                    "pass the action itself, or give it to the agent",
                )

    def __repr__(self) -> str:
        return f"Definition({self.name!r})"

    def with_plugin(self, plugin: Plugin) -> Definition:
        """Return the definition with another plugin, and its routes."""
        return msgspec.structs.replace(
            self, plugins=(*self.plugins, plugin), routes=(*self.routes, *plugin.routes)
        )

    def without_plugin(self, label: str) -> tuple[Definition, Plugin]:
        """Return the definition without a plugin and its routes, and the plugin."""
        plugin = next((plugin for plugin in self.plugins if plugin.label == label), None)
        if plugin is None:
            known = ", ".join(plugin.label for plugin in self.plugins) or "no plugins"
            raise NotFound("plugin", str(label), f"this agent has {known}")
        # By identity: a route of the agent itself may be equal to one of the plugin.
        own = {id(route) for route in plugin.routes}
        routes = tuple(route for route in self.routes if id(route) not in own)
        plugins = tuple(other for other in self.plugins if other is not plugin)
        return msgspec.structs.replace(self, plugins=plugins, routes=routes), plugin

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
        """Raise `InvalidState` if a part that differs from `before` does not fit the schemas."""
        # Parts are frozen: one that is the same object was checked when it was set.
        known = EMPTY_MAP if before is None else before
        identity = state.get(IDENTITY.key)
        if identity is not None and identity is not known.get(IDENTITY.key):
            self.check_extensions(identity, known.get(IDENTITY.key))
        for plugin in self.plugins:
            if plugin.key in state and state[plugin.key] is not known.get(plugin.key, _ABSENT):
                plugin.check_slice(state[plugin.key])
        if self.schema is not None:
            own, old = self.own_state(state), self.own_state(known)
            if before is None or own.keys() != old.keys() or any(own[key] is not old[key] for key in own):
                self.schema.check(own, _state_error)

    def check_extensions(self, identity: Identity, before: Identity | None) -> None:
        """Raise `InvalidState` if a slice that differs from the identity before is not as its plugin says."""
        extensions = identity.extensions
        old = EMPTY_MAP if before is None else before.extensions
        if not extensions or extensions is old:
            return
        for plugin in self.plugins:
            slice = extensions.get(plugin.label)
            if slice is not None and slice is not old.get(plugin.label):
                plugin.check_extension(slice)

    def misplaced_keys(self, state: FrozenMap[str, Any], before: FrozenMap[str, Any]) -> list[str]:
        """Return the new keys of a state that are called like a reserved space and that nothing declares."""
        new = [name for name in reserved_spaces() if name in state and name not in before]
        if not new:
            return new
        declared = {*(self.schema.fields if self.schema else ()), *(plugin.key for plugin in self.plugins)}
        return [name for name in new if name not in declared]

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
    candidate: object = strategy  # routes are optional for a strategy, so no part of its protocol
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
    for plugin in plugins:  # after all are known: a plugin may require one that is mounted later
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
