"""Run turns of an agent: recall, prompt, model and tools, capture.

- `spec`: `AgentSpec` and its parts, from code, JSON or YAML; `json_schema`: checks against JSON Schemas.
- `runner`: `turn`, `chat`, `stream`, `replay` and their results; `preview`: `preflight`.
- `options`: keyword arguments of a turn; `loop`: the loop of model and tools; `tools`: tool execution.
- `prompt`: messages and prompt assembly; `model`: the `Model` protocol; `provider`: models of providers.
- `memory`: recall, write and capture by the memory policy.
- `controls`: controls and reviews; `journal`: events, effects and thread entries of a turn.

Names load on first use: a program without turns needs no event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omoide._lazy import attach

if TYPE_CHECKING:
    from omoide.turns.controls import Control, Decision, Interrupt, Refuse, Review, Rewrite, TurnContext
    from omoide.turns.journal import Effect, Event, Journal
    from omoide.turns.memory import capture_turn, recall, write
    from omoide.turns.model import Model, Reply, Request, SupportsConnection, SupportsStreaming
    from omoide.turns.options import TurnKwargs
    from omoide.turns.preview import Preflight, preflight
    from omoide.turns.prompt import (
        Cut,
        Exchange,
        Message,
        Operation,
        Prompt,
        ToolCall,
        Usage,
        assemble,
        memory_line,
        quote,
    )
    from omoide.turns.provider import ProviderModel
    from omoide.turns.runner import Snapshot, TurnResult, TurnStream, chat, replay, stream, turn
    from omoide.turns.spec import AgentSpec, Limits, MemoryPolicy, Window

__all__ = [
    "AgentSpec",
    "Control",
    "Cut",
    "Decision",
    "Effect",
    "Event",
    "Exchange",
    "Interrupt",
    "Journal",
    "Limits",
    "MemoryPolicy",
    "Message",
    "Model",
    "Operation",
    "Preflight",
    "Prompt",
    "ProviderModel",
    "Refuse",
    "Reply",
    "Request",
    "Review",
    "Rewrite",
    "Snapshot",
    "SupportsConnection",
    "SupportsStreaming",
    "ToolCall",
    "TurnContext",
    "TurnKwargs",
    "TurnResult",
    "TurnStream",
    "Usage",
    "Window",
    "assemble",
    "capture_turn",
    "chat",
    "memory_line",
    "preflight",
    "quote",
    "recall",
    "replay",
    "stream",
    "turn",
    "write",
]

__getattr__, __dir__ = attach(
    __name__,
    attributes={
        "controls": ("Control", "Decision", "Interrupt", "Refuse", "Review", "Rewrite", "TurnContext"),
        "journal": ("Effect", "Event", "Journal"),
        "memory": ("capture_turn", "recall", "write"),
        "model": ("Model", "Reply", "Request", "SupportsConnection", "SupportsStreaming"),
        "options": ("TurnKwargs",),
        "preview": ("Preflight", "preflight"),
        "prompt": (
            "Cut",
            "Exchange",
            "Message",
            "Operation",
            "Prompt",
            "ToolCall",
            "Usage",
            "assemble",
            "memory_line",
            "quote",
        ),
        "provider": ("ProviderModel",),
        "runner": ("Snapshot", "TurnResult", "TurnStream", "chat", "replay", "stream", "turn"),
        "spec": ("AgentSpec", "Limits", "MemoryPolicy", "Window"),
    },
)
