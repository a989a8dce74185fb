"""Entries are followed through the feed and imported without loss."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.store_process import IDS, OPTIONS, step
from tests.support.stores import ADA, KINDS, a_store, keep, recall_ids, write_request

from omoide import Entry, Evidence, Scope, WriteRequest, clock
from omoide.errors import Refused
from omoide.stores import Access, Link
from omoide.testing import FrozenClock, HashEmbedder

BOTH = pytest.mark.parametrize("kind", KINDS)


@given(seed=st.integers(0, 1 << 30), limit=st.sampled_from([1, 3, 10_000]), kind=st.sampled_from(KINDS))
def test_a_copy_that_follows_has_what_the_store_has(seed: int, limit: int, kind: str) -> None:
    """After any life, heard in portions of any size while it goes on: entries, links and nothing erased."""
    with tempfile.TemporaryDirectory() as folder, a_store(kind, Path(folder)) as store:
        seq, entries, links = 0, dict[str, Entry](), dict[str, set[Link]]()
        for n in range(40):
            step(store, seed, n)
            more = True
            while more:
                feed = store.change_feed("default", after=seq, limit=limit)
                seq, more = hear(feed, entries, links), feed.more and (n % 7 == 6 or n == 39)
        assert {entry.id: entry for entry in store.list_entries(Scope())} == entries
        for id in entries:
            assert links[id] == {link for link in store.links(id, Scope()) if link.source == id}


def hear(feed: Any, entries: dict[str, Entry], links: dict[str, set[Link]]) -> int:
    """What a copy does with a feed."""
    for id in feed.erased_ids:
        entries.pop(id, None)
        links.pop(id, None)
    for entry in feed.entries:
        assert entry.id not in feed.new_ids or entry.id not in entries
        entries[entry.id] = entry
        links[entry.id] = {link for link in feed.links if link.source == entry.id}
    seq: int = feed.seq
    return seq


@given(seed=st.integers(0, 1 << 30), one=st.sampled_from(KINDS), other=st.sampled_from(KINDS))
def test_what_is_taken_over_is_what_it_was(seed: int, one: str, other: str) -> None:
    """Whatever a store came to hold, another store holds it then: entries, links and figures."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        (Path(folder) / "to").mkdir()
        source = stack.enter_context(a_store(one, Path(folder)))
        target = stack.enter_context(a_store(other, Path(folder) / "to"))
        for n in range(30):
            step(source, seed, n)
        with clock.override(FrozenClock(5_000)):
            source.record_access(IDS[:4], ADA)
        feed = source.change_feed("default")
        known = {entry.id for entry in feed.entries if not entry.stale}
        assert target.import_entries(feed.entries, feed.links, feed.access) == len(feed.entries)
        kept = {entry.id: entry for entry in target.list_entries(Scope())}
        for entry in feed.entries:
            # What rests on something erased there may count here: nothing is known of that.
            assert kept[entry.id].replace(stale=entry.stale) == entry
            assert not kept[entry.id].stale or entry.id not in known
            assert target.links(entry.id, Scope()) == source.links(entry.id, Scope())
            assert target.access(entry.id, ADA) == source.access(entry.id, ADA)
        assert target.import_entries(feed.entries, feed.links, feed.access) == 0
        assert target.check() == []


@BOTH
@pytest.mark.parametrize("ref", ["a\nb", "\x01", "x" * 600])
def test_what_no_entry_can_be_called_hinders_nothing(kind: str, tmp_path: Path, ref: str) -> None:
    """A stale entry may refer to what is no id; it is taken over, and what was left behind still counts."""
    evidence = (Evidence(kind="entry", ref=ref), Evidence(kind="entry", ref="left"))
    given = write_request("Tea.", id="a", evidence=evidence).entry.replace(stale=True)
    with a_store(kind, tmp_path) as store:
        assert store.import_entries([given]) == 1
        assert store.get("a", ADA).stale
        assert store.check() == []


def test_vectors_and_terms_are_made_for_what_is_taken_over(tmp_path: Path) -> None:
    """It is recalled as if it had been written here."""
    entries = [write_request(text, id=id).entry for id, text in (("a", "Green tea."), ("b", "Black coffee."))]
    with a_store("sqlite", tmp_path, **OPTIONS) as store:
        store.import_entries([entry.replace(rev=3) for entry in entries])
        assert recall_ids(store, "coffee", limit=1) == ["b"]
        assert (store.stats(ADA).without_vectors, store.check()) == (0, [])
        keep(store, "Red tea.", id="a")
        store.reindex(HashEmbedder(8))
        assert (store.stats(ADA).versions, store.check()) == (3, [])


@BOTH
@pytest.mark.parametrize("field", ["content", "superseded_reason"])
def test_what_is_taken_over_passes_the_guard(kind: str, tmp_path: Path, field: str) -> None:
    """Secrets are refused, with everything else, or masked."""
    secret = "sk_live_" + "a1" * 10
    fields: dict[str, Any] = {"content": "Tea.", "superseded_by": "x", field: f"It is {secret}."}
    entry = write_request(fields.pop("content"), id="a", **fields).entry
    with a_store(kind, tmp_path, guard="refuse") as store:
        with pytest.raises(Refused):
            store.import_entries([write_request(id="b").entry, entry])
        with pytest.raises(Refused):
            store.write(WriteRequest(entry=entry))
        assert store.list_entries(ADA) == []
    with a_store(kind, tmp_path, guard="mask") as store:
        assert store.import_entries([entry]) == 1
        assert secret not in repr(store.get("a", ADA))
        assert store.import_entries([entry]) == 0, "masked, it is the same"


@BOTH
def test_another_life_of_a_store_is_told(kind: str, tmp_path: Path) -> None:
    """Two stores never have the same one, and a restored backup begins another."""
    (tmp_path / "other").mkdir()
    with a_store(kind, tmp_path) as store, a_store(kind, tmp_path / "other") as other:
        life = store.change_feed("default").generation
        assert life
        assert other.change_feed("default").generation != life
        keep(store)
        assert store.change_feed("default").generation == life
        if kind == "sqlite":
            store.backup(tmp_path / "copy.db")
            store.restore_backup(tmp_path / "copy.db")
            assert store.change_feed("default").generation != life
            with a_store(kind, tmp_path) as again:
                assert again.change_feed("default").generation == store.change_feed("default").generation


def test_uses_that_are_not_written_down_yet_are_told(tmp_path: Path) -> None:
    """And are written down by that, for others to see."""
    with a_store("sqlite", tmp_path) as store, a_store("sqlite", tmp_path) as other:
        keep(store, id="a")
        with clock.override(FrozenClock(9)):
            store.record_access(["a"], ADA)
        assert store.change_feed("default").access == {"a": Access(count=1, last=9)}
        assert other.change_feed("default", after=99, used_since=9).access == {"a": Access(count=1, last=9)}
    with a_store("sqlite", tmp_path, read_only=True) as reader:
        assert reader.change_feed("default").access == {"a": Access(count=1, last=9)}


def test_the_changes_of_one_namespace_are_found_without_those_of_others(tmp_path: Path) -> None:
    """The log is not walked: an index leads to them."""
    statements = (
        "SELECT seq FROM log WHERE namespace = 'a' AND seq > 5 ORDER BY seq LIMIT 3",
        "SELECT no FROM log WHERE op IN ('stale', 'current', 'erase') AND no = 5 ORDER BY seq",
        "SELECT no FROM access WHERE last >= 5",
    )
    with a_store("sqlite", tmp_path) as store, store._db.read_transaction() as db:
        for statement, index in zip(
            statements, ("log_by_namespace", "log_flips", "access_by_last"), strict=True
        ):
            plan = " ".join(row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}"))
            assert index in plan
            assert "SCAN" not in plan
