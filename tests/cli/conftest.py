"""Run commands in a temporary folder and environment, without an encoder."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner, Result

from omoide import Agent, Definition, identity, memory
from omoide.cli import chat, shell
from omoide.cli.app import app
from omoide.runtime.checkpoints import DocumentCheckpointStore, save_agent
from omoide.sessions import Session
from omoide.stores import open_store
from omoide.turns import AgentSpec

Run = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, which is where the command runs."""
    for name in [name for name in os.environ if name.startswith(("OMOIDE_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("OMOIDE_EMBEDDER", "none")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def omoide(home: Path) -> Run:
    """Runs a command and checks its exit code, which is 0 unless said otherwise."""

    def run(*arguments: str, code: int = 0, input: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(app, list(arguments), input=input)
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return run


@pytest.fixture
def answer(omoide: Run) -> Callable[..., Any]:
    """Runs a command with `--json` and reads its answer."""

    def run(*arguments: str, code: int = 0) -> Any:
        return json.loads(omoide(*arguments, "--json", code=code).stdout)

    return run


@pytest.fixture
def three(omoide: Run) -> None:
    """A store with three memories."""
    for number in (1, 2, 3):
        omoide("remember", f"Memory number {number}.", "--id", f"m{number}", "--at", f"2024-01-0{number}")


@pytest.fixture
def learnt(home: Path) -> str:
    """A session `s1` that understands one thing, promoted another, and lets one wait; the id of the run."""
    url = shell.resolve_settings({}, os.environ, home).store.value or ""
    (home / "data" / "omoide").mkdir(parents=True, exist_ok=True)

    async def learn() -> str:
        async with open_store(url, embedder="none") as store:
            spec = AgentSpec.new(chat.DEFAULT_SPEC)
            session = await Session.start(spec, "s1", store=store, llm=lambda request, journal: "I see.")
            session.set_promotion(enabled=False)
            async with session:
                await session.chat("Alex drinks tea.")
                session.propose("Alex drinks tea.", type="fact", confidence=1.0, importance=0.9, id="tea")
                done = await session.promote()
                session.propose("Alex may drink coffee.", type="hypothesis", importance=0.5, id="coffee")
                session.context.put("framework", "Phoenix 1.7", memory_type="fact", confidence=0.9)
            assert done.run is not None
            return done.run.id

    return anyio.run(learn)


def make_planner(id: str, *, age: int, tokens: int) -> Agent:
    """An agent with a memory and an identity."""
    agent = Agent.new(Definition.new("planner"), id=id)
    agent = memory.world_put(agent, "mood", {"now": "calm \x1b[31m"})
    agent = memory.append_to_space(memory.ensure_space(agent, "notes", []), "notes", "one")
    said = {"actions": ["plan"], "tags": ["calm"], "limits": {"tokens": tokens}}
    return identity.ensure(agent, profile={"age": age}, capabilities=said)


@pytest.fixture
def resting(home: Path) -> Path:
    """A store in which two planners rest, one who has nothing yet, and one elsewhere; its file."""
    url = shell.resolve_settings({}, os.environ, home).store.value or ""
    (home / "data" / "omoide").mkdir(parents=True, exist_ok=True)

    async def rest() -> None:
        async with open_store(url, embedder="none") as store:
            here = DocumentCheckpointStore(store)
            for agent in (make_planner("ada", age=3, tokens=8_000), make_planner("bob", age=9, tokens=1_000)):
                await save_agent(agent, here)
            await save_agent(Agent.new(Definition.new("idle"), id="new"), here)
            await save_agent(
                make_planner("eve", age=1, tokens=1), DocumentCheckpointStore(store, namespace="elsewhere")
            )

    anyio.run(rest)
    return home / "data" / "omoide" / "memory.db"
