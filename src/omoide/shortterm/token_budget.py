"""How much room does short-term memory have?"""

from __future__ import annotations

from typing import ClassVar

from omoide.core.contract import Record
from omoide.core.recalling import check_positive
from omoide.errors import Invalid


class TokenBudget(Record, frozen=True, kw_only=True):
    """Tokens for the whole of a session's short-term memory, and for its two parts that have a size."""

    LABEL: ClassVar[str] = "token budget"

    total: int = 32_000
    conversation: int = 20_000
    context: int = 12_000

    def _check(self) -> None:
        for field in self.__struct_fields__:
            check_positive(getattr(self, field), field)
        parts = self.conversation + self.context
        if parts > self.total:
            raise Invalid(
                "total",
                f"is {self.total}, and its parts together are {parts}",
                "raise it, or give conversation and context less",
            )
