"""Tests of decisions that are journaled, of what waits for promotion when room is short, and of its evidence.

Run as `python -m tests.sessions.test_decisions URL`, this file decides one thing after another, prints each
once it is journaled, and goes on until it is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from tests.support.promotion import FailingStore, item
from tests.support.sessions import a_spec, reopen, talker
from tests.support.turns import tool_calls

from omoide import Entry, Evidence, Scope, action, clock
from omoide.errors import Invalid, StoreFailed
from omoide.promotion import PromotionPolicy
from omoide.sessions import Session
from omoide.shortterm import PendingItem, PendingMemories, TokenBudget
from omoide.stores import open_store

ROOT = Path(__file__).parents[2]
KILLS = max(3, int(os.environ.get("OMOIDE_KILLS", "10")) // 3)
NEVER = PromotionPolicy(enabled=False)
TINY = TokenBudget(total=1_000, conversation=30, context=500)


def words(text: str) -> int:
    """A counter that counts words."""
    return len(text.split())


def make_session(store: Any, id: str = "s1", **options: Any) -> Session:
    """A session to be entered."""
    spec = options.pop("spec", a_spec(memory=True))
    return Session.open(spec, id, **{"store": store, "model": talker(), **options})


async def start_session(store: Any, **options: Any) -> Session:
    """A session that nobody will close."""
    return await Session.start(a_spec(memory=True), "s1", **{"store": store, "model": talker(), **options})


async def decisions_of(session: Session) -> list[str]:
    """The decisions that wait, as another program sees them, oldest first."""
    read = await reopen(session)
    return [one.content for one in reversed(read.short_term.pending.list_agent_decisions())]


async def live(store: Any) -> list[str]:
    """What counts now, in words."""
    found = await store.list_entries(Scope())
    return sorted(one.content for one in found if one.is_live(clock.now()))


# Journaled


async def decide_until_killed(url: str) -> None:
    """Decide one thing after another, and print each once it is journaled."""
    async with open_store(url, embedder="none") as store:
        session = await Session.load("s1", a_spec(memory=True), store=store)
        for at in range(1_000_000):
            made = await session.decide(f"Decided {at}.", type="decision", rationale="It is faster.")
            assert made.durable
            sys.stdout.write(f"{made.id} {made.content}\n")
            sys.stdout.flush()


@pytest.mark.parametrize("lines", range(1, 40 * KILLS, 40))
async def test_a_decision_outlives_its_process(tmp_path: Path, lines: int) -> None:
    """Killed at any moment, whatever was acknowledged is there once, and becomes a memory."""
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    async with open_store(url, embedder="none") as store:
        await start_session(store)
    acknowledged = await anyio.to_thread.run_sync(_kill_after, url, lines)
    assert len(acknowledged) >= lines
    async with open_store(url, embedder="none") as store:
        async with make_session(store) as session:
            waiting = session.short_term.pending.list_agent_decisions()
            assert all(one.durable for one in waiting)
            await session.promote()
        found = {entry.id: entry for entry in await store.list_entries(Scope())}
        for line in acknowledged:
            id, _, content = line.partition(" ")
            assert (found[id].content, found[id].type, found[id].rev) == (content, "decision", 1)
        assert len(found) - len(acknowledged) in (0, 1), (
            "the last one may have been journaled and not printed"
        )


def _kill_after(url: str, count: int) -> list[str]:
    """Run the process, kill it after so many lines, and return all that it printed."""
    command = [sys.executable, "-m", "tests.sessions.test_decisions", url]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            found = [process.stdout.readline() for _ in range(count)]
        finally:
            process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().splitlines(keepends=True)
    return [line.rstrip("\n") for line in (*found, *rest) if line.endswith("\n")]


async def test_a_decision_is_journaled_when_decide_returns(store: Any) -> None:
    """Another program reads it; nothing else had to be called, and the turn that runs is not waited for."""
    decided: list[tuple[PendingItem, list[str]]] = []

    @action(effectful=True)
    async def choose(ctx: Any) -> str:
        """Choose."""
        made = await session.decide("We use tabs.", type="convention")
        decided.append((made, await decisions_of(session)))
        return "chosen"

    spec = a_spec(memory=True, tools=[choose])
    model = talker(tool_calls(("choose", {})), "Done.")
    async with make_session(store, spec=spec, model=model) as session:
        await session.chat("Tabs or spaces?")
        (made, journaled) = decided[0]
        assert (made.durable, journaled) == (True, ["We use tabs."])
        assert await live(store) == ["We use tabs."]


CALLS: dict[str, Callable[[Session], Awaitable[Any]]] = {
    "chat": lambda session: session.chat("Hello."),
    "preflight": lambda session: session.preflight("Hello."),
    "add_message": lambda session: session.add_message("user", "Hello."),
    "remember": lambda session: session.remember("Hello."),
    "assemble_context": lambda session: session.assemble_context(),
    "promote": lambda session: session.promote(dry_run=True),
    "fork": lambda session: session.fork("s2"),
    "cancel": lambda session: session.cancel(),
    "decide": lambda session: session.decide("Another one."),
    "pause": lambda session: session.pause(),
    "close": lambda session: session.close(),
}


@pytest.mark.parametrize("call", CALLS)
async def test_a_proposed_decision_is_journaled_by_the_next_call(store: Any, call: str) -> None:
    """Until then its item says that it is not durable, and another program does not see it."""
    session = await start_session(store)
    made = session.propose("We use tabs.", decided=True)
    (waiting,) = session.short_term.pending.list_agent_decisions()
    assert (made.durable, waiting.durable, await decisions_of(session)) == (False, False, [])
    await CALLS[call](session)
    assert "We use tabs." in [*(await decisions_of(session)), *(await live(store))]
    assert all(one.durable for one in session.short_term.pending.list_agent_decisions())


async def test_a_chat_that_fails_has_journaled_what_was_decided(store: Any) -> None:
    """The decision was made before the turn, so it does not depend on the model."""
    session = await start_session(store, model=talker(RuntimeError("no")))
    session.propose("We use tabs.", decided=True)
    with pytest.raises(Exception, match="no"):
        await session.chat("Hello.")
    assert await decisions_of(session) == ["We use tabs."]


async def test_many_decisions_at_once_are_all_journaled(store: Any) -> None:
    """Also more than may wait: none is lost, and none is written twice."""
    async with make_session(store) as session:
        async with anyio.create_task_group() as group:
            for at in range(150):
                group.start_soon(session.decide, f"Decided {at:03}.")
        assert session.notices == ()
    assert await live(store) == [f"Decided {at:03}." for at in range(150)]


async def test_decisions_of_two_programs_are_both_kept(store: Any) -> None:
    """Each journals its own on top of what the other wrote."""
    one = await start_session(store)
    other = await reopen(one)
    for at in range(5):
        await (one if at % 2 else other).decide(f"Decided {at}.")
    assert await decisions_of(one) == [f"Decided {at}." for at in range(5)]


async def test_a_decision_that_cannot_be_journaled_is_told(store: Any) -> None:
    """The error is raised; the decision is still there, and journaled by the next call that can."""
    ill = FailingStore(store)
    session = await start_session(ill)
    ill.calls = {"save notes"}
    with pytest.raises(StoreFailed):
        await session.decide("We use tabs.")
    ill.calls = set()
    assert await decisions_of(session) == []
    await session.preflight("Hello.")
    assert await decisions_of(session) == ["We use tabs."]


async def test_a_closed_session_decides_nothing(store: Any) -> None:
    """The error says what to do."""
    async with make_session(store) as session:
        pass
    with pytest.raises(Invalid, match="open it again"):
        await session.decide("We use tabs.")


# When there is no room


async def test_a_decision_at_the_cap_is_promoted_first(store: Any) -> None:
    """With a hundred waiting, the next one has them promoted, and nothing is reported or lost."""
    async with make_session(store) as session:
        for at in range(100):
            session.propose(f"Decided {at:03}.", decided=True)
        await session.decide("Decided 100.")
        assert await decisions_of(session) == ["Decided 100."]
        assert len(await live(store)) == 100
        assert session.notices == ()
        assert session.promotions[-1].trigger == "capacity"
    assert len(await live(store)) == 101


@pytest.mark.parametrize("way", ["propose", "decide"])
async def test_a_decision_that_the_cap_evicts_is_a_notice(store: Any, way: str) -> None:
    """Where it cannot be promoted first, its id is in the notice, and it is the oldest one."""
    memory = None if way == "decide" else True
    async with make_session(store, spec=a_spec(memory=memory)) as session:
        first, *_ = [session.propose(f"Decided {at}.", decided=True) for at in range(100)]
        if way == "propose":
            session.propose("Decided 100.", decided=True)
        else:
            await session.decide("Decided 100.")
        assert len(session.short_term.pending.list_agent_decisions()) == 100
        (notice,) = session.notices
        assert first.id in notice


async def test_a_proposal_that_the_cap_evicts_is_a_notice(store: Any) -> None:
    """The least important of 501 leaves, which may be the new one; its id is told, also after an undo."""
    async with make_session(store, promotion=NEVER) as session:
        kept = [session.propose(f"This is {at}.", importance=0.5 + at / 2_000) for at in range(500)]
        assert [*session.notices] == []
        less = session.propose("Hardly.", importance=0.1)
        more = session.propose("Much.", importance=0.9)
        assert [less.id in session.notices[0], kept[0].id in session.notices[1]] == [True, True]
        assert {one.id for one in session.short_term.pending.list_implicit()} == {
            *(one.id for one in kept[1:]),
            more.id,
        }


async def test_a_value_that_leaves_without_a_type_is_a_notice(store: Any) -> None:
    """With a type it waits for promotion, without one it is gone: its key is told."""
    budget = TokenBudget(total=2_000, conversation=1_000, context=60)
    async with make_session(store, token_budget=budget, count_tokens=words) as session:
        session.context.put("mood", "fine")
        session.context.put("framework", "Phoenix", source="tool")
        session.context.put("notes", "word " * 56, confidence=1.0)
        assert [one.content for one in session.short_term.pending.list_implicit()] == ["framework: Phoenix"]
        (notice,) = session.notices
        assert "'mood'" in notice


# Messages that left the buffer


async def test_messages_that_leave_never_crowd_out_proposals(store: Any) -> None:
    """However much is said, all that was proposed still waits, and only statements gave way to it."""
    async with make_session(store, token_budget=TINY, count_tokens=words, promotion=NEVER) as session:
        proposed = [session.propose(f"This is {at}.", importance=0.01) for at in range(490)]
        for at in range(30):
            await session.add_message("user", f"We decided on plan {at}. " + "word " * 20)
        proposed += [session.propose(f"That is {at}.", importance=0.01) for at in range(10)]
        waiting = session.short_term.pending.list_implicit()
        assert {one.id for one in proposed} == {one.id for one in waiting}
        assert not any(one.id in notice for one in proposed for notice in session.notices)


async def test_what_a_message_that_left_states_is_promoted_with_its_evidence(store: Any) -> None:
    """On demand, as a statement that quotes the message; small talk does not wait at all."""
    async with make_session(store, token_budget=TINY, count_tokens=words) as session:
        await session.add_message("user", "Good morning. We decided to use Postgres because of its JSON.")
        for _ in range(3):
            await session.add_message("user", "It is raining, " + "and raining " * 10)
        (waiting,) = session.short_term.pending.list_implicit()
        assert (waiting.memory_type, waiting.rationale, waiting.source_type) == (
            "decision",
            "its JSON",
            "user",
        )
        await session.pause()
        assert await live(store) == []
        await session.promote()
        (entry,) = await store.list_entries(Scope())
        quote = "We decided to use Postgres because of its JSON."
        assert entry.evidence == (Evidence(kind="message", ref=f"{session.thread.id}:0", quote=quote),)


async def test_messages_that_an_older_version_queued_are_gone(store: Any) -> None:
    """They waited below every threshold and took the room of proposals; the transcript has them."""
    session = await start_session(store)
    await session.add_message("user", "Hello.")
    old = {
        "agent_id": "ada",
        "content": "Hello.",
        "message": {"thread": "t1", "seq": 3, "role": "user"},
        "source": "user",
    }
    id = "mem_" + sha256(b"t1\x003\x00message").hexdigest()[:32]
    session._memory.propose(PendingItem(entry=Entry.new(old, id=id)))
    other = session.propose("Mine.", importance=0.1)
    await session.pause()
    read = await reopen(session)
    assert [one.id for one in read.short_term.pending.list_implicit()] == [other.id]


def test_statements_of_evicted_messages_give_way() -> None:
    """At the cap they leave before anything else, whatever they score; then the least important one."""
    pending = PendingMemories(max_items=3)
    said = item("said", 0.9).replace(from_eviction=True)
    for one in (item("a", 0.2), said, item("b", 0.3)):
        pending, _ = pending.add_implicit(one)
    pending, evicted = pending.add_implicit(item("c", 0.1))
    assert [one.id for one in evicted] == ["said"]
    pending, evicted = pending.add_implicit(said)
    assert [one.id for one in evicted] == ["said"]
    _, evicted = pending.add_implicit(item("d", 0.5))
    assert [one.id for one in evicted] == ["c"]


# Evidence


async def test_a_proposal_comes_from_the_message_of_the_user(store: Any) -> None:
    """Not from the answer that followed it; without one, from what was said last."""
    async with make_session(store) as session:
        assert session.propose("Nothing was said.").evidence == ()
        await session.add_message("assistant", "Hello.")
        thread = session.thread.id
        assert [one.ref for one in session.propose("It greeted.").evidence] == [f"{thread}:0"]
        await session.chat("We use tabs.")
        assert [entry.payload["role"] for entry in session.thread.entries] == [
            "assistant",
            "user",
            "assistant",
        ]
        for made in (session.propose("Tabs."), await session.decide("Tabs it is.")):
            assert made.evidence == (Evidence(kind="message", ref=f"{thread}:1"),)


async def test_a_tool_proposes_with_the_question_of_its_turn(store: Any) -> None:
    """While the turn runs, the evidence is what it was asked."""
    made: list[PendingItem] = []

    @action(effectful=True)
    async def note(ctx: Any) -> str:
        """Note."""
        made.append(session.propose("We use tabs.", type="convention"))
        return "noted"

    spec = a_spec(memory=True, tools=[note])
    async with make_session(store, spec=spec, model=talker(tool_calls(("note", {})), "Done.")) as session:
        await session.chat("Note that we use tabs.")
        asked = next(entry for entry in session.thread.entries if entry.payload.get("role") == "user")
        assert [one.ref for one in made[0].evidence] == [f"{session.thread.id}:{asked.seq}"]


@pytest.mark.parametrize(("source", "place"), [("inferred", 1), ("explicit", 0)])
async def test_a_value_of_the_user_comes_from_the_user(store: Any, source: str, place: int) -> None:
    """What the user stated is evidenced by the user's message, what was inferred by the last one."""
    async with make_session(store) as session:
        await session.chat("We use Phoenix.")
        session.context.put("framework", "Phoenix", source=source, memory_type="fact")
        await session.promote(threshold=0.0)
        (entry,) = await store.list_entries(Scope())
        assert [one.ref for one in entry.evidence] == [f"{session.thread.id}:{place}"]


@pytest.mark.parametrize("key", ["active_file", "active_errors"])
async def test_what_describes_the_moment_is_no_fact(store: Any, key: str) -> None:
    """A tool puts it, uses it often, and it is not promoted, unless a type is passed."""
    async with make_session(store) as session:
        for at in range(20):
            session.context.put(key, f"file{at}.py", source="tool", confidence=1.0)
        await session.pause()
    assert await live(store) == []
    async with make_session(store) as session:
        session.context.put(key, "main.py", source="tool", confidence=1.0, memory_type="fact")
    assert await live(store) == [f"{key}: main.py"]


if __name__ == "__main__":
    anyio.run(decide_until_killed, sys.argv[1])
