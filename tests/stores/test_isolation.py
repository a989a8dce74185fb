"""Nothing crosses from one scope into another, whatever the names are."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.support.stores import KINDS, a_store, note, write_request

from omoide import Entry, Filter, RecallRequest, Scope, clock
from omoide.errors import IdTaken, Invalid, NotFound
from omoide.stores import Document, Link, Query
from omoide.testing import HashEmbedder

NAMES = (
    "Café",
    "cafe",
    "CAFÉ",
    "Cafe\u0301",
    "Ｃａｆé",
    "Caf\u200bé",
    "café ",
    "%",
    "_",
    "*",
    "Caf%",
    "ca_e",
    "'",
    '"',
    "' OR '1'='1",
    "x'; DROP TABLE entries; --",
    "../Café",
    "a/b",
    "a:b",
    "a\\b",
    "null",
    "None",
    "deleted-not",
    "default",
    "0",
    "00",
    "0.0",
    "-1",
    "ß",
    "ss",
    "\u0131",  # i without a dot
    "i",
    "I",
    "İ",
    "\u212a",  # the sign for kelvin
    "K",
    "ﬁ",
    "fi",
    "x" * 512,
    "x" * 511 + "y",
    "é" * 256,
    "🫖",
)
FIELDS = ("namespace", "user_id", "agent_id", "session_id", "project_id")
names = st.sampled_from(NAMES)
maybe = st.none() | names
owners = st.builds(Scope, namespace=names, user_id=maybe, agent_id=names, session_id=maybe, project_id=maybe)
askers = st.builds(Scope, namespace=names, user_id=maybe, agent_id=maybe, session_id=maybe, project_id=maybe)


def mine(scope: Scope) -> dict[str, Any]:
    return {name: getattr(scope, name) for name in Scope.__struct_fields__}


def near(owner: Scope, chance: Any) -> Scope:
    """The scope of somebody who shares all but one name with an owner."""
    field = chance.draw(st.sampled_from(Scope.__struct_fields__))
    return owner.replace(**{field: chance.draw(names)})


def look(store: Any, scope: Scope) -> list[Entry]:
    """All entries that can be seen from a scope without knowing an id."""
    seen = list(store.list_entries(scope))
    everything = Filter(include_superseded=True, include_expired=True)
    seen += store.query(Query(scope=scope, limit=1_000, filter=everything)).entries
    seen += store.query(Query(scope=scope, limit=1_000, as_of=clock.MAX_TIMESTAMP)).entries
    if scope.agent_id is not None or scope.session_id is None:
        request = RecallRequest.for_scope(scope, "secret tea of Café", limit=1_000, filter=everything)
        seen += store.recall(request).entries
    return seen


def check_refused(call: Callable[[], object], allowed: type[Exception] = NotFound) -> None:
    with pytest.raises(allowed):
        call()


def try_everything(store: Any, scope: Scope, entry: Entry, own: Entry) -> None:
    """Every operation that takes an id, with the id of an entry that lies elsewhere."""
    id = entry.id
    check_refused(lambda: store.get(id, scope))
    check_refused(lambda: store.get(id, scope, as_of=clock.MAX_TIMESTAMP))
    check_refused(lambda: store.history(id, scope))
    check_refused(lambda: store.supersede(id, scope))
    check_refused(lambda: store.supersede(id, scope, by=own.id))
    check_refused(lambda: store.reinstate(id, scope))
    check_refused(lambda: store.erase(scope, id=id))
    check_refused(lambda: store.links(id, scope))
    check_refused(lambda: store.access(id, scope))
    for link in (
        Link(source=id, relation="refines", target=own.id),
        Link(source=own.id, relation="refines", target=id),
    ):
        check_refused(lambda link=link: store.link(link, scope))  # type: ignore[misc]
    store.record_access([id], scope)


@pytest.mark.parametrize("kind", KINDS)
@given(owned=st.lists(owners, min_size=1, max_size=6), chance=st.data(), vectors=st.booleans())
def test_nothing_crosses(kind: str, owned: list[Scope], chance: Any, vectors: bool) -> None:
    """From any scope, by any operation, only entries of that scope are seen or changed."""
    embedder = HashEmbedder(16) if vectors else "none"
    with tempfile.TemporaryDirectory() as folder, a_store(kind, Path(folder), embedder=embedder) as store:
        entries = [
            store.write(write_request(f"The secret tea of Café {at}.", id=f"e{at}", **mine(owner))).entry
            for at, owner in enumerate(owned)
        ]
        asker = (
            near(chance.draw(st.sampled_from(owned)), chance)
            if chance.draw(st.booleans())
            else chance.draw(askers)
        )
        inside = [entry for entry in entries if asker.contains(entry)]
        outside = [entry for entry in entries if not asker.contains(entry)]
        seen = look(store, asker)
        assert all(asker.contains(entry) for entry in seen)
        assert {entry.id for entry in seen} == {entry.id for entry in inside}
        assert store.stats(asker).entries == len(inside)
        assert {change.id for change in store.changes(asker.namespace)} == {
            entry.id for entry in entries if entry.namespace == asker.namespace
        }
        whole = asker.replace(agent_id=asker.agent_id or "own agent")
        own = store.write(write_request("My own tea.", id="own", **mine(whole))).entry
        before = {entry.id: store.history(entry.id, entry.scope) for entry in outside}
        for entry in outside:
            try_everything(store, asker, entry, own)
        erased = store.erase(asker)
        assert set(erased.ids) == {entry.id for entry in inside} | {"own"}
        for entry in outside:
            assert store.get(entry.id, entry.scope) == entry
            assert store.history(entry.id, entry.scope) == before[entry.id]
            assert store.access(entry.id, entry.scope).count == 0


@pytest.mark.parametrize("kind", KINDS)
@given(one=names, other=names, field=st.sampled_from(FIELDS))
def test_names_that_look_alike_are_different(kind: str, one: str, other: str, field: str) -> None:
    """Case, accents, width, composition and wildcards never make two names one."""
    assume(one != other)
    with tempfile.TemporaryDirectory() as folder, a_store(kind, Path(folder)) as store:
        here: dict[str, Any] = dict.fromkeys(FIELDS, "x")
        store.write(write_request("Tea.", id="e", **{**here, field: one}))
        there = Scope(**{**here, field: other})
        assert look(store, there) == []
        check_refused(lambda: store.get("e", there))
        if field != "namespace":
            check_refused(lambda: store.write(write_request("Mine.", id="e", **mine(there))), IdTaken)
        else:
            assert store.write(write_request("Mine.", id="e", expected_rev=0, **mine(there))).rev == 1
        ids = store.write(write_request("Tea.", id=one, namespace="ids")).entry
        check_refused(lambda: store.get(other, Scope(namespace="ids")))
        assert store.get(one, Scope(namespace="ids")) == ids


@pytest.mark.parametrize("kind", KINDS)
def test_an_erase_receipt_names_nothing_outside_its_scope(tmp_path: Path, kind: str) -> None:
    """What others derived from an erased entry is counted, what the scope itself derived is named."""
    with a_store(kind, tmp_path) as store:
        store.write(write_request("The premise.", id="p", agent_id="ada"))
        for id, agent in (("mine", "ada"), ("theirs", "bob"), ("theirs-2", "bob")):
            evidence = [{"kind": "entry", "ref": "p"}]
            store.write(write_request(f"From it, {id}.", id=id, agent_id=agent, evidence=evidence))
        left = store.erase(Scope(agent_id="ada"), id="p").unreachable
        assert "entry 'mine', whose evidence is 'p'" in left
        assert "entries outside the scope that depend on it: 2" in left
        assert not [line for line in left if "theirs" in line]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_of_another_user_supersedes_or_is_superseded(tmp_path: Path, kind: str) -> None:
    """One agent serves many users: the memory of one neither replaces nor is replaced by that of another."""
    with a_store(kind, tmp_path) as store:
        mine = store.write(write_request("Mine.", id="mine", agent_id="a", user_id="u")).entry
        theirs = store.write(write_request("Theirs.", id="theirs", agent_id="a", user_id="v")).entry
        scope = Scope(agent_id="a", user_id="u")
        check_refused(lambda: store.supersede("mine", scope, by="theirs"))
        new = write_request("New.", id="new", agent_id="a", user_id="u", supersedes="theirs")
        check_refused(lambda: store.write(new))
        assert store.get("mine", Scope()) == mine
        assert store.get("theirs", Scope()) == theirs
        check_refused(lambda: store.get("new", Scope()))


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_is_as_long_for_each_user(tmp_path: Path, kind: str) -> None:
    """What others have in a session of the same name does not fill it."""
    with a_store(kind, tmp_path, session_limit=2) as store:
        for user in ("u", "v"):
            for at in range(2):
                store.write(write_request(f"Note {at}.", id=f"{user}{at}", user_id=user, session_id="s"))
        with pytest.raises(Invalid):
            store.write(write_request("Note 3.", user_id="u", session_id="s"))
        entries = [note(f"Note {at}.", id=f"w{at}", user_id="w", session_id="s") for at in range(2)]
        assert store.import_entries(entries) == 2
        with pytest.raises(Invalid):
            store.import_entries([note("Note 2.", id="w2", user_id="w", session_id="s")])


@pytest.mark.parametrize("kind", KINDS)
def test_changes_are_those_of_the_scope(tmp_path: Path, kind: str) -> None:
    """Narrowed to an agent or a user, the feed tells of its entries, erased ones included, and no others."""
    with a_store(kind, tmp_path) as store:
        for id, fields in (("a", {}), ("b", {"agent_id": "bob"}), ("c", {"user_id": "u"}), ("d", {})):
            store.write(write_request(f"Note {id}.", id=id, **{"agent_id": "ada", **fields}))
        store.erase(Scope(agent_id="ada"), id="d")
        store.erase(Scope(agent_id="bob"), id="b")

        def ids(**fields: str) -> list[tuple[str, str]]:
            scope = Scope(**fields)
            return [(one.id, one.op) for one in store.changes("default", scope=scope)]

        assert ids(agent_id="bob") == [("b", "write"), ("b", "erase")]
        assert ids(user_id="u") == [("c", "write")]
        assert ids(agent_id="ada") == [("a", "write"), ("c", "write"), ("d", "write"), ("d", "erase")]
        assert ids(agent_id="nobody") == ids(namespace="elsewhere") == []
        first = store.changes("default", limit=2, scope=Scope(agent_id="ada"))
        assert [one.id for one in first] == ["a", "c"]
        assert store.changes("default", until=first[-1].seq, scope=Scope(agent_id="ada")) == first
        assert [one.id for one in store.changes("default", until=first[-1].seq)] == ["a", "b", "c"]
        assert (
            store.changes("default", after=first[-1].seq, limit=1, scope=Scope(agent_id="ada"))[0].id == "d"
        )


@pytest.mark.parametrize("kind", KINDS)
@given(one=names, other=names)
def test_documents_do_not_cross(kind: str, one: str, other: str) -> None:
    """A document is seen from its own namespace, by its user and agent, and under its own id and kind."""
    assume(one != other)
    with tempfile.TemporaryDirectory() as folder, a_store(kind, Path(folder)) as store:
        saved = store.save(
            Document(kind=one, id=one, namespace=one, user_id=one, agent_id=one, body="secret")
        )
        home = Scope(namespace=one, user_id=one, agent_id=one)
        assert store.load(one, one, home) == saved
        assert store.load(other, one, home) is None
        assert store.load(one, other, home) is None
        for field in ("namespace", "user_id", "agent_id"):
            scope = home.replace(**{field: other})
            assert store.load(one, one, scope) is None
            check_refused(lambda scope=scope: store.append(one, one, ["x"], scope))  # type: ignore[misc]
            assert store.erase(scope).documents == 0
        assert store.load(one, one, home) == saved


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["", "a\0b", "a\nb", "\x7f", "x" * 513, "é" * 257, "\ud800"], ids=repr)
def test_names_that_no_store_can_hold_are_refused(tmp_path: Path, kind: str, name: str) -> None:
    """They do not even become a scope or an entry; as an id they are bad input or not found."""
    for field in Scope.__struct_fields__:
        with pytest.raises(Invalid):
            Scope(**{field: name})
        with pytest.raises(Invalid):
            note(**{field: name})
    with a_store(kind, tmp_path) as store:
        for call in (store.get, store.history, store.supersede, store.reinstate, store.links, store.access):
            with pytest.raises((Invalid, NotFound)):
                call(name, Scope())
        with pytest.raises((Invalid, NotFound)):
            store.erase(Scope(), id=name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("id", [5, None, 2.5, ["a"], b"a", {"a": 1}], ids=repr)
def test_an_id_that_is_no_text_is_refused(tmp_path: Path, kind: str, id: Any) -> None:
    """Asked for by a number or anything else, an entry is bad input or not found."""
    with a_store(kind, tmp_path) as store:
        store.write(write_request("Tea.", id="5"))
        for call in (store.get, store.history, store.supersede, store.reinstate, store.links, store.access):
            with pytest.raises((Invalid, NotFound)):
                call(id, Scope())
        assert store.get("5", Scope()).rev == 1
