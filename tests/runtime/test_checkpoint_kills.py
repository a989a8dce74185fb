"""An agent is restored as last acknowledged after its process was killed."""

from __future__ import annotations

import os
import random
import select
from pathlib import Path

import pytest
from tests.support.checkpoint_stores import (
    CLERK,
    a_checkpoint_store,
    advance,
    expected_messages,
    messages_of,
    start,
)

from omoide import Agent, memory, thread
from omoide.errors import NotFound
from omoide.runtime.checkpoints import CheckpointStore, load_agent, save_agent

KILLS = int(os.environ.get("OMOIDE_KILLS", "10"))


def run_and_kill(job: str, place: str, folder: Path, chance: random.Random) -> int | None:
    """Let a process put its agent aside until some moment, kill it; the last step it acknowledged, if any."""
    process = start(job, place, folder)
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    enough, said = chance.choice((0, *range(1, 200, 7))), b""
    while said.count(b"\n") < enough and process.poll() is None:
        said += os.read(pipe, 4_096) if select.select([pipe], [], [], 60.0)[0] else b""
    # A random moment between two acknowledgements, or while it is not yet awake.
    select.select([], [], [], chance.random() * (0.01 if enough else 0.8))
    process.kill()
    rest, _ = process.communicate()
    assert process.returncode == -9, "the process ended by itself"
    steps = (said + rest).split(b"\n")[:-1]
    return int(steps[-1]) if steps else None


async def check(checkpoints: CheckpointStore, acknowledged: int) -> int:
    """The step whose agent is there: the last acknowledged one, or the one that was being put aside."""
    try:
        agent, _ = await load_agent("me", CLERK, checkpoints)
    except NotFound:
        assert acknowledged == -1, "it was put aside"
        return -1
    n = memory.world_get(agent, "n")
    assert n in (acknowledged, acknowledged + 1)
    assert [text.split()[0] for text in messages_of(agent)] == expected_messages(n)
    assert [one.seq for one in thread.entries(agent)] == [*range(len(thread.entries(agent)))]
    return int(n)


async def go_on(checkpoints: CheckpointStore, n: int) -> Agent | None:
    """One step more, and the agent is there."""
    if n < 0:
        return None
    agent, rev = await load_agent("me", CLERK, checkpoints)
    newer = advance(agent, n + 1)
    await save_agent(newer, checkpoints, expected_rev=rev)
    assert (await load_agent("me", CLERK, checkpoints))[0] == newer
    return newer


@pytest.mark.timeout(0)
@pytest.mark.parametrize("place", ["sqlite", "files"])
@pytest.mark.parametrize("job", ["live", "dwell"])
async def test_an_agent_survives_the_death_of_its_process(job: str, place: str, tmp_path: Path) -> None:
    """After each `kill -9` it is what was acknowledged last or what was next, whole, and it goes on.

    Whether it is put aside by hand, or by a runtime with each signal.
    """
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    chance = random.Random(seed)
    n = -1
    for _ in range(-(-KILLS // 2)):
        last = run_and_kill(job, place, tmp_path, chance)
        async with a_checkpoint_store(place, tmp_path) as checkpoints:
            n = await check(checkpoints, n if last is None else last)
            n += await go_on(checkpoints, n) is not None
    assert n > 0
