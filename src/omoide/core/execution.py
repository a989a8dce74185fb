"""Routes, execution of instructions, and strategies.

If several routes match a signal, they run in this order: the more specific pattern, the higher priority, the
one registered earlier.

An action that fails raises nothing: an `Error` directive reports it, and the agent stays as it was.

A strategy turns instructions into a new agent and directives. `Direct` runs them one after the other and has
no state of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from omoide.core.action import Action, Directive, Error, Instruction, RunInstruction, check_name
from omoide.core.frozen import FrozenMap, freeze_map
from omoide.core.signal import Signal, check_pattern, matches_pattern, specificity
from omoide.core.state import (
    SLOTS,
    STRATEGY,
    THREAD,
    Context,
    StateOp,
    StrategyState,
    check_state,
    merge_result,
    with_state,
)
from omoide.core.value import set_field
from omoide.errors import (
    Invalid,
    InvalidDefinition,
    InvalidParams,
    InvalidState,
    OmoideError,
    Unsupported,
    WrongType,
)

if TYPE_CHECKING:
    from omoide.core.agent import Agent


STRATEGY_PRIORITY, AGENT_PRIORITY, PLUGIN_PRIORITY = 50, 0, -10
STRATEGY_CMD, STRATEGY_TICK = "strategy_cmd", "strategy_tick"


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


def as_routes(likes: object, owner: str, priority: int) -> tuple[Route, ...]:
    """Build routes from a list of the forms that `Route.of` takes."""
    if isinstance(likes, (str, bytes)) or not isinstance(likes, Sequence):
        raise WrongType(f"routes of {owner}", "a list of (pattern, target)", likes)
    return tuple(Route.of(like, owner, priority) for like in likes)


RouteLike = Route | tuple[str, Any] | tuple[str, Any, int]


def matching_routes(routes: Iterable[Route], signal_type: str) -> list[Route]:
    """Return the routes for a signal type, in the order in which they run."""
    matches = [route for route in routes if matches_pattern(route.pattern, signal_type)]
    return sorted(matches, key=lambda route: (specificity(route.pattern), route.priority), reverse=True)


def run_instruction(
    agent: Agent, instruction: Instruction, signal: Signal | None = None
) -> tuple[Agent, list[Directive], str]:
    """Run one instruction; return the agent, its directives, and a status: ok, error, or deferred."""
    stage = "normalize"
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
    """Merge what an action returned into an agent; return the agent and the directives.

    Raises:
        WrongType: if the result is not one that an action may return.
        InvalidState: if the new state is not allowed.
    """
    effects: Sequence[Any] = ()
    if isinstance(result, tuple):
        if len(result) != 2:
            raise WrongType("result", "a result, or (result, [directives])", result)
        if not isinstance(result[1], (list, tuple)):
            raise WrongType("the second part of the result", "a list of directives", result[1])
        result, effects = result
    for effect in effects:
        if not isinstance(effect, (Directive, StateOp)):
            raise WrongType("directives", "Directives and state operations only", effect)
    state = merge_result(agent.state, result)
    for effect in effects:
        if isinstance(effect, StateOp):
            state = effect.apply(state)
    return with_checked_state(agent, state), [effect for effect in effects if isinstance(effect, Directive)]


def with_checked_state(agent: Agent, state: FrozenMap[str, Any]) -> Agent:
    """Return the agent with another state, or raise `InvalidState` if it may not have it."""
    if state is agent.state:
        return agent
    check_state(state)
    before, after = THREAD.get(agent), state.get(THREAD.key)
    if before is not None and after is not before and (after is None or not after.extends(before)):
        raise InvalidState(
            "state.__thread__", "would lose or rewrite entries", "append to ctx.thread and return that"
        )
    for key, slot in SLOTS.items():
        if slot.has(agent) and state.get(key) is None:
            raise InvalidState(f"state.{key}", "would be lost", f"return a {slot.kind.__name__} in its place")
    agent.definition.check_state(state, agent.state)
    return with_state(agent, state)


def check_outcome(result: Any, who: str, before: Agent) -> tuple[Agent, list[Directive]]:
    """Check what a strategy or a hook returned; return the agent and the directives.

    Args:
        result: the value returned.
        who: what returned it, for the error message.
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
        if (agent.id, agent.name, agent.definition) != (before.id, before.name, before.definition):
            raise InvalidState(
                f"the agent of {who}", f"is {agent.id!r}, not {before.id!r}", "change its state only"
            )
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
        return "it cannot say what happened"


def _clean_text(text: str) -> str:
    """Replace what a directive cannot hold in text of an exception."""
    return text.replace("\0", "␀").encode(errors="replace").decode()


def _with_defaults(action: Action, instruction: Instruction, params: dict[str, Any]) -> Instruction:
    """Fill in the defaults of the parameters, as far as they are plain data."""
    complete = instruction.params
    for name in params.keys() - complete.keys():
        with suppress(Unsupported):
            complete = complete.set(name, params[name])
    return Instruction(action=action.name, params=complete, target=action)


Outcome = tuple["Agent", list[Directive]]


@runtime_checkable
class Strategy(Protocol):
    """A way to execute commands. `init` may run more than once and must be idempotent."""

    def init(self, agent: Agent, ctx: Context) -> Outcome:
        """Prepare the agent's `__strategy__` state."""
        ...

    def cmd(self, agent: Agent, instructions: Sequence[Instruction], ctx: Context) -> Outcome:
        """Execute instructions."""
        ...

    def tick(self, agent: Agent, ctx: Context) -> Outcome:
        """Continue work in progress."""
        ...

    def snapshot(self, agent: Agent) -> StrategyState:
        """Return the status of the strategy."""
        ...


@runtime_checkable
class SupportsSignalRoutes(Protocol):
    """A strategy with routes of its own."""

    def signal_routes(self) -> Sequence[RouteLike]:
        """Return routes; the targets `("strategy_cmd", x)` and `("strategy_tick",)` call the strategy."""
        ...


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
        started = {"action": instruction.action, "param_keys": sorted(instruction.params)}
        agent = _append_to_thread(agent, "instruction_start", started)
        agent, directives, status = run_instruction(agent, instruction, ctx.signal)
        ended = {"action": instruction.action, "status": status}
        return _append_to_thread(agent, "instruction_end", ended), directives


def _append_to_thread(agent: Agent, kind: str, payload: dict[str, Any]) -> Agent:
    return THREAD.put(agent, THREAD.get_or_new(agent).append({"kind": kind, "payload": payload}))
