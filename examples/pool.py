"""Selection of an agent from a pool by its capabilities.

Agents declare what they can do, carry tags and limits, and grow older. A dispatcher asks for the best one,
reads the reason, and remembers what it learned about that agent.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from omoide import Agent, Context, Plugin, action, identity


class Round(NamedTuple):
    """Who was chosen for what, and what the dispatcher remembers."""

    chosen: dict[str, str | None]
    reasons: list[str]
    dispatcher: Agent


@action
def fetch_url(ctx: Context, url: str) -> dict[str, Any]:
    """Note that a page was asked for."""
    return {"asked_for": url}


class FetchPlugin(Plugin):
    """Lets an agent fetch pages."""

    name = "fetch"
    actions = (fetch_url,)


def pool() -> list[Agent]:
    """A scout, a veteran, an archivist, and one without an identity."""
    scout = identity.ensure(
        Agent.new("scout", id="scout-1", plugins=[FetchPlugin]),
        profile={"age": 1},
        capabilities={"tags": ["web"], "limits": {"max_runtime_ms": 30_000}},
    )
    veteran = identity.ensure(
        Agent.new("veteran", id="veteran-1"),
        profile={"age": 7, "origin": "configured"},
        capabilities={
            "actions": ["fetch_url", "extract_links"],
            "tags": ["web", "parsing"],
            "io": {"network": True},
            "limits": {"max_runtime_ms": 5_000},
        },
    )
    archivist = identity.ensure(
        Agent.new("archivist", id="archivist-1"),
        profile={"age": 9},
        capabilities={"actions": ["fetch_url"], "tags": ["archive"]},
    )
    return [scout, veteran, archivist, Agent.new("stranger", id="stranger-1")]


def main() -> Round:
    """Ask the pool four times."""
    agents = pool()
    asked: dict[str, dict[str, Any]] = {
        "a page": {"action": "fetch_url", "tags": ["web"]},
        "a slow page": {"action": "fetch_url", "tags": ["web"], "limits": {"max_runtime_ms": 10_000}},
        "an old page": {"action": "fetch_url", "tags": ["archive"]},
        "a song": {"action": "sing"},
    }
    chosen: dict[str, str | None] = {}
    reasons = []
    for wish, terms in asked.items():
        best = identity.best(agents, **terms)
        chosen[wish] = None if best is None else best.agent.name
        print(f"{wish}: {'nobody' if best is None else best.reason}")
        reasons += [] if best is None else [best.reason]

    # Experience counts: ten years later the scout comes first.
    agents[0] = identity.evolve(agents[0], years=10)
    ranking = identity.route(agents, action="fetch_url", tags=["web"])
    chosen["a page, later"] = ranking[0].agent.name
    print("later:", [f"{one.agent.name} ({one.age})" for one in ranking])

    dispatcher = identity.add_known_agent(
        Agent.new("dispatcher", id="dispatcher-1"), ranking[0].agent, trust=0.8
    )
    for other, known in identity.known_agents(dispatcher).items():
        can = [*known["snapshot"]["capabilities"]["actions"]]
        print(f"the dispatcher knows {other}: trusts it {known['trust']}, it can {can}")
    return Round(chosen, reasons, dispatcher)


if __name__ == "__main__":
    main()
