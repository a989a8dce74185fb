"""Hold a scope in memory as columns, ready to be scored.

Needs NumPy. The store that fills a cache knows the change that it covers, and applies later changes before
each use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from omoide.retrieval.pool import CandidatePool, PoolRow, ScopeStatistics

CacheRow = tuple[Any, ...]
"""Number, features, time, thread, seq, role, speaker, confidence, importance, expiry, vector, write order."""


class ScopeCache:
    """The live entries of a scope as columns, and the change that they cover."""

    def __init__(self, slot: int, dim: int) -> None:
        self.slot = slot
        """Where the store keeps the vectors that the columns hold, if it can hold several sets of them."""
        self.pool = CandidatePool(dim=dim)
        self.generation: str | None = None
        self.covered_seq = 0
        self.numbers: list[int] = []
        self.write_order: list[int] = []
        self.expired_until = 0
        """The latest expiry among the removed rows; no query about an earlier moment can be answered."""
        self._positions: dict[int, int] = {}
        self._expires: dict[int, int] = {}

    def fill(
        self, cache_rows: Sequence[CacheRow], statistics: ScopeStatistics | None = None, reach: int = 8
    ) -> None:
        """Replace all rows."""
        columns = [*zip(*cache_rows, strict=True)] if cache_rows else [()] * 12
        no, features, time, thread, seq, role, speaker, confidence, importance, expires, pooled, written = (
            columns
        )
        self.pool = CandidatePool.build(
            features,
            time=time,
            thread=thread,
            seq=[position or 0 for position in seq],
            role=role,
            speaker=speaker,
            confidence=confidence,
            importance=importance,
            vectors=[vector or b"" for vector in pooled],
            dim=self.pool.dim,
            statistics=statistics,
            max_gap=reach,
        )
        self.numbers = [*no]
        self.write_order = [*written]
        self._positions = dict(zip(no, range(len(no)), strict=True))
        self._expires = {number: at for number, at in zip(no, expires, strict=True) if at is not None}

    def append(self, values: CacheRow) -> None:
        """Add a row."""
        no, features, time, thread, seq, role, speaker, confidence, importance, expires, pooled, written = (
            values
        )
        row = PoolRow(
            features=features,
            time=time,
            thread=thread,
            seq=seq or 0,
            role=role,
            speaker=speaker,
            confidence=confidence,
            importance=importance,
            vectors=pooled or b"",
        )
        self._positions[no] = self.pool.append(row)
        self.numbers.append(no)
        self.write_order.append(written)
        if expires is not None:
            self._expires[no] = expires

    def remove(self, number: int) -> None:
        """Remove a row, if it is here."""
        position = self._positions.pop(number, None)
        self._expires.pop(number, None)
        if position is not None:
            self.pool.drop(position)

    def expire(self, at: int) -> None:
        """Remove what has expired by a moment."""
        for number, end in [*self._expires.items()]:
            if end <= at:
                self.expired_until = max(self.expired_until, end)
                self.remove(number)

    def is_sparse(self) -> bool:
        """Return whether most of the rows are removed ones."""
        return self.pool.size > 2 * len(self._positions) + 64

    def expires_between(self, earlier: int, later: int) -> bool:
        """Return whether a row expires after one moment and until another."""
        return any(earlier < end <= later for end in self._expires.values())

    def speakers(self) -> list[str]:
        """Return the speakers by number; an empty name for one all of whose rows are removed."""
        names = self.pool.speakers
        if len(self._positions) == self.pool.size:
            return names
        present = {*np.unique(self.pool.column("speaker")[self.pool.live]).tolist()}
        return [name if code in present else "" for code, name in enumerate(names)]
