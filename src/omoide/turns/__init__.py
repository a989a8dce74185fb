"""How does an agent answer, with what it remembers?

`turn` recalls, assembles the prompt, calls the model and its tools, and captures; `preflight` shows what the
model would see; `write`, `recall` and `capture_turn` are the parts that touch memory.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omoide.turns.context import TurnContext as TurnContext
    from omoide.turns.controls import Control as Control
    from omoide.turns.controls import Decision as Decision
    from omoide.turns.controls import Interrupt as Interrupt
    from omoide.turns.controls import Refuse as Refuse
    from omoide.turns.controls import Review as Review
    from omoide.turns.controls import Rewrite as Rewrite
    from omoide.turns.events import Event as Event
    from omoide.turns.journal import Effect as Effect
    from omoide.turns.journal import Journal as Journal
    from omoide.turns.limits import Limits as Limits
    from omoide.turns.limits import Window as Window
    from omoide.turns.messages import Message as Message
    from omoide.turns.messages import ToolCall as ToolCall
    from omoide.turns.messages import Usage as Usage
    from omoide.turns.model import Model as Model
    from omoide.turns.model import Reply as Reply
    from omoide.turns.model import Request as Request
    from omoide.turns.policy import MemoryPolicy as MemoryPolicy
    from omoide.turns.previewing import Preflight as Preflight
    from omoide.turns.previewing import preflight as preflight
    from omoide.turns.prompt import Cut as Cut
    from omoide.turns.prompt import Operation as Operation
    from omoide.turns.prompt import Prompt as Prompt
    from omoide.turns.prompt import assemble as assemble
    from omoide.turns.provider import ProviderModel as ProviderModel
    from omoide.turns.remembering import capture_turn as capture_turn
    from omoide.turns.remembering import recall as recall
    from omoide.turns.remembering import write as write
    from omoide.turns.result import Snapshot as Snapshot
    from omoide.turns.result import TurnResult as TurnResult
    from omoide.turns.running import Streaming as Streaming
    from omoide.turns.running import chat as chat
    from omoide.turns.running import replay as replay
    from omoide.turns.running import stream as stream
    from omoide.turns.running import turn as turn
    from omoide.turns.spec import AgentSpec as AgentSpec
    from omoide.turns.window import Exchange as Exchange

_HOMES = {
    "context": ["TurnContext"],
    "controls": ["Control", "Decision", "Interrupt", "Refuse", "Review", "Rewrite"],
    "events": ["Event"],
    "journal": ["Effect", "Journal"],
    "limits": ["Limits", "Window"],
    "messages": ["Message", "ToolCall", "Usage"],
    "model": ["Model", "Reply", "Request"],
    "policy": ["MemoryPolicy"],
    "previewing": ["Preflight", "preflight"],
    "prompt": ["Cut", "Operation", "Prompt", "assemble"],
    "provider": ["ProviderModel"],
    "remembering": ["capture_turn", "recall", "write"],
    "result": ["Snapshot", "TurnResult"],
    "running": ["Streaming", "chat", "replay", "stream", "turn"],
    "spec": ["AgentSpec"],
    "window": ["Exchange"],
}
_LAZY = {name: f"omoide.turns.{home}" for home, names in _HOMES.items() for name in names}

__all__ = sorted(_LAZY)  # noqa: PLE0605 - one list, kept with where each name lives


def __getattr__(name: str) -> Any:
    """What is asked for is loaded then: a program without turns needs no event loop."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
