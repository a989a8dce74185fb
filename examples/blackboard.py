"""Several knowledge sources solve a problem on one blackboard.

Each source is an action with a condition; it reads the board and writes to it, and knows nothing of the
others. The spaces `evidence`, `hypothesis` and `solution` are the board. A small loop lets whoever can
contribute do so, until the solution is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from omoide import Action, Agent, Context, Memory, action, memory

SENSORS = [
    {"id": "e1", "text": "Door sensor triggered at 3pm", "points_to": ["occupant", "burglar"]},
    {"id": "e2", "text": "Alarm switched off with the right code", "points_to": ["occupant"]},
    {"id": "e3", "text": "Kettle switched on", "points_to": ["occupant"]},
]
SURE = 0.7


class Case(NamedTuple):
    """The case, solved."""

    agent: Agent
    solution: str
    contributions: list[str]


class Source(NamedTuple):
    """A knowledge source: when it can contribute, and what it then does."""

    ready: Callable[[Memory], bool]
    contribute: Action


@action
def read_sensor(ctx: Context) -> Memory:
    """Put the next reading on the board."""
    return ctx.memory.append_to_space("evidence", SENSORS[len(evidence(ctx.memory))])


@action
def weigh(ctx: Context) -> Memory:
    """Count, for each suspect, how much of the evidence points to them."""
    seen = evidence(ctx.memory)
    pointing = [who for item in seen for who in item["points_to"]]
    board = ctx.memory.put_in_space("hypothesis", "weighed", len(seen))
    shares = {who: round(pointing.count(who) / len(pointing), 2) for who in set(pointing)}
    return board.put_in_space("hypothesis", "who", shares)


@action
def conclude(ctx: Context) -> Memory:
    """Write down the suspect that is likely enough."""
    who = likeliest(ctx.memory)
    reasons = [item["id"] for item in evidence(ctx.memory) if who in item["points_to"]]
    return ctx.memory.update_space_data("solution", lambda _: {"who": who, "because": reasons})


def evidence(board: Memory) -> Any:
    """The readings on the board."""
    return board.spaces["evidence"].data


def likeliest(board: Memory) -> str | None:
    """The suspect that is likely enough, if there is one."""
    shares = board.get_in_space("hypothesis", "who", {})
    found = [who for who, share in shares.items() if share >= SURE]
    return found[0] if found else None


SOURCES = (
    Source(lambda board: likeliest(board) is not None, conclude),
    Source(lambda board: board.get_in_space("hypothesis", "weighed", 0) < len(evidence(board)), weigh),
    Source(lambda board: len(evidence(board)) < len(SENSORS), read_sensor),
)


def detective() -> Agent:
    """An agent with an empty board."""
    agent = Agent.new("detective", actions=[source.contribute for source in SOURCES])
    agent = memory.ensure_space(agent, "evidence", [], max_items=100)
    agent = memory.ensure_space(agent, "hypothesis", {})
    return memory.ensure_space(agent, "solution", {})


def main() -> Case:
    """Let the sources contribute until the case is solved."""
    agent, contributions = detective(), []
    while not memory.get_in_space(agent, "solution", "who"):
        board = memory.of(agent)
        source = next((source for source in SOURCES if source.ready(board)), None)
        if source is None:
            raise SystemExit("nobody can contribute, and there is no solution")
        agent, failures = agent.cmd(source.contribute)
        assert failures == []
        contributions.append(source.contribute.name)
        shares = memory.get_in_space(agent, "hypothesis", "who", {})
        print(f"{source.contribute.name:<12} {dict(sorted(shares.items()))}")
    solution = memory.get_in_space(agent, "solution", "who")
    print("solved:", solution, "because of", [*memory.get_in_space(agent, "solution", "because")])
    return Case(agent, solution, contributions)


if __name__ == "__main__":
    main()
