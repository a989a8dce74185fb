"""Tests of isolation: sessions do not affect each other's memory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.support.sessions import a_spec, talker

from omoide import Scope, clock
from omoide.errors import NotFound
from omoide.sessions import Session
from omoide.stores import open_store
from omoide.testing import FrozenClock

START = 1_800_000_000_000
KEYS = st.sampled_from(["framework", "current_task", "other"])
WORDS = st.sampled_from(["A", "B", "C"])
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS, WORDS),
    st.tuples(st.just("get"), KEYS),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("clear")),
    st.tuples(st.just("propose"), WORDS, st.floats(0, 1)),
    st.tuples(st.just("decide"), WORDS),
    st.tuples(st.just("say"), WORDS),
    st.tuples(st.just("ask"), WORDS),
    st.tuples(st.just("remember"), WORDS),
    st.tuples(st.just("promote")),
    st.tuples(st.just("undo")),
    st.tuples(st.just("look")),
)
Step = tuple[Any, ...]


async def do(session: Session, step: Step) -> Any:
    """One step, and what came of it."""
    match step:
        case "say", content:
            return await session.add_message("user", content)
        case "ask", content:
            return await session.chat(content)
        case "remember", content:
            await session.remember(content)
        case ("promote",):
            done = await session.promote()
            return sorted((one.entry.content, one.verdict, one.score) for one in done.plan.candidates)
        case ("undo",):
            with suppress(NotFound):
                await session.undo_promotion()
        case ("look",):
            return (await session.assemble_context()).text
        case _:
            return note_step(session, step)
    return None


def note_step(session: Session, step: Step) -> Any:
    """A step that only short-term memory knows of."""
    match step:
        case "put", key, value:
            session.context.put(key, value, source="tool", confidence=0.9)
        case "get", key:
            return session.context.get(key)
        case "delete", key:
            return session.context.delete(key)
        case "propose", content, importance:
            session.propose(content, importance=importance, type="fact")
        case "decide", content:
            session.propose(content, decided=True, type="decision")
        case _:
            session.context.clear()
    return None


async def state(session: Session, store: Any) -> dict[str, Any]:
    """All that can be seen of a session's memory, but for ids that are made at random."""
    memory, stats = session.short_term, session.promotion_stats
    entries = await store.list_entries(Scope(session_id=session.id))
    return {
        "context": memory.context,
        "pending": [(one.content, one.importance_score) for one in memory.pending.list_implicit()],
        "decided": [one.content for one in memory.pending.list_agent_decisions()],
        "said": [(one.role, one.content) for one in memory.conversation.to_list()],
        "used": [
            memory.access_log.get_stats(key).frequency for key in ("framework", "current_task", "other")
        ],
        "stats": stats,
        "notices": session.notices,
        "memories": sorted(
            (one.content, str(one.type), one.superseded_by is None, one.rev) for one in entries
        ),
    }


async def run_steps(
    steps: Sequence[tuple[str, Step]],
) -> tuple[dict[str, list[Any]], dict[str, dict[str, Any]]]:
    """What each session saw and is in the end, when they take these steps in turn on one store."""
    spec = a_spec(memory={"scope": "session"})
    seen: dict[str, list[Any]] = {id: [] for id, _ in steps}
    with clock.override(FrozenClock(START)) as time:
        async with open_store("memory://", embedder="none") as store, AsyncExitStack() as stack:
            sessions = {
                id: await stack.enter_async_context(Session.open(spec, id, store=store, model=talker()))
                for id in sorted(seen)
            }
            for id, step in steps:
                time.at = START + len(seen[id])  # a session's time passes with its own steps
                seen[id].append(await do(sessions[id], step))
            time.at = START + len(steps)
            return seen, {id: await state(session, store) for id, session in sessions.items()}


@given(st.lists(st.tuples(st.sampled_from(["s1", "s2"]), STEPS), max_size=25))
async def test_two_sessions_do_not_notice_each_other(steps: list[tuple[str, Step]]) -> None:
    """Whatever they do in turn on one store, each sees and ends as it would alone."""
    seen, ended = await run_steps(steps)
    for id in seen:
        alone, last = await run_steps([(whose, step) for whose, step in steps if whose == id])
        assert seen[id] == alone[id]
        assert ended[id] == last[id]


async def test_the_same_name_in_two_namespaces_is_two_sessions(store: Any) -> None:
    """Tenants may use the same ids, and share nothing."""
    for name, value in (("a", "Phoenix"), ("b", "Rails")):
        spec = a_spec(memory={"namespace": name})
        async with Session.open(spec, "s1", store=store, model=talker()) as session:
            assert session.context.to_dict() == {}
            session.context.put("framework", value, source="tool", confidence=0.9)
    for name, value in (("a", "Phoenix"), ("b", "Rails")):
        found = await store.list_entries(Scope(namespace=name))
        assert [one.content for one in found] == [f"framework: {value}"]
        async with Session.open(a_spec(memory={"namespace": name}), "s1", store=store) as session:
            assert session.context.to_dict() == {"framework": value}


async def test_a_new_session_begins_with_nothing(store: Any) -> None:
    """What an earlier one of the same agent and project noted is not in its short-term memory."""
    for id in ("s1", "s2"):
        async with Session.open(
            a_spec(memory=True), id, store=store, model=talker(), project_id="shop"
        ) as session:
            memory = session.short_term
            assert (memory.context.size, memory.pending.size, memory.conversation.size) == (0, 0, 0)
            assert session.promotion_stats.runs == 0
            session.context.put("framework", "Phoenix")
            session.propose("Waiting.", importance=0.1)
            await session.run("Hello.")
