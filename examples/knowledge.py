"""Decisions with provenance, staleness and contradictions.

A shop's agent keeps a fact, a decision that depends on it and a task that depends on the decision, and
relates a bug to its cause. Then the fact is superseded: what depends on it becomes stale by itself, with
the reason. The same memories are queried in SPARQL, and exported to a file that another store imports.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import anyio

import omoide
from omoide import Evidence, Scope, graph, longterm, open_store

SHOP = Scope(agent_id="coder", session_id="monday", project_id="shop")

LIVE = """
SELECT ?type ?what WHERE {
  ?memory a ?type ; jido:summary ?what .
  ?type rdfs:subClassOf* jido:MemoryItem
  FILTER NOT EXISTS { ?memory jido:supersededBy ?other }
  FILTER NOT EXISTS { ?memory jido:stale true }
} ORDER BY ?type ?what
"""


class Known(NamedTuple):
    """What was known on the way."""

    before: list[str]
    stale: list[str]
    why: list[str]
    after: list[str]
    provenance: str
    related: list[str]
    answer: graph.Answer
    review: str
    copied: int


async def learn(store: omoide.Store) -> None:
    """Keep what there is to know, and how it hangs together."""
    lockfile = Evidence(kind="document", ref="requirements.lock", quote="psycopg==3.1")
    await omoide.remember(
        store,
        "The driver is psycopg 3.1.",
        SHOP,
        id="driver",
        type="fact",
        source="tool",
        evidence=[lockfile],
    )
    await omoide.remember(
        store,
        "Connections are pooled by hand.",
        SHOP,
        id="pool",
        type="decision",
        rationale="the driver has no pool that closes cleanly",
        evidence=[Evidence(kind="entry", ref="driver")],
    )
    await omoide.remember(
        store,
        "Write the pool's tests.",
        SHOP,
        id="tests",
        type="task",
        confidence=0.8,
        evidence=[Evidence(kind="entry", ref="pool")],
    )
    await omoide.remember(store, "Logins hang at noon.", SHOP, id="hang", type="bug")
    await omoide.remember(store, "The pool runs dry.", SHOP, id="dry", type="root_cause", confidence=0.7)
    await longterm.relate(store, "hang", "has_root_cause", "dry", SHOP)


async def ids(store: omoide.Store) -> list[str]:
    """The memories that still hold, newest first."""
    return [entry.id for entry in await longterm.query_all(store, SHOP)]


async def tour(folder: Path) -> Known:
    """Learn, find out that something is old, and look at what is left."""
    async with open_store(f"sqlite:///{folder / 'memory.db'}", embedder="none") as store:
        await learn(store)
        before = await ids(store)
        await omoide.remember(store, "The driver is psycopg 3.2.", SHOP, id="driver-2", type="fact")
        await omoide.forget(store, "driver", SHOP, reason="upgraded", replacement="driver-2")
        gone = [one.id for one in await longterm.query_all(store, SHOP, include_stale=True) if one.stale]
        why = [str(chain) for id in gone for chain in await longterm.why_stale(store, id, SHOP)]
        async with graph.open(store) as view:
            answer = await view.sparql(LIVE, SHOP)
            await view.export(folder / "shop.trig", SHOP)
        return Known(
            before=before,
            stale=gone,
            why=why,
            after=await ids(store),
            provenance=str(await longterm.provenance(store, "tests", SHOP)),
            related=[str(one) for one in await longterm.related(store, "dry", SHOP)],
            answer=answer,
            review=str(await longterm.review(store, SHOP)),
            copied=await copied(folder / "shop.trig"),
        )


async def copied(path: Path) -> int:
    """How many memories another store takes over from a file."""
    async with open_store("memory://", embedder="none") as other, graph.open(other) as view:
        return await view.load(path, SHOP)


def main() -> Known:
    """Show what the agent knows, before and after something changed."""
    with TemporaryDirectory() as folder:
        known = anyio.run(tour, Path(folder))
    print("known:", ", ".join(known.before))
    print("\nThe driver was upgraded. No longer held:", ", ".join(known.stale))
    print(*(f"  {chain}" for chain in known.why), sep="\n")
    print("\nstill held:", ", ".join(known.after))
    print(f"\nwhere the task comes from\n{known.provenance}")
    print("\nwhat the cause explains", *known.related, sep="\n")
    print(f"\nthe same in SPARQL\n{known.answer}")
    print(f"\nwhat needs attention\n{known.review}")
    print(f"\n{known.copied} memories were taken over by another store")
    return known


if __name__ == "__main__":
    main()
