"""How does the agent act on what it is told to do?

A strategy turns instructions into a new agent and directives. `Direct` runs them one after the other and
keeps no state of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from omoide.core import slot
from omoide.core.action import Instruction
from omoide.core.context import Context
from omoide.core.directives import Directive
from omoide.core.router import RouteLike
from omoide.core.running import run
from omoide.core.strategy_state import StrategyState

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
    `instruction_end` there; the status of an effectful action, which only will be run, is `deferred`.
    """

    def __init__(self, *, thread: bool = False) -> None:
        self.thread = thread

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.thread == self.thread

    def __hash__(self) -> int:
        return hash((type(self), self.thread))

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
            agent, directives, _ = run(agent, instruction, ctx.signal)
            return agent, directives
        started = {"action": instruction.action, "param_keys": sorted(instruction.params)}
        agent = _noted(agent, "instruction_start", started)
        agent, directives, status = run(agent, instruction, ctx.signal)
        ended = {"action": instruction.action, "status": status}
        return _noted(agent, "instruction_end", ended), directives


def _noted(agent: Agent, kind: str, payload: dict[str, Any]) -> Agent:
    return slot.THREAD.put(agent, slot.THREAD.value(agent).append({"kind": kind, "payload": payload}))
