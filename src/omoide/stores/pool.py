"""Build candidate pools from entries and their index data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omoide.core.entry import Entry
from omoide.retrieval.pool import Array, CandidatePool
from omoide.stores import semantics
from omoide.stores.records import TOKEN_DIM, IndexData


def pool_of(
    entries: Sequence[tuple[Entry, IndexData]], dim: int, allowed: Sequence[bool]
) -> tuple[CandidatePool, Array | None]:
    """Return a pool of entries, and the mask of those that pass a filter (None for all)."""
    messages = [entry.message for entry, _ in entries]

    def tokens(rows: Array) -> list[Array]:
        data = [entries[at][1].tokens or b"" for at in pool.column("entry")[rows].tolist()]
        return [np.frombuffer(blob, np.int8).reshape(-1, TOKEN_DIM) for blob in data]

    pool = CandidatePool.build(
        [data.features for _, data in entries],
        time=[semantics.time_of(entry) for entry, _ in entries],
        thread=[None if message is None else message.thread for message in messages],
        seq=[0 if message is None else message.seq for message in messages],
        role=[None if message is None else message.role for message in messages],
        speaker=[None if message is None else message.speaker for message in messages],
        confidence=[entry.confidence for entry, _ in entries],
        importance=[entry.importance for entry, _ in entries],
        vectors=[data.pooled or b"" for _, data in entries],
        dim=dim,
        token_loader=tokens if any(data.tokens for _, data in entries) else None,
    )
    return pool, None if all(allowed) else np.array(allowed, np.bool_)[pool.column("entry")]
