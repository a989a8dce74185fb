"""Tests of hibernated turns, which continue as if never interrupted."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.support.sessions import (
    BOTH,
    PAY,
    Till,
    WatchedStore,
    a_spec,
    captured_entries,
    conversation_of,
    echo,
    echo_conversation,
    lines,
    reopen,
    talker,
)
from tests.support.turns import kinds_of, system_of, tool_calls

from omoide import Scope, action, memory
from omoide.errors import Blocked, Invalid, ModelFailed, NotFound, ReviewNeeded, TurnFailed, TurnPending
from omoide.sessions import Session
from omoide.turns import Control, Decision, Interrupt

PAID = ["user: pay", "wants pay", "began pay", "ok pay: paid 5", "assistant: Paid."]


class Asks(Control):
    """Wants a person to decide at these boundaries."""

    def __init__(self, *boundaries: str) -> None:
        self.boundaries = boundaries

    def _ask(self, boundary: str) -> Any:
        return Interrupt(f"Is this {boundary} fine?") if boundary in self.boundaries else None

    def at_input(self, text: str, ctx: Any) -> Any:
        return self._ask("input")

    def at_tool(self, call: Any, ctx: Any) -> Any:
        return self._ask("tool")

    def at_output(self, text: str, ctx: Any) -> Any:
        return self._ask("output")


async def waiting_session(store: Any, till: Till, *replies: Any, **fields: Any) -> Session:
    """A session that waits for somebody to let it pay."""
    spec = till.spec(**{"approve": ["pay"], **fields})
    session = await Session.start(spec, "s1", store=store, model=talker(*(replies or (PAY, "Paid."))))
    assert (await session.run("pay", request_id="r1")).status == "waiting"
    return session


# Checkpoints


async def test_a_turn_rests_after_its_prompt(store: Any) -> None:
    """The model is asked when somebody resumes; then the turn ends as any other, and is captured once."""
    watched, model = WatchedStore(store), talker()
    session = await Session.start(a_spec(), "s1", store=watched, model=model)
    await session.remember("Tea is at five.")
    watched.calls.clear()
    result = await session.run("When is tea?", checkpoint="after_prompt")
    assert (result.status, session.status, len(model.requests)) == ("hibernated", "hibernated", 0)
    assert kinds_of(result)[-1] == "hibernated"
    assert (await captured_entries(store), watched.calls.count("recall")) == ([], 1)
    other = await reopen(session, store=watched, model=model)
    assert (other.status, other.record.snapshots[0].asked.input) == ("hibernated", "When is tea?")
    done = await other.resume()
    assert (done.content, done.status, done.request_id) == (
        "You said When is tea?",
        "finished",
        result.request_id,
    )
    assert watched.calls.count("recall") == 1
    assert "Tea is at five." in system_of(model.prompts[0])
    assert "resumed" in kinds_of(done)
    assert done.memory is not None
    assert len(await captured_entries(store)) == 1
    assert lines((await reopen(session)).thread.entries) == echo_conversation("When is tea?")


async def test_what_was_recalled_is_kept_while_the_turn_rests(store: Any) -> None:
    """What is remembered meanwhile does not change the prompt of a turn that rests."""
    model = talker()
    session = await Session.start(a_spec(), "s1", store=store, model=model)
    await session.remember("Tea is at five.")
    asleep = await session.run("When is tea?", checkpoint="after_prompt")
    await session.remember("When is tea? At six.")
    done = await session.resume()
    assert asleep.prompt is not None
    assert done.prompt is not None
    assert done.prompt.messages == asleep.prompt.messages


async def test_what_was_erased_is_not_shown_when_the_turn_goes_on(store: Any) -> None:
    """A memory erased while the turn rested reaches no model, or the receipt says where it still is."""
    model = talker()
    session = await Session.start(a_spec(), "s1", store=store, model=model)
    kept = await session.remember("Tea is at five.")
    await session.run("When is tea?", checkpoint="after_prompt")
    receipt = await store.erase(Scope(agent_id="ada"), id=kept.entry.id)
    if not any("session" in place for place in (*receipt.pending, *receipt.unreachable)):
        await session.resume()
        assert all("Tea is at five." not in message.content for message in model.prompts[0].messages)


async def test_a_turn_rests_before_its_tools(store: Any) -> None:
    """What the model wants is kept, no tool has begun, and whoever resumes runs each of them once."""
    till = Till()
    session = await Session.start(till.spec(), "s1", store=store, model=talker(BOTH))
    result = await session.run("pay", checkpoint="before_tool")
    assert (result.status, till.log) == ("hibernated", [])
    assert lines((await reopen(session)).thread.entries) == ["user: pay", "wants pay look"]
    model = talker("Paid.")
    done = await (await reopen(session, model=model)).resume()
    assert (done.content, sorted(till.log), len(model.requests)) == ("Paid.", ["look", "pay 5"], 1)
    assert conversation_of(model.prompts[0]) == ["user: pay", "assistant: ", "tool: paid 5", "tool: 12 left"]
    assert done.usage.requests == 2


async def test_a_turn_without_tools_does_not_rest_before_them(store: Any) -> None:
    """A checkpoint that is never reached stops nothing."""
    session = await Session.start(a_spec(), "s1", store=store, model=talker())
    assert (await session.run("hello", checkpoint="before_tool")).status == "finished"


async def test_a_resting_session_takes_nothing_new(store: Any) -> None:
    """Before the turn is resumed or given up, no other may begin, in no handle."""
    session = await Session.start(a_spec(), "s1", store=store, model=talker())
    await session.run("one", checkpoint="after_prompt")
    for one in (session, await reopen(session, model=talker())):
        with pytest.raises(TurnPending, match="hibernated"):
            await one.run("two")
    await session.cancel()
    assert (session.status, session.record.turn) == ("new", None)
    assert await session.chat("three") == "You said three"
    assert [entry.content for entry in await captured_entries(store)] == [
        "User: three\nAssistant: You said three"
    ]


async def test_chat_says_that_the_turn_rests(store: Any) -> None:
    """Who only wants the answer is told that there is none yet."""
    session = await Session.start(a_spec(), "s1", store=store, model=talker())
    with pytest.raises(TurnFailed, match="resume it"):
        await session.chat("one", checkpoint="after_prompt")
    assert (await session.resume()).content == "You said one"


async def test_resuming_what_is_over_gives_the_last_answer(store: Any) -> None:
    """Nothing is called again, and a session in which nothing was said has nothing to resume."""
    model = talker()
    session = await Session.start(a_spec(), "s1", store=store, model=model)
    with pytest.raises(Invalid, match="s1"):
        await session.resume()
    await session.run("one")
    result = await (await reopen(session, model=model)).resume()
    assert (result.content, result.status, len(model.requests)) == ("You said one", "finished", 1)
    assert len(await captured_entries(store)) == 1


async def test_beliefs_of_a_turn_are_there_when_it_goes_on(store: Any) -> None:
    """What pure actions did before the turn was put aside is part of the agent in the end, once."""
    till = Till()

    @action
    def count(ctx: Any) -> Any:
        """Count one more."""
        return ctx.memory.world_put("n", ctx.memory.world_get("n", 0) + 1)

    model = talker(tool_calls(("count", {})), PAY, "Paid.")
    spec = till.spec(tools=[count, till.pay], approve=["pay"])
    session = await Session.start(spec, "s1", store=store, model=model)
    await session.run("count and pay")
    other = await reopen(session, model=model)
    assert memory.world_get(other.agent, "n") is None
    await other.approve(other.pending_reviews[0].id)
    result = await other.resume()
    assert result.agent is not None
    for agent in (result.agent, other.agent, (await reopen(session)).agent):
        assert memory.world_get(agent, "n") == 1


# Reviews


async def test_a_tool_waits_for_a_yes(store: Any) -> None:
    """The question names the tool and its parameters; after the yes anybody may resume, and it runs once."""
    till = Till()
    session = await waiting_session(store, till)
    other = await reopen(session, model=talker("Paid."))
    [review] = other.pending_reviews
    assert review.call is not None
    assert (review.boundary, review.call.name, dict(review.call.params)) == ("tool", "pay", {"sum": 5})
    assert (review.request_id, review.unknown, other.status) == ("r1", False, "waiting")
    with pytest.raises(ReviewNeeded, match=review.id):
        await other.resume()
    assert till.log == []
    await other.approve(review.id)
    third = await reopen(session, model=talker("Paid."))
    assert (await third.resume()).content == "Paid."
    assert (till.log, third.pending_reviews, third.status) == (["pay 5"], (), "finished")
    assert lines(third.thread.entries) == PAID
    assert len(await captured_entries(store)) == 1


async def test_a_tool_that_is_denied_does_not_run(store: Any) -> None:
    """The model is told that it was refused, and why, and the turn goes on."""
    till, model = Till(), talker("Then not.")
    session = await waiting_session(store, till)
    await session.deny(session.pending_reviews[0].id, "too much")
    assert (await (await reopen(session, model=model)).resume()).content == "Then not."
    assert till.log == []
    assert "too much" in conversation_of(model.prompts[0])[-1]
    assert lines((await reopen(session)).thread.entries)[2].startswith("error pay")


async def test_a_tool_that_is_settled_does_not_run(store: Any) -> None:
    """Somebody did it by hand, and the model gets their result as the tool's."""
    till, model = Till(), talker("Good.")
    session = await waiting_session(store, till)
    await session.settle(session.pending_reviews[0].id, {"paid": 5})
    assert (await session.resume(model=model)).content == "Good."
    assert till.log == []
    assert conversation_of(model.prompts[0])[-1] == 'tool: {"paid":5}'


async def test_decisions_may_come_with_the_resume(store: Any) -> None:
    """Who resumes can decide in the same breath."""
    till = Till()
    session = await waiting_session(store, till)
    review = session.pending_reviews[0].id
    result = await session.resume(decisions={review: Decision(verdict="approve")})
    assert (result.content, till.log) == ("Paid.", ["pay 5"])


async def test_every_question_needs_its_answer(store: Any) -> None:
    """With two calls to approve, one yes is not enough, and each decision is for its own call."""
    till = Till()
    twice = tool_calls(("pay", {"sum": 1}), ("pay", {"sum": 2}))
    session = await waiting_session(store, till, twice, "Done.")
    first, second = (review.id for review in session.pending_reviews)
    await session.approve(first)
    with pytest.raises(ReviewNeeded) as caught:
        await (await reopen(session, model=talker())).resume()
    assert (caught.value.reviews, till.log) == ((second,), [])
    await (await reopen(session)).deny(second)
    assert (await session.resume(model=talker("Done."))).content == "Done."
    assert till.log == ["pay 1"]


async def test_the_last_decision_counts(store: Any) -> None:
    """A person may think again before the turn goes on."""
    till = Till()
    session = await waiting_session(store, till)
    review = session.pending_reviews[0].id
    await session.approve(review)
    await session.deny(review, "on second thought")
    await session.resume(model=talker("Then not."))
    assert till.log == []


async def test_only_what_is_asked_can_be_decided(store: Any) -> None:
    """A decision about something else is not found, and changes nothing."""
    till = Till()
    session = await waiting_session(store, till)
    before = (await reopen(session)).record
    for attempt in (session.approve("nobody"), session.deny("nobody"), session.settle("nobody", 1)):
        with pytest.raises(NotFound, match="nobody"):
            await attempt
    assert (await reopen(session)).record == before
    await session.cancel()
    with pytest.raises(NotFound):
        await session.approve(before.pending_reviews[0].id)


@pytest.mark.parametrize(
    ("boundary", "asked"), [("input", []), ("tool", ["user: pay", "wants pay"]), ("output", PAID[:4])]
)
async def test_a_person_may_be_asked_at_every_boundary(store: Any, boundary: str, asked: list[str]) -> None:
    """The turn stops there with what was done so far, and after a yes ends as if nobody had been asked."""
    till, model, control = Till(), talker(PAY, "Paid."), Asks(boundary)
    session = await Session.start(till.spec(), "s1", store=store, model=model, controls=[control])
    result = await session.run("pay")
    assert (result.status, [review.boundary for review in result.reviews]) == ("waiting", [boundary])
    other = await reopen(session, model=model, controls=[control])
    assert lines(other.thread.entries) == asked
    assert await captured_entries(store) == []
    await other.approve(other.pending_reviews[0].id)
    done = await (await reopen(session, model=model, controls=[control])).resume()
    assert (done.content, done.status, till.log, len(model.requests)) == ("Paid.", "finished", ["pay 5"], 2)
    assert lines((await reopen(session)).thread.entries) == PAID
    assert done.usage.requests == 2
    assert [entry.content for entry in await captured_entries(store)] == ["User: pay\nAssistant: Paid."]


@pytest.mark.parametrize("boundary", ["input", "output"])
async def test_a_no_at_the_input_or_the_output_ends_the_turn(store: Any, boundary: str) -> None:
    """The turn is blocked, nothing of it is remembered, and the conversation goes on without it."""
    model = talker()
    session = await Session.start(a_spec(), "s1", store=store, model=model)
    await session.run("one", controls=[Asks(boundary)])
    await session.deny(session.pending_reviews[0].id, "not today")
    with pytest.raises(Blocked, match="not today"):
        await session.resume(controls=[Asks(boundary)])
    assert (session.status, (await reopen(session)).status) == ("error", "error")
    assert await captured_entries(store) == []
    await session.run("two")
    assert conversation_of(model.prompts[-1]) == ["user: two"]


async def test_an_answer_can_be_given_in_place_of_the_models(store: Any) -> None:
    """Settling a draft says what is answered instead; the user's own words cannot be settled."""
    session = await Session.start(a_spec(), "s1", store=store, model=talker(), controls=[Asks("output")])
    await session.run("one")
    await session.settle(session.pending_reviews[0].id, "Something else.")
    assert (await session.resume()).content == "Something else."
    assert [entry.content for entry in await captured_entries(store)] == [
        "User: one\nAssistant: Something else."
    ]
    await session.run("two", controls=[Asks("input")])
    with pytest.raises(Invalid, match="input"):
        await session.settle(session.pending_reviews[0].id, "three")


async def test_the_draft_that_was_approved_is_the_answer(store: Any) -> None:
    """The model is not asked again for an answer that somebody has read and let pass."""
    model = talker("The draft.", "Something else.")
    session = await Session.start(a_spec(), "s1", store=store, model=model, controls=[Asks("output")])
    await session.run("one")
    assert session.pending_reviews[0].draft == "The draft."
    await session.approve(session.pending_reviews[0].id)
    other = await reopen(session, model=model, controls=[Asks("output")])
    assert ((await other.resume()).content, len(model.requests)) == ("The draft.", 1)


async def test_a_waiting_turn_can_be_given_up(store: Any) -> None:
    """Its tool never runs, and what was said before stays."""
    till = Till()
    session = await Session.start(
        till.spec(approve=["pay"]), "s1", store=store, model=talker(echo, PAY, echo)
    )
    await session.run("hello")
    await session.run("pay")
    await (await reopen(session)).cancel("never mind")
    model = talker()
    await session.run("bye", model=model)
    assert conversation_of(model.prompts[-1]) == [*echo_conversation("hello"), "user: bye"]
    assert (till.log, session.pending_reviews, session.record.turns) == ([], (), 2)


# Errors


async def test_a_failed_turn_goes_on_where_it_failed(store: Any) -> None:
    """Tools that have answered do not run again; the model is asked what it was asked when it failed."""
    till, fails = Till(), ModelFailed("m", "is off", "wait")
    session = await Session.start(till.spec(), "s1", store=store, model=talker(BOTH, fails))
    with pytest.raises(ModelFailed):
        await session.run("pay", request_id="r1")
    assert (session.status, sorted(till.log)) == ("error", ["look", "pay 5"])
    model = talker("Paid.")
    other = await reopen(session, model=model)
    result = await other.resume()
    assert (result.content, result.request_id, sorted(till.log)) == ("Paid.", "r1", ["look", "pay 5"])
    assert conversation_of(model.prompts[0]) == ["user: pay", "assistant: ", "tool: paid 5", "tool: 12 left"]
    assert (other.status, other.error, other.record.turns, other.requests) == ("finished", None, 1, ["r1"])
    assert len(await captured_entries(store)) == 1
    await other.run("thanks", model=(model := talker()))
    assert conversation_of(model.prompts[0]) == [
        *("user: pay", "assistant: ", "tool: paid 5", "tool: 12 left", "assistant: Paid.", "user: thanks")
    ]


async def test_a_turn_may_fail_more_than_once(store: Any) -> None:
    """Each attempt is written down, and the one that succeeds ends the turn."""
    fails = ModelFailed("m", "is off", "wait")
    session = await Session.start(a_spec(), "s1", store=store, model=talker(fails, fails, echo))
    with pytest.raises(ModelFailed):
        await session.run("one")
    with pytest.raises(ModelFailed):
        await session.resume()
    assert (await session.resume()).content == "You said one"
    first, *errors, last = lines(session.thread.entries)
    assert [first, last] == echo_conversation("one")
    assert errors == ["error ModelFailed"] * 2


async def test_a_new_input_leaves_a_failed_turn_behind(store: Any) -> None:
    """After an error one may say something else; what failed cannot be resumed any more."""
    fails, model = ModelFailed("m", "is off", "wait"), talker()
    session = await Session.start(a_spec(), "s1", store=store, model=talker(fails))
    with pytest.raises(ModelFailed):
        await session.run("one")
    assert await session.chat("two", model=model) == "You said two"
    assert conversation_of(model.prompts[0]) == ["user: two"]
    result = await session.resume(model=model)
    assert (result.content, len(model.requests)) == ("You said two", 1)
    assert [entry.content for entry in await captured_entries(store)] == [
        "User: two\nAssistant: You said two"
    ]


async def uncommitted_session(store: Any) -> Session:
    """A session whose header could not be saved after the answer was written."""
    broken = [False]

    async def before(name: str, args: Any) -> None:
        if broken[0] and name == "save session":
            raise OSError("the disk is away")

    def model(request: Any, journal: Any) -> str:
        broken[0] = True
        return echo(request)

    session = await Session.start(a_spec(), "s1", store=WatchedStore(store, before), model=model)
    with pytest.raises(Exception, match="the disk is away"):
        await session.run("one")
    broken[0] = False
    return session


async def test_an_answer_that_could_not_be_committed_is_not_said_twice(store: Any) -> None:
    """Where the header fails after the answer was written, resume ends the turn, and it is said once."""
    session = await uncommitted_session(store)
    later = talker()
    assert (await session.resume(model=later)).content == "You said one"
    assert (later.requests, session.record.turns) == ([], 1)
    await session.run("two", model=later)
    assert conversation_of(later.prompts[-1]) == [*echo_conversation("one"), "user: two"]
    assert len(await captured_entries(store)) == 2


async def test_what_is_given_up_after_its_answer_is_no_part_of_the_conversation(store: Any) -> None:
    """An answer that was written and never committed leaves with the turn when that is cancelled."""
    session = await uncommitted_session(store)
    await session.cancel()
    assert (session.status, session.record.turns) == ("new", 0)
    later = talker()
    other = await reopen(session, model=later)
    await other.run("two")
    assert conversation_of(later.prompts[-1]) == ["user: two"]
    assert (await other.fork("s2")).requests == other.requests[-1:]
    assert len(await captured_entries(store)) == 1


async def test_a_yes_to_repeat_a_tool_is_good_for_one_time(store: Any) -> None:
    """A tool that was run again and broke off again is asked about again."""
    till = Till()

    @action(effectful=True)
    async def crash(ctx: Any) -> str:
        """Do something, and lose the runner."""
        till.log.append("crash")
        scope.cancel()
        await anyio.sleep_forever()
        return "never"

    spec = till.spec(tools=[crash], limits={"tool_timeout_ms": 500})
    session = await Session.start(spec, "s1", store=store, model=talker(tool_calls(("crash", {})), "Done."))
    with anyio.CancelScope() as scope:
        await session.run("go")
    for n in (1, 2):
        other = await reopen(session, model=talker("Done."))
        result = await other.resume()
        assert (result.status, [one.unknown for one in result.reviews]) == ("waiting", [True])
        assert len(till.log) == n
        await other.approve(result.reviews[0].id)
        with anyio.CancelScope() as scope:
            await other.resume()
    assert len(till.log) == 3
