"""How much room do recalled entries take where they will be read?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from omoide.core.recalling import Hit

Counter = Callable[[str], int]


def estimate(text: str) -> int:
    """About how many tokens a text has: four letters of English make one, other scripts make more."""
    wide = 0 if text.isascii() else sum(1 for letter in text if ord(letter) > 0x2E7F)
    return -(-(len(text) - wide) // 4) + wide


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
