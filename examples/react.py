"""An agent that reasons and acts in turns, with tools that do I/O.

Thought, action, observation, again and again until there is an answer. What the agent works with lies in its
world: `scratch` for the question and what is known so far, `tool_state` for the tools, `pointers` for what is
kept elsewhere; the tasks are what is still to find out. A function of the memory does the thinking here, so
that every run is the same; a language model would stand in the same place.

`search` is effectful: the agent never runs it, it asks for it with a `RunInstruction`. The loop in `main`
runs it and feeds the result back as a signal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple

from omoide import Agent, Context, Memory, Signal, action, memory, receive, strategy
from omoide.core import FrozenMap, Instruction
from omoide.directives import Directive, RunInstruction
from omoide.strategy import Direct, StrategyState

LAUNCHES = {"Hubble": 1990, "Webb": 2021}

Thought = tuple[str, Instruction | None]


class Answered(NamedTuple):
    """The agent with its answer, and every line of its reasoning."""

    agent: Agent
    answer: str
    lines: list[str]


@action(effectful=True, idempotent=True)
async def search(ctx: Context, name: str) -> dict[str, Any]:
    """Find out when a telescope was launched."""
    await asyncio.sleep(0)  # a real tool would wait for a network here
    return {name: LAUNCHES[name]}


@action
def ask(ctx: Context, question: str, names: list[str]) -> Memory:
    """Take up a question, and plan what has to be found out."""
    mind = ctx.memory.world_put("scratch", {"question": question, "names": names, "found": {}})
    mind = mind.world_put("tool_state", {"available": ["search", "subtract"], "last_result": None})
    mind = mind.world_put("pointers", {"launches": {"provider": "table", "index": "telescopes"}})
    for name in names:
        mind = mind.tasks_add(f"Find the launch of {name}", id=name)
    return mind.tasks_add("Subtract the years", id="years")


@action
def subtract(ctx: Context) -> Memory:
    """A tool that needs nothing from outside."""
    years = [*ctx.memory.world_get("scratch")["found"].values()]
    return observed(ctx.memory, {"years": max(years) - min(years)})


@action
def observe(ctx: Context, result: dict[str, Any]) -> Memory:
    """Take in what a tool found."""
    return observed(ctx.memory, result)


@action
def answer(ctx: Context, text: str) -> Memory:
    """Settle on an answer."""
    return ctx.memory.world_put("scratch", ctx.memory.world_get("scratch").set("answer", text))


def observed(mind: Memory, result: dict[str, Any]) -> Memory:
    """The memory with a result in it, and with the tasks that it settles done."""
    scratch, tools = mind.world_get("scratch"), mind.world_get("tool_state")
    mind = mind.world_put("scratch", scratch.set("found", scratch["found"].update(result)))
    mind = mind.world_put("tool_state", tools.set("last_result", result))
    for name in result:
        mind = mind.tasks_complete(name)
    return mind


def think(mind: Memory) -> Thought:
    """What to do next, from what is known."""
    scratch, task = mind.world_get("scratch"), mind.tasks_next()
    if "answer" in scratch:
        return "I am done.", None
    if task is None:
        text = f"{scratch['found']['years']} years"
        return "I know enough to answer.", Instruction.of((answer, {"text": text}))
    if task["id"] in scratch["names"]:
        return f"I need the launch of {task['id']}.", Instruction.of((search, {"name": task["id"]}))
    return "I have both launches.", Instruction.of(subtract)


class ReAct(Direct):
    """Each tick thinks once and acts on the thought; the last thought is kept as the strategy's state."""

    def __init__(self, think: Callable[[Memory], Thought]) -> None:
        super().__init__()
        self.think = think

    def tick(self, agent: Agent, ctx: Context) -> tuple[Agent, list[Directive]]:
        """Think, then act, or wait for a tool, or be done."""
        thought, instruction = self.think(ctx.memory)
        if instruction is None:
            return self.noted(agent, "success", thought, None), []
        agent, effects = self.cmd(agent, [instruction], ctx)
        waits = any(isinstance(effect, RunInstruction) for effect in effects)
        return self.noted(agent, "waiting" if waits else "running", thought, instruction.action), effects

    def noted(self, agent: Agent, status: str, thought: str, act: str | None) -> Agent:
        """The agent with the state of this strategy replaced."""
        return strategy.put(agent, StrategyState(status=status, data={"thought": thought, "action": act}))

    def signal_routes(self) -> list[tuple[str, Any]]:
        """A tick comes to the strategy; questions and observations are actions."""
        return [("react.tick", "strategy_tick"), ("react.question", ask), ("react.observation", observe)]


def carried_out(agent: Agent, effect: RunInstruction) -> FrozenMap[str, Any]:
    """What an effectful action returned; this is the world's part of the loop."""
    tool = agent.definition.action(effect.instruction.action)
    result: FrozenMap[str, Any] = FrozenMap(
        asyncio.run(tool(Context(agent), **tool.check(effect.instruction.params)))
    )
    return result


def main() -> Answered:
    """Answer one question."""
    agent = Agent.new("astronomer", strategy=ReAct(think), actions=[search, ask, subtract, observe, answer])
    question = {"question": "How many years lie between Hubble and Webb?", "names": [*LAUNCHES]}
    agent, _ = receive(agent, Signal(type="react.question", data=question))
    lines = [f"question:    {question['question']}"]
    while not strategy.of(agent).done:
        agent, effects = receive(agent, Signal(type="react.tick"))
        now = strategy.of(agent).data
        lines.append(f"thought:     {now['thought']}")
        lines += [f"action:      {now['action']}"] if now["action"] else []
        for effect in effects:
            assert isinstance(effect, RunInstruction), effect
            result = carried_out(agent, effect)
            lines.append(f"observation: {result.to_python()}")
            agent, _ = receive(agent, Signal(type="react.observation", data={"result": result}))
    found = memory.world_get(agent, "scratch")["answer"]
    lines.append(f"answer:      {found}")
    print("\n".join(lines))
    return Answered(agent, found, lines)


if __name__ == "__main__":
    main()
