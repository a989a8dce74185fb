"""What does an agent make of what happened to it?

A projector compiles the thread into memory: a summary, tasks, things to look up later. `project` runs several
of them over what is new, `Projecting` does so by itself, and `SignalCapture` keeps signals as memories.

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
    ActionRule,
    ConversationSummary,
    MessageEmbedder,
    NextActions,
)

__all__ = [
    "ACTION_RULES",
    "ActionRule",
    "CaptureRule",
    "ConversationSummary",
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
