"""What does an agent make of what happened to it?

A projector compiles the thread into memory: a summary, tasks, things to look up later. `project` runs several
of them over what is new, `Projecting` does so by itself, and `SignalCapture` keeps signals as memories.
"""

from __future__ import annotations

from omoide.projection.capturing import CaptureRule, Captures, SignalCapture
from omoide.projection.confirming import ProjectionPlugin, projection_result
from omoide.projection.embedding import MessageEmbedder
from omoide.projection.next_actions import ACTION_RULES, ActionRule, NextActions
from omoide.projection.projecting import Projecting, projecting_action
from omoide.projection.projector import ProjectionContext, Projector
from omoide.projection.running import project, waiting
from omoide.projection.summary import ConversationSummary

__all__ = [
    "ACTION_RULES",
    "ActionRule",
    "CaptureRule",
    "Captures",
    "ConversationSummary",
    "MessageEmbedder",
    "NextActions",
    "Projecting",
    "ProjectionContext",
    "ProjectionPlugin",
    "Projector",
    "SignalCapture",
    "project",
    "projecting_action",
    "projection_result",
    "waiting",
]
