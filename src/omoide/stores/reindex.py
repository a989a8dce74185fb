"""The parts of a reindex that all stores share: the claim of a run, its result, the notice of a bound store.

A store is bound to the embedder whose vectors it has. Opened with another one it is written without vectors
and recalled by words, until it is reindexed.

One run at a time reindexes a store. It holds a claim, which it renews after each batch. The claim of a run
that was killed ends when its process is gone from this host, or else with its time.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from shlex import quote

import msgspec

from omoide import clock, ids
from omoide.embedders import LOCAL_ENCODER, Embedder
from omoide.errors import Busy, DiskFull

ProgressCallback = Callable[[int, int], None]
"""Called with the number of finished and of all steps."""

CLAIM_MS = 600_000
"""Time that a run may take for one batch before others count it as dead."""

LAST_BATCH = 32
"""Entries that may be embedded while writers wait, so that a run ends however much is written meanwhile."""

SPACE_FACTOR = 1.25
"""Bytes on the disk for each byte of vectors: keys, pages that are not full, and the log."""


class ReindexClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The claim of a running reindex on its store."""

    owner: str
    host: str
    process: int
    until: int

    @classmethod
    def create(cls) -> ReindexClaim:
        """Return a claim of this process."""
        until = clock.now() + CLAIM_MS
        return cls(owner=ids.uuid7(), host=platform.node(), process=os.getpid(), until=until)

    @classmethod
    def decode(cls, text: str | bytes) -> ReindexClaim:
        """Return the claim that `encode` wrote."""
        return msgspec.json.decode(text, type=cls)

    def encode(self) -> str:
        """Return the claim as text, as stores keep it."""
        return msgspec.json.encode(self).decode()

    def renew(self) -> ReindexClaim:
        """Return the claim with a later end."""
        return msgspec.structs.replace(self, until=max(self.until + 1, clock.now() + CLAIM_MS))

    def is_held(self, store: str) -> bool:
        """Return True unless the run on a store is known to be dead."""
        if self.until <= clock.now() or not clock.is_believed((store,), (self.owner, self.until), CLAIM_MS):
            return False
        return self.host != platform.node() or _process_exists(self.process)

    def refusal(self, store: str) -> Busy:
        """Return the error for a second run."""
        return Busy(
            store,
            f"is being reindexed by process {self.process} on {self.host}",
            "wait until it has finished, or stop it; what it did so far is kept",
        )


def _process_exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        return True
    return True


def lost_claim(store: str) -> Busy:
    """Return the error for a run whose claim was taken by another."""
    return Busy(store, "is being reindexed by another run", "wait until it has finished")


def check_space(store: str, needed: int, free: int) -> None:
    """Raise `DiskFull` if new vectors do not fit beside the old ones."""
    if needed > free:
        raise DiskFull(
            store,
            f"needs {_megabytes(needed)} for vectors beside the old ones, and {_megabytes(free)} are free",
            "free some space and reindex again; the old vectors go on serving",
        )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def reindex_remedy(store: str, embedder: Embedder) -> str:
    """Return the command, or the call, that gives a store the vectors of an embedder."""
    command = f"omoide reindex --store {quote(store)}"
    if embedder.name == LOCAL_ENCODER:
        return command
    if ":" in embedder.name:  # a provider's model
        return f"{command} --embedder {quote(embedder.name)}"
    return "call reindex(store) with this embedder"


def bound_notice(store: str, bound_to: str, embedder: Embedder) -> str:
    """Return the notice of a recall by words in a store that has the vectors of another embedder."""
    return (
        f"only words were compared: the store has vectors of {bound_to!r}, not of {embedder.name!r}; "
        f"for meaning run: {reindex_remedy(store, embedder)}"
    )


def outdated_notice(store: str) -> str:
    """Return the notice of a recall in a store whose terms are those of another version."""
    return (
        "recall finds less: the store was indexed by another version of Omoide; "
        f"run: omoide reindex --store {quote(store)}"
    )
