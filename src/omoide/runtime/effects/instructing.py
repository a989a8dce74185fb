"""How is an action run that touches the world?

It runs beside the agent's letters, on the agent as it was when it began. What it returns is merged into the
agent as it is by then, in its turn; or it is given to the action that was named for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from omoide.core.action import Action
from omoide.core.agent import Agent
from omoide.core.context import Context
from omoide.core.directives import Directive, RunInstruction
from omoide.core.frozen import FrozenMap
from omoide.core.running import apply_result, failure
from omoide.core.signal import Signal
from omoide.core.slot import SLOTS, slot_of
from omoide.errors import Conflict
from omoide.runtime.living import guarded
from omoide.turns.tooling import called

if TYPE_CHECKING:
    from omoide.runtime.server import AgentServer

Settled = tuple[Agent, list[Directive]]


def run(directive: RunInstruction, server: AgentServer) -> None:
    """Begin it; nobody waits."""
    server.job(partial(_run, directive, server, server.at), "run")


async def _run(directive: RunInstruction, server: AgentServer, signal: Signal | None) -> None:
    instruction, before = directive.instruction, server.agent
    life = server.life
    status, result, error = "ok", None, None
    try:
        action = instruction.target or before.definition.action(instruction.action)
        params = action.check(instruction.params)
        result = await guarded(called(action, Context(before, signal), params))
    except Exception as raised:
        status, error = "error", raised
    if life.over:
        return
    if directive.result_action is not None:
        told = {"action": instruction.action, "status": status, "result": _plain(result)}
        told["error"] = None if error is None else failure(error, "run").message
        server.change(partial(_passed_on, directive.result_action, told, signal))
    elif error is not None:
        server.failed(error, "run", (signal, False), instruction.action)
    else:
        server.change(partial(_merged, before, result))


def _passed_on(name: str, told: Mapping[str, Any], signal: Signal | None, agent: Agent) -> Settled:
    action: Action = agent.definition.action(name)
    known = {field: value for field, value in told.items() if field in action.schema.fields}
    return agent.cmd((action, known), signal=signal)


def _merged(before: Agent, result: Any, agent: Agent) -> Settled:
    """The agent with a result; a slot that changed meanwhile is not overwritten with an older idea of it."""
    answer = result[0] if isinstance(result, tuple) and result else result
    slot = slot_of(answer)
    touched = [slot.key] if slot is not None else []
    if isinstance(answer, Mapping):
        touched = [key for key in SLOTS if key in answer]
    for key in touched:
        then, now = SLOTS[key].get(before), SLOTS[key].get(agent)
        if then is not now:
            raise Conflict(f"{key} of agent {agent.id!r}", getattr(then, "rev", 0), getattr(now, "rev", 0))
    return apply_result(agent, result)


def _plain(result: Any) -> Any:
    """What an action returned, without its directives."""
    answer = result[0] if isinstance(result, tuple) and len(result) == 2 else result
    return FrozenMap(answer) if isinstance(answer, dict) else answer
