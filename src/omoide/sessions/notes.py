"""Notes document, scratchpad, transcript listener.

The transcript is the conversation, so that is not kept again here: only the working context, what waits to be
promoted, and what was promoted already.

A live face of the working context: reading counts as access, and whatever is put here is saved at the end of
the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, ClassVar

import msgspec

from omoide import clock
from omoide.core import codec
from omoide.core.entry import Entry, Evidence, MessageRef
from omoide.core.frozen import thaw
from omoide.core.thread import Thread, ThreadEntry
from omoide.core.value import Count, Id, Millis, Record, Value, check_instance
from omoide.errors import RestoreFailed
from omoide.promotion import extraction
from omoide.promotion.plan import PromotedEntry, PromotionMark, PromotionRun
from omoide.shortterm.context import ContextItem, WorkingContext
from omoide.shortterm.importance import AccessLog, Weights, score
from omoide.shortterm.memory import BufferMessage
from omoide.shortterm.pending import PendingItem, PendingMemories
from omoide.turns.prompt import TokenCounter

# hearing: What of a transcript does short-term memory hear?


Extractor = Callable[..., Iterable[PendingItem]]
"""Proposes memories from a message: called with its text and `role`, `thread`, `seq`, `agent_id`, `at`."""

SOURCES = {**extraction.SOURCES, "tool": "tool"}
DEFAULT_CONFIDENCE = 0.7
"""How sure a message is that nobody judged."""


def to_buffer_message(entry: ThreadEntry, thread_id: str, count: TokenCounter) -> BufferMessage | None:
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


def latest_evidence(thread: Thread, source: str) -> Evidence | None:
    """The last message of a thread, or the last tool result, as evidence; None where nothing was said yet."""
    wanted = ("tool_result",) if source == "tool" else ("message",)
    for kinds in (wanted, ("message", "tool_result")):
        for entry in reversed(thread.entries):
            if entry.kind in kinds:
                kind = "tool" if entry.kind == "tool_result" else "message"
                return Evidence(kind=kind, ref=f"{thread.id}:{entry.seq}")
    return None


def evicted_candidates(
    evicted: Sequence[BufferMessage], thread_id: str, agent_id: str, now: int, weights: Weights
) -> list[PendingItem]:
    """Messages that no longer fit into the buffer, as candidates for promotion."""
    found = []
    for one in evicted:
        if one.role == "system" or not one.content.strip() or one.seq is None:
            continue
        importance = score(
            last_accessed=one.timestamp,
            access_count=1,
            confidence=DEFAULT_CONFIDENCE,
            type=None,
            now=now,
            weights=weights,
        )
        entry = Entry(
            id="mem_" + sha256(f"{thread_id}\0{one.seq}\0message".encode()).hexdigest()[:32],
            agent_id=agent_id,
            content=one.content,
            confidence=DEFAULT_CONFIDENCE,
            importance=importance.total,
            source=SOURCES[one.role],
            message=MessageRef(thread=thread_id, seq=one.seq, role=one.role),
            evidence=(_evidence(one, thread_id),),
            created_at=one.timestamp,
        )
        found.append(PendingItem(entry=entry))
    return found


def extract_items(
    extractor: Extractor, message: BufferMessage, thread_id: str, agent_id: str
) -> Iterable[PendingItem]:
    """What an extractor finds worth remembering in a message that somebody said."""
    if message.role not in ("user", "assistant") or message.seq is None:
        return ()
    return extractor(
        message.content,
        role=message.role,
        thread=thread_id,
        seq=message.seq,
        agent_id=agent_id,
        at=message.timestamp,
    )


def _evidence(said: BufferMessage, thread_id: str) -> Evidence:
    return Evidence(kind="tool" if said.role == "tool" else "message", ref=f"{thread_id}:{said.seq}")


# notes: What does a session hold before anything of it is durable knowledge?


NOTES_VERSION = 1
MAX_RUNS = 20
"""How many promotions can be undone."""
MAX_HELD = 1_000


class Origin(Value, frozen=True, kw_only=True):
    """Where a value of the working context comes from."""

    key: str
    evidence: Evidence


class SessionNotes(Record, frozen=True, kw_only=True):
    """Short-term memory as it is kept between two turns."""

    LABEL: ClassVar[str] = "session's notes"

    schema_version: int = NOTES_VERSION
    session_id: Id
    context: WorkingContext
    pending: PendingMemories
    access_log: AccessLog
    origins: tuple[Origin, ...] = ()
    marks: tuple[PromotionMark, ...] = ()
    dropped: tuple[PromotionMark, ...] = ()
    """Which pending items were values of the working context until there was no room for them."""
    held: tuple[str, ...] = ()
    """The ids of what was promoted and taken back: it is not promoted again by itself."""
    runs: tuple[PromotionRun, ...] = ()
    """The last promotions, oldest first."""
    run_count: Count = 0
    total_promoted: Count = 0
    last_run: Millis | None = None
    evicted: Count = 0
    """Up to where in the thread messages that left the buffer have been looked at."""
    read: Count = 0
    """Up to where in the thread messages have been read for what is worth remembering."""
    closed: bool = False
    saved_at: Millis = msgspec.field(default_factory=clock.now)

    def marks_by_key(self) -> dict[str, PromotionMark]:
        """The marks by their keys."""
        return {one.key: one for one in self.marks}

    def evidence_by_key(self) -> dict[str, Evidence]:
        """Where values come from, by their keys."""
        return {one.key: one.evidence for one in self.origins}

    def with_origin(self, key: str, evidence: Evidence | None) -> SessionNotes:
        """The notes after a value got another origin."""
        rest = tuple(one for one in self.origins if one.key != key)
        return self.replace(origins=rest if evidence is None else (*rest, Origin(key=key, evidence=evidence)))

    def without_dropped(self, key: str) -> SessionNotes:
        """The notes without what waits under a key that has another value now."""
        old = {one.id for one in self.dropped if one.key == key}
        if not old:
            return self
        rest = tuple(one for one in self.dropped if one.id not in old)
        return self.replace(pending=self.pending.clear_promoted(old), dropped=rest)

    def with_run(self, run: PromotionRun) -> SessionNotes:
        """The notes after a promotion."""
        marks = self.marks_by_key()
        for one in run.promoted:
            if one.key is not None and one.digest is not None:
                marks[one.key] = PromotionMark(key=one.key, id=one.id, digest=one.digest)
        done = {one.item for one in run.promoted}
        return self.replace(
            pending=self.pending.clear_promoted(done),
            dropped=tuple(one for one in self.dropped if one.id not in done),
            marks=tuple(marks.values()),
            runs=(*self.runs, run)[-MAX_RUNS:] if run.promoted else self.runs,
            run_count=self.run_count + 1,
            total_promoted=self.total_promoted + sum(one.made for one in run.promoted),
            last_run=run.at,
        )

    def undone_promotions(self) -> dict[str, PromotedEntry]:
        """What runs made that were undone, by the memories' ids."""
        return {one.id: one for run in self.runs if run.undone_at is not None for one in run.promoted}

    def without_run(self, run: PromotionRun, at: int) -> SessionNotes:
        """The notes after a promotion was taken back."""
        marks, gone = self.marks_by_key(), self.undone_promotions()
        for one in reversed(run.promoted):
            if one.key is not None and one.key in marks and marks[one.key].id == one.id:
                before = one.before
                while before is not None and before.id in gone:
                    before = gone[before.id].before
                del marks[one.key]
                if before is not None:
                    marks[one.key] = before
        held = (*self.held, *(one.id for one in run.promoted))[-MAX_HELD:]
        runs = tuple(one.replace(undone_at=at) if one.id == run.id else one for one in self.runs)
        return self.replace(marks=tuple(marks.values()), held=held, runs=runs)


def encode_notes(notes: SessionNotes) -> object:
    """Notes as they stand in a document."""
    return codec.to_builtins(notes)


def decode_notes(body: object, session_id: str) -> SessionNotes:
    """The notes that a document holds; damaged ones are refused, and so are those of another version."""
    plain: Any = thaw(body)
    version = plain.get("schema_version") if isinstance(plain, dict) else None
    if version != NOTES_VERSION:
        raise RestoreFailed(
            f"notes of session {session_id!r}",
            f"they have version {version}, this reads {NOTES_VERSION}; use another Omoide",
        )
    try:
        return codec.from_builtins(plain, SessionNotes)
    except ValueError as error:
        raise RestoreFailed(f"notes of session {session_id!r}", error) from error


# scratchpad: What does the session understand right now?


NotesChange = Callable[[SessionNotes], SessionNotes]


class Scratchpad:
    """The working context of a session."""

    def __init__(
        self,
        notes: Callable[[], SessionNotes],
        apply: Callable[[NotesChange], None],
        find_evidence: Callable[[str], Evidence | None],
        on_drop: Callable[[SessionNotes, ContextItem], SessionNotes],
        count: TokenCounter,
    ) -> None:
        self._count = count
        self._on_drop = on_drop
        """What becomes of a value for which there is no room any more."""
        self._notes = notes
        self._apply = apply
        self._find_evidence = find_evidence

    @property
    def value(self) -> WorkingContext:
        """The working context as a value."""
        return self._notes().context

    def put(
        self,
        key: str,
        value: Any,
        *,
        source: str = "inferred",
        confidence: float = 0.7,
        memory_type: str | None = None,
        evidence: Evidence | None = None,
    ) -> None:
        """Note a value; its evidence, where none is given, is what was said last."""
        now = clock.now()
        if evidence is not None:
            check_instance(evidence, "evidence", kind=Evidence)

        def change(notes: SessionNotes) -> SessionNotes:
            context, dropped = notes.context.put(
                key, value, source=source, confidence=confidence, memory_type=memory_type, now=now,
                count=self._count,
            )  # fmt: skip
            notes = notes.replace(context=context, access_log=notes.access_log.record(key, "write", now))
            for item in dropped:
                notes = self._on_drop(notes, item).with_origin(item.key, None)
            return notes.without_dropped(key).with_origin(key, evidence or origin)

        origin = self._find_evidence(source)
        self._apply(change)

    def get(self, key: str, default: Any = None) -> Any:
        """A value, or the default; an access is counted."""
        now = clock.now()
        if not self.value.has(key):
            return default
        found = self.value.peek(key)

        def change(notes: SessionNotes) -> SessionNotes:
            context, _ = notes.context.get(key, now=now)
            return notes.replace(context=context, access_log=notes.access_log.record(key, "read", now))

        self._apply(change)
        return found

    def peek(self, key: str, default: Any = None) -> Any:
        """A value, or the default; nothing is counted."""
        return self.value.peek(key, default)

    def item(self, key: str) -> ContextItem | None:
        """All that is known about a value."""
        return self.value.item(key)

    def delete(self, key: str) -> bool:
        """Remove a value; whether there was one. What was promoted of it stays."""
        if not self.value.has(key):
            return False
        self._apply(lambda notes: notes.replace(context=notes.context.delete(key)).with_origin(key, None))
        return True

    def clear(self) -> None:
        """Remove all values."""
        self._apply(lambda notes: notes.replace(context=notes.context.clear(), origins=()))

    def to_dict(self) -> dict[str, Any]:
        """All values; nothing is counted."""
        return self.value.to_dict()

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.value.has(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.value.to_dict())

    def __len__(self) -> int:
        return self.value.size
