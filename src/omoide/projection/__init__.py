"""Compile the thread of an agent into its memory, and capture signals as memories.

- `engine`: the `Projector` protocol, cursors, and `project`, which runs projectors over what is new.
- `projectors`: summary, next actions, entities, and messages for a memory provider.
- `plugins`: `ProjectionStrategy` projects by itself; `SignalCapture` stores signals by rules.
"""

from __future__ import annotations

from omoide.projection.engine import ProjectionContext, Projector, count_pending, project
from omoide.projection.plugins import (
    CaptureRule,
    ProjectionPlugin,
    ProjectionStrategy,
    SignalCapture,
    SupportsCapture,
    projection_action,
    projection_result,
)
from omoide.projection.projectors import (
    ACTION_RULES,
    ENTITY_RULES,
    ActionRule,
    ConversationSummary,
    EntityFacts,
    EntityRule,
    MessageEmbedder,
    NextActions,
)

__all__ = [
    "ACTION_RULES",
    "ENTITY_RULES",
    "ActionRule",
    "CaptureRule",
    "ConversationSummary",
    "EntityFacts",
    "EntityRule",
    "MessageEmbedder",
    "NextActions",
    "ProjectionContext",
    "ProjectionPlugin",
    "ProjectionStrategy",
    "Projector",
    "SignalCapture",
    "SupportsCapture",
    "count_pending",
    "project",
    "projection_action",
    "projection_result",
]
