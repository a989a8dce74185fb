"""Tests of a coding session of two days whose process is killed at any step.

Run as `python -m tests.sessions.test_coding_session FILE STEP`, this file runs the days of the
example and is killed at a step: before or after a write.
"""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from tests.conftest import SOAK

from omoide import Entry, Filter, RecallRequest, Scope, longterm
from omoide.core import ThreadEntry
from omoide.longterm import conflicts, queries
from omoide.sessions import Session
from omoide.stores import AsyncStore, open_store

ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples" / "coding_session.py"
PAIRS = max(1, int(os.environ.get("OMOIDE_KILLS", "10")) // 5)
CHANGING = ("write", "save", "append", "claim", "release", "supersede", "link", "record_access")


def example() -> Any:
    """The example as a module."""
    spec = importlib.util.spec_from_file_location("example_coding_session", FILE)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


EXAMPLE = example()
SCRIPT = EXAMPLE.script()
PROJECT = Scope(project_id=EXAMPLE.PROJECT)


WHOLE = [
    line
    for turn in SCRIPT.turns
    for line in ((turn.id, "user", turn.user), (turn.id, "assistant", turn.agent))
]
"""Who says what in which request, if nothing goes wrong."""


class Steps:
    """Counts what a process writes, before and after it is done, and ends the process at a step."""

    def __init__(self, last: int) -> None:
        self.last, self.taken = last, 0

    def take(self) -> None:
        """One more step."""
        self.taken += 1
        if self.taken == self.last:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """The method, with a step before it and one after it."""

        @wraps(method)
        async def stepped(*args: Any, **given: Any) -> Any:
            self.take()
            result = await method(*args, **given)
            self.take()
            return result

        return stepped


def live(path: str, last: int) -> None:
    """Live through the two days, or what is left of them, up to a step; print how many steps it took."""
    steps = Steps(last)
    for name in CHANGING:
        setattr(AsyncStore, name, steps.around(getattr(AsyncStore, name)))
    anyio.run(EXAMPLE.play, f"sqlite:///{path}", SCRIPT.turns)
    sys.stdout.write(str(steps.taken))


def life(path: Path, last: int = 0) -> int:
    """One life of a process, which ends at a step or with the second day; how many steps it took."""
    command = [sys.executable, "-m", "tests.sessions.test_coding_session", str(path), str(last)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True)
    assert done.returncode in ((0, -signal.SIGKILL) if last else (0,)), done.stderr
    return int(done.stdout) if done.returncode == 0 else last


def ran(command: list[str]) -> tuple[int, str, str]:
    """How a program ended, and what it said."""
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int]:
    """The two days without an accident, and how many steps they take."""
    path = tmp_path_factory.mktemp("days") / "whole.db"
    return path, life(path)


@asynccontextmanager
async def open_file(path: Path) -> AsyncIterator[AsyncStore]:
    async with open_store(f"sqlite:///{path}", embedder="none") as store:
        yield store


def unmatched(entries: list[Entry], wanted: list[tuple[str, str]]) -> tuple[list[Any], list[Any]]:
    """What is there and not expected, and what is expected and not there; each is the other's only match."""
    left = [*entries]
    lost = []
    for label in wanted:
        fitting = [entry for entry in left if EXAMPLE.fits(entry, label)]
        if len(fitting) == 1:
            left.remove(fitting[0])
        else:
            lost.append((label, [entry.content for entry in fitting]))
    return [(entry.type, entry.content) for entry in left], lost


def messages_of(entries: Any) -> list[tuple[str, str, str]]:
    """Who said what in which request, in order, but for what was only between the agent and its tools."""
    told = [one.payload for one in entries if EXAMPLE.is_said(one)]
    return [(one["request_id"], one["role"], one["content"]) for one in told]


def acknowledged_ids(entries: Any) -> list[str]:
    """The memories of which the agent was told that they are kept."""
    results = [one.payload for one in entries if one.kind == "tool_result"]
    return [
        msgspec.json.decode(one["content"])["memory_id"] for one in results
        if one["name"] == "remember" and one["status"] == "ok"
    ]  # fmt: skip


async def check(path: Path) -> None:
    """The end is as the script says, whatever happened on the way."""
    async with open_file(path) as store:
        entries = await store.list_entries(EXAMPLE.SCOPE)
        assert len(entries) == len(await store.list_entries(Scope())), "all of it belongs to the session"
        current = [entry for entry in entries if entry.superseded_by is None]
        gone = [entry for entry in entries if entry.superseded_by is not None]
        assert unmatched(current, SCRIPT.end.live) == ([], [])
        assert unmatched(gone, SCRIPT.end.superseded) == ([], [])
        many = Counter((entry.type, entry.content, entry.scope) for entry in current)
        assert max(many.values()) == 1
        session = await Session.load(EXAMPLE.SESSION, EXAMPLE.CODER, store=store)
        thread = session.thread
        assert messages_of(thread.entries) == WHOLE
        kept = acknowledged_ids(thread.entries)
        wanted = [call for turn in SCRIPT.turns for round in turn.rounds for call in round]
        assert len(kept) == len({*kept}) == sum(name == "remember" for name, _ in wanted)
        assert {*kept} <= {entry.id for entry in entries}
        assert session.promotion_stats.waiting == 0
        assert session.record.turn is None
        await check_sources(store, entries, thread.entries)
        await check_superseded(store, gone)


async def check_sources(store: AsyncStore, entries: list[Entry], thread: Any) -> None:
    """Each memory leads back to the words it comes from."""
    told: dict[int, ThreadEntry] = {entry.seq: entry for entry in thread}
    for entry in entries:
        sources = (await longterm.provenance(store, entry.id, PROJECT)).sources()
        assert sources, entry.content
        for source in sources:
            assert source.said is not None, (entry.content, source.status)
            there = told[source.said.seq]
            assert source.said.content == there.payload["content"]
            assert there.kind == ("tool_result" if source.evidence.kind == "tool" else "message")
            if source.evidence.quote is not None:
                assert source.evidence.quote in source.said.content
                assert source.evidence.quote == entry.content


async def check_superseded(store: AsyncStore, gone: list[Entry]) -> None:
    """What was superseded is neither recalled nor listed, and is there for who asks where it went."""
    listed = {entry.id for entry in await queries.query_all(store, PROJECT, limit=1_000)}
    for entry in gone:
        assert entry.id not in listed
        request = RecallRequest(query=entry.content, agent_id="coder", project_id=EXAMPLE.PROJECT, limit=50)
        found = await store.recall(request)
        assert entry.id not in [one.id for one in found.entries]
        after = await store.recall(request.replace(filter=Filter(include_superseded=True)))
        assert entry.id in [one.id for one in after.entries]
        versions = await store.history(entry.id, PROJECT)
        assert next(version.entry.superseded_by for version in versions if version.entry) is None
        traced = await longterm.provenance(store, entry.id, PROJECT)
        assert traced.superseded_by is not None
        if traced.superseded_by.id != "deleted":
            new = await longterm.provenance(store, traced.superseded_by.id, PROJECT)
            assert entry.id in [one.id for one in new.supersedes]


async def test_two_days_end_as_they_should(whole: tuple[Path, int]) -> None:
    """Every memory that the script names is there under its type, once, with its source, and no other."""
    await check(whole[0])


async def test_what_changed_was_replaced_with_its_reason(whole: tuple[Path, int]) -> None:
    """An upgraded framework, a decision taken back and an answered question each say what came of them."""
    async with open_file(whole[0]) as store:
        entries = {entry.content: entry for entry in await store.list_entries(EXAMPLE.SCOPE)}
        by_id = {entry.id: entry for entry in entries.values()}
        flask = entries["framework: Flask 2.3"]
        assert by_id[str(flask.superseded_by)].content == "framework: Flask 3.0"
        for content in entries:
            if content.startswith(("Sessions are stored in Redis", "We chose Redis")):
                redis = entries[content]
                assert by_id[str(redis.superseded_by)].content == "Sessions are stored in a Postgres table."
                assert redis.superseded_reason == "the hosted Redis is 80 ms away"
        asked = entries["Open question: does the hoster offer Redis, and what does it cost?"]
        assert (asked.superseded_by, asked.superseded_reason) == ("deleted", "answered: it is not offered")


async def test_a_bug_knows_its_cause_and_its_lesson(whole: tuple[Path, int]) -> None:
    """What the agent related is found from one memory to the other, and nothing contradicts anything."""
    async with open_file(whole[0]) as store:
        entries = {entry.content: entry.id for entry in await store.list_entries(EXAMPLE.SCOPE)}
        bug = entries["Checkout totals were off by a cent after tax batching."]
        found = await longterm.related(store, bug, PROJECT)
        assert {(one.relation, one.entry.type) for one in found} == {
            ("has_root_cause", "root_cause"),
            ("produced_lesson", "lesson_learned"),
        }
        assert await conflicts.find_conflicts(store, PROJECT) == ()


async def test_another_session_of_the_project_knows_it(whole: tuple[Path, int], tmp_path: Path) -> None:
    """Whoever works on the project later is given what was learned, and not what was given up."""
    async with (
        open_file(whole[0]) as store,
        Session.open(EXAMPLE.CODER, "next-week", store=store, project_id=EXAMPLE.PROJECT) as session,
    ):
        context = await session.assemble_context("Where are sessions stored, in Redis or in Postgres?")
        told = [entry.content for entry in context.long_term_memories]
        assert "Sessions are stored in a Postgres table." in told
        assert "Sessions are stored in Redis." not in told


@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", range(PAIRS))
async def test_two_deaths_change_nothing(whole: tuple[Path, int], tmp_path: Path, seed: int) -> None:
    """Killed at any two steps and started again, the program ends with the same memories and transcript."""
    chance = random.Random(seed)
    path = tmp_path / "days.db"
    first = chance.randint(1, whole[1])
    second = chance.randint(1, max(1, whole[1] - first))
    print(f"killed at step {first}, and {second} steps later")  # noqa: T201 - shown when the test fails
    for last in (first, second, 0):
        life(path, last)
    await check(path)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", [0.21, 0.64])
async def test_what_was_acknowledged_is_durable(whole: tuple[Path, int], tmp_path: Path, part: float) -> None:
    """Right after a death, all that was said and every memory that a tool answered for is there.

    Who opens the session next is told that later notes may be lost.
    """
    path = tmp_path / "days.db"
    life(path, int(whole[1] * part))
    async with open_file(path) as store:
        session = await Session.load(EXAMPLE.SESSION, EXAMPLE.CODER, store=store)
        assert len(messages_of(session.thread.entries)) > 40
        assert messages_of(session.thread.entries) == WHOLE[: len(messages_of(session.thread.entries))]
        kept = acknowledged_ids(session.thread.entries)
        assert kept
        assert {*kept} <= {entry.id for entry in await store.list_entries(EXAMPLE.SCOPE)}
        async with Session.open(EXAMPLE.CODER, EXAMPLE.SESSION, store=store) as again:
            assert "was not closed" in again.notices[0]


@pytest.mark.timeout(0)
async def test_deaths_in_a_row_change_nothing(whole: tuple[Path, int], tmp_path: Path) -> None:
    """Who goes on may die at once, again and again: after each start a step further, and nothing is lost."""
    path = tmp_path / "days.db"
    for last in (whole[1] // 3, *((1, 2, 3, 5, 8, 13) if SOAK else (1, 2, 5)), 0):
        life(path, last)
    await check(path)


@pytest.mark.timeout(0)
async def test_the_program_says_where_to_die(tmp_path: Path) -> None:
    """Told to, the example dies while it answers; the same command goes on, and tells how good it was."""
    path = tmp_path / "days.db"
    command = [sys.executable, "-W", "error", str(FILE), "--db", str(path)]
    for more in (["--kill-at", "17"], ["--kill-at", "171"]):
        assert ran([*command, *more]) == (-signal.SIGKILL, "", "")
    code, shown, complaints = ran(command)
    assert (code, complaints) == (0, "")
    assert shown.startswith("438 messages in two days, 54 memories of them:")
    assert "precision 0.97 on 39 proposals" in shown
    await check(path)


if __name__ == "__main__":
    live(sys.argv[1], int(sys.argv[2]))
