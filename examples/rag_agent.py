"""An agent that answers from a store of documents through the runtime.

The plugin writes a pointer into the agent's memory and brings a space for questions. What the agent wants of
the store it says with directives; the runtime asks the provider, and each answer comes back as one signal. A
provider that hangs is no problem: after a while the answer is an error, and the agent goes on. Run it with
`python examples/rag_agent.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

import anyio

from omoide import Agent, Context, Memory, Plugin, Signal, action, clock, memory, open_store
from omoide.core import FrozenMap
from omoide.directives import MEMORY_RESULT, Directive, Emit, MemoryQuery, MemoryUpsert
from omoide.runtime import ProviderResult, Runtime, StoreProvider

DOCUMENTS = {
    "database": "Postgres was chosen because it brings vectors and transactions in one place.",
    "hours": "The shop opens at nine and closes at six, on Sundays it stays closed.",
    "backups": "Backups of Postgres run every night at two.",
    "returns": "A lamp can be returned within thirty days, with the receipt.",
}


class Answers(NamedTuple):
    """The agent at the end, its answers by question, and the pointers that its plugin wrote."""

    agent: Agent
    answers: dict[str, str]
    pointers: dict[str, Any]


@action
def learn(ctx: Context, documents: dict[str, str]) -> tuple[None, list[Directive]]:
    """Have documents put into the store."""
    items = [{"key": key, "value": text} for key, text in documents.items()]
    return None, [MemoryUpsert(items=items, provider="semantic")]


@action
def ask(ctx: Context, question: str, provider: str = "semantic") -> tuple[Memory, list[Directive]]:
    """Ask the store, and keep the question until there is an answer."""
    query = MemoryQuery(query={"text": question, "top_k": 2}, provider=provider)
    return ctx.memory.put_in_space("rag:cache", query.request_id, {"question": question}), [query]


@action
def take_result(
    ctx: Context,
    request_id: str,
    status: str,
    result: list[dict[str, Any]],
    error: str | None = None,
) -> tuple[Memory, list[Directive]]:
    """Answer from what was found, with scores; or say why there is no answer."""
    asked = ctx.memory.get_in_space("rag:cache", request_id, FrozenMap())
    if "question" not in asked:
        answer = f"learned: {status}"
    elif status == "error":
        answer = f"I cannot look that up now: {error}"
    else:
        answer = "; ".join(f"{hit['value']} ({hit['score']:.2f})" for hit in result) or "I do not know."
    kept = ctx.memory.put_in_space("rag:cache", request_id, asked.set("answer", answer))
    told = Signal(type="rag.answer", data={"question": asked.get("question"), "answer": answer})
    return kept, [Emit(signal=told, dispatch={"desk": True})]


class RagPlugin(Plugin):
    """Lets an agent learn documents and answer from them."""

    name = "rag"
    actions = (learn, ask, take_result)
    requires = ("config:provider", "config:index")

    def mount(self, agent: Agent, config: FrozenMap[str, Any]) -> Any:
        """Bring the space and the pointer; the agent that is returned is the one that has them."""
        agent = memory.ensure_space(agent, "rag:cache", {}, max_items=1_000)
        pointers = memory.world_get(agent, "pointers", FrozenMap())
        own = {"provider": config["provider"], "index": config["index"]}
        agent = memory.world_put(agent, "pointers", pointers.set("semantic", own))
        return {"mounted_at": clock.now()}, agent

    def router(self, config: FrozenMap[str, Any]) -> list[tuple[str, Any]]:
        """Answers of providers go to `take_result`."""
        return [("rag.learn", learn), ("rag.ask", ask), (MEMORY_RESULT, take_result)]


class Hanging:
    """A provider that never answers a question."""

    name = "hanging"

    async def init(self, opts: Mapping[str, Any]) -> None:
        """Nothing to prepare."""

    async def get(self, state: Any, key: str, opts: Mapping[str, Any]) -> ProviderResult:
        """Wait for ever."""
        await anyio.sleep_forever()
        return ProviderResult(state)

    async def put(self, state: Any, key: str, value: Any, opts: Mapping[str, Any]) -> ProviderResult:
        """Forget at once."""
        return ProviderResult(state)

    async def delete(self, state: Any, key: str, opts: Mapping[str, Any]) -> ProviderResult:
        """Nothing is there."""
        return ProviderResult(state)

    async def query(self, state: Any, query: Mapping[str, Any], opts: Mapping[str, Any]) -> ProviderResult:
        """Wait for ever."""
        await anyio.sleep_forever()
        return ProviderResult(state, [])


async def talk() -> Answers:
    """Let the agent learn, and ask it three things."""
    desk: asyncio.Queue[Signal] = asyncio.Queue()

    async def to_desk(signal: Signal, config: Any) -> None:
        await desk.put(signal)

    agent = Agent.new("clerk", id="clerk-1", plugins=[(RagPlugin, {"provider": "library", "index": "shop"})])
    answers: dict[str, str] = {}
    async with (
        open_store("memory://", embedder="local") as store,
        Runtime(
            providers={"library": StoreProvider(store, name="shelves"), "away": Hanging()},
            dispatchers={"desk": to_desk},
            provider_timeout=1.0,
        ) as runtime,
    ):
        clerk = await runtime.start(agent)
        await runtime.cast(clerk, Signal(type="rag.learn", data={"documents": DOCUMENTS}))
        answers["documents"] = (await desk.get()).data["answer"]
        for question, provider in (
            ("Why was Postgres chosen?", "semantic"),
            ("When does the shop open?", "semantic"),
            ("What did I say before?", "away"),
        ):
            data = {"question": question, "provider": provider}
            await runtime.cast(clerk, Signal(type="rag.ask", data=data))
            answers[question] = (await desk.get()).data["answer"]
        agent = await runtime.state(clerk)
    return Answers(agent, answers, memory.world_get(agent, "pointers").to_python())


def main() -> Answers:
    """Ask, and show the answers."""
    found = asyncio.run(talk())
    print("pointers:", found.pointers)
    for question, answer in found.answers.items():
        print(f"{question}\n    {answer}")
    return found


if __name__ == "__main__":
    main()
