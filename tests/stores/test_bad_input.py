"""Bad input gets a typed error with a remedy, and changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.stores import ADA, KINDS, a_store, keep, list_ids, note, open_core, write_request

from omoide import Entry, RecallRequest, Scope
from omoide.embedders import FunctionEmbedder
from omoide.errors import (
    Closed,
    EmbedderFailed,
    Invalid,
    NotFound,
    OmoideError,
    Refused,
    StoreFailed,
    Unsupported,
)
from omoide.stores import Document, Link, Query, open_store


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(kind: str, tmp_path: Path) -> Iterator[Any]:
    """A store with something in it, which must still be there afterwards."""
    with a_store(kind, tmp_path) as store:
        for id in ("a", "b"):
            keep(store, f"About {id}.", id=id)
        store.link(Link(source="a", relation="refines", target="b"), ADA)
        store.save(Document(kind="session", id="d", agent_id="ada", body=1))
        before = snapshot(store)
        yield store
        assert snapshot(store) == before
        assert store.check() == []


def snapshot(store: Any) -> list[Any]:
    return [
        store.list_entries(Scope()),
        store.changes("default"),
        store.load("session", "d", ADA),
        *(look(id, ADA) for look in (store.history, store.links) for id in ("a", "b")),
    ]


def test_content_has_a_limit(store: Any) -> None:
    """More than a mebibyte is refused with its size, whether in letters of one byte or of several."""
    for content in ("x" * 10_000_000, "é" * (1 << 19) + "x"):
        with pytest.raises(Invalid, match="max_content") as caught:
            keep(store, content, id="big")
        assert (caught.value.field, str(len(content.encode())) in str(caught.value)) == ("content", True)
        with pytest.raises(Invalid):
            store.write_many([write_request("Small.", id="small"), write_request(content, id="big")])


def test_the_limit_on_content_can_be_chosen(kind: str, tmp_path: Path) -> None:
    """A store opened with another one keeps so much and no more, without loss."""
    with a_store(kind, tmp_path, max_content=3 << 20) as store:
        content = "é" * (3 << 19)
        keep(store, content, id="a")
        assert store.get("a", ADA).content == content
        with pytest.raises(Invalid):
            keep(store, content + "x", id="b")


CALLS: dict[str, Callable[[Any], object]] = {
    "write text": lambda store: store.write("Tea."),
    "write None": lambda store: store.write(None),
    "write an entry": lambda store: store.write(note()),
    "write a mapping": lambda store: store.write({"entry": {"agent_id": "ada", "content": "Tea."}}),
    "write many of one": lambda store: store.write_many(write_request()),
    "write many wrong": lambda store: store.write_many([write_request(), "Tea."]),
    "recall text": lambda store: store.recall("tea"),
    "query text": lambda store: store.query("tea"),
    "list text": lambda store: store.list_entries("ada"),
    "list None": lambda store: store.list_entries(None),
    "get in text": lambda store: store.get("a", "ada"),
    "get before 1970": lambda store: store.get("a", ADA, as_of=-1),
    "get at a float": lambda store: store.get("a", ADA, as_of=1.5),
    "supersede with a text": lambda store: store.supersede("a", ADA, expected_rev="1"),
    "supersede for a number": lambda store: store.supersede("a", ADA, reason=5),
    "supersede for NUL": lambda store: store.supersede("a", ADA, reason="\0"),
    "supersede by a number": lambda store: store.supersede("a", ADA, by=5),
    "restore with a text": lambda store: store.reinstate("a", ADA, expected_rev="1"),
    "erase for a number": lambda store: store.erase(ADA, id="a", reason=5),
    "erase for NUL": lambda store: store.erase(ADA, id="a", reason="\0"),
    "erase text": lambda store: store.erase("ada"),
    "erase None": lambda store: store.erase(None),
    "link text": lambda store: store.link("a refines b", ADA),
    "unlink text": lambda store: store.unlink("a refines b", ADA),
    "links of a relation that is none": lambda store: store.links("a", ADA, relation=5),
    "changes of None": lambda store: store.changes(None),
    "changes after text": lambda store: store.changes("default", after="x"),
    "no changes": lambda store: store.changes("default", limit=0),
    "fewer than no changes": lambda store: store.changes("default", limit=-1),
    "figures of text": lambda store: store.stats("ada"),
    "save text": lambda store: store.save("d"),
    "save with a text": lambda store: store.save(Document(kind="k", id="d"), expected_rev="0"),
    "append an object": lambda store: store.append("session", "d", [1, object()], ADA),
    "append NUL": lambda store: store.append("session", "d", ["\0"], ADA),
    "append no list": lambda store: store.append("session", "d", 5, ADA),
    "claim for nobody": lambda store: store.claim("session", "d", ADA, owner="", ttl_ms=5),
    "claim for no time": lambda store: store.claim("session", "d", ADA, owner="w", ttl_ms=0),
    "claim for less": lambda store: store.claim("session", "d", ADA, owner="w", ttl_ms=-5),
    "claim for a text": lambda store: store.claim("session", "d", ADA, owner="w", ttl_ms="5"),
    "accesses of a number": lambda store: store.record_access(5, ADA),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_argument_is_bad_input(store: Any, call: str) -> None:
    """The error is one of ours, says what to do, and nothing has changed."""
    with pytest.raises((Invalid, NotFound)) as caught:
        CALLS[call](store)
    assert getattr(caught.value, "remedy", "")


def test_a_guard_sees_everything_before_it_is_kept(kind: str, tmp_path: Path) -> None:
    """What it refuses is not kept, and what it changes is kept as changed."""

    def guard(entry: Entry) -> Entry:
        if "password" in entry.content:
            raise Refused("content", ["a password"])
        return entry.replace(content=entry.content.replace("4711", "…"))

    with a_store(kind, tmp_path, guard=guard) as store:
        assert keep(store, "The number is 4711.", id="a").content == "The number is …."
        for write in (
            lambda: keep(store, "The password is tea.", id="b"),
            lambda: keep(store, "The password is tea.", id="a"),
            lambda: store.write_many([write_request("Fine.", id="c"), write_request("password", id="d")]),
        ):
            with pytest.raises(Refused, match="a password"):
                write()
        assert [entry.content for entry in store.list_entries(ADA)] == ["The number is …."]


def test_a_session_can_have_a_limit(kind: str, tmp_path: Path) -> None:
    """One entry too many is refused; entries elsewhere, changes, and replacements do not count."""
    with a_store(kind, tmp_path, session_limit=2) as store:
        for id in ("a", "b"):
            keep(store, f"About {id}.", id=id, session_id="s")
        with pytest.raises(Invalid):
            keep(store, "Too much.", id="c", session_id="s")
        keep(store, "More about a.", id="a", session_id="s")
        keep(store, "Elsewhere.", id="d", session_id="t")
        keep(store, "No session.", id="e")
        store.supersede("a", ADA)
        keep(store, "Now there is room.", id="c", session_id="s")
        assert sorted(list_ids(store)) == ["a", "b", "c", "d", "e"]


def test_a_session_has_no_limit_by_default(kind: str, tmp_path: Path) -> None:
    """More than ten thousand memories of one session are kept."""
    with a_store(kind, tmp_path) as store:
        store.write_many(
            [write_request(f"Number {at}.", id=f"m{at}", session_id="s") for at in range(10_001)]
        )
        assert store.stats(ADA.replace(session_id="s")).live == 10_001


# Embedders


def test_vectors_of_another_size_are_refused(kind: str, tmp_path: Path) -> None:
    """An embedder that changes its mind about the size of a vector fails, and the entry is not kept."""
    size = 8

    def embed(texts: list[str]) -> list[list[float]]:
        return [[1.0] * size for _ in texts]

    with a_store(kind, tmp_path, embedder=FunctionEmbedder("tests", embed)) as store:
        keep(store, "Tea.", id="a")
        size = 9
        with pytest.raises(EmbedderFailed) as caught:
            keep(store, "Coffee.", id="b")
        assert caught.value.remedy
        with pytest.raises(OmoideError):
            keep(store, "More tea.", id="a")
        size = 8
        assert [entry.content for entry in store.list_entries(ADA)] == ["Tea."]
        assert keep(store, "Coffee.", id="b").rev == 1
        assert store.check() == []


def broken(texts: list[str]) -> Any:
    raise RuntimeError("no model today")


ODD: dict[str, Callable[[list[str]], Any]] = {
    "raises": broken,
    "too few": lambda texts: [],
    "too many": lambda texts: [[1.0] * 8] * (len(texts) + 1),
    "nothing": lambda texts: None,
    "text": lambda texts: ["vector"] * len(texts),
    "not a number": lambda texts: [[float("nan")] * 8] * len(texts),
    "infinite": lambda texts: [[float("inf")] * 8] * len(texts),
    "ragged": lambda texts: [[1.0] * (at + 7) for at in range(len(texts))],
}


@pytest.mark.parametrize("odd", ODD)
def test_an_embedder_that_fails_is_named(kind: str, tmp_path: Path, odd: str) -> None:
    """Whatever it raises or gives, the error is ours, and the entry is not kept."""
    good = True

    def embed(texts: list[str]) -> Any:
        return [[1.0] * 8 for _ in texts] if good else ODD[odd](texts)

    with a_store(kind, tmp_path, embedder=FunctionEmbedder("tests", embed)) as store:
        keep(store, "Tea.", id="a")
        good = False
        with pytest.raises(EmbedderFailed):
            store.write_many([write_request("Coffee.", id="b"), write_request("Cocoa.", id="c")])
        assert list_ids(store) == ["a"]
        assert store.check() == []


# Opening and closing

URLS = [
    "",
    "memory.db",
    "/tmp/memory.db",
    "sqlite://memory.db",
    "sqlite://",
    "sqlite:///",
    "sqlite:///folder/",
    "sqlite:///a%00b.db",
    "mysql://localhost/x",
    "http://localhost/",
    "memory://?colour=red",
    "memory://?durability=maybe",
    "memory://?max_content=many",
    "memory://?max_content=0",
    "memory://?mode=rx",
    None,
    5,
]


@pytest.mark.parametrize("url", URLS, ids=repr)
def test_a_url_that_names_no_store_is_refused(url: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """With a remedy, and without making a file."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Invalid) as caught:
        open_store(url, embedder="none")
    assert caught.value.remedy
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        {"colour": "red"},
        {"durability": "maybe"},
        {"max_content": 0},
        {"max_content": "many"},
        {"max_pages": -1},
        {"session_limit": 0},
        {"timeout": 0},
        {"timeout": "long"},
        {"embedder": "unheard-of"},
        {"embedder": 5},
        {"guard": "strict"},
        {"read_only": "perhaps"},
        {"count_tokens": 4},
    ],
    ids=str,
)
def test_a_setting_that_cannot_be_is_refused(kind: str, tmp_path: Path, options: dict[str, Any]) -> None:
    """With a remedy, and without making a file."""
    with pytest.raises(Invalid) as caught:
        open_core(kind, tmp_path, **options)
    assert caught.value.remedy
    assert list(tmp_path.iterdir()) == []


def test_a_closed_store_says_so(kind: str, tmp_path: Path) -> None:
    """Whatever it is asked; closing it again is fine."""
    with a_store(kind, tmp_path) as store:
        keep(store, "Tea.", id="a")
        store.close()
        store.close()
        for call in (
            lambda: keep(store, "Coffee.", id="b"),
            lambda: store.get("a", ADA),
            lambda: store.list_entries(ADA),
            lambda: store.recall(RecallRequest(agent_id="ada", query="tea")),
            lambda: store.query(Query(scope=ADA)),
            lambda: store.erase(ADA),
            lambda: store.load("session", "d", ADA),
        ):
            with pytest.raises(Closed):
                call()


def test_a_folder_is_no_store(tmp_path: Path) -> None:
    """A path that is a folder, or lies below a file, is refused."""
    (tmp_path / "file").write_text("text")
    for path in (tmp_path, tmp_path / "file" / "memory.db"):
        with pytest.raises(StoreFailed):
            open_store(f"sqlite:///{path}", embedder="none")


def test_what_a_document_cannot_hold_is_refused(store: Any) -> None:
    """The error names the place."""
    with pytest.raises(Unsupported, match="body"):
        store.save(Document(kind="session", id="d", agent_id="ada", body={"x": object()}))
