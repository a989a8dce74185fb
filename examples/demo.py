"""A tour of Omoide.

A developer and her agent talk on Monday. The agent keeps a preference, a decision and what it depends on; a
correction comes; then its program is killed in the middle of an answer. Another process goes on where it
stopped. On Tuesday a new session knows what Monday's learned, and says why: what was remembered, promoted,
superseded and recalled, and the exact prompt that a model is sent.

On a terminal the inspector stays open on all of it, until Ctrl-C; with SERVE=0 it does not.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import anyio

from omoide import AgentSpec, Evidence, Scope, Session, Store, clock, forget, longterm, open_store, recall
from omoide.promotion import Promotion
from omoide.testing import FrozenClock
from omoide.turns import Preflight

WIDTH = 78
PROJECT = "tea-shop"
SCOPE = Scope(project_id=PROJECT)
SPEC = AgentSpec(
    id="helper",
    instructions="Help Alex with the tea shop, and use what you remember.",
    memory={"scope": "project", "max_entries": 4},
)
KILLED = "Which indexes do we need?"
QUESTION = "Where do we keep the carts, and why?"
MONDAY = 1_772_442_000_000
"""Nine in the morning on 2 March 2026. The story has a clock of its own, so that two days pass at once."""
HOUR = 3_600_000


class Told(NamedTuple):
    """What the demo claims, for whoever wants to check it."""

    promoted: list[str]
    superseded: dict[str, str]
    stale: list[str]
    resumed: str
    recalled: list[str]
    prompt: str
    answer: str


# What stands for a language model


def model(request: Any, journal: Any) -> str:
    """Answer from what the prompt holds, and nothing else."""
    said = [message.content for message in request.prompt.messages]
    if KILLED in said[-1]:
        return "One on the customer, one on the day of the order."
    if QUESTION in said[-1]:
        known = "SQLite" in said[0]
        return "In SQLite, Alex, because one file is easy to back up." if known else "I do not know."
    return "Noted."


def killed(request: Any, journal: Any) -> str:
    """Die as a program dies whose plug is pulled: while it is about to answer."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


# How it is told


def heading(text: str) -> None:
    """A heading, bold where a person looks at a terminal."""
    bold = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print("\n" + (f"\x1b[1m{text}\x1b[0m" if bold else text))


def say(text: str) -> None:
    """A sentence or two, wrapped."""
    print(textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="  "))


def show(label: str, value: object) -> None:
    """A name and a value, in columns; what is too long goes on below itself."""
    lead = f"    {label:<11} "
    print(textwrap.fill(str(value), WIDTH, initial_indent=lead, subsequent_indent=" " * len(lead)))


# Monday


def opened(store: Store, id: str, **options: Any) -> Session:
    """A session of the tea shop."""
    return Session.open(SPEC, id, store=store, project_id=PROJECT, extractor=True, **options)


async def talk(session: Session, *lines: str) -> None:
    """Say something, and show the answers."""
    for line in lines:
        show("Alex", line)
        show("helper", await session.chat(line))


async def monday(store: Store) -> Promotion:
    """A preference, a fact and a decision that depends on it."""
    heading("Monday: what is said, and what the agent makes of it")
    async with opened(store, "monday", model=model) as session:
        await talk(session, "I prefer to be called Alex.", "We run on Postgres 14.")
        session.context.put("framework", "Flask 3.0", source="tool", confidence=0.9)
        fact = await session.remember("The shop runs on Postgres 14.", type="fact", confidence=0.95)
        await session.remember(
            "Carts are kept in Postgres.",
            type="decision",
            rationale="there is one database already",
            evidence=[Evidence(kind="entry", ref=fact.entry.id)],
        )
        say("It kept two things itself. What else it noticed is weighed, part by part:")
        plan = await session.promote(dry_run=True)
        for one in plan.plan.candidates:
            show(one.verdict, f"{one.entry.content} [{one.score:.2f}: {one.why}]")
        return await session.promote()


async def corrected(store: Store) -> dict[str, str]:
    """The fact was wrong: it is replaced, and what depends on it no longer counts."""
    heading("Monday, later: a correction")
    async with opened(store, "monday", model=model) as session:
        await talk(session, "I was wrong: we moved from Postgres to SQLite last week.")
        old = [one for one in await longterm.query_all(store, SCOPE) if "Postgres 14" in one.content]
        new = await session.remember("The shop runs on SQLite.", type="fact", confidence=0.95)
        gone = {}
        for one in old:
            await forget(store, one.id, SCOPE, replacement=new.entry.id, reason="moved last week")
            gone[one.content] = new.entry.content
            show("superseded", f"{one.content} → {new.entry.content}")
        await session.remember(
            "Carts are kept in SQLite.",
            type="decision",
            rationale="one file is easy to back up",
            evidence=[Evidence(kind="entry", ref=new.entry.id)],
        )
    return gone


async def shown_stale(store: Store) -> list[str]:
    """What rested on the old fact, and the chain of reasons."""
    known = await longterm.query_all(store, SCOPE, include_stale=True)
    stale = [one for one in known if one.stale]
    for one in stale:
        show("stale", one.content)
        for chain in await longterm.why_stale(store, one.id, SCOPE):
            show("because", chain)
    return [one.content for one in stale]


async def dying(url: str) -> None:
    """What the other process does: answer, and be killed on the way."""
    async with open_store(url, embedder="local") as store, opened(store, "monday", model=killed) as session:
        await session.chat(KILLED)


async def resumed(store: Store, url: str, time: FrozenClock) -> str:
    """A process is killed while it answers; this one goes on with the same turn."""
    heading("Monday, in the evening: its program is killed in the middle of an answer")
    show("Alex", KILLED)
    command = [sys.executable, str(Path(__file__)), "--die", url, str(clock.now())]
    died = await anyio.run_process(command, check=False)
    show("process", f"killed by signal {-died.returncode}, before it could answer")
    time.advance(HOUR)  # a dead process holds its session for a while
    async with await Session.load("monday", SPEC, store=store, model=model, extractor=True) as session:
        show("status", session.record.status)
        result = await session.resume()
    show("helper", result.content)
    say("Nothing that was said is lost, and nothing was done twice.")
    return result.content


# Tuesday


async def tuesday(store: Store) -> tuple[list[str], Preflight, str]:
    """A new session of the same project."""
    heading("Tuesday: a new session asks")
    show("question", QUESTION)
    found = await recall(store, QUESTION, SCOPE, limit=3)
    for hit in found.hits:
        show(f"#{hit.rank}  {hit.score:5.2f}", hit.entry.content)
        show("", f"because {hit.why}")
    heading("The exact prompt")
    async with opened(store, "tuesday", model=model) as session:
        seen = await session.preflight(QUESTION)
        for message in seen.prompt.messages:
            for line in f"{message.role}: {message.content}".splitlines():
                print(textwrap.fill(line, WIDTH, initial_indent="    | ", subsequent_indent="    |   "))
        answer = await session.chat(QUESTION)
    show("helper", answer)
    heading("Where it comes from")
    trace = await longterm.provenance(store, found.hits[0].entry.id, SCOPE)
    print(textwrap.indent(str(trace), "    "))
    return [hit.entry.content for hit in found.hits], seen, answer


async def story(url: str, time: FrozenClock) -> Told:
    """Two days."""
    async with open_store(url, embedder="local") as store:
        promotion = await monday(store)
        promoted = [one.entry.content for one in promotion.plan.to_promote]
        for content in promoted:
            show("promoted", content)
        time.advance(4 * HOUR)
        gone = await corrected(store)
        stale = await shown_stale(store)
        time.advance(3 * HOUR)
        answer = await resumed(store, url, time)
        time.at = MONDAY + 24 * HOUR
        recalled, seen, last = await tuesday(store)
    return Told(promoted, gone, stale, answer, recalled, seen.prompt.messages[0].content, last)


def main() -> Told:
    """Tell the story, and let people look at it."""
    print("Omoide: a memory that agents can explain, and an identity others can route to.")
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'memory.db').as_posix()}"
        with clock.override(FrozenClock(MONDAY)) as time:
            told = anyio.run(story, url, time)
        heading("Read on")
        say(
            "docs/index.md starts the tour of the concepts, docs/architecture.md shows how the code is "
            "built, and examples/ has more: greenhouse, weather, bdi, blackboard, react, character, pool "
            "and rag for agents as values; durable, chatlog, own_store and knowledge for memory that "
            "lasts; coding_session for a session that learns; support, tenants, refund and streaming for "
            "agents that answer with a model; monitoring, orchestrator and rag_agent for running agents, "
            "and laptop_to_fleet for many machines."
        )
        if sys.stdout.isatty() and os.environ.get("SERVE") != "0":
            serve(url)
    return told


def serve(url: str) -> None:
    """Let people look at it in a browser."""
    heading("Look at it")
    say("The inspector shows all of this; Ctrl-C ends it.")
    command = [sys.executable, "-m", "omoide", "serve", "--port", "0", "--store", url]
    with suppress(KeyboardInterrupt):
        subprocess.run([*command, "--agent", "", "--project", PROJECT], check=False)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--die"]:
        with clock.override(FrozenClock(int(sys.argv[3]))):
            anyio.run(dying, sys.argv[2])
    else:
        main()
