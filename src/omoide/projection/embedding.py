"""How do messages get to where they can be searched by meaning?

`MessageEmbedder` asks for them to be put into a memory provider, each under a key that is always the same. An
entry counts as covered when the provider said that it has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, ClassVar, TypeAlias

from omoide.core.codec import TextsField
from omoide.core.directives import Directive, MemoryUpsert
from omoide.core.memory import Memory
from omoide.core.recalling import check_positive
from omoide.core.thread import Thread
from omoide.core.value import Count, Name, Value, check_function
from omoide.ids import MAX_BYTES
from omoide.projection.messages import MESSAGE, said
from omoide.projection.projector import ProjectionContext
from omoide.projection.running import RETRY_MS

Embed: TypeAlias = Callable[[str], Sequence[float]]


class MessageEmbedder(Value, frozen=True, kw_only=True):
    """Puts new messages into a memory provider, in batches."""

    confirmed: ClassVar[bool] = True

    name: Name = "message_embedder"
    provider: Name = "semantic"
    batch: Count = 50
    """How many messages one directive holds at most."""
    kinds: TextsField = MESSAGE
    longest: Count = 20_000
    """How many characters of a message are kept; the rest of a longer one stays in the thread."""
    embed: Embed | None = None
    """A pure function from a text to its vector; without it the provider makes one."""
    retry_ms: Count = RETRY_MS
    """How long an answer is waited for before the same is asked again."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self.batch, "batch")
        check_positive(self.longest, "longest")
        if self.embed is not None:
            check_function(self.embed, "embed")

    def project(
        self, memory: Memory, thread: Thread, ctx: ProjectionContext
    ) -> tuple[Memory, list[Directive]]:
        """The memory as it was, and a directive for each batch of fresh messages."""
        items = [
            self._item(key_of(thread.id, one.entry.seq), one.text[: self.longest])
            for one in said(ctx.fresh, self.kinds)
        ]
        batches = [items[at : at + self.batch] for at in range(0, len(items), self.batch)]
        return memory, [MemoryUpsert(items=batch, provider=self.provider) for batch in batches]

    def _item(self, key: str, text: str) -> dict[str, Any]:
        item: dict[str, Any] = {"key": key, "value": text}
        return item if self.embed is None else item | {"embedding": [float(x) for x in self.embed(text)]}


def key_of(thread_id: str, seq: int) -> str:
    """The key of a message: the thread and its place there, shortened where that would be too long."""
    key = f"{thread_id}:{seq}"
    return key if len(key.encode()) <= MAX_BYTES else f"{sha256(thread_id.encode()).hexdigest()}:{seq}"
