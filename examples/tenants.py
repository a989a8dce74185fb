"""One agent for several tenants, whose memories are isolated.

The namespace of the agent's memory is said by the context of each turn. Two tenants use the same agent, the
same store and the same name for a session. Neither sees what is the other's, a turn that does not say whose
it is is refused, and one tenant can be erased without touching the other.
"""

from __future__ import annotations

from typing import NamedTuple

import anyio

import omoide
from omoide import AgentSpec, Scope, Session, Store, open_store
from omoide.errors import MissingNamespace
from omoide.turns import Journal, Request

DESK = AgentSpec(
    id="desk",
    instructions="Answer from the rules of the house.",
    memory={"namespace": ("context", "tenant_id"), "capture": "conversation", "max_entries": 3},
)
RULES = {
    "acme": "Goods can be returned within 30 days.",
    "zen": "Goods can be returned within 14 days.",
}
QUESTION = "Within how many days can goods be returned?"


class Served(NamedTuple):
    """What each tenant was told, and what is left of them."""

    answers: dict[str, str]
    refusal: MissingNamespace | None
    kept: dict[str, int]
    left: dict[str, int]


def answer(request: Request, journal: Journal) -> str:
    """What a model might say that has read one rule: it repeats it."""
    memory = request.prompt.memory
    entries = [] if memory is None else memory["entries"]
    rules = [entry["content"] for entry in entries if entry["metadata"].get("kind") == "rule"]
    return " ".join(rules) or "I have no rule for that."


async def serve(store: Store) -> Served:
    """Two tenants, and one who does not say who they are."""
    for tenant, rule in RULES.items():
        where = {"tenant_id": tenant}
        await omoide.write(DESK, rule, store=store, context=where, metadata={"kind": "rule"})
    answers = {}
    for tenant in (*RULES, "new"):
        where = {"tenant_id": tenant}
        async with Session.open(DESK, "monday", store=store, context=where, model=answer) as session:
            answers[tenant] = await session.chat(QUESTION)
    refusal = await refused(store)
    kept = await count(store)
    await omoide.erase(store, Scope(namespace="acme"), reason="the contract has ended")
    return Served(answers, refusal, kept, await count(store))


async def refused(store: Store) -> MissingNamespace | None:
    """What a turn is told that does not say whose it is."""
    try:
        await omoide.turn(DESK, QUESTION, store=store, model=answer)
    except MissingNamespace as error:
        return error
    return None


async def count(store: Store) -> dict[str, int]:
    """How many memories each tenant has."""
    return {tenant: len(await store.list_entries(Scope(namespace=tenant))) for tenant in RULES}


async def work() -> Served:
    """The same in a store that forgets everything in the end."""
    async with open_store("memory://", embedder="local") as store:
        return await serve(store)


def main() -> Served:
    """Serve two tenants."""
    served = anyio.run(work)
    print(QUESTION)
    for tenant, told in served.answers.items():
        print(f"  {tenant}: {told}")
    print("without a tenant:", served.refusal)
    print("memories:", served.kept, "and after erasing acme:", served.left)
    return served


if __name__ == "__main__":
    main()
