"""How are sessions looked at over HTTP, and what they know promoted?"""

from __future__ import annotations

from typing import Annotated, Any

from litestar.datastructures import State
from litestar.params import QueryParameter

from omoide.core.scope import Scope
from omoide.errors import NotFound
from omoide.promotion.marks import Run
from omoide.service.answers import Conversation, Conversations, Promoted, Transcript
from omoide.sessions.assembling import Context
from omoide.sessions.keeping import Keeper
from omoide.sessions.listing import missing, spec_of
from omoide.sessions.listing import sessions as listed
from omoide.sessions.session import Session
from omoide.turns.previewing import Preflight
from omoide.web import bodies
from omoide.web.asking import asks, reads, writes


@reads("/sessions")
async def sessions(state: State, within: Scope) -> Conversations:
    """The sessions of a namespace, the one that was used last first."""
    found = await listed(state.store, agent_id=within.agent_id, namespace=within.namespace)
    kept = [one for one in found if within.project_id in (None, one.project_id)]
    kept.sort(key=lambda one: one.updated_at, reverse=True)
    return Conversations(sessions=tuple(map(Conversation.of, kept)))


@reads("/transcript", 404)
async def transcript(state: State, within: Scope, id: str) -> Transcript:
    """What was said in a session."""
    kept = await Keeper(state.store, id, within.namespace).load()
    if kept is None or within.agent_id not in (None, kept[0].agent_id):
        raise missing(id)
    header, thread = kept
    return Transcript(session=Conversation.of(header), entries=tuple(thread.entries))


@reads("/context", 404)
async def context(
    state: State,
    within: Scope,
    id: str,
    hint: str | None = None,
    budget: Annotated[int, QueryParameter(ge=1, le=1_000_000)] = 32_000,
) -> Context:
    """What a model should know about a session, in so many tokens."""
    return await (await _loaded(state, within, id)).assemble_context(hint, budget)


@writes("/promote", 404, 409)
async def promote(state: State, within: Scope, asked: bodies.Promote) -> Promoted:
    """Show what of a session would become lasting memory, and why; with `dry_run` false it becomes it."""
    session = await _loaded(state, within, asked.session)
    if asked.dry_run:
        done = await session.promote(dry_run=True, threshold=asked.threshold)
    else:
        session.set_promotion(enabled=False)  # what is asked for is promoted, and nothing more on leaving
        async with session:
            done = await session.promote(threshold=asked.threshold)
    return Promoted(
        dry_run=done.dry_run,
        threshold=done.plan.threshold,
        candidates=done.plan.candidates,
        run=done.run,
        notices=session.notices,
    )


@writes("/undo-promotion", 404, 409)
async def undo_promotion(state: State, within: Scope, asked: bodies.UndoPromotion) -> Run:
    """Take the last promotion of a session back, or the one that is named."""
    session = await _loaded(state, within, asked.session)
    session.set_promotion(enabled=False)
    async with session:
        return await session.undo_promotion(asked.run)


@asks("/preflight", 404)
async def preflight(state: State, within: Scope, asked: bodies.Preflight) -> Preflight:
    """What a model would be sent; no model is asked, and nothing is written."""
    return await (await _loaded(state, within, asked.session)).preflight(asked.message)


async def _loaded(state: State, within: Scope, id: str) -> Session:
    spec = await spec_of(state.store, id, within.namespace)
    if within.agent_id not in (None, spec.id):
        raise NotFound("session", id, "it is of another agent")
    named = None if spec.memory is None else spec.memory.namespace
    given: dict[str, Any] = {named[1]: within.namespace} if isinstance(named, tuple) else {}
    return await Session.load(
        id, spec, store=state.store, namespace=within.namespace, context=given, llm=_nobody
    )


def _nobody(request: object, journal: object) -> str:
    """Answers in the place of a model that nothing here asks."""
    raise NotImplementedError


HANDLERS = [sessions, transcript, context, promote, undo_promotion, preflight]
