"""URLs of PostgreSQL stores are understood, or refused with a remedy."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from tests.support.servers import postgres
from tests.support.stores import note, write_request

from omoide import Scope
from omoide.errors import Invalid, MissingExtra, StoreFailed, StoreUnreachable
from omoide.stores import open_store
from omoide.stores.postgres import store as opening


def open_fresh(more: str = "", **options: Any) -> Any:
    return open_store(f"{postgres().fresh_url()}{more}", embedder="none", **options)


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("&pool=0", "pool"),
        ("&pool=-1", "pool"),
        ("&pool=1001", "pool"),
        ("&pool=many", "pool"),
        ("&pool=²", "pool"),
        ("&prepare=yes", "prepare"),
        ("&colour=red", "colour"),
        ("&mode=rx", "url"),
        ("&timeout=-3", "timeout"),
    ],
)
def test_an_option_that_means_nothing_is_refused_by_its_name(said: str, named: str) -> None:
    """The error begins with the name, and shows no password."""
    with pytest.raises(Invalid, match=rf"^{named} ") as caught:
        open_fresh(said)
    assert postgres().password not in str(caught.value)


def test_an_option_that_the_driver_does_not_understand_is_named() -> None:
    """What the driver itself refuses is told with the remedy."""
    with pytest.raises(StoreUnreachable, match=r"perhaps.*; correct it in the URL$"):
        open_fresh("&sslmode=perhaps")


@pytest.mark.parametrize("name", ["", "Upper", "1st", "a-b", 'a"b', "a;b", "pg_own", "ä", "x" * 64])
def test_a_schema_that_cannot_be_one_is_refused(name: str) -> None:
    """Names that would have to be quoted, or are the server's own, are none."""
    with pytest.raises(Invalid, match=r"^schema is "):
        open_store(f"{postgres().url}?schema={name}", embedder="none")


def test_a_url_that_cannot_be_read_is_refused_without_its_password() -> None:
    """Not even the driver's own words bring it out."""
    with pytest.raises((Invalid, StoreFailed)) as caught:
        open_store("postgresql://ada:geheim@host:notaport/x", embedder="none")
    assert "geheim" not in str(caught.value)


def test_two_schemas_of_one_database_share_nothing() -> None:
    """The same id may be in both, and neither lists what the other has."""
    with open_fresh() as one, open_fresh() as other:
        one.sync.write(write_request(id="kettle"))
        assert other.sync.list_entries(Scope()) == []
        assert other.sync.namespaces() == []
        other.sync.write(write_request("Another one.", id="kettle"))
        assert one.sync.get("kettle", Scope()).content == note().content


def test_both_names_of_the_scheme_open_the_same_store() -> None:
    """`postgres:` is short for `postgresql:`."""
    url = postgres().fresh_url()
    with open_store(url, embedder="none") as one:
        one.sync.write(write_request(id="kettle"))
        with open_store(url.replace("postgresql:", "postgres:"), embedder="none") as other:
            assert other.sync.get("kettle", Scope()).id == "kettle"


def test_the_password_is_shown_nowhere() -> None:
    """Neither by the store itself nor by what it says of its upkeep."""
    with open_fresh() as store:
        told = f"{store!r} {store.sync._db.name} {[*store.sync.findings()]}"
    assert postgres().password not in told
    assert "password" not in told.replace("password=***", "")


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package is one error with the command that brings it."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, opening.__name__)
    with pytest.raises(MissingExtra, match=r"omoide\[postgres\]"):
        open_fresh()


def test_a_server_that_only_pretends_to_hold_locks_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some speak the protocol and let two hold the same."""
    monkeypatch.setattr("omoide.stores.postgres.connection.lock_statements", lambda *_: [])
    with pytest.raises(StoreFailed, match="advisory lock"):
        open_fresh()


def test_a_fresh_place_can_be_opened_with_one_connection() -> None:
    """Making the tables does not wait for a connection of its own pool."""
    with open_fresh("&pool=1", timeout=5) as store:
        store.sync.write(write_request())
        assert len(store.sync.list_entries(Scope())) == 1
