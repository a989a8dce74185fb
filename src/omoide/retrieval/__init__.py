"""Rank the memories of a scope for a query, and explain the ranking.

The package is pure: it knows no store. `text` tokenizes, stems and extracts what a store indexes of a text,
`sentences` finds where sentences end. `queries` parses queries, `times` the times in them. `pool` holds the
candidates as NumPy columns and computes their lexical and vector scores, `ranking` weights these and other
features, `relevance` estimates how likely a hit helps and which hits a newer one replaces. Only these three
need NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omoide._lazy import attach

if TYPE_CHECKING:
    from omoide.retrieval.text import TokenCounter, bm25, estimate_tokens, terms, token_counter
    from omoide.retrieval.times import intervals

__all__ = ["TokenCounter", "bm25", "estimate_tokens", "intervals", "terms", "token_counter"]

__getattr__, __dir__ = attach(
    __name__,
    attributes={
        "text": ("TokenCounter", "bm25", "estimate_tokens", "terms", "token_counter"),
        "times": ("intervals",),
    },
)
