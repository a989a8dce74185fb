"""Tests of sessions whose stores, runners, tools or users fail."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.support.sessions import (
    LATER,
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
from tests.support.turns import tool_calls

from omoide import Agent, Scope, action, clock, erase, thread
from omoide.core import FrozenMap, thaw
from omoide.errors import (
    Blocked,
    Busy,
    Conflict,
    DiskFull,
    EmbedderFailed,
    Invalid,
    ModelFailed,
    NotFound,
    Refused,
    SessionBusy,
    StoreFailed,
)
from omoide.sessions import Session, runner, sessions
from omoide.stores import open_store
from omoide.testing import FrozenClock, eventually
from omoide.turns import Control, Refuse

DOWN = ModelFailed("model", "is down", "try again")


async def start_session(store: Any, *replies: Any, **options: Any) -> Session:
    """A new session whose model gives these replies."""
    spec = options.pop("spec", a_spec())
    return await Session.start(spec, options.pop("id", "s1"), store=store, model=talker(*replies), **options)


def fail_at(trouble: Exception | None, *names: str) -> Any:
    """What a watched store does before its operations: it fails at these, while there is trouble."""
    now = [trouble]

    async def before(name: str, args: Any) -> None:
        if now[0] is not None and name in names:
            raise now[0]

    before.trouble = now  # type: ignore[attr-defined]
    return before


# Errors


async def test_an_error_in_a_session_keeps_its_cause(store: Any) -> None:
    """What a model raised is the cause of our error, in a session and in its stream."""
    session, trouble = await start_session(store), ValueError("no network")
    with pytest.raises(ModelFailed) as failed:
        await session.chat("one", model=talker(trouble))
    assert failed.value.__cause__ is trouble

    async def listen() -> None:
        async with session.stream("two", model=talker(trouble)) as events:
            async for _ in events:
                pass

    with pytest.raises(ModelFailed) as failed:
        await listen()
    assert failed.value.__cause__ is trouble


# Stores that fail


async def test_a_tool_whose_beginning_cannot_be_kept_does_not_run(store: Any) -> None:
    """With a full disk none of several tools runs; later each of them runs once."""
    ran: list[int] = []

    @action(effectful=True)
    async def work(ctx: Any, at: int) -> str:
        """Work."""
        ran.append(at)
        return "worked"

    full = [True]

    async def before(name: str, args: Any) -> None:
        await anyio.lowlevel.checkpoint()
        if full[0] and name == "append thread" and any(one["kind"] == "tool_call" for one in args[0]):
            raise DiskFull("store", "is full", "make room")

    wish = tool_calls(*[("work", {"at": at}) for at in range(3)])
    session = await start_session(WatchedStore(store, before), wish, "Done.", spec=a_spec(tools=[work]))
    with pytest.raises(DiskFull):
        await session.run("go")
    assert ran == []
    full[0] = False
    assert (await session.resume(model=talker("Done."))).content == "Done."
    assert sorted(ran) == [0, 1, 2]


PASSING = [EmbedderFailed("embedder", "is down", "later"), Busy("store", "is held", "later"), OSError("away")]


@pytest.mark.parametrize("trouble", PASSING, ids=lambda one: type(one).__name__)
async def test_a_capture_that_fails_for_a_passing_reason_is_made_up_for(trouble: Exception) -> None:
    """Whatever may pass by itself, no turn is forgotten over it, and each result tells of it."""
    async with open_store("memory://", embedder="none") as plain:
        before = fail_at(trouble, "write")
        session = await start_session(WatchedStore(plain, before))
        for said in ("one", "two"):
            assert (await session.run(said)).notices
        before.trouble[0] = None
        assert (await session.run("three")).notices == ()
        words = [entry.content.partition("\n")[0] for entry in await captured_entries(plain)]
    assert words == ["User: one", "User: two", "User: three"]


async def test_a_capture_that_will_never_be_let_in_is_given_up_and_told() -> None:
    """What a guard refuses twice is not tried again, and the next turns are captured."""
    async with open_store("memory://", embedder="none") as plain:
        before = fail_at(Refused("content", ["a password"]), "write")
        session = await start_session(WatchedStore(plain, before))
        await session.run("one")
        result = await session.run("two")
        assert any("not captured" in notice for notice in result.notices)
        before.trouble[0] = None
        await session.run("three")
        assert session.record.captures == ()
        assert "User: one" not in [
            entry.content.partition("\n")[0] for entry in await captured_entries(plain)
        ]


async def test_a_store_that_is_down_is_asked_no_more_often_with_each_turn() -> None:
    """However many captures wait, a turn tries one of them and its own, and says so in a few words."""
    async with open_store("memory://", embedder="none") as plain, open_store("memory://") as other:
        down = WatchedStore(other, fail_at(Busy("store", "is held", "later"), "write"))
        session = await start_session(plain, memory_store=down)
        for at in range(12):
            tried = down.calls.count("write")
            result = await session.run(f"turn {at}")
            assert down.calls.count("write") - tried <= 2
            assert len(result.notices) <= 2
        assert len(session.record.captures) == 12


async def test_turns_that_will_never_be_captured_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where too many turns wait for a store that is down, the oldest are given up, and the result says so."""
    monkeypatch.setattr(runner, "MAX_PENDING_CAPTURES", 3)
    async with open_store("memory://", embedder="none") as plain:
        session = await start_session(
            WatchedStore(plain, fail_at(Busy("store", "is held", "later"), "write"))
        )
        told = [(await session.run(f"turn {at}")).notices for at in range(6)]
        assert len(session.record.captures) <= 4
    assert [any("will not be captured" in one for one in notices) for notices in told][-1]
    assert not any("will not be captured" in one for one in told[0])


async def test_a_hiccup_while_the_lease_is_renewed_ends_nothing(store: Any) -> None:
    """A store that is out of reach once, well before the lease runs out, does not stop the turn."""
    claims: list[bool] = []

    async def before(name: str, args: Any) -> None:
        if name == "claim":
            claims.append(len(claims) == 1)
            if claims[-1]:
                raise Busy("store", "is held", "later")

    @action(effectful=True)
    async def wait(ctx: Any) -> str:
        """Wait until the lease was renewed after the hiccup."""
        await eventually(lambda: len(claims) >= 4)
        return "waited"

    spec = a_spec(tools=[wait])
    session = await Session.start(
        spec,
        "s1",
        store=WatchedStore(store, before),
        model=talker(tool_calls(("wait", {})), "Done."),
        lease_ms=600,
    )
    assert await session.chat("hello") == "Done."
    assert sum(claims) == 1


class Interrupted(WatchedStore):
    """A store whose first claim is made, while its caller hears something else."""

    def __init__(self, store: Any, instead: Any) -> None:
        super().__init__(store)
        self.instead = instead

    async def claim(self, kind: str, id: str, scope: Any, **given: Any) -> Any:
        lease = await super().claim(kind, id, scope, **given)
        if self.calls.count("claim") == 1:
            await self.instead()
        return lease


@pytest.mark.parametrize("how", ["cancelled", "lost"])
async def test_a_claim_that_nobody_heard_of_locks_nobody_out(store: Any, how: str) -> None:
    """Where the caller was cancelled during the claim, or its answer was lost, the session is free."""

    async def instead() -> None:
        if how == "lost":
            raise StoreFailed("store", "did not answer", "try again")
        scope.cancel()
        await anyio.lowlevel.checkpoint()

    await start_session(store)
    session = await Session.load("s1", a_spec(), store=Interrupted(store, instead), model=talker())
    with anyio.CancelScope() as scope:
        try:
            await session.run("one")
        except StoreFailed:
            scope.cancel()
    assert scope.cancel_called
    assert await (await reopen(session, store=store, model=talker())).chat("two") == "You said two"


async def test_only_who_has_the_session_writes_its_transcript(store: Any) -> None:
    """A runner thought dead that wakes up during its successor's turn spoils nothing of it."""
    taken_over, give_up = anyio.Event(), anyio.Event()

    async def successor(request: Any, journal: Any) -> str:
        taken_over.set()
        await give_up.wait()
        return "New."

    async def take_over() -> None:
        with clock.override(FrozenClock(clock.now() + LATER)):
            result = await (await reopen(session, model=successor)).resume()
        answers.append(result.content)

    async def slow(request: Any, journal: Any) -> str:
        group.start_soon(take_over)
        await taken_over.wait()
        return "Old."

    answers: list[str] = []
    session = await Session.start(a_spec(), "s1", store=store, model=slow)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            with pytest.raises((Conflict, SessionBusy)):
                await session.run("hello")
            give_up.set()
    assert answers == ["New."]
    kept = await reopen(session)
    assert (kept.status, kept.result) == ("finished", "New.")
    assert lines(kept.thread.entries) == ["user: hello", "assistant: New."]


# Turns that did not end well


async def test_what_is_captured_after_a_failed_turn_points_at_its_words(store: Any) -> None:
    """An entry names the places of its own words in the transcript, whatever was given up before them."""
    session = await start_session(store, DOWN)
    for _ in range(2):
        with pytest.raises(ModelFailed):
            await session.run("one")
    result = await session.run("two", model=talker())
    entry = (await captured_entries(store))[0]
    assert entry.message is not None
    places = [entry.message.seq, *(int(one.ref.rpartition(":")[2]) for one in entry.evidence)]
    written = (await reopen(session)).thread.entries
    assert [written[at].payload["content"] for at in places] == ["two", "two", "You said two"]
    assert result.agent is not None
    assert [one.id for one in thread.of(result.agent).entries] == [one.id for one in written]


async def test_an_input_that_was_refused_leaves_nothing_to_resume(store: Any) -> None:
    """The session is as it was before: no error, no turn, and no answer of another turn in its place."""

    class Refuses(Control):
        def at_input(self, text: str, ctx: Any) -> Any:
            return Refuse("Not that.") if "bad" in text else None

    model = talker(DOWN, "Too late.")
    session = await start_session(store, controls=[Refuses()])
    with pytest.raises(ModelFailed):
        await session.run("first", model=model)
    with pytest.raises(Blocked):
        await session.run("bad")
    assert (session.status, session.error) == ("new", None)
    with pytest.raises(Invalid, match="nothing to resume"):
        await session.resume(model=model)
    assert len(model.requests) == 1
    await session.run("good")
    with pytest.raises(Blocked):
        await session.run("bad")
    kept = await reopen(session)
    assert (kept.status, kept.error, kept.result, len(kept.requests)) == (
        "finished",
        None,
        "You said good",
        2,
    )


async def test_a_stream_left_at_its_end_is_kept(store: Any) -> None:
    """Whoever stops reading when the turn is finished finds it in the conversation, and captured."""
    session = await start_session(store)
    with anyio.fail_after(20):
        async with session.stream("one") as events:
            async for event in events:
                if event.kind == "turn_finished":
                    break
    assert ((await reopen(session)).status, len(await captured_entries(store))) == ("finished", 1)
    assert await session.chat("two") == "You said two"


async def test_a_stream_left_early_does_not_block_the_session(store: Any) -> None:
    """A reader who goes away leaves a turn behind that is over, and something else can be asked at once."""
    session = await start_session(store)
    with anyio.fail_after(20):
        async with session.stream("one") as events:
            async for event in events:
                if event.kind == "model_called":
                    break
    assert (session.status, (session.error or {})["kind"]) == ("error", "Cancelled")
    model = talker()
    assert await (await reopen(session, model=model)).chat("two") == "You said two"
    assert conversation_of(model.prompts[0]) == ["user: two"]


async def test_a_session_that_was_erased_while_it_ran_says_so(store: Any) -> None:
    """Everything that is asked of the old handle afterwards finds no session, and not a turn to resume."""

    async def model(request: Any, journal: Any) -> str:
        await erase(store, Scope(agent_id="ada", session_id="s1"))
        return "Too late."

    session = await start_session(store)
    with pytest.raises((NotFound, Conflict)):
        await session.run("hello", model=model)
    for attempt in (session.run, session.preflight, lambda _: session.resume(), lambda _: session.fork()):
        with pytest.raises(NotFound, match="erased"):
            await attempt("still there?")


async def test_erasing_a_session_erases_what_was_captured_from_it(store: Any) -> None:
    """Memory of the agent that came from the session goes with it; what came from elsewhere stays."""
    session, other = await start_session(store), await start_session(store, id="s2")
    await session.run("My word is zebra.")
    await session.remember("Zebras are nice.")
    await other.run("My word is giraffe.")
    assert [entry.session_id for entry in await captured_entries(store)] == ["s1", "s2"]
    receipt = await erase(store, Scope(agent_id="ada", session_id="s1"))
    assert (receipt.documents, len(receipt.ids)) == (3, 2)
    left = [entry.content for entry in await store.list_entries(Scope(agent_id="ada"))]
    assert left == ["User: My word is giraffe.\nAssistant: You said My word is giraffe."]


# Handles, forks and lists


async def test_a_handle_sees_what_others_wrote(store: Any) -> None:
    """Preflight, replay and fork of a handle that was opened long ago know what was said since."""
    old = await start_session(store)
    await (await reopen(old, model=talker())).run("one")
    assert conversation_of((await old.preflight("two")).prompt) == [*echo_conversation("one"), "user: two"]
    await (await reopen(old, model=talker())).run("three")
    assert (await old.replay()).content == "You said three"
    await (await reopen(old, model=talker())).run("four")
    assert (await old.fork("s2")).record.turns == 3


async def test_a_fork_has_the_state_that_the_actions_made(store: Any) -> None:
    """What an action took from the input, the session and the context is in the fork as it was."""

    @action
    def note(ctx: Any) -> Any:
        """Take notes."""
        return {"heard": ctx.request.input, "where": ctx.session_id, "who": ctx.data.get("user")}

    wish = tool_calls(("note", {}))
    session = await start_session(store, wish, "One.", wish, "Two.", spec=a_spec(tools=[note]))
    first = await session.run("I am Bob.", context={"user": "bob"})
    await session.run("I am Eve.", context={"user": "eve"})
    whole, part = await session.fork("s2"), await session.fork("s3", after=first.request_id)
    made = [[agent.state[key] for key in ("heard", "where", "who")] for agent in (session.agent, whole.agent)]
    assert made == [["I am Eve.", "s1", "eve"]] * 2
    assert part.agent.state["heard"] == "I am Bob."


async def test_a_fork_looks_at_each_entry_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice as many turns are twice as much to look at, and not four times."""
    looks: list[Any] = []
    get = FrozenMap.get

    def counting(entry: Any, *wanted: Any) -> Any:
        looks.append(wanted[0])
        return get(entry, *wanted)

    monkeypatch.setattr(FrozenMap, "get", counting)
    counted = []
    async with open_store("memory://", embedder="none") as plain:
        session = await start_session(plain, spec=a_spec(memory=None))
        for at in range(60):
            result = await session.run(f"turn {at}")
            if at in (28, 58):
                await session.run("one more")
                looks.clear()
                await session.fork(after=result.request_id)
                counted.append(len(looks))
    assert counted[1] < 2.5 * counted[0]


@pytest.mark.parametrize("spec", [{"memory": {"namespace": "team", "enabled": False}}, {"memory": None}])
async def test_a_session_is_found_when_memory_is_switched_off(store: Any, spec: Any) -> None:
    """Without its memory an agent still has its conversation, where it was or where it is said to be."""
    await (await start_session(store, spec=a_spec(memory={"namespace": "team"}))).run("one")
    team: dict[str, Any] = {"namespace": "team"}
    places = [team] if spec["memory"] is None else [{}, team]
    for place in places:
        async with Session.open(a_spec(**spec), "s1", store=store, **place) as session:
            assert (session.record.turns, session.result) == (1, "You said one")


async def test_a_namespace_that_is_given_needs_no_context(store: Any) -> None:
    """With memory off, a session whose place is named does not ask the context for it."""
    spec = a_spec(memory={"namespace": ["context", "tenant"], "enabled": False})
    async with Session.open(spec, "s1", store=store, namespace="acme", model=talker()) as session:
        assert await session.chat("one") == "You said one"


async def test_what_was_decided_is_no_longer_pending(store: Any) -> None:
    """Deciding one review after the other comes to an end."""
    till = Till()
    session = await start_session(
        store, tool_calls(("pay", {"sum": 1}), ("pay", {"sum": 2})), spec=till.spec(approve=["pay"])
    )
    await session.run("pay")
    for left in (2, 1):
        assert len(session.pending_reviews) == left
        await session.approve(session.pending_reviews[0].id)
    assert (session.pending_reviews, (await reopen(session)).pending_reviews) == ((), ())
    assert (await session.resume(model=talker("Paid."))).content == "Paid."


async def test_one_session_that_cannot_be_read_does_not_hide_the_others(store: Any) -> None:
    """The list has all that can be read, and a warning names the one that cannot."""
    for id in ("s1", "s2", "s3"):
        await start_session(store, id=id)
    kept = await store.load("session", "s2", Scope())
    await store.save(kept.replace(body={**thaw(kept.body), "schema_version": 99}), expected_rev=kept.rev)
    with pytest.warns(UserWarning, match="s2"):
        found = await sessions(store)
    assert [one.session_id for one in found] == ["s1", "s3"]


@pytest.mark.parametrize("option", ["agent", "history", "request_id", "decisions"])
async def test_what_is_for_one_turn_cannot_open_a_session(store: Any, option: str) -> None:
    """An option that could not work for every turn is refused at once."""
    value: Any = {"agent": Agent.new("ada"), "history": [], "request_id": "r1", "decisions": {}}[option]
    with pytest.raises(Invalid, match=option):
        Session.open(a_spec(), "s1", store=store, **{option: value})
