"""What does a session hold in its head?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import msgspec

from omoide import clock
from omoide.core.contract import Record
from omoide.core.value import Id, Millis
from omoide.errors import WrongType
from omoide.shortterm.access_log import AccessLog
from omoide.shortterm.buffer import ConversationBuffer
from omoide.shortterm.context import WorkingContext
from omoide.shortterm.pending import PendingMemories
from omoide.shortterm.token_budget import TokenBudget


class ShortTerm(Record, frozen=True, kw_only=True):
    """A session's memory of the moment: what was said, understood, noticed and used."""

    LABEL: ClassVar[str] = "short-term memory"

    session_id: Id
    conversation: ConversationBuffer = ConversationBuffer()
    context: WorkingContext = WorkingContext()
    pending: PendingMemories = PendingMemories()
    access_log: AccessLog = AccessLog()
    token_budget: TokenBudget = TokenBudget()
    created_at: Millis = msgspec.field(default_factory=clock.now)

    @classmethod
    def new(  # type: ignore[override]  # it begins empty
        cls,
        session_id: str,
        *,
        token_budget: TokenBudget | Mapping[str, Any] | None = None,
        now: int | None = None,
    ) -> Self:
        """An empty one, whose parts have the room that the budget gives them."""
        budget = _budget(token_budget)
        return cls(
            session_id=session_id,
            conversation=ConversationBuffer.new(budget.conversation),
            context=WorkingContext.new(budget.context),
            token_budget=budget,
            created_at=clock.resolve(now),
        )


def _budget(given: TokenBudget | Mapping[str, Any] | None) -> TokenBudget:
    if given is None:
        return TokenBudget()
    if isinstance(given, (TokenBudget, Mapping)):
        return TokenBudget.new(given)
    raise WrongType("token_budget", "a TokenBudget", given)
