"""When does an agent project by itself?

`Projecting` is a strategy around another one: it projects at every tick, and after a command once enough is
new in the thread. `projecting_action` does it on demand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from omoide.core import slot
from omoide.core.action import Action, Instruction, action
from omoide.core.context import Context
from omoide.core.directives import MEMORY_RESULT, Directive
from omoide.core.frozen import EMPTY_MAP, freeze_map
from omoide.core.memory import Memory
from omoide.core.recalling import check_positive
from omoide.core.router import RouteLike
from omoide.core.running import run
from omoide.core.strategy import Direct, Outcome, Routed, Strategy
from omoide.core.strategy_state import StrategyState
from omoide.errors import WrongType
from omoide.projection.confirming import projection_result
from omoide.projection.projector import Projector
from omoide.projection.running import check_projectors, project, waiting

if TYPE_CHECKING:
    from omoide.core.agent import Agent


class Projecting:
    """Acts as the inner strategy does, and projects the thread into the memory.

    It takes in the answers of memory providers to its projectors, by a route of its own.
    """

    def __init__(
        self,
        projectors: Iterable[Projector],
        inner: Strategy | None = None,
        *,
        after: int = 20,
        config: Mapping[str, Any] = EMPTY_MAP,
    ) -> None:
        self.projectors = check_projectors(projectors)
        self.inner: Strategy = Direct() if inner is None else inner
        if isinstance(inner, type) or not isinstance(self.inner, Strategy):
            raise WrongType("inner", "a Strategy", inner, "give it init, cmd, tick, snapshot")
        self.after = check_positive(after, "after")
        self.config = freeze_map(config, "config")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._parts() == self._parts()

    def __hash__(self) -> int:
        return hash((type(self), self.after))

    def _parts(self) -> tuple[object, ...]:
        return self.projectors, self.inner, self.after, self.config

    def init(self, agent: Agent, ctx: Context) -> Outcome:
        """Prepare what the inner strategy needs."""
        return self.inner.init(agent, ctx)

    def cmd(self, agent: Agent, instructions: Sequence[Instruction], ctx: Context) -> Outcome:
        """Act as the inner strategy does, then project if `after` entries or more are not covered."""
        directives: list[Directive] = []
        rest = []
        for one in instructions:
            if _is_answer(one):  # none of the inner strategy's business, and not worth a note in the thread
                known = Instruction(action=one.action, params=one.params, target=projection_result)
                agent, more, _ = run(agent, known, ctx.signal)
                directives += more
            else:
                rest.append(one)
        if rest or not instructions:
            agent, more = self.inner.cmd(agent, rest, Context(agent, ctx.signal, ctx.config))
            directives += more
        if waiting(agent, self.projectors) >= self.after:
            agent, more = project(agent, self.projectors, config=self.config, patient=True)
            directives += more
        return agent, directives

    def tick(self, agent: Agent, ctx: Context) -> Outcome:
        """Tick as the inner strategy does, then project."""
        agent, directives = self.inner.tick(agent, ctx)
        agent, more = project(agent, self.projectors, config=self.config)
        return agent, [*directives, *more]

    def snapshot(self, agent: Agent) -> StrategyState:
        """How far the inner strategy has come."""
        return self.inner.snapshot(agent)

    def signal_routes(self) -> Sequence[RouteLike]:
        """The routes of the inner strategy, and one for the answers of memory providers."""
        inner = self.inner.signal_routes() if isinstance(self.inner, Routed) else ()
        return [*inner, (MEMORY_RESULT, projection_result)]


def projecting_action(
    projectors: Iterable[Projector], name: str = "project", *, config: Mapping[str, Any] = EMPTY_MAP
) -> Action:
    """An action that projects what is new in the thread into the memory."""
    known, settings = check_projectors(projectors), freeze_map(config, "config")

    @action(name=name)
    def run_projectors(ctx: Context) -> tuple[Memory | None, list[Directive]]:
        """Project what is new in the thread into the memory."""
        agent, directives = project(ctx.agent, known, config=settings)
        return (None if agent is ctx.agent else slot.MEMORY.value(agent)), directives

    return run_projectors


def _is_answer(instruction: Instruction) -> bool:
    return instruction.action == projection_result.name and instruction.target in (None, projection_result)
