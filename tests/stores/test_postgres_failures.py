"""A failing PostgreSQL server is reported with a remedy."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import psycopg
import pytest
from tests.support.postgres_process import open_core
from tests.support.servers import postgres
from tests.support.stores import ADA, keep, list_ids

from omoide import Filter
from omoide.errors import (
    Busy,
    Corrupted,
    DiskFull,
    Invalid,
    ReadOnly,
    StoreFailed,
    StoreUnreachable,
    WrongVersion,
)
from omoide.stores import Document, Link, Query
from omoide.stores.sql.rows import entries_lock
from omoide.testing import PostgresServer
from omoide.testing.servers import free_port

SECRET = "hunter2-hunter2"
FACTS = Query(scope=ADA, filter=Filter(types=["fact"]))


@pytest.fixture
def url() -> str:
    return postgres().fresh_url()


@contextmanager
def connect_admin(**options: Any) -> Iterator[Any]:
    """A connection of the one who runs the server."""
    with psycopg.connect(postgres().url, autocommit=True, **options) as db:
        yield db


def message_of(error: StoreFailed) -> str:
    """What an error says, which is never the password."""
    text = f"{error!r} {error}"
    assert error.remedy
    assert SECRET not in text
    assert postgres().password not in text
    return text


def test_nobody_listens() -> None:
    """It says at once that there is no server, and what to look at."""
    began = time.monotonic()
    with pytest.raises(StoreUnreachable, match="check host and port") as raised:
        open_core(f"postgresql://ada:{SECRET}@127.0.0.1:{free_port()}/memories")
    message_of(raised.value)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("address", "remedy"),
    [
        ("omoide:{secret}@127.0.0.1:{port}/postgres", "check user and password"),
        ("nobody_here:{secret}@127.0.0.1:{port}/postgres", "check user and password"),
        ("omoide@127.0.0.1:{port}/postgres", "check user and password"),
        ("omoide:{right}@127.0.0.1:{port}/nowhere", "create the database"),
        ("omoide:{secret}@no-such-host.invalid:{port}/postgres", "check host and port"),
    ],
    ids=["wrong password", "unknown role", "no password", "unknown database", "unknown host"],
)
def test_whoever_is_not_let_in_is_told_why(address: str, remedy: str) -> None:
    """The server is there, and the one who asks is not the right one, or asks for what is not there."""
    server = postgres()
    right = server.password.replace(" ", "%20")
    with pytest.raises(StoreUnreachable, match=remedy) as raised:
        open_core("postgresql://" + address.format(secret=SECRET, right=right, port=server.port))
    message_of(raised.value)


@pytest.mark.parametrize(
    "password", ["hunter2%zz-hunter2", "hunter2@hunter2", "1/hunter2", "hunter2 hunter2"]
)
def test_a_password_that_is_not_written_as_it_must_be_is_not_repeated(password: str) -> None:
    """Signs that mean something in a URL have to be written otherwise; the error does not show them."""
    with pytest.raises(Invalid) as raised:
        open_core(f"postgresql://ada:{password}@127.0.0.1:1/memories")
    assert "hunter2" not in f"{raised.value} {raised.value.__cause__}"


def test_a_password_with_a_question_mark_is_not_repeated() -> None:
    """It has to be written as %3F; the error does not show what was taken for the rest of the URL."""
    with pytest.raises(Invalid) as raised:
        open_core("postgresql://ada:1?hunter2@127.0.0.1:1/memories")
    assert "hunter2" not in str(raised.value)


def test_a_role_without_privileges_is_told_so(url: str) -> None:
    """It may neither write nor read, and is told which right it lacks."""
    open_core(url).close()
    server = postgres()
    with connect_admin() as db:
        db.execute(f"CREATE ROLE stranger_{os.getpid()} LOGIN PASSWORD '{SECRET}'")
    theirs = url.replace(
        f"{server.user}:{server.password.replace(' ', '%20')}", f"stranger_{os.getpid()}:{SECRET}"
    )
    with pytest.raises(ReadOnly, match="a role that may") as raised:
        open_core(theirs)
    message_of(raised.value)


def test_a_role_that_may_only_read_reads(url: str) -> None:
    """Whoever was given nothing but SELECT opens it with mode=ro, and is told when it tries to write."""
    store = open_core(url)
    keep(store, "Tea.", id="a")
    store.close()
    schema = url.rpartition("=")[2]
    role = f"reader_{schema}"
    with connect_admin() as db:
        db.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{SECRET}'")
        db.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        db.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")
    server = postgres()
    theirs = url.replace(f"{server.user}:{server.password.replace(' ', '%20')}", f"{role}:{SECRET}")
    reading = open_core(f"{theirs}&mode=ro")
    assert list_ids(reading) == ["a"]
    with pytest.raises(ReadOnly):
        keep(reading, "Tea.")
    with pytest.raises(ReadOnly):
        reading.scrub()
    reading.close()
    writing = open_core(theirs)
    with pytest.raises(ReadOnly, match="a role that may write") as raised:
        keep(writing, "Tea.")
    message_of(raised.value)
    writing.close()


def test_a_server_that_hangs_is_given_up_in_time() -> None:
    """With a timeout of a second, each operation fails in about that time; afterwards all is well."""
    with PostgresServer(fsync="off") as server:
        store = open_core(server.fresh_url(), timeout=1)
        keep(store, "Tea.", id="a")
        operations: list[Callable[[], object]] = [
            lambda: store.get("a", ADA),
            lambda: keep(store, "Tea.", id="b"),
            lambda: store.query(FACTS),
        ]
        server.pause()
        try:
            for operation in operations:
                began = time.monotonic()
                with pytest.raises(StoreUnreachable, match="does not answer") as raised:
                    operation()
                assert time.monotonic() - began < 4
                assert raised.value.remedy
        finally:
            server.resume()
        for operation in operations:
            operation()
        assert list_ids(store) == ["a", "b"]
        assert store.check() == []
        store.close()


def test_whoever_waits_too_long_for_another_is_told_that_it_is_busy(url: str) -> None:
    """A namespace that somebody holds is no sign that the server is gone."""
    holding, store = open_core(url), open_core(url, timeout=0.5)
    with holding._db.write_transaction(entries_lock("default")):
        with pytest.raises(Busy, match="try again"):
            keep(store, "Tea.", id="a")
        keep(store, "Tea.", id="b", namespace="other")
    keep(store, "Tea.", id="a")
    assert list_ids(store) == ["a"]
    for one in (holding, store):
        one.close()


def test_a_pool_that_is_used_up_is_busy(url: str) -> None:
    """Whoever finds no connection free in time is told so, and what would help."""
    store = open_core(f"{url}&pool=1", timeout=0.2)
    with store._db.read_transaction(), pytest.raises(Busy, match=r"\?pool="):
        store.get("a", ADA)
    keep(store, "Tea.", id="a")
    store.close()


def test_a_server_without_a_connection_left_is_busy() -> None:
    """It says that there are too many, not that the server is gone; the next one is let in again."""
    with (
        PostgresServer(fsync="off", max_connections=10, superuser_reserved_connections=0) as server,
        ExitStack() as held,
    ):
        url = server.fresh_url()
        store = open_core(url, timeout=1)
        keep(store, "Tea.", id="a")
        store._db._close_idle()
        with suppress(psycopg.OperationalError):
            for _ in range(11):
                held.enter_context(psycopg.connect(server.url))
        operations: list[Callable[[], object]] = [
            lambda: open_core(url, timeout=1),
            lambda: store.get("a", ADA),
        ]
        for operation in operations:
            with pytest.raises(Busy, match="use a pooler"):
                operation()
        held.close()
        assert store.get("a", ADA).id == "a"
        store.close()


def rest(server: PostgresServer, store: Any) -> None:
    """Stop a server in order, which waits for those who are still there."""
    store._db._close_idle()
    server.stop()


def test_a_full_disk_is_told_and_nothing_is_lost() -> None:
    """The system has no room for a table: what was there stays, and all goes on once there is room."""
    with PostgresServer(fsync="off") as server:  # or it would try to have a device write down what it holds
        store = open_core(server.fresh_url())
        keep(store, "Tea.", id="a", namespace="before")
        with psycopg.connect(server.url) as db:
            (path,) = db.execute(f"SELECT pg_relation_filepath('{store._db.schema}.links')").fetchone() or (
                "",
            )
        rest(server, store)
        file = server.data / path
        file.rename(file.with_name("aside"))
        file.symlink_to("/dev/full")  # a real one: whatever is written there, the system has no room for
        server.start()
        for id in ("b", "c"):
            keep(store, "Tea.", id=id)
        link = Link(source="b", relation="refines", target="c")
        with pytest.raises(DiskFull, match="free some space") as raised:
            store.link(link, ADA)
        assert raised.value.remedy
        assert store.links("b", ADA) == []
        keep(store, "Tea.", id="d")  # what needs no room there
        rest(server, store)
        file.unlink()
        file.with_name("aside").rename(file)
        server.start()
        assert store.link(link, ADA).target == "c"
        assert [one.target for one in store.links("b", ADA)] == ["c"]
        assert list_ids(store) == ["b", "c", "d"]
        assert store.check() == []
        store.close()


@pytest.mark.parametrize("setting", ["default_transaction_read_only=on"])
def test_a_server_that_takes_no_changes_is_read_only(url: str, setting: str) -> None:
    """Reading goes on, and who writes is told to go to the primary."""
    store = open_core(url)
    keep(store, "Tea.", id="a")
    store.close()
    store = open_core(f"{url}&options=-c%20{setting}")
    assert list_ids(store) == ["a"]
    for operation in (
        lambda: keep(store, "Tea.", id="b"),
        lambda: store.erase(ADA, id="a"),
        lambda: store.save(Document(kind="k", id="d", body=1)),
    ):
        with pytest.raises(ReadOnly, match="use a primary"):
            operation()
    assert list_ids(store) == ["a"]
    store.close()


def test_a_store_whose_schema_was_dropped_says_so_and_can_be_opened_again(url: str) -> None:
    """Nothing is made behind the back of who dropped it; who opens it again has an empty store."""
    store = open_core(url)
    keep(store, "Tea.", id="a")
    with connect_admin() as db:
        db.execute(f"DROP SCHEMA {store._db.schema} CASCADE")
    for operation in (lambda: store.get("a", ADA), lambda: keep(store, "Tea.", id="b")):
        with pytest.raises(StoreFailed, match="open it again"):
            operation()
    store.close()
    store = open_core(url)
    assert list_ids(store) == []
    assert keep(store, "Tea.", id="a").rev == 1
    assert store.check() == []
    store.close()


def test_a_store_that_lacks_a_table_is_damaged(url: str) -> None:
    """One table less is nothing that opening could mend, and it says which one."""
    store = open_core(url)
    keep(store, "Tea.", id="a")
    store.close()
    with connect_admin() as db:
        db.execute(f"DROP TABLE {store._db.schema}.postings")
    for address in (url, f"{url}&mode=ro"):
        with pytest.raises(Corrupted, match="postings"):
            open_core(address)


THEIRS = {
    "an entries table": ["CREATE TABLE entries (id int)", "INSERT INTO entries VALUES (7)"],
    "settings of other columns": ["CREATE TABLE settings (key text, val text)"],
    "settings that speak of a schema": [
        "CREATE TABLE settings (name text, value text)",
        "INSERT INTO settings VALUES ('schema', 'public')",
    ],
    "settings that look like ours": [
        "CREATE TABLE settings (name text, value text)",
        "INSERT INTO settings VALUES ('schema', '1')",
    ],
}


@pytest.mark.parametrize("statements", THEIRS.values(), ids=THEIRS)
def test_a_schema_of_another_program_is_left_alone(url: str, statements: list[str]) -> None:
    """Whoever has tables of the same names is not written into, and the error says what to do."""
    schema = url.rpartition("=")[2]
    with connect_admin() as db:
        db.execute(f"CREATE SCHEMA {schema}")
        db.execute(f"SET search_path = {schema}")
        for statement in statements:
            db.execute(statement)
        before = dump_schema(db, schema)
        with pytest.raises(StoreFailed, match=r"another program.*\?schema="):
            open_core(url)
        with pytest.raises(ReadOnly, match="holds no memories"):
            open_core(f"{url}&mode=ro")
        assert dump_schema(db, schema) == before


def dump_schema(db: Any, schema: str) -> list[Any]:
    """All tables of a schema, with all their rows."""
    names = [name for (name,) in db.execute("SELECT tablename FROM pg_tables WHERE schemaname=%s", (schema,))]
    return [(name, db.execute(f'SELECT * FROM "{schema}"."{name}"').fetchall()) for name in sorted(names)]  # noqa: S608


def test_a_schema_of_the_future_is_refused(url: str) -> None:
    """A newer Omoide's store is neither read nor changed by an older one."""
    open_core(url).close()
    schema = url.rpartition("=")[2]
    with connect_admin() as db:
        db.execute(f"UPDATE {schema}.settings SET value = '999' WHERE name = 'schema'")  # noqa: S608
    for address in (url, f"{url}&mode=ro"):
        with pytest.raises(WrongVersion, match="use the newer Omoide"):
            open_core(address)


def test_what_a_url_says_reaches_the_server_as_it_is(url: str) -> None:
    """Spaces and signs in its options are neither lost nor taken for others."""
    store = open_core(f"{url}&application_name=my%20own%2Bapp&options=-c%20statement_timeout%3D7s")
    with store._db.read_transaction() as db:
        (name, limit) = db.execute(
            "SELECT current_setting('application_name'), current_setting('statement_timeout')"
        ).fetchone()
    assert (name, limit) == ("my own+app", "7s")
    store.close()


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_text_is_text_whatever_the_database_is_in(encoding: str) -> None:
    """Every letter comes back, or the database is refused before anything is written."""
    server = postgres()
    name = f"db_{encoding.lower()}"
    with connect_admin() as db:
        db.execute(f"DROP DATABASE IF EXISTS {name}")
        db.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    url = server.url.replace("/postgres", f"/{name}")
    if encoding == "LATIN1":
        with pytest.raises(StoreFailed, match="ENCODING 'UTF8'"):
            open_core(url)
        return
    store = open_core(url)
    keep(store, "Грузинский чай, 紅茶.", id="чай", session_id="お茶")
    assert [(one.id, one.session_id, one.content) for one in store.list_entries(ADA)] == [
        ("чай", "お茶", "Грузинский чай, 紅茶.")
    ]
    store.close()
