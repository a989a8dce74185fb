"""Tests of promotion in sessions: triggers, repetition and signals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio.lowlevel
import pytest
from tests.support.custom_stores import ListStore
from tests.support.promotion import FailingStore
from tests.support.sessions import WatchedStore, a_spec, reopen, talker

from omoide import Entry, Evidence, Scope, Signal, clock
from omoide.errors import Invalid, NotFound, StoreFailed
from omoide.longterm import review
from omoide.promotion import PromotionPolicy, extract
from omoide.sessions import Session
from omoide.shortterm import TokenBudget
from omoide.testing import FrozenClock, eventually

START = 1_800_000_000_000


def words(text: str) -> int:
    """A counter that counts words."""
    return len(text.split())


def make_session(store: Any, id: str = "s1", **options: Any) -> Session:
    """A session to be entered."""
    spec = options.pop("spec", a_spec(memory=True))
    return Session.open(spec, id, **{"store": store, "model": talker(), **options})


def learn(session: Session, value: Any = "Phoenix", key: str = "framework", **about: Any) -> None:
    """Put a value that is good enough to be promoted."""
    session.context.put(key, value, **{"source": "tool", "confidence": 0.9, "memory_type": "fact", **about})


async def all_entries(store: Any, **scope: Any) -> list[Entry]:
    """All that is remembered."""
    found: list[Entry] = await store.list_entries(Scope(**scope))
    return found


async def live(store: Any, **scope: Any) -> list[str]:
    """What counts now, in words."""
    return sorted(one.content for one in await all_entries(store, **scope) if one.is_live(clock.now()))


# On demand


async def test_a_dry_run_writes_nothing(store: Any) -> None:
    """It says what would be promoted and why; the store and the session are as before."""
    async with make_session(store) as session:
        learn(session)
        session.context.put("mood", "fine")
        session.propose("We use tabs.", type="convention", decided=True)
        await session.pause()
        learn(session, "Rails")

        async def seen() -> list[Any]:
            found = [await store.stats(Scope()), await store.changes("default"), await reopen(session)]
            return [*found[:2], found[2].promotions, session.short_term, session.promotion_stats]

        before = await seen()
        done = await session.promote(dry_run=True)
        assert await seen() == before
        assert (done.dry_run, done.run, done.signals) == (True, None, ())
        assert sorted((one.key, one.verdict) for one in done.plan.candidates) == [
            ("framework", "promote"),
            ("mood", "untyped"),
        ]
        real = await session.promote()
        assert [one.id for one in real.plan.to_promote] == [one.id for one in done.plan.to_promote]


async def test_an_unchanged_value_is_promoted_once(store: Any) -> None:
    """Over many runs, and over the session's end, there is one memory, and its revision is the first."""
    for _ in range(3):
        async with make_session(store) as session:
            learn(session)
            for _ in range(3):
                await session.promote()
                session.context.get("framework")
            assert session.promotion_stats.total_promoted == 1
    (one,) = await all_entries(store)
    assert (one.content, one.rev) == ("framework: Phoenix", 1)


async def test_a_changed_value_replaces_the_one_before(store: Any) -> None:
    """One memory is live after each change, and a value that comes back is a new one."""
    async with make_session(store) as session:
        for at, value in enumerate(["A", "B", "A", "C"]):
            learn(session, value)
            await session.promote()
            assert await live(store) == [f"framework: {value}"]
            assert len(await all_entries(store)) == at + 1


async def test_a_deleted_value_leaves_its_memory(store: Any) -> None:
    """What was promoted stays; put again, the same value is the same memory, and another replaces it."""
    async with make_session(store) as session:
        learn(session, "A")
        await session.promote()
        session.context.delete("framework")
        await session.promote()
        assert await live(store) == ["framework: A"]
        learn(session, "A")
        await session.promote()
        assert len(await all_entries(store)) == 1
        session.context.delete("framework")
        learn(session, "B")
        await session.promote()
        assert await live(store) == ["framework: B"]


async def test_a_value_that_had_to_leave_is_replaced_like_any_other(store: Any) -> None:
    """Promoted after it left the working context, it still gives way to the next value of its key."""
    budget = TokenBudget(total=2_000, conversation=1_000, context=60)
    async with make_session(store, token_budget=budget, count_tokens=words) as session:
        learn(session, "A")
        session.context.put("notes", "word " * 55, confidence=1.0)
        assert session.short_term.pending.size == 1
        await session.promote()
        session.context.delete("notes")
        learn(session, "B")
        await session.promote()
        assert await live(store) == ["framework: B"]


async def test_a_change_that_had_to_leave_replaces_the_value_before(store: Any) -> None:
    """A key was promoted, changed and pushed out: one memory of it is live."""
    budget = TokenBudget(total=2_000, conversation=1_000, context=60)
    async with make_session(store, token_budget=budget, count_tokens=words) as session:
        learn(session, "A")
        await session.promote()
        learn(session, "B")
        session.context.put("notes", "word " * 55, confidence=1.0)
        assert session.short_term.pending.size == 1
        await session.promote()
        assert await live(store) == ["framework: B"]


async def test_what_is_promoted_waits_no_more_and_the_rest_does(store: Any) -> None:
    """Only what was kept is cleared, of what was noticed and of what was decided alike."""
    async with make_session(store) as session:
        kinds = {
            name: session.propose(f"This is {name}.", importance=score) for name, score in _SCORES.items()
        }
        decided = [session.propose(f"Decided {at}.", decided=True) for at in range(2)]
        real, session._options["store"] = store, FailingStore(store, "This is b.", "Decided 1.")
        done = await session.promote()
        waiting = session.short_term.pending
        assert [one.id for one in waiting.list_implicit()] == [kinds["b"].id, kinds["low"].id]
        assert [one.id for one in waiting.list_agent_decisions()] == [decided[1].id]
        assert done.run is not None
        assert {one.id for one in done.run.failed} == {kinds["b"].id, decided[1].id}
        assert sum("disk is full" in one for one in session.notices) == 2
        session._options["store"] = real
        again_done = await session.promote()
        assert again_done.run is not None
        assert {one.id for one in again_done.run.promoted} == {kinds["b"].id, decided[1].id}
        assert [one.id for one in session.short_term.pending.list_implicit()] == [kinds["low"].id]


_GIVEN = {"chat": ["Hello."], "add_message": ["user", "Hi."]}
_SCORES = {"a": 0.9, "b": 0.8, "low": 0.1}


async def test_what_is_beyond_the_cap_comes_with_the_next_run(store: Any) -> None:
    """Nothing is lost: each run takes the best that are left, and all decisions."""
    policy = PromotionPolicy(max_items=2)
    async with make_session(store, promotion=policy) as session:
        for at in range(5):
            session.propose(f"This is {at}.", importance=0.9 - at / 100)
        for at in range(30):
            session.propose(f"Decided {at}.", decided=True)
        sizes = []
        for _ in range(4):
            done = await session.promote()
            assert done.run is not None
            sizes.append(len(done.run.promoted))
        assert sizes == [32, 2, 1, 0]
        assert len(await live(store)) == 35


async def test_a_threshold_for_one_run(store: Any) -> None:
    """What is not good enough otherwise is promoted with a lower one, and not with a higher one."""
    async with make_session(store) as session:
        session.propose("So so.", importance=0.5)
        for threshold, count in ((0.9, 0), (0.6, 0), (0.5, 1)):
            done = await session.promote(threshold=threshold)
            assert done.run is not None
            assert len(done.run.promoted) == count


@pytest.mark.parametrize("threshold", [-0.1, 1.1, float("nan"), "0.6", True])
async def test_a_threshold_that_is_none_is_refused(store: Any, threshold: Any) -> None:
    """In a dry run as in a real one, and nothing is promoted."""
    async with make_session(store) as session:
        session.propose("So so.", importance=0.9)
        for dry_run in (True, False):
            with pytest.raises(Invalid, match="threshold"):
                await session.promote(threshold=threshold, dry_run=dry_run)
        assert await all_entries(store) == []


async def test_without_memory_there_is_nothing_to_promote_to(store: Any) -> None:
    """Where an agent's memory is off, promotion is refused, and a pause only saves."""
    async with make_session(store, spec=a_spec(memory=None)) as session:
        learn(session)
        with pytest.raises(Invalid, match="memory"):
            await session.promote()
        assert await session.pause() is None
        assert (await reopen(session)).context.to_dict() == {"framework": "Phoenix"}
    assert await all_entries(store) == []


@pytest.mark.parametrize("scope", ["agent", "session", "project"])
async def test_a_memory_says_in_which_session_it_was_made(store: Any, scope: str) -> None:
    """Whatever the policy's scope, a promoted memory names its agent, session, project and namespace."""
    spec = a_spec(memory={"scope": scope, "namespace": "inc"})
    async with make_session(store, spec=spec, project_id="shop") as session:
        learn(session)
        session.propose("We use tabs.", decided=True)
        await session.promote()
    found = await all_entries(store, namespace="inc")
    assert len(found) == 2
    assert {(one.agent_id, one.session_id, one.project_id) for one in found} == {("ada", "s1", "shop")}


# By itself


async def test_what_is_due_is_promoted_in_the_background(store: Any) -> None:
    """Every so often, without anybody asking."""
    async with make_session(store, promotion=PromotionPolicy(every_ms=1)) as session:
        learn(session)
        assert await eventually(lambda: live(store)) == ["framework: Phoenix"]
        await eventually(lambda: session.promotions)
        assert [one.trigger for one in session.promotions] == ["interval"]
        learn(session, "Rails")
        await eventually(lambda: _is(store, ["framework: Rails"]))


async def test_the_background_gets_everything_in_the_end(store: Any) -> None:
    """What is beyond the cap of one run comes with the next ones, although nothing else happens."""
    async with make_session(store, promotion=PromotionPolicy(every_ms=1, max_items=2)) as session:
        for at in range(7):
            session.propose(f"This is {at}.", importance=0.9)
        await eventually(lambda: _is(store, [f"This is {at}." for at in range(7)]), timeout=3)


async def test_the_background_tries_again_what_failed(store: Any) -> None:
    """A store that works again gets what it could not keep before."""
    ill = FailingStore(store, "This is it.")
    async with make_session(store, memory_store=ill, promotion=PromotionPolicy(every_ms=1)) as session:
        session.propose("This is it.", importance=0.9)
        await eventually(lambda: session.notices)
        ill.contents = set()
        await eventually(lambda: _is(store, ["This is it."]), timeout=3)


async def test_a_store_that_breaks_in_the_background_is_told(store: Any) -> None:
    """The program goes on, and hears of it."""
    ill = FailingStore(store)
    async with make_session(ill, promotion=PromotionPolicy(every_ms=1)) as session:
        ill.calls = {"save notes"}
        learn(session)
        await eventually(lambda: any("promotion failed" in one for one in session.notices))
        ill.calls = set()
    (one,) = await all_entries(store)
    assert (one.content, one.rev) == ("framework: Phoenix", 1)


@pytest.mark.parametrize("call", ["chat", "promote", "pause", "add_message", "undo_promotion"])
async def test_a_call_waits_for_the_promotion_in_the_background(store: Any, call: str) -> None:
    """Nobody hears that the session is busy because it promotes by itself just then."""
    begun, go_on = anyio.Event(), anyio.Event()

    async def hold(name: str, args: Any) -> None:
        if name == "write" and session.context.peek("framework") == "Phoenix":
            begun.set()
            await go_on.wait()

    with anyio.fail_after(20):
        async with make_session(WatchedStore(store, hold), promotion=PromotionPolicy(every_ms=1)) as session:
            learn(session, "Rails")
            await eventually(lambda: session.promotions)
            learn(session)
            async with anyio.create_task_group() as group:
                await begun.wait()
                group.start_soon(_after, go_on)
                try:
                    await getattr(session, call)(*_GIVEN.get(call, []))
                finally:
                    go_on.set()


async def test_a_foreign_error_in_the_background_does_not_end_the_block(store: Any) -> None:
    """Whatever a store raises, the session's own work is not cancelled, and the error is told."""
    met = False

    async def broken(name: str, args: Any) -> None:
        nonlocal met
        if name == "write" and not met:
            met = True
            raise RuntimeError("a driver's own error")

    watched = WatchedStore(store, broken)
    async with make_session(watched, promotion=PromotionPolicy(every_ms=1)) as session:
        learn(session)
        await eventually(lambda: met)
        assert await eventually(lambda: session.notices)
        assert await session.chat("Hello.") == "You said Hello."


async def test_nothing_is_promoted_by_itself_when_that_is_off(store: Any) -> None:
    """Neither by time, nor at the end of a turn, nor when the session ends; on demand it is."""
    with clock.override(FrozenClock(START)) as time:
        async with make_session(store, promotion=PromotionPolicy(enabled=False, every_ms=1)) as session:
            learn(session)
            session.propose("We use tabs.", decided=True)
            time.advance(60_000)
            await session.run("Hello.")
            assert session.promotion_stats.enabled is False
        assert await all_entries(store) == []
        async with make_session(store, promotion=PromotionPolicy(enabled=False)) as session:
            await session.promote()
    assert await live(store) == ["We use tabs.", "framework: Phoenix"]


def _decide(session: Session) -> None:
    session.propose("We use tabs.", decided=True)


def _crowd(session: Session) -> None:
    for at in range(450):
        session.propose(f"Hardly {at}.", importance=0.1)


def _rest(session: Session) -> None:
    pass


def _fill(session: Session) -> None:
    session.context.put("notes", "word " * 50)


@pytest.mark.parametrize(
    ("prepare", "trigger"),
    [(_decide, "turn"), (_crowd, "capacity"), (_fill, "capacity"), (_rest, None)],
    ids=["decided", "many waiting", "much noted", "nothing"],
)
async def test_at_the_end_of_a_turn_what_is_due_is_promoted(
    store: Any, prepare: Callable[[Session], None], trigger: str | None
) -> None:
    """Where the agent decided something, or room gets short; else all of it can wait."""
    budget = TokenBudget(total=2_000, conversation=1_000, context=60)
    async with make_session(store, token_budget=budget, count_tokens=words) as session:
        learn(session)
        prepare(session)
        await session.run("Hello.")
        assert [run.trigger for run in session.promotions] == ([] if trigger is None else [trigger])
        found = [] if trigger is None else ["framework: Phoenix"]
        assert await live(store) == (["We use tabs."] if trigger == "turn" else []) + found


async def test_after_a_while_the_end_of_a_turn_promotes(store: Any) -> None:
    """Where the time is over, it is not waited for the next moment of rest."""
    with clock.override(FrozenClock(START)) as time:
        async with make_session(store) as session:
            learn(session)
            await session.run("Hello.")
            assert session.promotion_stats.runs == 0
            time.advance(30_000)
            await session.run("Hello again.")
            assert [one.trigger for one in session.promotions] == ["interval"]


async def test_a_pause_promotes(store: Any) -> None:
    """With the usual threshold, and the session can go on."""
    async with make_session(store) as session:
        learn(session)
        session.propose("So so.", importance=0.5)
        done = await session.pause()
        assert done is not None
        assert done.plan.trigger == "pause"
        assert await live(store) == ["framework: Phoenix"]
        assert await session.chat("Hello.") == "You said Hello."


async def test_the_end_promotes_what_is_half_good(store: Any) -> None:
    """What has an importance from 0.4 on is kept when the session ends; less is not, and stays pending."""
    async with make_session(store) as session:
        session.propose("So so.", importance=0.4)
        session.propose("Hardly.", importance=0.39)
        session.context.put("current_task", "Write tests.")
        await session.promote()
        assert await all_entries(store) == []
    assert await live(store) == ["So so.", "current_task: Write tests."]
    later = await reopen(session)
    assert [one.content for one in later.short_term.pending.list_implicit()] == ["Hardly."]
    assert later.promotions[-1].trigger == "close"


async def test_the_policy_can_be_changed(store: Any) -> None:
    """As a whole or in parts; what makes no sense is refused, and the old one stays."""
    async with make_session(store) as session:
        session.propose("So so.", importance=0.5)
        session.set_promotion(threshold=0.5, every_ms=7)
        assert (session.promotion_stats.every_ms, session.promotion_stats.enabled) == (7, True)
        assert len((await session.promote(dry_run=True)).plan.to_promote) == 1
        wrong: list[dict[str, Any]] = [{"every_ms": 0}, {"threshold": 2}, {"nonsense": 1}]
        for changes in wrong:
            with pytest.raises(Invalid, match=next(iter(changes))):
                session.set_promotion(**changes)
        assert session.promotion_stats.every_ms == 7
        session.set_promotion(PromotionPolicy(enabled=False))
        assert (session.promotion_stats.enabled, session.promotion_stats.every_ms) == (False, 30_000)


async def test_statistics_tell_how_it_goes(store: Any) -> None:
    """Runs, memories made, when it was last, and what waits; also after the session was left."""
    with clock.override(FrozenClock(START)) as time:
        async with make_session(store, promotion=PromotionPolicy(every_ms=600_000)) as session:
            stats = session.promotion_stats
            assert (stats.enabled, stats.every_ms, stats.last_run) == (True, 600_000, None)
            assert (stats.total_promoted, stats.runs, stats.waiting) == (0, 0, 0)
            learn(session)
            session.propose("Hardly.", importance=0.1)
            session.propose("We use tabs.", decided=True)
            assert session.promotion_stats.waiting == 2
            time.advance(5)
            await session.promote()
            await session.promote()
            stats = session.promotion_stats
            assert (stats.total_promoted, stats.runs, stats.waiting, stats.last_run) == (2, 2, 1, START + 5)
        later = (await reopen(session)).promotion_stats
        assert (later.total_promoted, later.waiting) == (2, 1)


# Taken back


async def test_an_undone_promotion_leaves_the_session_as_it_was(store: Any) -> None:
    """Memories are gone, replaced ones count again, and what waited waits again."""
    async with make_session(store) as session:
        learn(session, "A")
        await session.promote()
        learn(session, "B")
        item = session.propose("We use tabs.", importance=0.9)
        done = await session.promote()
        undone = await session.undo_promotion()
        assert done.run is not None
        assert (undone.id, undone.undone_at is None) == (done.run.id, False)
        assert await live(store) == ["framework: A"]
        assert [one.id for one in session.short_term.pending.list_implicit()] == [item.id]
        assert session.context.peek("framework") == "B"


async def test_what_was_taken_back_is_not_promoted_again_by_itself(store: Any) -> None:
    """Neither by time nor by a turn nor at the end, also after the session was opened again."""
    with clock.override(FrozenClock(START)) as time:
        async with make_session(store) as session:
            learn(session)
            session.propose("We use tabs.", importance=0.9)
            session.propose("Tea at four.", decided=True)
            await session.promote()
            await session.undo_promotion()
            assert await live(store) == []
            time.advance(60_000)
            await session.run("Hello.")
            await session.pause()
        assert await live(store) == []
        async with make_session(store) as session:
            assert [one.verdict for one in (await session.promote(dry_run=True)).plan.candidates] == [
                "held"
            ] * 3
        assert await live(store) == []


async def test_after_an_undo_a_new_value_is_promoted(store: Any) -> None:
    """Only what was taken back is held; another value replaces what counts now."""
    async with make_session(store) as session:
        for value in ("A", "B"):
            learn(session, value)
            await session.promote()
        await session.undo_promotion()
        learn(session, "C")
        await session.promote()
        assert await live(store) == ["framework: C"]


async def test_each_run_can_be_taken_back_once(store: Any) -> None:
    """The last one by default, or one by its id; a second time it is not found."""
    async with make_session(store) as session:
        runs = []
        for at in range(3):
            session.propose(f"This is {at}.", importance=0.9)
            done = await session.promote()
            assert done.run is not None
            runs.append(done.run.id)
        await session.undo_promotion(runs[0])
        assert await live(store) == ["This is 1.", "This is 2."]
        with pytest.raises(NotFound, match=runs[0]):
            await session.undo_promotion(runs[0])
        assert (await session.undo_promotion()).id == runs[2]
        assert (await session.undo_promotion()).id == runs[1]
        with pytest.raises(NotFound):
            await session.undo_promotion()
        with pytest.raises(NotFound, match="nonsense"):
            await session.undo_promotion("nonsense")
        assert await live(store) == []


async def test_a_later_program_can_take_it_back(store: Any) -> None:
    """Runs are kept with the session."""
    async with make_session(store) as session:
        learn(session)
        await session.promote()
    async with make_session(store) as session:
        await session.undo_promotion()
        assert await live(store) == []


async def test_a_failed_undo_loses_nothing(store: Any) -> None:
    """Where the store fails halfway, a second try brings everything back that waited."""
    ill = FailingStore(store)
    async with make_session(ill) as session:
        items = [session.propose(f"This is {at}.", importance=0.9 - at / 100) for at in range(2)]
        await session.promote()
        ill.calls = {f"supersede {items[0].id}"}
        with pytest.raises(StoreFailed):
            await session.undo_promotion()
        ill.calls = set()
        await session.undo_promotion()
        assert await live(store) == []
        assert {one.id for one in session.short_term.pending.list_implicit()} == {one.id for one in items}


# Told


async def test_listeners_hear_what_was_done(store: Any) -> None:
    """After it is kept: what a listener is told can be read, and the session's notes are saved."""
    heard: list[tuple[str, Any]] = []

    async def listen(signal: Signal) -> None:
        read = await reopen(session)
        heard.append((signal.type, (await live(store), read.promotion_stats.runs)))

    async with make_session(store, on_signal=listen) as session:
        learn(session, "A")
        await session.promote()
        learn(session, "B")
        await session.promote()
        await session.undo_promotion()
    assert heard == [
        ("memory.stored", (["framework: A"], 1)),
        ("memory.promoted", (["framework: A"], 1)),
        ("memory.stored", (["framework: B"], 2)),
        ("memory.superseded", (["framework: B"], 2)),
        ("memory.promoted", (["framework: B"], 2)),
        ("memory.superseded", (["framework: A"], 2)),
    ]


async def test_a_listener_that_fails_is_told_and_stops_nothing(store: Any) -> None:
    """The other signals are passed on, and the promotion is done."""
    heard: list[str] = []

    def listen(signal: Signal) -> None:
        heard.append(signal.type)
        raise ValueError("I am tired")

    async with make_session(store, on_signal=listen) as session:
        learn(session)
        done = await session.promote()
        assert heard == ["memory.stored", "memory.promoted"]
        assert [one.type for one in done.signals] == heard
        assert sum("ValueError: I am tired" in one for one in session.notices) == 1
    assert await live(store) == ["framework: Phoenix"]


async def test_a_listener_may_use_the_session(store: Any) -> None:
    """It can note something and remember something."""

    async def listen(signal: Signal) -> None:
        if signal.type == "memory.promoted":
            session.context.put("last_run", signal.data["run"])
            await session.remember("Somebody listened.")

    async with make_session(store, on_signal=listen) as session:
        learn(session)
        done = await session.promote()
        assert done.run is not None
        assert session.context.peek("last_run") == done.run.id
        assert session.notices == ()
    assert await live(store) == ["Somebody listened.", "framework: Phoenix"]


# Strict


async def test_what_is_refused_stays_and_can_be_mended(store: Any) -> None:
    """An incomplete memory and one that contradicts another wait, and the reason is told."""
    strict = PromotionPolicy(strict=True)
    async with make_session(store, "s0", project_id="shop") as session:
        learn(session, "Rails")
    async with make_session(store, project_id="shop", promotion=strict) as session:
        item = session.propose("Use Phoenix.", type="decision", decided=True)
        learn(session)
        done = await session.promote()
        assert done.run is not None
        assert sorted(one.kind for one in done.run.failed) == ["Contradiction", "Incomplete"]
        assert [one.id for one in session.short_term.pending.list_agent_decisions()] == [item.id]
        assert session.context.peek("framework") == "Phoenix"
        assert sum("waits" in one for one in session.notices) == 2
        session.propose("Use Phoenix.", id=item.id, type="decision", decided=True, rationale="It is fast.")
        learn(session, "Rails")
        done = await session.promote()
        assert done.run is not None
        assert (len(done.run.promoted), done.run.failed) == (2, ())


async def test_contradictions_between_sessions_are_there_for_review(store: Any) -> None:
    """Two sessions of a project that disagree: both memories are kept, and listed."""
    for id, value in (("s1", "Phoenix"), ("s2", "Rails")):
        async with make_session(store, id, project_id="shop") as session:
            learn(session, value)
    report = await review(store, Scope(project_id="shop"))
    assert [{one.one.content, one.other.content} for one in report.conflicts] == [
        {"framework: Phoenix", "framework: Rails"}
    ]


# Noticed in what was said


async def test_memories_are_noticed_in_what_is_said(store: Any) -> None:
    """With an extractor, a message can lead to a memory, once, which points to it."""
    async with make_session(store, extractor=extract) as session:
        await session.add_message("user", "We decided to use Phoenix because it is fast.")
        await session.add_message("user", "Nice weather.")
        (item,) = session.short_term.pending.list_implicit()
        assert (item.memory_type, item.rationale) == ("decision", "it is fast")
        assert item.evidence[0].ref == f"{session.thread.id}:0"
        await session.promote()
    async with make_session(store, extractor=extract) as session:
        assert session.short_term.pending.size == 0
        await session.add_message("user", "More weather.")
        assert session.short_term.pending.size == 0
    (one,) = await all_entries(store)
    assert one.evidence[0] == Evidence(kind="message", ref=item.evidence[0].ref, quote=one.content)


async def test_nothing_is_noticed_unless_somebody_wants_it(store: Any) -> None:
    """Without an extractor messages are only messages."""
    async with make_session(store) as session:
        await session.add_message("user", "We decided to use Phoenix because it is fast.")
        assert session.short_term.pending.size == 0


async def _after(event: anyio.Event) -> None:
    for _ in range(50):
        await anyio.lowlevel.checkpoint()
    event.set()


async def _is(store: Any, contents: list[str]) -> bool:
    await anyio.lowlevel.checkpoint()
    return await live(store) == sorted(contents)


async def test_a_session_reports_a_former_value_that_still_counts(store: Any) -> None:
    """A changed value in a store of three methods is a notice of the session, too."""
    async with make_session(store, memory_store=ListStore()) as session:
        learn(session, "Phoenix 1.6")
        await session.promote()
        learn(session, "Phoenix 1.7")
        await session.promote()
        found = await session.assemble_context()
    assert [notice for notice in found.notices if "still counts" in notice]
