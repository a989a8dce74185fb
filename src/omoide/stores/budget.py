"""How much room do recalled entries take where they will be read?"""

from __future__ import annotations

from collections.abc import Sequence

from omoide.core.recalling import Hit
from omoide.retrieval.tokens import Counter as Counter
from omoide.retrieval.tokens import estimate as estimate


def rendered(hit: Hit) -> str:
    """An entry as it will stand in a prompt: on a line of its own, dated."""
    return f"- [0000-00-00] {hit.entry.content}\n"


def fitting(hits: Sequence[Hit], room: int, count: Counter) -> tuple[list[Hit], int]:
    """The best hits that fit, and how many do not; a long one is passed over for shorter ones after it."""
    kept, used = [], 0
    for hit in hits:
        size = count(rendered(hit))
        if used + size <= room:
            used += size
            kept.append(hit)
    return kept, len(hits) - len(kept)
