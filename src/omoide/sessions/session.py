"""Sessions: conversations that outlive their process, with memory that is promoted.

A session holds one agent, whose thread is the transcript. Every step is persisted before the next one begins,
so another process can resume an interrupted turn without repeating what was done. Beside the conversation it
has a short-term memory (`omoide.sessions.memory`), which is promoted to long-term memory at the end of turns,
at intervals and on close.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack

import msgspec
from anyio import CancelScope, create_task_group, sleep

from omoide import clock, ids
from omoide.core import codec
from omoide.core.agent import Agent
from omoide.core.entry import (
    DEFAULT_MIN_RELEVANCE,
    DEFAULT_NAMESPACE,
    Entry,
    Evidence,
    MessageRef,
    Scope,
    WriteResult,
)
from omoide.core.frozen import EMPTY_MAP, check_str, thaw
from omoide.core.thread import Thread
from omoide.core.value import check_choice, check_function, check_instance, check_tuple, check_unit
from omoide.errors import IdTaken, Invalid, MissingStore, NotFound, SessionBusy
from omoide.promotion.extraction import ExtractionReport, Extractor, extract
from omoide.promotion.plan import PromotionPolicy, PromotionRun
from omoide.promotion.promoter import Promotion
from omoide.retrieval.text import TokenCounter
from omoide.sessions.context import SessionContext, build_context, load_memories, split_budget
from omoide.sessions.extractor import extract_unread
from omoide.sessions.memory import (
    ExtractFunction,
    PromotionStats,
    Scratchpad,
    SessionMemory,
    SignalListener,
    latest_evidence,
)
from omoide.sessions.runner import TurnRunner, bounded_spec
from omoide.sessions.storage import SessionRecord, SessionState, SessionStore, session_not_found, spec_of
from omoide.shortterm.importance import Weights, score
from omoide.shortterm.memory import ROLES, PendingItem, ShortTerm, TokenBudget
from omoide.stores.protocols import SupportsDocuments, SupportsGet
from omoide.stores.records import check_ttl
from omoide.tools.context import REACHES
from omoide.turns import journal as transcript
from omoide.turns import memory as turn_memory
from omoide.turns.controls import Decision, Review
from omoide.turns.journal import EventListener, Journal
from omoide.turns.memory import memory_policy, namespace_of, resolve_aliases, scope_of
from omoide.turns.options import CommonKwargs, TurnKwargs, TurnOptions
from omoide.turns.preview import Preflight, build_preflight
from omoide.turns.runner import TurnResult, TurnStream, answer_of, open_stream, replay
from omoide.turns.spec import AgentSpec
from omoide.verbs import RememberOptions, pin, require, unpin

LEASE_MS = 30_000
"""Milliseconds after which another process may take over from one that does not answer."""


class SessionKwargs(CommonKwargs, total=False):
    """Keyword arguments of `Session.open`, `start` and `load`."""

    project_id: str | None
    user_id: str | None
    metadata: Mapping[str, Any]
    lease_ms: int
    promotion: PromotionPolicy | None
    token_budget: TokenBudget | None
    extractor: Extractor | ExtractFunction | bool | None
    on_signal: SignalListener | None


class ProposalFields(TypedDict, total=False):
    """Further fields of `Entry` that a proposed memory may have."""

    id: str
    source: str | None
    tags: Sequence[str]
    rationale: str | None
    metadata: Mapping[str, Any]
    message: MessageRef | None
    created_at: clock.Time
    occurred_at: clock.Time | None
    expires_at: clock.Time | None


class PromotionFields(TypedDict, total=False):
    """Fields of `PromotionPolicy`."""

    enabled: bool
    threshold: float
    closing_threshold: float
    every_ms: int
    max_items: int
    weights: Weights
    strict: bool
    capacity: float
    extract: bool
    extract_tokens: int


class Session:
    """One conversation, made with `open`, `start` or `load`."""

    def __init__(
        self,
        spec: AgentSpec,
        id: str,
        *,
        store: Any,
        project_id: str | None = None,
        user_id: str | None = None,
        metadata: Mapping[str, Any] = EMPTY_MAP,
        lease_ms: int = LEASE_MS,
        namespace: str | None = None,
        promotion: PromotionPolicy | None = None,
        token_budget: TokenBudget | None = None,
        extractor: Extractor | ExtractFunction | bool | None = None,
        on_signal: SignalListener | None = None,
        **options: Unpack[CommonKwargs],
    ) -> None:
        """Prepare a session; nothing is read before it is opened.

        Args:
            spec: the agent.
            id: the id of the session.
            store: the store that persists the session, and its memory unless `memory_store` is another.
            project_id: the project of the session.
            user_id: the user of the session; it reads and writes no memory of others.
            metadata: data that is persisted with the session.
            lease_ms: milliseconds after which another process may take over from one that crashed.
            namespace: where the session is persisted; default: the namespace of the agent's memory.
            promotion: the promotion policy.
            token_budget: token budget of short-term memory.
            extractor: proposes memories from messages: True for the rules, a function, or an `Extractor`.
            on_signal: receives the signals of promotions.
            options: options for every turn of the session.
        """
        if store is None:
            raise MissingStore("store")
        self._store = store = require(store, SupportsDocuments, "store a session")
        self.spec = check_instance(spec, "spec", kind=AgentSpec)
        self.id = ids.check(id, "session_id")
        self._project_id = project_id
        self._user_id = None if user_id is None else ids.check(user_id, "user_id")
        self._metadata = metadata
        self._options: dict[str, Any] = {"store": store, **_session_options(options)}
        turn_options = TurnOptions.from_kwargs(self._options)
        self._options["store"] = turn_options.store
        policy, memory_namespace = spec.memory, DEFAULT_NAMESPACE
        if policy is not None and (policy.enabled or namespace is None):
            memory_namespace = namespace_of(policy, turn_options.context)
        self._memory_namespace = memory_namespace
        self._namespace = memory_namespace if namespace is None else ids.check(namespace, "namespace")
        self._lease_ms = check_ttl(lease_ms, "lease_ms")
        self._state = SessionState(SessionStore(store, self.id, self._namespace), spec, self._lease_ms)
        self._memory_options: dict[str, Any] = {
            "promotion": promotion, "token_budget": token_budget, "extractor": extractor,
            "on_signal": on_signal,
        }  # fmt: skip
        self._memory = self._create_memory(turn_options.count_tokens, **self._memory_options)
        self._runner = TurnRunner(spec, self._state, self._memory, self._options["store"])
        self._closed = False
        self._background_task: asyncio.Task[None] | None = None

    def _create_memory(
        self,
        count: TokenCounter,
        promotion: PromotionPolicy | None,
        token_budget: TokenBudget | None,
        extractor: Extractor | ExtractFunction | bool | None,
        on_signal: SignalListener | None,
    ) -> SessionMemory:
        policy = memory_policy(self.spec)
        return SessionMemory(
            self._store,
            self.id,
            self._namespace,
            agent_id=self.spec.id,
            project_id=self._project_id,
            user_id=self._user_id,
            policy=PromotionPolicy.new(promotion),
            budget=TokenBudget.new(token_budget),
            count=count,
            extractor=_as_extractor(extractor),
            propose_evicted=policy is not None and policy.capture == "manual",
            listener=None if on_signal is None else check_function(on_signal, "on_signal"),
        )

    # Opening and closing

    @classmethod
    def open(
        cls,
        spec: AgentSpec,
        id: str,
        *,
        store: Any = None,
        namespace: str | None = None,
        **options: Unpack[SessionKwargs],
    ) -> Self:
        """Return the session with this id, to resume or begin: `async with Session.open(…) as session`."""
        return cls(spec, id, store=store, namespace=namespace, **options)

    @classmethod
    async def start(
        cls,
        spec: AgentSpec,
        id: str | None = None,
        *,
        session_id: str | None = None,
        store: Any = None,
        namespace: str | None = None,
        **options: Unpack[SessionKwargs],
    ) -> Self:
        """Create a session.

        Raises:
            IdTaken: a session with this id exists.
        """
        if id is not None and session_id is not None and id != session_id:
            raise Invalid("session_id", f"is {session_id!r}, and id is {id!r}", "pass one of them")
        chosen = id if id is not None else session_id
        new_id = ids.new("sess_") if chosen is None else chosen
        session = cls(spec, new_id, store=store, namespace=namespace, **options)
        await session._state.create(
            session._namespace, session._project_id, session._user_id, session._metadata
        )
        return session

    @classmethod
    async def load(
        cls,
        id: str,
        spec: AgentSpec | None = None,
        *,
        store: Any = None,
        namespace: str | None = None,
        **options: Unpack[SessionKwargs],
    ) -> Self:
        """Load a session that exists.

        Args:
            id: the id of the session.
            spec: the agent; default: the spec it was begun with, whose tools have no code.
            store: the store that persists the session.
            namespace: where it is persisted.
            options: see `Session`.

        Raises:
            NotFound: there is no such session.
        """
        if spec is None:
            spec = await spec_of(store, id, namespace or DEFAULT_NAMESPACE)
        session = cls(spec, id, store=store, namespace=namespace, **options)
        if not await session._load():
            raise session_not_found(id, namespace or DEFAULT_NAMESPACE)
        return session

    async def __aenter__(self) -> Self:
        if not self._state.is_open and not await self._load():
            try:
                await self._state.create(self._namespace, self._project_id, self._user_id, self._metadata)
            except IdTaken:  # another process began it at the same time
                await self._load()
        await self._memory.open()
        if memory_policy(self.spec) is not None and self._background_task is None:
            # Not in a task group of the opener: sessions may be closed in any order, and from any task.
            self._background_task = asyncio.create_task(self._run_background())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except Exception:
            if error is None:  # an error of the block itself matters more
                raise

    async def close(self) -> None:
        """Promote, save and close the session; it can be opened again, here or elsewhere."""
        if self._closed:
            return
        with CancelScope(shield=True):
            try:
                # Shielded above: what is not promoted and saved now is lost with the process.
                await self._stop_background()
                if self._state.is_open:
                    await self._promote_on_close()
            finally:
                self._closed = self._memory.closed = True

    async def _stop_background(self) -> None:
        task, self._background_task = self._background_task, None
        if task is None:
            return
        task.cancel()
        if not self._state.is_background_task:  # it would wait for itself
            await asyncio.wait([task])

    async def _run_background(self) -> None:
        # anyio's cancel scopes need a task group of anyio around them.
        async with create_task_group() as group:
            group.start_soon(self._promotion_loop)

    def __repr__(self) -> str:
        status = self.status if self._state.is_open else "not open yet"
        return f"<session {self.id!r} of {self.spec.id!r}, {status}>"

    # State

    @property
    def record(self) -> SessionRecord:
        """The session as data."""
        return self._state.record

    @property
    def status(self) -> str:
        """`new`, `running`, `hibernated`, `waiting`, `finished` or `error`."""
        return self.record.status

    @property
    def thread(self) -> Thread:
        """The transcript."""
        return self._state.thread

    @property
    def agent(self) -> Agent:
        """The agent after the last finished turn."""
        return self._state.agent

    @property
    def is_busy(self) -> bool:
        """True while a turn, a promotion or another exclusive step runs in this object."""
        return self._state.is_running

    @property
    def is_closed(self) -> bool:
        """True after `close`."""
        return self._closed

    @property
    def background_failure(self) -> str | None:
        """Cause that ended the background promotion of an open session; None while it runs.

        It is the class name of an error, or `cancellation`.
        """
        task = self._background_task
        if self._closed or task is None or not task.done():
            return None
        error = None if task.cancelled() else task.exception()
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        return "cancellation" if error is None else type(error).__name__

    @property
    def memory_namespace(self) -> str:
        """The namespace of the session's memories; its documents may be in another."""
        return self._memory_namespace

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of `Session.open` that open a session like this one."""
        own = {"project_id": self._project_id, "user_id": self._user_id, "lease_ms": self._lease_ms}
        return {**merge_aliases(self._options), **self._memory_options, **own}

    @property
    def requests(self) -> list[str]:
        """The ids of the requests, oldest first."""
        return transcript.request_ids([*self._state.thread.entries])

    @property
    def pending_reviews(self) -> tuple[Review, ...]:
        """The reviews without a decision, for which the turn waits."""
        turn = self.record.turn
        decided = {} if turn is None else turn.decisions
        return tuple(review for review in self.record.pending_reviews if review.id not in decided)

    @property
    def result(self) -> str | None:
        """The last answer."""
        return self.record.result

    @property
    def error(self) -> Mapping[str, Any] | None:
        """The error of the last turn, if it failed."""
        error: Mapping[str, Any] | None = self.record.error
        return error

    # The conversation

    async def chat(self, input: str, **options: Unpack[TurnKwargs]) -> str:
        """Run a turn and return the answer."""
        return answer_of(await self.run(input, **options))

    async def run(self, input: str, **options: Unpack[TurnKwargs]) -> TurnResult:
        """Run a turn and return its result.

        Raises:
            TurnPending: the last turn waits or hibernates; `resume` or `cancel` it first.
            SessionBusy: another process or task runs the session.
        """
        turn_options = self._turn_options(options)
        await self._memory.journal()
        return await self._runner.begin(input, turn_options, streaming=False)

    @asynccontextmanager
    async def stream(
        self, input: str | None = None, **options: Unpack[TurnKwargs]
    ) -> AsyncIterator[TurnStream]:
        """Run a turn whose events can be read meanwhile; without input, resume one."""
        turn_options = self._turn_options(options)

        async def run(listener: EventListener) -> TurnResult:
            turn_options.on_event = listener
            await self._memory.journal()
            if input is None:
                return await self._resume_turn(turn_options, streaming=True)
            return await self._runner.begin(input, turn_options, streaming=True)

        async with open_stream(run, turn_options.on_event) as streaming:
            yield streaming

    async def preflight(self, input: str, **options: Unpack[TurnKwargs]) -> Preflight:
        """Return a preview of the turn: the prompt that the model would be sent now."""
        turn_options = self._turn_options(options)
        await self._memory.journal()
        await self._state.refresh_if_idle()
        history = tuple(self._state.history)
        view = self._runner.view(turn_options)
        spec = bounded_spec(self.spec, self._memory.budget.total)
        return await build_preflight(spec, input, turn_options, history, self.agent, view)

    async def resume(self, **options: Unpack[TurnKwargs]) -> TurnResult:
        """Resume the turn that did not finish, after a pause, a decision, an error or a crash.

        Where the last turn did finish, and only its capture is left, capture it and return its result.

        Raises:
            ReviewNeeded: a review of the turn has no decision yet.
        """
        return await self._resume_turn(self._turn_options(options), streaming=False)

    async def _resume_turn(self, options: TurnOptions, *, streaming: bool) -> TurnResult:
        await self._memory.journal()
        result = await self._runner.resume(options, streaming=streaming)
        if result is None and self.record.last_request_id is None:
            raise Invalid("session", f"{self.id!r} has nothing to resume", "ask it something")
        return await self.replay() if result is None else result

    async def replay(self, request_id: str | None = None) -> TurnResult:
        """Run a turn again from the transcript, by default the last, without calling or writing anything."""
        await self._memory.journal()
        await self._state.refresh_if_idle()
        wanted = request_id or self.record.last_request_id
        entries = () if wanted is None else tuple(self._state.entries_of(wanted))
        if wanted is None or not entries:
            raise NotFound("request", request_id, f"session {self.id!r} has {len(self.requests)} of them")
        journal = Journal(request_id=wanted, entries=entries)
        return await replay(self.spec, journal, agent=self._state.agent_at(entries[0].seq))

    async def fork(
        self,
        new_id: str | None = None,
        *,
        after: str | None = None,
        namespace: str | None = None,
        **options: Unpack[SessionKwargs],
    ) -> Session:
        """Create a session with the same past; this one stays as it is.

        Args:
            new_id: the id of the new session.
            after: the request after whose turn the past ends; default: the last.
            namespace: where the new session is persisted; default: the namespace of this session.
            options: see `Session`; default: those of this session. Metadata is copied, not replaced.

        Raises:
            NotFound: this session has no finished turn of the request `after`.
            IdTaken: a session with the new id exists.
            Invalid: `user_id` names another user: this one's past would be theirs.
        """
        if options.get("user_id", self._user_id) != self._user_id:
            problem = f"is {options['user_id']!r}, and this session is not of that user"
            raise Invalid("user_id", problem, "leave it out, or open a session for them")
        await self._memory.journal()
        await self._state.refresh_if_idle()
        requests = [turn.request_id for turn in self._state.history]
        if after is not None:
            if after not in requests:
                raise NotFound("request", after, "name one that this session has answered")
            requests = requests[: requests.index(after) + 1]
        past = [entry for entry in self._state.thread.entries if entry.payload.get("request_id") in requests]
        where = self._namespace if namespace is None else namespace
        merged = {**self.options, "namespace": where, **merge_aliases(options)}
        merged["metadata"] = {
            **thaw(self.record.metadata),
            "forked_from": {"session": self.id, "after": requests[-1] if requests else None},
        }
        chosen = ids.new("sess_") if new_id is None else new_id
        session = type(self)(self.spec, chosen, store=self._store, **merged)
        complete = len(requests) == len(self._state.history)
        agent_state = self.record.checkpoint if complete else None
        await session._state.create(
            session._namespace, session._project_id, session._user_id, session._metadata, past, agent_state
        )
        notes, end = self._memory.notes, len(past)
        evicted = min(notes.evicted, end)
        # This session has already proposed memories of the past; the fork does not repeat that.
        session._memory.apply(lambda new: new.replace(read=end, extracted=end, evicted=evicted))
        if complete:
            session._memory.apply(lambda new: new.replace(context=notes.context, origins=notes.origins))
        await session._memory.save()
        return session

    async def cancel(self, reason: str = "cancelled") -> None:
        """Abandon the turn that did not finish; the conversation before it stays."""
        await self._memory.journal()
        async with self._state.lock():
            turn = self.record.turn
            if turn is not None:
                await self._state.abandon_turn(turn.asked.id, reason)

    async def add_message(self, role: str, content: str, **metadata: Any) -> int:
        """Append a message that belongs to no turn; return how many messages left the buffer for it."""
        check_choice(role, "role", ROLES)
        if not isinstance(content, str) or not content.strip():
            raise Invalid("content", "is empty", "pass what was said")
        # Raises if the session is closed.
        self._turn_options({})
        await self._memory.journal()
        async with self._state.lock():
            before = self._memory.short_term(self._state.thread).conversation.size
            await self._state.append([transcript.message_entry(role, content, metadata)])
            await self._state.save()  # its new revision tells other processes to read the transcript
            after = self._memory.short_term(self._state.thread).conversation.size
            await self._memory.save()
        return before + 1 - after

    # Decisions

    async def approve(self, review_id: str) -> None:
        """Let the subject of a review pass; a tool of unknown outcome runs again."""
        await self._decide(review_id, Decision(verdict="approve"))

    async def deny(self, review_id: str, reason: str = "") -> None:
        """Refuse the subject of a review; for a tool, the model reads the reason as its result."""
        await self._decide(review_id, Decision(verdict="deny", reason=reason))

    async def settle(self, review_id: str, result: Any) -> None:
        """Supply the result of a tool without running it, or the agent's answer."""
        await self._decide(review_id, Decision(verdict="settle", result=result))

    async def _decide(self, review_id: str, decision: Decision) -> None:
        await self._memory.journal()
        async with self._state.lock():
            reviews = {review.id: review for review in self.record.pending_reviews}
            review, turn = reviews.get(review_id), self.record.turn
            if review is None or turn is None:
                known = ", ".join(review.id for review in self.pending_reviews) or "none"
                raise NotFound("review", review_id, f"pending reviews: {known}")
            if decision.verdict == "settle" and review.boundary == "input":
                raise Invalid("review", f"{review_id!r} is about an input", "approve or deny it")
            decisions = {**thaw(turn.decisions), review_id: codec.to_builtins(decision)}
            await self._state.save(turn=turn.replace(decisions=decisions))

    # Short-term memory

    @property
    def context(self) -> Scratchpad:
        """The working context: `session.context.put("framework", "Phoenix 1.7")`."""
        return Scratchpad(self._memory, self._state)

    @property
    def short_term(self) -> ShortTerm:
        """Short-term memory as a value."""
        return self._memory.short_term(self._state.thread)

    @property
    def notices(self) -> tuple[str, ...]:
        """Losses and failures of the session's memory."""
        return self._memory.notices

    def propose(
        self,
        content: str,
        *,
        type: str | None = None,
        confidence: float = 0.7,
        importance: float | None = None,
        evidence: Iterable[Evidence] = (),
        decided: bool = False,
        **fields: Unpack[ProposalFields],
    ) -> PendingItem:
        """Propose a memory, which waits for promotion.

        Args:
            content: the text of the memory.
            type: its memory type.
            confidence: from 0 to 1.
            importance: from 0 to 1; default: computed.
            evidence: where it comes from; default: the last message of the user.
            decided: promote it whatever it scores. It is journaled with the next awaited call, or at close;
                `decide` journals it before it returns.
            fields: further fields of `Entry`.

        Returns:
            The item; `durable` is False, because it is lost if the process is killed now.
        """
        now = clock.now()
        latest = latest_evidence(self._state.thread, "user")
        entry = Entry.new(
            {"source": "agent", "created_at": now, **fields},
            agent_id=self.spec.id,
            session_id=self.id,
            project_id=self._project_id,
            user_id=self._user_id,
            content=content,
            type=type,
            confidence=confidence,
            # A text would name a document; what a session proposes comes from its messages and tools.
            evidence=check_tuple(tuple(evidence), "evidence", Evidence)
            or (() if latest is None else (latest,)),
        )
        if importance is None:
            weights = self._memory.policy.weights
            importance = score(now, 1, entry.confidence, entry.type, now, weights).total
        item = PendingItem(entry=entry.replace(importance=importance), access_count=1)
        self._memory.propose(item, decided=decided)
        return item

    async def decide(
        self,
        content: str,
        *,
        type: str | None = None,
        confidence: float = 0.7,
        evidence: Iterable[Evidence] = (),
        **fields: Unpack[ProposalFields],
    ) -> PendingItem:
        """Propose a decision of the agent, and return when it is journaled: then it survives a crash.

        It is promoted whatever it scores. Where as many decisions wait as there is room for, they are
        promoted first.

        Args:
            content: the text of the memory.
            type: its memory type.
            confidence: from 0 to 1.
            evidence: where it comes from; default: the last message of the user.
            fields: further fields of `Entry`.
        """
        store = self._turn_options({}).store
        if self._memory.is_full_of_decisions and store is not None and memory_policy(self.spec) is not None:
            scope = self._memory_scope()
            await self._memory.make_room_for_decision(store, self._state.thread, scope)
        item = self.propose(
            content, type=type, confidence=confidence, evidence=evidence, decided=True, **fields
        )
        await self._memory.save()
        return item.replace(durable=True)

    async def assemble_context(
        self,
        query_hint: str | None = None,
        token_budget: int | None = None,
        *,
        reach: str | None = None,
        include_memories: bool = True,
        include_conversation: bool = True,
        force_summarize: bool = False,
    ) -> SessionContext:
        """Return conversation, working context and memories for a prompt, within a token budget.

        Args:
            query_hint: the query for memories; without it, the newest ones with high confidence are used.
            token_budget: default: the budget of the session.
            reach: which memories are searched: those of the `session`, of the `project` with its earlier
                sessions, of the `user` with all agents, or of the `agent`; default: the scope of the spec's
                policy.
            include_memories: search long-term memory.
            include_conversation: include the conversation.
            force_summarize: summarise the conversation also where it fits.
        """
        budget = self._memory.budget.total if token_budget is None else token_budget
        split_budget(budget)
        if query_hint is not None:
            check_str(query_hint, "query_hint")
        store = self._turn_options({}).store
        await self._memory.journal()
        scope, policy = None, memory_policy(self.spec)
        if policy is not None or reach is not None:
            scope = self._recall_scope(reach)
        short_term, notices = self.short_term, [*self._memory.notices]
        memories: list[Entry] = []
        if include_memories and scope is not None and store is not None:
            floor = DEFAULT_MIN_RELEVANCE if policy is None else policy.min_relevance
            memories, problems = await load_memories(store, scope, query_hint, floor)
            notices += problems
            self._memory.record_use([entry.id for entry in memories], clock.now())
        return build_context(
            short_term.conversation.to_list() if include_conversation else [],
            self._memory.ordered_items(),
            memories,
            budget=budget,
            count=self._memory.count,
            summarise=force_summarize,
            notices=notices,
        )

    # Long-term memory

    async def remember(self, content: str, **fields: Unpack[RememberOptions]) -> WriteResult:
        """Write a memory of this session now; `fields` are those of `Entry`.

        One with a `key` belongs to the scope of the agent's policy instead, so that its next value supersedes
        it in later sessions, too.
        """
        options = self._turn_options({})
        await self._memory.journal()
        return await turn_memory.write(
            self.spec,
            content,
            store=options.store,
            session_id=self.id,
            project_id=self._project_id,
            user_id=self._user_id,
            context=options.context,
            include_session=fields.get("key") is None,
            **fields,
        )

    async def pin(self, id: str) -> Entry:
        """Pin a memory: it stands in every prompt of the agent, for the user of this session."""
        store, scope = self._turn_options({}).store, self._recall_scope(None)
        reader: SupportsGet = require(store, SupportsGet, "pin")
        owner = (await reader.get(id, scope)).user_id
        if owner != self._user_id:
            raise Invalid("id", f"belongs to user {owner!r}, and the session has none", "pin it for the user")
        return await pin(store, id, scope)

    async def unpin(self, id: str) -> Entry:
        """Unpin a memory; it stays stored."""
        return await unpin(self._turn_options({}).store, id, self._recall_scope(None))

    async def promote(
        self, *, dry_run: bool = False, threshold: float | None = None, extract: bool | None = None
    ) -> Promotion:
        """Promote short-term memory to long-term memory.

        Args:
            dry_run: only return the plan: what would be promoted, what not, and why. With an extractor, it is
                asked, and what it finds is in the plan and not kept.
            threshold: the importance from which on items are promoted; default: the policy's.
            extract: ask the session's `Extractor`, or else its model, for memories in new messages first;
                default: as the policy says.
        """
        scope = self._memory_scope()
        if threshold is not None:
            check_unit(threshold, "threshold")
        if dry_run:
            self._turn_options({})
            await self._memory.journal()
            found = await self._extract(extract)
            items, report = ([], None) if found is None else found
            plan = self._memory.plan(self._state.thread, scope, "demand", threshold, items)
            return Promotion(plan=plan, extraction=report)
        return await self._run_promotion("demand", threshold, extract=extract)

    async def pause(self) -> Promotion | None:
        """Promote and save before an idle time; return None if the agent has no memory."""
        if memory_policy(self.spec) is not None:
            return await self._run_promotion("pause")
        async with self._state.lock():
            await self._memory.save()
        return None

    async def undo_promotion(self, run_id: str | None = None) -> PromotionRun:
        """Undo the last promotion, or the one with an id: its memories are forgotten."""
        store, scope = self._turn_options({}).store, self._memory_scope()
        async with self._state.lock():
            return await self._memory.undo(store, scope, run_id)

    @property
    def promotions(self) -> tuple[PromotionRun, ...]:
        """The last promotions, oldest first."""
        return self._memory.notes.runs

    @property
    def promotion_stats(self) -> PromotionStats:
        """Statistics of the session's promotions."""
        return self._memory.stats

    def set_promotion(
        self, policy: PromotionPolicy | None = None, **changes: Unpack[PromotionFields]
    ) -> None:
        """Replace the promotion policy, or change some of its fields."""
        base = self._memory.policy if policy is None else policy
        self._memory.policy = PromotionPolicy.new(base, **changes)

    def _memory_scope(self) -> Scope:
        """Return the scope in which this session writes memories."""
        policy = memory_policy(self.spec)
        if policy is None:
            raise Invalid(
                "memory", f"of agent {self.spec.id!r} is off", "declare memory=True or a MemoryPolicy"
            )
        return scope_of(
            self.spec,
            policy,
            session_id=self.id,
            project_id=self._project_id,
            user_id=self._user_id,
            context=self._turn_options({}).context,
            include_session=True,
        )

    def _recall_scope(self, reach: str | None) -> Scope:
        if reach is not None:
            check_choice(reach, "reach", REACHES)
        own, policy = self._memory_scope(), memory_policy(self.spec)
        if reach is None:
            reach = "session" if policy is None else policy.scope
        if reach == "session":
            return own
        if reach == "agent":
            return Scope(namespace=own.namespace, user_id=own.user_id, agent_id=own.agent_id)
        if reach == "user":
            if own.user_id is None:
                raise Invalid("reach", "is 'user', and the session has none", "open it with user_id=")
            return Scope(namespace=own.namespace, user_id=own.user_id)
        if own.project_id is None:
            raise Invalid("reach", "is 'project', and the session has none", "open it with project_id=")
        return Scope(namespace=own.namespace, user_id=own.user_id, project_id=own.project_id)

    async def _run_promotion(
        self,
        trigger: str,
        threshold: float | None = None,
        *,
        extract: bool | None = None,
        background: bool = False,
    ) -> Promotion:
        store, scope = self._turn_options({}).store, self._memory_scope()
        async with self._state.lock(background=background):
            # Not in the background and after turns: whoever asks something next would wait for it.
            found = None if background else await self._extract(extract, keep=True)
            promotion = await self._memory.promote(store, self._state.thread, scope, trigger, threshold)
        return promotion if found is None else msgspec.structs.replace(promotion, extraction=found[1])

    async def _extract(
        self, extract: bool | None, *, keep: bool = False
    ) -> tuple[list[PendingItem], ExtractionReport] | None:
        """Ask the extractor for memories in new messages, if that is wanted; `keep` lets them wait."""
        own = self._memory_options["extractor"]
        extractor = own if isinstance(own, Extractor) else None
        if not (self._memory.policy.extract or extractor is not None if extract is None else extract):
            return None
        options, memory, thread = self._turn_options({}), self._memory, self._state.thread
        scope, reach = self._memory_scope(), self._recall_scope(None)
        found = await extract_unread(self.spec, memory, thread, scope, reach, options, extractor)
        if found is not None and keep and found[1].problem is None:
            memory.add_extracted(found[0], found[1].end)
        return found

    async def _promote_on_close(self) -> None:
        """Promote with the lower threshold of the end, and save the rest."""
        memory = self._memory
        try:
            async with self._state.lock():
                if self._closed:  # by a listener of the promotion that this waited for
                    return
                await memory.refresh()
                memory.follow(self._state.thread)
                store, policy = self._turn_options({}).store, memory_policy(self.spec)
                promotes = memory.policy.enabled and store is not None and policy is not None
                if promotes:
                    await self._extract(None, keep=True)
                if promotes and (memory.notes.pending.size or memory.notes.context.size):
                    await memory.promote(store, self._state.thread, self._memory_scope(), "close")
                await memory.save(closed=True)
        except SessionBusy:
            await memory.save()  # another process runs the session, and promotes what is saved here
        except NotFound:
            pass  # it was erased

    async def _promotion_loop(self) -> None:
        """Promote at intervals, while no turn runs."""
        while True:
            await sleep(self._memory.policy.every_ms / 1000)
            if self._memory.due_trigger(clock.now()) is None:
                continue
            try:
                await self._run_promotion("interval", background=True)
            except (SessionBusy, NotFound):
                continue  # a turn runs, here or elsewhere, and promotes at its end
            except Exception as error:  # an error here must not end the program's block
                self._memory.add_notice(f"promotion failed ({type(error).__name__}: {error})")

    # Options

    def _turn_options(self, kwargs: Mapping[str, Any]) -> TurnOptions:
        """Return the options of a turn: those of the call over those of the session."""
        if self._closed:
            raise Invalid("session", f"{self.id!r} is closed", "open it again")
        _ = self.record  # raises unless the session is open
        options = resolve_aliases(kwargs)
        own_ids = {"session_id": self.id, "project_id": self._project_id, "user_id": self._user_id}
        for field, own in own_ids.items():
            if options.get(field, own) != own:
                raise Invalid(field, f"is {options[field]!r}", f"leave it out: the session has {own!r}")
        if "agent" in options or "history" in options:
            raise Invalid("agent", "and history are the session's own", "leave them out")
        merged = {**self._options, **options, **own_ids}
        for name in ("context", "secrets"):
            if name in options and name in self._options and isinstance(options[name], Mapping):
                merged[name] = {**self._options[name], **options[name]}
        turn_options = TurnOptions.from_kwargs(merged)
        turn_options.off_record = turn_options.store is None
        policy = memory_policy(self.spec)
        if policy is not None and namespace_of(policy, turn_options.context) != self._memory_namespace:
            raise Invalid("context", "names another namespace", "open a session for each of them")
        return turn_options

    async def _load(self) -> bool:
        """Read the session and its notes; return whether it exists."""
        found = await self._state.load()
        if found:
            own = self.record.project_id
            if None not in (own, self._project_id) and own != self._project_id:
                raise Invalid(
                    "project_id", f"is {self._project_id!r}, not that of the session", "leave it out"
                )
            self._project_id = own if self._project_id is None else self._project_id
            self._memory.project_id = self._project_id
            if self._user_id not in (None, self.record.user_id):
                # Also for a session without a user: what was said in it would become this user's memory.
                raise Invalid(
                    "user_id", f"is {self._user_id!r}, and the session is not of this user", "pass its own"
                )
            self._user_id = self._memory.user_id = self.record.user_id
            await self._memory.load()
        return found


def _session_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for every turn of a session; raise for those that belong to a single turn."""
    for name in ("agent", "history", "request_id", "decisions", "session_id"):
        if name in options:
            raise Invalid(name, "is an option of a single turn", "leave it out")
    return resolve_aliases(options)


def merge_aliases(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a session under one name each, so that they can be merged.

    The store of memory is then `memory_store`, because `store` persists the session itself.
    """
    resolved = resolve_aliases(options)
    if "store" in resolved:
        resolved["memory_store"] = resolved.pop("store")
    return resolved


def _as_extractor(source: Extractor | ExtractFunction | bool | None) -> ExtractFunction | None:
    """Return what is called with each message: the built-in rules for True, or a function of the program."""
    if source is None or isinstance(source, (bool, Extractor)):
        return extract if source is True else None
    return check_function(source, "extractor")
