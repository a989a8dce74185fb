"""How far has the strategy come?"""

from __future__ import annotations

from omoide.core.codec import MapField
from omoide.core.frozen import EMPTY_MAP
from omoide.core.nesting import own
from omoide.core.value import Value
from omoide.errors import Invalid

STATUSES = ("idle", "running", "waiting", "success", "failure")


@own
class StrategyState(Value, frozen=True, kw_only=True):
    """What a strategy remembers between two commands."""

    status: str = "idle"
    data: MapField = EMPTY_MAP

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.status not in STATUSES:
            raise Invalid("status", f"is {self.status!r}", f"use one of {', '.join(STATUSES)}")

    @property
    def done(self) -> bool:
        """Whether there is nothing left to do."""
        return self.status in ("success", "failure")
