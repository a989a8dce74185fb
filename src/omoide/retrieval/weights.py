"""How much does each sign that a row answers the question count?

The defaults were chosen by cross-validation over conversations (`bench/weights.py`). The arms give z-scores,
so a weight of 1 is one standard deviation.
"""

from __future__ import annotations

from typing import Self

import msgspec


class Signs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The weight of each sign; 0 leaves it out."""

    vector: float = 0.0
    wide: float = 0.0
    window: float = 0.0
    own: float = 0.0
    cover: float = 0.0
    tokens: float = 0.0
    context: float = 0.0
    before: float = 0.0
    episode: float = 0.0
    crowd: float = 0.0
    speaker: float = 0.0
    told: float = 0.0
    date: float = 0.0
    kind: float = 0.0
    asks: float = 0.0
    rarity: float = 0.0
    role: float = 0.0
    reply: float = 0.0
    recency: float = 0.02
    confidence: float = 0.05
    importance: float = 0.05


class Weights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The weights of both stages."""

    first: Signs
    second: Signs | None = None
    """For the best rows of the first stage; None leaves the order as it was."""
    depth: int = 100
    """How many rows the second stage looks at."""
    k1: float = 0.9
    b: float = 0.6

    @classmethod
    def default(cls, *, vectors: bool, tokens: bool) -> Self:
        """The weights for what the embedder gives."""
        if not vectors:
            return cls(first=_WORDS, second=_WORDS_AGAIN)
        return cls(first=_MEANING, second=_TOKENS_AGAIN if tokens else _MEANING_AGAIN)


_WORDS = Signs(window=0.6, speaker=1.0, date=2.0, asks=-1.0, role=1.0, reply=0.3)
_MEANING = Signs(vector=1.0, window=0.6, speaker=1.0, date=2.0, asks=-1.0, role=1.0, reply=0.3)
_WORDS_AGAIN = Signs(
    window=0.25, own=0.15, cover=0.65, episode=0.45, crowd=-0.15, speaker=1.2, told=0.6, date=3.0, kind=1.8,
    asks=-0.7, rarity=0.35, role=1.0, reply=0.3,
)  # fmt: skip
_MEANING_AGAIN = Signs(
    vector=0.1, wide=0.4, window=0.2, own=0.1, cover=0.45, episode=0.3, crowd=-0.15, speaker=1.2, told=0.6,
    date=3.0, kind=1.8, asks=-0.85, rarity=0.35, role=1.0, reply=0.3,
)  # fmt: skip
_TOKENS_AGAIN = Signs(
    vector=0.05, wide=0.2, window=0.15, own=0.1, tokens=0.2, context=0.95, before=0.2, episode=0.2,
    crowd=-0.15, speaker=1.2, told=0.6, date=3.0, kind=1.6, asks=-0.7, rarity=0.3, role=1.0, reply=0.3,
)  # fmt: skip
