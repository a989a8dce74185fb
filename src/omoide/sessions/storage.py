"""Persist sessions: the record, the transcript, and the lease on both.

A session is two documents of a store: the record, saved anew at each step, and the transcript, which is only
appended to. One runner at a time holds a lease on the session. Every write names the revision it builds on
(fencing), so a runner that lost its lease cannot write any more.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import msgspec
from anyio import CancelScope, Event, create_task_group, current_time, get_current_task, sleep

from omoide import clock, forks, ids, thread
from omoide.concurrency import raise_first_error
from omoide.core import codec
from omoide.core.action import Action
from omoide.core.agent import Agent
from omoide.core.checkpoint import Checkpoint, checkpoint
from omoide.core.codec import MapField, TextsField
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
from omoide.forks import ForkListener
from omoide.retrieval.text import TokenCounter
from omoide.stores.protocols import SupportsDocuments, SupportsLeases
from omoide.stores.records import Document
from omoide.turns import journal as transcript
from omoide.turns import tools
from omoide.turns.controls import Review, TurnContext, TurnRequest
from omoide.turns.prompt import Exchange, TokenCounts
from omoide.turns.runner import restore_with_plugins
from omoide.turns.spec import AgentSpec
from omoide.verbs import require

STATUSES = ("new", "running", "hibernated", "waiting", "finished", "error")
RECORD_VERSION = 1
T = TypeVar("T")


class InFlight(Value, frozen=True, kw_only=True):
    """A turn that is not finished: its request, the recalled memories, and decisions on its reviews."""

    asked: TurnRequest
    recalled: RecallResult | None = None
    remembered: bool = False
    """True after recall, also without a result: a resumed turn does not recall again."""
    decisions: MapField = EMPTY_MAP


class PendingCapture(Value, frozen=True, kw_only=True):
    """A finished turn that is not captured yet."""

    asked: TurnRequest
    input: str
    content: str
    first: Count
    """Position of the input in the thread."""
    last: Count
    """Position of the answer in the thread."""
    restated: TextsField = ()
    """Ids of the memories that the answer only repeats."""


class SessionRecord(Record, frozen=True, kw_only=True):
    """A session as data, without its transcript and without secrets."""

    LABEL: ClassVar[str] = "session"

    schema_version: int = RECORD_VERSION
    session_id: Id
    agent_id: Id
    namespace: Id = DEFAULT_NAMESPACE
    """The namespace of the session's documents."""
    user_id: Id | None = None
    project_id: Id | None = None
    spec: AgentSpec
    status: str = "new"
    thread_id: Id
    checkpoint: Checkpoint
    """The agent after the last finished turn, without its thread."""
    turns: Count = 0
    """The number of finished turns."""
    last_request_id: Id | None = None
    result: str | None = None
    """The last answer."""
    error: MapField | None = None
    pending_reviews: tuple[Review, ...] = ()
    turn: InFlight | None = None
    captures: tuple[PendingCapture, ...] = ()
    """Finished turns that are not captured yet, oldest first."""
    metadata: MapField = EMPTY_MAP
    created_at: Millis = msgspec.field(default_factory=clock.now)
    updated_at: Millis = msgspec.field(default_factory=clock.now)

    def _check(self) -> None:
        check_choice(self.status, "status", STATUSES)
        set_field(self, "pending_reviews", check_tuple(self.pending_reviews, "pending_reviews", Review))
        set_field(self, "captures", check_tuple(self.captures, "captures", PendingCapture))

    @property
    def snapshots(self) -> tuple[InFlight, ...]:
        """The unfinished turn, if there is one."""
        return () if self.turn is None else (self.turn,)


def decode_body(body: object, kind: type[T], version: int, label: str) -> T:
    """Decode the body of a document.

    Args:
        body: the body.
        kind: the class to decode it to.
        version: the only `schema_version` that can be read.
        label: the name of the document in errors.

    Raises:
        RestoreFailed: the body is damaged, or has another version.
    """
    plain: Any = thaw(body)
    found = plain.get("schema_version") if isinstance(plain, dict) else None
    if found != version:
        raise RestoreFailed(label, f"version {found} was stored, this reads {version}; use another Omoide")
    try:
        return codec.from_builtins(plain, kind)
    except ValueError as error:
        raise RestoreFailed(label, error) from error


def decode_record(body: object, session_id: str) -> SessionRecord:
    """Decode the body of a session document."""
    return decode_body(body, SessionRecord, RECORD_VERSION, f"session {session_id!r}")


SESSION_KIND = "session"
THREAD_KIND = "thread"


class SessionStore(ForkListener):
    """Reads and writes the documents of one session."""

    def __init__(self, store: Any, session_id: str, namespace: str = DEFAULT_NAMESPACE) -> None:
        require(store, SupportsLeases, "lease a session")
        self._store: Any = require(store, SupportsDocuments, "store a session")
        self._scope = Scope(namespace=namespace)
        self.session_id = session_id
        # A new owner for each object: a process that restarts waits until its old lease expires.
        self._owner = ids.new("run_")
        self.lease_lost = False
        self._rev = 0
        self._thread_rev = 0
        forks.register(self)

    def after_fork_in_child(self) -> None:
        """Claim the lease under another name: the parent, which may hold it, goes on."""
        self._owner = ids.new("run_")
        self.lease_lost = True

    async def load(self) -> tuple[SessionRecord, Thread] | None:
        """Return the record and the thread, or None if there is no session."""
        document = await self._store.load(SESSION_KIND, self.session_id, self._scope)
        if document is None:
            return None
        record = decode_record(document.body, self.session_id)
        log = await self._store.load(THREAD_KIND, record.thread_id, self._scope)
        if log is None:
            raise RestoreFailed(f"session {self.session_id!r}", "its transcript is missing")
        self._rev, self._thread_rev = document.rev, log.rev
        return record, _decode_thread(record, log)

    async def create(self, record: SessionRecord, entries: Sequence[ThreadEntry] = ()) -> None:
        """Write a new session: the transcript first, so that no record refers to a missing one."""
        if await self._store.load(SESSION_KIND, self.session_id, self._scope) is not None:
            raise IdTaken(self.session_id)
        journal = self._document(THREAD_KIND, record.thread_id, record, None).replace(
            log=tuple(codec.to_builtins(entry) for entry in entries)
        )
        self._thread_rev = (await self._store.save(journal, expected_rev=0)).rev
        try:
            await self._save(record, 0)
        except Conflict as error:  # another process created it since the check above
            raise IdTaken(self.session_id) from error

    async def has_changed(self) -> bool:
        """Return whether another process wrote the session since it was read."""
        document = await self._store.load(SESSION_KIND, self.session_id, self._scope)
        if document is None:
            raise NotFound("session", self.session_id, "it was erased")
        return bool(document.rev != self._rev)

    async def save(self, record: SessionRecord) -> None:
        """Write the record; raise `Conflict` if another process did since."""
        with self._detect_lease_loss():
            await self._save(record, self._rev)

    async def append(self, record: SessionRecord, entries: Sequence[ThreadEntry]) -> None:
        """Append to the transcript; raise `Conflict` if another process did since."""
        plain = [codec.to_builtins(entry) for entry in entries]
        with self._detect_lease_loss():
            self._thread_rev = await self._store.append(
                THREAD_KIND, record.thread_id, plain, self._scope, expected_rev=self._thread_rev
            )

    @contextmanager
    def _detect_lease_loss(self) -> Iterator[None]:
        """Note that a conflict means that another process has the session."""
        try:
            yield
        except Conflict:
            self.lease_lost = True
            raise

    @asynccontextmanager
    async def lease(self, ttl_ms: int) -> AsyncIterator[None]:
        """Hold the lease on the session, renewed in the background; raise `SessionBusy` if it is taken."""
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
            with CancelScope(shield=True), suppress(StoreFailed):  # else the lease expires, a little later
                await self._store.release(SESSION_KIND, self.session_id, self._scope, owner=self._owner)

    async def _renew(self, ttl_ms: int) -> None:
        """Renew the lease; a store that is unreachable for less than its length does not end it."""
        renewed_at = current_time()
        while True:
            # Three times within the lease, so that one failed renewal does not lose it.
            await sleep(ttl_ms / 3000)
            try:
                self.lease_lost = not await self._claim(ttl_ms)
            except StoreFailed:
                self.lease_lost = current_time() - renewed_at >= ttl_ms / 1000
            else:
                renewed_at = current_time()
            if self.lease_lost:
                raise SessionBusy(self.session_id)

    async def _claim(self, ttl_ms: int) -> bool:
        lease = await self._store.claim(
            SESSION_KIND, self.session_id, self._scope, owner=self._owner, ttl_ms=ttl_ms
        )
        return lease is not None

    async def _save(self, record: SessionRecord, rev: int) -> None:
        document = self._document(SESSION_KIND, self.session_id, record, codec.to_builtins(record))
        self._rev = (await self._store.save(document, expected_rev=rev)).rev

    def _document(self, kind: str, id: str, record: SessionRecord, body: Any) -> Document:
        return Document(
            kind=kind,
            id=id,
            namespace=record.namespace,
            user_id=record.user_id,
            agent_id=record.agent_id,
            session_id=record.session_id,
            body=body,
        )


def _decode_thread(record: SessionRecord, log: Document) -> Thread:
    try:
        entries = [codec.from_builtins(thaw(item), ThreadEntry) for item in log.log]
        return Thread(id=record.thread_id, created_at=record.created_at).append(entries)
    except ValueError as error:
        raise RestoreFailed(f"session {record.session_id!r}", f"its transcript: {error}") from error


async def sessions(
    store: Any,
    *,
    agent_id: str | None = None,
    user_id: str | None = None,
    namespace: str = DEFAULT_NAMESPACE,
) -> list[SessionRecord]:
    """Return the sessions of a namespace, of one agent and user or of all, ordered by id."""
    documents: SupportsDocuments = require(_require_store(store), SupportsDocuments, "list its sessions")
    scope = Scope(namespace=namespace, user_id=user_id, agent_id=agent_id)
    found: list[SessionRecord] = []
    last: str | None = None
    while page := await documents.documents(SESSION_KIND, scope, after=last):
        for document in page:
            try:
                found.append(decode_record(document.body, document.id))
            except RestoreFailed as error:  # a damaged session must not hide the others
                warnings.warn(str(error), stacklevel=2)
        last = page[-1].id
    return found


async def spec_of(store: Any, session_id: str, namespace: str = DEFAULT_NAMESPACE) -> AgentSpec:
    """Return the spec that a session was begun with, without its code."""
    documents: SupportsDocuments = require(_require_store(store), SupportsDocuments, "store a session")
    document = await documents.load(
        SESSION_KIND, ids.check(session_id, "session_id"), Scope(namespace=namespace)
    )
    if document is None:
        raise session_not_found(session_id, namespace)
    return decode_record(document.body, session_id).spec


def session_not_found(session_id: str, namespace: str) -> NotFound:
    """Return the error for a session that does not exist in a namespace."""
    remedy = f"start it, or list those of namespace {namespace} with sessions()"
    return NotFound("session", session_id, remedy)


def _require_store(store: Any) -> Any:
    if store is None:
        raise MissingStore("store")
    return store


def replay_pure_actions(spec: AgentSpec, agent: Agent, past: Thread, session_id: str) -> Agent:
    """Apply the pure actions of past turns to an agent; effectful actions are not repeated.

    The context of those turns is not persisted, so an action that reads `ctx.data` finds none.
    """
    for request_id, progress in transcript.progress_by_request(past.entries).items():
        user = progress.user
        if user is None:
            continue
        request = TurnRequest(id=request_id, input=user.payload["content"], at=user.at, session_id=session_id)
        for result in progress.results.values():
            action = tools.find_action(spec, result.call)
            # A person may have supplied the result of a call that never ran.
            ran = result.ok and result.call.id in progress.started_calls
            if ran and isinstance(action, Action) and not action.effectful:
                outcome = tools.run_pure(action, result.call, TurnContext(agent, request))
                agent = outcome.agent or agent
    return thread.put(agent, past)


class SessionState:
    """The record, transcript and history of a session, in step with the store."""

    def __init__(self, store: SessionStore, spec: AgentSpec, lease_ms: int) -> None:
        self._store = store
        self._spec = spec
        self._lease_ms = lease_ms
        self._record: SessionRecord | None = None
        self._stale = False
        self._running = False
        self._background_done: Event | None = None
        """Set at the end of the background work that holds the lock."""
        self._background_task_id: int | None = None
        self._request_ids: set[str] = set()
        self._token_counts: TokenCounts | None = None
        self.thread = Thread()
        self.history: list[Exchange] = []

    @property
    def is_open(self) -> bool:
        """True after the session was loaded or created."""
        return self._record is not None

    @property
    def is_running(self) -> bool:
        """True while something here runs the session exclusively, such as a turn or a promotion."""
        return self._running

    @property
    def is_background_task(self) -> bool:
        """True in the background task that holds the lock."""
        return self._background_task_id is not None and get_current_task().id == self._background_task_id

    @property
    def lease_lost(self) -> bool:
        """True if another process took the session over."""
        return self._store.lease_lost

    @property
    def record(self) -> SessionRecord:
        """The record as it was written last."""
        if self._record is None:
            raise Invalid("session", f"{self._store.session_id!r} is not open", "use it in `async with`")
        return self._record

    @property
    def agent(self) -> Agent:
        """The agent after the last finished turn."""
        return thread.put(restore_with_plugins(self.record.checkpoint, self._definition), self.thread)

    def agent_at(self, seq: int) -> Agent:
        """Return the agent as it was before a position in the transcript."""
        past = Thread(id=self.thread.id, created_at=self.thread.created_at).append(self.thread.entries[:seq])
        new = Agent.new(self._definition, id=self._spec.id)
        return replay_pure_actions(self._spec, new, past, self._store.session_id)

    @cached_property
    def _definition(self) -> Definition:
        return self._spec.definition()

    async def load(self) -> bool:
        """Read the session; return whether it exists."""
        loaded = await self._store.load()
        if loaded is None:
            return False
        record, written = loaded
        if record.agent_id != self._spec.id:
            raise Invalid(
                "spec", f"is of agent {self._spec.id!r}, and the session of another one", "pass its own"
            )
        # The stored spec has no code; that of the caller has.
        self._record = record.replace(spec=self._spec)
        self._set_thread(written, None if record.turn is None else record.turn.asked.id)
        return True

    async def create(
        self,
        namespace: str,
        project_id: str | None,
        user_id: str | None,
        metadata: Mapping[str, Any] = EMPTY_MAP,
        past: Sequence[ThreadEntry] = (),
        state: Checkpoint | None = None,
    ) -> None:
        """Create the session, with the past of another if one is given; `state` is the agent after it."""
        self._set_thread(Thread().append(past))
        if state is None:
            new = Agent.new(self._definition, id=self._spec.id)
            agent = replay_pure_actions(self._spec, new, self.thread, self._store.session_id)
        else:
            agent = thread.put(restore_with_plugins(state, self._definition), self.thread)
        last = self.history[-1] if self.history else None
        record = SessionRecord(
            session_id=self._store.session_id,
            agent_id=self._spec.id,
            namespace=namespace,
            project_id=project_id,
            user_id=user_id,
            spec=self._spec,
            status="new" if last is None else "finished",
            thread_id=self.thread.id,
            checkpoint=checkpoint(agent),
            turns=len(self.history),
            last_request_id=None if last is None else last.request_id,
            result=None if last is None else last.messages[-1].content,
            metadata=metadata,
        )
        await self._store.create(record, [*self.thread.entries])
        self._record = record

    @asynccontextmanager
    async def lock(self, *, background: bool = False) -> AsyncIterator[None]:
        """Run the session exclusively, with its current state.

        Work that the session does in the background is waited for. Another turn is not: it raises
        `SessionBusy`, as does the lease of another process.
        """
        session_id = self.record.session_id
        while self._background_done is not None and not self.is_background_task:
            await self._background_done.wait()
        if self._running:  # the lease distinguishes processes, not the tasks of one
            raise SessionBusy(session_id)
        self._running = True
        done = self._background_done = Event() if background else None
        self._background_task_id = get_current_task().id if background else None
        try:
            async with self._store.lease(self._lease_ms):
                await self.refresh()
                self._stale = True  # an error in the block leaves open what the store has
                yield
                self._stale = False
        finally:
            self._running = False
            if done is not None:
                self._background_done = self._background_task_id = None
                done.set()

    async def refresh(self) -> None:
        """Read the session again if another process wrote it since."""
        if (self._stale or await self._store.has_changed()) and not await self.load():
            raise NotFound("session", self._store.session_id, "it was erased")

    async def refresh_if_idle(self) -> None:
        """Read the session again, unless it runs here."""
        if not self._running:
            await self.refresh()
            self._stale = False

    def token_counts(self, count: TokenCounter) -> TokenCounts:
        """Return token counts of the history, which are cached for one counter."""
        if self._token_counts is None or self._token_counts.count is not count:
            self._token_counts = TokenCounts(count)
        return self._token_counts

    def has_request(self, request_id: str) -> bool:
        """Return whether the session has had this request."""
        return request_id in self._request_ids

    def entries_of(self, request_id: str) -> list[ThreadEntry]:
        """Return the entries of a request."""
        return [entry for entry in self.thread.entries if entry.payload.get("request_id") == request_id]

    def _set_thread(self, written: Thread, unfinished: str | None = None) -> None:
        self.thread = written
        self._token_counts = None
        self._request_ids = {*transcript.request_ids(written.entries)}
        # A crash after the answer leaves a turn whose answer is stored and whose end is not: it is resumed
        # first, and part of the history after that.
        turns = transcript.conversation(written.entries)
        self.history = [turn for turn in turns if turn.request_id != unfinished]

    async def save(self, **changes: Any) -> None:
        """Write the record with changes."""
        record = self.record.replace(updated_at=clock.now(), **changes)
        await self._store.save(record)
        # Only after the write: a failed one leaves what the store has.
        self._record = record

    async def append(self, entries: Sequence[Any]) -> None:
        """Append to the transcript."""
        extended = self.thread.append(entries)
        added = extended.entries[len(self.thread.entries) :]
        await self._store.append(self.record, added)
        self.thread = extended
        self._request_ids.update(transcript.request_ids(added))

    async def abandon_turn(self, request_id: str, reason: str) -> None:
        """Give up the unfinished turn, which is then no part of the conversation."""
        await self.append([transcript.abandoned_entry(request_id, reason)])
        status = "finished" if self.record.turns else "new"
        await self.save(status=status, turn=None, pending_reviews=(), error=None)
