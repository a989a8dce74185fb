"""How did a life of an agent end?"""

from __future__ import annotations

import msgspec

from omoide.core.receiving import STOP

SHUTDOWN = "shutdown"
NORMAL = ("normal", SHUTDOWN, STOP)


class Exit(msgspec.Struct, frozen=True):
    """How a life ended."""

    reason: str = "normal"
    asked: bool = False
    """Whether it was asked for from outside: then the agent is not started again."""

    @property
    def normal(self) -> bool:
        """Whether nothing went wrong."""
        return self.asked or self.reason in NORMAL
