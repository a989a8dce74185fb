"""Retrieval from a memory provider by a directive, and its result as a signal.

The plugin brings a space for what was found, a pointer to the provider, an action that asks and one that
takes the answer. Asking is a directive: the agent only says what it wants. Here a few lines stand in for
the provider, and the answer comes back as a signal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from omoide import Agent, Context, Memory, Plugin, Signal, action, clock, directives, memory, receive
from omoide.core import FrozenMap

PASSAGES = {
    "fact_1": "Postgres was chosen because of pgvector.",
    "fact_2": "The shop opens at nine.",
    "fact_3": "Backups of Postgres run at night.",
}


class Found(NamedTuple):
    """The agent after an answer and after a failure, and what it asked."""

    agent: Agent
    asked: directives.MemoryQuery
    texts: list[str]
    after_failure: Agent


@action
def look_up(ctx: Context, text: str, top_k: int = 5) -> tuple[Memory, list[directives.Directive]]:
    """Ask the provider, and note which question is open."""
    query = directives.MemoryQuery(query={"text": text, "top_k": top_k}, provider="semantic")
    return ctx.memory.put_in_space("rag:cache", query.request_id, {"text": text, "hits": None}), [query]


@action
def note_result(
    ctx: Context,
    request_id: str,
    status: str,
    result: list[dict[str, Any]] | None = None,
    error: str | None = None,
) -> Memory:
    """Keep what was found next to the question, or plan to ask again."""
    if status != "ok":
        return ctx.memory.tasks_add(f"Ask again: {error}", fields={"request_id": request_id})
    question = ctx.memory.get_in_space("rag:cache", request_id)
    return ctx.memory.put_in_space("rag:cache", request_id, question.set("hits", result))


class RagPlugin(Plugin):
    """Lets an agent ask a memory outside of itself."""

    name = "rag"
    actions = (look_up, note_result)
    signal_patterns = (directives.MEMORY_RESULT,)
    requires = ("config:index",)

    def mount(self, agent: Agent, config: FrozenMap[str, Any]) -> Any:
        """Bring the plugin's own space, and the pointer that `provider="semantic"` stands for."""
        agent = memory.ensure_space(agent, "rag:cache", {}, max_items=1_000)
        pointer = {"provider": config.get("provider", "words"), "index": config["index"]}
        pointers = memory.world_get(agent, "pointers", FrozenMap())
        agent = memory.world_put(agent, "pointers", pointers.set("semantic", pointer))
        return {"mounted_at": clock.now()}, agent

    def router(self, config: FrozenMap[str, Any]) -> list[tuple[str, Any]]:
        """Answers of the provider go to `note_result`."""
        return [(directives.MEMORY_RESULT, note_result)]


def provide(asked: directives.MemoryQuery) -> Signal:
    """A provider that counts common words; a real one would search an index."""
    wanted = {word.strip("?.").lower() for word in asked.query["text"].split()}
    hits: list[dict[str, Any]] = []
    for key, text in PASSAGES.items():
        common = wanted & {word.strip("?.").lower() for word in text.split()}
        hits.append({"key": key, "score": round(len(common) / len(wanted), 2), "value": text})
    best = sorted(hits, key=lambda hit: -hit["score"])[: asked.query["top_k"]]
    data = {"request_id": asked.request_id, "status": "ok", "result": best, "meta": {"provider": "words"}}
    return Signal(type=asked.reply_signal_type, data=data)


def main() -> Found:
    """Ask once, take the answer; then let the provider fail."""
    agent = Agent.new("librarian", plugins=[(RagPlugin, {"index": "shop"})])
    print("pointers:", memory.world_get(agent, "pointers").to_python())

    agent, effects = agent.cmd((look_up, {"text": "Why was Postgres chosen?", "top_k": 2}))
    (asked,) = effects
    assert isinstance(asked, directives.MemoryQuery)
    print("asks:", asked.provider, asked.query.to_python())

    agent, problems = receive(agent, provide(asked))
    assert problems == []
    kept = memory.get_in_space(agent, "rag:cache", asked.request_id)
    texts = [hit["value"] for hit in kept["hits"]]
    print("keeps:", texts)

    failed = {"request_id": asked.request_id, "status": "error", "error": "provider is away"}
    after, _ = receive(agent, Signal(type=directives.MEMORY_RESULT, data=failed))
    print("after a failure it plans:", [task["text"] for task in memory.tasks_open(after)])
    return Found(agent, asked, texts, after)


if __name__ == "__main__":
    main()
