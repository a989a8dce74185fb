"""A store with memories, tokens and agents, served by the REST application."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import anyio
import uvicorn

from omoide import Agent, Entry, Scope, WriteRequest, identity, memory, open_store
from omoide.runtime.checkpoints import DocumentCheckpointStore, save_agent
from omoide.service import auth
from omoide.sessions import Session
from omoide.stores import AsyncStore, Link
from omoide.turns import AgentSpec
from omoide.web import create_app

HOME = "default"
OTHER = "theirs"
SECRET = "tulipvelvet9"
"""What nobody but the other namespace may see, and no log either."""
RIGHTS = ("read", "write", "erase", "admin")


class Secrets(NamedTuple):
    """The secrets of tokens, by what they allow."""

    all: str
    read: str
    write: str
    erase: str
    admin: str
    other: str
    expired: str
    revoked: str


class Service(NamedTuple):
    """A server that runs in a thread, and the store behind it."""

    url: str
    port: int
    store: AsyncStore
    secrets: Secrets


def open_test_store(folder: Path) -> AsyncStore:
    """The store that is served; the same folder gives another handle on the same file."""
    store = open_store(f"sqlite:///{folder / 'memory.db'}", embedder="none")
    assert isinstance(store, AsyncStore)
    return store


async def create_tokens(store: AsyncStore) -> Secrets:
    """One token of each kind."""

    async def create(rights: list[str], namespace: str = HOME, ends: int | None = None) -> tuple[str, str]:
        secret, token = await auth.create(store, "test", rights, [namespace], expires_at=ends)
        return secret, token.id

    revoked, id = await create(["admin"])
    await auth.revoke(store, id)
    return Secrets(
        all=(await create(["read", "write", "erase"]))[0],
        read=(await create(["read"]))[0],
        write=(await create(["write"]))[0],
        erase=(await create(["erase"]))[0],
        admin=(await create(["admin"]))[0],
        other=(await create(["admin"], OTHER))[0],
        expired=(await create(["admin"], ends=1))[0],
        revoked=revoked,
    )


async def fill_store(store: AsyncStore) -> Secrets:
    """Memories, an agent at rest and a session in both namespaces; what the other one holds is a secret."""
    for namespace, words in ((HOME, "Ada drinks tea."), (OTHER, f"Bob drinks {SECRET}.")):
        scope = Scope(agent_id="ada", namespace=namespace)
        for id, content in ((f"{namespace}-1", words), (f"{namespace}-2", f"{words} Often.")):
            await store.write(WriteRequest.new(entry=make_entry(id, content, namespace)))
        await store.link(Link(source=f"{namespace}-2", relation="refines", target=f"{namespace}-1"), scope)
        await _converse(store, namespace, words)
        agent = identity.ensure(Agent.new("ada", id=f"{namespace}-agent"), profile={"age": 3})
        await save_agent(
            memory.world_put(agent, "drink", words), DocumentCheckpointStore(store, namespace=namespace)
        )
    return await create_tokens(store)


async def _converse(store: AsyncStore, namespace: str, words: str) -> None:
    spec = AgentSpec.new({"id": "ada", "memory": {"namespace": namespace}})
    session = await Session.start(
        spec, f"{namespace}-session", store=store, namespace=namespace, llm=lambda request, journal: "I see."
    )
    session.set_promotion(enabled=False)
    async with session:
        await session.chat(words)
        session.propose(f"{words} Daily.", type="fact", confidence=1.0, importance=0.9)


def make_entry(id: str, content: str, namespace: str = HOME) -> Entry:
    """A memory of Ada's."""
    return Entry.new(id=id, agent_id="ada", namespace=namespace, content=content, type="fact", tags=["drink"])


def bearer(secret: str) -> dict[str, str]:
    """The header that shows a token."""
    return {"Authorization": f"Bearer {secret}"}


@contextmanager
def serve(store: AsyncStore, **options: Any) -> Iterator[Service]:
    """A server over a filled store; whoever connects before it is up waits in the socket's own queue."""
    secrets = anyio.run(fill_store, store)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(
            create_app(store, **options),
            log_config=None,
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        thread = Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        port = listening.getsockname()[1]
        try:
            yield Service(f"http://127.0.0.1:{port}", port, store, secrets)
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def start_server(
    folder: Path, descriptors: int | None = None, guard: str | None = None
) -> Iterator[tuple[str, int]]:
    """The address of a server in a process of its own, and its id; it ends without a complaint.

    It may have only so many file descriptors, and its store a guard against secrets.
    """
    command = [sys.executable, "-m", "omoide", "serve", "--port", "0"]
    if descriptors is not None:
        command = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh", *command]
    store = f"sqlite:///{folder / 'memory.db'}{f'?guard={guard}' if guard else ''}"
    settings = {"HOME": str(folder), "OMOIDE_STORE": store, "OMOIDE_EMBEDDER": "none"}
    with (
        (folder / "stderr.txt").open("w+") as errors,
        subprocess.Popen(
            command, env=os.environ | settings, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, (folder / "stderr.txt").read_text("utf-8")
            yield line.split()[0], process.pid
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
            errors.seek(0)
            told = [line for line in errors.read().splitlines() if "query-stopped" not in line]
            assert [line for line in told if "/v1/sparql: 504" not in line] == ["Ended."]
        finally:
            process.kill()
