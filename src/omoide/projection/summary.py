"""What was the conversation about so far?

`ConversationSummary` keeps the gist in `world.summary`. It takes sentences as they were said, and needs no
model. An older summary counts as what was said before, so that no entry is read twice.
"""

from __future__ import annotations

import re

from omoide.core.codec import TextsField
from omoide.core.memory import Memory
from omoide.core.recalling import check_positive
from omoide.core.thread import Thread
from omoide.core.value import Count, Name, Value, check_function
from omoide.projection.messages import MESSAGE, Said, said
from omoide.projection.projector import ProjectionContext
from omoide.retrieval.tokens import Counter, estimate
from omoide.shortterm.buffer import ROLES, BufferMessage
from omoide.shortterm.summarising import summarised

SUMMARY = "summary"

_LINE = re.compile(rf"- ({'|'.join(ROLES)}): (.+)")


class ConversationSummary(Value, frozen=True, kw_only=True):
    """Keeps a summary of the messages in `world.summary`, never longer than `max_tokens`."""

    name: Name = "conversation_summary"
    max_tokens: Count = 200
    kinds: TextsField = MESSAGE
    keep: Count = 50
    """How many messages are weighed against each other at a time."""
    count: Counter = estimate
    """What counts tokens."""
    key: Name = SUMMARY
    """Where in the world it is kept."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.max_tokens, "max_tokens")
        check_positive(self.keep, "keep")
        check_function(self.count, "count")

    def project(self, memory: Memory, thread: Thread, ctx: ProjectionContext) -> Memory:
        """The memory with the fresh messages summed up together with what it knew of the older ones."""
        messages = [*said(ctx.fresh, self.kinds)]
        if not messages:
            return memory
        text, first = self._older(memory, thread.id, ctx.since) or ("", messages[0].entry.seq)
        for start in range(0, len(messages), self.keep):
            part = [_message(one) for one in messages[start : start + self.keep]]
            text = summarised([*_lines(text), *part], self.max_tokens, count=self.count)
        summary = {
            "content": text,
            "source": "projector",
            "thread": thread.id,
            "projected_at": ctx.now,
            "covers_seq": [first, messages[-1].entry.seq],
        }
        return memory.world_put(self.key, summary, now=ctx.now)

    def _older(self, memory: Memory, thread_id: str, since: int) -> tuple[str, int] | None:
        """The summary of what came before, and where it begins; anybody may have written another."""
        match memory.world_get(self.key):
            case {"thread": str(other)} if other != thread_id:
                return None
            case {"source": "projector", "content": str(text), "covers_seq": [int(first), int(last)]}:
                return (text, first) if 0 <= first <= last < since else None
            case _:
                return None


def _lines(summary: str) -> list[BufferMessage]:
    """What a summary says, line by line, as the messages it stands for."""
    found = map(_LINE.fullmatch, summary.split("\n"))
    return [
        BufferMessage(id=f"line_{at}", role=line[1], content=line[2], timestamp=0, token_count=1)
        for at, line in enumerate(found)
        if line is not None
    ]


def _message(one: Said) -> BufferMessage:
    return BufferMessage(
        id=one.entry.id, role=one.role, content=one.text, timestamp=one.entry.at, token_count=1
    )
