"""Every memory directive of an agent is answered by exactly one signal."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest
from tests.support.runtime_agents import (
    RESULT,
    ErrorRecorder,
    Provider,
    SignalRecorder,
    action_returning,
    an_agent,
    count_signals,
    server_of,
    sig,
    to_plain,
)

from omoide import Agent, Context, Plugin, action, memory
from omoide.directives import Directive, MemoryDelete, MemoryQuery, MemoryUpsert
from omoide.runtime import InlineProvider, ProviderFailure, ProviderResult, Runtime, StoreProvider
from omoide.runtime.providers import drop_table
from omoide.runtime.providers.resolver import INLINE_PREFIX
from omoide.strategy import Direct
from omoide.testing import eventually


def upsert(provider: str = "p", id: str = "put", **more: Any) -> MemoryUpsert:
    """A request to keep two things."""
    items = more.pop("items", [{"key": "tea", "value": {"price": 4}}, {"key": "milk", "value": {"price": 2}}])
    return MemoryUpsert(provider=provider, request_id=id, items=items, **more)


def query(provider: str = "p", id: str = "ask", **more: Any) -> MemoryQuery:
    """A request to find something."""
    return MemoryQuery(provider=provider, request_id=id, query=more.pop("query", {}), **more)


def delete(provider: str = "p", id: str = "del", *keys: str) -> MemoryDelete:
    """A request to delete."""
    return MemoryDelete(provider=provider, request_id=id, keys=keys or ["tea"])


def make_requester(recorder: Any, *directives: Directive, **more: Any) -> Agent:
    """An agent that asks for these, and hears the answers."""
    return an_agent("a", {"go": action_returning(*directives), RESULT: recorder, "up": count_signals, **more})


async def answers_to(recorder: SignalRecorder, *directives: Directive, **options: Any) -> list[Any]:
    """What the signals said that an agent got for its directives, in a runtime of its own."""
    async with Runtime(**options) as runtime:
        await runtime.start(make_requester(recorder, *directives))
        await runtime.call("a", sig("go"))
        await eventually(lambda: len(recorder) == len(directives))
    return recorder.data


# The answer


async def test_each_kind_of_request_is_answered_by_one_signal(recorder: SignalRecorder) -> None:
    """With its request id, a status, what was found, and where and how fast it was."""
    asked = [upsert("inline"), query("inline"), delete("inline"), query("inline", "again")]
    put, found, gone, again = await answers_to(recorder, *asked)
    assert recorder.types == [RESULT] * 4
    assert [signal.subject for signal in recorder] == ["put", "ask", "del", "again"]
    assert {signal.source for signal in recorder} == {"/omoide/agents/a"}
    for data in (put, found, gone, again):
        latency = data.pop("meta").pop("latency_ms")
        assert isinstance(latency, int)
        assert latency >= 0
    ok = [{"key": key, "status": "ok"} for key in ("tea", "milk")]
    assert put == {"request_id": "put", "status": "ok", "result": [], "details": ok}
    hits = [{"key": key, "score": 1.0, "value": {"price": price}} for key, price in (("milk", 2), ("tea", 4))]
    assert found == {"request_id": "ask", "status": "ok", "result": hits}
    assert gone == {"request_id": "del", "status": "ok", "result": [], "details": ok[:1]}
    assert again["result"] == hits[:1]


async def test_an_answer_has_the_type_that_was_wished_for(recorder: SignalRecorder) -> None:
    """For each of the three; one that no signal can have is answered under the usual one."""
    other = SignalRecorder()
    named = [
        one.replace(reply_signal_type="my.answer")
        for one in (upsert("inline"), query("inline"), delete("inline"))
    ]
    wrong = [query("inline", "wrong", reply_signal_type="no.*.type"), query("inline", "after")]
    async with Runtime() as runtime:
        await runtime.start(make_requester(recorder, *named, *wrong, **{"my.answer": other}))
        await runtime.call("a", sig("go"))
        await eventually(lambda: (len(other), len(recorder)) == (3, 2))
    assert {data["request_id"] for data in other.data} == {"put", "ask", "del"}
    assert [data["request_id"] for data in recorder.data] == ["wrong", "after"]


async def test_a_request_without_an_id_is_given_one(recorder: SignalRecorder) -> None:
    """Each its own."""
    asked = [MemoryQuery(provider="inline", query={}) for _ in range(2)]
    told = await answers_to(recorder, *asked)
    ids = [data["request_id"] for data in told]
    assert ids == [one.request_id for one in asked]
    assert len({*ids}) == 2
    assert all(id.startswith("req_") for id in ids)


async def test_two_requests_of_one_id_are_answered_under_two(recorder: SignalRecorder) -> None:
    """While the first is open; afterwards the id is free again."""
    first, second = await answers_to(recorder, query("inline", "same"), query("inline", "same"))
    assert first["request_id"] == "same"
    assert second["request_id"].startswith("req_")
    assert second["status"] == "ok"
    recorder.clear()
    async with Runtime() as runtime:
        await runtime.start(make_requester(recorder, query("inline", "same")))
        for _ in range(2):
            await runtime.call("a", sig("go"))
            await anyio.wait_all_tasks_blocked()
    assert [data["request_id"] for data in recorder.data] == ["same", "same"]


async def test_answers_come_to_the_strategy_like_any_signal() -> None:
    """Through plugins and routes: whoever routes them takes them."""
    seen: list[str] = []

    @action
    def take(ctx: Context, request_id: str, status: str) -> dict[str, Any]:
        return {"took": f"{request_id}: {status}"}

    class Routing(Direct):
        def signal_routes(self) -> list[Any]:
            return [(RESULT, take)]

    class Looking(Plugin):
        name = "looking"
        signal_patterns = (RESULT,)

        def handle_signal(self, signal: Any, ctx: Any) -> None:
            seen.append(signal.type)

    agent = an_agent("a", {"go": action_returning(query("nobody"))}, strategy=Routing(), plugins=[Looking])
    async with Runtime() as runtime:
        await runtime.start(agent)
        await runtime.call("a", sig("go"))
        await eventually(lambda: server_of(runtime).agent.state.get("took"))
        assert (await runtime.state("a")).state["took"] == "ask: error"
    assert seen == [RESULT]


async def test_an_answer_that_nobody_takes_is_an_error_only_if_it_is_one(errors: ErrorRecorder) -> None:
    """A good one is dropped without a fuss, a bad one comes to the policy."""
    async with Runtime() as runtime:
        await runtime.start(
            an_agent("a", {"go": action_returning(query("inline"), query("nobody"))}), on_error=errors
        )
        await runtime.call("a", sig("go"))
        await eventually(lambda: errors)
        await anyio.wait_all_tasks_blocked()
    assert [(one.context, one.kind) for one in errors] == [("memory", "ProviderFailed")]
    assert "nobody" in errors.messages


# Beside the agent, and in order


async def test_asking_holds_up_neither_signals_nor_directives(recorder: SignalRecorder) -> None:
    """A provider takes its time; the agent goes on, and other providers answer meanwhile."""
    gate = anyio.Event()

    async def slow(state: Any, given: Any) -> Any:
        await gate.wait()
        return ProviderResult(state, [])

    provider = Provider(query=slow)
    async with Runtime(providers={"slow": provider, "fast": Provider()}) as runtime:
        await runtime.start(make_requester(recorder, query("slow", "slow"), query("fast", "fast")))
        await runtime.call("a", sig("go"))
        assert (await runtime.call("a", sig("up"))).state["count"] == 1
        await eventually(lambda: [data["request_id"] for data in recorder.data] == ["fast"])
        gate.set()
        await eventually(lambda: [data["request_id"] for data in recorder.data] == ["fast", "slow"])


async def test_requests_to_one_provider_are_served_in_order_each_with_the_state_of_the_last(
    recorder: SignalRecorder,
) -> None:
    """The state that comes back is kept, also from one that failed, and from signal to signal."""
    states: list[int] = []

    def step(state: int, given: Any) -> Any:
        states.append(state)
        return ProviderFailure(state + 1, "no") if state % 2 else ProviderResult(state + 1, [])

    provider = Provider(put=step, query=step, delete=step)
    async with Runtime(providers={"p": provider}) as runtime:
        await runtime.start(make_requester(recorder, upsert(), query(), delete()))
        for _ in range(2):
            await runtime.call("a", sig("go"))
        await eventually(lambda: len(recorder) == 6)
    assert states == [*range(8)]
    assert [method for method, _ in provider.asked] == ["put", "put", "query", "delete"] * 2


async def test_two_agents_have_each_their_own_state_of_a_provider(recorder: SignalRecorder) -> None:
    """What one of them did is nothing that the other has to go on from."""
    states: list[int] = []

    def step(state: int, given: Any) -> Any:
        states.append(state)
        return ProviderResult(state + 1, [])

    async with Runtime(providers={"p": Provider(query=step)}) as runtime:
        for id in ("one", "two"):
            await runtime.start(make_requester(recorder, query()), id=id)
            await runtime.call(id, sig("go"))
        await eventually(lambda: len(recorder) == 2)
    assert states == [0, 0]


async def test_the_end_waits_for_answers(recorder: SignalRecorder) -> None:
    """Whatever was asked before an agent is stopped is answered and handled."""
    async with Runtime(providers={"p": Provider()}) as runtime:
        await runtime.start(make_requester(recorder, upsert(), query(), delete()))
        await runtime.cast("a", sig("go"))
    assert len(recorder) == 3
    assert len(runtime.dropped_signals) == 0


# Which provider it is


async def test_an_alias_is_what_the_world_or_the_program_says(recorder: SignalRecorder) -> None:
    """`meta.provider` is the name of the backend behind it, not the alias."""
    pointers = {"semantic": {"provider": "vectors"}, "kept": {"provider": "inline"}}
    asked = [query(alias, alias) for alias in ("semantic", "kept", "vectors", "inline", "table", "scripted")]
    agent = memory.world_put(make_requester(recorder, *asked), "pointers", pointers)
    async with Runtime(providers={"vectors": Provider()}) as runtime:
        await runtime.start(agent)
        await runtime.call("a", sig("go"))
        await eventually(lambda: len(recorder) == len(asked))
    told = {data["request_id"]: (data["status"], data["meta"]["provider"]) for data in recorder.data}
    assert told == {
        "semantic": ("ok", "scripted"),
        "kept": ("ok", "inline"),
        "vectors": ("ok", "scripted"),
        "inline": ("ok", "inline"),
        "table": ("ok", "table"),
        "scripted": ("ok", "scripted"),
    }


async def test_a_pointer_that_changes_means_another_provider_from_then_on(recorder: SignalRecorder) -> None:
    """With a state of its own; so does one that says something else to the same provider."""
    states: list[int] = []

    def step(state: int, given: Any) -> Any:
        states.append(state)
        return ProviderResult(state + 1, [])

    first, second = Provider(query=step), Provider(query=step)
    second.name = "another"
    pointers = [{"provider": "one"}, {"provider": "two"}, {"provider": "two", "index": "x"}]

    def point(ctx: Context) -> Any:
        assert ctx.signal is not None
        return ctx.memory.world_put("pointers", {"semantic": ctx.signal.data})

    def has_answers(count: int) -> bool:
        return len(recorder) == count

    async with Runtime(providers={"one": first, "two": second}) as runtime:
        await runtime.start(make_requester(recorder, query("semantic"), point=point))
        for number, pointer in enumerate(pointers, 1):
            await runtime.call("a", sig("point", pointer))
            for _ in range(2):
                await runtime.call("a", sig("go"))
            await eventually(partial(has_answers, 2 * number))
    assert [data["meta"]["provider"] for data in recorder.data] == ["scripted"] * 2 + ["another"] * 4
    assert states == [0, 1] * 3


@pytest.mark.parametrize(
    "pointer", [{"provider": "file:///etc"}, "text", {"provider": 7}, {"provider": "no"}]
)
async def test_a_pointer_that_leads_nowhere_is_an_error_result(
    pointer: Any, recorder: SignalRecorder
) -> None:
    """Not a crash, and nothing is opened."""
    agent = memory.world_put(make_requester(recorder, upsert("semantic")), "pointers", {"semantic": pointer})
    async with Runtime() as runtime:
        await runtime.start(agent)
        await runtime.call("a", sig("go"))
        await eventually(lambda: recorder)
        assert (recorder.data[0]["request_id"], recorder.data[0]["status"]) == ("put", "error")
        assert recorder.data[0]["meta"]["provider"] == "semantic"
        assert (await runtime.call("a", sig("up"))).state["count"] == 1


async def test_what_is_kept_inline_lies_in_the_agents_memory_and_is_pure(recorder: SignalRecorder) -> None:
    """Under a space of its own, which is saved with it; nothing was asked of the world."""
    async with Runtime() as runtime:
        await runtime.start(make_requester(recorder, upsert("inline"), delete("inline", "del", "milk")))
        await runtime.call("a", sig("go"))
        await eventually(lambda: len(recorder) == 2)
        after = await runtime.state("a")
        space = memory.space(after, INLINE_PREFIX + "inline")
        assert space is not None
        assert to_plain(space.data) == {"tea": {"price": 4}}
        assert memory.get(after).rev > 0  # type: ignore[union-attr]
        assert InlineProvider.instant


async def test_tables_are_shared_by_name_and_private_without_one(recorder: SignalRecorder) -> None:
    """Among the agents of a process."""
    providers = {"shared": ("table", {"table": "test-shared"}), "own": "table"}
    try:
        async with Runtime(providers=providers) as runtime:
            await runtime.start(make_requester(recorder, upsert("shared"), upsert("own")), id="one")
            await runtime.start(
                make_requester(recorder, query("shared", "shared"), query("own", "own")), id="two"
            )
            for id in ("one", "two"):
                await runtime.call(id, sig("go"))
                await anyio.wait_all_tasks_blocked()
        found = {data["request_id"]: [hit["key"] for hit in data["result"]] for data in recorder.data[2:]}
        assert found == {"shared": ["milk", "tea"], "own": []}
    finally:
        drop_table("test-shared")


async def test_a_store_answers_by_meaning_best_first(a_store: Any, recorder: SignalRecorder) -> None:
    """With keys, scores and values, at most as many as were asked for; deleted ones are not found."""
    items = [
        {"key": "shop", "value": "The shop opens at nine."},
        {"key": "inn", "value": "The inn has twelve beds."},
        {"key": "port", "value": "The harbour opens at six."},
    ]
    asked = [
        upsert("library", items=items),
        query("library", "ask", query={"text": "When does the shop open?", "top_k": 2}),
        delete("library", "del", "shop"),
        query("library", "again", query={"text": "When does the shop open?", "top_k": 2}),
    ]
    told = await answers_to(recorder, *asked, providers={"library": StoreProvider(a_store)})
    assert [data["status"] for data in told] == ["ok"] * 4
    hits = told[1]["result"]
    assert (hits[0]["key"], hits[0]["value"]) == ("shop", "The shop opens at nine.")
    assert 0 < len(hits) <= 2
    assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True)
    assert "shop" not in [hit["key"] for hit in told[3]["result"]]
    assert told[1]["meta"]["provider"] == "store"


async def test_an_item_brings_its_vector_to_the_provider(recorder: SignalRecorder) -> None:
    """And options of the directive come along, though they cannot say who asks."""
    told: list[Any] = []

    class Keeping(Provider):
        async def put(self, state: Any, key: str, value: Any, opts: Any) -> Any:
            told.append((key, to_plain(opts)))
            return ProviderResult(state)

    items = [{"key": "a", "value": 1, "embedding": [0.5, 0.5]}, {"key": "b", "value": 2}]
    asked = upsert(items=items, opts={"agent_id": "eve", "index": "x"})
    await answers_to(recorder, asked, providers={"p": Keeping()})
    common = {"agent_id": "a", "alias": "p", "index": "x"}
    assert told == [("a", {**common, "embedding": [0.5, 0.5]}), ("b", common)]
