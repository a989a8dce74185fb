"""Short-term memory of a session, before anything is promoted to the store.

`memory` has `ShortTerm` with its conversation buffer, its token budget and the memories that wait for
promotion, `context` the working context, `importance` the score of a memory and the access log, and `summary`
the extractive summary of a conversation. All of them are frozen values; tokens are counted by a function that
is passed in.
"""

from __future__ import annotations

from omoide.shortterm.context import ContextItem, WorkingContext, infer_type
from omoide.shortterm.importance import (
    DEFAULT_WEIGHTS,
    AccessEvent,
    AccessKey,
    AccessLog,
    AccessStats,
    ImportancePart,
    Score,
    Weights,
    score,
)
from omoide.shortterm.memory import (
    BufferMessage,
    ConversationBuffer,
    PendingItem,
    PendingMemories,
    ShortTerm,
    TokenBudget,
)
from omoide.shortterm.summary import sentences, summarize_messages

__all__ = [
    "DEFAULT_WEIGHTS",
    "AccessEvent",
    "AccessKey",
    "AccessLog",
    "AccessStats",
    "BufferMessage",
    "ContextItem",
    "ConversationBuffer",
    "ImportancePart",
    "PendingItem",
    "PendingMemories",
    "Score",
    "ShortTerm",
    "TokenBudget",
    "Weights",
    "WorkingContext",
    "infer_type",
    "score",
    "sentences",
    "summarize_messages",
]
