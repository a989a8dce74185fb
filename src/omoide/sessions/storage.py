"""Session record, transcript, lease.

The header is one document of the store and the transcript another. What is said goes to the transcript as it
is said; the header says how far that is settled.

Two documents of a store: the header, saved anew at each step, and the transcript, which is only ever added
to. One runner at a time holds a lease on the session; every write names the revision it builds on, so that a
runner which lost its lease cannot write any more.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cached_property
from typing import Any, ClassVar

import msgspec
from anyio import CancelScope, Event, create_task_group, current_time, get_current_task, sleep

from omoide import clock, ids, thread
from omoide.concurrency import raise_first_error
from omoide.core import codec
from omoide.core.action import Action
from omoide.core.agent import Agent
from omoide.core.checkpoint import Checkpoint, checkpoint
from omoide.core.codec import MapField
from omoide.core.definition import Definition
from omoide.core.entry import DEFAULT_NAMESPACE, RecallResult, Scope
from omoide.core.frozen import EMPTY_MAP, thaw
from omoide.core.thread import Thread, ThreadEntry
from omoide.core.value import Count, Id, Millis, Record, Value, check_choice, check_tuple, set_field
from omoide.errors import (
    Conflict,
    IdTaken,
    Invalid,
    MissingStore,
    NotFound,
    RestoreFailed,
    SessionBusy,
    StoreFailed,
)
from omoide.stores.protocols import SupportsDocuments, SupportsLeases
from omoide.stores.records import Document
from omoide.turns import journal as transcript
from omoide.turns import tools
from omoide.turns.controls import Review, TurnContext, TurnRequest
from omoide.turns.messages import Exchange, TokenCounts
from omoide.turns.prompt import TokenCounter
from omoide.turns.runner import restore_with_plugins
from omoide.turns.spec import AgentSpec
from omoide.verbs import require

# header: What is known about a session, apart from what was said in it?


STATUSES = ("new", "running", "hibernated", "waiting", "finished", "error")
RECORD_VERSION = 1


class InFlight(Value, frozen=True, kw_only=True):
    """A turn that is not over: what it was asked, what was recalled for it, what was decided about it."""

    asked: TurnRequest
    recalled: RecallResult | None = None
    remembered: bool = False
    """Whether the store was asked: a turn that is taken up again does not ask twice."""
    decisions: MapField = EMPTY_MAP


class PendingCapture(Value, frozen=True, kw_only=True):
    """A turn that is over and whose words are still to be remembered."""

    asked: TurnRequest
    input: str
    content: str
    first: Count
    """Where in the thread the user's words are."""
    last: Count
    """Where the answer is."""


class SessionRecord(Record, frozen=True, kw_only=True):
    """A session as data; no processes, no secrets."""

    LABEL: ClassVar[str] = "session"

    schema_version: int = RECORD_VERSION
    session_id: Id
    agent_id: Id
    namespace: Id = DEFAULT_NAMESPACE
    """Where the session's own documents lie."""
    project_id: Id | None = None
    spec: AgentSpec
    status: str = "new"
    thread_id: Id
    checkpoint: Checkpoint
    """The agent after the last turn that is over, without its thread."""
    turns: Count = 0
    """How many turns are over."""
    last_request_id: Id | None = None
    result: str | None = None
    """The last answer."""
    error: MapField | None = None
    pending_reviews: tuple[Review, ...] = ()
    turn: InFlight | None = None
    captures: tuple[PendingCapture, ...] = ()
    """Turns that are over and not yet remembered, oldest first."""
    metadata: MapField = EMPTY_MAP
    created_at: Millis = msgspec.field(default_factory=clock.now)
    updated_at: Millis = msgspec.field(default_factory=clock.now)

    def _check(self) -> None:
        check_choice(self.status, "status", STATUSES)
        set_field(self, "pending_reviews", check_tuple(self.pending_reviews, "pending_reviews", Review))
        set_field(self, "captures", check_tuple(self.captures, "captures", PendingCapture))

    @property
    def snapshots(self) -> tuple[InFlight, ...]:
        """The turn at rest, where there is one."""
        return () if self.turn is None else (self.turn,)


def encode_record(header: SessionRecord) -> object:
    """A header as it stands in a document."""
    return codec.to_builtins(header)


def decode_record(body: object, session_id: str) -> SessionRecord:
    """The header that a document holds; one of another version is refused, and so is a damaged one."""
    plain = thaw(body)
    version = plain.get("schema_version") if isinstance(plain, dict) else None
    if version != RECORD_VERSION:
        raise RestoreFailed(
            f"session {session_id!r}",
            f"it has version {version}, this reads {RECORD_VERSION}; use another Omoide",
        )
    try:
        return codec.from_builtins(plain, SessionRecord)
    except ValueError as error:
        raise RestoreFailed(f"session {session_id!r}", error) from error


# keeping: How does a session outlive its process?


SESSION_KIND = "session"
THREAD_KIND = "thread"


class SessionStore:
    """Reads and writes one session."""

    def __init__(self, store: Any, session_id: str, namespace: str = DEFAULT_NAMESPACE) -> None:
        require(store, SupportsLeases, "lend a session to one runner at a time")
        self._store: Any = require(store, SupportsDocuments, "keep a session")
        self._scope = Scope(namespace=namespace)
        self.session_id = session_id
        self._owner = ids.new("run_")
        self.lease_lost = False
        self._rev = 0
        self._thread_rev = 0

    async def load(self) -> tuple[SessionRecord, Thread] | None:
        """The session as it is kept, or None."""
        document = await self._store.load(SESSION_KIND, self.session_id, self._scope)
        if document is None:
            return None
        header = decode_record(document.body, self.session_id)
        journal = await self._store.load(THREAD_KIND, header.thread_id, self._scope)
        if journal is None:
            raise RestoreFailed(f"session {self.session_id!r}", "its transcript is missing")
        self._rev, self._thread_rev = document.rev, journal.rev
        return header, _decode_thread(header, journal)

    async def create(self, record: SessionRecord, entries: Sequence[ThreadEntry] = ()) -> None:
        """Keep a new session; its transcript first, so that no header ever points to nothing."""
        if await self._store.load(SESSION_KIND, self.session_id, self._scope) is not None:
            raise IdTaken(self.session_id)
        journal = self._document(THREAD_KIND, record.thread_id, record, None).replace(
            log=tuple(codec.to_builtins(entry) for entry in entries)
        )
        self._thread_rev = (await self._store.save(journal, expected_rev=0)).rev
        try:
            await self._save(record, 0)
        except Conflict as error:
            raise IdTaken(self.session_id) from error

    async def has_changed(self) -> bool:
        """Whether somebody else wrote the session since it was read."""
        document = await self._store.load(SESSION_KIND, self.session_id, self._scope)
        if document is None:
            raise NotFound("session", self.session_id, "it was erased")
        return bool(document.rev != self._rev)

    async def save(self, record: SessionRecord) -> None:
        """Keep the header, if nobody else did since."""
        with self._detect_lease_loss():
            await self._save(record, self._rev)

    async def append(self, record: SessionRecord, entries: Sequence[ThreadEntry]) -> None:
        """Add to the transcript, if nobody else did since."""
        plain = [codec.to_builtins(entry) for entry in entries]
        with self._detect_lease_loss():
            self._thread_rev = await self._store.append(
                THREAD_KIND, record.thread_id, plain, self._scope, expected_rev=self._thread_rev
            )

    @contextmanager
    def _detect_lease_loss(self) -> Iterator[None]:
        """A block in which a conflict means that somebody else has the session."""
        try:
            yield
        except Conflict:
            self.lease_lost = True
            raise

    @asynccontextmanager
    async def lease(self, ttl_ms: int) -> AsyncIterator[None]:
        """A block in which this runner, and no other, may run the session."""
        try:
            if not await self._claim(ttl_ms):
                raise SessionBusy(self.session_id)
            self.lease_lost = False
            async with create_task_group() as group:
                group.start_soon(self._renew, ttl_ms)
                yield
                group.cancel_scope.cancel()
        except BaseExceptionGroup as several:
            raise_first_error(several)
        finally:
            with CancelScope(shield=True), suppress(StoreFailed):  # it ends by itself, a little later
                await self._store.release(SESSION_KIND, self.session_id, self._scope, owner=self._owner)

    async def _renew(self, ttl_ms: int) -> None:
        """Hold on to the lease; a store that is out of reach for a moment does not end it."""
        held = current_time()
        while True:
            await sleep(ttl_ms / 3000)
            try:
                self.lease_lost = not await self._claim(ttl_ms)
            except StoreFailed:
                self.lease_lost = current_time() - held >= ttl_ms / 1000
            else:
                held = current_time()
            if self.lease_lost:
                raise SessionBusy(self.session_id)

    async def _claim(self, ttl_ms: int) -> bool:
        lease = await self._store.claim(
            SESSION_KIND, self.session_id, self._scope, owner=self._owner, ttl_ms=ttl_ms
        )
        return lease is not None

    async def _save(self, header: SessionRecord, rev: int) -> None:
        document = self._document(SESSION_KIND, self.session_id, header, encode_record(header))
        self._rev = (await self._store.save(document, expected_rev=rev)).rev

    def _document(self, kind: str, id: str, header: SessionRecord, body: Any) -> Document:
        return Document(
            kind=kind,
            id=id,
            namespace=header.namespace,
            agent_id=header.agent_id,
            session_id=header.session_id,
            body=body,
        )


def _decode_thread(header: SessionRecord, journal: Document) -> Thread:
    try:
        entries = [codec.from_builtins(thaw(item), ThreadEntry) for item in journal.log]
        return Thread(id=header.thread_id, created_at=header.created_at).append(entries)
    except ValueError as error:
        raise RestoreFailed(f"session {header.session_id!r}", f"its transcript: {error}") from error


# listing: Which sessions are there?


async def sessions(
    store: Any, *, agent_id: str | None = None, namespace: str = DEFAULT_NAMESPACE
) -> list[SessionRecord]:
    """The sessions that a store keeps in a namespace, of one agent or of all, by their ids."""
    able: SupportsDocuments = require(_require_store(store), SupportsDocuments, "list its sessions")
    scope = Scope(namespace=namespace, agent_id=agent_id)
    found: list[SessionRecord] = []
    last: str | None = None
    while page := await able.documents(SESSION_KIND, scope, after=last):
        for one in page:
            try:
                found.append(decode_record(one.body, one.id))
            except RestoreFailed as error:  # one that cannot be read does not hide the others
                warnings.warn(str(error), stacklevel=2)
        last = page[-1].id
    return found


async def spec_of(store: Any, session_id: str, namespace: str = DEFAULT_NAMESPACE) -> AgentSpec:
    """The spec that a session was begun with, without its code."""
    able: SupportsDocuments = require(_require_store(store), SupportsDocuments, "keep a session")
    document = await able.load(SESSION_KIND, ids.check(session_id, "session_id"), Scope(namespace=namespace))
    if document is None:
        raise session_not_found(session_id)
    return decode_record(document.body, session_id).spec


def session_not_found(session_id: str) -> NotFound:
    """The error for a session that is not there."""
    return NotFound("session", session_id, "start it, or see which there are with sessions()")


def _require_store(store: Any) -> Any:
    if store is None:
        raise MissingStore("store")
    return store


# past: What did the turns that are over make of an agent?


def replay_pure_actions(spec: AgentSpec, agent: Agent, past: Thread, session_id: str) -> Agent:
    """A new agent after the pure actions of past turns; what touched the world is not repeated.

    The context that a program gave those turns is not kept, so an action that reads `ctx.data` finds none.
    """
    for request_id, done in transcript.progress_by_request(past.entries).items():
        if done.user is None:
            continue
        said = done.user.payload["content"]
        asked = TurnRequest(id=request_id, input=said, at=done.user.at, session_id=session_id)
        for answered in done.results.values():
            action = tools.find_action(spec, answered.call)
            ran = answered.ok and answered.call.id in done.started_calls  # and was not settled by somebody
            if ran and isinstance(action, Action) and not action.effectful:
                outcome = tools.run_pure(action, answered.call, TurnContext(agent, asked))
                agent = outcome.agent or agent
    return thread.put(agent, past)


# kept: What is kept of a session, and is it still true?


class SessionState:
    """A session's header, its transcript, and the turns that are over, each as the store has it."""

    def __init__(self, store: SessionStore, spec: AgentSpec, lease_ms: int) -> None:
        self._store = store
        self._spec = spec
        self._lease_ms = lease_ms
        self._record: SessionRecord | None = None
        self._stale = False
        self._running = False
        self._background_done: Event | None = None
        """Set when what goes on in the background is over."""
        self._background_task_id: int | None = None
        self._request_ids: set[str] = set()
        self._token_counts: TokenCounts | None = None
        self.thread = Thread()
        self.history: list[Exchange] = []

    @property
    def is_open(self) -> bool:
        """Whether it was read or begun."""
        return self._record is not None

    @property
    def is_background_task(self) -> bool:
        """Whether whoever asks is what goes on in the background."""
        return self._background_task_id is not None and get_current_task().id == self._background_task_id

    @property
    def lease_lost(self) -> bool:
        """Whether somebody else has taken the session over."""
        return self._store.lease_lost

    @property
    def record(self) -> SessionRecord:
        """The header as it was kept last."""
        if self._record is None:
            raise Invalid("session", f"{self._store.session_id!r} is not open", "use it in `async with`")
        return self._record

    @property
    def agent(self) -> Agent:
        """The agent after the last turn that is over."""
        return thread.put(restore_with_plugins(self.record.checkpoint, self._definition), self.thread)

    def agent_at(self, seq: int) -> Agent:
        """The agent as it was before a place in the transcript."""
        past = Thread(id=self.thread.id, created_at=self.thread.created_at).append(self.thread.entries[:seq])
        new = Agent.new(self._definition, id=self._spec.id)
        return replay_pure_actions(self._spec, new, past, self._store.session_id)

    @cached_property
    def _definition(self) -> Definition:
        return self._spec.definition()

    async def load(self) -> bool:
        """Read it; whether there was anything to read."""
        kept = await self._store.load()
        if kept is None:
            return False
        header, written = kept
        if header.agent_id != self._spec.id:
            raise Invalid(
                "spec", f"is of agent {self._spec.id!r}, the session of {header.agent_id!r}", "pass its own"
            )
        self._record = header.replace(spec=self._spec)
        self._set_thread(written, None if header.turn is None else header.turn.asked.id)
        return True

    async def create(
        self,
        namespace: str,
        project_id: str | None,
        metadata: Mapping[str, Any] = EMPTY_MAP,
        past: Sequence[ThreadEntry] = (),
        state: Checkpoint | None = None,
    ) -> None:
        """Begin it, with a past that another session had or with none; `state` is the agent after that."""
        self._set_thread(Thread().append(past))
        if state is None:
            new = Agent.new(self._definition, id=self._spec.id)
            agent = replay_pure_actions(self._spec, new, self.thread, self._store.session_id)
        else:
            agent = thread.put(restore_with_plugins(state, self._definition), self.thread)
        last = self.history[-1] if self.history else None
        header = SessionRecord(
            session_id=self._store.session_id,
            agent_id=self._spec.id,
            namespace=namespace,
            project_id=project_id,
            spec=self._spec,
            status="new" if last is None else "finished",
            thread_id=self.thread.id,
            checkpoint=checkpoint(agent),
            turns=len(self.history),
            last_request_id=None if last is None else last.request_id,
            result=None if last is None else last.messages[-1].content,
            metadata=metadata,
        )
        await self._store.create(header, [*self.thread.entries])
        self._record = header

    @asynccontextmanager
    async def lock(self, *, background: bool = False) -> AsyncIterator[None]:
        """A block in which nobody else runs the session, and what is known of it is true.

        What the session does in the background by itself is waited for, and hinders nobody; whoever is
        called from there cannot wait for it.
        """
        session_id = self.record.session_id
        while self._background_done is not None and not self.is_background_task:
            await self._background_done.wait()
        if self._running:  # the lease tells runners apart, not the tasks of one
            raise SessionBusy(session_id)
        self._running = True
        done = self._background_done = Event() if background else None
        self._background_task_id = get_current_task().id if background else None
        try:
            async with self._store.lease(self._lease_ms):
                await self.refresh()
                self._stale = True  # until all that is written in the block is known to be kept
                yield
                self._stale = False
        finally:
            self._running = False
            if done is not None:
                self._background_done = self._background_task_id = None
                done.set()

    async def refresh(self) -> None:
        """Read it again, where somebody else wrote it since."""
        if (self._stale or await self._store.has_changed()) and not await self.load():
            raise NotFound("session", self._store.session_id, "it was erased")

    async def refresh_if_idle(self) -> None:
        """Read it again, unless it is being run here."""
        if not self._running:
            await self.refresh()
            self._stale = False

    def token_counts(self, count: TokenCounter) -> TokenCounts:
        """What the turns take, counted once for each counter."""
        if self._token_counts is None or self._token_counts.count is not count:
            self._token_counts = TokenCounts(count)
        return self._token_counts

    def has_request(self, request_id: str) -> bool:
        """Whether this was asked before."""
        return request_id in self._request_ids

    def entries_of(self, request_id: str) -> list[ThreadEntry]:
        """What a request has led to."""
        return [one for one in self.thread.entries if one.payload.get("request_id") == request_id]

    def _set_thread(self, written: Thread, unfinished: str | None = None) -> None:
        self.thread = written
        self._token_counts = None
        self._request_ids = {*transcript.request_ids(written.entries)}
        turns = transcript.conversation(written.entries)
        self.history = [turn for turn in turns if turn.request_id != unfinished]

    async def save(self, **changes: Any) -> None:
        """Keep the header with these changes."""
        header = self.record.replace(updated_at=clock.now(), **changes)
        await self._store.save(header)
        self._record = header

    async def append(self, entries: Sequence[Any]) -> None:
        """Add to the transcript."""
        longer = self.thread.append(entries)
        added = longer.entries[len(self.thread.entries) :]
        await self._store.append(self.record, added)
        self.thread = longer
        self._request_ids.update(transcript.request_ids(added))
