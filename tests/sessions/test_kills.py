"""Tests of turns whose process is killed: each is finished exactly once."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.session_processes import Life, finish, run_in_process
from tests.support.sessions import WatchedStore, captured_entries, conversation_of, describe, lines, talker

from omoide import Scope, clock, memory
from omoide.errors import SessionBusy, TurnPending
from omoide.sessions import Session
from omoide.stores import open_store
from omoide.testing import FrozenClock

KILLS = int(os.environ.get("OMOIDE_KILLS", "10"))

POINTS = [
    f"{what} {when}"
    for what in (
        *("claim 1", "mark running 1", "user 1", "recall 1", "keep recalled 1", "model 1", "reply 1"),
        *("begin pay 1", "pay 1", "look 1", "end pay 1", "end look 1", "begin count 1", "end count 1"),
        *("model 2", "answer 1", "commit 1", "write 1", "mark captured 1", "release 1"),
    )
    for when in ("before", "after")
    if not (what.startswith("model") and when == "after")  # that is the next one's before
]
"""All that a turn does, from its first step to its last."""

RESUMED = ["mark running 1 before", "mark waiting 1 before", "mark waiting 1 after", "mark waiting 2 before"]
RESUMED += [point for point in POINTS if "recall" not in point and not point.startswith(("user", "mark run"))]


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a session for each point at which its turn was killed."""
    folder = tmp_path_factory.mktemp("kills")
    ended = run_in_process(folder, {point: [point] for point in POINTS})
    assert {point: codes for point, codes in ended.items() if codes != [-9]} == {}, (
        "not every point was reached"
    )
    return folder


class After:
    """A session whose runner was killed, with all that is known of what it did."""

    def __init__(self, life: Life, session: Session, store: WatchedStore) -> None:
        self.life, self.session, self.store = life, session, store
        self.found = lines(session.thread.entries)
        self.record = session.record
        self.ran = self.done()

    def done(self) -> list[str]:
        """The tools that took effect so far."""
        return self._noted("done")

    def asked(self) -> list[str]:
        """What the model was asked so far, in the second turn."""
        return [line for line in self._noted("asked") if line.startswith("r2")]

    def _noted(self, kind: str) -> list[str]:
        path = self.life.folder / f"{self.life.name}.{kind}"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def open(self, tool: str) -> bool:
        """Whether it is known that a tool began, and not how it ended."""
        ended = any(line.startswith(f"ok {tool}") for line in self.found)
        return f"began {tool}" in self.found and not ended


def copy(lives: Path, name: str, folder: Path) -> None:
    """Copy all files of a life."""
    for path in lives.glob(f"{name}.*"):
        shutil.copy(path, folder)


@asynccontextmanager
async def open_copy(lives: Path, name: str, folder: Path, n: int = 9) -> AsyncIterator[After]:
    """A copy of the session after its last life, when no lease is held any more."""
    copy(lives, name, folder)
    life = Life(folder, name, n)
    with clock.override(life.clock):
        async with open_store(life.url, embedder="none") as opened:
            assert opened.sync.check() == []
            store = WatchedStore(opened)
            yield After(life, await Session.load("s1", life.spec(), store=store, model=life.model), store)


def only(found: Iterable[str], *starts: str) -> list[str]:
    """The lines that start with one of these."""
    return [line for line in found if line.startswith(starts)]


async def check(after: After) -> None:
    """The turn is over as if nothing had happened, and nothing happened twice that must not."""
    session, found = after.session, lines(after.session.thread.entries)
    assert found[:3] == ["user: hello", "assistant: Done.", "user: pay"]
    assert found[-1] == "assistant: Done."
    assert len(only(found, "user")) == 2
    assert only(found, "error") == []
    assert only(found, "wants") == ["wants pay look count"]
    assert len(only(found, "assistant")) == 2
    paid = only(found, "ok pay")
    assert paid in (["ok pay: paid"], ["ok pay: by hand"])
    assert after.done().count("pay") <= 1
    if paid == ["ok pay: paid"]:
        assert after.done().count("pay") == 1
    assert only(found, "ok look") == ["ok look: 12 left"]
    assert len(only(found, "ok count")) == 1
    for tool in ("pay", "look", "count"):
        ended = next(at for at, line in enumerate(found) if line.startswith(f"ok {tool}"))
        assert found.index("wants pay look count") < found.index(f"began {tool}") < ended
    assert [entry.seq for entry in session.thread.entries] == [*range(len(session.thread.entries))]
    assert (session.status, session.record.turns, session.requests) == ("finished", 2, ["r1", "r2"])
    assert (session.record.turn, session.record.captures, session.pending_reviews) == (None, (), ())
    assert memory.world_get(session.agent, "n") == 1
    kept = await captured_entries(after.store)
    assert [(entry.metadata["request_id"], entry.content) for entry in kept] == [
        ("r1", "User: hello\nAssistant: Done."),
        ("r2", "User: pay\nAssistant: Done."),
    ]
    assert [entry.rev for entry in kept] == [1, 1]
    places = [int(one.ref.rsplit(":", 1)[1]) for one in kept[1].evidence]
    assert [describe(session.thread.entries[at]) for at in places] == ["user: pay", "assistant: Done."]
    assert len(await after.store.list_entries(Scope())) == 2
    assert (await session.replay("r2")).content == "Done."


async def check_next(after: After) -> None:
    """The conversation goes on, and the model sees all of it once."""
    model = talker("Bye.")
    await after.session.run("bye", model=model)
    paid = only(lines(after.session.thread.entries), "ok pay")[0].removeprefix("ok pay")
    assert conversation_of(model.prompts[0]) == [
        *("user: hello", "assistant: Done.", "user: pay", "assistant: ", f"tool{paid}", "tool: 12 left"),
        *("tool: done", "assistant: Done.", "user: bye"),
    ]


@pytest.mark.parametrize("point", POINTS)
async def test_a_killed_turn_is_finished_once(lives: Path, tmp_path: Path, point: str) -> None:
    """Wherever the process ends, whoever takes the session up brings the turn to the same end."""
    async with open_copy(lives, point, tmp_path) as after:
        asked, recalls = after.asked(), after.store.calls.count("recall")
        unsure = after.open("pay")
        result = await finish(after.session)
        assert result.content == "Done."
        await check(after)
        if unsure:
            assert after.done().count("pay") == after.ran.count("pay"), "it ran again and nobody had said so"
        if not after.open("look") and only(after.found, "ok look"):
            assert after.done().count("look") == after.ran.count("look"), "it had answered"
        if "wants pay look count" in after.found:
            assert "r2 0" not in after.asked()[len(asked) :], "the reply was known"
        if only(after.found[3:], "assistant: Done."):
            assert after.asked() == asked, "the answer was known"
        if after.record.turn is not None and after.record.turn.remembered:
            assert after.store.calls.count("recall") == recalls, "it had been recalled"
        await check_next(after)


@pytest.mark.parametrize("point", ["begin pay 1 after", "pay 1 before", "pay 1 after", "end pay 1 before"])
async def test_a_tool_that_may_have_happened_is_asked_about(lives: Path, tmp_path: Path, point: str) -> None:
    """It began, nobody knows how it ended, so it waits for a person; what may happen twice does not."""
    async with open_copy(lives, point, tmp_path) as after:
        assert after.open("pay")
        result = await after.session.resume()
        assert result.status == after.session.status == "waiting"
        [review] = result.reviews
        assert review.unknown
        assert review.call is not None
        assert (review.call.name, review.boundary) == ("pay", "tool")
        effect = result.journal.get(f"tool:{review.call.id}")
        assert effect is not None
        assert effect.status == "unknown"
        assert after.done().count("pay") == after.ran.count("pay")


async def test_a_person_may_have_it_run_again(lives: Path, tmp_path: Path) -> None:
    """After a yes the tool runs once more, and its answer is the one that counts."""
    async with open_copy(lives, "pay 1 after", tmp_path) as after:
        result = await after.session.resume()
        await after.session.approve(result.reviews[0].id)
        assert (await after.session.resume()).content == "Done."
        assert after.done().count("pay") == 2
        found = lines(after.session.thread.entries)
        assert only(found, "ok pay") == ["ok pay: paid"]
        assert len(await captured_entries(after.store)) == 2


@pytest.mark.parametrize("point", ["reply 1 after", "begin pay 1 before"])
async def test_a_tool_that_did_not_begin_simply_runs(lives: Path, tmp_path: Path, point: str) -> None:
    """Before its beginning is written down it has not happened, so nobody needs to be asked."""
    async with open_copy(lives, point, tmp_path) as after:
        result = await after.session.resume()
        assert (result.status, sorted(after.done())) == ("finished", ["look", "pay"])


@pytest.mark.parametrize("point", ["answer 1 after", "commit 1 before"])
async def test_an_answer_without_its_header_is_committed(lives: Path, tmp_path: Path, point: str) -> None:
    """The session still says that it runs; nothing is called, and the answer is part of it, once."""
    async with open_copy(lives, point, tmp_path) as after:
        assert (after.session.status, after.session.record.turns) == ("running", 1)
        asked = after.asked()
        assert (await after.session.resume()).content == "Done."
        assert after.asked() == asked
        await check(after)


@pytest.mark.parametrize(
    "point", ["commit 1 after", "write 1 before", "write 1 after", "mark captured 1 before"]
)
@pytest.mark.parametrize("way", ["resume", "run"])
async def test_a_turn_that_was_not_captured_is_captured_once(
    lives: Path, tmp_path: Path, point: str, way: str
) -> None:
    """It is over, only its memory is open: the next to come sees to that, whatever they came for."""
    async with open_copy(lives, point, tmp_path) as after:
        assert (after.session.status, after.session.record.turns) == ("finished", 2)
        assert len(after.session.record.captures) == 1
        if way == "run":
            await after.session.run("bye", request_id="r3")
        else:
            await after.session.resume()
        kept = [entry.metadata["request_id"] for entry in await captured_entries(after.store)]
        assert kept == ["r1", "r2", "r3"][: 3 if way == "run" else 2]
        assert not after.session.record.captures


async def test_a_lease_outlives_its_runner_for_a_while(lives: Path, tmp_path: Path) -> None:
    """Until it has run out the session is busy; then it is not, and says that a turn is not finished."""
    async with open_copy(lives, "model 1 before", tmp_path, n=1) as after:
        session = after.session
        assert session.status == "running"
        for attempt in (session.resume(), session.run("me"), session.cancel()):
            with pytest.raises(SessionBusy):
                await attempt
        with clock.override(FrozenClock(clock.now() + 30_001)):
            with pytest.raises(TurnPending, match="running"):
                await session.run("me")
            assert (await session.resume()).status == "finished"


@pytest.mark.parametrize(
    "point",
    ["mark running 1 after", "keep recalled 1 after", "pay 1 after", "model 2 before", "answer 1 after"],
)
async def test_a_killed_turn_can_be_given_up(lives: Path, tmp_path: Path, point: str) -> None:
    """Cancelled wherever it stopped, it is no part of the conversation, and nothing of it is remembered."""
    async with open_copy(lives, point, tmp_path) as after:
        await after.session.cancel("killed")
        assert (after.session.status, after.session.record.turns) == ("finished", 1)
        model = talker("Bye.")
        await after.session.run("bye", model=model)
        assert conversation_of(model.prompts[0]) == ["user: hello", "assistant: Done.", "user: bye"]
        assert memory.world_get(after.session.agent, "n") is None
        kept = [entry.content for entry in await captured_entries(after.store)]
        assert kept == ["User: hello\nAssistant: Done.", "User: bye\nAssistant: Bye."]


def chains(count: int, chance: random.Random) -> dict[str, list[str]]:
    """Turns that are killed, and whose runners are killed again and again."""
    return {
        f"chain{at}": [chance.choice(POINTS), *chance.choices(RESUMED, k=chance.randint(1, 4))]
        for at in range(count)
    }


@pytest.mark.timeout(0)
async def test_whoever_takes_it_up_may_be_killed_as_well(tmp_path: Path) -> None:
    """Killed at random, several times in a row, the turn still ends once, and no tool was run twice."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    plan = chains(KILLS, random.Random(seed))
    plan |= {
        "while it waits": [
            "pay 1 after",
            "mark waiting 1 before",
            "mark waiting 1 after",
            "mark waiting 2 after",
        ],
        "while it is settled": ["pay 1 after", "end pay 1 before", "end pay 1 after", "begin count 1 after"],
        "at the end": [
            "answer 1 after",
            "commit 1 before",
            "commit 1 after",
            "write 1 after",
            "release 1 before",
        ],
    }
    lives = tmp_path / "lives"
    lives.mkdir()
    run_in_process(lives, plan)
    for name, points in plan.items():
        async with open_copy(lives, name, tmp_path) as after:
            print(name, points)  # noqa: T201
            await finish(after.session)
            await check(after)
            await check_next(after)
