"""What does a session learn, and when is that kept?

Short-term memory changes in memory at once; it is saved at the end of each turn and of each promotion. A
change that somebody else made meanwhile is read first, and the own changes are made again on top of it.

"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec

from omoide import clock
from omoide.core.entry import DEFAULT_NAMESPACE, Entry, Evidence, Scope
from omoide.core.signal import Signal
from omoide.core.thread import Thread
from omoide.errors import Conflict, Invalid, NotFound
from omoide.promotion.plan import PromotionPlan, PromotionPolicy, PromotionRun, build_plan
from omoide.promotion.promoter import Promotion, promote, undo
from omoide.sessions import notes
from omoide.sessions import notes as hearing
from omoide.sessions.notes import Extractor, SessionNotes
from omoide.shortterm.context import ContextItem, WorkingContext
from omoide.shortterm.importance import AccessLog
from omoide.shortterm.memory import ConversationBuffer, ShortTerm, TokenBudget
from omoide.shortterm.pending import PendingItem, PendingMemories
from omoide.stores.records import Document
from omoide.turns.prompt import TokenCounter

NOTES_KIND = "notes"
MAX_NOTICES = 100
MAX_ATTEMPTS = 50
"""How often somebody else may be faster."""

NotesChange = Callable[[SessionNotes], SessionNotes]
SignalListener = Callable[[Signal], Awaitable[Any] | Any]


class PromotionStats(msgspec.Struct, frozen=True, kw_only=True):
    """How promotion goes."""

    enabled: bool
    every_ms: int
    last_run: int | None
    total_promoted: int
    runs: int
    waiting: int


class SessionMemory:
    """The short-term memory of one session."""

    def __init__(
        self,
        store: Any,
        session_id: str,
        namespace: str = DEFAULT_NAMESPACE,
        *,
        agent_id: str,
        policy: PromotionPolicy,
        budget: TokenBudget,
        count: TokenCounter,
        extractor: Extractor | None = None,
        propose_evicted: bool = False,
        listener: SignalListener | None = None,
    ) -> None:
        self.policy = policy
        self.budget = budget
        self.count = count
        self._notices: dict[str, None] = {}
        self.on_drop: Callable[[SessionNotes, ContextItem], SessionNotes] = lambda held, item: held
        """What becomes of a value for which there is no room any more."""
        self._store = store
        self._scope = Scope(namespace=namespace)
        self._session_id = session_id
        self._agent_id = agent_id
        self._extractor = extractor
        self._propose_evicted = propose_evicted
        """Whether messages that leave the buffer may become memories: where turns are not captured anyway."""
        self.closed = False
        self._listener = listener
        self._notes = self._empty_notes()
        self._rev = 0
        self._loaded = False
        self._changes: list[NotesChange] = []
        self._buffer = ConversationBuffer.new(budget.conversation)
        self._followed_count = 0
        self._last_run_at = clock.now()
        self._idle_runs = 0
        self._last_idle_run_at: int | None = None
        self._checked_notes: SessionNotes | None = None

    def _empty_notes(self) -> SessionNotes:
        return SessionNotes(
            session_id=self._session_id,
            context=WorkingContext.new(self.budget.context),
            pending=PendingMemories(),
            access_log=AccessLog(),
        )

    # What is known

    @property
    def notes(self) -> SessionNotes:
        """What is held, with what is not saved yet."""
        return self._notes

    @property
    def notices(self) -> tuple[str, ...]:
        """What the session should tell: what was lost, what failed; each once, and the latest only."""
        return tuple(self._notices)

    def add_notice(self, notice: str) -> None:
        """Note what somebody should know."""
        self._notices.pop(notice, None)
        self._notices[notice] = None
        if len(self._notices) > MAX_NOTICES:
            del self._notices[next(iter(self._notices))]

    def short_term(self, thread: Thread) -> ShortTerm:
        """Short-term memory as a value."""
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
        """How promotion goes."""
        held = self._notes
        return PromotionStats(
            enabled=self.policy.enabled,
            every_ms=self.policy.every_ms,
            last_run=self._last_idle_run_at if self._last_idle_run_at is not None else held.last_run,
            total_promoted=held.total_promoted,
            runs=held.run_count + self._idle_runs,
            waiting=held.pending.size,
        )

    # Read, changed, saved

    async def load(self) -> bool:
        """Read what is kept, and change it again as it was changed here; whether there was anything.

        The first time, what a session that was not closed may have lost is told.
        """
        document = await self._store.load(NOTES_KIND, self._session_id, self._scope)
        if document is None:
            return False
        self._rev = document.rev
        held = self._fit_context(notes.decode_notes(document.body, self._session_id))
        for change in self._changes:
            held = change(held)
        self._notes = held
        if not self._loaded and not held.closed:
            self.add_notice(
                f"session {self._session_id!r} was not closed, or is open elsewhere: working context and"
                f" pending memories are those of {_format_time(held.saved_at)}; what came after is lost"
            )
        self._loaded = True
        return True

    def _fit_context(self, held: SessionNotes) -> SessionNotes:
        """The notes in the room that this session has, which may be another than when they were saved."""
        if held.context.max_tokens == self.budget.context:
            return held
        context, left = held.context.resize(self.budget.context)
        held = held.replace(context=context)
        for item in left:
            held = self.on_drop(held, item).with_origin(item.key, None)
            self.add_notice(f"there is no room for {item.key!r} in the working context any more")
        return held

    async def refresh(self) -> None:
        """Read again what somebody else may have changed; own changes are made on top of it."""
        document = await self._store.load(NOTES_KIND, self._session_id, self._scope)
        if document is not None and document.rev != self._rev:
            await self.load()

    async def open(self) -> None:
        """Begin to use it."""
        if not self._loaded:
            await self.load()
        with suppress(Conflict):  # somebody else opened it just now, and said so
            await self._save(closed=False, tries=1)

    def apply(self, change: NotesChange) -> None:
        """Change it now; it is saved later."""
        if self.closed:
            raise Invalid("session", f"{self._session_id!r} is closed", "open it again")
        self._notes = change(self._notes)
        self._changes.append(change)

    async def save(self, *, closed: bool | None = None) -> None:
        """Keep what was changed, and that the session is closed or open, where that is said."""
        state = self._notes.closed if closed is None else closed
        if self._changes or state != self._notes.closed or (closed is False and self._rev == 0):
            await self._save(closed=state)

    async def _save(self, *, closed: bool, tries: int = MAX_ATTEMPTS) -> None:
        for attempt in range(tries):
            made, held = len(self._changes), self._notes.replace(closed=closed, saved_at=clock.now())
            document = Document(
                kind=NOTES_KIND,
                id=self._session_id,
                namespace=self._scope.namespace,
                agent_id=self._agent_id,
                session_id=self._session_id,
                body=notes.encode_notes(held),
            )
            try:
                self._rev = (await self._store.save(document, expected_rev=self._rev)).rev
            except Conflict:
                if not await self.load():
                    if self._rev:
                        raise NotFound("session", self._session_id, "it was erased") from None
                    self._rev = 0
                if attempt + 1 == tries:
                    raise
                continue
            del self._changes[:made]
            if not self._changes:
                self._notes = held
            return

    # The conversation

    def follow(self, thread: Thread) -> None:
        """Take in what was said since; what leaves the buffer may be worth remembering."""
        said = [
            message
            for entry in thread.entries[self._followed_count :]
            if (message := hearing.to_buffer_message(entry, thread.id, self.count)) is not None
        ]
        self._followed_count = len(thread.entries)
        if not said:
            return
        self._buffer, evicted = self._buffer.add_all(said)
        fresh = [one for one in evicted if one.seq is not None and one.seq >= self._notes.evicted]
        if fresh:
            last = max(one.seq or 0 for one in fresh) + 1
            now, weights = clock.now(), self.policy.weights
            items = hearing.evicted_candidates(fresh, thread.id, self._agent_id, now, weights)
            items = items if self._propose_evicted else []
            self.apply(lambda held: _add_items(held, items).replace(evicted=max(held.evicted, last)))
        if self._extractor is not None:
            self._extract([one for one in said if (one.seq or 0) >= self._notes.read], thread.id)

    def _extract(self, said: list[Any], thread_id: str) -> None:
        if not said or self._extractor is None:
            return
        items: list[PendingItem] = []
        for message in said:
            try:
                items += hearing.extract_items(self._extractor, message, thread_id, self._agent_id)
            except Exception as error:  # it is somebody's function, and the message is kept
                self.add_notice(f"the extractor failed ({type(error).__name__}: {error})")
        last = max(one.seq or 0 for one in said) + 1
        self.apply(lambda held: _add_items(held, items).replace(read=max(held.read, last)))

    def latest_evidence(self, thread: Thread, source: str) -> Evidence | None:
        """Where in the thread what is noted now comes from: the last message, or the last tool result."""
        return hearing.latest_evidence(thread, source)

    def record_use(self, memories: Iterable[Entry], now: int) -> None:
        """Note which memories were used; that is not worth a save of its own."""
        log = self._notes.access_log
        for entry in memories:
            log = log.record(("memory", entry.id), "query", now)
        self._notes = self._notes.replace(access_log=log)

    def propose(self, item: PendingItem, *, decided: bool = False) -> None:
        """Let something wait for promotion."""
        if decided:
            for left in self._notes.pending.add_agent_decision(item)[1]:
                self.add_notice(f"too many decisions wait: {left.id!r} is not promoted; promote more often")
            self.apply(lambda held: held.replace(pending=held.pending.add_agent_decision(item)[0]))
        else:
            self.apply(lambda held: _add_items(held, [item]))
        # Whoever proposes it again wants it promoted, though that was once undone.
        self.apply(lambda held: held.replace(held=tuple(one for one in held.held if one != item.id)))

    # Promotion

    def due_trigger(self, now: int) -> str | None:
        """Why it is time to promote, if it is."""
        if not self.policy.enabled or self._checked_notes is self._notes:
            return None
        held = self._notes
        if held.pending.list_agent_decisions():
            return "turn"
        full = self.policy.capacity
        crowded = len(held.pending.list_implicit()) >= full * held.pending.max_items
        if crowded or held.context.current_tokens >= full * held.context.max_tokens:
            return "capacity"
        last = max(held.last_run or 0, self._last_run_at)
        return "interval" if now - last >= self.policy.every_ms else None

    def plan(
        self, thread: Thread, scope: Scope, trigger: str, threshold: float | None = None
    ) -> PromotionPlan:
        """What a promotion would do now."""
        held = self._notes
        return build_plan(
            self.short_term(thread),
            scope,
            self.policy,
            now=clock.now(),
            trigger=trigger,
            threshold=threshold,
            marks=held.marks_by_key(),
            origins=held.evidence_by_key(),
            evicted={one.id: one for one in held.dropped},
            undone_ids=held.held,
        )

    async def promote(
        self, store: Any, thread: Thread, scope: Scope, trigger: str, threshold: float | None = None
    ) -> Promotion:
        """Promote, keep what that changed, and tell it."""
        await self.refresh()
        plan = self.plan(thread, scope, trigger, threshold)
        standing = [run for run in self._notes.runs if run.undone_at is None]
        earlier = frozenset(one.id for run in standing for one in run.promoted)
        done = await promote(store, plan, strict=self.policy.strict, promoted_ids=earlier)
        run, self._last_run_at = done.run, plan.at
        if run is not None and run.promoted:
            self._last_idle_run_at = None
            self.apply(lambda held: held.with_run(run))
        else:  # not worth a save
            self._idle_runs, self._last_idle_run_at = self._idle_runs + 1, plan.at
        for failure in () if run is None else run.failed:
            self.add_notice(f"memory {failure.id!r} waits: {failure.problem}")
        before = self._notes
        await self.save()
        left = any(one.verdict == "later" for one in done.plan.candidates)
        whole = not self._changes and not left and (run is None or not run.failed)
        self._checked_notes = self._notes if whole and before.context is self._notes.context else None
        await self.emit_signals(done.signals)
        return done

    async def undo(self, store: Any, scope: Scope, run_id: str | None) -> PromotionRun:
        """Take a promotion back: the last, or the one that is named."""
        await self.refresh()
        known = [one for one in self._notes.runs if one.undone_at is None]
        run = next((one for one in reversed(known) if run_id in (None, one.id)), None)
        if run is None:
            there = ", ".join(one.id for one in known) or "none"
            raise NotFound("promotion", run_id or "last", f"what can be undone: {there}")
        signals, taken = await undo(store, run, scope, undone=self._notes.undone_promotions())
        keyed, now = {one.id for one in run.promoted if one.key is not None}, clock.now()
        items = [PendingItem(entry=_reset_entry(entry)) for entry in taken if entry.id not in keyed]
        self.apply(lambda held: _add_items(held.without_run(run, now), items))
        await self.save()
        await self.emit_signals(signals)
        return run.replace(undone_at=now)

    async def emit_signals(self, signals: Iterable[Signal]) -> None:
        """Pass signals on; what a listener raises is told, and stops nothing."""
        if self._listener is None:
            return
        for signal in signals:
            try:
                answer = self._listener(signal)
                if isinstance(answer, Awaitable):
                    await answer
            except Exception as error:
                self.add_notice(f"a listener failed ({type(error).__name__}: {error})")


def _reset_entry(entry: Entry) -> Entry:
    """A memory as it was before it was kept."""
    return entry.replace(superseded_by=None, superseded_at=None, superseded_reason=None, rev=0)


def _format_time(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _add_items(held: SessionNotes, items: Iterable[PendingItem]) -> SessionNotes:
    pending = held.pending
    for item in items:
        pending, _ = pending.add_implicit(item)
    return held.replace(pending=pending)
