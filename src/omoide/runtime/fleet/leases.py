"""Leases, fenced saves, deduplication.

The checkpoint's document has, beside the checkpoint, a note: who saved it under which token, the last signals
that were handled, and the signals that are to be sent. All of it is written at once, or nothing: so a signal
counts as handled exactly if its effect is saved.

`source` and `id` are unique together, so a short digest of both stands for a signal. The last so many are
remembered, and older ones forgotten: a signal that comes again later than that counts as new.

A lease is good until a moment of a clock that goes on whatever happens to the process: one that was stopped
for a while knows, when it wakes, that its time is over. Whoever saves without a lease is refused by the store
besides, because the next one to hold the agent has changed its revision.

Each is claimed in the store for a time, and claimed again when a third of it has passed. What could not be
claimed again in time is lost, whatever the reason.
"""

from __future__ import annotations

import logging
import time
from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import anyio
from anyio import create_task_group, move_on_after

from omoide.core import codec
from omoide.core.agent import Agent
from omoide.core.checkpoint import Checkpoint
from omoide.core.definition import Definition
from omoide.core.entry import DEFAULT_NAMESPACE, Scope
from omoide.core.frozen import FrozenMap
from omoide.core.requests import check_positive
from omoide.core.signal import Signal
from omoide.core.value import Count, Name, Value
from omoide.errors import Conflict, IdTaken, Invalid, NotFound, OwnedElsewhere, RestoreFailed
from omoide.runtime.vaults import put_aside, taken_up
from omoide.runtime.vaults.protocol import Kept, read_checkpoint
from omoide.runtime.vaults.store import CHECKPOINT, StoreVault

if TYPE_CHECKING:
    from omoide.runtime.fleet.fleet import Fleet
    from omoide.runtime.transport import Subscription


# fenced: What is saved with an agent of a fleet?


Outgoing = tuple[str | None, Signal]
"""A signal, and the agent it is for, or None where it is for all."""


class Note(Value, frozen=True, kw_only=True):
    """What is written beside a checkpoint."""

    member: Name = "nobody"
    token: Count = 0
    handled: tuple[str, ...] = ()
    outbox: tuple[Outgoing, ...] = ()

    def written(self) -> dict[str, Any]:
        """The note as data."""
        outbox = [[to, signal.to_json().decode()] for to, signal in self.outbox]
        return {"member": self.member, "token": self.token, "handled": [*self.handled], "outbox": outbox}

    @classmethod
    def read(cls, id: str, log: tuple[Any, ...]) -> Note:
        """The note in a document; where there is none, nothing was handled."""
        if not log or not isinstance(log[-1], FrozenMap):
            return cls()
        found = log[-1]
        try:
            return cls(
                member=found["member"],
                token=found["token"],
                handled=tuple(found["handled"]),
                outbox=tuple((to, Signal.from_json(text)) for to, text in found["outbox"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise RestoreFailed(f"agent {id!r}", f"the note beside its checkpoint: {error}") from error


class FencedVault(StoreVault):
    """A store that keeps an agent together with a note; made anew for each time it is saved."""

    def __init__(self, store: Any, note: Note | None = None) -> None:
        super().__init__(store)
        self.note = note or Note()
        self.found = Note()
        """The note that was there when it was loaded."""
        self._log: tuple[Any, ...] = ()
        self._rev = -1

    async def load(self, id: str) -> Kept:
        """What is kept of an agent."""
        document = await self._store.load(CHECKPOINT, id, self._scope(id))
        if document is None:
            return Kept()
        if not isinstance(document.body, str):
            return Kept(rev=document.rev)
        kept = Kept(read_checkpoint(id, document.body), document.rev)
        self.found, self._log = Note.read(id, document.log), document.log
        self._rev = -1 if kept.checkpoint is None else kept.checkpoint.rev
        return kept

    async def save(self, id: str, checkpoint: Checkpoint | None, *, expected_rev: int) -> int:
        """Put a checkpoint and the note in place of those of this revision."""
        body = None if checkpoint is None else codec.encode(checkpoint).decode()
        # An old checkpoint that is written once more keeps its note: nothing more was handled in it.
        same = checkpoint is None or checkpoint.rev == self._rev
        log = self._log if same else (self.note.written(),)
        document = self._document(CHECKPOINT, id, id, body).replace(log=log)
        return int((await self._store.save(document, expected_rev=expected_rev)).rev)

    async def fence(self, id: str) -> Note | None:
        """Write the checkpoint under another revision, so that nobody who had it before can save it.

        The note that was there, which is kept with another owner; None where there is no checkpoint.
        """
        kept = await self.load(id)
        if kept.checkpoint is None:
            return None
        self.note = self.found.replace(member=self.note.member, token=self.note.token)
        higher = kept.checkpoint.replace(rev=kept.checkpoint.rev + 1)
        await self.save(id, higher, expected_rev=kept.rev)
        return self.found


# recent: Was this signal here before?


DIGEST_BYTES = 16


def mark(signal: Signal, *about: str) -> str:
    """A short text that stands for a signal, and for what else makes it another one.

    Neither a source nor an id holds a control character, so the parts cannot run into each other.
    """
    parts = "\0".join((*about, signal.source, signal.id))
    return urlsafe_b64encode(blake2b(parts.encode(), digest_size=DIGEST_BYTES).digest()).decode().rstrip("=")


class Recent:
    """The marks of the last signals, oldest first."""

    __slots__ = ("_marks", "size")

    def __init__(self, size: int, marks: Iterable[str] = ()) -> None:
        self.size = size
        self._marks = dict.fromkeys(marks)

    def __contains__(self, one: str) -> bool:
        return one in self._marks

    def __len__(self) -> int:
        return len(self._marks)

    def add(self, one: str) -> None:
        """Remember a mark, and forget the oldest where there are too many."""
        self._marks.pop(one, None)
        self._marks[one] = None
        while len(self._marks) > self.size:
            del self._marks[next(iter(self._marks))]

    def marks(self) -> tuple[str, ...]:
        """All of them, oldest first."""
        return tuple(self._marks)


# held: May this agent live here, and what has it done that is not saved yet?


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


# leases: Which agents may this runtime let live, and until when?


WINDOW = 512
"""How many signals are remembered with each agent, so that none of them is handled twice."""

log = logging.getLogger("omoide.runtime")


class Leases:
    """The leases of one runtime, kept up from `run` to the end of its scope."""

    def __init__(self, store: Any, member: str, lease_ms: int, lose: Callable[[Held, str], None]) -> None:
        self.ms = check_positive(lease_ms, "lease_ms")
        self.held: dict[str, Held] = {}
        self.scope = anyio.CancelScope()
        self._store, self._member = store, member
        self._lose = lose

    async def run(self) -> None:
        """Renew what is held, and let go of what could not be renewed in time."""
        with self.scope:
            async with create_task_group() as tasks:
                tasks.start_soon(self._watch)
                while True:
                    await anyio.sleep(self.ms / 3_000)
                    for held in [*self.held.values()]:
                        held.unstick()
                        if held.is_deaf:
                            self._lose(held, "its post is read elsewhere")
                        if held.token and not held.lost:
                            tasks.start_soon(self._renew, held)

    async def take(self, id: str, fleet: Fleet) -> Held | None:
        """The right to let an agent live; None while somebody else has it."""
        if id in self.held:
            raise IdTaken(id)
        # Written down at once, so that nobody here takes it a second time: for the store we are one.
        held = self.held[id] = Held(fleet, id, window=WINDOW)
        asked = now()
        try:
            lease = await self._claim(id)
        except BaseException:
            self.forget(held)
            raise
        if lease is None:
            self.forget(held)
            return None
        held.token, held.deadline = lease.token, asked + self.ms / 1000
        return held

    async def release(self, held: Held) -> None:
        """Let others have an agent; a lease that is another's already is no error."""
        held.released.set()
        # For the store we are one: a claim that is under way could be answered after this, and be ours again.
        with move_on_after(self.ms / 1000):
            while held.renewing:
                held.quiet = anyio.Event()
                await held.quiet.wait()
        await self._store.release(CHECKPOINT, held.id, _scope(held.id), owner=self._member)

    def forget(self, held: Held) -> None:
        """An agent is no business of ours any more."""
        if self.held.get(held.id) is held:
            del self.held[held.id]
        held.gone.set()

    async def _claim(self, id: str) -> Any:
        return await self._store.claim(CHECKPOINT, id, _scope(id), owner=self._member, ttl_ms=self.ms)

    async def _renew(self, held: Held) -> None:
        if held.released.is_set():
            return
        asked = now()
        held.renewing += 1
        try:
            lease = await self._claim(held.id)
        except Exception as error:
            log.warning("agent %s: its lease could not be renewed: %s", held.id, type(error).__name__)
            return
        finally:
            held.renewing -= 1
            held.quiet.set()
        if held.released.is_set():
            return
        if lease is None or lease.token != held.token:
            self._lose(held, "its lease is another's")
        else:  # an earlier claim may be answered after a later one
            held.deadline = max(held.deadline, asked + self.ms / 1000)

    async def _watch(self) -> None:
        """End agents whose lease ran out while the store could not be asked."""
        while True:
            await anyio.sleep(self.ms / 20_000)
            for held in [*self.held.values()]:
                if held.token and not held.lost and not held.holds():
                    self._lose(held, "its lease ran out")


def _scope(id: str) -> Scope:
    return Scope(namespace=DEFAULT_NAMESPACE, agent_id=id)
