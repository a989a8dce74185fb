"""Durable memory: what an agent knows after its program has ended.

A help desk remembers in a file. The program ends and another one opens the file, asks, gets the answers with
their reasons, learns that a thing has changed, forgets, takes it back, and at last erases what it must not
keep.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import anyio

import omoide
from omoide import Evidence, RecallResult, Scope, WriteResult, open_store, verbs
from omoide.stores import EraseReceipt

DESK = Scope(agent_id="help-desk", session_id="ticket-7")


class Desk(NamedTuple):
    """What the second program found, did and left."""

    receipts: list[WriteResult]
    answer: RecallResult
    after_change: str
    after_forgetting: list[str]
    after_restoring: list[str]
    erased: EraseReceipt
    left: list[str]


async def learn(url: str) -> list[WriteResult]:
    """The first program: three memories, and one of them twice."""
    async with open_store(url, embedder="local") as store:
        return [
            await omoide.remember(
                store, "The customer prefers to be called Alex.", DESK, id="name", type="fact", confidence=0.9
            ),
            await omoide.remember(
                store,
                "The lamp is repaired free of charge.",
                DESK,
                id="repair",
                type="decision",
                rationale="it is still under guarantee",
                evidence=[Evidence(kind="document", ref="invoice-311.pdf", quote="two years")],
            ),
            await omoide.remember(store, "Parcels go to 12 Mill Lane.", DESK, id="address"),
            await omoide.remember(store, "The lamp is repaired free of charge.", DESK, type="decision"),
        ]


async def carry_on(url: str, receipts: list[WriteResult]) -> Desk:
    """The second program: it knows nothing but the file."""
    async with open_store(url, embedder="local") as store:
        answer = await omoide.recall(store, "What does the repair of the lamp cost?", DESK, limit=2)

        await omoide.remember(
            store, "Parcels go to 4 Harbour Street.", DESK, id="new-address", supersedes="address"
        )
        where = await omoide.recall(store, "Where do parcels go?", DESK, limit=1)

        async def known() -> list[str]:
            found = await omoide.recall(store, "What is the customer called?", DESK)
            return sorted(entry.id for entry in found.entries)

        await omoide.forget(store, "name", DESK, reason="the customer asked us to")
        after_forgetting = await known()
        await verbs.reinstate(store, "name", DESK)
        after_restoring = await known()

        erased = await omoide.erase(store, DESK, id="address", reason="no longer needed")
        left = [entry.id for entry in await store.list_entries(DESK)]
        return Desk(
            receipts, answer, where.entries[0].content, after_forgetting, after_restoring, erased, left
        )


def main() -> Desk:
    """Let one program learn and another one carry on."""
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'memory.db')}"
        desk = anyio.run(carry_on, url, anyio.run(learn, url))
    for receipt in desk.receipts:
        print(f"receipt: {receipt.id}, {receipt.outcome}, revision {receipt.rev}")
    print("\n… the program ends, another one opens the file …\n")
    for hit in desk.answer.hits:
        print(f"{hit.rank}. {hit.entry.content}")
        print(f"   because {hit.why}")
    print("parcels:", desk.after_change)
    print("after forgetting:", desk.after_forgetting)
    print("after restoring:", desk.after_restoring)
    print(
        "erased:", desk.erased.ids, "with", desk.erased.versions, "versions; scrubbed:", desk.erased.scrubbed
    )
    print("out of reach:", "; ".join(desk.erased.unreachable))
    print("left:", desk.left)
    return desk


if __name__ == "__main__":
    main()
