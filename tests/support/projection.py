"""Agents, threads and projectors for the tests of projection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from omoide import Agent, Context, Memory, Signal, Thread, memory, receive, thread
from omoide.core import Instruction
from omoide.core.action import MEMORY_RESULT, Directive, Error, MemoryUpsert
from omoide.core.definition import run_instruction
from omoide.projection import ProjectionContext
from omoide.projection.engine import SPACE
from omoide.strategy import Direct

NOW = 1_800_000_000_000

Entries = list[dict[str, Any]]


def message(text: str, role: str = "user") -> dict[str, Any]:
    return {"kind": "message", "payload": {"role": role, "content": text}}


def note(text: str = "by the way") -> dict[str, Any]:
    return {"kind": "note", "payload": {"text": text}}


def agent(*said: str, **parts: Any) -> Agent:
    """An agent to whom something was said."""
    return add_entries(Agent.new("clerk", id="clerk-1", **parts), map(message, said))


def add_entries(agent: Agent, entries: Iterable[dict[str, Any]]) -> Agent:
    return thread.append(agent, [*entries])


def mark(agent: Agent, name: str) -> Any:
    """The mark of a projector, or None."""
    return memory.get_in_space(agent, SPACE, name)


def coverage_of(agent: Agent, name: str) -> list[int]:
    """Return the range that the mark of a projector covers."""
    found = mark(agent, name)
    return [] if found is None else [*found.get("covers_seq", [])]


def errors(directives: Iterable[Directive]) -> list[Error]:
    return [one for one in directives if isinstance(one, Error)]


def answer(
    agent: Agent, directive: Directive, *refused: str, ok: bool = True, error: str = "no", now: int = NOW
) -> tuple[Agent, list[Directive]]:
    """The agent after the provider's answer to a directive; keys that are refused make it an error."""
    assert isinstance(directive, MemoryUpsert)
    data: dict[str, Any] = {"request_id": directive.request_id, "status": "ok", "result": [], "meta": {}}
    if refused or not ok:
        data |= {"status": "error", "error": error}
    if refused:
        data["details"] = [
            {"key": item["key"], "status": "error", "error": error}
            if item["key"] in refused
            else {"key": item["key"], "status": "ok"}
            for item in directive.items
        ]
    return receive(agent, Signal(type=MEMORY_RESULT, data=data), now=now)


class QuietStrategy(Direct):
    """Runs what it is told, and leaves no notes about that in the thread."""

    def cmd(
        self, agent: Agent, instructions: Sequence[Instruction], ctx: Context
    ) -> tuple[Agent, list[Directive]]:
        directives: list[Directive] = []
        for one in instructions:
            agent, more, _ = run_instruction(agent, one, ctx.signal)
            directives += more
        return agent, directives


class CountingProjector:
    """A projector that writes down what it was given, as the last value of `world.<name>`."""

    def __init__(self, name: str = "counting", *, fails: bool = False) -> None:
        self.name = name
        self.fails = fails
        self.seen: list[list[int]] = []

    def project(self, memory: Memory, thread: Thread, ctx: ProjectionContext) -> Memory:
        self.seen.append([entry.seq for entry in ctx.fresh])
        if self.fails:
            raise RuntimeError("no idea")
        return memory.world_put(self.name, (memory.world_get(self.name) or 0) + len(ctx.fresh), now=ctx.now)


class ScriptedProjector:
    """A projector that returns what it is told to."""

    name = "answering"

    def __init__(self, result: Any) -> None:
        self.result = result

    def project(self, memory: Memory, thread: Thread, ctx: ProjectionContext) -> Any:
        return self.result(memory) if callable(self.result) else self.result


def splits(entries: Sequence[Any]) -> st.SearchStrategy[list[list[Any]]]:
    """Every way to part a list into runs, empty ones among them."""
    cuts = st.lists(st.integers(0, len(entries)), max_size=6).map(sorted)
    return cuts.map(lambda at: [[*entries[a:b]] for a, b in zip([0, *at], [*at, len(entries)], strict=True)])


sentences = st.sampled_from(
    [
        "Hello there.",
        "TODO: write the minutes",
        "Next I will call Ada.",
        "We need to order paper.",
        "Remember to lock the door!",
        "We decided to use SQLite because it is small.",
        "What do we need to do?",
        "```\nTODO: not said\n```",
        "",
    ]
)
entries = st.lists(
    st.one_of(st.builds(message, sentences, st.sampled_from(["user", "assistant"])), st.builds(note)),
    max_size=24,
)
