"""Tests of a conversation that continues across handles, apart from others."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.support.sessions import (
    PAY,
    Till,
    WatchedStore,
    a_spec,
    believe,
    captured_entries,
    conversation_of,
    echo,
    echo_conversation,
    lines,
    reopen,
    talker,
)
from tests.support.turns import Spy, tool_calls

from omoide import memory, thread
from omoide.errors import Invalid, MissingStore, ModelFailed, NotFound, OmoideError
from omoide.sessions import Session, sessions


async def start_session(store: Any, *replies: Any, **options: Any) -> Session:
    """A new session whose model gives these replies."""
    spec = options.pop("spec", a_spec())
    return await Session.start(spec, options.pop("id", "s1"), store=store, model=talker(*replies), **options)


# Ids


async def test_a_session_gets_an_id_of_its_own(store: Any) -> None:
    """Where none is given, two sessions have two ids, and the ids say what they are of."""
    one, other = [await Session.start(a_spec(), store=store) for _ in range(2)]
    assert one.id.startswith("sess_")
    assert one.id != other.id


async def test_both_names_of_the_id_may_be_given_if_they_agree(store: Any) -> None:
    """`id` and `session_id` mean the same, and two different ones are refused."""
    assert (await Session.start(a_spec(), "a", session_id="a", store=store)).id == "a"
    assert (await Session.start(a_spec(), session_id="b", store=store)).id == "b"
    with pytest.raises(Invalid, match="session_id"):
        await Session.start(a_spec(), "c", session_id="d", store=store)
    assert [one.session_id for one in await sessions(store)] == ["a", "b"]


@pytest.mark.parametrize("id", ["", "a\0b", "x" * 600, 7])
async def test_an_id_that_is_none_is_refused(store: Any, id: Any) -> None:
    """Empty, unreadable and endless ids are refused wherever they are given."""
    for make in (Session.start(a_spec(), id, store=store), Session.load(id, a_spec(), store=store)):
        with pytest.raises(Invalid, match="session_id"):
            await make
    with pytest.raises(Invalid, match="session_id"):
        Session.open(a_spec(), id, store=store)
    assert await sessions(store) == []


async def test_an_id_in_use_cannot_be_started_again(store: Any) -> None:
    """A second start under the same id is refused, and the first session is not touched."""
    session = await start_session(store)
    await session.run("hello")
    with pytest.raises(Invalid, match="s1"):
        await start_session(store)
    assert lines((await reopen(session)).thread.entries) == echo_conversation("hello")


# Stores


async def test_a_session_needs_a_store() -> None:
    """Without a store nothing is made, loaded or listed."""
    with pytest.raises(MissingStore, match="store"):
        await Session.start(a_spec(), "s1")
    with pytest.raises(MissingStore):
        Session.open(a_spec(), "s1")
    with pytest.raises(MissingStore):
        await Session.load("s1", a_spec())
    with pytest.raises(MissingStore):
        await Session.load("s1")
    with pytest.raises(MissingStore):
        await sessions(None)


async def test_a_store_that_cannot_keep_sessions_is_refused() -> None:
    """A store of the three methods alone is turned away at once, with the reason."""
    with pytest.raises(OmoideError, match="session"):
        Session.open(a_spec(), "s1", store=Spy())


async def test_what_is_not_there_is_not_found(store: Any) -> None:
    """A session that nobody started cannot be loaded, and the error names it."""
    for spec in (a_spec(), None):
        with pytest.raises(NotFound) as caught:
            await Session.load("nobody", spec, store=store)
        assert (caught.value.kind, caught.value.name) == ("session", "nobody")


async def test_open_begins_a_session_or_takes_it_up(store: Any) -> None:
    """The same call starts the conversation the first time and goes on with it the next."""
    model = talker()
    for said in ("one", "two", "three"):
        async with Session.open(a_spec(), "s1", store=store, model=model) as session:
            assert await session.chat(said) == f"You said {said}"
    assert conversation_of(model.prompts[-1]) == [*echo_conversation("one", "two"), "user: three"]


async def test_a_session_is_used_while_it_is_open(store: Any) -> None:
    """Before `async with` and after the block nothing runs, and the error says what to do."""
    session = Session.open(a_spec(), "s1", store=store, model=talker())
    with pytest.raises(Invalid, match="async with"):
        await session.run("too early")
    async with session:
        await session.run("in time")
    for late in (session.run("late"), session.resume(), session.preflight("late"), session.remember("late")):
        with pytest.raises(Invalid, match="closed"):
            await late
    assert "s1" in repr(session)
    assert lines((await reopen(session)).thread.entries) == echo_conversation("in time")


async def test_another_agents_session_is_not_taken_up(store: Any) -> None:
    """A spec of another agent does not open it, and does not begin one under its id."""
    await start_session(store)
    stranger = a_spec(id="bob")
    with pytest.raises(Invalid):
        await Session.load("s1", stranger, store=store)
    with pytest.raises(Invalid):
        async with Session.open(stranger, "s1", store=store):
            pass


async def test_a_session_can_be_loaded_without_its_spec(store: Any) -> None:
    """The spec is kept with the session, so somebody who only reads needs no code."""
    session = await start_session(store, spec=a_spec(instructions="Be kind.", tools=[believe]))
    await session.run("hello")
    read = await Session.load("s1", store=store)
    assert read.spec == session.spec
    assert lines(read.thread.entries) == echo_conversation("hello")


# The conversation


async def test_the_transcript_is_carried_from_turn_to_turn(store: Any) -> None:
    """The model sees what was said before, with tools and results, and so does the agent's thread."""
    till, model = Till(), talker(PAY, "Paid.", echo)
    session = await Session.start(till.spec(), "s1", store=store, model=model)
    await session.run("pay five")
    result = await session.run("thanks")
    assert conversation_of(model.prompts[-1]) == [
        "user: pay five",
        "assistant: ",
        "tool: paid 5",
        "assistant: Paid.",
        "user: thanks",
    ]
    expected = [
        *("user: pay five", "wants pay", "began pay", "ok pay: paid 5", "assistant: Paid."),
        *echo_conversation("thanks"),
    ]
    assert lines(session.thread.entries) == expected
    assert result.agent is not None
    for agent in (result.agent, session.agent, (await reopen(session)).agent):
        assert lines(thread.of(agent).entries) == expected


async def test_what_the_agent_came_to_believe_stays(store: Any) -> None:
    """Pure actions change the agent, and the next turn, here or elsewhere, starts from that."""
    model = talker(tool_calls(("believe", {"key": "sky", "value": "grey"})), "So it is.")
    session = await Session.start(a_spec(tools=[believe]), "s1", store=store, model=model)
    await session.run("The sky is grey.")
    for one in (session, await reopen(session)):
        assert memory.world_get(one.agent, "sky") == "grey"


async def test_a_turn_is_numbered_and_answered(store: Any) -> None:
    """Status, requests, the last answer and the count of turns tell how far the conversation is."""
    session = await start_session(store)
    assert (session.status, session.requests, session.result, session.record.turns) == ("new", [], None, 0)
    await session.run("one", request_id="r1")
    await session.run("two", request_id="r2")
    assert (session.status, session.requests, session.result) == ("finished", ["r1", "r2"], "You said two")
    assert (session.record.turns, session.record.last_request_id) == (2, "r2")
    assert (session.error, session.pending_reviews) == (None, ())


async def test_a_request_is_made_once(store: Any) -> None:
    """An id of a request that the session has had is refused, and nothing is called."""
    session = await start_session(store)
    await session.run("one", request_id="r1")
    with pytest.raises(Invalid, match="r1"):
        await session.run("two", request_id="r1")
    assert lines(session.thread.entries) == echo_conversation("one")
    assert session.status == "finished"


@pytest.mark.parametrize("options", [{"session_id": "s2"}, {"project_id": "p"}, {"agent": None}, {"nope": 1}])
async def test_what_belongs_to_the_session_cannot_be_given_with_a_turn(
    store: Any, options: dict[str, Any]
) -> None:
    """Another session, project or agent for one turn is refused before anything happens."""
    session = await start_session(store)
    with pytest.raises(Invalid):
        await session.run("hello", **options)
    assert (session.status, len(session.thread.entries)) == ("new", 0)


@pytest.mark.parametrize("input", ["", "  ", None, 7])
async def test_nothing_cannot_be_said(store: Any, input: Any) -> None:
    """An empty input changes nothing."""
    session = await start_session(store)
    with pytest.raises(Invalid):
        await session.run(input)
    assert (session.status, len(session.thread.entries)) == ("new", 0)
    assert await session.chat("hello") == "You said hello"


async def test_a_stream_is_a_turn(store: Any) -> None:
    """What is streamed is kept like any other turn, and its words are those of the answer."""
    session = await start_session(store)
    async with session.stream("hello") as events:
        kinds = [event.kind async for event in events]
    assert events.result.content == "You said hello"
    assert {"turn_started", "turn_finished", "memory_written"} <= {*kinds}
    assert lines((await reopen(session)).thread.entries) == echo_conversation("hello")


async def test_a_preflight_leaves_no_trace(store: Any) -> None:
    """What the model would see has the conversation in it; nothing is called or written."""
    model = talker()
    session = await Session.start(a_spec(), "s1", store=store, model=model)
    await session.run("one")
    before = (await reopen(session)).record
    seen = await session.preflight("two")
    assert conversation_of(seen.prompt) == [*echo_conversation("one"), "user: two"]
    assert len(model.requests) == 1
    assert ((await reopen(session)).record, session.status) == (before, "finished")


# What goes wrong


async def test_a_failed_turn_is_not_part_of_the_conversation(store: Any) -> None:
    """The error is kept and raised; what was said and believed before stays as it was."""
    model = talker(
        echo,
        tool_calls(("believe", {"key": "sky", "value": "green"})),
        ModelFailed("m", "is off", "wait"),
        echo,
    )
    session = await Session.start(a_spec(tools=[believe]), "s1", store=store, model=model)
    await session.run("one", request_id="r1")
    with pytest.raises(ModelFailed, match="is off"):
        await session.run("two", request_id="r2")
    kept = await reopen(session)
    for one in (session, kept):
        assert (one.status, one.result, one.record.turns) == ("error", "You said one", 1)
        assert one.error is not None
        assert (one.error["kind"], one.error["request_id"]) == ("ModelFailed", "r2")
        assert memory.world_get(one.agent, "sky") is None
    await session.run("three")
    assert conversation_of(model.prompts[-1]) == [*echo_conversation("one"), "user: three"]
    assert (session.status, session.error, session.record.turns) == ("finished", None, 2)
    assert len(await captured_entries(store)) == 2


async def test_without_a_model_nothing_begins(store: Any) -> None:
    """A session that has no model to ask says so, and can be asked again with one."""
    session = await Session.start(a_spec(), "s1", store=store)
    with pytest.raises(Invalid, match="model"):
        await session.run("hello")
    assert await session.chat("hello", model=talker()) == "You said hello"


async def test_a_cancelled_task_leaves_the_conversation_as_it_was(store: Any) -> None:
    """The lease is given back at once; something else can be asked, and the turn is left behind."""

    async def hang(request: Any, journal: Any) -> str:
        scope.cancel()
        await anyio.sleep_forever()
        return "never"

    session = await start_session(store)
    await session.run("one")
    with anyio.CancelScope() as scope:
        await session.run("two", model=hang)
    assert scope.cancelled_caught
    other = await reopen(session)
    assert (other.status, (other.error or {})["kind"], other.result) == ("error", "Cancelled", "You said one")
    model = talker()
    assert await session.chat("three", model=model) == "You said three"
    assert conversation_of(model.prompts[-1]) == [*echo_conversation("one"), "user: three"]


async def test_a_cancelled_task_can_be_resumed(store: Any) -> None:
    """What was interrupted goes on where it stopped, in any handle."""

    async def hang(request: Any, journal: Any) -> str:
        scope.cancel()
        await anyio.sleep_forever()
        return "never"

    session = await start_session(store)
    with anyio.CancelScope() as scope:
        await session.run("one", model=hang)
    result = await (await reopen(session, model=talker())).resume()
    assert (result.content, lines((await reopen(session)).thread.entries)) == (
        "You said one",
        echo_conversation("one"),
    )


async def test_cancel_without_a_turn_does_nothing(store: Any) -> None:
    """There is nothing to give up in a new session or after an answer."""
    session = await start_session(store)
    await session.cancel()
    assert session.status == "new"
    await session.run("one")
    await session.cancel()
    assert (session.status, lines(session.thread.entries)) == ("finished", echo_conversation("one"))


async def test_a_capture_that_fails_is_made_up_for(store: Any) -> None:
    """The turn stands, the failure is told, and the next turn, or resume, captures it once."""
    fails = [True]

    async def before(name: str, args: Any) -> None:
        if name == "write" and fails[0]:
            raise OSError("the disk is away")

    session = await start_session(WatchedStore(store, before))
    result = await session.run("one")
    assert (result.content, result.memory, len(result.notices)) == ("You said one", None, 1)
    assert [one.input for one in session.record.captures] == ["one"]
    fails[0] = False
    await session.resume()
    assert [one.input for one in session.record.captures] == []
    await session.run("two")
    kept = await captured_entries(store)
    assert [entry.content for entry in kept] == [
        "User: one\nAssistant: You said one",
        "User: two\nAssistant: You said two",
    ]


async def test_captures_that_fail_one_after_the_other_are_all_made_up_for(store: Any) -> None:
    """While the store takes no memories the conversation goes on, and afterwards no turn is missing."""
    fails = [True]

    async def before(name: str, args: Any) -> None:
        if name == "write" and fails[0]:
            raise OSError("the disk is away")

    session = await start_session(WatchedStore(store, before))
    for said in ("one", "two", "three"):
        await session.run(said)
    fails[0] = False
    await session.run("four")
    assert [entry.content for entry in await captured_entries(store)] == [
        f"User: {said}\nAssistant: You said {said}" for said in ("one", "two", "three", "four")
    ]
