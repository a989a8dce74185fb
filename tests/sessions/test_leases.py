"""Tests of leases: who may run a session, and for how long."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import anyio
import pytest
from tests.support.sessions import (
    LATER,
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
from tests.support.turns import tool_calls

from omoide import Scope, action, clock, thread
from omoide.errors import Conflict, SessionBusy
from omoide.sessions import Session
from omoide.testing import FrozenClock, eventually


async def start_session(store: Any, *replies: Any, **options: Any) -> Session:
    """A new session whose model gives these replies."""
    spec = options.pop("spec", a_spec())
    return await Session.start(spec, options.pop("id", "s1"), store=store, model=talker(*replies), **options)


async def test_a_session_is_running_before_anything_is_done(file: Any) -> None:
    """Recall, model, tool and capture all find the session marked as running, with what it was asked."""
    seen: dict[str, str] = {}

    async def look(where: str) -> None:
        record = (await Session.load("s1", spec, store=file)).record
        seen.setdefault(where, f"{record.status} {record.turn.asked.input if record.turn else ''}".strip())

    async def before(name: str, args: Any) -> None:
        if name in ("recall", "write"):
            await look(name)

    @action(effectful=True)
    async def peek(ctx: Any) -> str:
        """Look at the session."""
        await look("tool")
        return "seen"

    async def model(request: Any, journal: Any) -> Any:
        await look("model")
        return "Done." if len(request.prompt.messages) > 1 else tool_calls(("peek", {}))

    spec = a_spec(tools=[peek])
    watched = WatchedStore(file, before)
    async with Session.open(spec, "s1", store=watched, model=model) as session:
        await session.run("hello")
    assert seen == {
        "recall": "running hello",
        "model": "running hello",
        "tool": "running hello",
        "write": "finished",
    }


async def test_a_running_session_is_busy_for_everybody_else(store: Any) -> None:
    """While a tool runs, no other handle may run, resume, decide or cancel; afterwards it may."""
    busy: list[str] = []

    @action(effectful=True)
    async def intrude(ctx: Any) -> str:
        """Try to use the same session."""
        other = await reopen(session, model=talker())
        for attempt in (other.run("me too"), other.resume(), other.cancel(), other.approve("r")):
            with pytest.raises(SessionBusy, match="s1"):
                await attempt
            busy.append("busy")
        return "went away"

    spec = a_spec(tools=[intrude])
    session = await Session.start(spec, "s1", store=store, model=talker(tool_calls(("intrude", {})), "Done."))
    assert await session.chat("hello") == "Done."
    assert len(busy) == 4
    other = await reopen(session, model=talker())
    assert await other.chat("and now") == "You said and now"


async def test_a_session_cannot_run_inside_itself(store: Any) -> None:
    """A tool that asks its own session again is told that it is busy, and the turn goes on."""

    @action(effectful=True)
    async def loop(ctx: Any) -> str:
        """Ask the session that runs it."""
        return await session.chat("again")

    spec = a_spec(tools=[loop])
    session = await Session.start(spec, "s1", store=store, model=talker(tool_calls(("loop", {})), "Done."))
    with anyio.fail_after(20):
        result = await session.run("hello")
    assert result.content == "Done."
    assert lines(session.thread.entries)[:3] == ["user: hello", "wants loop", "began loop"]
    assert lines(session.thread.entries)[3].startswith("error loop: session 's1' is running")
    assert session.requests == [result.request_id]


async def test_handles_see_what_others_said(store: Any) -> None:
    """Two handles that take turns have one conversation, without being opened again."""
    model = talker()
    one = await Session.start(a_spec(), "s1", store=store, model=model)
    other = await reopen(one, model=model)
    for session, said in ((one, "a"), (other, "b"), (one, "c"), (other, "d")):
        await session.run(said)
    assert conversation_of(model.prompts[-1]) == [*echo_conversation("a", "b", "c"), "user: d"]
    assert lines(other.thread.entries) == echo_conversation("a", "b", "c", "d")


async def test_who_lost_the_session_writes_no_more(store: Any) -> None:
    """A runner whose lease ran out is told so, and the session is what the new one made of it."""
    till = Till()

    @action(effectful=True, idempotent=True)
    async def dawdle(ctx: Any) -> str:
        """Take so long that somebody else takes over."""
        if not till.log:
            till.log.append("late")
            with clock.override(FrozenClock(clock.now() + LATER)):
                other = await reopen(session, model=talker("Taken over."))
                assert (await other.resume()).content == "Taken over."
        return "done"

    spec = a_spec(tools=[dawdle])
    session = await Session.start(spec, "s1", store=store, model=talker(tool_calls(("dawdle", {})), "Mine."))
    with pytest.raises((Conflict, SessionBusy)):
        await session.run("hello", request_id="r1")
    kept = await reopen(session)
    assert lines(kept.thread.entries)[-2:] == ["ok dawdle: done", "assistant: Taken over."]
    assert (kept.status, kept.result, kept.requests) == ("finished", "Taken over.", ["r1"])
    assert len(await captured_entries(store)) == 1
    with clock.override(FrozenClock(clock.now() + 2 * LATER)):
        assert await session.chat("next", request_id="r2", model=talker()) == "You said next"


async def test_a_late_commit_is_refused(store: Any) -> None:
    """A turn that somebody else gave up just before its runner committed it stays given up."""

    async def before(name: str, args: Any) -> None:
        if name == "save session" and args[0].body["status"] == "finished" and not gone:
            gone.append(name)
            with clock.override(FrozenClock(clock.now() + LATER)):
                await (await reopen(session, store=store)).cancel("it took too long")

    gone: list[str] = []
    session = await start_session(WatchedStore(store, before))
    with pytest.raises(Conflict):
        await session.run("one")
    assert gone
    kept = await reopen(session, store=store)
    assert (kept.status, kept.result, kept.record.turns) == ("new", None, 0)
    assert await captured_entries(store) == []
    model = talker()
    await session.run("two", model=model)
    assert conversation_of(model.prompts[0]) == ["user: two"]


async def test_a_long_turn_keeps_its_lease(store: Any) -> None:
    """A runner that takes longer than its lease lasts renews it, and others find the session busy."""
    watched = WatchedStore(store)

    @action(effectful=True)
    async def wait(ctx: Any) -> str:
        """Wait until the lease was renewed several times."""
        first = watched.calls.count("claim")
        await eventually(lambda: watched.calls.count("claim") >= first + 4)
        with pytest.raises(SessionBusy):
            await (await reopen(session, store=store, model=talker())).run("me")
        return "waited"

    spec = a_spec(tools=[wait])
    model = talker(tool_calls(("wait", {})), "Done.")
    session = await Session.start(spec, "s1", store=watched, model=model, lease_ms=900)
    assert await session.chat("hello") == "Done."


async def test_a_runner_that_cannot_renew_stops(store: Any) -> None:
    """When somebody else holds the lease, the turn is broken off instead of going on beside them."""
    watched = WatchedStore(store)

    @action(effectful=True)
    async def lose(ctx: Any) -> str:
        """Let somebody else take the session, and wait to be stopped."""
        with clock.override(FrozenClock(clock.now() + LATER)):
            assert await store.claim("session", "s1", Scope(), owner="other", ttl_ms=60_000)
        await anyio.sleep_forever()
        return "never"

    model = talker(tool_calls(("lose", {})), "Done.")
    session = await Session.start(a_spec(tools=[lose]), "s1", store=watched, model=model, lease_ms=60)
    with anyio.fail_after(20), pytest.raises(SessionBusy):
        await session.run("hello")
    assert lines((await reopen(session)).thread.entries) == ["user: hello", "wants lose", "began lose"]


async def test_a_session_of_a_process_whose_clock_was_ahead_is_free_after_a_lease(store: Any) -> None:
    """It ended without giving the lease back; others wait for its length, and not for its clock."""
    session = await start_session(store)
    with clock.override(FrozenClock(clock.now() + 10 * 365 * 86_400_000)):
        assert await store.claim("session", "s1", Scope(), owner="gone", ttl_ms=300)
    with pytest.raises(SessionBusy):
        await session.chat("hello")

    async def chat() -> str | None:
        with suppress(SessionBusy):
            return await session.chat("hello")
        return None

    assert await eventually(chat) == "You said hello"


async def test_who_stops_listening_stops_the_turn(store: Any) -> None:
    """A stream that is left early gives the lease back, and the turn can be resumed."""
    model = talker(" ".join(["word"] * 100))
    session = await Session.start(a_spec(), "s1", store=store, model=model)
    with anyio.fail_after(20):
        async with session.stream("hello") as events:
            async for event in events:
                if event.kind == "model_called":
                    break
        other = await reopen(session, model=talker())
        result = await other.resume()
    assert (result.status, other.status, other.requests) == ("finished", "finished", [result.request_id])
    assert len(await captured_entries(store)) == 1


async def test_what_an_action_writes_into_the_thread_is_kept_once(store: Any) -> None:
    """A note of a pure action stands in the transcript, and not again when the turn is taken up."""
    till = Till()

    @action
    def jot(ctx: Any) -> Any:
        """Write something down."""
        return thread.of(ctx.agent).append({"kind": "jotting", "payload": {"words": "so it is"}})

    spec = till.spec(tools=[jot, till.pay], approve=["pay"])
    model = talker(tool_calls(("jot", {})), PAY, "Done.", tool_calls(("jot", {})), "Again.")
    session = await Session.start(spec, "s1", store=store, model=model)
    await session.run("one")
    other = await reopen(session, model=model)
    await other.approve(other.pending_reviews[0].id)
    await other.resume()
    assert lines((await reopen(session)).thread.entries).count("jotting") == 1
    await session.run("two")
    kept = await reopen(session)
    assert lines(kept.thread.entries).count("jotting") == 2
    assert [entry.seq for entry in kept.thread.entries] == [*range(len(kept.thread.entries))]
    assert kept.requests == session.requests
