"""What is saved with an agent of a fleet?

The checkpoint's document has, beside the checkpoint, a note: who saved it under which token, the last signals
that were handled, and the signals that are to be sent. All of it is written at once, or nothing: so a signal
counts as handled exactly if its effect is saved.
"""

from __future__ import annotations

from typing import Any

from omoide.core import codec
from omoide.core.checkpoint import Checkpoint
from omoide.core.frozen import FrozenMap
from omoide.core.signal import Signal
from omoide.core.value import Count, Name, Value
from omoide.errors import RestoreFailed
from omoide.runtime.vaults.protocol import Kept
from omoide.runtime.vaults.store import CHECKPOINT, StoreVault
from omoide.runtime.vaults.written import read_checkpoint

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
