"""Memory and identity of a running agent stay consistent, and within their limits."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.runtime_agents import (
    RESULT,
    ErrorRecorder,
    GatedCheckpointStore,
    Provider,
    SignalRecorder,
    action_returning,
    an_agent,
    count_signals,
    crash,
    server_of,
    sig,
    to_plain,
)

from omoide import Agent, Context, Plugin, action, identity, memory
from omoide.core.state import MEMORY
from omoide.directives import MemoryQuery, MemoryUpsert
from omoide.runtime import AgentServer, ProviderResult, Runtime
from omoide.runtime import Provider as IsProvider
from omoide.testing import eventually


class Rag(Plugin):
    """Brings a pointer, a space, and what it shows of itself; takes in what is found."""

    name = "rag"
    signal_patterns = (RESULT,)

    def mount(self, agent: Agent, config: Mapping[str, Any]) -> Any:
        agent = memory.world_put(agent, "pointers", {"semantic": {"provider": config["provider"]}})
        agent = memory.ensure_space(agent, "rag:cache", {})
        agent = identity.put_extension(identity.ensure(agent), "rag", {"__public__": {"reads": True}})
        return {"mounted_at": 9}, agent

    def router(self, config: Mapping[str, Any]) -> Any:
        @action
        def cache(ctx: Context, request_id: str, result: list[Any]) -> Any:
            return ctx.memory.put_in_space("rag:cache", request_id, result)

        return [(RESULT, cache)]


async def test_what_a_plugin_brings_is_there_from_the_first_signal_on(
    checkpoints: GatedCheckpointStore,
) -> None:
    """Pointer, space and extension; also after a crash, and after the agent slept."""
    hits = [{"key": "a", "score": 0.5, "value": "tea"}]
    provider = Provider(query=lambda state, given: ProviderResult(state, hits))
    ask = MemoryQuery(provider="semantic", request_id="r", query={"text": "tea"})
    agent = an_agent(
        "a", {"go": action_returning(ask), "crash": crash}, plugins=[(Rag, {"provider": "vectors"})]
    )
    async with Runtime(providers={"vectors": provider}, checkpoint_store=checkpoints) as runtime:
        for begin in ("start", "crash", "sleep"):
            if begin == "start":
                await runtime.start(agent)
            elif begin == "crash":
                await runtime.cast("a", sig("crash"))
            else:
                await runtime.hibernate("a")
                await runtime.thaw("a", agent.definition)
            await runtime.call("a", sig("go"))
            await eventually(lambda: memory.get_in_space(server_of(runtime).agent, "rag:cache", "r"))
            after = await runtime.state("a")
            assert to_plain(memory.get_in_space(after, "rag:cache", "r")) == hits
            assert after.state["rag"]["mounted_at"] == 9
            shown = identity.snapshot(after)
            assert shown is not None
            assert to_plain(shown["extensions"]) == {"rag": {"reads": True}}


def observe(ctx: Context) -> Any:
    """Keep a belief and an intention, as an action should."""
    assert ctx.signal is not None
    known = ctx.memory.world_put("temperature", ctx.signal.data)
    return known.append_to_space("tasks", {"id": str(ctx.signal.data), "text": "open the window"})


async def test_beliefs_go_into_the_memory_and_count_though_there_was_none_before() -> None:
    """Revisions grow, and nothing is written beside the slot."""
    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"temp": observe}))
        assert memory.get(await runtime.state("a")) is None
        first = await runtime.call("a", sig("temp", 22))
        second = await runtime.call("a", sig("temp", 30))
        assert {*second.state} == {MEMORY.key}
        assert memory.world_get(second, "temperature") == 30
        assert [task["id"] for task in MEMORY.get_or_new(second).spaces["tasks"].data] == ["22", "30"]
        before, after = MEMORY.get_or_new(first), MEMORY.get_or_new(second)
        assert 0 < before.rev < after.rev
        for space in ("world", "tasks"):
            assert 0 < before.spaces[space].rev < after.spaces[space].rev


async def test_what_an_action_returns_under_other_names_is_no_memory() -> None:
    """A map is merged into the state as it is; who means the memory returns the memory."""

    def wrong(ctx: Context) -> Any:
        return {"world": {"temperature": 22}, "tasks": []}

    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"temp": observe, "wrong": wrong}))
        before = await runtime.call("a", sig("temp", 22))
        after = await runtime.call("a", sig("wrong"))
        assert MEMORY.get_or_new(after) is MEMORY.get_or_new(before)
        assert to_plain(after.state["world"]) == {"temperature": 22}


# What must not be


def reachable(start: object, found: type | tuple[type, ...]) -> list[object]:
    """What of a kind can be reached from something by following its data, classes and modules aside."""
    seen: dict[int, object] = {}
    todo = [start]
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, type) or type(one).__name__ in ("module", "function", "frame"):
            continue
        seen[id(one)] = one
        todo += gc.get_referents(one)
    return [one for one in seen.values() if isinstance(one, found)]


async def test_no_action_can_reach_a_provider(recorder: SignalRecorder) -> None:
    """From what it is given, no way leads to the runtime, a server or a provider: it can only ask."""
    found: list[object] = []

    def look(ctx: Context) -> None:
        found.extend(reachable(ctx, (Runtime, AgentServer, IsProvider)))
        assert reachable(ctx, Agent)

    @action(effectful=True)
    async def look_from_outside(ctx: Context) -> None:
        look(ctx)

    class Looking(Plugin):
        name = "looking"

        def handle_signal(self, signal: Any, ctx: Context) -> None:
            look(ctx)

    errors = ErrorRecorder()
    put = MemoryUpsert(provider="p", request_id="put", items=[{"key": "a", "value": 1}])
    agent = an_agent(
        "a",
        {"go": action_returning(put), "look": look, "out": look_from_outside, RESULT: look},
        plugins=[Looking],
    )
    async with Runtime(providers={"p": Provider(), "q": "inline"}) as runtime:
        await runtime.start(agent, on_error=errors)
        for type in ("go", "look", "out"):
            await runtime.call("a", sig(type))
        await runtime.stop("a")
    assert (found, errors) == ([], [])


async def test_a_space_that_is_full_stays_within_its_bounds(errors: ErrorRecorder) -> None:
    """A write beyond them is an error that the policy is told, and the memory is as it was."""

    def fill(ctx: Context) -> Any:
        assert ctx.signal is not None
        known = ctx.memory.ensure_space("rag:cache", {}, max_items=2)
        return known.put_in_space("rag:cache", str(ctx.signal.data), "x")

    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"fill": fill, "up": count_signals}), on_error=errors)
        for number in range(3):
            await runtime.call("a", sig("fill", number))
        after = await runtime.state("a")
        assert [one.context for one in errors] == ["run"]
        space = memory.space(after, "rag:cache")
        assert space is not None
        assert sorted(space.data) == ["0", "1"]
        assert (await runtime.call("a", sig("up"))).state["count"] == 1


async def test_what_is_kept_inline_keeps_to_the_limits_of_its_space(recorder: SignalRecorder) -> None:
    """What would go beyond them is an error result, and nothing of it is kept."""

    def put(*keys: str) -> MemoryUpsert:
        return MemoryUpsert(provider="inline", items=[{"key": key, "value": 1} for key in keys])

    agent = an_agent("a", {"go": action_returning(put("a", "b"), put("c"), put("a")), RESULT: recorder})
    agent = memory.ensure_space(agent, "inline:inline", {}, max_items=2)
    async with Runtime() as runtime:
        await runtime.start(agent)
        await runtime.call("a", sig("go"))
        await eventually(lambda: len(recorder) == 3)
        space = memory.space(await runtime.state("a"), "inline:inline")
        assert space is not None
        assert to_plain(space.data) == {"a": 1, "b": 1}
        assert (space.max_items, space.rev > 0) == (2, True)
    assert [data["status"] for data in recorder.data] == ["ok", "error", "ok"]
    assert recorder.data[1]["meta"]["provider"] == "inline"


@pytest.mark.parametrize("name", ["world", "tasks"])
async def test_no_action_can_take_the_built_in_spaces_away(name: str, errors: ErrorRecorder) -> None:
    """Other spaces can be deleted; world and tasks stay."""

    def remove(ctx: Context) -> Any:
        return ctx.memory.ensure_space("rag:cache", {}).delete_space("rag:cache").delete_space(name)

    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"temp": observe, "remove": remove}), on_error=errors)
        await runtime.call("a", sig("temp", 22))
        after = await runtime.call("a", sig("remove"))
        assert memory.world_get(after, "temperature") == 22
        assert memory.space(after, name) is not None
        assert len(errors) == 1
        assert name in errors.messages


async def test_what_is_kept_inline_has_a_space_that_collides_with_nobodys(recorder: SignalRecorder) -> None:
    """Each alias its own, beside a space of the same name that a plugin has."""
    asked = [
        MemoryUpsert(provider=alias, request_id=alias, items=[{"key": "k", "value": alias}])
        for alias in ("notes", "world", "tasks")
    ]
    agent = memory.ensure_space(
        an_agent("a", {"go": action_returning(*asked), RESULT: recorder}), "notes", {"own": 1}
    )
    async with Runtime(providers={"notes": "inline", "world": "inline", "tasks": "inline"}) as runtime:
        await runtime.start(agent)
        await runtime.call("a", sig("go"))
        await eventually(lambda: len(recorder) == 3)
        after = await runtime.state("a")
    assert to_plain(memory.space(after, "notes").data) == {"own": 1}  # type: ignore[union-attr]
    assert to_plain(memory.space(after, "world").data) == {}  # type: ignore[union-attr]
    for alias in ("notes", "world", "tasks"):
        assert to_plain(memory.space(after, f"inline:{alias}").data) == {"k": alias}  # type: ignore[union-attr]
