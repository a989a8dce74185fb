"""A coding session of two days that survives a crash and promotes what it learned.

A developer and her agent take over a tea shop. They say some four hundred things to each other, and the agent
learns in three ways: what it understands of the work is noted as it goes, what sounds like a decision, a rule
or a finding is picked up from the conversation, and some things it keeps itself. Frameworks are upgraded and
decisions taken back, so some of it is superseded before the end.

`--db FILE` keeps everything in a file, `--kill-at N` ends the program without a word while it answers the Nth
message, and the same command goes on where it stopped. What is said stands beside this file, together with
what should be known in the end, and with what somebody who read it would have written down.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import anyio
import msgspec

from omoide import (
    AgentSpec,
    Entry,
    Evidence,
    Scope,
    Session,
    Store,
    Thread,
    action,
    clock,
    longterm,
    open_store,
)
from omoide.core import DELETED, ThreadEntry
from omoide.errors import NotFound, SessionBusy
from omoide.promotion import extract
from omoide.sessions import PromotionStats
from omoide.testing import FrozenClock
from omoide.tools import memory_tools
from omoide.turns import Journal, Request

SCRIPT = Path(__file__).with_suffix(".jsonl")
SESSION, PROJECT = "takeover", "tea-shop"
SCOPE = Scope(agent_id="coder", session_id=SESSION, project_id=PROJECT)
LEASE_MS = 30_000

FILES = {
    "requirements.txt": "Flask==2.3.3\nSQLAlchemy==2.0.21\npsycopg==3.1.12\nrequires-python = 3.11",
    "requirements.lock": "flask==3.0.2\nsqlalchemy==2.0.27\npsycopg==3.1.18\npython==3.12.2",
    "app/views.py": "def checkout(cart):\n    for line in cart:\n        line.tax = tax_service.rate(line)",
    "app/settings.py": "SESSION_TYPE = 'memory'\nWORKERS = 4",
    "app/admin.py": "def orders():\n    return render('orders.html', orders=Order.query.all()[:50])",
    ".ci/build.yml": "image: python:3.12\nsteps: [lint, test, migrate]",
}


class Note(msgspec.Struct, frozen=True):
    """Something that the agent understands while it works."""

    key: str
    value: str
    source: str
    confidence: float


class Turn(msgspec.Struct, frozen=True):
    """What the developer says, what the agent does about it, and what it answers."""

    id: str
    at: datetime
    user: str
    agent: str
    rounds: tuple[tuple[tuple[str, dict[str, Any]], ...], ...] = ()
    """The tools that it uses, one round after the other; `$words` stands for the memory with these words."""
    context: tuple[Note, ...] = ()
    means: tuple[tuple[str, str], ...] = ()
    """What a person would write down about it: the type of the memory, and words of the sentence."""

    @property
    def moment(self) -> int:
        """When it is said, in milliseconds."""
        return int(self.at.timestamp() * 1000)

    @property
    def day(self) -> str:
        """The day that it is said on."""
        return self.id.partition("-")[0]


class End(msgspec.Struct, frozen=True):
    """What is to be known in the end, and what no longer: types, and words of the content."""

    live: tuple[tuple[str, str], ...]
    superseded: tuple[tuple[str, str], ...]


class Script(NamedTuple):
    """Two days, and what is left of them."""

    turns: list[Turn]
    end: End


class Work(NamedTuple):
    """What the two days left behind."""

    said: int
    live: list[Entry]
    superseded: list[Entry]
    provenance: str
    stats: PromotionStats
    picked: int
    right: int
    missed: int

    @property
    def precision(self) -> float:
        """The share of what was picked up from the conversation that a person would have written down."""
        return self.right / self.picked


def script() -> Script:
    """What is said, as it stands beside this file."""
    *turns, end = SCRIPT.read_bytes().splitlines()
    return Script(
        [msgspec.json.decode(line, type=Turn) for line in turns], msgspec.json.decode(end, type=End)
    )


@action(effectful=True, idempotent=True)
async def read_file(ctx: Any, path: str) -> str:
    """Read a file of the project."""
    return FILES[path]


CODER = AgentSpec(
    id="coder",
    instructions="Help with the code of the shop. Keep what will matter again.",
    memory={"scope": "project", "max_entries": 3, "max_tokens": 300},
    window={"max_tokens": 4_000, "reserve_output_tokens": 500},
    tools=[read_file, *memory_tools()],
)


class Coder:
    """Stands for the model: it says what the script says, and knows the ids of memories that it was shown."""

    def __init__(self, turns: Sequence[Turn], kill_at: str | None = None) -> None:
        self._turns = {turn.id: turn for turn in turns}
        self._last = kill_at

    async def __call__(self, request: Request, journal: Journal) -> Any:
        """The next round of tools, or the answer."""
        if request.request_id == self._last:
            os.kill(os.getpid(), signal.SIGKILL)
        turn = self._turns[request.request_id]
        if request.round >= len(turn.rounds):
            return turn.agent
        seen = shown(request)
        calls = [
            {"id": f"{turn.id}-{request.round}-{at}", "name": name, "params": meant(params, seen)}
            for at, (name, params) in enumerate(turn.rounds[request.round])
        ]
        return {"type": "operations", "operations": calls}


def shown(request: Request) -> dict[str, str]:
    """The memories that the tools of this turn have shown, by their contents."""
    wanted = {call.id: call.params for one in request.prompt.messages for call in one.calls}
    found: dict[str, str] = {}
    for message in request.prompt.messages:
        if message.role != "tool" or message.name not in ("recall", "remember"):
            continue
        told = msgspec.json.decode(message.content)
        found |= {memory["content"]: memory["id"] for memory in told.get("memories", ())}
        if "memory_id" in told:
            found[wanted[str(message.call_id)]["content"]] = told["memory_id"]
    return found


def meant(params: dict[str, Any], seen: dict[str, str]) -> dict[str, Any]:
    """The parameters of a tool, with ids in place of the words that stand for memories."""
    return {name: _id(value[1:], seen) if str(value)[:1] == "$" else value for name, value in params.items()}


def _id(words: str, seen: dict[str, str]) -> str:
    return next((id for content, id in seen.items() if words in content), "never-shown")


async def play(url: str, turns: Sequence[Turn], kill_at: str | None = None) -> None:
    """Say what has not been said yet, day by day."""
    with clock.override(FrozenClock(turns[0].moment)) as time:
        async with open_store(url, embedder="none") as store:
            for day in await left(store, turns):
                async with Session.open(
                    CODER,
                    SESSION,
                    store=store,
                    project_id=PROJECT,
                    extractor=extract,
                    model=Coder(turns, kill_at),
                    lease_ms=LEASE_MS,
                ) as session:
                    await spend(session, day, time)


async def left(store: Store, turns: Sequence[Turn]) -> list[list[Turn]]:
    """The days that are not over: a day is, once the next one has begun."""
    days = [[*day] for _, day in groupby(turns, key=lambda turn: turn.day)]
    try:
        session = await Session.load(SESSION, CODER, store=store)
    except NotFound:
        return days
    begun = [at for at, day in enumerate(days) if any(turn.id in session.requests for turn in day)]
    return days[max(begun, default=0) :]


async def spend(session: Session, day: Sequence[Turn], time: FrozenClock) -> None:
    """One day, or the rest of it."""
    last = session.thread.last()
    time.at = max(time.at, 0 if last is None else last.at)
    if session.record.turn is not None:  # the program ended in the middle of it
        await patiently(session.resume, time)
    for turn in day:
        if turn.id not in session.requests:
            time.at = max(time.at, turn.moment)
            await patiently(partial(session.chat, turn.user, request_id=turn.id), time)
        understand(session, turn)
    await patiently(session.pause, time)


async def patiently(work: Callable[[], Awaitable[Any]], time: FrozenClock) -> None:
    """Do something as soon as a program that died no longer keeps others out."""
    while True:
        try:
            await work()
        except SessionBusy:
            time.advance(LEASE_MS)
        else:
            return


def understand(session: Session, turn: Turn) -> None:
    """Note what the agent understood in a turn, unless that or something newer is noted already."""
    for note in turn.context:
        known = session.context.item(note.key)
        if known is None or (known.value != note.value and known.last_accessed < turn.moment):
            session.context.put(
                note.key,
                note.value,
                source=note.source,
                confidence=note.confidence,
                evidence=place(session.thread, turn.id, note.source),
            )


def place(thread: Thread, request_id: str, source: str) -> Evidence:
    """Where in the transcript something was learned: from a tool, or else from what was said."""
    mine = [entry for entry in thread.entries if entry.payload.get("request_id") == request_id]
    results = [entry for entry in mine if entry.kind == "tool_result" and source == "tool"]
    if results:
        return Evidence(kind="tool", ref=f"{thread.id}:{results[-1].seq}")
    said = next(entry for entry in mine if entry.kind == "message")
    return Evidence(kind="message", ref=f"{thread.id}:{said.seq}")


async def look(url: str, turns: Sequence[Turn]) -> Work:
    """What is known after all, what no longer, and where one of the superseded memories came from."""
    async with open_store(url, embedder="none") as store:
        # Tools of one round run at once, so their memories have one time and no order.
        entries = sorted(await store.list_entries(SCOPE), key=lambda one: (one.created_at, one.content))
        gone = [entry for entry in entries if entry.superseded_by is not None]
        replaced = [entry.id for entry in gone if entry.superseded_by != DELETED]
        told = (
            str(await longterm.provenance(store, replaced[-1], SCOPE)) if replaced else "nothing was replaced"
        )
        session = await Session.load(SESSION, CODER, store=store)
    means = [label for turn in turns for label in turn.means]
    picked = [entry for entry in entries if any(one.quote for one in entry.evidence)]
    right = [entry for entry in picked if any(fits(entry, label) for label in means)]
    return Work(
        said=sum(map(is_said, session.thread.entries)),
        live=[entry for entry in entries if entry.superseded_by is None],
        superseded=gone,
        provenance=told,
        stats=session.promotion_stats,
        picked=len(picked),
        right=len(right),
        missed=sum(not any(fits(entry, label) for entry in picked) for label in means),
    )


def fits(entry: Entry, label: tuple[str, str]) -> bool:
    """Whether a memory is the one that a type and some words describe."""
    type, words = label
    return entry.type == type and words in entry.content


def is_said(entry: ThreadEntry) -> bool:
    """Whether an entry of the transcript is something that one of the two said to the other."""
    said = entry.payload
    return entry.kind == "message" and (said["role"] == "user" or bool(said.get("final")))


def show(work: Work) -> None:
    """Print what the two days left behind."""
    print(f"{work.said} messages in two days, {len(work.live)} memories of them:")
    by_type = sorted(work.live, key=lambda entry: (entry.type or "", entry.created_at))
    for type, entries in groupby(by_type, key=lambda entry: entry.type):
        print(f"\n{type}")
        for entry in entries:
            print(f"  {entry.confidence:.2f} {entry.content}")
    print("\nsuperseded")
    for entry in work.superseded:
        print(f"  {entry.content} ({entry.superseded_reason or 'it changed'})")
    print(f"\nwhere the last of them that was replaced came from\n{work.provenance}")
    stats = work.stats
    print(f"\n{stats.total_promoted} promoted in {stats.runs} runs, {stats.waiting} still waiting")
    print(
        f"precision {work.precision:.2f} on {work.picked} proposals, {work.missed} things were not picked up"
    )


def main(given: Sequence[str] = ()) -> Work:
    """Live through the two days, or through the rest of them."""
    parser = argparse.ArgumentParser(description="Two days of work, which may be interrupted.")
    parser.add_argument("--db", type=Path, help="keep everything in this file, and go on with what is in it")
    parser.add_argument("--from", dest="first", type=int, default=1, help="leave out what is said before")
    parser.add_argument("--kill-at", type=int, help="die while answering this message")
    options = parser.parse_args(given)
    turns = script().turns[options.first - 1 :]
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{(options.db or Path(folder, 'memory.db')).absolute().as_posix()}"
        kill_at = None if options.kill_at is None else script().turns[options.kill_at - 1].id
        anyio.run(play, url, turns, kill_at)
        work = anyio.run(look, url, turns)
    show(work)
    return work


if __name__ == "__main__":
    main(sys.argv[1:])
