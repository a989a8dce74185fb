"""An agent that is a plain value.

One agent keeps a greenhouse. It believes, plans, meets another writer, fails once, grows older, is chosen
from a pool, shows what others may see, and is put aside and taken up again. What it learned outlives its
program: another one finds it, and says why; and a model answers with it. Each step says what happens and why.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec

from omoide import (
    Agent,
    AgentSpec,
    Context,
    Definition,
    Memory,
    Scope,
    Signal,
    action,
    blocking,
    checkpoint,
    identity,
    memory,
    open_store,
    receive,
    thread,
)
from omoide.core import FrozenMap
from omoide.directives import Directive, Emit, Error
from omoide.errors import Conflict
from omoide.strategy import Direct

WIDTH = 78

KEEPERS = Scope(agent_id="keeper")
QUESTION = "How hot may it get for the ferns?"
LEARNED = [
    ("The ferns wilt when it is hotter than 35 degrees.", "lesson_learned", 0.9),
    ("The roof motor was replaced in spring.", "fact", 1.0),
    ("Water the cacti once a month.", "convention", 0.8),
]


GUIDE = AgentSpec(
    id="keeper",
    instructions="Answer visitors of the greenhouse.",
    memory={"capture": "conversation", "max_entries": 2},
)


class Shown(NamedTuple):
    """What is claimed here, for whoever wants to check it."""

    agent: Agent
    conflict: Conflict | None
    failure: Error
    kept_state: bool
    reason: str
    snapshot: FrozenMap[str, Any]
    came_back_equal: bool
    recalled: str
    answer: str


class Greenhouse(msgspec.Struct):
    """What the agent manages, as opposed to what it believes."""

    tank: float = 40.0


@action
def note_reading(ctx: Context, temperature: float) -> tuple[Memory, list[Directive]]:
    """Believe a reading; when it is too hot, plan and raise the alarm."""
    mind = ctx.memory.world_put("temperature", temperature)
    if temperature <= 30:
        return mind, []
    alarm = Signal(type="greenhouse.alarm", data={"temperature": temperature})
    return mind.tasks_add("Open the roof", id="roof").tasks_add("Water the ferns", id="ferns"), [
        Emit(signal=alarm)
    ]


@action
def water(ctx: Context, litres: float) -> dict[str, float]:
    """Take water from the tank."""
    if litres > ctx.state["tank"]:
        raise ValueError(f"the tank holds {ctx.state['tank']} litres, not {litres}")
    return {"tank": ctx.state["tank"] - litres}


KEEPER = Definition.new(
    "keeper",
    description="Keeps a greenhouse.",
    schema=Greenhouse,
    actions=[note_reading, water, identity.identity_evolve],
    routes=[("greenhouse.reading", note_reading)],
    strategy=Direct(thread=True),
)


def heading(text: str) -> None:
    """A heading, bold where a person looks at a terminal."""
    bold = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print("\n" + (f"\x1b[1m{text}\x1b[0m" if bold else text))


def say(text: str) -> None:
    """A sentence or two, wrapped."""
    print(textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="  "))


def show(label: str, value: object) -> None:
    """A name and a value, in columns; what is too long goes on below itself."""
    lead = f"    {label:<14} "
    print(textwrap.fill(str(value), WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead)))


def believes() -> Agent:
    """A signal becomes an action, and the action becomes beliefs and plans."""
    heading("1. It believes")
    agent = Agent.new(KEEPER, id="keeper-1")
    say("A new agent holds only what its schema says. Memory appears when it is needed.")
    show("state", agent.state.to_python())
    say("A signal arrives. The route leads it to an action, and the action returns a new memory.")
    agent, effects = receive(agent, Signal(type="greenhouse.reading", data={"temperature": 34.5}))
    show("believes", memory.world(agent).to_python())
    for effect in effects:
        if isinstance(effect, Emit):
            show("asks for", f"Emit({effect.signal.type}, {effect.signal.data.to_python()})")
    say("It rang no bell itself: effects are data that somebody else carries out.")
    return agent


def plans(agent: Agent) -> Agent:
    """Tasks in order of priority."""
    heading("2. It plans")
    show("open tasks", [task["text"] for task in memory.tasks_open(agent)])
    agent = memory.tasks_reorder(agent, ["ferns", "roof"])
    agent = memory.tasks_complete(agent, "ferns")
    say("The ferns could not wait: they went first, and are done.")
    following = memory.tasks_next(agent)
    show("next", following["text"] if following else "nothing")
    return agent


def meets_another_writer(agent: Agent) -> tuple[Agent, Conflict | None]:
    """A write that was made from an old reading is refused."""
    heading("3. It meets another writer")
    world = memory.of(agent).spaces["world"]
    say(f"Two sensors read the world at revision {world.rev}. Both want to write.")
    agent = memory.world_put(agent, "temperature", 29.0, expected_space_rev=world.rev)
    show("first", "stored")
    try:
        return memory.world_put(agent, "temperature", 35.0, expected_space_rev=world.rev), None
    except Conflict as conflict:
        show("second", f"Conflict: {conflict}")
        show("still believes", memory.world(agent).to_python())
        return agent, conflict


def fails(agent: Agent) -> tuple[Agent, Error, bool]:
    """An action that raises changes nothing and is reported."""
    heading("4. It fails, and nothing breaks")
    before = agent
    agent, effects = agent.cmd((water, {"litres": 100.0}))
    failure = next(effect for effect in effects if isinstance(effect, Error))
    kept = agent.state["tank"] == before.state["tank"] and memory.of(agent) == memory.of(before)
    show("error", failure.message)
    show("tank", agent.state["tank"])
    agent, _ = agent.cmd((water, {"litres": 12.5}))
    say("What fails is an Error among the directives, and tank and memory stayed as they were.")
    say("A smaller can works:")
    show("tank", agent.state["tank"])
    return agent, failure, kept


def evolves(agent: Agent) -> Agent:
    """An identity, and time that passes."""
    heading("5. It is somebody, and grows older")
    agent = identity.ensure(
        agent,
        profile={"age": 2, "origin": "configured"},
        capabilities={"tags": ["plants"], "limits": {"max_litres": 40}},
        extensions={"diary": {"text": "I killed a fern once.", "__public__": {"mood": "patient"}}},
    )
    agent, _ = agent.cmd((identity.identity_evolve, {"days": 400}))
    show("age", identity.age(agent))
    show("can", [*identity.actions(agent)])
    say("400 days made one year; the other 35 days are kept for the next.")
    return agent


def is_chosen(agent: Agent) -> str:
    """A pool, a question and a reason."""
    heading("6. It is chosen, and the reason is given")
    novice = identity.ensure(
        Agent.new("novice"), profile={"age": 0}, capabilities={"actions": ["water"], "tags": ["plants"]}
    )
    plumber = identity.ensure(
        Agent.new("plumber"), profile={"age": 30}, capabilities={"actions": ["water"], "tags": ["pipes"]}
    )
    best = identity.best([novice, plumber, agent], action="water", tags=["plants"], limits={"max_litres": 25})
    assert best is not None
    say("Who can water plants, 25 litres at a time?")
    show("chosen", best.agent.name)
    show("because", best.reason)
    return best.reason


def shows_itself(agent: Agent) -> FrozenMap[str, Any]:
    """The part of an identity that others may see."""
    heading("7. It shows only what it may")
    shown = identity.snapshot(agent)
    assert shown is not None
    show("others see", shown["profile"].to_python())
    show("and", shown["extensions"].to_python())
    say("What the diary says is not among it: of an extension only the public part is shared.")
    return shown


def is_put_aside(agent: Agent) -> bool:
    """JSON and back, without loss."""
    heading("8. It is put aside, and taken up again")
    written = agent.to_json()
    back = Agent.from_json(written, KEEPER)
    show("JSON", f"{len(written)} bytes")
    show("came back", "equal" if back == agent else "different")
    saved = checkpoint(agent)
    show("checkpoint", f"state {sorted(saved.state)}, and a pointer to {sorted(saved.externalized)}")
    say("A checkpoint leaves the long log beside it and keeps a pointer.")
    return back == agent


def remembers(agent: Agent) -> None:
    """The log of what was done."""
    heading("9. It knows what happened")
    for entry in thread.filter_by_kind(agent, "instruction_end"):
        show(f"entry {entry.seq}", f"{entry.payload['action']}: {entry.payload['status']}")


def outlives_its_program() -> str:
    """A file of memories, written here and read by another process."""
    heading("10. It remembers after a restart")
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'memory.db').as_posix()}"
        with open_store(url, embedder="local") as store:
            for content, kind, confidence in LEARNED:
                receipt = blocking.remember(store, content, KEEPERS, type=kind, confidence=confidence)
                show(receipt.outcome, content)
        say("The store is closed. Another process, which knows nothing but the file, is asked:")
        show("question", QUESTION)
        # Python says the same whatever the terminal: the answer crosses a pipe as UTF-8.
        command = [sys.executable, "-X", "utf8", str(Path(__file__)), url]
        answer = subprocess.run(command, check=True, capture_output=True, encoding="utf-8").stdout
    content, why = answer.splitlines()
    show("answer", content)
    show("because", why)
    say("Each part of the score is told: what it added, and the rank by that part alone.")
    return content


def stand_in(request: Any, journal: Any) -> str:
    """What stands for a language model here: it reads what it was told, and nothing else."""
    return "No more than 35 degrees." if "35 degrees" in request.prompt.messages[0].content else "I see."


def answers() -> str:
    """A turn: recall, prompt, model, capture."""
    heading("11. It answers with what it remembers")
    with open_store("memory://", embedder="local") as store:
        for content, kind, confidence in LEARNED:
            blocking.remember(store, content, KEEPERS, type=kind, confidence=confidence)
        seen = blocking.preflight(GUIDE, QUESTION, store=store)
        say("Before a model is asked, one can see what it would be told:")
        for line in seen.prompt.messages[0].content.splitlines():
            print(textwrap.fill(line, WIDTH, initial_indent="    | ", subsequent_indent="    |   "))
        result = blocking.turn(GUIDE, QUESTION, store=store, model=stand_in)
    show("question", QUESTION)
    show("answer", result.content)
    show("events", ", ".join(event.kind for event in result.events))
    say("The memory is quoted, so nothing in it is obeyed; the answer was captured, and can be recalled.")
    return result.content


def ask(url: str) -> None:
    """What the other process does: open the file, recall, and print the best line with its reason."""
    with open_store(url, embedder="local") as store:
        best = blocking.recall(store, QUESTION, KEEPERS, limit=1).hits[0]
    print(best.entry.content, best.why, sep="\n")


def main() -> Shown:
    """Show the agent step by step."""
    agent = plans(believes())
    agent, conflict = meets_another_writer(agent)
    agent, failure, kept = fails(agent)
    agent = evolves(agent)
    reason, shown = is_chosen(agent), shows_itself(agent)
    equal = is_put_aside(agent)
    remembers(agent)
    recalled = outlives_its_program()
    answer = answers()
    return Shown(agent, conflict, failure, kept, reason, shown, equal, recalled, answer)


if __name__ == "__main__":
    ask(sys.argv[1]) if len(sys.argv) > 1 else main()
