"""How does the agent act on what it is told to do?

A strategy turns instructions into a new agent and directives. `Direct` runs them one after the other and
keeps no state of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from omoide.core import slot
from omoide.core.action import Action, Instruction
from omoide.core.context import Context
from omoide.core.directives import Directive, Error, RunInstruction
from omoide.core.frozen import FrozenMap
from omoide.core.router import RouteLike
from omoide.core.state import StateOp, as_changes, check_state, deep_merge
from omoide.core.strategy_state import StrategyState
from omoide.errors import InvalidParams, InvalidState, OmoideError, Unsupported, WrongType

if TYPE_CHECKING:
    from omoide.core.agent import Agent

Outcome = tuple["Agent", list[Directive]]


@runtime_checkable
class Strategy(Protocol):
    """How an agent acts. `init` may run more than once and must not mind."""

    def init(self, agent: Agent, ctx: Context) -> Outcome:
        """Prepare the agent's `__strategy__` state."""
        ...

    def cmd(self, agent: Agent, instructions: Sequence[Instruction], ctx: Context) -> Outcome:
        """Act on instructions."""
        ...

    def tick(self, agent: Agent, ctx: Context) -> Outcome:
        """Go on with what is under way."""
        ...

    def snapshot(self, agent: Agent) -> StrategyState:
        """How far it has come."""
        ...


@runtime_checkable
class Routed(Protocol):
    """A strategy that wants signals routed its own way."""

    def signal_routes(self) -> Sequence[RouteLike]:
        """Patterns and targets; `("strategy_cmd", x)` and `("strategy_tick",)` come back to the strategy."""
        ...


class Direct:
    """Runs each instruction at once, in order; one that fails changes nothing, and the next ones still run.

    With `thread=True`, or where the agent has a thread already, each run leaves `instruction_start` and
    `instruction_end` there.
    """

    def __init__(self, *, thread: bool = False) -> None:
        self.thread = thread

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Direct) and other.thread == self.thread

    def __hash__(self) -> int:
        return hash((Direct, self.thread))

    def init(self, agent: Agent, ctx: Context) -> Outcome:
        """Nothing to prepare."""
        return agent, []

    def cmd(self, agent: Agent, instructions: Sequence[Instruction], ctx: Context) -> Outcome:
        """Run the instructions; the state threads through them."""
        directives: list[Directive] = []
        for instruction in instructions:
            agent, more = self._tracked(agent, instruction, ctx)
            directives += more
        return agent, directives

    def tick(self, agent: Agent, ctx: Context) -> Outcome:
        """Nothing is ever under way."""
        return agent, []

    def snapshot(self, agent: Agent) -> StrategyState:
        """Always ready."""
        return slot.STRATEGY.get(agent) or StrategyState()

    def _tracked(self, agent: Agent, instruction: Instruction, ctx: Context) -> Outcome:
        if not (self.thread or slot.THREAD.has(agent)):
            return run(agent, instruction, ctx)
        started = {"action": instruction.action, "param_keys": sorted(instruction.params)}
        agent = _noted(agent, "instruction_start", started)
        agent, directives = run(agent, instruction, ctx)
        failed = any(isinstance(directive, Error) for directive in directives)
        ended = {"action": instruction.action, "status": "error" if failed else "ok"}
        return _noted(agent, "instruction_end", ended), directives


def run(agent: Agent, instruction: Instruction, ctx: Context) -> Outcome:
    """One instruction: the agent after it and its directives, or the same agent and an `Error`."""
    stage = "normalize"
    try:
        action = instruction.target or agent.definition.action(instruction.action)
        stage = "params"
        params = action.check(instruction.params)
        if action.effectful:
            return agent, [RunInstruction(instruction=_complete(action, instruction, params))]
        stage = "run"
        result = action.run(Context(agent, ctx.signal), **params)
        stage = "result"
        return apply_result(agent, result)
    except Exception as error:
        return agent, [failure(error, stage, instruction.action)]


def apply_result(agent: Agent, result: object) -> Outcome:
    """The agent with what an action returned merged into it, and the directives it returned."""
    effects: Sequence[Any] = ()
    if isinstance(result, tuple):
        if len(result) != 2 or isinstance(result[1], (str, bytes)) or not isinstance(result[1], Sequence):
            raise WrongType("result", "a result, or (result, [directives])", result)
        result, effects = result
    for effect in effects:
        if not isinstance(effect, (Directive, StateOp)):
            raise WrongType("directives", "Directives and state operations only", effect)
    state = deep_merge(agent.state, as_changes(result))
    for effect in effects:
        if isinstance(effect, StateOp):
            state = effect.apply(state)
    if state is not agent.state:
        agent = changed(agent, state)
    return agent, [effect for effect in effects if isinstance(effect, Directive)]


def changed(agent: Agent, state: FrozenMap[str, Any]) -> Agent:
    """The agent with another state, if the state is one that it may have."""
    before, after = slot.THREAD.get(agent), state.get(slot.THREAD.key)
    check_state(state)
    if before is not None and after is not None and after.id == before.id and not after.extends(before):
        raise InvalidState(
            "state.__thread__", "would lose or rewrite entries", "append to ctx.thread and return that"
        )
    agent.definition.check_state(state)
    return slot.with_state(agent, state)


def outcome(result: Any, who: str, kind: type[Agent]) -> Outcome:
    """What a strategy or a hook returned, if it is an agent and a list of directives."""
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[0], kind):
        raise WrongType(f"the result of {who}", "(agent, [directives])", result)
    agent, directives = result
    if not isinstance(directives, (list, tuple)):
        raise WrongType(f"the directives of {who}", "a list", directives)
    for directive in directives:
        if not isinstance(directive, Directive):
            raise WrongType(f"the directives of {who}", "Directives only", directive)
    return agent, list(directives)


def failure(error: Exception, context: str, action: str | None = None) -> Error:
    """The directive that reports an exception."""
    message, trace = _words(error), ""
    if not isinstance(error, OmoideError):
        import traceback  # only a failing action pays for it

        message = f"{type(error).__name__}: {message}" if message else type(error).__name__
        trace = _clean("".join(traceback.format_exception(error)))
    field = error.parameter if isinstance(error, InvalidParams) else getattr(error, "field", None)
    return Error(
        message=message,
        context=context,
        action=action,
        field=_clean(field) if isinstance(field, str) else None,
        kind=type(error).__name__,
        trace=trace,
    )


def _words(error: Exception) -> str:
    try:
        return _clean(str(error)).strip()
    except Exception:
        return "it cannot say what happened"


def _clean(text: str) -> str:
    """Text that a directive can hold, whatever an exception said."""
    return text.replace("\0", "␀").encode(errors="replace").decode()


def _complete(action: Action, instruction: Instruction, params: dict[str, Any]) -> Instruction:
    """The instruction as it will be run: with the defaults filled in where they are plain data."""
    complete = instruction.params
    for name in params.keys() - complete.keys():
        with suppress(Unsupported):
            complete = complete.set(name, params[name])
    return Instruction(action=action.name, params=complete, target=action)


def _noted(agent: Agent, kind: str, payload: dict[str, Any]) -> Agent:
    return slot.THREAD.put(agent, slot.THREAD.value(agent).append({"kind": kind, "payload": payload}))
