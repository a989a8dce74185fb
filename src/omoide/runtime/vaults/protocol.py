"""What can be asked of whoever keeps agents at rest?

`Vault` keeps checkpoints, and the journals of the threads that they point to. Every write names the revision
it builds on, and is done wholly or not at all. `put_aside` and `taken_up` need nothing else; what is optional
is said by the small protocols beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from omoide.core.checkpoint import Checkpoint
from omoide.core.thread import ThreadEntry


class Kept(msgspec.Struct, frozen=True):
    """A checkpoint as a vault holds it, or none; where there never was one, the revision is 0."""

    checkpoint: Checkpoint | None = None
    rev: int = 0


class Journal(msgspec.Struct, frozen=True):
    """The entries of a thread as a vault holds them; where there never was one, the revision is 0."""

    entries: tuple[ThreadEntry, ...] = ()
    rev: int = 0


@runtime_checkable
class Vault(Protocol):
    """Keeps agents at rest."""

    async def load(self, id: str) -> Kept:
        """What is kept of an agent; `RestoreFailed` where it is damaged, or written by a newer Omoide."""
        ...

    async def save(self, id: str, checkpoint: Checkpoint | None, *, expected_rev: int) -> int:
        """Put a checkpoint, or none, in place of the one of this revision; its own, which is higher."""
        ...

    async def read_thread(self, id: str, thread_id: str) -> Journal:
        """The journal of an agent's thread; what a crash left half-written at its end is no part of it."""
        ...

    async def append_thread(
        self,
        id: str,
        thread_id: str,
        entries: Sequence[ThreadEntry],
        *,
        expected_rev: int,
        after: int | None = None,
    ) -> int:
        """Add to a journal of this revision, after so many of its entries or all; its new one, higher."""
        ...


@runtime_checkable
class Removes(Protocol):
    """Lets go of an agent."""

    async def delete(self, id: str) -> bool:
        """Remove an agent and the journals of its threads; whether there was one."""
        ...


@runtime_checkable
class Lists(Protocol):
    """Knows whom it keeps."""

    async def ids(self) -> list[str]:
        """The ids of the agents that can be taken up, in order."""
        ...
