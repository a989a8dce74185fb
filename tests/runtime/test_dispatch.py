"""Emitted signals reach their targets."""

from __future__ import annotations

import re
from typing import Any

import anyio
import pytest
from tests.support.runtime_agents import (
    ErrorRecorder,
    GatedCheckpointStore,
    SignalRecorder,
    action_returning,
    an_agent,
    count_signals,
    note_data,
    server_of,
    sig,
    to_plain,
)

from omoide import Signal
from omoide.directives import Emit, SpawnAgent
from omoide.errors import Invalid, WrongType
from omoide.runtime import Runtime
from omoide.testing import eventually


def emits(dispatch: Any = None, type: str = "news", **more: Any) -> Any:
    """An action that emits a signal some way."""
    return action_returning(Emit(signal=sig(type, {"text": "hello"}), dispatch=dispatch, **more))


async def test_a_signal_that_says_nothing_comes_back_to_the_agent(recorder: SignalRecorder) -> None:
    """As another letter, after those that are there already."""
    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"go": emits(), "news": recorder, "other": recorder}))
        await runtime.start(an_agent("b", {"news": count_signals}))
        await runtime.cast("a", sig("go"))
        await runtime.cast("a", sig("other"))
        await eventually(lambda: recorder.types == ["other", "news"])
        assert recorder.data[1] == {"text": "hello"}
        assert "count" not in (await runtime.state("b")).state


async def test_an_agents_usual_way_goes_for_what_says_nothing(recorder: SignalRecorder) -> None:
    """And a signal that says where it goes does not go there."""
    own = SignalRecorder()
    async with Runtime() as runtime:
        agent = an_agent("a", {"go": emits(), "keep": emits({"self": True}), "news": own})
        await runtime.start(agent, dispatch={"to": "b"})
        await runtime.start(an_agent("b", {"news": recorder}))
        await runtime.call("a", sig("go"))
        await eventually(lambda: recorder.types == ["news"])
        await runtime.call("a", sig("keep"))
        await eventually(lambda: own.types == ["news"])
        assert recorder.types == ["news"]


@pytest.mark.parametrize(("to", "wanted"), [("b", "b"), (["b", "c"], "bc"), ([], ""), (["a", "b"], "ab")])
async def test_a_signal_goes_to_the_agents_that_it_names(to: Any, wanted: str) -> None:
    """To each of them once, itself included."""
    recorder = {id: SignalRecorder() for id in "abc"}
    async with Runtime() as runtime:
        for id in "abc":
            await runtime.start(an_agent(id, {"go": emits({"to": to}), "news": recorder[id]}))
        await runtime.call("a", sig("go"))
    assert {id: len(kept) for id, kept in recorder.items()} == {id: int(id in wanted) for id in "abc"}


async def test_signals_go_up_and_down_between_parents_and_children() -> None:
    """To the parent, to the child under a tag, or to each of them."""
    kid_heard, boss_heard = SignalRecorder(), SignalRecorder()
    kid = an_agent("x", {"up": emits({"parent": True}, "from.child"), "down.*": kid_heard})
    boss = an_agent(
        "boss",
        {
            "go": action_returning(
                *[SpawnAgent(kind="a_kind", tag=tag, id=f"{tag}-1") for tag in ("one", "two")]
            ),
            "one": emits({"child": "one"}, "down.one"),
            "all": emits({"children": True}, "down.all"),
            "none": emits({"children": False, "parent": False, "self": False, "bus": False}, "down.none"),
            "from.child": boss_heard,
        },
    )
    async with Runtime(kinds=[kid.definition]) as runtime:
        published: list[Signal] = []
        await runtime.transport.subscribe("**", published.append)
        await runtime.start(boss)
        for word in ("go", "one", "all", "none"):
            await runtime.call("boss", sig(word))
        await runtime.call("two-1", sig("up"))
        await eventually(lambda: boss_heard.types == ["from.child"])
        assert sorted(kid_heard.types) == ["down.all", "down.all", "down.one"]
        assert published == []


async def test_the_bus_brings_a_signal_to_whoever_subscribed() -> None:
    """Agents and others alike; the next directive comes when they have it."""
    seen: list[str] = []
    then = Emit(signal=sig("then"), dispatch={"bus": True})
    async with Runtime() as runtime:
        await runtime.transport.subscribe("news", lambda signal: seen.append(signal.type))
        await runtime.transport.subscribe("then", lambda signal: seen.append(signal.type))
        first = Emit(signal=sig("news"), dispatch={"bus": True})
        await runtime.start(an_agent("a", {"go": action_returning(first, then)}))
        await runtime.call("a", sig("go"))
        await eventually(lambda: seen == ["news", "then"])


async def test_a_way_of_ones_own_is_given_the_signal_and_what_stands_beside() -> None:
    """It may be plain or async; several ways at once are fine."""
    sent: list[tuple[str, str, Any]] = []

    async def post(signal: Signal, where: Any) -> None:
        sent.append(("post", signal.type, to_plain(where)))

    def shout(signal: Signal, where: Any) -> None:
        sent.append(("shout", signal.type, to_plain(where)))

    recorder = SignalRecorder()
    ways = {"post": {"box": 7}, "shout": "loud", "self": True}
    async with Runtime(dispatchers={"post": post, "shout": shout}) as runtime:
        await runtime.start(an_agent("a", {"go": emits(ways), "news": recorder}))
        await runtime.call("a", sig("go"))
    assert sent == [("post", "news", {"box": 7}), ("shout", "news", "loud")]
    assert recorder.types == ["news"]


@pytest.mark.parametrize(
    ("dispatch", "said"),
    [
        ({"to": "ghost"}, "ghost"),
        ({"to": 7}, "int"),
        ({"parent": True}, "parent"),
        ({"child": "nobody"}, "nobody"),
        ({"pigeon": True}, "pigeon.*to, parent, child, children, self, bus, broken"),
        ({"broken": True}, "no line"),
    ],
)
async def test_a_way_that_leads_nowhere_is_reported(dispatch: Any, said: str, errors: ErrorRecorder) -> None:
    """The other directives and the agent go on."""

    def broken(signal: Signal, where: Any) -> None:
        raise OSError("no line")

    async with Runtime(dispatchers={"broken": broken}) as runtime:
        then = Emit(signal=sig("then"))
        agent = an_agent(
            "a",
            {"go": action_returning(Emit(signal=sig("x"), dispatch=dispatch), then), "then": count_signals},
        )
        await runtime.start(agent, on_error=errors)
        await runtime.call("a", sig("go"))
        await eventually(lambda: server_of(runtime).agent.state.get("count") == 1)
        assert [one.context for one in errors] == ["directive"]
        assert re.search(said, errors.messages)


async def test_one_way_that_fails_does_not_close_the_others(
    errors: ErrorRecorder, recorder: SignalRecorder
) -> None:
    """The signal gets to all whom it can reach."""
    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"go": emits({"to": ["ghost", "b"]})}), on_error=errors)
        await runtime.start(an_agent("b", {"news": recorder}))
        await runtime.call("a", sig("go"))
        await eventually(lambda: recorder.types == ["news"] and errors.kinds == ["NotRunning"])


@pytest.mark.parametrize("way", ["to", "bus", "self"])
def test_a_built_in_way_cannot_be_given_another_meaning(way: str) -> None:
    """Nor is anything but a function a way."""
    with pytest.raises(Invalid, match=way):
        Runtime(dispatchers={way: lambda signal, where: None})
    with pytest.raises(WrongType, match="dispatchers"):
        Runtime(dispatchers={"post": "office"})  # type: ignore[dict-item]


async def test_an_agent_that_emits_to_a_full_mailbox_waits_and_still_listens(
    checkpoints: GatedCheckpointStore,
) -> None:
    """Its directives wait until there is room; its own signals are handled meanwhile, and nothing is lost."""
    checkpoints.gate = anyio.Event()
    many = [Emit(signal=sig("note", number), dispatch={"to": "slow"}) for number in range(6)]
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.start(an_agent("slow", {"note": note_data}), mailbox=2, save_every=1)
        await runtime.start(an_agent("a", {"go": action_returning(*many), "up": count_signals}))
        await runtime.call("a", sig("go"))
        await checkpoints.entered.wait()
        assert (await runtime.call("a", sig("up"))).state["count"] == 1
        assert runtime.stats()["accepted"] < 2 + len(many)
        checkpoints.gate.set()
        server = runtime.whereis("slow")
        assert server is not None
        await eventually(lambda: to_plain(server.agent.state.get("noted")) == [*range(6)])
        assert len(runtime.dropped_signals) == 0


async def test_two_agents_that_flood_each_other_do_not_wait_for_each_other() -> None:
    """Each with a mailbox of one, and more to say than fits."""
    recorder = {id: SignalRecorder() for id in "ab"}
    async with Runtime() as runtime:
        for id, other in ("ab", "ba"):
            many = [Emit(signal=sig("news", number), dispatch={"to": other}) for number in range(20)]
            await runtime.start(
                an_agent(id, {"go": action_returning(*many), "news": recorder[id]}), mailbox=1
            )
        for id in "ab":
            await runtime.cast(id, sig("go"))
        await eventually(lambda: len(recorder["a"]) == len(recorder["b"]) == 20)
        assert recorder["a"].data == recorder["b"].data == [*range(20)]


async def test_what_an_agent_tells_itself_beyond_all_room_is_dropped_and_reported(
    errors: ErrorRecorder,
) -> None:
    """Ten thousand may wait beyond the size of the mailbox; others are not harmed."""
    more = [Emit(signal=sig("more"))] * 6_000
    async with Runtime() as runtime:
        await runtime.start(
            an_agent("a", {"go": action_returning(*more), "more": count_signals}), mailbox=1, on_error=errors
        )
        await runtime.start(an_agent("b", {"up": count_signals}))
        await runtime.cast("a", sig("go"))
        server = runtime.whereis("a")
        assert server is not None
        for _ in range(2):
            server.enqueue(sig("go"))
        assert (await runtime.call("b", sig("up"))).state["count"] == 1
        await eventually(lambda: server.agent.state.get("count") and not len(server.mailbox))
        lost = len(runtime.dropped_signals) and runtime.dropped_signals.count
        assert server.agent.state["count"] == 18_000 - lost
        assert 7_000 < lost < 9_000
        assert {*errors.kinds} == {"QueueOverflow"}
        assert {drop.reason for drop in runtime.dropped_signals} == {"queue_overflow"}
