"""The way of an agent from a laptop to a fleet.

It begins in one file on a laptop. Everything in the file is copied to a PostgreSQL server, two machines (here
two processes) join over NATS and one of them takes the agent up, the laptop asks who can lend a book, and the
machine that did it is killed: the other one goes on where it was. The servers are real ones, started for this
and gone in the end. Run it with `python examples/laptop_to_fleet.py`.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

import omoide
from omoide import Agent, Scope, Signal, action, identity, open_store
from omoide.runtime import DocumentCheckpointStore, Runtime
from omoide.runtime.checkpoints import load_agent
from omoide.runtime.nats import NatsTransport
from omoide.service import copy
from omoide.stores import AsyncStore
from omoide.testing import NatsServer, PostgresServer, eventually

LEASE_MS = 2_000
READERS = Scope(agent_id="librarian")


@action
def lend(ctx: Any, book: str) -> dict[str, Any]:
    """Lend a book, and remember how many were lent."""
    return {"lent": (*ctx.state.get("lent", ()), book)}


def librarian() -> Agent:
    """An agent that lends books, and says so."""
    agent = Agent.new("librarian", id="librarian", routes=[("book.wanted", lend)])
    return identity.ensure(agent, profile={"age": 30}, capabilities={"actions": ["lend"]})


def wanted(book: str) -> Signal:
    """Somebody wants a book."""
    return Signal(type="book.wanted", data={"book": book})


KINDS = [librarian().definition]


def main() -> dict[str, Any]:
    """Go from the laptop to the fleet, and tell what was seen on the way."""
    with TemporaryDirectory() as folder, PostgresServer() as postgres, NatsServer() as nats:
        laptop = f"sqlite:///{Path(folder).as_posix()}/laptop.db"
        found = anyio.run(on_the_laptop, laptop)
        found |= anyio.run(to_the_server, laptop, postgres.url)
        with member("berlin", postgres.url, nats.url) as berlin, member("tokyo", postgres.url, nats.url):
            found |= anyio.run(in_the_fleet, postgres.url, nats.url, berlin)
    for step, seen in found.items():
        print(f"{step:<22} {seen}")
    return found


async def on_the_laptop(url: str) -> dict[str, Any]:
    """One file, one process: an agent lends a book, remembers who reads what, and is hibernated."""
    async with open_store(url, embedder="none") as store:
        await omoide.remember(store, "Ada reads whatever is about engines.", READERS, type="fact")
        async with Runtime(store=store) as runtime:
            await runtime.start(librarian())
            agent = await runtime.call("librarian", wanted("Sketch of the Engine"))
            await runtime.hibernate("librarian")
    return {"lent on the laptop": [*agent.state["lent"]]}


async def to_the_server(laptop: str, server: str) -> dict[str, Any]:
    """Copy everything: what is remembered, and the stored agent."""
    async with open_store(laptop, embedder="none") as one, open_store(server, embedder="none") as other:
        done = await copy(one, other)
    return {"copied": f"{done.memories} of memories, {done.documents} of documents"}


async def in_the_fleet(server: str, nats: str, berlin: subprocess.Popen[str]) -> dict[str, Any]:
    """Ask for the agent, wherever it lives, before and after its machine is gone."""
    async with (
        open_store(server, embedder="none") as store,
        NatsTransport(nats) as transport,
        Runtime(name="laptop", transport=transport, store=store) as runtime,
    ):
        who = await runtime.who_can(action="lend")
        await runtime.ask("librarian", wanted("On Numbers"))
        first = await lent(store)
        berlin.send_signal(signal.SIGKILL)
        await eventually(lambda: moved(runtime), timeout=30)
        then = await runtime.ask("librarian", wanted("The Garden"), timeout=30)
        last = await lent(store)
        known = await omoide.recall(store, "what does Ada read?", READERS)
    return {
        "who can lend": [(one.agent_id, one.runtime) for one in who],
        "lent in berlin": first,
        "after berlin is killed": (then.data["runtime"], last),
        "still remembered": known.entries[0].content,
    }


async def lent(store: AsyncStore) -> list[str]:
    """What was lent, as the agent was last saved: an answer tells who handled a signal, and no more."""
    agent, _ = await load_agent("librarian", KINDS[0], DocumentCheckpointStore(store))
    return [*agent.state["lent"]]


async def moved(runtime: Runtime) -> bool:
    """Whether the agent lives in the other machine by now."""
    return await runtime.locate("librarian") == "tokyo"


@contextmanager
def member(name: str, server: str, nats: str) -> Iterator[subprocess.Popen[str]]:
    """A machine of the fleet; the first one takes the agent up."""
    command = [sys.executable, "-W", "error", __file__, name, server, nats]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


async def live(name: str, server: str, nats: str) -> None:
    """What a machine of the fleet does, until it is ended."""
    async with (
        open_store(server, embedder="none") as store,
        NatsTransport(nats) as transport,
        Runtime(name=name, transport=transport, store=store, kinds=KINDS, lease_ms=LEASE_MS) as runtime,
    ):
        if name == "berlin":
            await runtime.thaw("librarian", "librarian")
        print("ready", flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        logging.getLogger("omoide").setLevel(
            logging.ERROR
        )  # a takeover is worth a warning, and expected here
        anyio.run(live, sys.argv[1], sys.argv[2], sys.argv[3])
    else:
        main()
