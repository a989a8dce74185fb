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
    from omoide.turns.runner import TurnStream, chat, replay, stream, turn
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
    "ToolCall",
    "TurnContext",
    "TurnResult",
    "TurnStream",
    "Usage",
    "Window",
    "assemble",
    "capture_turn",
    "chat",
    "preflight",
    "recall",
    "replay",
    "stream",
    "turn",
    "write",
]

_LAZY = {
    "AgentSpec": "spec",
    "Control": "controls",
    "Cut": "prompt",
    "Decision": "controls",
    "Effect": "journal",
    "Event": "journal",
    "Exchange": "messages",
    "Interrupt": "controls",
    "Journal": "journal",
    "Limits": "spec",
    "MemoryPolicy": "spec",
    "Message": "messages",
    "Model": "model",
    "Operation": "prompt",
    "Preflight": "preview",
    "Prompt": "prompt",
    "ProviderModel": "provider",
    "Refuse": "controls",
    "Reply": "model",
    "Request": "model",
    "Review": "controls",
    "Rewrite": "controls",
    "Snapshot": "result",
    "TurnStream": "runner",
    "ToolCall": "messages",
    "TurnContext": "controls",
    "TurnResult": "result",
    "Usage": "messages",
    "Window": "spec",
    "assemble": "prompt",
    "capture_turn": "memory",
    "chat": "runner",
    "preflight": "preview",
    "recall": "memory",
    "replay": "runner",
    "stream": "runner",
    "turn": "runner",
    "write": "memory",
}


def __getattr__(name: str) -> Any:
    """What is asked for is loaded then: a program without turns needs no event loop."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"omoide.turns.{_LAZY[name]}"), name)
