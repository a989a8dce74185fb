"""May this agent live here, and what has it done that is not saved yet?

A lease is good until a moment of a clock that goes on whatever happens to the process: one that was stopped
for a while knows, when it wakes, that its time is over. Whoever saves without a lease is refused by the store
besides, because the next one to hold the agent has changed its revision.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

import anyio

from omoide.core.agent import Agent
from omoide.core.definition import Definition
from omoide.core.signal import Signal
from omoide.errors import Conflict, Invalid, NotFound, OwnedElsewhere
from omoide.runtime.fleet.fenced import FencedVault, Note, Outgoing
from omoide.runtime.recent import Recent, mark
from omoide.runtime.vaults import put_aside, taken_up

if TYPE_CHECKING:
    from omoide.runtime.fleet.fleet import Fleet
    from omoide.runtime.transport import Subscription

_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def now() -> float:
    """Seconds on a clock that nobody sets, and that goes on while the machine sleeps, where it has one."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


class Held:
    """An agent that this runtime may let live, and what goes with its next save."""

    def __init__(self, fleet: Fleet, id: str, *, window: int) -> None:
        self.id = id
        self.token = 0
        """The token of the lease; 0 before there is one."""
        self.deadline = 0.0
        self.lost = False
        self.leaving = False
        """Whether somebody gives it back already."""
        self.released = anyio.Event()
        """Set when it is not renewed any more."""
        self.renewing = 0
        """How many claims are under way."""
        self.quiet = anyio.Event()
        """Set when one of them is answered."""
        self.rests = True
        """Whether it is at rest when it ends here; one that is being taken over lives on elsewhere."""
        self.place_rev = 0
        self.subscription: Subscription | None = None
        self.gone = anyio.Event()
        self._fleet = fleet
        self._recent = Recent(window)
        self._fresh: deque[Outgoing] = deque()
        """What is to be sent once it is saved."""
        self._ready: deque[Outgoing] = deque()
        """What is saved, and to be sent."""
        self._stored: tuple[tuple[str, ...], tuple[Outgoing, ...]] = ((), ())
        self._stuck = False
        self._sending = anyio.Lock()

    def restore(self, note: Note) -> None:
        """Go on from what is written beside the checkpoint."""
        self._recent = Recent(self._recent.size, note.handled)
        self._ready = deque(note.outbox)
        self._stored = (note.handled, note.outbox)

    # What the server of the agent asks

    def holds(self) -> bool:
        """Whether the lease is still good."""
        return not self.lost and now() < self.deadline

    def note(self, signal: Signal) -> None:
        """A signal was handled."""
        self._recent.add(mark(signal))

    def send(self, signal: Signal, to: str | None) -> None:
        """Have a signal sent once the agent is saved."""
        self._fresh.append((to, signal))
        self._stuck = False
        self.wake()

    def waits(self, *, idle: bool) -> bool:
        """Whether something is to be saved or sent now; when idle, what was sent is taken off the note."""
        if self._stuck:
            return False
        return bool(self._fresh or self._ready) or (idle and bool(self._stored[1]))

    async def save(self, agent: Agent, rev: int) -> int:
        """Save the agent with what it handled, and with what it sends."""
        if not self.holds():
            raise OwnedElsewhere(self.id, "another runtime")
        fresh = len(self._fresh)
        now_stored = (self._recent.marks(), (*self._ready, *self._fresh))
        vault = FencedVault(self._fleet.store, self._note(*now_stored))
        self._stuck = True  # until it is done: what fails is not tried over and over
        try:
            rev = await put_aside(agent, vault, expected_rev=rev, anew=now_stored != self._stored)
        except Conflict:
            self._fleet.lose(self, "somebody else saved it")
            raise
        self._stored, self._stuck = now_stored, False
        self._ready.extend(self._fresh.popleft() for _ in range(fresh))
        return rev

    async def flush(self) -> None:
        """Send what is saved; where the transport keeps nothing, beside the agent's letters."""
        if self._fleet.keeps:
            await self._flushed()
        elif self._ready:
            self._fleet.runtime.spawn(self._flushed)

    async def taken_up(self, definition: Definition) -> tuple[Agent, int]:
        """The agent as it was saved last here; what another owner saved is no business of ours."""
        vault = FencedVault(self._fleet.store)
        found = await taken_up(self.id, definition, vault)
        if vault.found.token != self.token:
            self._fleet.lose(self, "somebody else took it up")
            raise OwnedElsewhere(self.id, "another runtime")
        return found

    def revert(self) -> None:
        """Forget what was not saved: the agent begins again as it was before that."""
        self._recent = Recent(self._recent.size, self._stored[0])
        self._fresh.clear()

    # What others ask

    def knows(self, signal: Signal) -> bool:
        """Whether a signal was handled before."""
        return mark(signal) in self._recent

    @property
    def is_deaf(self) -> bool:
        """Whether nothing is brought to it any more, though it lives."""
        closed = getattr(self.subscription, "closed", False) is True
        return closed and not self.lost and not self.leaving

    @property
    def settled(self) -> bool:
        """Whether all that was handled is saved, and sent."""
        return not self._fresh and not self._ready and self._recent.marks() == self._stored[0]

    def unstick(self) -> None:
        """Try again what failed."""
        if self._stuck:
            self._stuck = False
            self.wake()

    def wake(self) -> None:
        """Have the agent look whether there is something to do."""
        server = self._fleet.runtime.whereis(self.id)
        if server is not None:
            server.mailbox.wake()

    def _note(self, handled: tuple[str, ...], outbox: tuple[Outgoing, ...]) -> Note:
        return Note(member=self._fleet.member, token=self.token, handled=handled, outbox=outbox)

    async def _flushed(self) -> None:
        async with self._sending:
            while self._ready:
                to, signal = self._ready[0]
                try:
                    await self._fleet.deliver(signal, to)
                except (Invalid, NotFound) as error:  # to try again does not help
                    self._refused(to, signal, error)
                except BaseException:
                    self._stuck = True
                    raise
                self._ready.popleft()

    def _refused(self, to: str | None, signal: Signal, error: Exception) -> None:
        runtime: Any = self._fleet.runtime
        runtime.dropped.add(to or "*", signal, str(error), accepted=False)
        server = runtime.whereis(self.id)
        if server is not None:
            server.failed(error, "directive", (signal, False))
