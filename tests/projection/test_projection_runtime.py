"""A running agent projects its thread once, whatever its providers do."""

from __future__ import annotations

from typing import Any

import anyio
from tests.support.projection import coverage_of
from tests.support.runtime_agents import ErrorRecorder, Provider, an_agent, crash, server_of, sig, to_plain

from omoide import Agent, Context, clock, memory, open_store, thread
from omoide.directives import MEMORY_RESULT, Cron
from omoide.projection import (
    ConversationSummary,
    MessageEmbedder,
    NextActions,
    ProjectionPlugin,
    ProjectionStrategy,
    projection_action,
)
from omoide.runtime import ProviderFailure, ProviderResult, Runtime, StoreProvider
from omoide.testing import ManualTiming, eventually


def hear(ctx: Context) -> Any:
    """Keep what was said in the thread."""
    assert ctx.signal is not None
    return ctx.thread.append({"kind": "message", "payload": {"role": "user", "content": ctx.signal.data}})


def take_note(ctx: Context) -> Any:
    """Keep something that is no message."""
    return ctx.thread.append({"kind": "note", "payload": {"text": "by the way"}})


def running_agent(runtime: Runtime) -> Agent:
    """The agent as it is now."""
    return server_of(runtime).agent


async def test_an_agent_projects_after_so_many_entries() -> None:
    """A summary, and tasks, in the memory that `call` gives; each entry counts once."""
    strategy = ProjectionStrategy([ConversationSummary(), NextActions()], after=4)
    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"say": hear}, strategy=strategy))
        after = await runtime.call("a", sig("say", "We decided to use SQLite."))
        assert memory.world_get(after, "summary") is None
        for text in ("Good.", "Next I will call Ada.", "Fine."):
            after = await runtime.call("a", sig("say", text))
        summary = memory.world_get(after, "summary")
        assert summary["source"] == "projector"
        assert "SQLite" in summary["content"]
        first, last = summary["covers_seq"]
        seqs = [entry.seq for entry in thread.of(after).entries if entry.kind == "message"]
        assert (first, last) == (seqs[0], seqs[-1])
        for text in ("Hm.", "So.", "Well.", "Yes."):
            after = await runtime.call("a", sig("say", text))
        assert [task["text"] for task in memory.tasks_open(after)] == ["call Ada"]
        assert memory.world_get(after, "summary")["covers_seq"][0] == first
        assert memory.world_get(after, "summary")["covers_seq"][1] > last


async def test_an_agent_with_nothing_in_its_thread_projects_nothing() -> None:
    """No error, no memory, however often it is told to; entries of other kinds make no summary."""
    errors = ErrorRecorder()
    strategy = ProjectionStrategy([ConversationSummary()], after=1)
    agent = an_agent("a", {"note": take_note}, routes=[("tick", "strategy_tick")], strategy=strategy)
    async with Runtime() as runtime:
        await runtime.start(agent, on_error=errors)
        for _ in range(3):
            await runtime.call("a", sig("tick"))
        assert memory.get(await runtime.state("a")) is None
        after = await runtime.call("a", sig("note"))
        assert memory.world_get(after, "summary") is None
        assert errors == []


async def test_an_agent_projects_at_each_tick_of_a_clock() -> None:
    """Where its strategy is ticked by a cron job."""
    timing = ManualTiming(0)
    every = Cron(expression="* * * * *", message=sig("tick"))
    strategy = ProjectionStrategy([ConversationSummary()], after=1_000)
    agent = an_agent(
        "a",
        {"say": hear, "go": lambda ctx: (None, [every])},
        routes=[("tick", "strategy_tick")],
        strategy=strategy,
    )
    with clock.override(timing):
        async with Runtime(timing=timing) as runtime:
            await runtime.start(agent)
            await runtime.call("a", sig("go"))
            await runtime.call("a", sig("say", "The harbour opens at six."))
            assert memory.world_get(running_agent(runtime), "summary") is None
            await timing.advance(60_000)
            summary = memory.world_get(running_agent(runtime), "summary")
            assert summary["projected_at"] == 60_000
            await timing.advance(60_000)
            assert memory.world_get(running_agent(runtime), "summary") is summary


async def test_an_agent_projects_on_demand() -> None:
    """By an action, which a signal may lead to."""
    project = projection_action([ConversationSummary()])
    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"say": hear}, routes=[("project", project)]))
        await runtime.call("a", sig("say", "The harbour opens at six."))
        after = await runtime.call("a", sig("project"))
        assert "harbour" in memory.world_get(after, "summary")["content"]


async def test_messages_are_put_into_a_store_and_can_be_found() -> None:
    """Through directives: nothing is covered before the provider has said that it has it."""
    strategy = ProjectionStrategy([MessageEmbedder()], after=1)
    agent = memory.world_put(
        an_agent("a", {"say": hear}, strategy=strategy), "pointers", {"semantic": {"provider": "library"}}
    )
    async with open_store("memory://", embedder="none") as store:
        provider = StoreProvider(store)
        async with Runtime(providers={"library": provider}) as runtime:
            await runtime.start(agent)
            for text in ("The harbour opens at six.", "The inn has twelve beds."):
                await runtime.call("a", sig("say", text))
            await eventually(lambda: len(coverage_of(running_agent(runtime), "message_embedder")) == 2)
            await eventually(
                lambda: (
                    coverage_of(running_agent(runtime), "message_embedder")[1]
                    == thread.of(running_agent(runtime)).entries[-1].seq
                )
            )
            found = runtime.providers.resolve("semantic", running_agent(runtime))
            answer = await provider.query(None, {"text": "harbour", "top_k": 1}, found.opts)
            assert isinstance(answer, ProviderResult)
            assert answer.value[0]["value"] == "The harbour opens at six."


async def test_what_a_provider_lost_is_asked_for_again() -> None:
    """It fails at first: nothing is covered, the agent goes on, and in the end each message is kept once."""
    kept: dict[str, int] = {}
    fails = [True]

    def put(state: Any, key: str) -> Any:
        if fails[0]:
            return ProviderFailure(state, "no line")
        kept[key] = kept.get(key, 0) + 1
        return ProviderResult(state)

    timing = ManualTiming(1_000_000)
    strategy = ProjectionStrategy([MessageEmbedder(provider="p", retry_ms=1_000)], after=1)
    with clock.override(timing):
        async with Runtime(providers={"p": Provider(put=put)}, timing=timing) as runtime:
            await runtime.start(an_agent("a", {"say": hear}, strategy=strategy))
            for text in ("one", "two"):
                await runtime.call("a", sig("say", text))
                await anyio.wait_all_tasks_blocked()
            assert coverage_of(running_agent(runtime), "message_embedder") == []
            fails[0] = False
            await timing.advance(2_000)
            await runtime.call("a", sig("say", "three"))
            await eventually(lambda: len(kept) == 3)
            await anyio.wait_all_tasks_blocked()
            assert [*kept.values()] == [1, 1, 1]


async def test_a_crash_in_between_neither_loses_nor_doubles_a_message() -> None:
    """The mark is part of the memory: the new life asks again under the same keys."""
    kept: set[str] = set()
    gate = anyio.Event()

    async def put(state: Any, key: str) -> Any:
        await gate.wait()
        kept.add(key)
        return ProviderResult(state)

    strategy = ProjectionStrategy([MessageEmbedder(provider="p")], after=1)
    provider = Provider(put=put)
    agent = an_agent(
        "a", {"say": hear, "crash": crash}, routes=[("tick", "strategy_tick")], strategy=strategy
    )
    async with (
        open_store("memory://", embedder="none") as store,
        Runtime(providers={"p": provider}, store=store) as runtime,
    ):
        await runtime.start(agent, save_every=1)
        await runtime.call("a", sig("say", "one"))
        await provider.entered.wait()
        await runtime.cast("a", sig("crash"))
        gate.set()
        await runtime.call("a", sig("tick"))
        await eventually(lambda: coverage_of(running_agent(runtime), "message_embedder"))
        messages = [entry for entry in thread.of(running_agent(runtime)).entries if entry.kind == "message"]
        assert len(messages) == 1
        assert kept == {f"{thread.of(running_agent(runtime)).id}:{messages[0].seq}"}


async def test_an_agent_with_another_strategy_takes_in_answers_by_a_plugin() -> None:
    """Beside its own routes for them."""
    taken: list[str] = []

    def take(ctx: Context) -> None:
        assert ctx.signal is not None
        taken.append(to_plain(ctx.signal.data)["status"])

    project = projection_action([MessageEmbedder(provider="p")])
    agent = an_agent(
        "a", {"say": hear, MEMORY_RESULT: take}, routes=[("project", project)], plugins=[ProjectionPlugin]
    )
    async with Runtime(providers={"p": Provider()}) as runtime:
        await runtime.start(agent)
        await runtime.call("a", sig("say", "one"))
        await runtime.call("a", sig("project"))
        await eventually(lambda: coverage_of(running_agent(runtime), "message_embedder"))
        assert taken == ["ok"]
