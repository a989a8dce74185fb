"""How do entries become candidates?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omoide.core.entry import Entry
from omoide.retrieval.pool import Array, CandidatePool
from omoide.stores import semantics
from omoide.stores.codec import IndexData

TOKEN_DIM = 64


def pool_of(
    entries: Sequence[tuple[Entry, IndexData]], dim: int, allowed: Sequence[bool]
) -> tuple[CandidatePool, Array | None]:
    """A pool of entries, and which of them a filter lets pass; None for all."""
    messages = [entry.message for entry, _ in entries]

    def tokens(places: Array) -> list[Array]:
        found = [entries[int(place)][1].tokens or b"" for place in places]
        return [np.frombuffer(blob, np.int8).reshape(-1, TOKEN_DIM) for blob in found]

    pool = CandidatePool.build(
        [found.features for _, found in entries],
        time=[semantics.time_of(entry) for entry, _ in entries],
        thread=[None if message is None else message.thread for message in messages],
        seq=[0 if message is None else message.seq for message in messages],
        role=[None if message is None else message.role for message in messages],
        speaker=[None if message is None else message.speaker for message in messages],
        confidence=[entry.confidence for entry, _ in entries],
        importance=[entry.importance for entry, _ in entries],
        vectors=[found.pooled or b"" for _, found in entries],
        dim=dim,
        token_loader=tokens if any(found.tokens for _, found in entries) else None,
    )
    return pool, None if all(allowed) else np.array(allowed, np.bool_)
