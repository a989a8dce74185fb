"""Own agents by leases, and save them so that a former owner cannot.

A lease is claimed in the store for a time, and claimed again when a third of it has passed. It is valid until
a moment of a clock that continues whatever happens to the process: one that was suspended knows, when it
resumes, that its time is over. A former owner that saves nevertheless is refused by the store, because the
next owner has changed the revision (a fence).

The document of a checkpoint has an ownership record besides: who saved it under which token, the last signals
that were handled, and the signals to be sent. All of it is written at once, or nothing: so a signal counts as
handled exactly if its effect is saved. Signals are recognised by a digest of source and id; the last few
hundred are remembered, so a signal that is delivered again later than that counts as new.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import anyio
from anyio import create_task_group, move_on_after

from omoide import clock
from omoide.core import codec
from omoide.core.agent import Agent
from omoide.core.checkpoint import Checkpoint, PendingSchedule
from omoide.core.definition import Definition
from omoide.core.entry import DEFAULT_NAMESPACE, Scope
from omoide.core.frozen import FrozenMap
from omoide.core.signal import Signal
from omoide.core.value import Count, Name, Value
from omoide.errors import Conflict, IdTaken, Invalid, NotFound, OwnedElsewhere, RestoreFailed
from omoide.runtime.checkpoints import SavedAgent, load_saved_agent, save_agent
from omoide.runtime.checkpoints.protocol import StoredCheckpoint, parse_checkpoint
from omoide.runtime.checkpoints.store import CHECKPOINT_KIND, DocumentCheckpointStore
from omoide.runtime.transport import RecentSignals, signal_digest
from omoide.stores.records import check_ttl

if TYPE_CHECKING:
    from omoide.runtime.fleet.fleet import Fleet
    from omoide.runtime.transport import Subscription


OutgoingSignal = tuple[str | None, Signal]
"""The receiver, or None for all, and the signal."""

DEDUPLICATION_WINDOW = 512
"""The number of signals that are remembered with each agent, so that none of them is handled twice."""
log = logging.getLogger("omoide.runtime")


class OwnershipRecord(Value, frozen=True, kw_only=True):
    """The data that is stored beside the checkpoint of an agent of a fleet."""

    member: Name = "unowned"
    token: Count = 0
    handled: tuple[str, ...] = ()
    outbox: tuple[OutgoingSignal, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """Return the record as data of a document."""
        outbox = [[to, signal.to_json().decode()] for to, signal in self.outbox]
        return {"member": self.member, "token": self.token, "handled": [*self.handled], "outbox": outbox}

    @classmethod
    def from_log(cls, id: str, log: tuple[Any, ...]) -> OwnershipRecord:
        """Return the record in the log of a document; without one, nothing was handled."""
        if not log or not isinstance(log[-1], FrozenMap):
            return cls()
        data = log[-1]
        try:
            return cls(
                member=data["member"],
                token=data["token"],
                handled=tuple(data["handled"]),
                outbox=tuple((to, Signal.from_json(text)) for to, text in data["outbox"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise RestoreFailed(f"agent {id!r}", f"its ownership record: {error}") from error


class FencedCheckpointStore(DocumentCheckpointStore):
    """A checkpoint store that saves an agent together with a record; made anew for each save."""

    def __init__(self, store: Any, record: OwnershipRecord | None = None) -> None:
        super().__init__(store)
        self.record = record or OwnershipRecord()
        self.stored_record = OwnershipRecord()
        """The record that was loaded."""
        self._log: tuple[Any, ...] = ()
        self._rev = -1

    async def load(self, id: str) -> StoredCheckpoint:
        """Return the checkpoint of an agent, and keep its record."""
        document = await self._store.load(CHECKPOINT_KIND, id, self._scope(id))
        if document is None:
            return StoredCheckpoint()
        if not isinstance(document.body, str):
            return StoredCheckpoint(rev=document.rev)
        stored = StoredCheckpoint(parse_checkpoint(id, document.body), document.rev)
        self.stored_record, self._log = OwnershipRecord.from_log(id, document.log), document.log
        self._rev = -1 if stored.checkpoint is None else stored.checkpoint.rev
        return stored

    async def save(self, id: str, checkpoint: Checkpoint | None, *, expected_rev: int) -> int:
        """Replace the checkpoint and the record of a revision."""
        body = None if checkpoint is None else codec.encode(checkpoint).decode()
        # An old checkpoint that is written again keeps its record: nothing more was handled in it.
        unchanged = checkpoint is None or checkpoint.rev == self._rev
        log = self._log if unchanged else (self.record.to_data(),)
        document = self._document(CHECKPOINT_KIND, id, id, body).replace(log=log)
        return int((await self._store.save(document, expected_rev=expected_rev)).rev)

    async def fence(self, id: str) -> OwnershipRecord | None:
        """Write the checkpoint under a new revision, so that no former owner can save it.

        Returns:
            The record that was there, which is kept with another owner; None where there is no checkpoint.
        """
        stored = await self.load(id)
        if stored.checkpoint is None:
            return None
        self.record = self.stored_record.replace(member=self.record.member, token=self.record.token)
        fenced = stored.checkpoint.replace(rev=stored.checkpoint.rev + 1)
        await self.save(id, fenced, expected_rev=stored.rev)
        return self.stored_record


class OwnedAgent:
    """An agent that this runtime owns, and what goes with its next save."""

    def __init__(self, fleet: Fleet, id: str, *, window: int) -> None:
        self.id = id
        self.token = 0
        """The token of the lease; 0 before there is one."""
        self.deadline = 0.0
        self.is_lost = False
        self.is_releasing = False
        """True if it is being released already."""
        self.renewal_stopped = anyio.Event()
        """Set when it is not to be renewed any more."""
        self.pending_renewals = 0
        """The number of claims under way."""
        self.renewal_done = anyio.Event()
        """Set when one of them has returned."""
        self.hibernates_on_exit = True
        """True if it hibernates when it ends here; one whose takeover fails keeps its location."""
        self.location_rev = 0
        self.subscription: Subscription | None = None
        self.done = anyio.Event()
        self._fleet = fleet
        self._recent = RecentSignals(window)
        self._unsaved_outbox: deque[OutgoingSignal] = deque()
        """Signals to be saved, and then sent."""
        self._outbox: deque[OutgoingSignal] = deque()
        """Signals that are saved, and to be sent."""
        self._saved: tuple[tuple[str, ...], tuple[OutgoingSignal, ...]] = ((), ())
        self._is_blocked = False
        self._send_lock = anyio.Lock()

    def restore(self, record: OwnershipRecord) -> None:
        """Continue from the record beside the checkpoint."""
        self._recent = RecentSignals(self._recent.size, record.handled)
        self._outbox = deque(record.outbox)
        self._saved = (record.handled, record.outbox)

    # The Ownership of its server

    def is_valid(self) -> bool:
        """Return whether the lease is still valid."""
        return not self.is_lost and clock.monotonic() < self.deadline

    def record_handled(self, signal: Signal) -> None:
        """Record that a signal was handled."""
        self._recent.add(signal_digest(signal))

    def send(self, signal: Signal, to: str | None) -> None:
        """Send a signal once the agent is saved."""
        self._unsaved_outbox.append((to, signal))
        self._is_blocked = False
        self.wake()

    def has_pending(self, *, idle: bool) -> bool:
        """Return whether something is to be saved or sent now; when idle, a record of sent signals counts."""
        if self._is_blocked:
            return False
        return bool(self._unsaved_outbox or self._outbox) or (idle and bool(self._saved[1]))

    async def save(self, agent: Agent, rev: int, schedules: Sequence[PendingSchedule] = ()) -> int:
        """Save the agent with the signals that it handled and those that it sends."""
        if not self.is_valid():
            raise OwnedElsewhere(self.id, "another runtime")
        # Signals that are added during the save are not in the snapshot, and stay unsaved.
        unsaved = len(self._unsaved_outbox)
        snapshot = (self._recent.digests(), (*self._outbox, *self._unsaved_outbox))
        store = FencedCheckpointStore(self._fleet.store, self._record(*snapshot))
        self._is_blocked = True  # until it succeeds: a failure is retried with the next renewal, not at once
        try:
            force = snapshot != self._saved
            rev = await save_agent(agent, store, expected_rev=rev, force=force, schedules=schedules)
        except Conflict:
            self._fleet.lose_agent(self, "another runtime saved it")
            raise
        self._saved, self._is_blocked = snapshot, False
        self._outbox.extend(self._unsaved_outbox.popleft() for _ in range(unsaved))
        return rev

    async def flush(self) -> None:
        """Send the saved signals; where the transport stores nothing, in the background."""
        if self._fleet.has_durable_transport:
            await self._send_outbox()
        elif self._outbox:
            self._fleet.runtime.spawn(self._send_outbox)

    async def load(self, definition: Definition) -> SavedAgent:
        """Return the agent as it was last saved here; raise where another owner has saved it."""
        store = FencedCheckpointStore(self._fleet.store)
        loaded = await load_saved_agent(self.id, definition, store)
        if store.stored_record.token != self.token:
            self._fleet.lose_agent(self, "another runtime owns it")
            raise OwnedElsewhere(self.id, "another runtime")
        return loaded

    def revert(self) -> None:
        """Discard what was not saved: the agent restarts as it was before that."""
        self._recent = RecentSignals(self._recent.size, self._saved[0])
        self._unsaved_outbox.clear()

    # For the fleet

    def has_handled(self, signal: Signal) -> bool:
        """Return whether a signal was handled before."""
        return signal_digest(signal) in self._recent

    @property
    def is_unsubscribed(self) -> bool:
        """True if no signals are delivered to it any more, though it runs."""
        closed = getattr(self.subscription, "closed", False) is True
        return closed and not self.is_lost and not self.is_releasing

    @property
    def is_flushed(self) -> bool:
        """True if everything handled is saved, and sent."""
        return not self._unsaved_outbox and not self._outbox and self._recent.digests() == self._saved[0]

    def retry(self) -> None:
        """Try again what failed."""
        if self._is_blocked:
            self._is_blocked = False
            self.wake()

    def wake(self) -> None:
        """Resume the agent, so that it checks what there is to do."""
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
                except (Invalid, NotFound) as error:  # a retry would fail again
                    self._drop_undeliverable(to, signal, error)
                except BaseException:
                    self._is_blocked = True
                    raise
                # Only after it was delivered: a crash in between sends it again, and the receiver recognises
                # it.
                self._outbox.popleft()

    def _drop_undeliverable(self, to: str | None, signal: Signal, error: Exception) -> None:
        runtime: Any = self._fleet.runtime
        runtime.dropped_signals.add(to or "*", signal, str(error), accepted=False)
        server = runtime.whereis(self.id)
        if server is not None:
            server.report_failure(error, "directive", (signal, False))


class Leases:
    """The leases of one runtime, renewed from `run` to the end of its scope."""

    def __init__(
        self, store: Any, member: str, lease_ms: int, on_lost: Callable[[OwnedAgent, str], None]
    ) -> None:
        self.lease_ms = check_ttl(lease_ms, "lease_ms")
        self.owned: dict[str, OwnedAgent] = {}
        self.cancel_scope = anyio.CancelScope()
        self._store, self._member = store, member
        self._on_lost = on_lost

    async def run(self) -> None:
        """Renew the leases, and lose those that could not be renewed in time."""
        with self.cancel_scope:
            async with create_task_group() as tasks:
                tasks.start_soon(self._expire)
                while True:
                    await anyio.sleep(self.lease_ms / 3_000)
                    for owned in [*self.owned.values()]:
                        owned.retry()
                        if owned.is_unsubscribed:
                            self._on_lost(owned, "its signals are read elsewhere")
                        if owned.token and not owned.is_lost:
                            tasks.start_soon(self._renew, owned)

    async def acquire(self, id: str, fleet: Fleet) -> OwnedAgent | None:
        """Claim an agent, and return its ownership; None while another runtime has it."""
        if id in self.owned:
            raise IdTaken(id)
        # Entered before the claim, so that no other task here claims it, too: the store sees one owner.
        owned = self.owned[id] = OwnedAgent(fleet, id, window=DEDUPLICATION_WINDOW)
        started = clock.monotonic()
        try:
            lease = await self._claim(id)
        except BaseException:
            self.remove(owned)
            raise
        if lease is None:
            self.remove(owned)
            return None
        # From before the claim: the store started to count later, so we never overstay.
        owned.token, owned.deadline = lease.token, started + self.lease_ms / 1000
        return owned

    async def release(self, owned: OwnedAgent) -> None:
        """Release an agent; a lease that another runtime has already is no error."""
        owned.renewal_stopped.set()
        # A claim that is under way could reach the store after the release, and the agent be ours again.
        with move_on_after(self.lease_ms / 1000):
            while owned.pending_renewals:
                owned.renewal_done = anyio.Event()
                await owned.renewal_done.wait()
        await self._store.release(CHECKPOINT_KIND, owned.id, _scope(owned.id), owner=self._member)

    def remove(self, owned: OwnedAgent) -> None:
        """Remove an agent from the owned ones."""
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
        started = clock.monotonic()
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
        # Another token means that the lease expired and had another owner in between.
        if lease is None or lease.token != owned.token:
            self._on_lost(owned, "its lease belongs to another runtime")
        else:  # an earlier claim may return after a later one
            owned.deadline = max(owned.deadline, started + self.lease_ms / 1000)

    async def _expire(self) -> None:
        """Lose the agents whose lease expired while the store could not be reached."""
        while True:
            await anyio.sleep(self.lease_ms / 20_000)
            for owned in [*self.owned.values()]:
                if owned.token and not owned.is_lost and not owned.is_valid():
                    self._on_lost(owned, "its lease expired")


def _scope(id: str) -> Scope:
    return Scope(namespace=DEFAULT_NAMESPACE, agent_id=id)
