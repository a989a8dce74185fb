"""How much does each sign that a row answers the question count?

The defaults were chosen by cross-validation over conversations (`bench/weights.py`). The arms give z-scores, so
a weight of 1 is one standard deviation.
"""

from __future__ import annotations

from typing import Self

import msgspec


class Signs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The weight of each sign; 0 leaves it out."""

    vector: float = 0.0
    window: float = 0.0
    own: float = 0.0
    speaker: float = 0.0
    date: float = 0.0
    asks: float = 0.0
    role: float = 0.0
    reply: float = 0.0
    tokens: float = 0.0
    near: float = 0.0
    episode: float = 0.0
    length: float = 0.0
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
    b: float = 0.4

    @classmethod
    def default(cls, *, vectors: bool, tokens: bool) -> Self:
        """The weights for what the embedder gives."""
        shared = {"window": 0.6, "speaker": 1.0, "date": 1.0, "asks": -1.0, "role": 1.0, "reply": 0.3}
        if not vectors:
            return cls(first=Signs(**shared))
        first = Signs(vector=1.0, **shared)
        if not tokens:
            return cls(first=first)
        second = Signs(
            vector=0.3, window=0.5, tokens=1.0, near=0.45, episode=0.7, length=2.0, speaker=2.0, date=5.0, asks=-2.3,
            role=2.0, reply=0.6,
        )  # fmt: skip
        return cls(first=first, second=second)
