"""Session.

The half of a session that is about memory: its working context, what waits to be promoted, promotion itself,
and the context that a model is given.

A session holds one agent, whose thread is the transcript. Every step is kept before the next one begins, so
that a turn which was interrupted can be taken up by another process without repeating what is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self, Unpack

from anyio import CancelScope, create_task_group, sleep

from omoide import clock, ids
from omoide.core import codec
from omoide.core.agent import Agent
from omoide.core.entry import DEFAULT_NAMESPACE, Entry, Evidence, Scope, WriteResult, check_positive
from omoide.core.frozen import EMPTY_MAP, check_str, thaw
from omoide.core.thread import Thread
from omoide.core.value import check_choice, check_function, check_instance, check_unit
from omoide.errors import IdTaken, Invalid, MissingStore, NotFound, SessionBusy
from omoide.promotion.extraction import extract
from omoide.promotion.plan import (
    PromotionMark,
    PromotionPolicy,
    PromotionRun,
    digest,
    entry_from_item,
    score_context_item,
)
from omoide.promotion.promoter import Promotion
from omoide.sessions import context as recalling
from omoide.sessions.context import SessionContext, build_context, split_budget
from omoide.sessions.memory import PromotionStats, SessionMemory
from omoide.sessions.memory import SignalListener as SignalListener
from omoide.sessions.notes import Extractor, Scratchpad, SessionNotes
from omoide.sessions.runner import TurnRunner
from omoide.sessions.storage import SessionRecord, SessionState, SessionStore, session_not_found, spec_of
from omoide.shortterm.context import SUMMARY_KEY, ContextItem
from omoide.shortterm.importance import score
from omoide.shortterm.memory import ROLES, ShortTerm, TokenBudget
from omoide.shortterm.pending import PendingItem
from omoide.stores.protocols import SupportsDocuments
from omoide.tools.context import REACHES
from omoide.turns import journal as transcript
from omoide.turns import memory as remembering
from omoide.turns.controls import Decision, Review
from omoide.turns.journal import EventListener, Journal
from omoide.turns.memory import memory_policy, namespace_of, scope_of
from omoide.turns.options import TurnKwargs, TurnOptions
from omoide.turns.preview import Preflight, build_preflight
from omoide.turns.result import TurnResult
from omoide.turns.runner import TurnStream, answer_of, open_stream, replay
from omoide.turns.spec import AgentSpec
from omoide.verbs import require

# knowing: What does a session know, before and beside what it said?


class Knowing:
    """What `Session` knows; the other half is the conversation."""

    id: str
    spec: AgentSpec
    _state: SessionState
    _memory: SessionMemory
    _project_id: str | None

    def _turn_options(self, options: dict[str, Any]) -> TurnOptions:
        raise NotImplementedError

    # Short-term memory

    @property
    def context(self) -> Scratchpad:
        """What the session understands right now: `session.context.put("framework", "Phoenix 1.7")`."""
        learning = self._memory
        return Scratchpad(
            lambda: learning.notes,
            learning.apply,
            lambda source: learning.latest_evidence(self._state.thread, source),
            self._on_context_drop,
            learning.count,
        )

    @property
    def short_term(self) -> ShortTerm:
        """All that the session holds before anything of it is durable, as a value."""
        return self._memory.short_term(self._state.thread)

    @property
    def notices(self) -> tuple[str, ...]:
        """What happened to the session's memory that somebody should know: losses, failures."""
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
        **fields: Any,
    ) -> PendingItem:
        """Let something wait for promotion; what the agent `decided` on is promoted whatever it scores.

        `fields` are those of `Entry`. Where no evidence is given it is the last message.
        """
        now = clock.now()
        said = tuple(evidence) or tuple(
            filter(None, [self._memory.latest_evidence(self._state.thread, "agent")])
        )
        entry = Entry.new(
            {"source": "agent", "created_at": now, **fields},
            agent_id=self.spec.id,
            session_id=self.id,
            project_id=self._project_id,
            content=content,
            type=type,
            confidence=confidence,
            evidence=said,
        )
        if importance is None:
            weights = self._memory.policy.weights
            importance = score(now, 1, entry.confidence, entry.type, now, weights).total
        item = PendingItem(entry=entry.replace(importance=importance), access_count=1)
        self._memory.propose(item, decided=decided)
        return item

    async def add_message(self, role: str, content: str, **metadata: Any) -> int:
        """Add to the transcript what was said outside of a turn; how many messages left the buffer for it."""
        check_choice(role, "role", ROLES)
        if not isinstance(content, str) or not content.strip():
            raise Invalid("content", "is empty", "pass what was said")
        self._turn_options({})
        async with self._state.lock():
            before = self._memory.short_term(self._state.thread).conversation.size
            await self._state.append([transcript.message_entry(role, content, metadata)])
            await self._state.save()  # others see by the header that there is more to read
            after = self._memory.short_term(self._state.thread).conversation.size
            await self._memory.save()
        return before + 1 - after

    # Long-term memory

    async def remember(self, content: str, **fields: Any) -> WriteResult:
        """Keep a memory of this session now; `fields` are those of `Entry`."""
        given = self._turn_options({})
        return await remembering.write(
            self.spec,
            content,
            memory_store=given.memory_store,
            session_id=self.id,
            project_id=self._project_id,
            context=given.context,
            include_session=True,
            **fields,
        )

    async def promote(self, *, dry_run: bool = False, threshold: float | None = None) -> Promotion:
        """Promote what matters enough, or with `dry_run` say what would be promoted, what not, and why."""
        scope = self._memory_scope()
        if threshold is not None:
            check_unit(threshold, "threshold")
        if dry_run:
            self._turn_options({})
            return Promotion(plan=self._memory.plan(self._state.thread, scope, "demand", threshold))
        return await self._run_promotion("demand", threshold)

    async def pause(self) -> Promotion | None:
        """Promote and keep what there is, because nobody will be here for a while; None without memory."""
        if memory_policy(self.spec) is not None:
            return await self._run_promotion("pause")
        async with self._state.lock():
            await self._memory.save()
        return None

    async def undo_promotion(self, run_id: str | None = None) -> PromotionRun:
        """Take the last promotion back, or the one that is named: its memories are forgotten again."""
        store, scope = self._turn_options({}).memory_store, self._memory_scope()
        async with self._state.lock():
            return await self._memory.undo(store, scope, run_id)

    @property
    def promotions(self) -> tuple[PromotionRun, ...]:
        """The last promotions, oldest first."""
        return self._memory.notes.runs

    @property
    def promotion_stats(self) -> PromotionStats:
        """How promotion goes."""
        return self._memory.stats

    def set_promotion(self, policy: PromotionPolicy | None = None, **changes: Any) -> None:
        """Go on with another policy for promotion, or with some of its fields changed."""
        base = self._memory.policy if policy is None else policy
        self._memory.policy = PromotionPolicy.new(base, **changes)

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
        """What a model should know about this session, in so many tokens: by default the session's budget.

        `reach` is how far memory is searched: the `session`, the `project` with its earlier sessions, or all
        that the `agent` knows; by default as far as the spec's policy says.
        """
        budget = self._memory.budget.total if token_budget is None else token_budget
        split_budget(budget)
        if query_hint is not None:
            check_str(query_hint, "query_hint")
        given = self._turn_options({})
        within = (
            self._recall_scope(reach) if memory_policy(self.spec) is not None or reach is not None else None
        )
        memory = self.short_term
        notices = [*self._memory.notices]
        found: list[Entry] = []
        if include_memories and within is not None and given.memory_store is not None:
            found, told = await recalling.load_memories(given.memory_store, within, query_hint)
            notices += told
            self._memory.record_use(found, clock.now())
        now, weights = clock.now(), self._memory.policy.weights
        items = [one for one in memory.context.to_list() if one.key != SUMMARY_KEY]
        items.sort(key=lambda one: -score_context_item(one, memory.access_log, now, weights).total)
        return build_context(
            memory.conversation.to_list() if include_conversation else [],
            items,
            found,
            budget=budget,
            count=self._memory.count,
            summarise=force_summarize,
            notices=notices,
        )

    # Inside

    def _memory_scope(self) -> Scope:
        """Whose memory this session writes."""
        policy = memory_policy(self.spec)
        if policy is None:
            raise Invalid(
                "memory", f"of agent {self.spec.id!r} is off", "declare memory=True or a MemoryPolicy"
            )
        given = self._turn_options({})
        return scope_of(
            self.spec,
            policy,
            session_id=self.id,
            project_id=self._project_id,
            context=given.context,
            include_session=True,
        )

    def _recall_scope(self, reach: str | None) -> Scope:
        if reach is not None:
            check_choice(reach, "reach", REACHES)
        own, policy = self._memory_scope(), memory_policy(self.spec)
        wanted = (policy.scope if policy is not None else "session") if reach is None else reach
        if wanted == "session":
            return own
        if wanted == "agent":
            return Scope(namespace=own.namespace, agent_id=own.agent_id)
        if own.project_id is None:
            raise Invalid("reach", "is 'project', and the session has none", "open it with project_id=")
        return Scope(namespace=own.namespace, project_id=own.project_id)

    def _on_context_drop(self, notes: SessionNotes, item: ContextItem) -> SessionNotes:
        """A value that has to leave the working context may still become a memory."""
        marks, now = notes.marks_by_key(), clock.now()
        if item.suggested_type is None:
            return notes
        importance = score_context_item(item, notes.access_log, now, self._memory.policy.weights).total
        scope = Scope(agent_id=self.spec.id, session_id=self.id, project_id=self._project_id)
        origin = notes.evidence_by_key().get(item.key)
        entry = entry_from_item(item, self.id, scope, importance, marks.get(item.key), origin)
        waiting = notes.without_dropped(item.key)
        pending, left = waiting.pending.add_implicit(PendingItem(entry=entry, access_count=item.access_count))
        gone = {one.id for one in left}
        mark = PromotionMark(key=item.key, id=entry.id, digest=digest(item.value))
        dropped = [one for one in (*waiting.dropped, mark) if one.id not in gone]
        return waiting.replace(pending=pending, dropped=tuple(dropped))

    async def _run_promotion(
        self, trigger: str, threshold: float | None = None, *, background: bool = False
    ) -> Promotion:
        store, scope = self._turn_options({}).memory_store, self._memory_scope()
        async with self._state.lock(background=background):
            return await self._memory.promote(store, self._state.thread, scope, trigger, threshold)

    async def _on_turn_end(self) -> None:
        """A turn is over: keep what was learned in it, and promote what is due."""
        learning = self._memory
        await learning.refresh()
        learning.follow(self._state.thread)
        store = self._turn_options({}).memory_store
        trigger = learning.due_trigger(clock.now())
        if trigger is not None and store is not None and memory_policy(self.spec) is not None:
            await learning.promote(store, self._state.thread, self._memory_scope(), trigger)
        await learning.save(closed=False)

    async def _promote_on_close(self) -> None:
        """The session ends: promote with the lower threshold, and keep the rest."""
        learning = self._memory
        try:
            async with self._state.lock():
                await learning.refresh()
                learning.follow(self._state.thread)
                notes = learning.notes
                store = self._turn_options({}).memory_store
                waiting = notes.pending.size or notes.context.size
                if (
                    waiting
                    and learning.policy.enabled
                    and store is not None
                    and memory_policy(self.spec) is not None
                ):
                    await learning.promote(store, self._state.thread, self._memory_scope(), "close")
                await learning.save(closed=True)
        except SessionBusy:
            # Somebody else goes on with it: what was learned here is kept, and promoted there.
            await learning.save()
        except NotFound:
            pass  # it was erased

    async def _promotion_loop(self) -> None:
        """Promote what matters enough again and again, while nothing else goes on."""
        while True:
            await sleep(self._memory.policy.every_ms / 1000)
            if self._memory.due_trigger(clock.now()) is None:
                continue
            try:
                await self._run_promotion("interval", background=True)
            except (SessionBusy, NotFound):
                continue  # a turn is going on, here or elsewhere, and promotes at its end
            except Exception as error:  # whatever it is, the session's block goes on
                self._memory.add_notice(f"promotion failed ({type(error).__name__}: {error})")


# session: How does one conversation go on?


LEASE_MS = 30_000
"""How long a runner that does not answer keeps others out."""


class Session(Knowing):
    """One conversation. Made with `open`, `start` or `load`."""

    def __init__(
        self,
        spec: AgentSpec,
        id: str,
        *,
        store: Any,
        project_id: str | None = None,
        metadata: Mapping[str, Any] = EMPTY_MAP,
        lease_ms: int = LEASE_MS,
        namespace: str | None = None,
        promotion: PromotionPolicy | None = None,
        token_budget: TokenBudget | None = None,
        extractor: Extractor | bool | None = None,
        on_signal: SignalListener | None = None,
        **options: Any,
    ) -> None:
        if store is None:
            raise MissingStore("store")
        require(store, SupportsDocuments, "keep a session")
        self.spec = check_instance(spec, "spec", kind=AgentSpec)
        self.id = ids.check(id, "session_id")
        self._lease_ms = lease_ms
        self._store = store
        self._project_id = project_id
        self._metadata = metadata
        self._options: dict[str, Any] = {"memory_store": store, **options}
        for name in ("agent", "history", "request_id", "decisions", "session_id"):
            if name in options:
                raise Invalid(name, "is nothing to open a session with", "leave it out")
        given = TurnOptions.from_kwargs(self._options)
        memory, policy = DEFAULT_NAMESPACE, spec.memory
        if policy is not None and (policy.enabled or namespace is None):
            memory = namespace_of(policy, given.context)
        self._memory_namespace = memory
        self._namespace = memory if namespace is None else ids.check(namespace, "namespace")
        lease = check_positive(lease_ms, "lease_ms")
        self._state = SessionState(SessionStore(store, self.id, self._namespace), spec, lease)
        self._memory_options: dict[str, Any] = {
            "promotion": promotion, "token_budget": token_budget, "extractor": extractor,
            "on_signal": on_signal,
        }  # fmt: skip
        self._memory = SessionMemory(
            store,
            self.id,
            self._namespace,
            agent_id=spec.id,
            policy=PromotionPolicy.new(promotion),
            budget=TokenBudget.new(token_budget),
            count=given.count_tokens,
            extractor=_as_extractor(extractor),
            propose_evicted=policy is not None and policy.enabled and policy.capture == "manual",
            listener=None if on_signal is None else check_function(on_signal, "on_signal"),
        )
        self._memory.on_drop = self._on_context_drop
        self._runner = TurnRunner(spec, self._state, self._options["memory_store"], self._on_turn_end)
        self._closed = False
        self._background_task: asyncio.Task[None] | None = None

    # Made, found, left

    @classmethod
    def open(cls, spec: AgentSpec, id: str, *, store: Any = None, **options: Any) -> Self:
        """The session of this id, taken up or begun: `async with Session.open(…) as session`."""
        return cls(spec, id, store=store, **options)

    @classmethod
    async def start(
        cls,
        spec: AgentSpec,
        id: str | None = None,
        *,
        session_id: str | None = None,
        store: Any = None,
        **options: Any,
    ) -> Self:
        """A new session, under an id that is free."""
        if id is not None and session_id is not None and id != session_id:
            raise Invalid("session_id", f"is {session_id!r}, and id is {id!r}", "pass one of them")
        chosen = id if id is not None else session_id
        session = cls(spec, ids.new("sess_") if chosen is None else chosen, store=store, **options)
        await session._state.create(session._namespace, session._project_id, session._metadata)
        return session

    @classmethod
    async def load(
        cls,
        id: str,
        spec: AgentSpec | None = None,
        *,
        store: Any = None,
        namespace: str | None = None,
        **options: Any,
    ) -> Self:
        """A session that exists; without a spec it has the one it was begun with, and its tools no code."""
        if spec is None:
            spec = await spec_of(store, id, namespace or DEFAULT_NAMESPACE)
        session = cls(spec, id, store=store, namespace=namespace, **options)
        if not await session._load():
            raise session_not_found(id)
        return session

    async def __aenter__(self) -> Self:
        if not self._state.is_open and not await self._load():
            try:
                await self._state.create(self._namespace, self._project_id, self._metadata)
            except IdTaken:  # somebody else began it just now
                await self._load()
        await self._memory.open()
        if memory_policy(self.spec) is not None and self._background_task is None:
            # Not in the task of whoever opens it: sessions may be left in any order, and from any task.
            self._background_task = asyncio.create_task(self._run_background())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except Exception:
            if error is None:  # what was raised in the block is what matters
                raise

    async def close(self) -> None:
        """Leave the session: what matters is promoted, and it can be opened again, here or elsewhere."""
        if self._closed:
            return
        with CancelScope(shield=True):
            try:
                await self._stop_background()
                if self._state.is_open:
                    await self._promote_on_close()
            finally:
                self._closed = self._memory.closed = True

    async def _stop_background(self) -> None:
        """End what goes on in the background."""
        ticking, self._background_task = self._background_task, None
        if ticking is None:
            return
        ticking.cancel()
        if not self._state.is_background_task:  # it would wait for itself
            await asyncio.wait([ticking])

    async def _run_background(self) -> None:
        """What the session does by itself, in a task group of its own."""
        async with create_task_group() as group:
            group.start_soon(self._promotion_loop)

    def __repr__(self) -> str:
        status = self.status if self._state.is_open else "not open yet"
        return f"<session {self.id!r} of {self.spec.id!r}, {status}>"

    # What is known

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
        """The agent after the last turn that is over."""
        return self._state.agent

    @property
    def requests(self) -> list[str]:
        """The ids of what was asked, oldest first."""
        return transcript.request_ids([*self._state.thread.entries])

    @property
    def pending_reviews(self) -> tuple[Review, ...]:
        """What somebody still has to decide before the turn can go on."""
        flight = self.record.turn
        known = {} if flight is None else flight.decisions
        return tuple(one for one in self.record.pending_reviews if one.id not in known)

    @property
    def result(self) -> str | None:
        """The last answer."""
        return self.record.result

    @property
    def error(self) -> Mapping[str, Any] | None:
        """What the last turn failed with, if it did."""
        error: Mapping[str, Any] | None = self.record.error
        return error

    # The conversation

    async def chat(self, input: str, **options: Unpack[TurnKwargs]) -> str:
        """The agent's answer."""
        return answer_of(await self.run(input, **options))

    async def run(self, input: str, **options: Unpack[TurnKwargs]) -> TurnResult:
        """A turn, and all that came of it."""
        return await self._runner.begin(input, self._turn_options(options), streaming=False)

    @asynccontextmanager
    async def stream(
        self, input: str | None = None, **options: Unpack[TurnKwargs]
    ) -> AsyncIterator[TurnStream]:
        """A turn whose events can be read while it runs: a new one, or without input the one to resume."""
        given = self._turn_options(options)

        async def run(listener: EventListener) -> TurnResult:
            given.on_event = listener
            if input is None:
                return await self._resume_turn(given, streaming=True)
            return await self._runner.begin(input, given, streaming=True)

        async with open_stream(run, given.on_event) as streaming:
            yield streaming

    async def preflight(self, input: str, **options: Unpack[TurnKwargs]) -> Preflight:
        """What the model would see now."""
        given = self._turn_options(options)
        await self._state.refresh_if_idle()
        return await build_preflight(self.spec, input, given, tuple(self._state.history), self.agent)

    async def resume(self, **options: Unpack[TurnKwargs]) -> TurnResult:
        """Go on with the turn that did not finish: after a pause, a decision, an error or a crash.

        Where the last turn did finish, and only its capture is left, that is done; the result is the last.
        """
        return await self._resume_turn(self._turn_options(options), streaming=False)

    async def _resume_turn(self, given: TurnOptions, *, streaming: bool) -> TurnResult:
        result = await self._runner.resume(given, streaming=streaming)
        if result is None and self.record.last_request_id is None:
            raise Invalid("session", f"{self.id!r} has nothing to resume", "ask it something")
        return await self.replay() if result is None else result

    async def replay(self, request_id: str | None = None) -> TurnResult:
        """A turn again as it was, from the transcript: nothing is called or written."""
        await self._state.refresh_if_idle()
        wanted = request_id or self.record.last_request_id
        entries = [one for one in self._state.thread.entries if one.payload.get("request_id") == wanted]
        if wanted is None or not entries:
            raise NotFound("request", request_id, f"session {self.id!r} has {len(self.requests)} of them")
        journal = Journal(request_id=wanted, entries=tuple(entries))
        return await replay(self.spec, journal, agent=self._state.agent_at(entries[0].seq))

    async def fork(self, new_id: str | None = None, *, after: str | None = None, **options: Any) -> Session:
        """Another session with the same past, up to the turn of a request; this one stays as it is."""
        await self._state.refresh_if_idle()
        kept = [turn.request_id for turn in self._state.history]
        if after is not None:
            if after not in kept:
                raise NotFound("request", after, "name one that this session has answered")
            kept = kept[: kept.index(after) + 1]
        past = [one for one in self._state.thread.entries if one.payload.get("request_id") in kept]
        own = {"project_id": self._project_id, "lease_ms": self._lease_ms, "namespace": self._namespace}
        options = {**self._options, **self._memory_options, **own, **options}
        options["metadata"] = {
            **thaw(self.record.metadata),
            "forked_from": {"session": self.id, "after": kept[-1] if kept else None},
        }
        chosen = ids.new("sess_") if new_id is None else new_id
        session = type(self)(self.spec, chosen, store=self._store, **options)
        whole = len(kept) == len(self._state.history)
        state = self.record.checkpoint if whole else None
        await session._state.create(session._namespace, session._project_id, session._metadata, past, state)
        known, heard = self._memory.notes, len(past)  # by the session that they come from
        left = min(known.evicted, heard)
        session._memory.apply(lambda notes: notes.replace(read=heard, evicted=left))
        if whole:
            session._memory.apply(lambda notes: notes.replace(context=known.context, origins=known.origins))
        await session._memory.save()
        return session

    async def cancel(self, reason: str = "cancelled") -> None:
        """Give up the turn that did not finish; what was said before stays."""
        async with self._state.lock():
            flight = self.record.turn
            if flight is None:
                return
            await self._state.append([transcript.abandoned_entry(flight.asked.id, reason)])
            status = "finished" if self.record.turns else "new"
            await self._state.save(status=status, turn=None, pending_reviews=(), error=None)

    # What people decide

    async def approve(self, review_id: str) -> None:
        """Let it happen; a tool of which nobody knows whether it took effect is run again."""
        await self._decide(review_id, Decision(verdict="approve"))

    async def deny(self, review_id: str, reason: str = "") -> None:
        """Do not let it happen; the model is told."""
        await self._decide(review_id, Decision(verdict="deny", reason=reason))

    async def settle(self, review_id: str, result: Any) -> None:
        """Say what a tool is to have answered, without running it, or what the agent is to answer."""
        await self._decide(review_id, Decision(verdict="settle", result=result))

    async def _decide(self, review_id: str, decision: Decision) -> None:
        async with self._state.lock():
            review = next((one for one in self.record.pending_reviews if one.id == review_id), None)
            flight = self.record.turn
            if review is None or flight is None:
                known = ", ".join(one.id for one in self.pending_reviews) or "none"
                raise NotFound("review", review_id, f"waiting are: {known}")
            if decision.verdict == "settle" and review.boundary == "input":
                raise Invalid("review", f"{review_id!r} is about an input", "approve or deny it")
            decisions = {**thaw(flight.decisions), review_id: codec.to_builtins(decision)}
            await self._state.save(turn=flight.replace(decisions=decisions))

    # Inside

    def _turn_options(self, options: Mapping[str, Any]) -> TurnOptions:
        if self._closed:
            raise Invalid("session", f"{self.id!r} is closed", "open it again")
        _ = self.record
        for field, own in (("session_id", self.id), ("project_id", self._project_id)):
            if options.get(field, own) != own:
                raise Invalid(field, f"is {options[field]!r}", f"leave it out: the session has {own!r}")
        if "agent" in options or "history" in options:
            raise Invalid("agent", "and history are the session's own", "leave them out")
        merged = {**self._options, **options, "session_id": self.id, "project_id": self._project_id}
        for name in ("context", "secrets"):  # what a turn says comes over what the session says
            if name in options and name in self._options and isinstance(options[name], Mapping):
                merged[name] = {**self._options[name], **options[name]}
        given = TurnOptions.from_kwargs(merged)
        given.off_record = given.memory_store is None
        policy = memory_policy(self.spec)
        if policy is not None and namespace_of(policy, given.context) != self._memory_namespace:
            raise Invalid("context", "names another namespace", "open a session for each of them")
        return given

    async def _load(self) -> bool:
        """Read it, if it is there."""
        found = await self._state.load()
        if found:
            own = self.record.project_id
            if None not in (own, self._project_id) and own != self._project_id:
                raise Invalid(
                    "project_id", f"is {self._project_id!r}, the session's is {own!r}", "leave it out"
                )
            self._project_id = own if self._project_id is None else self._project_id
            await self._memory.load()
        return found


def _as_extractor(wanted: Extractor | bool | None) -> Extractor | None:
    """Who notices memories in what is said: nobody, the rules that come with Omoide, or a function."""
    if wanted is None or isinstance(wanted, bool):
        return extract if wanted else None
    return check_function(wanted, "extractor")
