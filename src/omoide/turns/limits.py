"""How far may a turn go?"""

from __future__ import annotations

from typing import ClassVar

from omoide.core.contract import Record
from omoide.core.recalling import check_positive
from omoide.core.value import Count
from omoide.errors import Invalid


class Limits(Record, frozen=True, kw_only=True):
    """What a turn may spend on its model and its tools."""

    LABEL: ClassVar[str] = "limits"

    max_rounds: Count = 8
    """How often the model may be asked in one turn."""
    tool_timeout_ms: Count = 30_000
    model_timeout_ms: Count = 60_000
    retries: Count = 2
    """How often a model that failed for a moment is asked again."""
    parallel: Count = 8
    """How many tools may run at once."""
    max_observation_tokens: Count = 4_000
    """How much of a tool's result the model gets to see."""

    def _check(self) -> None:
        for field in self.__struct_fields__:
            if field != "retries":
                check_positive(getattr(self, field), field)


class Window(Record, frozen=True, kw_only=True):
    """How much a model can read, and how much of that stays free for its answer."""

    LABEL: ClassVar[str] = "window"

    max_tokens: Count = 100_000
    reserve_output_tokens: Count = 4_000
    """How much of it stays free for the answer."""
    minimum_recent_turns: Count = 0
    """How many of the latest exchanges have to be in every prompt."""

    def _check(self) -> None:
        check_positive(self.max_tokens, "max_tokens")
        if self.reserve_output_tokens >= self.max_tokens:
            raise Invalid(
                "reserve_output_tokens",
                f"is {self.reserve_output_tokens}, of {self.max_tokens} tokens in all",
                "pass less than max_tokens",
            )

    @property
    def room(self) -> int:
        """How much a prompt may take."""
        return self.max_tokens - self.reserve_output_tokens
