"""When is a living agent saved, and who waits for that?

By its terms after so many signals, when somebody asks for it, and in the end. An agent of a fleet is held by
a lease besides: what it handled and what it sends is saved with it, and a signal leaves only after that.

"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from omoide.core.execution import error_directive
from omoide.runtime.checkpoints import save_agent
from omoide.runtime.mailbox import PendingReply

if TYPE_CHECKING:
    from omoide.core.agent import Agent
    from omoide.core.definition import Definition
    from omoide.core.signal import Signal
    from omoide.runtime.server import AgentServer


class Ownership(Protocol):
    """The right to let an agent live, where several runtimes could."""

    def is_valid(self) -> bool:
        """Whether the right is still there."""
        ...

    def record_handled(self, signal: Signal) -> None:
        """A signal was handled."""
        ...

    def send(self, signal: Signal, to: str | None) -> None:
        """Have a signal sent to an agent, or to all, once the agent is saved."""
        ...

    def has_pending(self, *, idle: bool) -> bool:
        """Whether there is something that has to be saved or sent without waiting for another signal."""
        ...

    async def save(self, agent: Agent, rev: int) -> int:
        """Save the agent with what was noted; its new revision."""
        ...

    async def flush(self) -> None:
        """Send what is saved."""
        ...

    async def load(self, definition: Definition) -> tuple[Agent, int]:
        """The agent as it was saved last, and its revision; an error where another owner has it."""
        ...

    def revert(self) -> None:
        """The agent begins again as it was saved last."""
        ...


class Persistence:
    """How far an agent is saved, and whoever is answered once it is."""

    __slots__ = ("_waiters", "ownership", "rev", "unsaved_count")

    def __init__(self, rev: int, ownership: Ownership | None) -> None:
        self.rev = rev
        """The revision of its checkpoint, 0 before there is one; what another saved is not overwritten."""
        self.ownership = ownership
        self.unsaved_count = 0
        self._waiters: list[PendingReply] = []

    @property
    def is_owned(self) -> bool:
        """Whether the agent may live here; it always may where there is one place only."""
        return self.ownership is None or self.ownership.is_valid()

    def record_handled(self, signal: Signal, *, internal: bool) -> None:
        """A signal was handled."""
        self.unsaved_count += 1
        if self.ownership is not None and not internal:
            self.ownership.record_handled(signal)

    def is_due(self, every: int | None, *, after_signal: bool = False, idle: bool = False) -> bool:
        """Whether it is time to save."""
        if after_signal and every is not None and self.unsaved_count >= every:
            return True
        return self.ownership is not None and self.ownership.has_pending(idle=idle)

    def add_waiter(self, reply: PendingReply) -> None:
        """Answer when the agent is saved."""
        self._waiters.append(reply)

    def pop_waiters(self) -> list[PendingReply]:
        """Whoever was to be answered, taken out."""
        owed, self._waiters = self._waiters, []
        return owed

    async def save(self, server: AgentServer) -> bool:
        """Put the agent into the vault; whether that was done. Those who wait for it are told."""
        agent, self.unsaved_count = server.agent, 0
        try:
            if self.ownership is None:
                self.rev = await save_agent(
                    agent, server.runtime.open_checkpoint_store(), expected_rev=self.rev
                )
            else:
                self.rev = await self.ownership.save(agent, self.rev)
                await self.ownership.flush()
        except Exception as error:
            for one in self.pop_waiters():
                one.set_exception(error)
            server.report(error_directive(error, "checkpoint"))
            return False
        for one in self.pop_waiters():
            one.set_result(agent)
        return True
