"""Tests of sessions that combine approvals, crashes, forks, plugins, stores and streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from tests.support.sessions import (
    PAY,
    Till,
    WatchedStore,
    a_spec,
    captured_entries,
    conversation_of,
    echo_conversation,
    lines,
    reopen,
    talker,
)
from tests.support.turns import Spy, tool_calls

from omoide import Plugin, action
from omoide.core import Externalize
from omoide.errors import (
    Conflict,
    Invalid,
    InvalidDefinition,
    NotFound,
    OverBudget,
    RestoreFailed,
    ReviewNeeded,
    SessionBusy,
    StoreFailed,
)
from omoide.sessions import Session
from omoide.testing import eventually
from omoide.turns import Control, Interrupt, Reply, Rewrite, runner

BUMP = tool_calls(("bump", {}))


class PowerCut(BaseException):
    """The end of a process, as far as a turn can tell."""


@action
def bump(ctx: Any) -> Any:
    """Count."""
    return {"n": ctx.state.get("n", 0) + 1}


async def start_session(store: Any, *replies: Any, **options: Any) -> Session:
    """A new session whose model gives these replies."""
    spec = options.pop("spec", a_spec())
    return await Session.start(spec, "s1", store=store, model=talker(*replies), **options)


def state_of(agent: Any) -> dict[str, Any]:
    """The state of an agent, without what the library keeps there."""
    return {key: value for key, value in agent.state.items() if not key.startswith("__")}


def fail_at(*names: str) -> Any:
    """What a watched store does before its operations: it fails at these, from when it is told to."""

    async def before(name: str, args: Any) -> None:
        if before.broken and name in names:  # type: ignore[attr-defined]
            raise StoreFailed("store", "is away", "try again")

    before.broken = False  # type: ignore[attr-defined]
    return before


# What was approved is what runs


class Rising(Control):
    """Makes another sum of every call, each time it looks."""

    def __init__(self) -> None:
        self.looks = 0

    def at_tool(self, call: Any, ctx: Any) -> Any:
        self.looks += 1
        return Rewrite({"sum": self.looks})


class Depot:
    """Two tools that must not happen twice; the power fails in the first."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.dark = True

        @action(effectful=True)
        async def pay(ctx: Any, sum: int) -> str:
            """Pay."""
            self.log.append(f"pay {sum}")
            if self.dark:
                raise PowerCut
            return "paid"

        @action(effectful=True)
        async def ship(ctx: Any, sum: int) -> str:
            """Ship."""
            self.log.append(f"ship {sum}")
            return "shipped"

        self.spec = a_spec(tools=[pay, ship], approve=["pay", "ship"], limits={"parallel": 1})

    async def cut(self, store: Any, *controls: Control) -> tuple[Session, dict[str, int]]:
        """A session whose power failed after both were approved, and what had been shown."""
        both = tool_calls(("pay", {"sum": 70}), ("ship", {"sum": 80}))
        session = await start_session(store, both, spec=self.spec, controls=controls)
        first = await session.run("go")
        for review in first.reviews:
            await session.approve(review.id)
        with pytest.raises(PowerCut):
            await session.resume()
        self.dark = False
        seen = {one.call.name: one.call.params["sum"] for one in first.reviews if one.call}
        return await reopen(session, model=talker("Done."), controls=controls), seen


@pytest.mark.parametrize("controls", [(), (Rising,)], ids=["plain", "rewritten"])
async def test_what_was_approved_before_a_crash_runs_as_it_was_shown(store: Any, controls: Any) -> None:
    """After the one that was cut off is settled, the other runs once, with what the person saw, unasked."""
    depot = Depot()
    session, seen = await depot.cut(store, *(kind() for kind in controls))
    waits = await session.resume()
    assert [(one.call and one.call.name, one.unknown) for one in waits.reviews] == [("pay", True)]
    assert [one.id for one in session.pending_reviews] == [one.id for one in waits.reviews]
    await session.settle(waits.reviews[0].id, "was paid")
    done = await session.resume()
    assert (done.status, done.content, session.status) == ("finished", "Done.", "finished")
    assert depot.log == [f"pay {seen['pay']}", f"ship {seen['ship']}"]


async def test_a_session_that_waits_always_says_for_what(store: Any) -> None:
    """Another process that looks at it finds the open question, and cannot go on without its answer."""
    session, _ = await Depot().cut(store)
    assert (await session.resume()).status == "waiting"
    other = await reopen(session, model=talker("Done."))
    assert (other.status, [one.unknown for one in other.pending_reviews]) == ("waiting", [True])
    with pytest.raises(ReviewNeeded):
        await other.resume()


async def test_what_was_denied_before_a_crash_stays_denied(store: Any) -> None:
    """A no outlives the crash of its neighbour, and is not asked again."""
    depot = Depot()
    session = await start_session(
        store, tool_calls(("pay", {"sum": 1}), ("ship", {"sum": 2})), spec=depot.spec
    )
    pay, ship = (await session.run("go")).reviews
    await session.approve(pay.id)
    await session.deny(ship.id, "not today")
    with pytest.raises(PowerCut):
        await session.resume()
    depot.dark = False
    later = await reopen(session, model=talker("Done."))
    for review in (await later.resume()).reviews:
        await later.settle(review.id, "was paid")
    assert (await later.resume()).status == "finished"
    assert depot.log == ["pay 1"]
    assert "error ship: This was refused: not today" in lines(later.thread.entries)


# What was settled did not run


async def test_a_settled_action_is_not_computed_after_another_pause(store: Any) -> None:
    """What a person answered in place of a pure tool changes no state, however often the turn pauses."""
    till = Till()
    spec = a_spec(tools=[bump, till.pay], approve=["bump", "pay"])
    session = await start_session(
        store, BUMP, PAY | {"operations": [{**PAY["operations"][0], "id": "p"}]}, "Done.", spec=spec
    )
    await session.settle((await session.run("go")).reviews[0].id, "not done")
    await session.approve((await session.resume()).reviews[0].id)
    assert (await session.resume()).content == "Done."
    assert (state_of(session.agent), till.log) == ({}, ["pay 5"])


@pytest.mark.parametrize("verdict", ["settle", "approve"])
async def test_a_session_its_forks_and_its_replays_agree_on_the_state(store: Any, verdict: str) -> None:
    """A pure tool that was settled counts nowhere, one that was approved everywhere."""
    spec = a_spec(tools=[bump], approve=["bump"])
    session = await start_session(store, BUMP, "One.", "Two.", spec=spec)
    review = (await session.run("one", request_id="r1")).reviews[0].id
    await (session.settle(review, "not done") if verdict == "settle" else session.approve(review))
    await session.resume()
    await session.run("two")
    agents = [
        session.agent,
        (await session.fork(after="r1")).agent,
        (await session.fork()).agent,
        (await session.replay("r1")).agent,
        (await reopen(session)).agent,
    ]
    assert [state_of(agent) for agent in agents] == [{} if verdict == "settle" else {"n": 1}] * 5


# What is off the record


async def test_a_turn_without_a_store_is_never_captured(store: Any) -> None:
    """Neither with the turn nor with the next one; it is still part of the conversation."""
    session = await start_session(store)
    silent = await session.run("I am ill", memory_store=None)
    assert (silent.memory, silent.recalled, session.record.captures) == (None, None, ())
    model = talker()
    await session.run("hello", model=model)
    assert [one.content for one in await captured_entries(store)] == [
        "User: hello\nAssistant: You said hello"
    ]
    assert conversation_of(model.prompts[0]) == [*echo_conversation("I am ill"), "user: hello"]


async def test_a_capture_that_failed_elsewhere_does_not_land_in_the_sessions_store(store: Any) -> None:
    """A turn that was to be remembered in another store is remembered there or not at all."""
    other = Spy()
    other.write_fails = StoreFailed("other", "is away", "try again")
    session = await start_session(store)
    failed = await session.run("for the other", memory_store=other)
    assert (failed.memory, len(failed.notices)) == (None, 1)
    await session.run("for this one")
    assert [one.content for one in await captured_entries(store)] == [
        "User: for this one\nAssistant: You said for this one"
    ]


class Hasty(WatchedStore):
    """A store that writes an answer down for a program that stops waiting just then."""

    scope: anyio.CancelScope | None = None

    async def append(self, kind: str, id: str, entries: Any, scope: Any, **given: Any) -> int:
        rev = await super().append(kind, id, entries, scope, **given)
        if self.scope is not None and any(one["payload"].get("final") for one in entries):
            self.scope.cancel()
            await anyio.lowlevel.checkpoint()
        return rev


async def interrupt_session(store: Any, said: str, **options: Any) -> Session:
    """A session whose program stopped waiting when the answer was written and not committed."""
    hasty = Hasty(store)
    session = await start_session(hasty)
    with anyio.CancelScope() as hasty.scope:
        await session.run(said, **options)
    hasty.scope = None
    assert (session.status, session.record.turns) == ("error", 0)
    return session


async def test_an_answer_off_the_record_that_is_committed_late_is_not_captured(store: Any) -> None:
    """The next turn ends what was answered and not committed; its own store is not that of the other."""
    session = await interrupt_session(store, "I am ill", memory_store=None)
    await session.run("hello")
    assert session.record.turns == 2
    assert [one.content for one in await captured_entries(store)] == [
        "User: hello\nAssistant: You said hello"
    ]


# What a session hands on


async def test_a_fork_stays_in_the_namespace_of_its_session(store: Any) -> None:
    """What was said in a confined session is copied to where it is confined, unless another is named."""
    session = await start_session(store, namespace="private")
    await session.run("one")
    fork = await session.fork("f1")
    assert (fork.record.namespace, fork.requests) == ("private", session.requests)
    assert (await Session.load("f1", session.spec, store=store, namespace="private")).id == "f1"
    with pytest.raises(NotFound):
        await Session.load("f1", session.spec, store=store)
    assert (await session.fork("f2", namespace="other")).record.namespace == "other"


async def test_what_a_turn_says_comes_over_what_its_session_says(store: Any) -> None:
    """Context and secrets of both are there, the turn's win, and the next turn has the session's again."""
    met: list[Any] = []

    @action(effectful=True)
    async def look(ctx: Any) -> str:
        """Look."""
        met.append((dict(ctx.data), dict(ctx.secrets)))
        return "seen"

    spec = a_spec(tools=[look], memory={"namespace": ("context", "tenant")})
    own: Any = {
        "context": {"tenant": "t1", "lang": "en"},
        "secrets": {"key": "k-session", "pin": "p-session"},
    }
    session = await start_session(store, spec=spec, **own)
    model = [tool_calls(("look", {})), "Seen."]
    await session.run(
        "one", model=talker(*model), context={"lang": "ja", "order": 7}, secrets={"key": "k-turn"}
    )
    await session.run("two", model=talker(*model))
    assert met == [
        ({"tenant": "t1", "lang": "ja", "order": 7}, {"key": "k-turn", "pin": "p-session"}),
        (own["context"], own["secrets"]),
    ]


# Plugins


@action
def add(ctx: Any) -> Any:
    """Count in the box."""
    return {"box": {"n": ctx.state["box"]["n"] + 1}}


class Box(Plugin):
    """A slice of the state, and a tool that needs it."""

    name = "box"
    actions = (add,)

    def mount(self, agent: Any, config: Any) -> Any:
        return {"n": 0}


class Cache(Box):
    """The same, and no checkpoint keeps it."""

    def on_checkpoint(self, slice: Any, ctx: Any) -> Any:
        return "drop"


class Away(Box):
    """The same, kept elsewhere, where nobody can get it from."""

    def on_checkpoint(self, slice: Any, ctx: Any) -> Any:
        return Externalize(key="box", pointer="somewhere")


ADD = tool_calls(("add", {}))


async def test_a_plugin_that_is_new_to_a_session_is_mounted(store: Any) -> None:
    """Who adds one to the spec finds its slice in the sessions that were there before, and keeps it."""
    await (await start_session(store)).run("one")
    spec = a_spec(plugins=[Box()], tools=["add"])
    session = await Session.load("s1", spec, store=store, model=talker(ADD, "Added."))
    assert state_of(session.agent) == {"box": {"n": 0}}
    await session.run("two")
    assert state_of((await reopen(session)).agent) == {"box": {"n": 1}}


async def test_a_slice_that_is_dropped_is_mounted_for_each_turn(store: Any) -> None:
    """A cache starts anew with the next turn, and its tools find it."""
    session = await start_session(
        store, ADD, "One.", ADD, "Two.", spec=a_spec(plugins=[Cache()], tools=["add"])
    )
    for said in ("one", "two"):
        done = await session.run(said)
        assert state_of(done.agent) == {"box": {"n": 1}}
        assert not [line for line in lines(session.thread.entries) if line.startswith("error")]
    assert state_of(session.agent) == state_of((await session.fork()).agent) == {"box": {"n": 0}}


async def test_a_slice_that_nobody_can_bring_back_is_an_error(store: Any) -> None:
    """A pointer that no plugin resolves is told, with the name of the slice, and no turn runs without it."""
    session = await start_session(store, spec=a_spec(plugins=[Away()]))
    model = talker()
    with pytest.raises(RestoreFailed, match="'box'"):
        await session.run("one", model=model)
    assert model.requests == []


# What can never run


UNCHECKABLE = {"type": "object", "properties": {"a": {"$ref": "https://example.com/a.json"}}}


async def test_a_shape_that_cannot_be_checked_leaves_the_session_alone(store: Any) -> None:
    """It is refused before the model is asked, and nothing is kept of the turn."""
    model = talker('{"a": 1}')
    with pytest.raises(InvalidDefinition):
        await (await Session.start(a_spec(result=UNCHECKABLE), "s1", store=store, model=model)).run("one")
    kept = await Session.load("s1", a_spec(), store=store)
    assert (kept.status, kept.requests, model.requests) == ("new", [], [])


async def test_an_input_that_can_never_fit_is_not_recalled_with_or_kept(store: Any) -> None:
    """It is refused at once: nothing is asked of the store, nothing is kept, nothing is there to resume."""
    watched = WatchedStore(store)
    session = await start_session(watched)
    watched.calls.clear()
    with pytest.raises(OverBudget):
        await session.run("lamp order " * 100_000)
    assert watched.calls == []
    kept = await reopen(session)
    assert (kept.status, kept.requests, kept.record.turn, len(kept.thread.entries)) == ("new", [], None, 0)
    with pytest.raises(Invalid, match="nothing to resume"):
        await session.resume()


# Streams


class Speaker:
    """A model that answers in many pieces."""

    async def complete(self, request: Any) -> Reply:
        return Reply(content="x" * 100)

    async def stream(self, request: Any) -> AsyncIterator[str | Reply]:
        for _ in range(100):
            yield "x"
        yield await self.complete(request)


async def test_a_stream_that_nobody_reads_lets_go_of_its_session(store: Any) -> None:
    """The turn ends by itself while the reader holds on to the stream, and others can use the session."""
    session = await start_session(store)

    async def body() -> AsyncIterator[str]:
        async with session.stream("one", model=Speaker()) as answer:
            async for piece in answer.text():
                yield piece

    held: Any = body()
    with anyio.fail_after(20):
        assert await anext(held) == "x"
        other = await reopen(session, model=talker())

        async def over() -> bool:
            return (await reopen(session)).status == "finished"

        await eventually(over)
        assert await eventually(lambda: _try_chat(other, "two")) == "You said two"
        await held.aclose()
    assert (await reopen(session)).record.turns == 2


async def _try_chat(session: Session, said: str) -> str | None:
    try:
        return await session.chat(said)
    except SessionBusy:  # the lease is given back a moment after the answer is kept
        return None


async def test_a_turn_that_was_approved_can_be_streamed(store: Any) -> None:
    """A stream without input goes on with the turn that waits; its text comes in pieces, and the tool ran."""
    till = Till()
    session = await start_session(store, PAY, spec=till.spec(approve=["pay"]))
    await session.approve((await session.run("pay")).reviews[0].id)
    async with session.stream(model=Speaker()) as answer:
        pieces = [piece async for piece in answer.text()]
    assert (pieces, till.log) == (["x"] * 100, ["pay 5"])
    assert (answer.result.status, session.status, len(session.requests)) == ("finished", "finished", 1)
    assert len(await captured_entries(store)) == 1


async def test_a_stream_of_nothing_to_resume_says_so(store: Any) -> None:
    """Without input and without a turn that waits there is nothing to stream; an open question is named."""
    session = await start_session(store, PAY, spec=Till().spec(approve=["pay"]))

    async def streamed() -> None:
        async with session.stream() as answer:
            async for _ in answer:
                pass

    with pytest.raises(Invalid, match="nothing to resume"):
        await streamed()
    await session.run("pay")
    with pytest.raises(ReviewNeeded):
        await streamed()


# Controls


@pytest.mark.parametrize(
    "trouble", [SessionBusy("another"), Conflict("document", 1, 2)], ids=["busy", "conflict"]
)
async def test_a_conflict_of_somebody_else_is_an_error_of_the_turn(store: Any, trouble: Exception) -> None:
    """What a control raises about another session does not leave this one running for ever."""

    class Shares(Control):
        def at_output(self, text: str, ctx: Any) -> Any:
            raise trouble

    session = await start_session(store)
    with pytest.raises(type(trouble)):
        await session.run("one", controls=[Shares()])
    assert (session.status, (session.error or {})["kind"]) == ("error", type(trouble).__name__)
    assert (await reopen(session)).status == "error"
    assert await session.chat("two") == "You said two"


async def test_an_input_is_rewritten_once_whatever_happens_then(store: Any) -> None:
    """A turn that was cut off before its words were kept goes on with what the controls left of them."""
    before = fail_at("append thread")

    class Polite(Control):
        def at_input(self, text: str, ctx: Any) -> Any:
            return Rewrite(f"please: {text}")

    session = await start_session(WatchedStore(store, before), controls=[Polite()])
    before.broken = True
    with pytest.raises(StoreFailed):
        await session.run("one")
    before.broken = False
    later = await reopen(session, model=talker(), controls=[Polite()])
    assert (await later.resume()).content == "You said please: one"


class Masked(Control):
    """Asks before each tool, and takes a word out of each answer."""

    def at_tool(self, call: Any, ctx: Any) -> Any:
        return Interrupt("Fine?")

    def at_output(self, text: str, ctx: Any) -> Any:
        return Rewrite(text.replace("secret", "***"))


async def test_a_session_goes_on_only_under_the_controls_its_turn_began_with(store: Any) -> None:
    """Who resumes without them is told which; nothing runs, and with them the answer is masked."""
    till = Till()
    session = await start_session(store, PAY, spec=till.spec(), controls=[Masked()])
    await session.approve((await session.run("pay")).reviews[0].id)
    model = talker("the secret")
    with pytest.raises(Invalid, match="controls lack Masked"):
        await (await reopen(session, model=model)).resume()
    assert (till.log, model.requests, (await reopen(session)).status) == ([], [], "waiting")
    done = await (await reopen(session, model=model, controls=[Masked()])).resume()
    assert (done.content, till.log) == ("the ***", ["pay 5"])
    assert "secret" not in (await captured_entries(store))[0].content


# What is answered is kept


async def test_an_answer_is_kept_though_its_listener_does_not_come_back(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener that waits at the end, in a program that stops waiting, does not undo what was answered."""
    monkeypatch.setattr(runner, "FINAL_EVENT_TIMEOUT", 0.01)
    session = await start_session(store)
    with anyio.fail_after(20), anyio.CancelScope() as scope:

        async def listener(event: Any) -> None:
            if event.kind == "turn_finished":
                scope.cancel()
                await anyio.sleep_forever()

        await session.run("one", on_event=listener)
    await _follows(session, store)


async def test_an_answer_is_kept_though_its_listener_fails(store: Any) -> None:
    """It is told as a notice."""

    def listener(event: Any) -> None:
        if event.kind == "turn_finished":
            raise ValueError("the page is gone")

    session = await start_session(store)
    done = await session.run("one", on_event=listener)
    assert (done.content, session.status) == ("You said one", "finished")
    assert done.notices == ("a listener failed (ValueError: the page is gone)",)
    await _follows(session, store)


async def test_an_answer_that_was_not_committed_is_part_of_the_next_turn(store: Any) -> None:
    """Asking something else does not give up what is answered: it is committed first, and captured."""
    await _follows(await interrupt_session(store, "one"), store)


async def test_what_ends_a_turn_late_does_not_speak_for_the_new_one(store: Any) -> None:
    """Listeners of the next turn hear of one turn that started and one that finished: their own."""
    session = await interrupt_session(store, "one")
    heard: list[str] = []
    done = await session.run("two", on_event=lambda event: heard.append(event.kind))
    assert [kind for kind in heard if kind.startswith("turn_")] == ["turn_started", "turn_finished"]
    assert heard == [event.kind for event in done.events]


async def _follows(session: Session, store: Any) -> None:
    """Check that a second turn sees the first, and that both are remembered, each once."""
    model = talker()
    await session.run("two", model=model)
    assert conversation_of(model.prompts[0]) == [*echo_conversation("one"), "user: two"]
    assert (session.record.turns, session.status) == (2, "finished")
    said = sorted(one.content for one in await captured_entries(store))
    assert said == [f"User: {word}\nAssistant: You said {word}" for word in ("one", "two")]
