"""What does a session know, before and beside what it said?

The half of a session that is about memory: its working context, what waits to be promoted, promotion itself,
and the context that a model is given.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from anyio import sleep

from omoide import clock
from omoide.core.contract import check_choice, check_unit
from omoide.core.entry import Entry, Evidence
from omoide.core.scope import Scope
from omoide.core.texts import check_str
from omoide.core.writing import WriteResult
from omoide.errors import Invalid, NotFound, SessionBusy
from omoide.promotion.marks import Mark, Run, digest
from omoide.promotion.planning import memory_of
from omoide.promotion.policy import PromotionPolicy
from omoide.promotion.promoting import Promotion
from omoide.promotion.scoring import score, score_context_item
from omoide.sessions import recalling
from omoide.sessions.assembling import Context, assembled, split
from omoide.sessions.kept import Kept
from omoide.sessions.learning import Learning, Stats
from omoide.sessions.notes import Notes
from omoide.sessions.scratchpad import Scratchpad
from omoide.shortterm.buffer import ROLES
from omoide.shortterm.context import SUMMARY, ContextItem
from omoide.shortterm.pending import PendingItem
from omoide.shortterm.short_term import ShortTerm
from omoide.tools.desk import REACHES
from omoide.turns import remembering, transcript
from omoide.turns.options import Given
from omoide.turns.routing import enabled, scope_of
from omoide.turns.spec import AgentSpec


class Knowing:
    """What `Session` knows; the other half is the conversation."""

    id: str
    spec: AgentSpec
    _kept: Kept
    _learning: Learning
    _project_id: str | None

    def _given(self, options: dict[str, Any]) -> Given:
        raise NotImplementedError

    # Short-term memory

    @property
    def context(self) -> Scratchpad:
        """What the session understands right now: `session.context.put("framework", "Phoenix 1.7")`."""
        learning = self._learning
        return Scratchpad(
            lambda: learning.notes,
            learning.apply,
            lambda source: learning.place(self._kept.thread, source),
            self._dropped,
            learning.count,
        )

    @property
    def short_term(self) -> ShortTerm:
        """All that the session holds before anything of it is durable, as a value."""
        return self._learning.memory(self._kept.thread)

    @property
    def notices(self) -> tuple[str, ...]:
        """What happened to the session's memory that somebody should know: losses, failures."""
        return self._learning.heard

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
        said = tuple(evidence) or tuple(filter(None, [self._learning.place(self._kept.thread, "agent")]))
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
            weights = self._learning.policy.weights
            importance = score(now, 1, entry.confidence, entry.type, now, weights).total
        item = PendingItem(entry=entry.replace(importance=importance), access_count=1)
        self._learning.propose(item, decided=decided)
        return item

    async def add_message(self, role: str, content: str, **metadata: Any) -> int:
        """Add to the transcript what was said outside of a turn; how many messages left the buffer for it."""
        check_choice(role, "role", ROLES)
        if not isinstance(content, str) or not content.strip():
            raise Invalid("content", "is empty", "pass what was said")
        self._given({})
        async with self._kept.alone():
            before = self._learning.memory(self._kept.thread).conversation.size
            await self._kept.append([transcript.said(role, content, metadata)])
            await self._kept.save()  # others see by the header that there is more to read
            after = self._learning.memory(self._kept.thread).conversation.size
            await self._learning.save()
        return before + 1 - after

    # Long-term memory

    async def remember(self, content: str, **fields: Any) -> WriteResult:
        """Keep a memory of this session now; `fields` are those of `Entry`."""
        given = self._given({})
        return await remembering.write(
            self.spec,
            content,
            memory_store=given.memory_store,
            session_id=self.id,
            project_id=self._project_id,
            context=given.context,
            within=True,
            **fields,
        )

    async def promote(self, *, dry_run: bool = False, threshold: float | None = None) -> Promotion:
        """Promote what matters enough, or with `dry_run` say what would be promoted, what not, and why."""
        scope = self._memory_scope()
        if threshold is not None:
            check_unit(threshold, "threshold")
        if dry_run:
            self._given({})
            return Promotion(plan=self._learning.plan(self._kept.thread, scope, "demand", threshold))
        return await self._promoted("demand", threshold)

    async def pause(self) -> Promotion | None:
        """Promote and keep what there is, because nobody will be here for a while; None without memory."""
        if enabled(self.spec) is not None:
            return await self._promoted("pause")
        async with self._kept.alone():
            await self._learning.save()
        return None

    async def undo_promotion(self, run_id: str | None = None) -> Run:
        """Take the last promotion back, or the one that is named: its memories are forgotten again."""
        store, scope = self._given({}).memory_store, self._memory_scope()
        async with self._kept.alone():
            return await self._learning.undo(store, scope, run_id)

    @property
    def promotions(self) -> tuple[Run, ...]:
        """The last promotions, oldest first."""
        return self._learning.notes.runs

    @property
    def promotion_stats(self) -> Stats:
        """How promotion goes."""
        return self._learning.stats

    def set_promotion(self, policy: PromotionPolicy | None = None, **changes: Any) -> None:
        """Go on with another policy for promotion, or with some of its fields changed."""
        base = self._learning.policy if policy is None else policy
        self._learning.policy = PromotionPolicy.new(base, **changes)

    async def assemble_context(
        self,
        query_hint: str | None = None,
        token_budget: int | None = None,
        *,
        reach: str | None = None,
        include_memories: bool = True,
        include_conversation: bool = True,
        force_summarize: bool = False,
    ) -> Context:
        """What a model should know about this session, in so many tokens: by default the session's budget.

        `reach` is how far memory is searched: the `session`, the `project` with its earlier sessions, or all
        that the `agent` knows; by default as far as the spec's policy says.
        """
        budget = self._learning.budget.total if token_budget is None else token_budget
        split(budget)
        if query_hint is not None:
            check_str(query_hint, "query_hint")
        given = self._given({})
        within = self._reach(reach) if enabled(self.spec) is not None or reach is not None else None
        memory = self.short_term
        notices = [*self._learning.heard]
        found: list[Entry] = []
        if include_memories and within is not None and given.memory_store is not None:
            found, told = await recalling.remembered(given.memory_store, within, query_hint)
            notices += told
            self._learning.used(found, clock.now())
        now, weights = clock.now(), self._learning.policy.weights
        items = [one for one in memory.context.to_list() if one.key != SUMMARY]
        items.sort(key=lambda one: -score_context_item(one, memory.access_log, now, weights).total)
        return assembled(
            memory.conversation.to_list() if include_conversation else [],
            items,
            found,
            budget=budget,
            count=self._learning.count,
            summarise=force_summarize,
            notices=notices,
        )

    # Inside

    def _memory_scope(self) -> Scope:
        """Whose memory this session writes."""
        policy = enabled(self.spec)
        if policy is None:
            raise Invalid(
                "memory", f"of agent {self.spec.id!r} is off", "declare memory=True or a MemoryPolicy"
            )
        given = self._given({})
        return scope_of(
            self.spec,
            policy,
            session_id=self.id,
            project_id=self._project_id,
            context=given.context,
            within=True,
        )

    def _reach(self, reach: str | None) -> Scope:
        if reach is not None:
            check_choice(reach, "reach", REACHES)
        own, policy = self._memory_scope(), enabled(self.spec)
        wanted = (policy.scope if policy is not None else "session") if reach is None else reach
        if wanted == "session":
            return own
        if wanted == "agent":
            return Scope(namespace=own.namespace, agent_id=own.agent_id)
        if own.project_id is None:
            raise Invalid("reach", "is 'project', and the session has none", "open it with project_id=")
        return Scope(namespace=own.namespace, project_id=own.project_id)

    def _dropped(self, notes: Notes, item: ContextItem) -> Notes:
        """A value that has to leave the working context may still become a memory."""
        marks, now = notes.marked(), clock.now()
        if item.suggested_type is None:
            return notes
        importance = score_context_item(item, notes.access_log, now, self._learning.policy.weights).total
        scope = Scope(agent_id=self.spec.id, session_id=self.id, project_id=self._project_id)
        origin = notes.traced().get(item.key)
        entry = memory_of(item, self.id, scope, importance, marks.get(item.key), origin)
        waiting = notes.without_dropped(item.key)
        pending, left = waiting.pending.add_implicit(PendingItem(entry=entry, access_count=item.access_count))
        gone = {one.id for one in left}
        mark = Mark(key=item.key, id=entry.id, digest=digest(item.value))
        dropped = [one for one in (*waiting.dropped, mark) if one.id not in gone]
        return waiting.replace(pending=pending, dropped=tuple(dropped))

    async def _promoted(
        self, trigger: str, threshold: float | None = None, *, background: bool = False
    ) -> Promotion:
        store, scope = self._given({}).memory_store, self._memory_scope()
        async with self._kept.alone(background=background):
            return await self._learning.promote(store, self._kept.thread, scope, trigger, threshold)

    async def _turn_over(self) -> None:
        """A turn is over: keep what was learned in it, and promote what is due."""
        learning = self._learning
        await learning.refresh()
        learning.follow(self._kept.thread)
        store = self._given({}).memory_store
        trigger = learning.due(clock.now())
        if trigger is not None and store is not None and enabled(self.spec) is not None:
            await learning.promote(store, self._kept.thread, self._memory_scope(), trigger)
        await learning.save(closed=False)

    async def _last_words(self) -> None:
        """The session ends: promote with the lower threshold, and keep the rest."""
        learning = self._learning
        try:
            async with self._kept.alone():
                await learning.refresh()
                learning.follow(self._kept.thread)
                notes = learning.notes
                store = self._given({}).memory_store
                waiting = notes.pending.size or notes.context.size
                if (
                    waiting
                    and learning.policy.enabled
                    and store is not None
                    and enabled(self.spec) is not None
                ):
                    await learning.promote(store, self._kept.thread, self._memory_scope(), "close")
                await learning.save(closed=True)
        except SessionBusy:
            # Somebody else goes on with it: what was learned here is kept, and promoted there.
            await learning.save()
        except NotFound:
            pass  # it was erased

    async def _keep_promoting(self) -> None:
        """Promote what matters enough again and again, while nothing else goes on."""
        while True:
            await sleep(self._learning.policy.every_ms / 1000)
            if self._learning.due(clock.now()) is None:
                continue
            try:
                await self._promoted("interval", background=True)
            except (SessionBusy, NotFound):
                continue  # a turn is going on, here or elsewhere, and promotes at its end
            except Exception as error:  # whatever it is, the session's block goes on
                self._learning.tell_of(f"promotion failed ({type(error).__name__}: {error})")
