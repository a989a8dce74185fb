"""The short-term memory of a session: working context, pending memories, promotion.

The transcript is the conversation, so only the rest is persisted, in the notes document of the session:
working context, memories that wait for promotion, and past promotions. Changes apply in memory at once and
are saved at the end of each turn and promotion. A save that conflicts with another writer reads the newer
document, applies the unsaved changes again on top of it, and retries; so changes are functions, not values.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, ClassVar

import msgspec
from anyio import Lock

from omoide import clock
from omoide.core import codec
from omoide.core.entry import DEFAULT_NAMESPACE, Entry, Evidence, Scope
from omoide.core.frozen import thaw
from omoide.core.signal import Signal
from omoide.core.thread import Thread, ThreadEntry
from omoide.core.value import Count, Id, Millis, Record, Value, check_instance
from omoide.errors import Conflict, Invalid, NotFound
from omoide.promotion import extraction
from omoide.promotion.plan import SOURCES as CONTEXT_SOURCES
from omoide.promotion.plan import (
    PromotedEntry,
    PromotionMark,
    PromotionPlan,
    PromotionPolicy,
    PromotionRun,
    build_plan,
    digest,
    entry_from_item,
    score_context_item,
)
from omoide.promotion.promoter import Promotion, promote, undo
from omoide.retrieval.text import TokenCounter
from omoide.sessions.context import MAX_SUMMARIZED, build_block
from omoide.sessions.storage import SessionState, decode_body
from omoide.shortterm.context import SUMMARY_KEY, ContextItem, WorkingContext
from omoide.shortterm.importance import AccessLog
from omoide.shortterm.memory import (
    BufferMessage,
    ConversationBuffer,
    PendingItem,
    PendingMemories,
    ShortTerm,
    TokenBudget,
)
from omoide.stores.records import Document
from omoide.turns.prompt import SessionBlock

ExtractFunction = Callable[..., Iterable[PendingItem]]
"""Proposes memories from a message: called with its text and `role`, `thread`, `seq`, `agent_id`, `at`."""
SignalListener = Callable[[Signal], Awaitable[Any] | Any]

NOTES_KIND = "notes"
NOTES_VERSION = 1
MAX_RUNS = 20
"""Promotions that can be undone."""
MAX_HELD = 1_000
MAX_NOTICES = 100
MAX_ATTEMPTS = 50
"""Attempts of a save that conflicts with other writers."""


def to_buffer_message(entry: ThreadEntry, count: TokenCounter) -> BufferMessage | None:
    """Convert a message or a tool result of a thread; return None for other entries."""
    payload = entry.payload
    content = payload.get("content")
    if not isinstance(content, str):
        return None
    role = {"message": payload.get("role"), "tool_result": "tool"}.get(entry.kind)
    if role not in ("user", "assistant", "system", "tool"):
        return None
    calls = payload.get("calls")
    text = content if not calls else f"{content}{thaw(calls)}"
    return BufferMessage(
        id=entry.id,
        role=role,
        content=content,
        timestamp=entry.at,
        token_count=max(1, count(text)),
        tool_calls=None if not calls else tuple(calls),
        metadata={name: payload[name] for name in ("request_id", "call_id", "name") if name in payload},
        seq=entry.seq,
    )


def latest_evidence(thread: Thread, source: str) -> Evidence | None:
    """Return the newest entry of a thread that a value or a memory of this source can come from.

    That is a tool result for `tool`, any message for `inferred`, and else a message of the user; where there
    is none, the newest message or tool result.
    """

    def matches(entry: ThreadEntry) -> bool:
        if source == "tool":
            return entry.kind == "tool_result"
        return entry.kind == "message" and (source == "inferred" or entry.payload.get("role") == "user")

    said = [entry for entry in thread.entries if entry.kind in ("message", "tool_result")]
    found = next((entry for entry in reversed(said) if matches(entry)), said[-1] if said else None)
    if found is None:
        return None
    kind = "tool" if found.kind == "tool_result" else "message"
    return Evidence(kind=kind, ref=f"{thread.id}:{found.seq}")


def evicted_statements(
    evicted: Sequence[BufferMessage], thread_id: str, agent_id: str
) -> Iterator[PendingItem]:
    """Yield the statements of messages that left the buffer; they give way to everything else that waits."""
    for message in evicted:
        for item in extract_items(extraction.extract, message, thread_id, agent_id):
            yield item.replace(from_eviction=True)


def extract_items(
    extractor: ExtractFunction, message: BufferMessage, thread_id: str, agent_id: str
) -> Iterable[PendingItem]:
    """Return the memories that an extractor finds in a message of a user or the assistant."""
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


def _is_evicted_message(entry: Entry) -> bool:
    if entry.type is not None or entry.message is None:
        return False
    key = f"{entry.message.thread}\0{entry.message.seq}\0message"
    return entry.id == "mem_" + sha256(key.encode()).hexdigest()[:32]


class Origin(Value, frozen=True, kw_only=True):
    """The evidence for a value of the working context."""

    key: str
    evidence: Evidence


class SessionNotes(Record, frozen=True, kw_only=True):
    """Short-term memory as it is persisted between two turns."""

    LABEL: ClassVar[str] = "session's notes"

    schema_version: int = NOTES_VERSION
    session_id: Id
    context: WorkingContext
    pending: PendingMemories
    access_log: AccessLog
    origins: tuple[Origin, ...] = ()
    marks: tuple[PromotionMark, ...] = ()
    dropped: tuple[PromotionMark, ...] = ()
    """Pending items that were values of the working context until it was full."""
    held: tuple[str, ...] = ()
    """Ids of memories whose promotion was undone: they are not promoted again automatically."""
    runs: tuple[PromotionRun, ...] = ()
    """The last promotions, oldest first."""
    run_count: Count = 0
    total_promoted: Count = 0
    last_run: Millis | None = None
    evicted: Count = 0
    """Position in the thread up to which evicted messages were considered."""
    read: Count = 0
    """Position in the thread up to which the function that proposes memories has read messages."""
    extracted: Count = 0
    """Position in the thread up to which an `Extractor` has read messages."""
    closed: bool = False
    saved_at: Millis = msgspec.field(default_factory=clock.now)

    def marks_by_key(self) -> dict[str, PromotionMark]:
        """Return the promotion marks by the keys of the working context."""
        return {mark.key: mark for mark in self.marks}

    def evidence_by_key(self) -> dict[str, Evidence]:
        """Return the evidence of values by their keys."""
        return {origin.key: origin.evidence for origin in self.origins}

    def with_origin(self, key: str, evidence: Evidence | None) -> SessionNotes:
        """Return the notes with other evidence for a value, or with none."""
        rest = tuple(origin for origin in self.origins if origin.key != key)
        return self.replace(origins=rest if evidence is None else (*rest, Origin(key=key, evidence=evidence)))

    def with_items(self, items: Iterable[PendingItem]) -> tuple[SessionNotes, tuple[PendingItem, ...]]:
        """Return the notes with further items that wait for promotion, and the items that had to leave."""
        pending, evicted = self.pending, list[PendingItem]()
        for item in items:
            pending, gone = pending.add_implicit(item)
            evicted += gone
        gone_ids = {item.id for item in evicted}
        dropped = tuple(mark for mark in self.dropped if mark.id not in gone_ids)
        return self.replace(pending=pending, dropped=dropped), tuple(evicted)

    def with_durable_items(self) -> SessionNotes:
        """Return the notes as they are once they are saved."""
        pending = self.pending.as_durable()
        return self if pending is self.pending else self.replace(pending=pending)

    def upgraded(self) -> SessionNotes:
        """Return notes that an earlier version stored as this one has them.

        Marks get type, source and confidence. Evicted messages waited as they were, below every threshold.
        """
        items, marks = self.context.items, []
        for mark in self.marks:
            item = items.get(mark.key)
            if mark.source is None and item is not None and digest(item.value) == mark.digest:
                mark = mark.replace(
                    type=item.suggested_type,
                    source=CONTEXT_SOURCES[item.source],
                    confidence=item.confidence,
                    evidence=self.evidence_by_key().get(mark.key),
                )
            marks.append(mark)
        messages = [item.id for item in self.pending.items if _is_evicted_message(item.entry)]
        if not messages and tuple(marks) == self.marks:
            return self
        return self.replace(marks=tuple(marks), pending=self.pending.clear_promoted(messages))

    def without_held(self, id: str) -> SessionNotes:
        """Return the notes in which a memory may be promoted again although its promotion was undone."""
        return self.replace(held=tuple(held for held in self.held if held != id)) if id in self.held else self

    def without_dropped(self, key: str) -> SessionNotes:
        """Return the notes without the pending item of a key that has another value now."""
        old = {mark.id for mark in self.dropped if mark.key == key}
        if not old:
            return self
        rest = tuple(mark for mark in self.dropped if mark.id not in old)
        return self.replace(pending=self.pending.clear_promoted(old), dropped=rest)

    def without_held_revision(self, key: str, item: ContextItem | None) -> SessionNotes:
        """Return the notes before a value is put again: what is new about it may be promoted."""
        old, mark = self.context.item(key), self.marks_by_key().get(key) if self.held else None
        if mark is None or old is None or item is None or old.value != item.value:
            return self
        same = (old.suggested_type, old.source, old.confidence)
        new = (item.suggested_type, item.source, item.confidence)
        return self if same == new else self.without_held(mark.id)

    def with_run(self, run: PromotionRun) -> SessionNotes:
        """Return the notes after a promotion."""
        marks = self.marks_by_key()
        for promoted in run.promoted:
            if promoted.mark is not None:
                marks[promoted.mark.key] = promoted.mark
        done = {promoted.item for promoted in run.promoted}
        return self.replace(
            pending=self.pending.clear_promoted(done),
            dropped=tuple(mark for mark in self.dropped if mark.id not in done),
            marks=tuple(marks.values()),
            runs=(*self.runs, run)[-MAX_RUNS:] if run.promoted else self.runs,
            run_count=self.run_count + 1,
            total_promoted=self.total_promoted + sum(promoted.made for promoted in run.promoted),
            last_run=run.at,
        )

    def undone_promotions(self) -> dict[str, PromotedEntry]:
        """Return the memories that undone runs had made, by their ids."""
        return {entry.id: entry for entry in self._undone_entries() if entry.revises is None}

    def undone_revisions(self) -> list[PromotedEntry]:
        """Return the revisions that undone runs had written."""
        return [entry for entry in self._undone_entries() if entry.revises is not None]

    def _undone_entries(self) -> list[PromotedEntry]:
        return [entry for run in self.runs if run.undone_at is not None for entry in run.promoted]

    def without_run(self, run: PromotionRun, at: int) -> SessionNotes:
        """Return the notes after a promotion was undone."""
        marks, undone = self.marks_by_key(), self.undone_promotions()
        for promoted in reversed(run.promoted):
            key = promoted.key or ""
            # A later run may have written another revision of the same memory: then its mark stays.
            if key in marks and marks[key].id == promoted.id and promoted.mark in (None, marks[key]):
                # The mark before it may be of a run that was undone, too; go back to one that is still valid.
                previous = promoted.before
                while previous is not None and previous.id in undone:
                    previous = undone[previous.id].before
                del marks[key]
                if previous is not None:
                    marks[key] = previous
        held = (*self.held, *(promoted.id for promoted in run.promoted))[-MAX_HELD:]
        runs = tuple(other.replace(undone_at=at) if other.id == run.id else other for other in self.runs)
        return self.replace(marks=tuple(marks.values()), held=held, runs=runs)


NotesChange = Callable[[SessionNotes], SessionNotes]


def decode_notes(body: object, session_id: str) -> SessionNotes:
    """Decode the body of a notes document."""
    return decode_body(body, SessionNotes, NOTES_VERSION, f"notes of session {session_id!r}")


class PromotionStats(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of a session's promotions."""

    enabled: bool
    every_ms: int
    last_run: int | None
    total_promoted: int
    runs: int
    waiting: int


class SessionMemory:
    """The short-term memory of one session, and its promotion to long-term memory."""

    def __init__(
        self,
        store: Any,
        session_id: str,
        namespace: str = DEFAULT_NAMESPACE,
        *,
        agent_id: str,
        project_id: str | None = None,
        user_id: str | None = None,
        policy: PromotionPolicy,
        budget: TokenBudget,
        count: TokenCounter,
        extractor: ExtractFunction | None = None,
        propose_evicted: bool = False,
        listener: SignalListener | None = None,
    ) -> None:
        self.policy = policy
        self.budget = budget
        self.count = count
        self.project_id = project_id
        self.user_id = user_id
        self.closed = False
        self._notices: dict[str, None] = {}
        self._store = store
        self._scope = Scope(namespace=namespace)
        self._session_id = session_id
        self._agent_id = agent_id
        self._extractor = extractor
        self._propose_evicted = propose_evicted
        """True if messages that leave the buffer are proposed; captured turns need no proposals."""
        self._listener = listener
        self._notes = SessionNotes(
            session_id=session_id,
            context=WorkingContext.new(budget.context),
            pending=PendingMemories(),
            access_log=AccessLog(),
        )
        self._rev = 0
        self._lock = threading.Lock()
        self._loaded = False
        self._changes: list[NotesChange] = []
        """Changes that are not saved yet."""
        self._promotion_lock, self._save_lock = Lock(), Lock()
        self._buffer = ConversationBuffer.new(budget.conversation)
        self._left: deque[BufferMessage] = deque(maxlen=MAX_SUMMARIZED)
        """The last messages that left the buffer."""
        self._followed_count = 0
        self._last_run_at = clock.now()
        self._idle_runs = 0
        """Runs that promoted nothing; they are counted here and not saved."""
        self._last_idle_run_at: int | None = None
        self._checked_notes: SessionNotes | None = None
        """The notes of which the last run left nothing to promote."""

    @property
    def notes(self) -> SessionNotes:
        """The notes, with changes that are not saved yet."""
        return self._notes

    @property
    def notices(self) -> tuple[str, ...]:
        """Losses and failures to report, each once, the latest only."""
        return tuple(self._notices)

    def add_notice(self, notice: str) -> None:
        """Add a notice, or move it to the end."""
        self._notices.pop(notice, None)
        self._notices[notice] = None
        if len(self._notices) > MAX_NOTICES:
            del self._notices[next(iter(self._notices))]

    def short_term(self, thread: Thread) -> ShortTerm:
        """Return short-term memory as a value."""
        self.follow(thread)
        return ShortTerm(
            session_id=self._session_id,
            conversation=self._buffer,
            context=self._notes.context,
            pending=self._notes.pending,
            access_log=self._notes.access_log,
            token_budget=self.budget,
            created_at=thread.created_at,
        )

    @property
    def stats(self) -> PromotionStats:
        """Statistics of promotion."""
        notes, idle_at = self._notes, self._last_idle_run_at
        return PromotionStats(
            enabled=self.policy.enabled,
            every_ms=self.policy.every_ms,
            last_run=notes.last_run if idle_at is None else idle_at,
            total_promoted=notes.total_promoted,
            runs=notes.run_count + self._idle_runs,
            waiting=notes.pending.size,
        )

    # Loading and saving

    async def load(self) -> bool:
        """Read the notes and apply unsaved changes to them; return whether there were any.

        The first time, a notice reports what a session that was not closed may have lost.
        """
        document = await self._store.load(NOTES_KIND, self._session_id, self._scope)
        if document is None:
            return False
        self._rev = document.rev
        notes = decode_notes(document.body, self._session_id).upgraded()
        notes = self._fit_context(notes)
        for change in self._changes:
            notes = change(notes)
        self._notes = notes
        if not self._loaded and not notes.closed:
            self.add_notice(
                f"session {self._session_id!r} was not closed, or is open elsewhere: working context and"
                f" pending memories are those of {_format_time(notes.saved_at)}; what came after is lost"
            )
        self._loaded = True
        return True

    def _fit_context(self, notes: SessionNotes) -> SessionNotes:
        """Return the notes with the context budget of this session, which may differ from the saved one."""
        if notes.context.max_tokens == self.budget.context:
            return notes
        context, dropped = notes.context.resize(self.budget.context)
        notes = notes.replace(context=context)
        for item in dropped:
            notes = self.drop_context_item(notes, item)
            self.add_notice(f"{item.key!r} does not fit into the working context any more")
        return notes

    async def refresh(self) -> None:
        """Read the notes again if another writer changed them."""
        document = await self._store.load(NOTES_KIND, self._session_id, self._scope)
        if document is not None and document.rev != self._rev:
            await self.load()

    async def open(self) -> None:
        """Load the notes and mark the session as open."""
        if not self._loaded:
            await self.load()
        with suppress(Conflict):  # another process opened it at the same time and marked it
            async with self._save_lock:
                await self._save(closed=False, attempts=1)

    def apply(self, change: NotesChange) -> None:
        """Apply a change to the notes; it is saved later."""
        self.check_open()
        with self._lock:  # tools run in other threads
            self._notes = change(self._notes)
            self._changes.append(change)

    def check_open(self) -> None:
        """Raise if the session is closed: then nothing may be promoted, since that could not be noted."""
        if self.closed:
            raise Invalid("session", f"{self._session_id!r} is closed", "open it again")

    async def save(self, *, closed: bool | None = None) -> None:
        """Save unsaved changes, and whether the session is closed, if that is given."""
        if self._has_unsaved(closed):
            async with self._save_lock:  # one save for all tasks that wait for it
                if self._has_unsaved(closed):
                    await self._save(closed=self._notes.closed if closed is None else closed)

    def _has_unsaved(self, closed: bool | None) -> bool:
        changes = bool(self._changes) or closed not in (None, self._notes.closed)
        return changes or (closed is False and self._rev == 0)

    async def journal(self) -> None:
        """Save now if a decision of the agent is not saved yet."""
        if not all(decision.durable for decision in self._notes.pending.agent_decisions):
            await self.save()

    async def _save(self, *, closed: bool, attempts: int = MAX_ATTEMPTS) -> None:
        for attempt in range(attempts):
            saved, notes = len(self._changes), self._notes.replace(closed=closed, saved_at=clock.now())
            notes = notes.with_durable_items()
            document = Document(
                kind=NOTES_KIND,
                id=self._session_id,
                namespace=self._scope.namespace,
                user_id=self.user_id,
                agent_id=self._agent_id,
                session_id=self._session_id,
                body=codec.to_builtins(notes),
            )
            try:
                self._rev = (await self._store.save(document, expected_rev=self._rev)).rev
            except Conflict:
                # `load` has applied the unsaved changes to the newer notes, which are saved next.
                if not await self.load():
                    if self._rev:
                        raise NotFound("session", self._session_id, "it was erased") from None
                    self._rev = 0
                if attempt + 1 == attempts:
                    raise
                continue
            del self._changes[:saved]  # others may have been applied during the save
            if not self._changes:
                self._notes = notes
            return

    # The conversation

    def follow(self, thread: Thread) -> None:
        """Read new messages into the buffer; propose what the extractor finds, or what leaves unread says."""
        messages = [
            message
            for entry in thread.entries[self._followed_count :]
            if (message := to_buffer_message(entry, self.count)) is not None
        ]
        self._followed_count = len(thread.entries)
        if not messages:
            return
        self._buffer, evicted = self._buffer.add_all(messages)
        self._left.extend(evicted)
        new = [message for message in evicted if (message.seq or 0) >= self._notes.evicted]
        if new:
            proposes = self._propose_evicted and self._extractor is None
            items = [*evicted_statements(new, thread.id, self._agent_id)] if proposes else []
            end = max(message.seq or 0 for message in new) + 1
            self.apply(lambda notes: self._add_items(notes, items).replace(evicted=max(notes.evicted, end)))
        if self._extractor is not None:
            unread = [message for message in messages if (message.seq or 0) >= self._notes.read]
            self._extract(self._extractor, unread, thread.id)

    def _extract(self, extractor: ExtractFunction, messages: list[BufferMessage], thread_id: str) -> None:
        if not messages:
            return
        items: list[PendingItem] = []
        for message in messages:
            try:
                items += extract_items(extractor, message, thread_id, self._agent_id)
            except Exception as error:  # a user's function: it must not end the turn
                self.add_notice(f"the extractor failed ({type(error).__name__}: {error})")
        end = max(message.seq or 0 for message in messages) + 1
        self.apply(lambda notes: self._add_items(notes, items).replace(read=max(notes.read, end)))

    def ordered_items(self) -> list[ContextItem]:
        """Return the values of the working context, the most important first."""
        now, weights, log = clock.now(), self.policy.weights, self._notes.access_log
        items = [item for item in self._notes.context.to_list() if item.key != SUMMARY_KEY]
        return sorted(items, key=lambda item: -score_context_item(item, log, now, weights).total)

    def prompt_block(
        self,
        dropped: Set[str | None],
        budget: int,
        count: TokenCounter,
        redact: Callable[[str], str] = lambda text: text,
    ) -> SessionBlock:
        """Return what a prompt shows of the session beside its turns.

        Args:
            dropped: requests whose turns the prompt does not show any more.
            budget: tokens for all of it.
            count: token counter.
            redact: replaces secrets.
        """
        buffer = [] if not self._buffer.size else self._buffer.to_list()
        added = [one for one in buffer if "request_id" not in one.metadata]
        left = [
            one
            for one in (*self._left, *buffer)
            if one.metadata.get("request_id") in dropped
            or ("request_id" not in one.metadata and one not in added)
        ]
        if not (len(self._notes.context.items) or added or left):
            return SessionBlock()
        return build_block(self.ordered_items(), added, left, budget=budget, count=count, redact=redact)

    def record_use(self, ids: Iterable[str], now: int) -> None:
        """Record the use of memories in the access log; it is saved with the next change."""
        log = self._notes.access_log
        for id in ids:
            log = log.record(("memory", id), "query", now)
        # Not recorded as a change: a lost access count is not worth a write.
        self._notes = self._notes.replace(access_log=log)

    def propose(self, item: PendingItem, *, decided: bool = False) -> None:
        """Add an item that waits for promotion; one that is `decided` is promoted whatever it scores."""
        add = self._add_decision if decided else self._add_item
        # Proposing it again overrides an earlier undo.
        self.apply(lambda notes: add(notes, item).without_held(item.id))

    @property
    def is_full_of_decisions(self) -> bool:
        """True if another decision would evict the oldest one."""
        pending = self._notes.pending
        return len(pending.agent_decisions) >= pending.max_agent_decisions

    def _add_decision(self, notes: SessionNotes, item: PendingItem) -> SessionNotes:
        pending, evicted = notes.pending.add_agent_decision(item)
        for dropped in evicted:
            self.add_notice(f"too many decisions wait: {dropped.id!r} is not promoted; promote more often")
        return notes.replace(pending=pending)

    def _add_item(self, notes: SessionNotes, item: PendingItem) -> SessionNotes:
        return self._add_items(notes, [item])

    def _add_items(self, notes: SessionNotes, items: Iterable[PendingItem]) -> SessionNotes:
        """Return the notes with items that wait for promotion; report those that had to leave."""
        notes, evicted = notes.with_items(items)
        if evicted:
            dropped = ", ".join(repr(item.id) for item in evicted)
            self.add_notice(
                f"too many memories wait: the least important are not promoted: {dropped}; promote more often"
            )
        return notes

    def drop_context_item(self, notes: SessionNotes, item: ContextItem) -> SessionNotes:
        """Return the notes after a value left the full working context: it may still become a memory."""
        mark = notes.marks_by_key().get(item.key)
        if item.suggested_type is not None or (mark is not None and mark.digest == digest(item.value)):
            notes = self._propose_dropped(notes, item)
        else:
            self.add_notice(f"{item.key!r} left the full working context; it has no type to be promoted with")
        return notes.with_origin(item.key, None)

    def _propose_dropped(self, notes: SessionNotes, item: ContextItem) -> SessionNotes:
        weights, now = self.policy.weights, clock.now()
        importance = score_context_item(item, notes.access_log, now, weights).total
        scope = Scope(
            agent_id=self._agent_id,
            session_id=self._session_id,
            project_id=self.project_id,
            user_id=self.user_id,
        )
        mark, origin = notes.marks_by_key().get(item.key), notes.evidence_by_key().get(item.key)
        entry = entry_from_item(item, self._session_id, scope, importance, mark, origin)
        notes = notes.without_dropped(item.key)
        pending_item = PendingItem(entry=entry, access_count=item.access_count)
        new = PromotionMark.of(item.key, digest(item.value), entry.id, entry)
        return self._add_item(notes.replace(dropped=(*notes.dropped, new)), pending_item)

    # Promotion

    def due_trigger(self, now: int) -> str | None:
        """Return the trigger of a promotion that is due (`turn`, `capacity`, `interval`), or None."""
        # Notes are immutable: the same object means that nothing changed since the last run.
        if not self.policy.enabled or self._checked_notes is self._notes:
            return None
        notes, capacity = self._notes, self.policy.capacity
        if notes.pending.list_agent_decisions():
            return "turn"
        # Statements of evicted messages give way, so they do not make it crowded.
        waiting = sum(not item.from_eviction for item in notes.pending.items)
        crowded = waiting >= capacity * notes.pending.max_items
        if crowded or notes.context.current_tokens >= capacity * notes.context.max_tokens:
            return "capacity"
        last = max(notes.last_run or 0, self._last_run_at)
        return "interval" if now - last >= self.policy.every_ms else None

    def unread_messages(self, thread: Thread) -> list[BufferMessage]:
        """Return the messages that no `Extractor` has read, oldest first."""
        entries = [entry for entry in thread.entries if entry.seq >= self._notes.extracted]
        found = (to_buffer_message(entry, self.count) for entry in entries)
        return [message for message in found if message is not None]

    def add_extracted(self, items: Sequence[PendingItem], end: int) -> None:
        """Let items wait for promotion that were found in the messages before a position."""
        self.apply(lambda notes: self._add_items(notes, items).replace(extracted=max(notes.extracted, end)))

    def plan(
        self,
        thread: Thread,
        scope: Scope,
        trigger: str,
        threshold: float | None = None,
        extra: Iterable[PendingItem] = (),
    ) -> PromotionPlan:
        """Return what a promotion would do now, with extra items if some waited as well."""
        notes, memory = self._notes, self.short_term(thread)
        for item in extra:
            memory = memory.replace(pending=memory.pending.add_implicit(item)[0])
        return build_plan(
            memory,
            scope,
            self.policy,
            now=clock.now(),
            trigger=trigger,
            threshold=threshold,
            marks=notes.marks_by_key(),
            origins=notes.evidence_by_key(),
            evicted={mark.id: mark for mark in notes.dropped},
            undone_ids=notes.held,
        )

    async def promote(
        self, store: Any, thread: Thread, scope: Scope, trigger: str, threshold: float | None = None
    ) -> Promotion:
        """Promote, save the changed notes, and emit the signals of it."""
        async with self._promotion_lock:
            promotion = await self._promote(store, thread, scope, trigger, threshold)
        await self._emit_signals(promotion.signals)
        return promotion

    async def make_room_for_decision(self, store: Any, thread: Thread, scope: Scope) -> None:
        """Promote if another decision would evict one."""
        async with self._promotion_lock:
            if not self.is_full_of_decisions:  # another task has promoted meanwhile
                return
            promotion = await self._promote(store, thread, scope, "capacity")
        await self._emit_signals(promotion.signals)

    async def _promote(
        self, store: Any, thread: Thread, scope: Scope, trigger: str, threshold: float | None = None
    ) -> Promotion:
        await self.refresh()
        plan = self.plan(thread, scope, trigger, threshold)
        active = [run for run in self._notes.runs if run.undone_at is None]
        known = frozenset(promoted.id for run in active for promoted in run.promoted)
        promotion = await promote(store, plan, strict=self.policy.strict, promoted_ids=known)
        run, self._last_run_at = promotion.run, plan.at
        if run is not None and run.promoted:
            self._last_idle_run_at = None
            self.apply(lambda notes: notes.with_run(run))
        else:
            self._idle_runs, self._last_idle_run_at = self._idle_runs + 1, plan.at
        for notice in promotion.notices:
            self.add_notice(notice)
        for failure in () if run is None else run.failed:
            self.add_notice(f"memory {failure.id!r} waits: {failure.problem}")
        before = self._notes
        await self.save()
        postponed = any(candidate.verdict == "later" for candidate in promotion.plan.candidates)
        complete = not self._changes and not postponed and (run is None or not run.failed)
        self._checked_notes = self._notes if complete and before.context is self._notes.context else None
        return promotion

    async def undo(self, store: Any, scope: Scope, run_id: str | None) -> PromotionRun:
        """Undo a promotion: the last, or the one with an id."""
        await self.refresh()
        active = [run for run in self._notes.runs if run.undone_at is None]
        run = next((run for run in reversed(active) if run_id in (None, run.id)), None)
        if run is None:
            known = ", ".join(run.id for run in active) or "none"
            raise NotFound("promotion", run_id or "last", f"what can be undone: {known}")
        undone, revisions = self._notes.undone_promotions(), self._notes.undone_revisions()
        signals, entries = await undo(store, run, scope, undone=undone, undone_revisions=revisions)
        keyed, now = {promoted.id for promoted in run.promoted if promoted.key is not None}, clock.now()
        # Values of the working context are still there; the others wait for promotion again.
        items = [
            PendingItem(entry=_reset_entry(entry))
            for entry in entries
            # A revised memory of another session is as before, and nothing of it waits here.
            if entry.id not in keyed and entry.session_id == self._session_id
        ]
        self.apply(lambda notes: self._add_items(notes.without_run(run, now), items))
        await self.save()
        await self._emit_signals(signals)
        return run.replace(undone_at=now)

    async def _emit_signals(self, signals: Iterable[Signal]) -> None:
        """Pass signals to the listener; one that fails only causes a notice."""
        if self._listener is None:
            return
        for signal in signals:
            try:
                pending = self._listener(signal)
                if isinstance(pending, Awaitable):
                    await pending
            except Exception as error:
                self.add_notice(f"a listener failed ({type(error).__name__}: {error})")


def _reset_entry(entry: Entry) -> Entry:
    """Return a memory as it was before it was written."""
    return entry.replace(superseded_by=None, superseded_at=None, superseded_reason=None, rev=0)


def _format_time(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


class Scratchpad:
    """The working context of a session as a mutable mapping; reads count as access."""

    def __init__(self, memory: SessionMemory, state: SessionState) -> None:
        self._memory = memory
        self._state = state

    @property
    def value(self) -> WorkingContext:
        """The working context as a value."""
        return self._memory.notes.context

    def record_use(self, ids: Iterable[str]) -> None:
        """Record in the access log that memories were used."""
        self._memory.record_use(ids, clock.now())

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
        """Put a value under a key.

        Args:
            key: the key.
            value: data.
            source: where it comes from: `inferred`, `explicit` (the user stated it) or `tool`.
            confidence: from 0 to 1.
            memory_type: the type of memory that it becomes if promoted.
            evidence: default: the last message; for the source `explicit` the last one of the user, for
                `tool` the last tool result.
        """
        now, memory = clock.now(), self._memory
        if evidence is None:
            evidence = latest_evidence(self._state.thread, source)
        else:
            check_instance(evidence, "evidence", kind=Evidence)

        def change(notes: SessionNotes) -> SessionNotes:
            context, dropped = notes.context.put(
                key, value, source=source, confidence=confidence, memory_type=memory_type, now=now,
                count=memory.count,
            )  # fmt: skip
            notes = notes.without_held_revision(key, context.item(key))
            notes = notes.replace(context=context, access_log=notes.access_log.record(key, "write", now))
            for item in dropped:
                notes = memory.drop_context_item(notes, item)
            return notes.without_dropped(key).with_origin(key, evidence)

        memory.apply(change)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value, or the default; count an access."""
        now = clock.now()
        if not self.value.has(key):
            return default
        value = self.value.peek(key)

        def change(notes: SessionNotes) -> SessionNotes:
            context, _ = notes.context.get(key, now=now)
            return notes.replace(context=context, access_log=notes.access_log.record(key, "read", now))

        self._memory.apply(change)
        return value

    def peek(self, key: str, default: Any = None) -> Any:
        """Return a value, or the default, without counting an access."""
        return self.value.peek(key, default)

    def item(self, key: str) -> ContextItem | None:
        """Return a value with its source, confidence and access count."""
        return self.value.item(key)

    def delete(self, key: str) -> bool:
        """Remove a value and return whether there was one; memories promoted from it stay."""
        if not self.value.has(key):
            return False
        self._memory.apply(
            lambda notes: notes.replace(context=notes.context.delete(key)).with_origin(key, None)
        )
        return True

    def clear(self) -> None:
        """Remove all values."""
        self._memory.apply(lambda notes: notes.replace(context=notes.context.clear(), origins=()))

    def to_dict(self) -> dict[str, Any]:
        """Return all values without counting an access."""
        return self.value.to_dict()

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.value.has(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.value.to_dict())

    def __len__(self) -> int:
        return self.value.size
