"""Capabilities of running agents follow their plugins, and children know how they came to be."""

from __future__ import annotations

from functools import partial
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
    crash,
    server_of,
    sig,
    to_plain,
)

from omoide import Agent, Context, Plugin, Signal, action, identity, memory
from omoide.directives import SpawnAgent
from omoide.errors import InvalidDefinition, MountFailed, NotFound, NotRunning
from omoide.runtime import Runtime
from omoide.testing import ManualTiming, eventually

REQUEST, RESPONSE = "jido.identity.capabilities.request", "jido.identity.capabilities.response"


@action
def fetch(ctx: Context) -> dict[str, Any]:
    return {"fetched": ctx.state.get("fetched", 0) + 1}


class WebPlugin(Plugin):
    """Offers `fetch` by a route, a subscription and a schedule."""

    name = "web"
    actions = (fetch,)
    subscriptions = ("news.**",)
    schedules = (("@hourly", Signal(type="web.fetch")),)

    def mount(self, agent: Agent, config: Any) -> Any:
        return {"mounted": True}, memory.ensure_space(agent, "web:cache", {})

    def router(self, config: Any) -> Any:
        return [("web.fetch", fetch), ("news.**", fetch)]


async def actions_of(runtime: Runtime, id: str = "a") -> list[str]:
    """The actions of a running agent, as it says itself when it is asked."""
    told: list[Signal] = []
    subscription = await runtime.transport.subscribe(RESPONSE, told.append)
    await runtime.call(id, sig(REQUEST))
    await eventually(lambda: told)
    await subscription.close()
    said = to_plain(told[0].data)["capabilities"]["actions"]
    assert said == identity.actions(await runtime.state(id))
    return list(said)


async def test_a_plugin_is_mounted_on_a_running_agent_and_taken_off_again() -> None:
    """Its actions, routes and slice come and go with it, and with them what the agent says it can do."""
    async with Runtime() as runtime:
        await runtime.start(an_agent("a"))
        assert await actions_of(runtime) == []
        mounted = await runtime.mount("a", WebPlugin)
        assert mounted.state["web"] == {"mounted": True}
        assert memory.has_space(mounted, "web:cache")
        assert await actions_of(runtime) == ["fetch"]
        assert [one.agent.id for one in await runtime.find(action=fetch)] == ["a"]
        assert (await runtime.call("a", sig("web.fetch"))).state["fetched"] == 1
        gone = await runtime.unmount("a", "web")
        assert "web" not in gone.state
        assert await actions_of(runtime) == []
        assert await runtime.find(action="fetch") == []


async def test_what_a_plugin_declares_runs_while_it_is_mounted() -> None:
    """Its schedules and subscriptions begin with the mount, and end with it."""
    timing = ManualTiming(0)
    async with Runtime(timing=timing) as runtime:
        await runtime.start(an_agent("a"))
        await runtime.mount("a", WebPlugin)
        await anyio.wait_all_tasks_blocked()
        await runtime.publish(sig("news.today"))
        await timing.advance(3_600_000)
        await eventually(lambda: server_of(runtime, "a").agent.state.get("fetched") == 2)
        await runtime.unmount("a", "web")
        await anyio.wait_all_tasks_blocked()
        await runtime.publish(sig("news.today"))
        await timing.advance(7_200_000)
        await anyio.wait_all_tasks_blocked()
        assert (await runtime.state("a")).state["fetched"] == 2
        assert not server_of(runtime, "a").task_scope.named_tasks


async def test_signals_before_the_mount_are_handled_without_the_plugin(errors: ErrorRecorder) -> None:
    """It is mounted in its turn, like any other change of the agent."""
    async with Runtime(agent_options={"on_error": errors}) as runtime:
        await runtime.start(an_agent("a"))
        await runtime.cast("a", sig("web.fetch"))
        await runtime.mount("a", WebPlugin)
        after = await runtime.call("a", sig("web.fetch"))
        assert after.state["fetched"] == 1
        assert errors.kinds == ["RoutingError"]


class Broken(Plugin):
    """Cannot be mounted."""

    name = "broken"

    def mount(self, agent: Agent, config: Any) -> Any:
        raise RuntimeError("no")


async def test_a_mount_that_fails_is_told_to_the_caller_and_changes_nothing(errors: ErrorRecorder) -> None:
    """The agent keeps running as it was."""
    async with Runtime(agent_options={"on_error": errors}) as runtime:
        await runtime.start(an_agent("a"))
        before = await runtime.state("a")
        with pytest.raises(MountFailed, match="broken"):
            await runtime.mount("a", Broken)
        with pytest.raises(NotFound, match="web"):
            await runtime.unmount("a", "web")
        with pytest.raises(NotRunning):
            await runtime.mount("b", WebPlugin)
        assert await runtime.state("a") is before
        await runtime.mount("a", WebPlugin)
        with pytest.raises(InvalidDefinition, match="duplicate"):
            await runtime.mount("a", WebPlugin)
        assert errors == []


async def test_a_restart_keeps_the_plugins() -> None:
    """Whether the agent was saved or not; what was taken off stays off."""
    for save_every in (None, 1):
        agent = an_agent("a", {"crash": crash, "up": count_signals})
        store = {} if save_every is None else {"checkpoint_store": MemoryCheckpoints()}
        async with Runtime(**store) as runtime:
            await runtime.start(agent, save_every=save_every, restart="permanent")
            await runtime.call("a", sig("up"))
            await runtime.mount("a", WebPlugin)
            await runtime.cast("a", sig("crash"))
            await eventually(partial(restarted, runtime, 1))
            after = await runtime.call("a", sig("web.fetch"))
            assert (after.state["web"], after.state["fetched"]) == ({"mounted": True}, 1)
            await runtime.unmount("a", "web")
            await runtime.cast("a", sig("crash"))
            await eventually(partial(restarted, runtime, 2))
            after = await runtime.call("a", sig("up"))
            assert "web" not in after.state
            assert identity.actions(after) == ["on_crash"] or "fetch" not in identity.actions(after)


def restarted(runtime: Runtime, times: int) -> bool:
    return len(server_of(runtime, "a").restart_times) == times


def MemoryCheckpoints() -> Any:  # noqa: N802 - reads as the store that it makes
    from omoide.runtime import DocumentCheckpointStore
    from omoide.stores import open_store

    return DocumentCheckpointStore(open_store("memory://", embedder="none"))


async def test_a_hibernated_agent_is_thawed_with_the_definition_that_it_had(
    checkpoints: GatedCheckpointStore,
) -> None:
    """Its slice was saved with it, and its plugin belongs to its definition."""
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.start(an_agent("a"))
        kind = (await runtime.mount("a", WebPlugin)).definition
        await runtime.call("a", sig("web.fetch"))
        await runtime.hibernate("a")
        await runtime.thaw("a", kind)
        assert await actions_of(runtime) == ["fetch"]
        assert (await runtime.call("a", sig("web.fetch"))).state["fetched"] == 2


# Who is asked


async def test_find_asks_for_io_and_for_agents_without_an_identity() -> None:
    """Local and remote answers agree: what an agent says of itself is what it is found by."""
    quiet = identity.set_io(an_agent("quiet", plugins=[OfferingPlugin]), "network", False)
    net = identity.set_io(an_agent("net", plugins=[OfferingPlugin]), "network", True)
    async with Runtime() as runtime:
        for agent in (quiet, net, an_agent("bare", plugins=[OfferingPlugin])):
            await runtime.start(agent)
        assert await ids(runtime, action=fetch, io={"network": True}) == ["net"]
        assert await ids(runtime, action="fetch", io={"network": False}) == ["quiet", "bare"]
        assert await actions_of(runtime, "bare") == ["fetch"]


class OfferingPlugin(Plugin):
    """Offers `fetch` and nothing else."""

    name = "offering"
    actions = (fetch,)


async def ids(runtime: Runtime, **wanted: Any) -> list[str]:
    return [one.agent.id for one in await runtime.find(**wanted)]


# Children


async def spawned(boss: Agent, kid: Agent, recorder: SignalRecorder) -> Agent:
    """The child of an agent."""
    async with Runtime(kinds=[kid.definition]) as runtime:
        await runtime.start(boss)
        await runtime.call("boss", sig("spawn"))
        await eventually(lambda: "jido.agent.child.started" in recorder.types)
        return await runtime.state("kid")


def a_boss(recorder: SignalRecorder, **state: Any) -> Agent:
    spawn = SpawnAgent(kind="kid", tag="t", id="kid", state=state)
    return an_agent("boss", {"spawn": action_returning(spawn), "jido.agent.child.*": recorder})


async def test_a_child_knows_that_it_was_spawned_and_in_which_generation(recorder: SignalRecorder) -> None:
    """One after its parent; a parent that counts none is the first."""
    child = await spawned(a_boss(recorder), an_agent("kid", kind="kid"), recorder)
    assert identity.of(child).profile == {"age": None, "origin": "spawned", "generation": 1}
    recorder.clear()
    boss = identity.ensure(a_boss(recorder), profile={"generation": 3})
    child = await spawned(boss, an_agent("kid", kind="kid"), recorder)
    assert identity.get_profile(child, "generation") == 4


async def test_a_child_whose_origin_was_given_keeps_it(recorder: SignalRecorder) -> None:
    """What the spawner says in the state comes first; the rest of the identity stays."""
    given = identity.of(
        identity.ensure(Agent.new("x"), profile={"age": 2, "origin": "cloned", "generation": 9})
    )
    child = await spawned(a_boss(recorder, __identity__=given), an_agent("kid", kind="kid"), recorder)
    assert identity.of(child).profile == {"age": 2, "origin": "cloned", "generation": 9}
    recorder.clear()

    class Configured(Plugin):
        name = "configured"

        def mount(self, agent: Agent, config: Any) -> Agent:
            return identity.ensure(agent, profile={"age": 1, "origin": "configured"})

    child = await spawned(a_boss(recorder), an_agent("kid", kind="kid", plugins=[Configured]), recorder)
    assert identity.of(child).profile == {"age": 1, "origin": "spawned", "generation": 1}


async def test_a_child_without_the_identity_plugin_gets_no_identity(recorder: SignalRecorder) -> None:
    """It says nothing of itself."""
    kid = an_agent("kid", kind="kid", default_plugins={"__identity__": False})
    assert identity.get(await spawned(a_boss(recorder), kid, recorder)) is None
