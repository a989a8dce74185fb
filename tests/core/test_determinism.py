"""The same history gives the same agent in every process, whatever the seed of its hashes."""

import json
import os
import subprocess
import sys

from omoide.core import codec
from omoide.testing import reproducible

SEEDS = ("0", "1", "42", "random")

PROGRAM = "from tests.core.test_determinism import replay; print(replay())"


def replay() -> str:
    """Replay a history, and return what an action saw and the bytes of the checkpoints as JSON."""
    from omoide import Agent, Context, Definition, Plugin, Signal, action, checkpoint, identity, restore
    from omoide.directives import Emit

    @action
    def learn(ctx: Context, name: str, number: int) -> object:
        """Note a fact, and forget every third one."""
        memory = ctx.memory.world_put(name, {"number": number, "tags": {name, f"t{number}", "all"}})
        if number % 3 == 2:
            memory = memory.delete_from_space("world", f"fact {number - 1}")
        return memory.tasks_add(f"Check {name}", id=f"task-{number}")

    @action
    def walk(ctx: Context) -> object:
        """Go through the world, and tell about each of its facts."""
        world = ctx.memory.spaces["world"].data
        return {"seen": [*world], "sum": {key: world[key]["number"] for key in world}}, [
            Emit(signal=Signal(type="fact.seen", data={"name": name, **world[name]})) for name in world
        ]

    class Notes(Plugin):
        name = "notes"
        actions = (walk,)
        tags = ("notes", "facts", "walks")

        def mount(self, agent: Agent, config: object) -> dict[str, object]:
            return {"open": {"b": 1, "a": 2}, "labels": {"x", "y", "z"}}

    definition = Definition(name="learner", actions=(learn,), plugins=(Notes(),))
    with reproducible():
        agent = Agent.new(definition, id="agent-1", state={"zone": 1, "area": {"n": 1, "a": 2}})
        capabilities = {"tags": frozenset({"red", "green", "blue"}), "io": {"b": 1, "a": 2}}
        agent = identity.ensure(agent, capabilities=capabilities)
        printed = []
        for number in range(100):
            agent, _ = agent.cmd((learn, {"name": f"fact {number}", "number": number}))
            if number % 50 == 49:
                saved = checkpoint(agent)
                printed.append(saved.to_json().decode())
                agent = restore(type(saved).from_json(saved.to_json()), definition)
        agent, directives = agent.cmd("walk")
        printed += [agent.to_json().decode(), checkpoint(agent).to_json().decode()]
        printed += [directive.to_json().decode() for directive in directives]
        printed.append(codec.encode(identity.snapshot(agent)).decode())
        printed.append(repr(agent.state["sum"]))
        return json.dumps([[*agent.state["seen"]], printed])


def test_a_history_gives_the_same_checkpoints_under_every_hash_seed() -> None:
    """An action goes through `world` in the same order in every process, and every byte saved is the same."""
    outputs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in SEEDS
    ]
    assert len(set(outputs)) == 1
    seen, printed = json.loads(outputs[0])
    assert seen == [f"fact {number}" for number in range(100) if number % 3 != 1 or number > 97]
    assert len(printed) > len(seen)
