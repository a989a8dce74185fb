"""Which texts have the question's words in them, when nothing but Python is there?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import log1p

K1, B = 0.9, 0.4


def bm25(asked: Sequence[str], texts: Sequence[Sequence[str]]) -> list[float]:
    """BM25 of each text, given as its terms, for the terms asked."""
    counts = [Counter(terms) for terms in texts]
    mean = sum(map(len, texts)) / len(texts) if texts else 0.0
    rarity = {}
    for term in dict.fromkeys(asked):
        frequency = sum(term in count for count in counts)
        rarity[term] = log1p((len(texts) - frequency + 0.5) / (frequency + 0.5))
    scores = []
    for terms, count in zip(texts, counts, strict=True):
        norm = K1 * (1 - B + B * len(terms) / (mean or 1.0))
        scores.append(sum(rarity[term] * count[term] * (K1 + 1) / (count[term] + norm) for term in rarity))
    return scores
