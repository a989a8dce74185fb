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
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio
from anyio import create_task_group, move_on_after

from omoide.core import codec
from omoide.core.agent import Agent
from omoide.core.checkpoint import Checkpoint
from omoide.core.definition import Definition
from omoide.core.entry import DEFAULT_NAMESPACE, Scope, check_positive
from omoide.core.frozen import FrozenMap
from omoide.core.signal import Signal
from omoide.core.value import Count, Name, Value
from omoide.errors import Conflict, IdTaken, Invalid, NotFound, OwnedElsewhere, RestoreFailed
from omoide.runtime.checkpoints import load_agent, save_agent
from omoide.runtime.checkpoints.protocol import StoredCheckpoint, parse_checkpoint
from omoide.runtime.checkpoints.store import CHECKPOINT_KIND, DocumentCheckpointStore
from omoide.runtime.transport import RecentSignals, signal_digest

if TYPE_CHECKING:
    from omoide.runtime.fleet.fleet import Fleet
    from omoide.runtime.transport import Subscription


# fenced: What is saved with an agent of a fleet?


OutgoingSignal = tuple[str | None, Signal]
"""A signal, and the agent it is for, or None where it is for all."""


class OwnershipRecord(Value, frozen=True, kw_only=True):
    """What is written beside a checkpoint."""

    member: Name = "nobody"
    token: Count = 0
    handled: tuple[str, ...] = ()
    outbox: tuple[OutgoingSignal, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """The note as data."""
        outbox = [[to, signal.to_json().decode()] for to, signal in self.outbox]
        return {"member": self.member, "token": self.token, "handled": [*self.handled], "outbox": outbox}

    @classmethod
    def from_log(cls, id: str, log: tuple[Any, ...]) -> OwnershipRecord:
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


class FencedCheckpointStore(DocumentCheckpointStore):
    """A store that keeps an agent together with a note; made anew for each time it is saved."""

    def __init__(self, store: Any, record: OwnershipRecord | None = None) -> None:
        super().__init__(store)
        self.record = record or OwnershipRecord()
        self.stored_record = OwnershipRecord()
        """The note that was there when it was loaded."""
        self._log: tuple[Any, ...] = ()
        self._rev = -1

    async def load(self, id: str) -> StoredCheckpoint:
        """What is kept of an agent."""
        document = await self._store.load(CHECKPOINT_KIND, id, self._scope(id))
        if document is None:
            return StoredCheckpoint()
        if not isinstance(document.body, str):
            return StoredCheckpoint(rev=document.rev)
        kept = StoredCheckpoint(parse_checkpoint(id, document.body), document.rev)
        self.stored_record, self._log = OwnershipRecord.from_log(id, document.log), document.log
        self._rev = -1 if kept.checkpoint is None else kept.checkpoint.rev
        return kept

    async def save(self, id: str, checkpoint: Checkpoint | None, *, expected_rev: int) -> int:
        """Put a checkpoint and the note in place of those of this revision."""
        body = None if checkpoint is None else codec.encode(checkpoint).decode()
        # An old checkpoint that is written once more keeps its note: nothing more was handled in it.
        same = checkpoint is None or checkpoint.rev == self._rev
        log = self._log if same else (self.record.to_data(),)
        document = self._document(CHECKPOINT_KIND, id, id, body).replace(log=log)
        return int((await self._store.save(document, expected_rev=expected_rev)).rev)

    async def fence(self, id: str) -> OwnershipRecord | None:
        """Write the checkpoint under another revision, so that nobody who had it before can save it.

        The note that was there, which is kept with another owner; None where there is no checkpoint.
        """
        kept = await self.load(id)
        if kept.checkpoint is None:
            return None
        self.record = self.stored_record.replace(member=self.record.member, token=self.record.token)
        higher = kept.checkpoint.replace(rev=kept.checkpoint.rev + 1)
        await self.save(id, higher, expected_rev=kept.rev)
        return self.stored_record


# held: May this agent live here, and what has it done that is not saved yet?


_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def monotonic_now() -> float:
    """Seconds on a clock that nobody sets, and that goes on while the machine sleeps, where it has one."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


class OwnedAgent:
    """An agent that this runtime may let live, and what goes with its next save."""

    def __init__(self, fleet: Fleet, id: str, *, window: int) -> None:
        self.id = id
        self.token = 0
        """The token of the lease; 0 before there is one."""
        self.deadline = 0.0
        self.is_lost = False
        self.is_releasing = False
        """Whether somebody gives it back already."""
        self.renewal_stopped = anyio.Event()
        """Set when it is not renewed any more."""
        self.pending_renewals = 0
        """How many claims are under way."""
        self.renewal_done = anyio.Event()
        """Set when one of them is answered."""
        self.hibernates_on_exit = True
        """Whether it is at rest when it ends here; one that is being taken over lives on elsewhere."""
        self.location_rev = 0
        self.subscription: Subscription | None = None
        self.done = anyio.Event()
        self._fleet = fleet
        self._recent = RecentSignals(window)
        self._unsaved_outbox: deque[OutgoingSignal] = deque()
        """What is to be sent once it is saved."""
        self._outbox: deque[OutgoingSignal] = deque()
        """What is saved, and to be sent."""
        self._saved: tuple[tuple[str, ...], tuple[OutgoingSignal, ...]] = ((), ())
        self._is_blocked = False
        self._send_lock = anyio.Lock()

    def restore(self, record: OwnershipRecord) -> None:
        """Go on from what is written beside the checkpoint."""
        self._recent = RecentSignals(self._recent.size, record.handled)
        self._outbox = deque(record.outbox)
        self._saved = (record.handled, record.outbox)

    # What the server of the agent asks

    def is_valid(self) -> bool:
        """Whether the lease is still good."""
        return not self.is_lost and monotonic_now() < self.deadline

    def record_handled(self, signal: Signal) -> None:
        """A signal was handled."""
        self._recent.add(signal_digest(signal))

    def send(self, signal: Signal, to: str | None) -> None:
        """Have a signal sent once the agent is saved."""
        self._unsaved_outbox.append((to, signal))
        self._is_blocked = False
        self.wake()

    def has_pending(self, *, idle: bool) -> bool:
        """Whether something is to be saved or sent now; when idle, what was sent is taken off the note."""
        if self._is_blocked:
            return False
        return bool(self._unsaved_outbox or self._outbox) or (idle and bool(self._saved[1]))

    async def save(self, agent: Agent, rev: int) -> int:
        """Save the agent with what it handled, and with what it sends."""
        if not self.is_valid():
            raise OwnedElsewhere(self.id, "another runtime")
        fresh = len(self._unsaved_outbox)
        now_stored = (self._recent.digests(), (*self._outbox, *self._unsaved_outbox))
        vault = FencedCheckpointStore(self._fleet.store, self._record(*now_stored))
        self._is_blocked = True  # until it is done: what fails is not tried over and over
        try:
            rev = await save_agent(agent, vault, expected_rev=rev, force=now_stored != self._saved)
        except Conflict:
            self._fleet.lose_agent(self, "somebody else saved it")
            raise
        self._saved, self._is_blocked = now_stored, False
        self._outbox.extend(self._unsaved_outbox.popleft() for _ in range(fresh))
        return rev

    async def flush(self) -> None:
        """Send what is saved; where the transport keeps nothing, beside the agent's letters."""
        if self._fleet.has_durable_transport:
            await self._send_outbox()
        elif self._outbox:
            self._fleet.runtime.spawn(self._send_outbox)

    async def load(self, definition: Definition) -> tuple[Agent, int]:
        """The agent as it was saved last here; what another owner saved is no business of ours."""
        vault = FencedCheckpointStore(self._fleet.store)
        found = await load_agent(self.id, definition, vault)
        if vault.stored_record.token != self.token:
            self._fleet.lose_agent(self, "somebody else took it up")
            raise OwnedElsewhere(self.id, "another runtime")
        return found

    def revert(self) -> None:
        """Forget what was not saved: the agent begins again as it was before that."""
        self._recent = RecentSignals(self._recent.size, self._saved[0])
        self._unsaved_outbox.clear()

    # What others ask

    def has_handled(self, signal: Signal) -> bool:
        """Whether a signal was handled before."""
        return signal_digest(signal) in self._recent

    @property
    def is_unsubscribed(self) -> bool:
        """Whether nothing is brought to it any more, though it lives."""
        closed = getattr(self.subscription, "closed", False) is True
        return closed and not self.is_lost and not self.is_releasing

    @property
    def is_flushed(self) -> bool:
        """Whether all that was handled is saved, and sent."""
        return not self._unsaved_outbox and not self._outbox and self._recent.digests() == self._saved[0]

    def retry(self) -> None:
        """Try again what failed."""
        if self._is_blocked:
            self._is_blocked = False
            self.wake()

    def wake(self) -> None:
        """Have the agent look whether there is something to do."""
        server = self._fleet.runtime.whereis(self.id)
        if server is not None:
            server.mailbox.wake()

    def _record(self, handled: tuple[str, ...], outbox: tuple[OutgoingSignal, ...]) -> OwnershipRecord:
        return OwnershipRecord(member=self._fleet.member, token=self.token, handled=handled, outbox=outbox)

    async def _send_outbox(self) -> None:
        async with self._send_lock:
            while self._outbox:
                to, signal = self._outbox[0]
                try:
                    await self._fleet.deliver(signal, to)
                except (Invalid, NotFound) as error:  # to try again does not help
                    self._drop_undeliverable(to, signal, error)
                except BaseException:
                    self._is_blocked = True
                    raise
                self._outbox.popleft()

    def _drop_undeliverable(self, to: str | None, signal: Signal, error: Exception) -> None:
        runtime: Any = self._fleet.runtime
        runtime.dropped_signals.add(to or "*", signal, str(error), accepted=False)
        server = runtime.whereis(self.id)
        if server is not None:
            server.report_failure(error, "directive", (signal, False))


# leases: Which agents may this runtime let live, and until when?


DEDUPLICATION_WINDOW = 512
"""How many signals are remembered with each agent, so that none of them is handled twice."""

log = logging.getLogger("omoide.runtime")


class Leases:
    """The leases of one runtime, kept up from `run` to the end of its scope."""

    def __init__(
        self, store: Any, member: str, lease_ms: int, on_lost: Callable[[OwnedAgent, str], None]
    ) -> None:
        self.lease_ms = check_positive(lease_ms, "lease_ms")
        self.owned: dict[str, OwnedAgent] = {}
        self.cancel_scope = anyio.CancelScope()
        self._store, self._member = store, member
        self._on_lost = on_lost

    async def run(self) -> None:
        """Renew what is held, and let go of what could not be renewed in time."""
        with self.cancel_scope:
            async with create_task_group() as tasks:
                tasks.start_soon(self._expire)
                while True:
                    await anyio.sleep(self.lease_ms / 3_000)
                    for held in [*self.owned.values()]:
                        held.retry()
                        if held.is_unsubscribed:
                            self._on_lost(held, "its post is read elsewhere")
                        if held.token and not held.is_lost:
                            tasks.start_soon(self._renew, held)

    async def acquire(self, id: str, fleet: Fleet) -> OwnedAgent | None:
        """The right to let an agent live; None while somebody else has it."""
        if id in self.owned:
            raise IdTaken(id)
        # Written down at once, so that nobody here takes it a second time: for the store we are one.
        held = self.owned[id] = OwnedAgent(fleet, id, window=DEDUPLICATION_WINDOW)
        asked = monotonic_now()
        try:
            lease = await self._claim(id)
        except BaseException:
            self.remove(held)
            raise
        if lease is None:
            self.remove(held)
            return None
        held.token, held.deadline = lease.token, asked + self.lease_ms / 1000
        return held

    async def release(self, owned: OwnedAgent) -> None:
        """Let others have an agent; a lease that is another's already is no error."""
        owned.renewal_stopped.set()
        # For the store we are one: a claim that is under way could be answered after this, and be ours again.
        with move_on_after(self.lease_ms / 1000):
            while owned.pending_renewals:
                owned.renewal_done = anyio.Event()
                await owned.renewal_done.wait()
        await self._store.release(CHECKPOINT_KIND, owned.id, _scope(owned.id), owner=self._member)

    def remove(self, owned: OwnedAgent) -> None:
        """An agent is no business of ours any more."""
        if self.owned.get(owned.id) is owned:
            del self.owned[owned.id]
        owned.done.set()

    async def _claim(self, id: str) -> Any:
        return await self._store.claim(
            CHECKPOINT_KIND, id, _scope(id), owner=self._member, ttl_ms=self.lease_ms
        )

    async def _renew(self, owned: OwnedAgent) -> None:
        if owned.renewal_stopped.is_set():
            return
        asked = monotonic_now()
        owned.pending_renewals += 1
        try:
            lease = await self._claim(owned.id)
        except Exception as error:
            log.warning("agent %s: its lease could not be renewed: %s", owned.id, type(error).__name__)
            return
        finally:
            owned.pending_renewals -= 1
            owned.renewal_done.set()
        if owned.renewal_stopped.is_set():
            return
        if lease is None or lease.token != owned.token:
            self._on_lost(owned, "its lease is another's")
        else:  # an earlier claim may be answered after a later one
            owned.deadline = max(owned.deadline, asked + self.lease_ms / 1000)

    async def _expire(self) -> None:
        """End agents whose lease ran out while the store could not be asked."""
        while True:
            await anyio.sleep(self.lease_ms / 20_000)
            for held in [*self.owned.values()]:
                if held.token and not held.is_lost and not held.is_valid():
                    self._on_lost(held, "its lease ran out")


def _scope(id: str) -> Scope:
    return Scope(namespace=DEFAULT_NAMESPACE, agent_id=id)
