"""Beliefs, desires and intentions as spaces of one memory.

Beliefs are `world.facts`, desires and plans have spaces of their own, and intentions are the tasks. A robot
looks for the exit; a door closes on its way, so it drops its plan and makes another.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from omoide import Agent, Context, Memory, action, memory

PLANS: dict[str, list[dict[str, Any]]] = {
    "find_exit": [
        {"when": {"door": "open"}, "steps": ["walk to the door", "go through the door"]},
        {"when": {"window": "open"}, "steps": ["walk to the window", "climb out of the window"]},
    ],
    "stay_warm": [{"when": {"blanket": "near"}, "steps": ["take the blanket"]}],
}

EFFECTS = {
    "go through the door": {"outside": True},
    "climb out of the window": {"outside": True},
    "take the blanket": {"warm": True},
}

SATISFIED = {"find_exit": "outside", "stay_warm": "warm"}


class Escape(NamedTuple):
    """How it went."""

    agent: Agent
    done: list[str]
    dropped: list[str]


@action
def perceive(ctx: Context, seen: dict[str, Any]) -> Memory:
    """Believe what is seen, over what was believed before."""
    facts = ctx.memory.world_get("facts", {})
    return ctx.memory.world_put("facts", {**facts, **seen})


@action
def deliberate(ctx: Context) -> Memory:
    """Drop intentions that are no longer possible; then intend a plan for the first goal that is not met."""
    mind = ctx.memory
    facts = mind.world_get("facts")
    for task in mind.tasks_open():
        if not holds(task["when"], facts):
            mind = mind.tasks_remove(task["id"]).append_to_space("dropped", task["text"])
    if mind.tasks_next() is not None:
        return mind
    for goal in sorted(mind.get_in_space("desires", "goals")):
        if not facts.get(SATISFIED[goal]):
            for plan in mind.get_in_space("plans", goal):
                if holds(plan["when"], facts):
                    for step in plan["steps"]:
                        mind = mind.tasks_add(step, fields={"goal": goal, "when": plan["when"]})
                    return mind
    return mind


@action
def step(ctx: Context) -> Memory:
    """Do the next intended thing and believe in its effect."""
    task = ctx.memory.tasks_next()
    if task is None:
        return ctx.memory
    facts = ctx.memory.world_get("facts")
    after = ctx.memory.tasks_complete(task["id"], strict=True)
    return after.world_put("facts", {**facts, **EFFECTS.get(task["text"], {})})


def holds(condition: dict[str, Any], facts: dict[str, Any]) -> bool:
    """Whether the facts are as the condition wants them."""
    return all(facts.get(key) == value for key, value in condition.items())


def robot() -> Agent:
    """A robot that wants to get out and not to be cold."""
    agent = Agent.new("robot", actions=[perceive, deliberate, step])
    agent = memory.ensure_space(agent, "desires", {"goals": {"find_exit", "stay_warm"}})
    agent = memory.ensure_space(agent, "plans", PLANS)
    return memory.ensure_space(agent, "dropped", [])


def main() -> Escape:
    """Perceive, deliberate, step, until nothing is left to intend."""
    percepts: list[dict[str, Any]] = [
        {"door": "open", "window": "open", "blanket": "near"},
        {"door": "closed"},
    ]
    agent = robot()
    done: list[str] = []
    while True:
        if percepts:
            seen = percepts.pop(0)
            print("sees:    ", seen)
            agent, _ = agent.cmd(("perceive", {"seen": seen}))
        agent, _ = agent.cmd("deliberate")
        task = memory.tasks_next(agent)
        if task is None:
            break
        print(f"intends:  {task['text']} (for {task['goal']})")
        agent, _ = agent.cmd("step")
        done.append(task["text"])
    dropped = [*memory.of(agent).spaces["dropped"].data]
    print("dropped: ", dropped)
    print("believes:", memory.world_get(agent, "facts").to_python())
    return Escape(agent, done, dropped)


if __name__ == "__main__":
    main()
