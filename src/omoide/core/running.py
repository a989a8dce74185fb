"""How is one instruction run, and what becomes of its result?

Nothing is raised for what an action does wrong: it is reported as an `Error`, and the agent stays as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from omoide.core import slot
from omoide.core.action import Action, Instruction
from omoide.core.context import Context
from omoide.core.directives import Directive, Error, RunInstruction
from omoide.core.frozen import FrozenMap
from omoide.core.signal import Signal
from omoide.core.state import StateOp, check_state, merged
from omoide.errors import InvalidParams, InvalidState, OmoideError, Unsupported, WrongType

if TYPE_CHECKING:
    from omoide.core.agent import Agent


def run(
    agent: Agent, instruction: Instruction, signal: Signal | None = None
) -> tuple[Agent, list[Directive], str]:
    """The agent after one instruction, its directives, and a status: ok, error, or deferred."""
    stage = "normalize"
    try:
        action = instruction.target or agent.definition.action(instruction.action)
        stage = "params"
        params = action.check(instruction.params)
        if action.effectful:
            return agent, [RunInstruction(instruction=_complete(action, instruction, params))], "deferred"
        stage = "run"
        result = action.run(Context(agent, signal), **params)
        stage = "result"
        agent, directives = apply_result(agent, result)
    except Exception as error:
        return agent, [failure(error, stage, instruction.action)], "error"
    return agent, directives, "ok"


def apply_result(agent: Agent, result: object) -> tuple[Agent, list[Directive]]:
    """The agent with what an action returned merged into it, and the directives it returned."""
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
    state = merged(agent.state, result)
    for effect in effects:
        if isinstance(effect, StateOp):
            state = effect.apply(state)
    return changed(agent, state), [effect for effect in effects if isinstance(effect, Directive)]


def changed(agent: Agent, state: FrozenMap[str, Any]) -> Agent:
    """The agent with another state, if the state is one that it may have after its own."""
    if state is agent.state:
        return agent
    check_state(state)
    before, after = slot.THREAD.get(agent), state.get(slot.THREAD.key)
    if before is not None and after is not before and (after is None or not after.extends(before)):
        raise InvalidState(
            "state.__thread__", "would lose or rewrite entries", "append to ctx.thread and return that"
        )
    for key, kept in slot.SLOTS.items():
        if kept.has(agent) and state.get(key) is None:
            raise InvalidState(f"state.{key}", "would be lost", f"return a {kept.kind.__name__} in its place")
    agent.definition.check_state(state, agent.state)
    return slot.with_state(agent, state)


def outcome(result: Any, who: str, before: Agent) -> tuple[Agent, list[Directive]]:
    """What a strategy or a hook made of an agent, if it only changed what it may, and the directives."""
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[0], type(before)):
        raise WrongType(f"the result of {who}", "(agent, [directives])", result)
    agent, directives = result
    if not isinstance(directives, (list, tuple)):
        raise WrongType(f"the directives of {who}", "a list", directives)
    for directive in directives:
        if not isinstance(directive, Directive):
            raise WrongType(f"the directives of {who}", "Directives only", directive)
    return same(agent, who, before), list(directives)


def same(agent: Agent, who: str, before: Agent) -> Agent:
    """The agent itself, if it is the one before with another state that it may have."""
    if agent is not before:
        if (agent.id, agent.name, agent.definition) != (before.id, before.name, before.definition):
            raise InvalidState(
                f"the agent of {who}", f"is {agent.id!r}, not {before.id!r}", "change its state only"
            )
        changed(before, agent.state)
    return agent


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
