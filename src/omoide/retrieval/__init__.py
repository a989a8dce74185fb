"""Rank the memories of a scope for a query, and explain the ranking.

The package is pure: it knows no store. `text` tokenizes and stems, `features` extracts what a store indexes
of a text, `query` parses the query, `pool` holds the candidates as NumPy columns, `scores` computes lexical
and vector scores, and `ranking` combines them. `text`, `features` and `query` need no NumPy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omoide._lazy import attach

if TYPE_CHECKING:
    from omoide.retrieval.query import Interval, ParsedQuery, intervals, parse_query
    from omoide.retrieval.text import TokenCounter, bm25, chunks, estimate_tokens, terms, token_counter

__all__ = [
    "Interval",
    "ParsedQuery",
    "TokenCounter",
    "bm25",
    "chunks",
    "estimate_tokens",
    "intervals",
    "parse_query",
    "terms",
    "token_counter",
]

__getattr__, __dir__ = attach(
    __name__,
    attributes={
        "query": ("Interval", "ParsedQuery", "intervals", "parse_query"),
        "text": ("TokenCounter", "bm25", "chunks", "estimate_tokens", "terms", "token_counter"),
    },
)
