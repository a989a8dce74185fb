"""A weather agent that stores what it believes and what it plans.

Spaces, tasks, revisions, and two writers who meet at the same space.
"""

from __future__ import annotations

from typing import NamedTuple

from omoide import Agent, Memory, memory
from omoide.errors import Conflict, ReservedSpace


class Day(NamedTuple):
    """What is left at the end of the day."""

    agent: Agent
    believed: Memory
    conflict: Conflict | None
    refusal: ReservedSpace | None


def morning() -> Agent:
    """A new agent with its first beliefs and tasks."""
    agent = Agent.new("weather")
    print("new agent, has memory:", memory.has_memory(agent))

    agent = memory.put_in_space(agent, "world", "temperature", 22)
    agent = memory.put_in_space(agent, "world", "location", "Portland")
    agent = memory.tasks_add(agent, "Check sensor array", id="t1")
    agent = memory.tasks_add(agent, "Report status", id="t2")
    print("it believes:", memory.world(agent).to_python())
    print("it means to:", [task["text"] for task in memory.tasks_open(agent)])
    return agent


def noon(agent: Agent) -> Agent:
    """A space of its own for the sensors, and the first task done."""
    agent = memory.ensure_space(agent, "sensors", {})
    agent = memory.put_in_space(agent, "sensors", "lidar", "active")
    agent = memory.tasks_complete(agent, "t1")
    following = memory.tasks_next(agent)
    print("sensors:", memory.get_in_space(agent, "sensors", "lidar"))
    print("next task:", following["text"] if following else "none")
    return agent


def revisions(agent: Agent) -> Memory:
    """Print how often the memory and each of its spaces changed."""
    believed = memory.of(agent)
    counts = {name: space.rev for name, space in sorted(believed.spaces.items())}
    print(f"revisions: {believed.rev} in all, by space {counts}")
    return believed


def evening(agent: Agent) -> tuple[Agent, Conflict | None]:
    """Two readings are made from the same revision; the second one is told and tries again."""
    world = memory.of(agent).spaces["world"]
    agent = memory.put_in_space(agent, "world", "temperature", 17, expected_space_rev=world.rev)
    try:
        agent = memory.put_in_space(agent, "world", "temperature", 23, expected_space_rev=world.rev)
    except Conflict as conflict:
        print("refused:", conflict)
        warmer = max(memory.world_get(agent, "temperature"), 23)
        agent = memory.put_in_space(agent, "world", "temperature", warmer, expected_space_rev=conflict.actual)
        return agent, conflict
    return agent, None


def main() -> Day:
    """One day of a weather agent."""
    agent = noon(morning())
    revisions(agent)
    agent, conflict = evening(agent)
    refusal = None
    try:
        memory.delete_space(agent, "world")
    except ReservedSpace as error:
        print("refused:", error)
        refusal = error
    return Day(agent, revisions(agent), conflict, refusal)


if __name__ == "__main__":
    main()
