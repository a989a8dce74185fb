"""Agents: construction, commands, signals, and selection by capability.

An agent is an immutable value. `cmd` takes an action and returns another agent and a list of directives;
`receive` does the same for a signal, which plugins see before the routes lead it to actions. Neither has side
effects.

The state holds the agent's own data, a slice for each plugin, and memory, identity and thread under reserved
keys. A new state is built in this order: defaults of the schema, defaults of each plugin's slice, the
caller's values; then each plugin is mounted and sees what those before it wrote.

Selection: a candidate supports the action, has every tag and satisfies every limit. The most experienced one
comes first; agents without an age come last, and ties keep the given order.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Set
from contextlib import nullcontext
from typing import Any, ClassVar, Self, Unpack, cast

import msgspec

from omoide import clock, ids
from omoide.core import codec
from omoide.core.action import Action, ActionLike, Directive, Error, Instruction, Stop
from omoide.core.definition import (
    STRATEGY_CMD,
    STRATEGY_TICK,
    Definition,
    DefinitionFields,
    Direct,
    Plugin,
    PluginLike,
    Route,
    as_plugin,
    check_outcome,
    check_parent,
    check_same_agent,
    error_directive,
    matching_routes,
)
from omoide.core.frozen import EMPTY_MAP, FrozenList, FrozenMap, check_str, check_text, freeze_map
from omoide.core.identity import DEFAULT_CAPABILITIES, Identity, action_name
from omoide.core.signal import Signal
from omoide.core.state import IDENTITY, PARENT, SLOTS, Context, Stateful, check_state, slot_of, with_state
from omoide.core.value import Id, Name, check_texts, set_field, shallow_copy
from omoide.errors import Invalid, InvalidDefinition, MountFailed, NotFound, OmoideError, WrongType

_ABSENT = object()


def initial_state(definition: Definition, values: FrozenMap[str, Any]) -> FrozenMap[str, Any]:
    """Build the state of a new agent before its plugins are mounted."""
    schema = definition.schema
    base = EMPTY_MAP if schema is None else freeze_map(schema.defaults(), "schema defaults")
    state = base.update(values)
    for plugin in definition.plugins:
        if plugin.slice_schema is not None:
            defaults = freeze_map(plugin.slice_schema.defaults(), f"defaults of {plugin.label}")
            state = state.set(
                plugin.key, defaults.update(freeze_map(values.get(plugin.key, EMPTY_MAP), plugin.key))
            )
    return state


def mount_plugins(agent: Agent, keys: Set[str] | None = None) -> Agent:
    """Mount an agent's plugins: all of them, or those that own the given keys.

    Raises:
        MountFailed: if one of them fails; no agent is made then.
    """
    for plugin in agent.definition.plugins:
        if keys is None or plugin.key in keys:
            agent = _mount_or_fail(agent, plugin)
    return agent


def mount(agent: Agent, plugin: PluginLike) -> Agent:
    """Return an agent with another plugin: its actions, its routes and its slice.

    Raises:
        InvalidDefinition: if the plugin does not fit the definition.
        MountFailed: if its mount fails.
    """
    mounted = as_plugin(plugin)
    new = _with_definition(check_agent(agent), agent.definition.with_plugin(mounted))
    if mounted.slice_schema is not None:
        slice = freeze_map(new.state.get(mounted.key, EMPTY_MAP), mounted.key)
        defaults = freeze_map(mounted.slice_schema.defaults(), f"defaults of {mounted.label}")
        new = with_state(new, new.state.set(mounted.key, defaults.update(slice)))
    new = _mount_or_fail(new, mounted)
    new.definition.check_state(new.state)
    return new


def unmount(agent: Agent, label: str) -> Agent:
    """Return an agent without a plugin, by its label; its slice goes with it, and a slot keeps its value.

    Raises:
        NotFound: if the agent has no such plugin.
        InvalidDefinition: if another plugin or a route needs it.
    """
    definition, plugin = check_agent(agent).definition.without_plugin(label)
    new = _with_definition(agent, definition)
    return new if plugin.key in SLOTS else with_state(new, new.state.delete(plugin.key))


def _with_definition(agent: Agent, definition: Definition) -> Agent:
    new = shallow_copy(agent)
    set_field(new, "definition", definition)
    return new


def _mount_or_fail(agent: Agent, plugin: Plugin) -> Agent:
    try:
        return _mount(agent, plugin)
    except MountFailed:
        raise
    except Exception as error:
        reason = error if isinstance(error, OmoideError) else f"{type(error).__name__}: {error}"
        raise MountFailed(plugin.label, reason) from error


def _mount(agent: Agent, plugin: Plugin) -> Agent:
    before = agent.state
    slice, written = None, agent
    if type(plugin).mount is not Plugin.mount:  # most plugins have no mount
        watched = _MountedAgent.watch(agent)
        slice, written = _split_mount_result(plugin.mount(watched, plugin.config), watched)
        if written is watched and watched.changes.found:
            _warn_of_lost_change(plugin, agent)
    state = written.state
    # A plugin owns one key; identity (`is`) is enough, because values are frozen and shared.
    for key in before | state:
        if key not in SLOTS and key != plugin.key and state.get(key, _ABSENT) is not before.get(key, _ABSENT):
            raise Invalid(
                f"state.{key}", "is not owned by the plugin", f"write {plugin.key!r}, memory or identity"
            )
    check_parent(before, state)
    if slice is not None:
        state = state.set(plugin.key, _merge_slice(state.get(plugin.key), slice, plugin))
    check_state(state)
    plugin.check_slice(state.get(plugin.key))
    identity: Identity | None = state.get(IDENTITY.key)
    if identity is not None:
        agent.definition.check_extensions(identity, IDENTITY.get(agent))
    return with_state(agent, state)


def _warn_of_lost_change(plugin: Plugin, agent: Agent) -> None:
    warnings.warn(
        f"plugin {plugin.label!r} of agent {agent.name!r}: mount changed the agent that it was given and did "
        f"not return it, so the change is lost; return the agent, alone or with the slice",
        stacklevel=2,
    )


def _split_mount_result(result: Any, agent: Agent) -> tuple[Any, Agent]:
    """Return the slice and the agent from what a mount returned."""
    # Accepted: None, a slice, an agent, and both in either order.
    slice, written = result if isinstance(result, tuple) and len(result) == 2 else (result, agent)
    if isinstance(slice, Agent):
        slice, written = (None if written is agent else written), slice
    if not isinstance(written, Agent):
        raise WrongType("the agent that mount returned", "an Agent", written)
    return slice, written


def _merge_slice(old: Any, slice: Any, plugin: Plugin) -> Any:
    """Merge what a mount returned into a slice; a slot value replaces its slot."""
    slot = slot_of(slice)
    if slot is not None and slot.key == plugin.key:
        return slice
    return freeze_map(EMPTY_MAP if old is None else old, plugin.key).update(
        freeze_map(slice, "what mount returned")
    )


class Agent(Stateful, frozen=True, kw_only=True):
    """An agent: id, name, state, and the definition that it shares with others of its kind."""

    EXCLUDED_FIELDS: ClassVar[frozenset[str]] = frozenset({"definition"})

    id: Id
    name: Name
    description: str = ""
    definition: Definition = cast("Definition", msgspec.UNSET)

    def __post_init__(self) -> None:
        if cast("object", self.definition) is msgspec.UNSET:
            check_text(self.name, "name")
            check_str(self.description, "description")
            set_field(self, "definition", Definition.new(self.name, description=self.description))
        super().__post_init__()
        for key in self.state:
            check_text(key, "state key")
        check_state(self.state)

    @classmethod
    def new(
        cls,
        kind: str | Definition,
        *,
        id: str | None = None,
        state: Mapping[str, Any] = EMPTY_MAP,
        now: int | None = None,
        **definition: Unpack[DefinitionFields],
    ) -> Agent:
        """Create an agent from a name and the parts of its definition, or from an existing definition.

        Args:
            kind: the agent's name, or a definition.
            id: the agent's id; generated if it is not given.
            state: values that override the defaults; the plugins' mounts and the strategy's init follow.
            now: the time of creation in milliseconds.
            definition: the arguments of `Definition.new`, if `kind` is a name.
        """
        if isinstance(kind, Definition):
            if definition:
                raise Invalid(min(definition), "is part of the definition, which is given", "set it there")
            shared = kind
        else:
            _check_definition_fields(definition)
            shared = Definition.new(kind, **definition)
        # Mounts and strategies create values of their own: all of them get the time of the agent.
        with clock_at(now):
            bare = cls(
                id=ids.new("agent_") if id is None or id == "" else str(id),
                name=shared.name,
                description=shared.description,
                state=initial_state(shared, freeze_map(state, "state")),
                definition=shared,
            )
            agent = mount_plugins(bare)
            agent, _ = check_outcome(
                shared.strategy.init(agent, Context(agent)), "the strategy's init", agent
            )
            check_state(agent.state)
            shared.check_state(agent.state)
        return agent

    def __repr__(self) -> str:
        keys = ", ".join(sorted(self.state)) or "nothing yet"
        return f"Agent({self.name!r}, id={self.id!r}, state of {keys})"

    def cmd(
        self, action: ActionLike | list[Any], *, signal: Signal | None = None, now: int | None = None
    ) -> tuple[Agent, list[Directive]]:
        """Run an action and return the agent after it, and its directives.

        An action that fails raises nothing: the state stays as it was and an `Error` is among the directives.

        Args:
            action: an action, its name, `(action, params)`, an instruction, or a list of them.
            signal: the signal that led to the command, which actions see as `ctx.signal`.
            now: the time in milliseconds.
        """
        with clock_at(now):
            try:
                instructions = Instruction.normalize(action)
            except Exception as error:
                return self, [error_directive(error, "normalize")]
            stage, agent = "hook", self  # the context of the Error directive, if something raises
            try:
                if self.definition.on_before_cmd is not None:
                    result = self.definition.on_before_cmd(agent, instructions)
                    agent, instructions = _parse_before_result(result, agent, instructions)
                stage = "strategy"
                result = self.definition.strategy.cmd(agent, instructions, Context(agent, signal))
                # Direct checks every step itself; checking the result again costs as much as running it.
                direct = type(self.definition.strategy) is Direct
                agent, directives = result if direct else check_outcome(result, "the strategy", agent)
                stage = "hook"
                if self.definition.on_after_cmd is not None:
                    result = self.definition.on_after_cmd(agent, instructions, directives)
                    agent, directives = check_outcome(result, "on_after_cmd", agent)
            except Exception as error:
                return self, [error_directive(error, stage)]
            return agent, directives

    def clone(self, *, id: str | None = None, now: int | None = None) -> Agent:
        """Return another agent with this one's state and definition, and no parent.

        Its identity says that it was cloned, one generation after this one.
        """
        with clock_at(now):
            copy = with_state(self, self.state.delete(PARENT.key))
            set_field(copy, "id", ids.new("agent_") if id is None else ids.check(id, "id"))
            return with_origin(copy, "cloned", self)

    @classmethod
    def from_json(cls, data: bytes | str, definition: Definition | None = None) -> Agent:
        """Decode an agent from what `to_json` wrote; its definition is code and has to be given again."""
        agent = codec.decode(data, cls)
        if definition is None:
            return agent
        if not isinstance(definition, Definition):
            raise WrongType("definition", "a Definition", definition)
        if definition.name != agent.name:
            raise Invalid(
                "definition",
                f"is of {definition.name!r}, the agent is a {agent.name!r}",
                "pass its definition",
            )
        state = initial_state(definition, agent.state)  # fields that are newer than the data get defaults
        definition.check_state(state)
        return msgspec.structs.replace(agent, state=state, definition=definition)


def with_origin(agent: Agent, origin: str, source: Agent) -> Agent:
    """Return an agent whose identity says how it was made from another one, and in which generation.

    An agent without an identity and without the plugin for it stays as it is.
    """
    owned = any(plugin.key == IDENTITY.key for plugin in agent.definition.plugins)
    if not owned and not IDENTITY.has(agent):
        return agent
    identity = IDENTITY.get(source)
    generation = None if identity is None else identity.get_profile("generation")
    made = IDENTITY.get_or_new(agent).put_profile("origin", origin)
    return IDENTITY.put(agent, made.put_profile("generation", (generation or 0) + 1))


class _Changes:
    """Whether an agent that differs from the given one was made during a mount."""

    __slots__ = ("before", "found")

    def __init__(self, before: FrozenMap[str, Any]) -> None:
        self.before = before
        self.found = False


class _MountedAgent(Agent, frozen=True, kw_only=True):
    """The agent that a mount is given. It notices changes, which are lost unless they are returned."""

    EXCLUDED_FIELDS: ClassVar[frozenset[str]] = Agent.EXCLUDED_FIELDS | {"changes"}
    IS_WATCHED: ClassVar[bool] = True

    changes: _Changes = _Changes(EMPTY_MAP)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.record_change()

    def record_change(self) -> None:
        """Compare the state with that of the given agent."""
        old, new = self.changes.before, self.state
        if not self.changes.found:
            self.changes.found = len(old) != len(new) or any(old.get(key) is not new[key] for key in new)

    @classmethod
    def watch(cls, agent: Agent) -> Self:
        """Return an agent to pass to a mount."""
        watched = cls(id=agent.id, name=agent.name, definition=agent.definition)
        set_field(watched, "description", agent.description)
        set_field(watched, "state", agent.state)
        set_field(watched, "changes", _Changes(agent.state))
        return watched


def cmd(
    agent: Agent, action: ActionLike | list[Any], *, signal: Signal | None = None, now: int | None = None
) -> tuple[Agent, list[Directive]]:
    """Run an action and return the agent after it, and its directives; see `Agent.cmd`."""
    return check_agent(agent, "agent").cmd(action, signal=signal, now=now)


def _check_definition_fields(names: Iterable[str]) -> None:
    known = DefinitionFields.__annotations__
    for name in names:
        if name not in known:
            raise InvalidDefinition(name, "is not a field of a definition", f"use {', '.join(known)}")


def check_agent(agent: object, field: str = "agent") -> Agent:
    """Return the agent, or raise `WrongType` if it is not one."""
    if not isinstance(agent, Agent):
        raise WrongType(field, "an Agent", agent)
    return agent


def clock_at(now: int | None) -> Any:
    """Return a context manager that sets the clock to `now`, if it is given."""
    if now is None:
        return nullcontext()
    moment = clock.resolve(now)
    return clock.override(lambda: moment)


def _parse_before_result(result: Any, agent: Agent, instructions: Instructions) -> tuple[Agent, Instructions]:
    """Return the agent and the instructions from what `on_before_cmd` returned."""
    if isinstance(result, tuple) and len(result) == 2:
        result, instructions = result
        # A hook is given a tuple of instructions, and may return it; any other tuple is (action, params).
        given_back = isinstance(instructions, tuple) and all(
            isinstance(instruction, Instruction) for instruction in instructions
        )
        instructions = instructions if given_back else Instruction.normalize(instructions)
    return check_same_agent(
        check_agent(result, "the result of on_before_cmd"), "on_before_cmd", agent
    ), instructions


Instructions = tuple[Instruction, ...]


STOP_SIGNAL = "jido.agent.stop"


def receive(agent: Agent, signal: Signal, *, now: int | None = None) -> tuple[Agent, list[Directive]]:
    """Handle a signal and return the agent after it, and its directives.

    A failure raises nothing: it is an `Error` among the directives.
    """
    check_agent(agent)
    if not isinstance(signal, Signal):
        raise WrongType("signal", "a Signal", signal)
    with clock_at(now):
        return _process_signal(agent, signal)


def _process_signal(agent: Agent, signal: Signal) -> tuple[Agent, list[Directive]]:
    for plugin in agent.definition.plugins:
        if plugin.accepts_signal(signal):
            try:
                answer = plugin.handle_signal(signal, Context(agent, signal, plugin.config))
            except Exception as error:
                return agent, [error_directive(error, "signal")]
            if isinstance(answer, Signal):  # later plugins see the signal that replaces it
                signal = answer
            elif answer is not None:
                return agent.cmd(answer, signal=signal)
    routes = matching_routes(agent.definition.routes, signal.type)
    # A stop signal works without a route; one with a route is left to the agent.
    if not routes:
        return agent, [Stop(reason=STOP_SIGNAL)] if signal.type == STOP_SIGNAL else [
            _routing_error(agent, signal)
        ]
    directives: list[Directive] = []
    for route in routes:
        agent, more = _run_route(agent, route, signal)  # on the agent that the route before left
        directives += more
    return agent, directives


def _run_route(agent: Agent, route: Route, signal: Signal) -> tuple[Agent, list[Directive]]:
    target = route.target
    strategy = agent.definition.strategy
    if target in (STRATEGY_TICK, (STRATEGY_TICK,)):
        try:
            return check_outcome(strategy.tick(agent, Context(agent, signal)), "the strategy's tick", agent)
        except Exception as error:
            return agent, [error_directive(error, "strategy")]
    if isinstance(target, tuple) and target[0] == STRATEGY_CMD:
        target = target[1]
    return agent.cmd(_with_signal_data(agent, target, signal), signal=signal)


def _with_signal_data(agent: Agent, target: Any, signal: Signal) -> Any:
    """Add the fields of the signal's data that the target declares to a target without parameters.

    Other fields are left to `ctx.signal`: a new field of a sender must not break every receiver.
    """
    if isinstance(target, tuple):
        return target
    data = EMPTY_MAP if signal.data is None else signal.data
    if not isinstance(data, FrozenMap):
        data = FrozenMap({"data": data})
    try:
        known = (target if isinstance(target, Action) else agent.definition.action(target)).schema.fields
    except NotFound:
        return target, data
    return target, {name: value for name, value in data.items() if name in known}


def _routing_error(agent: Agent, signal: Signal) -> Error:
    known = ", ".join(sorted({route.pattern for route in agent.definition.routes})) or "none"
    return Error(
        message=f"no route for signal {signal.type!r}; agent {agent.name!r} has routes for: {known}",
        context="routing",
        field="type",
        kind="RoutingError",
    )


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that fits a request, with the reason."""

    agent: Agent
    reason: str
    age: int | None = None


def capabilities(agent: Agent) -> FrozenMap[str, Any]:
    """Return the manifest that others route by; of an agent without an identity, its actions alone."""
    identity = IDENTITY.get(agent)
    manifest = DEFAULT_CAPABILITIES if identity is None else identity.capabilities
    # Plugins are code and may change between versions, so their actions are added here and never stored.
    offered = agent.definition.action_names()
    declared: FrozenList[str] = manifest["actions"]
    return manifest.set("actions", declared.extend(name for name in offered if name not in declared))


def public_snapshot(agent: Agent) -> FrozenMap[str, Any]:
    """Return what an agent shows of itself; one without an identity shows its actions."""
    identity = IDENTITY.get(agent)
    snapshot = _SNAPSHOT_WITHOUT_IDENTITY if identity is None else identity.snapshot()
    return snapshot.set("capabilities", capabilities(agent))


_SNAPSHOT_WITHOUT_IDENTITY = Identity().snapshot()


class Requirements(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent has to be able to do; see `omoide.identity.route`."""

    action: str | None = None
    tags: tuple[str, ...] = ()
    limits: FrozenMap[str, Any] = EMPTY_MAP
    io: FrozenMap[str, Any] = EMPTY_MAP

    @classmethod
    def new(
        cls,
        action: str | Action | None = None,
        tags: Iterable[str] = (),
        limits: Mapping[str, Any] = EMPTY_MAP,
        io: Mapping[str, Any] = EMPTY_MAP,
    ) -> Self:
        """Build requirements from what a caller passed."""
        return cls(
            action=None if action is None else check_text(action_name(action), "action"),
            tags=check_texts(tags, "tags"),
            limits=freeze_map(limits, "limits"),
            io=freeze_map(io, "io"),
        )

    def explain_fit(self, capabilities: Mapping[str, Any], identity: Identity | None) -> str | None:
        """Return the reasons why an agent meets the requirements, or None if it does not.

        Args:
            capabilities: its manifest, with the actions of its plugins.
            identity: its identity; an agent without one is found by its actions only.
        """
        reasons = []
        if self.action is not None:
            if self.action not in capabilities.get("actions", ()):
                return None
            declares = identity is not None and identity.supports_action(self.action)
            reasons.append(f"{'declares' if declares else 'offers'} {self.action}")
        elif identity is None:
            return None
        if any(tag not in capabilities.get("tags", ()) for tag in self.tags):
            return None
        reasons += [f"carries the tag {tag}" for tag in self.tags]
        limits, io = (capabilities.get(key, EMPTY_MAP) for key in ("limits", "io"))
        checks = [_limit_reason(name, limits.get(name), self.limits[name]) for name in sorted(self.limits)]
        checks += [_io_reason(name, io.get(name, False), self.io[name]) for name in sorted(self.io)]
        if None in checks:
            return None
        age = None if identity is None else identity.age
        return "; ".join([*reasons, *filter(None, checks), _experience_reason(age)])


def rank(agents: Iterable[Agent], requirements: Requirements) -> list[Candidate]:
    """Return the agents that fit, best first, each with the reason; see `omoide.identity.route`."""
    if isinstance(agents, Agent) or not isinstance(agents, Iterable):
        raise WrongType("agents", "a list of Agents", agents)
    candidates = []
    for agent in agents:
        if not isinstance(agent, Agent):
            raise WrongType("agents", "Agents only", agent)
        identity = IDENTITY.get(agent)
        reason = requirements.explain_fit(capabilities(agent), identity)
        if reason is not None:
            age = None if identity is None else identity.age
            candidates.append(Candidate(agent=agent, reason=f"{agent.name}: {reason}", age=age))
    # The sort is stable: agents of one age keep the given order.
    return sorted(candidates, key=lambda candidate: experience_sort_key(candidate.age))


def experience_sort_key(age: int | None) -> int:
    """Return a sort key that puts the highest age first and None last."""
    return 1 if age is None else -age


def _limit_reason(name: str, allowed: Any, needed: Any) -> str | None:
    """Return the reason that a limit is satisfied, or None: numbers must reach `needed`, others equal it."""
    if allowed is None:  # not declared, so not limited
        return f"declares no {name}"
    numbers = all(isinstance(side, (int, float)) and not isinstance(side, bool) for side in (allowed, needed))
    if allowed < needed if numbers else allowed != needed:
        return None
    return f"{name} {allowed} allows for {needed}" if numbers else f"{name} is {allowed}"


def _io_reason(name: str, declared: Any, needed: Any) -> str | None:
    """Return the reason that an I/O flag is as needed, or None; one that is not declared is False."""
    same = type(declared) is type(needed) and declared == needed
    return f"io {name} is {declared}" if same else None


def _experience_reason(age: int | None) -> str:
    if age is None:
        return "has no age yet"
    return f"is {age} year old" if age == 1 else f"is {age} years old"
