"""What of a session is worth keeping for good?

`scoring` says how much something matters, `planning` what would be promoted and why, `promoting` does it and
takes it back, and `extracting` can notice memories in what was said.

"""

from __future__ import annotations

from omoide.promotion.extraction import RULES, Rule, extract
from omoide.promotion.plan import PromotionPolicy
from omoide.shortterm.importance import Score, Weights, score

__all__ = ["RULES", "PromotionPolicy", "Rule", "Score", "Weights", "extract", "score"]
