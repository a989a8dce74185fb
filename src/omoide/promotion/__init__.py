"""Promote short-term memory to long-term memory.

`plan` has the policy and decides what would be promoted and why, `promoter` carries a plan out and undoes a
run, and `extraction` proposes memories from the sentences of a message. The score is that of
`omoide.shortterm`.
"""

from __future__ import annotations

from omoide.promotion.extraction import (
    RULES,
    ExtractedMemory,
    Extraction,
    ExtractionReport,
    ExtractionRequest,
    Extractor,
    Quotation,
    Rule,
    RuleExtractor,
    extract,
)
from omoide.promotion.plan import (
    PromotedEntry,
    PromotionCandidate,
    PromotionFailure,
    PromotionMark,
    PromotionPlan,
    PromotionPolicy,
    PromotionRun,
    build_plan,
    score_context_item,
)
from omoide.promotion.promoter import Promotion, promote, undo
from omoide.shortterm.importance import Score, Weights, score

__all__ = [
    "RULES",
    "ExtractedMemory",
    "Extraction",
    "ExtractionReport",
    "ExtractionRequest",
    "Extractor",
    "PromotedEntry",
    "Promotion",
    "PromotionCandidate",
    "PromotionFailure",
    "PromotionMark",
    "PromotionPlan",
    "PromotionPolicy",
    "PromotionRun",
    "Quotation",
    "Rule",
    "RuleExtractor",
    "Score",
    "Weights",
    "build_plan",
    "extract",
    "promote",
    "score",
    "score_context_item",
    "undo",
]
