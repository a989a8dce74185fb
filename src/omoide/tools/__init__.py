"""Which tools let a model use the memory itself?

`memory_tools()` gives them for an agent's `tools`: remember, recall, forget, relate and review. Whose memory
it is, and how far it reaches, is said by the program and the turn, never by the model.

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
    """The tools of these names, or all of them.

    They see what the agent's memory policy says, or with `reach` all of the `session`, the `project` or the
    `agent`. `strict` refuses memories that are incomplete or contradict what is known.
    """
    setting = ToolConfig(reach=reach, strict=strict)
    for name in names:
        if name not in _MAKERS:
            raise NotFound("memory tool", name, f"use one of {', '.join(_MAKERS)}")
    return [_MAKERS[name](setting) for name in names or MEMORY_TOOLS]
