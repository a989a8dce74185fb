"""How does an agent answer, with what it remembers?

`turn` recalls, assembles the prompt, calls the model and its tools, and captures; `preflight` shows what the
model would see; `write`, `recall` and `capture_turn` are the parts that touch memory.

"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omoide.turns.controls import Control, Decision, Interrupt, Refuse, Review, Rewrite, TurnContext
    from omoide.turns.journal import Effect, Event, Journal
    from omoide.turns.memory import capture_turn, recall, write
    from omoide.turns.messages import Exchange, Message, ToolCall, Usage
    from omoide.turns.model import Model, Reply, Request
    from omoide.turns.preview import Preflight, preflight
    from omoide.turns.prompt import Cut, Operation, Prompt, assemble
    from omoide.turns.provider import ProviderModel
    from omoide.turns.result import Snapshot, TurnResult
    from omoide.turns.runner import Streaming, chat, replay, stream, turn
    from omoide.turns.spec import AgentSpec, Limits, MemoryPolicy, Window


_HOMES = [
    ("controls", ["TurnContext"]),
    ("controls", ["Control", "Decision", "Interrupt", "Refuse", "Review", "Rewrite"]),
    ("journal", ["Event"]),
    ("journal", ["Effect", "Journal"]),
    ("spec", ["Limits", "Window"]),
    ("messages", ["Message", "ToolCall", "Usage"]),
    ("model", ["Model", "Reply", "Request"]),
    ("spec", ["MemoryPolicy"]),
    ("preview", ["Preflight", "preflight"]),
    ("prompt", ["Cut", "Operation", "Prompt", "assemble"]),
    ("provider", ["ProviderModel"]),
    ("memory", ["capture_turn", "recall", "write"]),
    ("result", ["Snapshot", "TurnResult"]),
    ("runner", ["Streaming", "chat", "replay", "stream", "turn"]),
    ("spec", ["AgentSpec"]),
    ("messages", ["Exchange"]),
]
_LAZY = {name: f"omoide.turns.{home}" for home, names in _HOMES for name in names}

__all__ = sorted(_LAZY)  # noqa: PLE0605 - one list, kept with where each name lives


def __getattr__(name: str) -> Any:
    """What is asked for is loaded then: a program without turns needs no event loop."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
