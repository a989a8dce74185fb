"""Memory tools: remember, recall, forget, relate and review as actions that a model can call.

`memory_tools()` returns them for an agent's `tools`. The program and the turn set the owner and the scope of
the memory, never the model.
"""

from __future__ import annotations

from omoide.core.action import Action
from omoide.errors import NotFound
from omoide.tools import memory
from omoide.tools.context import ToolConfig

__all__ = ["MEMORY_TOOLS", "memory_tools"]

_MAKERS = {
    "remember": memory.remember_tool,
    "recall": memory.recall_tool,
    "forget": memory.forget_tool,
    "relate": memory.relate_tool,
    "review": memory.review_tool,
}

MEMORY_TOOLS = tuple(_MAKERS)
"""The names of the tools."""


def memory_tools(*names: str, reach: str | None = None, strict: bool = False) -> list[Action]:
    """Return the tools with these names, or all of them.

    Args:
        names: names of tools; default: all.
        reach: the memories they see: those of the `session`, the `project` or the `agent`; default: the scope
            of the agent's memory policy.
        strict: refuse memories that are incomplete or contradict others.
    """
    config = ToolConfig(reach=reach, strict=strict)
    for name in names:
        if name not in _MAKERS:
            raise NotFound("memory tool", name, f"use one of {', '.join(_MAKERS)}")
    return [_MAKERS[name](config) for name in names or MEMORY_TOOLS]
