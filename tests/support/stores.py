"""Stores of every kind for tests, and what is written into them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.servers import postgres, redis

from omoide import Entry, RecallRequest, Scope, WriteRequest
from omoide.core import Hit
from omoide.stores import open_store
from omoide.stores import recall as recall_engine

ADA = Scope(agent_id="ada")
KINDS = ("memory", "sqlite", "redis", "postgres")


def redis_url(folder: Path, name: str = "memory.db") -> str:
    """The address of the store that belongs to a folder: a prefix of its own on the server."""
    prefix = blake2b(str(folder / name).encode(), digest_size=8).hexdigest()
    return f"{redis().url}?prefix={prefix}:"


def postgres_url(folder: Path, name: str = "memory.db") -> str:
    """The address of the store that belongs to a folder: a schema of its own on the server."""
    schema = blake2b(str(folder / name).encode(), digest_size=8).hexdigest()
    return f"{postgres().url}?schema=s{schema}"


def url(kind: str, folder: Path, name: str = "memory.db") -> str:
    """The address of a store of the kind, in a folder where it needs one."""
    if kind == "postgres":
        return postgres_url(folder, name)
    if kind == "redis":
        return redis_url(folder, name)
    return "memory://" if kind == "memory" else f"sqlite:///{folder / name}"


def open_core(kind: str, folder: Path, **options: Any) -> Any:
    """Open the synchronous core of a store; the caller closes it."""
    return open_store(url(kind, folder), **{"embedder": "none", **options}).sync


@contextmanager
def a_store(kind: str, folder: Path, **options: Any) -> Iterator[Any]:
    """The synchronous core of a store, for a block."""
    store = open_core(kind, folder, **options)
    try:
        yield store
    finally:
        store.close()


def note(content: str = "The kettle is on.", /, **fields: Any) -> Entry:
    """An entry of Ada's, unless the fields say otherwise."""
    return Entry.new({"agent_id": "ada", "content": content, **fields})


def write_request(content: str = "The kettle is on.", /, **fields: Any) -> WriteRequest:
    """Return a request to keep an entry; fields of the request and of the entry may be mixed."""
    names = ("expected_rev", "idempotency_key", "dedupe", "supersedes")
    own = {name: fields.pop(name) for name in names if name in fields}
    return WriteRequest.new(entry=note(content, **fields), **own)


def keep(store: Any, content: str = "The kettle is on.", /, **fields: Any) -> Entry:
    """Write an entry; the entry as it is kept."""
    kept: Entry = store.write(write_request(content, **fields)).entry
    return kept


def recall_ids(store: Any, query: str = "anything", /, **fields: Any) -> list[str]:
    """Return the ids of what Ada recalls, best first."""
    result = store.recall(RecallRequest.new({"agent_id": "ada", "query": query, **fields}))
    return [entry.id for entry in result.entries]


def list_ids(store: Any, scope: Scope = ADA) -> list[str]:
    """Return the ids in a scope, oldest first."""
    return [entry.id for entry in store.list_entries(scope)]


def rate_hits(monkeypatch: pytest.MonkeyPatch, newer: dict[str, str], **relevance: float | None) -> None:
    """Give hits of every store the relevance, and the newer memory, that a test names by their ids."""
    withhold = recall_engine.withhold

    def rate_and_withhold(request: RecallRequest, hits: list[Hit]) -> tuple[list[Hit], list[Hit]]:
        rated = [
            msgspec.structs.replace(hit, relevance=relevance.get(hit.entry.id), newer=newer.get(hit.entry.id))
            for hit in hits
        ]
        return withhold(request, rated)

    monkeypatch.setattr(recall_engine, "withhold", rate_and_withhold)
