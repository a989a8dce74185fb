"""What of a transcript does short-term memory hear?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

from omoide.core.entry import Entry, Evidence, MessageRef
from omoide.core.frozen import thaw
from omoide.core.thread import Thread, ThreadEntry
from omoide.promotion import extracting
from omoide.promotion.scoring import Weights, score
from omoide.shortterm.buffer import BufferMessage
from omoide.shortterm.pending import PendingItem
from omoide.turns.prompt import Counter

Extractor = Callable[..., Iterable[PendingItem]]
"""Proposes memories from a message: called with its text and `role`, `thread`, `seq`, `agent_id`, `at`."""

SOURCES = {**extracting.SOURCES, "tool": "tool"}
SURE = 0.7
"""How sure a message is that nobody judged."""


def message(entry: ThreadEntry, thread_id: str, count: Counter) -> BufferMessage | None:
    """A message, or what a tool answered, as the buffer holds it; None for anything else."""
    said = entry.payload
    content = said.get("content")
    if not isinstance(content, str):
        return None
    role = {"message": said.get("role"), "tool_result": "tool"}.get(entry.kind)
    if role not in ("user", "assistant", "system", "tool"):
        return None
    calls = said.get("calls")
    text = content if not calls else f"{content}{thaw(calls)}"
    about = {name: said[name] for name in ("request_id", "call_id", "name") if name in said}
    return BufferMessage(
        id=entry.id,
        role=role,
        content=content,
        timestamp=entry.at,
        token_count=max(1, count(text)),
        tool_calls=None if not calls else tuple(calls),
        metadata=about,
        seq=entry.seq,
    )


def place(thread: Thread, source: str) -> Evidence | None:
    """The last message of a thread, or the last tool result, as evidence; None where nothing was said yet."""
    wanted = ("tool_result",) if source == "tool" else ("message",)
    for kinds in (wanted, ("message", "tool_result")):
        for entry in reversed(thread.entries):
            if entry.kind in kinds:
                kind = "tool" if entry.kind == "tool_result" else "message"
                return Evidence(kind=kind, ref=f"{thread.id}:{entry.seq}")
    return None


def left_behind(
    evicted: Sequence[BufferMessage], thread_id: str, agent_id: str, now: int, weights: Weights
) -> list[PendingItem]:
    """Messages that no longer fit into the buffer, as candidates for promotion."""
    found = []
    for one in evicted:
        if one.role == "system" or not one.content.strip() or one.seq is None:
            continue
        importance = score(
            last_accessed=one.timestamp, access_count=1, confidence=SURE, type=None, now=now, weights=weights
        )
        entry = Entry(
            id="mem_" + sha256(f"{thread_id}\0{one.seq}\0message".encode()).hexdigest()[:32],
            agent_id=agent_id,
            content=one.content,
            confidence=SURE,
            importance=importance.total,
            source=SOURCES[one.role],
            message=MessageRef(thread=thread_id, seq=one.seq, role=one.role),
            evidence=(_evidence(one, thread_id),),
            created_at=one.timestamp,
        )
        found.append(PendingItem(entry=entry))
    return found


def extracted(
    extractor: Extractor, said: BufferMessage, thread_id: str, agent_id: str
) -> Iterable[PendingItem]:
    """What an extractor finds worth remembering in a message that somebody said."""
    if said.role not in ("user", "assistant") or said.seq is None:
        return ()
    return extractor(
        said.content, role=said.role, thread=thread_id, seq=said.seq, agent_id=agent_id, at=said.timestamp
    )


def _evidence(said: BufferMessage, thread_id: str) -> Evidence:
    return Evidence(kind="tool" if said.role == "tool" else "message", ref=f"{thread_id}:{said.seq}")
