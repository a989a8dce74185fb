"""Which tools does a server offer, and what may each of them do?

Five by default, for a model chooses better among few; all of them where the program asks for it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from omoide.core.action import Action
from omoide.integrations.mcp import answers, knowing, looking, querying
from omoide.integrations.mcp.answers import Answer
from omoide.tools import memory_tools
from omoide.tools.desk import Setting

READ = "read"
WRITE = "write"

Maker = Callable[[Setting], Action]


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A tool, and what clients and people are told about it."""

    make: Maker
    title: str
    shape: type[Answer]
    right: str = READ
    """What a token has to allow."""
    destructive: bool = False
    """Whether something may be recalled no more after it."""


def _memory_tool(name: str) -> Maker:
    return lambda setting: memory_tools(name, reach=setting.reach, strict=setting.strict)[0]


USUAL = {
    "remember": Offer(make=_memory_tool("remember"), title="Remember", shape=answers.Remembered, right=WRITE),
    "recall": Offer(make=_memory_tool("recall"), title="Recall", shape=answers.Recalled),
    "forget": Offer(
        make=_memory_tool("forget"), title="Forget", shape=answers.Forgotten, right=WRITE, destructive=True
    ),
    "memory_status": Offer(make=knowing.status_tool, title="Memory status", shape=answers.Status),
    "who_can": Offer(make=knowing.who_can_tool, title="Who can", shape=answers.Choices),
}
"""The tools that are always there."""

FURTHER = {
    "get": Offer(make=looking.get_tool, title="Get a memory", shape=answers.Got),
    "list": Offer(make=looking.list_tool, title="List memories", shape=answers.Listed),
    "relate": Offer(
        make=_memory_tool("relate"),
        title="Relate memories",
        shape=answers.Related,
        right=WRITE,
        destructive=True,
    ),
    "related": Offer(make=looking.related_tool, title="Related memories", shape=answers.Relatives),
    "provenance": Offer(make=looking.provenance_tool, title="Provenance", shape=answers.Origins),
    "review": Offer(make=_memory_tool("review"), title="Review", shape=answers.Reviewed),
    "restore": Offer(make=looking.restore_tool, title="Restore", shape=answers.Restored, right=WRITE),
    "history": Offer(make=looking.history_tool, title="History", shape=answers.Histories),
    "sparql": Offer(make=querying.sparql_tool, title="SPARQL", shape=answers.Found),
}
"""The tools that are there when asked for."""

ALL = {**USUAL, **FURTHER}
