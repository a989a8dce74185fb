"""When is short-term memory promoted, and how much has to speak for it?"""

from __future__ import annotations

from typing import ClassVar

from omoide.core.contract import Record, check_unit
from omoide.core.recalling import check_positive
from omoide.core.value import Count, check_instance, force
from omoide.promotion.scoring import Weights


class PromotionPolicy(Record, frozen=True, kw_only=True):
    """What is good enough for long-term memory, and when that is looked at."""

    LABEL: ClassVar[str] = "promotion policy"

    enabled: bool = True
    """Whether promotions happen by themselves; on demand they always do."""
    threshold: float = 0.6
    closing_threshold: float = 0.4
    """What is enough when the session ends, and short-term memory with it; not for mere messages."""
    every_ms: Count = 30_000
    most: Count = 20
    """How many items one run promotes; what an agent decided comes on top, and the rest waits. A session that
    is paused or closed waits for nothing."""
    weights: Weights = Weights()
    strict: bool = False
    """Whether a memory that contradicts another, or lacks what its type needs, is refused."""
    capacity: float = 0.9
    """The part of what short-term memory can hold from which on it is promoted early."""

    def _check(self) -> None:
        for field in ("threshold", "closing_threshold", "capacity"):
            force(self, field, check_unit(getattr(self, field), field))
        check_positive(self.every_ms, "every_ms")
        check_positive(self.most, "most")
        check_instance(self.weights, "weights", kind=Weights)

    def threshold_for(self, trigger: str) -> float:
        """What is enough when this is the reason to look."""
        return self.closing_threshold if trigger == "close" else self.threshold
