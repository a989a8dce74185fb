"""Parents and children are linked, adopted, stopped and orphaned."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.support.runtime_agents import (
    ErrorRecorder,
    SignalRecorder,
    action_returning,
    an_agent,
    count_signals,
    crash,
    fail,
    server_of,
    sig,
    to_plain,
    wait_until_gone,
)

from omoide import Agent
from omoide.core.state import PARENT
from omoide.directives import AdoptChild, Emit, SpawnAgent, Stop, StopChild
from omoide.errors import IdTaken, WrongType
from omoide.runtime import AgentServer, Runtime
from omoide.testing import eventually

STARTED, EXITED, ORPHANED = "jido.agent.child.started", "jido.agent.child.exit", "jido.agent.orphaned"


def a_kid(id: str = "kid", on: Any = None, **parts: Any) -> Agent:
    """An agent of a kind that can be spawned."""
    routes = {
        "up": count_signals,
        "crash": crash,
        "fail": fail,
        "end": action_returning(Stop()),
        **(on or {}),
    }
    return an_agent(id, routes, kind="kid", **parts)


def a_boss(recorder: Any, **more: Any) -> Agent:
    """An agent that spawns a child under the tag `t`, and hears of it."""
    spawn = SpawnAgent(kind="kid", tag="t", id="kid", state={"sum": 7}, metadata={"why": "help"})
    routes = {
        "spawn": action_returning(spawn),
        "dismiss": action_returning(StopChild(tag="t")),
        "adopt": action_returning(AdoptChild(child="kid", tag="t", metadata={"why": "found"})),
        "jido.agent.child.*": recorder,
        "up": count_signals,
        **more,
    }
    return an_agent("boss", routes)


async def with_child(runtime: Runtime, recorder: Any, **terms: Any) -> AgentServer:
    """Start a parent and its child; the server of the child."""
    await runtime.start(a_boss(recorder), **terms)
    await runtime.call("boss", sig("spawn"))
    return server_of(runtime, "kid")


# Getting one


async def test_a_child_lives_as_the_directive_says_and_knows_its_parent(recorder: SignalRecorder) -> None:
    """Its kind, its id and its state; who its parent is lies in its own state."""
    async with Runtime(kinds=[a_kid().definition]) as runtime:
        kid = await with_child(runtime, recorder)
        assert (kid.agent.name, kid.agent.state["sum"]) == ("kid", 7)
        parent = PARENT.get_or_new(kid.agent)
        assert (parent.id, parent.tag, to_plain(parent.metadata)) == ("boss", "t", {"why": "help"})
        assert server_of(runtime, "boss").children == {"t": "kid"}
        assert kid.parent == ("boss", "t")
        await eventually(lambda: recorder.types == [STARTED])
        assert recorder.data == [{"tag": "t", "id": "kid", "name": "kid"}]
        assert (await runtime.call("kid", sig("up"))).state["count"] == 1


async def test_a_child_without_an_id_is_given_one(recorder: SignalRecorder) -> None:
    """And the parent is told."""
    spawn = action_returning(*[SpawnAgent(kind="kid", tag=tag) for tag in "xy"])
    async with Runtime(kinds=[a_kid().definition]) as runtime:
        await runtime.start(a_boss(recorder, both=spawn))
        await runtime.call("boss", sig("both"))
        await eventually(lambda: len(recorder) == 2)
        ids = {data["id"] for data in recorder.data}
        assert len(ids) == 2
        assert ids == {*runtime.ids()} - {"boss"}


async def test_a_running_agent_can_be_adopted(recorder: SignalRecorder) -> None:
    """It keeps what it has, learns who its parent is, and ends with it from then on."""
    async with Runtime() as runtime:
        await runtime.start(a_kid(state={"own": 1}))
        await runtime.start(a_boss(recorder))
        await runtime.call("boss", sig("adopt"))
        after = await runtime.call("kid", sig("up"))
        assert to_plain({key: after.state[key] for key in ("own", "count")}) == {"own": 1, "count": 1}
        parent = PARENT.get_or_new(after)
        assert (parent.id, to_plain(parent.metadata)) == ("boss", {"why": "found"})
        await eventually(lambda: recorder.types == [STARTED])
        kid = server_of(runtime, "kid")
        await runtime.stop("boss")
        with anyio.fail_after(5):
            await kid.ended.wait()


async def test_what_cannot_become_a_child_is_reported(
    errors: ErrorRecorder, recorder: SignalRecorder
) -> None:
    """An unknown kind or agent, a taken id or tag, oneself, one's own parent, or somebody's child."""
    wrong = {
        "unknown": SpawnAgent(kind="unicorn", tag="x"),
        "taken_id": SpawnAgent(kind="kid", tag="x", id="boss"),
        "taken_tag": SpawnAgent(kind="kid", tag="t", id="other"),
        "ghost": AdoptChild(child="ghost", tag="x"),
        "oneself": AdoptChild(child="boss", tag="x"),
        "own_child": AdoptChild(child="kid", tag="x"),
    }
    above = AdoptChild(child="boss", tag="up")
    kid = a_kid(on={"usurp": action_returning(above)})
    async with Runtime(kinds=[kid.definition], agent_options={"on_error": errors}) as runtime:
        await runtime.start(a_boss(recorder, **{name: action_returning(one) for name, one in wrong.items()}))
        await runtime.call("boss", sig("spawn"))
        for name in wrong:
            await runtime.call("boss", sig(name))
        await runtime.call("kid", sig("usurp"))
        assert errors.kinds == [
            "NotFound",
            "IdTaken",
            "IdTaken",
            "NotRunning",
            "Invalid",
            "IdTaken",
            "Invalid",
        ]
        assert "kid" in errors[0].message
        assert runtime.ids() == ["boss", "kid"]
        assert server_of(runtime, "boss").children == {"t": "kid"}
        assert server_of(runtime, "kid").children == {}


@pytest.mark.parametrize(("terms", "agents"), [({"max_children": 2}, None), ({}, 3)])
async def test_there_are_not_more_agents_than_there_may_be(
    terms: Any, agents: Any, errors: ErrorRecorder
) -> None:
    """Neither children of one parent nor agents of a runtime; where one goes there is room again."""
    tags = ["x", "y", "z"]
    more = {f"get.{tag}": action_returning(SpawnAgent(kind="kid", tag=tag, id=tag)) for tag in tags}
    more["lose"] = action_returning(StopChild(tag="x"))
    async with Runtime(kinds=[a_kid().definition], max_agents=agents) as runtime:
        await runtime.start(a_boss(count_signals, **more), on_error=errors, **terms)
        for tag in tags:
            await runtime.call("boss", sig(f"get.{tag}"))
        assert errors.kinds == ["TooManyAgents"]
        assert runtime.ids() == ["boss", "x", "y"]
        await runtime.call("boss", sig("lose"))
        await eventually(lambda: runtime.ids() == ["boss", "y"])
        await runtime.call("boss", sig("get.z"))
        assert runtime.ids() == ["boss", "y", "z"]
        assert server_of(runtime, "boss").children == {"y": "y", "z": "z"}


def test_kinds_are_definitions_of_different_names() -> None:
    """The same one twice is no harm."""
    with pytest.raises(WrongType, match="kinds"):
        Runtime(kinds=["kid"])  # type: ignore[list-item]
    kind = a_kid().definition
    runtime = Runtime(kinds=[kind, kind])
    with pytest.raises(IdTaken, match="kid"):
        runtime.add_kind(Agent.new("kid").definition)


async def test_a_kind_may_be_made_known_later(errors: ErrorRecorder, recorder: SignalRecorder) -> None:
    """From then on children of it can be had."""
    async with Runtime() as runtime:
        await runtime.start(a_boss(recorder), on_error=errors)
        await runtime.call("boss", sig("spawn"))
        runtime.add_kind(a_kid().definition)
        await runtime.call("boss", sig("spawn"))
        assert errors.kinds == ["NotFound"]
        assert runtime.ids() == ["boss", "kid"]


# Losing one


async def test_a_child_that_is_dismissed_finishes_first(recorder: SignalRecorder) -> None:
    """What it accepted is handled; the parent does not wait, and hears of it."""
    done = SignalRecorder()
    kid = a_kid(on={"work": done})
    async with Runtime(kinds=[kid.definition]) as runtime:
        await with_child(runtime, recorder)
        for _ in range(40):
            await runtime.cast("kid", sig("work"))
        await runtime.call("boss", sig("dismiss"))
        assert (await runtime.call("boss", sig("up"))).state["count"] == 1
        await eventually(lambda: recorder.types == [STARTED, EXITED])
        assert len(done) == 40
        assert runtime.ids() == ["boss"]
        assert server_of(runtime, "boss").children == {}


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("dismiss", "normal"),
        ("layoff", "no more work"),
        ("stop", "shutdown"),
        ("end", "normal"),
        ("fail", "gave up after 0 restarts: error: ValueError"),
        ("crash", "gave up after 0 restarts: crashed: SystemExit"),
        ("kill", "killed"),
    ],
)
async def test_a_parent_is_told_why_a_child_is_gone(end: str, reason: str, recorder: SignalRecorder) -> None:
    """However that came about; once, and with its tag and id."""
    layoff = action_returning(StopChild(tag="t", reason="no more work"))
    terms = {"on_error": "stop", "max_restarts": 0}
    async with Runtime(kinds=[a_kid().definition], agent_options=terms) as runtime:
        await runtime.start(a_boss(recorder, layoff=layoff), on_error="log")
        await runtime.call("boss", sig("spawn"))
        kid = server_of(runtime, "kid")
        if end in ("dismiss", "layoff"):
            await runtime.call("boss", sig(end))
        elif end == "stop":
            await runtime.stop("kid")
        elif end == "kill":
            kid.kill()
        else:
            await runtime.cast("kid", sig(end))
        await eventually(lambda: recorder.types == [STARTED, EXITED])
        assert recorder.data[1] == {"tag": "t", "id": "kid", "reason": reason}


async def test_a_child_that_is_started_again_is_there_as_before(recorder: SignalRecorder) -> None:
    """Its parent hears nothing of it, and the child still knows it, also one that was adopted."""
    tell = Emit(signal=sig("up"), dispatch={"parent": True})
    kid = a_kid(on={"tell": action_returning(tell)})
    for adopted in (False, True):
        recorder.clear()
        async with Runtime(kinds=[kid.definition]) as runtime:
            if adopted:
                await runtime.start(kid)
            await runtime.start(a_boss(recorder))
            await runtime.call("boss", sig("adopt" if adopted else "spawn"))
            await runtime.call("kid", sig("up"))
            await runtime.cast("kid", sig("crash"))
            after = await runtime.call("kid", sig("up"))
            assert after.state["count"] == 1
            assert PARENT.get_or_new(after).id == "boss"
            await runtime.call("kid", sig("tell"))
            await eventually(lambda: server_of(runtime, "boss").agent.state.get("count") == 1)
            assert recorder.types == [STARTED]


async def test_a_tag_that_nobody_has_cannot_be_dismissed(
    errors: ErrorRecorder, recorder: SignalRecorder
) -> None:
    """The message lists the tags that there are."""
    async with Runtime(kinds=[a_kid().definition]) as runtime:
        await runtime.start(
            a_boss(recorder, wrong=action_returning(StopChild(tag="nobody"))), on_error=errors
        )
        await runtime.call("boss", sig("spawn"))
        await runtime.call("boss", sig("wrong"))
        assert errors.kinds == ["NotFound"]
        assert "has: t" in errors.messages


async def test_a_parent_without_routes_for_it_need_not_hear_of_its_children(errors: ErrorRecorder) -> None:
    """News of the runtime itself that nobody listens to is no error."""
    boss = an_agent("boss", {"spawn": action_returning(SpawnAgent(kind="kid", tag="t", id="kid"))})
    async with Runtime(kinds=[a_kid().definition], agent_options={"on_error": errors}) as runtime:
        await runtime.start(boss)
        await runtime.call("boss", sig("spawn"))
        await runtime.stop("kid")
        await anyio.wait_all_tasks_blocked()
        assert errors == []
        assert runtime.stats()["handled"] == runtime.stats()["accepted"]


# Being left


async def test_a_child_ends_after_its_parent(recorder: SignalRecorder) -> None:
    """Once it has finished what it accepted, and its own children after it."""
    done = SignalRecorder()
    nest = action_returning(SpawnAgent(kind="kid", tag="g", id="grandkid"))
    kid = a_kid(on={"work": done, "nest": nest})
    async with Runtime(kinds=[kid.definition]) as runtime:
        await with_child(runtime, recorder)
        await runtime.call("kid", sig("nest"))
        for id in ("kid", "grandkid"):
            for _ in range(40):
                await runtime.cast(id, sig("work"))
        await runtime.stop("boss")
        await eventually(lambda: runtime.ids() == [])
        assert len(done) == 80
        assert len(runtime.dropped_signals) == 0


async def test_a_child_may_live_on_without_its_parent(recorder: SignalRecorder) -> None:
    """It is told that it is an orphan, has no parent to talk to, and can be adopted again."""
    orphaned, errors = SignalRecorder(), ErrorRecorder()
    tell = Emit(signal=sig("hello"), dispatch={"parent": True})
    kid = a_kid(on={ORPHANED: orphaned, "tell": action_returning(tell)})
    terms = {"on_parent_exit": "continue", "on_error": errors}
    async with Runtime(kinds=[kid.definition], agent_options=terms) as runtime:
        await with_child(runtime, recorder)
        await runtime.stop("boss")
        await eventually(lambda: orphaned.types == [ORPHANED])
        assert orphaned.data == [{"parent": "boss", "tag": "t", "reason": "shutdown"}]
        assert runtime.ids() == ["kid"]
        await runtime.call("kid", sig("tell"))
        assert errors.kinds == ["NotFound"]
        await runtime.start(a_boss(recorder))
        await runtime.call("boss", sig("adopt"))
        assert server_of(runtime, "kid").parent == ("boss", "t")


@pytest.mark.parametrize("how", ["crash", "temporary", "normal"])
async def test_children_are_orphans_only_when_the_parent_is_gone_for_good(
    how: str, recorder: SignalRecorder
) -> None:
    """A parent that is started again has them as before."""
    more = {"crash": crash, "end": action_returning(Stop())}
    async with Runtime(kinds=[a_kid().definition]) as runtime:
        await runtime.start(
            a_boss(recorder, **more), restart="temporary" if how == "temporary" else "transient"
        )
        await runtime.call("boss", sig("spawn"))
        await runtime.cast("boss", sig("end" if how == "normal" else "crash"))
        if how == "crash":
            assert (await runtime.call("boss", sig("up"))).state["count"] == 1
            assert server_of(runtime, "boss").children == {"t": "kid"}
            await runtime.call("boss", sig("dismiss"))
            await eventually(lambda: runtime.ids() == ["boss"])
        else:
            await wait_until_gone(runtime, "kid")
            assert runtime.ids() == []


async def test_a_child_that_does_not_finish_is_ended_all_the_same(recorder: SignalRecorder) -> None:
    """After the time that there is for shutting down."""
    entered = anyio.Event()

    async def forever(signal: Any, where: Any) -> None:
        entered.set()
        await anyio.sleep_forever()

    hang = action_returning(Emit(signal=sig("x"), dispatch={"void": True}))
    kid = a_kid(on={"hang": hang})
    async with Runtime(
        kinds=[kid.definition], dispatchers={"void": forever}, shutdown_timeout=0.01
    ) as runtime:
        await with_child(runtime, recorder)
        await runtime.call("kid", sig("hang"))
        await entered.wait()
        await runtime.stop("boss")
        await wait_until_gone(runtime, "kid")
        assert runtime.ids() == []
