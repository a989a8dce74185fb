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
from omoide.promotion.plan import Plan, PromotionPolicy, Run, planned
from omoide.promotion.promoter import Promotion, promote, undo
from omoide.sessions import notes
from omoide.sessions import notes as hearing
from omoide.sessions.notes import Extractor, Notes
from omoide.shortterm.context import ContextItem, WorkingContext
from omoide.shortterm.importance import AccessLog
from omoide.shortterm.memory import ConversationBuffer, ShortTerm, TokenBudget
from omoide.shortterm.pending import PendingItem, PendingMemories
from omoide.stores.records import Document
from omoide.turns.prompt import Counter

NOTES = "notes"
NOTICES = 100
TRIES = 50
"""How often somebody else may be faster."""

Change = Callable[[Notes], Notes]
Listener = Callable[[Signal], Awaitable[Any] | Any]


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """How promotion goes."""

    enabled: bool
    every_ms: int
    last_run: int | None
    total_promoted: int
    runs: int
    waiting: int


class Learning:
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
        count: Counter,
        extractor: Extractor | None = None,
        keeps_evicted: bool = False,
        listener: Listener | None = None,
    ) -> None:
        self.policy = policy
        self.budget = budget
        self.count = count
        self._heard: dict[str, None] = {}
        self.drop: Callable[[Notes, ContextItem], Notes] = lambda held, item: held
        """What becomes of a value for which there is no room any more."""
        self._store = store
        self._scope = Scope(namespace=namespace)
        self._session_id = session_id
        self._agent_id = agent_id
        self._extractor = extractor
        self._keeps_evicted = keeps_evicted
        """Whether messages that leave the buffer may become memories: where turns are not captured anyway."""
        self.closed = False
        self._listener = listener
        self._notes = self._empty()
        self._rev = 0
        self._loaded = False
        self._changes: list[Change] = []
        self._buffer = ConversationBuffer.new(budget.conversation)
        self._followed = 0
        self._ran_at = clock.now()
        self._idle = 0
        self._idle_at: int | None = None
        self._looked_at: Notes | None = None

    def _empty(self) -> Notes:
        return Notes(
            session_id=self._session_id,
            context=WorkingContext.new(self.budget.context),
            pending=PendingMemories(),
            access_log=AccessLog(),
        )

    # What is known

    @property
    def notes(self) -> Notes:
        """What is held, with what is not saved yet."""
        return self._notes

    @property
    def heard(self) -> tuple[str, ...]:
        """What the session should tell: what was lost, what failed; each once, and the latest only."""
        return tuple(self._heard)

    def tell_of(self, notice: str) -> None:
        """Note what somebody should know."""
        self._heard.pop(notice, None)
        self._heard[notice] = None
        if len(self._heard) > NOTICES:
            del self._heard[next(iter(self._heard))]

    def memory(self, thread: Thread) -> ShortTerm:
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
    def stats(self) -> Stats:
        """How promotion goes."""
        held = self._notes
        return Stats(
            enabled=self.policy.enabled,
            every_ms=self.policy.every_ms,
            last_run=self._idle_at if self._idle_at is not None else held.last_run,
            total_promoted=held.total_promoted,
            runs=held.run_count + self._idle,
            waiting=held.pending.size,
        )

    # Read, changed, saved

    async def load(self) -> bool:
        """Read what is kept, and change it again as it was changed here; whether there was anything.

        The first time, what a session that was not closed may have lost is told.
        """
        document = await self._store.load(NOTES, self._session_id, self._scope)
        if document is None:
            return False
        self._rev = document.rev
        held = self._sized(notes.read(document.body, self._session_id))
        for change in self._changes:
            held = change(held)
        self._notes = held
        if not self._loaded and not held.closed:
            self.tell_of(
                f"session {self._session_id!r} was not closed, or is open elsewhere: working context and"
                f" pending memories are those of {_moment(held.saved_at)}; what came after is lost"
            )
        self._loaded = True
        return True

    def _sized(self, held: Notes) -> Notes:
        """The notes in the room that this session has, which may be another than when they were saved."""
        if held.context.max_tokens == self.budget.context:
            return held
        context, left = held.context.resized(self.budget.context)
        held = held.replace(context=context)
        for item in left:
            held = self.drop(held, item).with_origin(item.key, None)
            self.tell_of(f"there is no room for {item.key!r} in the working context any more")
        return held

    async def refresh(self) -> None:
        """Read again what somebody else may have changed; own changes are made on top of it."""
        document = await self._store.load(NOTES, self._session_id, self._scope)
        if document is not None and document.rev != self._rev:
            await self.load()

    async def open(self) -> None:
        """Begin to use it."""
        if not self._loaded:
            await self.load()
        with suppress(Conflict):  # somebody else opened it just now, and said so
            await self._save(closed=False, tries=1)

    def apply(self, change: Change) -> None:
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

    async def _save(self, *, closed: bool, tries: int = TRIES) -> None:
        for attempt in range(tries):
            made, held = len(self._changes), self._notes.replace(closed=closed, saved_at=clock.now())
            document = Document(
                kind=NOTES,
                id=self._session_id,
                namespace=self._scope.namespace,
                agent_id=self._agent_id,
                session_id=self._session_id,
                body=notes.written(held),
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
            for entry in thread.entries[self._followed :]
            if (message := hearing.message(entry, thread.id, self.count)) is not None
        ]
        self._followed = len(thread.entries)
        if not said:
            return
        self._buffer, evicted = self._buffer.add_all(said)
        fresh = [one for one in evicted if one.seq is not None and one.seq >= self._notes.evicted]
        if fresh:
            last = max(one.seq or 0 for one in fresh) + 1
            now, weights = clock.now(), self.policy.weights
            items = hearing.left_behind(fresh, thread.id, self._agent_id, now, weights)
            items = items if self._keeps_evicted else []
            self.apply(lambda held: _added(held, items).replace(evicted=max(held.evicted, last)))
        if self._extractor is not None:
            self._extract([one for one in said if (one.seq or 0) >= self._notes.read], thread.id)

    def _extract(self, said: list[Any], thread_id: str) -> None:
        if not said or self._extractor is None:
            return
        items: list[PendingItem] = []
        for message in said:
            try:
                items += hearing.extracted(self._extractor, message, thread_id, self._agent_id)
            except Exception as error:  # it is somebody's function, and the message is kept
                self.tell_of(f"the extractor failed ({type(error).__name__}: {error})")
        last = max(one.seq or 0 for one in said) + 1
        self.apply(lambda held: _added(held, items).replace(read=max(held.read, last)))

    def place(self, thread: Thread, source: str) -> Evidence | None:
        """Where in the thread what is noted now comes from: the last message, or the last tool result."""
        return hearing.place(thread, source)

    def used(self, memories: Iterable[Entry], now: int) -> None:
        """Note which memories were used; that is not worth a save of its own."""
        log = self._notes.access_log
        for entry in memories:
            log = log.record(("memory", entry.id), "query", now)
        self._notes = self._notes.replace(access_log=log)

    def propose(self, item: PendingItem, *, decided: bool = False) -> None:
        """Let something wait for promotion."""
        if decided:
            for left in self._notes.pending.add_agent_decision(item)[1]:
                self.tell_of(f"too many decisions wait: {left.id!r} is not promoted; promote more often")
            self.apply(lambda held: held.replace(pending=held.pending.add_agent_decision(item)[0]))
        else:
            self.apply(lambda held: _added(held, [item]))
        # Whoever proposes it again wants it promoted, though that was once undone.
        self.apply(lambda held: held.replace(held=tuple(one for one in held.held if one != item.id)))

    # Promotion

    def due(self, now: int) -> str | None:
        """Why it is time to promote, if it is."""
        if not self.policy.enabled or self._looked_at is self._notes:
            return None
        held = self._notes
        if held.pending.list_agent_decisions():
            return "turn"
        full = self.policy.capacity
        crowded = len(held.pending.list_implicit()) >= full * held.pending.max_items
        if crowded or held.context.current_tokens >= full * held.context.max_tokens:
            return "capacity"
        last = max(held.last_run or 0, self._ran_at)
        return "interval" if now - last >= self.policy.every_ms else None

    def plan(self, thread: Thread, scope: Scope, trigger: str, threshold: float | None = None) -> Plan:
        """What a promotion would do now."""
        held = self._notes
        return planned(
            self.memory(thread),
            scope,
            self.policy,
            now=clock.now(),
            trigger=trigger,
            threshold=threshold,
            marks=held.marked(),
            origins=held.traced(),
            dropped={one.id: one for one in held.dropped},
            held=held.held,
        )

    async def promote(
        self, store: Any, thread: Thread, scope: Scope, trigger: str, threshold: float | None = None
    ) -> Promotion:
        """Promote, keep what that changed, and tell it."""
        await self.refresh()
        plan = self.plan(thread, scope, trigger, threshold)
        standing = [run for run in self._notes.runs if run.undone_at is None]
        earlier = frozenset(one.id for run in standing for one in run.promoted)
        done = await promote(store, plan, strict=self.policy.strict, earlier=earlier)
        run, self._ran_at = done.run, plan.at
        if run is not None and run.promoted:
            self._idle_at = None
            self.apply(lambda held: held.after(run))
        else:  # not worth a save
            self._idle, self._idle_at = self._idle + 1, plan.at
        for failure in () if run is None else run.failed:
            self.tell_of(f"memory {failure.id!r} waits: {failure.problem}")
        before = self._notes
        await self.save()
        left = any(one.verdict == "later" for one in done.plan.candidates)
        whole = not self._changes and not left and (run is None or not run.failed)
        self._looked_at = self._notes if whole and before.context is self._notes.context else None
        await self.tell(done.signals)
        return done

    async def undo(self, store: Any, scope: Scope, run_id: str | None) -> Run:
        """Take a promotion back: the last, or the one that is named."""
        await self.refresh()
        known = [one for one in self._notes.runs if one.undone_at is None]
        run = next((one for one in reversed(known) if run_id in (None, one.id)), None)
        if run is None:
            there = ", ".join(one.id for one in known) or "none"
            raise NotFound("promotion", run_id or "last", f"what can be undone: {there}")
        signals, taken = await undo(store, run, scope, gone=self._notes.gone())
        keyed, now = {one.id for one in run.promoted if one.key is not None}, clock.now()
        items = [PendingItem(entry=_unwritten(entry)) for entry in taken if entry.id not in keyed]
        self.apply(lambda held: _added(held.undone(run, now), items))
        await self.save()
        await self.tell(signals)
        return run.replace(undone_at=now)

    async def tell(self, signals: Iterable[Signal]) -> None:
        """Pass signals on; what a listener raises is told, and stops nothing."""
        if self._listener is None:
            return
        for signal in signals:
            try:
                answer = self._listener(signal)
                if isinstance(answer, Awaitable):
                    await answer
            except Exception as error:
                self.tell_of(f"a listener failed ({type(error).__name__}: {error})")


def _unwritten(entry: Entry) -> Entry:
    """A memory as it was before it was kept."""
    return entry.replace(superseded_by=None, superseded_at=None, superseded_reason=None, rev=0)


def _moment(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _added(held: Notes, items: Iterable[PendingItem]) -> Notes:
    pending = held.pending
    for item in items:
        pending, _ = pending.add_implicit(item)
    return held.replace(pending=pending)
