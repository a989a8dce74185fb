"""A checkpoint store holds the last acknowledged agent after any crash and any concurrent writer."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.checkpoint_stores import (
    CLERK,
    Crash,
    DictCheckpointStore,
    RecordingCheckpointStore,
    a_checkpoint_store,
    clerk,
    crash_at,
    entry,
    messages_of,
)

from omoide import Agent, Thread, memory, thread
from omoide.errors import CheckpointFailed, Conflict, NotFound
from omoide.runtime.checkpoints import CheckpointStore, load_agent, save_agent

# One writer, who may end at any step and be followed by another.

Step = tuple[str, int, bool]

steps: st.SearchStrategy[list[Step]] = st.lists(
    st.tuples(
        st.sampled_from(("say", "say", "change", "begin", "rest", "end", "fail", "wake")),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=25,
)


class Life:
    """An agent, and what a checkpoint store may give of it."""

    def __init__(self, checkpoints: CheckpointStore) -> None:
        self.checkpoints = checkpoints
        self.agent, self.rev = clerk(), 0
        self.acknowledged: Agent | None = None
        self.attempted: list[Agent] = []
        """What was being put aside since, and may have come to be kept or not."""

    async def step(self, what: str, number: int, flag: bool) -> None:
        """Do something."""
        match what:
            case "say":
                said = [entry(f"{len(messages_of(self.agent))}+{at}") for at in range(number)]
                self.agent = thread.append(self.agent, said) if said else self.agent
            case "change":
                self.agent = memory.world_put(self.agent, "n", number)
            case "begin":
                self.agent = thread.put(self.agent, Thread.new())
            case "rest":
                await self.rest(self.rev if flag else None)
            case "end" | "fail":
                await self.interrupted(number, flag)
                if what == "end":
                    await self.wake()
            case _:
                await self.wake()

    async def rest(self, expected_rev: int | None) -> None:
        """Put the agent aside; only an attempt that came to be kept unnoticed may be in the way."""
        try:
            self.rev = await save_agent(self.agent, self.checkpoints, expected_rev=expected_rev)
        except Conflict:
            assert self.attempted
            await self.wake()
        else:
            self.acknowledged, self.attempted = self.agent, []

    async def interrupted(self, at: int, done: bool) -> None:
        """Put the agent aside, and be stopped at the so manieth write."""
        try:
            self.rev = await save_agent(self.agent, crash_at(self.checkpoints, at, done=done))
        except Crash:
            self.attempted.append(self.agent)
        else:
            self.acknowledged, self.attempted = self.agent, []

    async def wake(self) -> None:
        """Take up what is kept: what was acknowledged, or what was being put aside after it."""
        try:
            self.agent, self.rev = await load_agent("me", CLERK, self.checkpoints)
        except NotFound:
            assert self.acknowledged is None
            self.agent, self.rev, self.attempted = clerk(), 0, []
            return
        assert self.agent in [self.acknowledged, *self.attempted]
        self.acknowledged, self.attempted = self.agent, []


@pytest.mark.parametrize("place", ["memory", "files", "own"])
@given(plan=steps)
def test_what_was_acknowledged_is_there_wherever_a_writer_ends(place: str, plan: list[Step]) -> None:
    """Or what was being put aside after it, as a whole; and it always goes on from there."""

    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            if place == "own":
                await lived_through(DictCheckpointStore())
            else:
                async with a_checkpoint_store(place, Path(folder)) as checkpoints:
                    await lived_through(checkpoints)

    async def lived_through(checkpoints: CheckpointStore) -> None:
        life = Life(checkpoints)
        for step in plan:
            await life.step(*step)
        await life.wake()
        await life.step("say", 2, True)
        await life.rest(life.rev)
        assert not life.attempted
        await life.wake()
        assert [one.seq for one in thread.entries(life.agent)] == [*range(len(messages_of(life.agent)))]

    asyncio.run(run())


@pytest.mark.parametrize("place", ["memory", "sqlite", "files"])
async def test_entries_that_were_not_acknowledged_give_way(place: str, tmp_path: Path) -> None:
    """They are not seen when the agent is taken up, and neither doubled nor in the way afterwards."""
    async with a_checkpoint_store(place, tmp_path) as checkpoints:
        base = clerk("a", "b")
        await save_agent(base, checkpoints)
        lost = thread.append(base, [entry("lost"), entry("lost too"), entry("and this")])
        with pytest.raises(Crash):
            await save_agent(lost, crash_at(checkpoints, 0, done=True))
        assert len((await checkpoints.read_thread("me", thread.of(base).id)).entries) == 5
        again, rev = await load_agent("me", CLERK, checkpoints)
        assert again == base
        other = thread.append(again, entry("c"))
        await save_agent(other, checkpoints, expected_rev=rev)
        assert await load_agent("me", CLERK, checkpoints) == (other, 2)
        assert len((await checkpoints.read_thread("me", thread.of(base).id)).entries) == 3


@pytest.mark.parametrize("place", ["memory", "sqlite", "files"])
async def test_whoever_lives_on_may_try_again(place: str, tmp_path: Path) -> None:
    """After any number of failures the same revision is the one to build on, and nothing is doubled."""
    async with a_checkpoint_store(place, tmp_path) as checkpoints:
        agent = clerk("a")
        rev = await save_agent(agent, checkpoints)
        agent = thread.append(agent, [entry("b"), entry("c")])
        for at in (1, 2, 2, 1):
            with pytest.raises(Crash):
                await save_agent(agent, crash_at(checkpoints, at, done=False), expected_rev=rev)
            agent = thread.append(agent, entry("d"))
        assert await save_agent(agent, checkpoints, expected_rev=rev) == 2
        assert (await load_agent("me", CLERK, checkpoints))[0] == agent
        assert messages_of(agent) == ["a", "b", "c", "d", "d", "d", "d"]


# Several writers at once, in every order.


class Turn:
    """A pause, in which others may go on."""

    def __await__(self) -> Generator[None, None, None]:
        yield


async def pause(name: str) -> None:
    """Let others go on."""
    await Turn()


class Writer:
    """Somebody who puts an agent aside, one step of the checkpoint store at a time."""

    def __init__(self, agent: Agent, checkpoints: CheckpointStore, expected_rev: int | None) -> None:
        self.agent = agent
        self.rev: int | None = None
        self.over = False
        watched = RecordingCheckpointStore(checkpoints, before=pause)
        self._work = save_agent(agent, watched, expected_rev=expected_rev)
        self.go_on()  # to where the first step is about to be taken

    def go_on(self) -> None:
        """Take one step."""
        try:
            self._work.send(None)
        except StopIteration as ended:
            self.rev, self.over = ended.value, True
        except (Conflict, CheckpointFailed):  # somebody was faster, with the same past or with another
            self.over = True


def at_once(work: Awaitable[Any]) -> Any:
    """What comes of something that waits for nobody."""
    steps = work.__await__()
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            return ended.value


BASE = clerk("a", "b")
TAIL = [*thread.of(thread.append(BASE, [entry("p"), entry("q")])).entries][2:]


def agent_told(*said: str) -> Agent:
    """The agent both began with, to whom more was said."""
    return thread.append(BASE, [entry(text) for text in said])


def agent_with_tail(tail: int) -> Agent:
    """The agent to whom was said what an earlier writer left unacknowledged."""
    return thread.append(BASE, TAIL[:tail])


WRITERS: dict[str, list[Agent]] = {
    "different words": [agent_told("one"), agent_told("two", "three")],
    "as many words": [agent_told("one"), agent_told("two")],
    "no words": [memory.world_put(BASE, "n", 1), agent_told("two")],
    "words that are there": [agent_with_tail(2), agent_told("two")],
    "some that are there": [agent_with_tail(1), agent_with_tail(2)],
    "the same words": [agent_with_tail(2), agent_with_tail(2)],
}
BEFORE = ("nothing", "kept", "tail", "only a tail")


def prepare_store(before: str) -> DictCheckpointStore:
    """A checkpoint store in which an agent was put aside, or not, or not quite."""
    checkpoints = DictCheckpointStore()
    if before in ("kept", "tail"):
        at_once(save_agent(BASE, checkpoints))
    if before in ("tail", "only a tail"):
        with pytest.raises(Crash):
            at_once(save_agent(agent_with_tail(2), crash_at(checkpoints, 0, done=True)))
    return checkpoints


def orders(run: Callable[[Callable[[int], int]], None]) -> int:
    """Run something with every choice it can make, and count how often that is."""
    taken: list[tuple[int, int]] = []
    for times in range(1, 1_000_000):
        at = 0

        def choose(many: int) -> int:
            nonlocal at
            if at == len(taken):
                taken.append((0, many))
            at += 1
            return taken[at - 1][0]

        run(choose)
        while taken and taken[-1][0] + 1 == taken[-1][1]:
            taken.pop()
        if not taken:
            return times
        chosen, many = taken.pop()
        taken.append((chosen + 1, many))
    raise AssertionError("there is no end to it")


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("agents", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("fenced", [True, False])
def test_of_two_writers_none_harms_what_the_other_was_told(
    agents: list[Agent], before: str, fenced: bool
) -> None:
    """In whatever order their steps fall, the one acknowledged last is there, complete."""

    kept = before in ("kept", "tail")

    def run(choose: Callable[[int], int]) -> None:
        checkpoints = prepare_store(before)
        writers = [Writer(agent, checkpoints, int(kept) if fenced else None) for agent in agents]
        check(checkpoints, writers, choose, BASE if kept else None)

    assert orders(run) >= 10


def check(
    checkpoints: DictCheckpointStore, writers: list[Writer], choose: Callable[[int], int], kept: Agent | None
) -> None:
    """Let the writers go on in the order chosen; after each step, what was acknowledged is there."""
    acknowledged, rev = kept, 0
    seen: Any = None
    while waiting := [writer for writer in writers if not writer.over]:
        writer = waiting[choose(len(waiting))]
        writer.go_on()
        if writer.rev is not None and writer.rev > rev:
            acknowledged, rev = writer.agent, writer.rev
        before, seen = seen, [*map(id, (*checkpoints.checkpoints.values(), *checkpoints.journals.values()))]
        if acknowledged is not None and seen != before:
            assert at_once(load_agent("me", CLERK, checkpoints))[0] == acknowledged
    agent, rev = (BASE, 0) if acknowledged is None else at_once(load_agent("me", CLERK, checkpoints))
    agent = thread.append(agent, entry("at last"))
    at_once(save_agent(agent, checkpoints, expected_rev=rev))
    assert at_once(load_agent("me", CLERK, checkpoints))[0] == agent


@given(
    before=st.sampled_from(BEFORE),
    agents=st.lists(st.sampled_from([*itertools.chain(*WRITERS.values())]), min_size=3, max_size=4),
    choices=st.lists(st.integers(0, 3), min_size=40, max_size=40),
)
def test_of_many_writers_none_harms_another(before: str, agents: list[Agent], choices: list[int]) -> None:
    """As with two, in random orders."""
    checkpoints = prepare_store(before)
    writers = [Writer(agent, checkpoints, None) for agent in agents]
    check(
        checkpoints, writers, lambda many: choices.pop() % many, BASE if before in ("kept", "tail") else None
    )
