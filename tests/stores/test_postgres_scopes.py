"""Nothing of one tenant on a PostgreSQL server reaches another."""

from __future__ import annotations

import random
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.postgres_process import open_core
from tests.support.servers import postgres
from tests.support.stores import a_store, keep, write_request

from omoide import Filter, RecallRequest, Scope, clock
from omoide.errors import Invalid, OmoideError
from omoide.stores import Document, Link, Query
from omoide.stores.postgres.connection import PostgresSession
from omoide.stores.sql import candidates
from omoide.testing import FrozenClock, HashEmbedder

EVERYTHING = Filter(include_superseded=True, include_stale=True, include_expired=True)
IDS = ("a", "b", "c", "d")
HOSTILE = (
    "'; DROP TABLE entries; --",
    '"; DROP SCHEMA public CASCADE; --',
    "$1",
    "%s",
    "%(name)s",
    "100%",
    "?",
    "??",
    "\\'; --",
    "E'\\x00'",
    "$$; SELECT pg_sleep(9); $$",
    "{}",
    "{dim}",
    "/* */",
    "NULL",
    "ß漢🫖",
    "e\u0301",
    "\u202e\u200b",
    "x" * 512,
    "漢" * 170,
)


def life(store: Any, namespace: str, seed: int, steps: int) -> None:
    """Let a tenant do all kinds of things, the same ones for the same seed."""
    chance = random.Random(seed)
    scope = Scope(namespace=namespace)
    with clock.override(FrozenClock(900)):
        for agent in ("ada", "bob"):
            keep(store, "This one stays.", id=f"z {agent}", namespace=namespace, agent_id=agent)
    for n in range(steps):
        id, other = chance.sample(IDS, 2)
        agent = chance.choice(("ada", "bob"))
        with clock.override(FrozenClock(1_000 + n)):
            try:
                match chance.randrange(10):
                    case 0 | 1 | 2:
                        keep(store, f"tea {seed} {n}", id=id, namespace=namespace, agent_id=agent)
                    case 3:
                        premises = [{"kind": "entry", "ref": other}]
                        keep(store, f"rests {n}", id=id, namespace=namespace, evidence=premises)
                    case 4:
                        store.supersede(id, scope)
                    case 5:
                        store.link(Link(source=id, relation="invalidated_by", target=other), scope)
                    case 6:
                        store.erase(scope, id=id)
                    case 7:
                        keep(store, f"once {seed}", id=id, namespace=namespace, idempotency_key="k")
                    case 8:
                        store.record_access([id, other], scope)
                    case _:
                        store.save(Document(kind="k", id=id, namespace=namespace, body=[seed, n]))
            except OmoideError:
                continue


def tenant_view(store: Any, namespace: str) -> list[Any]:
    """All that a tenant can ask for, without the numbers that all tenants share."""
    scope = Scope(namespace=namespace)
    found: list[Any] = [
        store.list_entries(scope),
        store.query(Query(scope=scope, limit=1_000, filter=EVERYTHING, at=5_000)).entries,
        store.query(Query(scope=scope, limit=1_000, as_of=5_000)).entries,
        [change.replace(seq=0) for change in store.changes(namespace)],
        store.documents("k", scope),
        store.kinds(namespace),
        store.stats(scope).replace(size_bytes=0, last_seq=0),
    ]
    feed = store.change_feed(namespace)
    found.append((feed.entries, feed.links, feed.access, feed.erased_ids, feed.new_ids))
    for agent in (None, "ada", "bob"):
        for filter in (Filter(), EVERYTHING):
            request = RecallRequest.for_scope(
                scope.replace(agent_id=agent), "tea that rests", limit=20, filter=filter, at=5_000
            )
            found.append([(hit.entry, round(hit.score, 6)) for hit in store.recall(request).hits])
    for id in IDS:
        for look in (store.get, store.history, store.links, store.access):
            try:
                found.append(look(id, scope))
            except OmoideError as error:
                found.append(str(error))
        found.append(store.load("k", id, scope))
    return found


@settings(max_examples=max(6, settings().max_examples // 5))
@given(
    seeds=st.tuples(st.integers(0, 1 << 30), st.integers(0, 1 << 30)),
    names=st.sampled_from([("one", "two"), ("a", "A"), ("%", "_"), ("x'; --", "x"), ("é", "e\u0301")]),
    held=st.sampled_from([2, 20_000]),
)
def test_each_of_two_tenants_sees_what_it_would_alone(
    seeds: tuple[int, int], names: tuple[str, str], held: int
) -> None:
    """Whatever the other does, everything a tenant can ask is as if the other were not there."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(candidates, "MAX_CACHED_ENTRIES", held)
        options: dict[str, Any] = {"embedder": HashEmbedder(32)}
        shared = stack.enter_context(a_store("postgres", Path(folder), **options))
        for part in range(2):
            for seed, name in zip(seeds, names, strict=True):
                life(shared, name, seed + part, 12)
                tenant_view(shared, name)  # held in memory from now on
        for at, (seed, name) in enumerate(zip(seeds, names, strict=True)):
            alone = stack.enter_context(a_store("postgres", Path(folder) / str(at), **options))
            for part in range(2):
                life(alone, name, seed + part, 12)
                tenant_view(alone, name)  # as often as the other: what is held in memory counts
            assert tenant_view(shared, name) == tenant_view(alone, name)
        assert shared.check() == []


def test_no_row_of_another_namespace_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even on the way to an answer does a row with another tenant's content leave the server."""
    store = open_core(postgres().fresh_url(), embedder=HashEmbedder(32))
    life(store, "other", 1, 60)
    for n in range(20):
        keep(store, f"secretquux {n}", id=f"s{n}", namespace="other")
    store.save(Document(kind="k", id="a", namespace="other", body="secretquux"))
    fetched: list[Any] = []
    execute = PostgresSession.execute

    def noting(self: PostgresSession, statement: str, parameters: Any = (), /) -> Any:
        cursor: Any = execute(self, statement, parameters)
        for name in ("fetchone", "fetchall", "fetchmany"):
            fetch = getattr(cursor, name)

            def fetching(*args: Any, fetch: Any = fetch) -> Any:
                found = fetch(*args)
                fetched.append(found)
                return found

            setattr(cursor, name, fetching)
        return _Noted(cursor, fetched)

    monkeypatch.setattr(PostgresSession, "execute", noting)
    life(store, "mine", 2, 60)
    tenant_view(store, "mine")
    store.erase(Scope(namespace="mine"))
    text = repr(fetched).encode()
    assert len(fetched) > 200
    assert b"secretquux" not in text
    monkeypatch.undo()
    store.close()


class _Noted:
    """What a statement found, noting what is taken from it one by one."""

    def __init__(self, cursor: Any, fetched: list[Any]) -> None:
        self._cursor = cursor
        self._fetched = fetched

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)

    def __iter__(self) -> Any:
        for row in self._cursor:
            self._fetched.append(row)
            yield row


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:20])
def test_hostile_names_are_names(name: str) -> None:
    """As namespace, agent, session, project, id, key, tag, relation or kind: it comes back as it was."""
    store = open_core(postgres().fresh_url())
    mine = {"namespace": name, "agent_id": name, "session_id": name, "project_id": name}
    scope = Scope(**mine)
    message = {"thread": name, "seq": 1, "role": name, "speaker": name}
    request = write_request(name, id=name, tags=[name], message=message, idempotency_key=name, **mine)
    entry = store.write(request).entry
    assert store.write(request).entry == entry
    assert store.get(name, scope) == entry
    keep(store, name, id="other", **mine)
    link = Link(source=name, relation=name, target="other", created_at=1)
    store.link(link, scope)
    assert store.links(name, scope, relation=name) == [link]
    store.save(Document(kind=name, id=name, namespace=name, agent_id=name, session_id=name, body=name))
    assert store.claim(name, name, scope.replace(project_id=None), owner=name, ttl_ms=1_000).owner == name
    assert store.append(name, name, [name], Scope(namespace=name)) == 2
    assert store.kinds(name) == [name]
    assert [one.id for one in store.documents(name, Scope(namespace=name))] == [name]
    store.supersede(name, scope, by="other", reason=name)
    found = store.query(Query(scope=scope, filter=Filter(tags=[name], include_superseded=True)))
    assert [one.id for one in found.entries] == [name]
    question = RecallRequest.for_scope(scope, name, filter=Filter(tags=[name], include_superseded=True))
    assert [one.id for one in store.recall(question).entries] == [name]
    assert store.namespaces() == [name]
    assert [one.op for one in store.changes(name)] == ["write", "write", "link", "supersede"]
    assert store.erase(scope, id=name, reason=name).ids == (name,)
    assert store.history(name, scope)[-1].reason == name
    assert store.check() == []
    store.close()


@pytest.mark.parametrize("schema", ["Omoide", 'a"b', "a;b", "a.b", "", "pg_mine", "x" * 64, "ä"])
def test_a_schema_that_would_have_to_be_quoted_is_refused(schema: str) -> None:
    """The name of a schema is the only one that becomes part of a statement."""
    with pytest.raises(OmoideError, match="schema"):
        open_core(f"{postgres().url}?schema={schema}")


LONG = "".join(chr(0x4E00 + 7 * at % 20_000) for at in range(4_000))  # nothing that could be packed


def test_long_texts_are_kept_as_in_a_file() -> None:
    """What may be as long as somebody likes is kept by all stores alike, and names no premise."""
    store = open_core(postgres().fresh_url())
    try:
        kept = keep(store, "Tea.", id="b", evidence=[{"kind": "entry", "ref": LONG}])
        assert kept.evidence[0].ref == LONG
        assert store.get("b", Scope()).evidence[0].ref == LONG
    finally:
        store.close()


def test_a_relation_is_no_longer_than_an_id() -> None:
    """It is refused before any store has to keep it in an index."""
    with pytest.raises(Invalid, match=r"^relation has 12000 bytes"):
        Link(source="a", relation=LONG, target="a")
