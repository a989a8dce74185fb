"""When is a living agent saved, and who waits for that?

By its terms after so many signals, when somebody asks for it, and in the end. An agent of a fleet is held by
a lease besides: what it handled and what it sends is saved with it, and a signal leaves only after that.

"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from omoide.core.execution import failure
from omoide.runtime.mailbox import Reply
from omoide.runtime.vaults import put_aside

if TYPE_CHECKING:
    from omoide.core.agent import Agent
    from omoide.core.definition import Definition
    from omoide.core.signal import Signal
    from omoide.runtime.server import AgentServer


class Hold(Protocol):
    """The right to let an agent live, where several runtimes could."""

    def holds(self) -> bool:
        """Whether the right is still there."""
        ...

    def note(self, signal: Signal) -> None:
        """A signal was handled."""
        ...

    def send(self, signal: Signal, to: str | None) -> None:
        """Have a signal sent to an agent, or to all, once the agent is saved."""
        ...

    def waits(self, *, idle: bool) -> bool:
        """Whether there is something that has to be saved or sent without waiting for another signal."""
        ...

    async def save(self, agent: Agent, rev: int) -> int:
        """Save the agent with what was noted; its new revision."""
        ...

    async def flush(self) -> None:
        """Send what is saved."""
        ...

    async def taken_up(self, definition: Definition) -> tuple[Agent, int]:
        """The agent as it was saved last, and its revision; an error where another owner has it."""
        ...

    def revert(self) -> None:
        """The agent begins again as it was saved last."""
        ...


class Keeping:
    """How far an agent is saved, and whoever is answered once it is."""

    __slots__ = ("_owed", "hold", "rev", "unsaved")

    def __init__(self, rev: int, hold: Hold | None) -> None:
        self.rev = rev
        """The revision of its checkpoint, 0 before there is one; what another saved is not overwritten."""
        self.hold = hold
        self.unsaved = 0
        self._owed: list[Reply] = []

    @property
    def held(self) -> bool:
        """Whether the agent may live here; it always may where there is one place only."""
        return self.hold is None or self.hold.holds()

    def note(self, signal: Signal, *, own: bool) -> None:
        """A signal was handled."""
        self.unsaved += 1
        if self.hold is not None and not own:
            self.hold.note(signal)

    def is_due(self, every: int | None, *, letter: bool = False, idle: bool = False) -> bool:
        """Whether it is time to save."""
        if letter and every is not None and self.unsaved >= every:
            return True
        return self.hold is not None and self.hold.waits(idle=idle)

    def owe(self, reply: Reply) -> None:
        """Answer when the agent is saved."""
        self._owed.append(reply)

    def settled(self) -> list[Reply]:
        """Whoever was to be answered, taken out."""
        owed, self._owed = self._owed, []
        return owed

    async def save(self, server: AgentServer) -> bool:
        """Put the agent into the vault; whether that was done. Those who wait for it are told."""
        agent, self.unsaved = server.agent, 0
        try:
            if self.hold is None:
                self.rev = await put_aside(agent, server.runtime.open_vault(), expected_rev=self.rev)
            else:
                self.rev = await self.hold.save(agent, self.rev)
                await self.hold.flush()
        except Exception as error:
            for one in self.settled():
                one.fail(error)
            server.report(failure(error, "checkpoint"))
            return False
        for one in self.settled():
            one.give(agent)
        return True
