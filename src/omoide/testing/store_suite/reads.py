"""Conformance tests of reads: get, query, recall, statistics, access counts."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from omoide import clock
from omoide.core.entry import RecallRequest, Scope
from omoide.errors import Invalid, NotFound
from omoide.stores.protocols import (
    Store,
    SupportsAccess,
    SupportsDocuments,
    SupportsErase,
    SupportsGet,
    SupportsLinks,
    SupportsOwners,
    SupportsQuery,
    SupportsSupersede,
)
from omoide.stores.records import Access, Document, Link, Owner, Query
from omoide.testing import FrozenClock
from omoide.testing.store_suite.base import (
    ADA,
    BOB,
    ELSEWHERE,
    FullStore,
    StoreFixtures,
    query_ids,
    recall_ids,
    write_entry,
)

UNRELATED = ["The bakery opens at six.", "Paul plays the trombone.", "Grass is green in May."]

HOSTILE_QUERIES = [
    '"',
    "'; DROP TABLE entries; --",
    "a AND (b OR",
    "NEAR(x, 5)",
    "col:x",
    "*",
    "^x",
    "-x",
    "%",
    "🫖",
    "a" * 3_000,
    "the of and",
    "\u200b?",
    "ﷺ " * 50,
    "SELECT * FROM entries WHERE 1=1",
    "{}",
    "\\",
]


class ReadSuite(StoreFixtures):
    """Getting, querying and recalling entries; statistics and access counts."""

    # Get and query

    async def test_an_entry_is_found_by_its_id(self, store: Store) -> None:
        """The same id always gives the entry as it is kept now, superseded or not."""
        full = self.require(store, SupportsGet)
        await write_entry(full, "Tea.", id="a")
        second = (await write_entry(full, "Coffee.", id="a")).entry
        assert await full.get("a", ADA) == second
        await write_entry(full, "Cocoa.", id="b", supersedes="a")
        assert (await full.get("a", ADA)).superseded_by == "b"

    @pytest.mark.parametrize("field", ["user_id", "agent_id", "session_id", "project_id", "namespace"])
    async def test_an_id_of_another_scope_is_not_there(self, store: Store, field: str) -> None:
        """Another scope gets the same error as for an unknown id."""
        full = self.require(store, SupportsGet)
        here: dict[str, Any] = {"agent_id": "a", "session_id": "s", "project_id": "p", "namespace": "n"}
        here["user_id"] = "u"
        stored = (await write_entry(full, id="x", **here)).entry
        assert await full.get("x", Scope(**here)) == stored
        messages = []
        for id in ("x", "nobody's"):
            with pytest.raises(NotFound) as caught:
                await full.get(id, Scope(**{**here, field: "other"}))
            messages.append(str(caught.value).replace(repr(id), "…"))
        assert messages[0] == messages[1]

    async def test_an_entry_can_be_seen_as_it_was(self, store: Store) -> None:
        """Each moment shows the last version up to then; before the first there is none."""
        full = self.require(store, SupportsGet)
        with clock.override(FrozenClock(1_000)) as time:
            versions = [(await write_entry(full, "One.", id="a")).entry]
            for content in ("Two.", "Three."):
                time.advance(100)
                versions.append((await write_entry(full, content, id="a")).entry)
            for moment, version in ((1_000, 0), (1_099, 0), (1_100, 1), (1_200, 2), (9_999, 2)):
                assert await full.get("a", ADA, as_of=moment) == versions[version]
            with pytest.raises(NotFound):
                await full.get("a", ADA, as_of=999)

    async def test_a_query_lists_the_newest_first(self, store: Store) -> None:
        """By when it happened, or else was created; among equals the one written later leads."""
        full = self.require(store, SupportsQuery)
        await write_entry(full, id="late", created_at=30)
        await write_entry(full, id="told late", created_at=40, occurred_at=10)
        await write_entry(full, id="twin 1", created_at=20)
        await write_entry(full, id="twin 2", created_at=20)
        assert await query_ids(full) == ["late", "twin 2", "twin 1", "told late"]
        assert await query_ids(full, limit=2) == ["late", "twin 2"]

    async def test_a_query_sees_its_scope_and_its_filter(self, store: Store) -> None:
        """Only entries of the scope that the filter lets pass are found."""
        full = self.require(store, SupportsQuery)
        await write_entry(full, id="a", type="bug", tags=["x"], created_at=10)
        await write_entry(full, id="b", type="error", confidence=0.2, session_id="s", created_at=20)
        await write_entry(full, id="c", agent_id="bob", created_at=30)
        await write_entry(full, id="d", namespace="elsewhere", created_at=40)
        assert await query_ids(full) == ["b", "a"]
        assert await query_ids(full, BOB) == ["c"]
        assert await query_ids(full, ELSEWHERE) == ["d"]
        assert await query_ids(full, Scope()) == ["c", "b", "a"]
        assert await query_ids(full, Scope(session_id="s")) == ["b"]
        assert await query_ids(full, filter={"types": ["error"]}) == ["b", "a"]
        assert await query_ids(full, filter={"types": ["bug"]}) == ["a"]
        assert await query_ids(full, filter={"min_confidence": 0.5}) == ["a"]
        assert await query_ids(full, filter={"tags": ["x"]}) == ["a"]
        assert await query_ids(full, filter={"tags_any": ["x", "y"]}) == ["a"]
        assert await query_ids(full, filter={"since": 15}) == ["b"]

    async def test_a_query_shows_what_is_superseded_or_expired_when_asked(self, store: Store) -> None:
        """Both are left out otherwise; expiry is judged at the moment of asking."""
        full = self.require(store, SupportsQuery)
        await write_entry(full, id="old", created_at=10)
        await write_entry(full, id="new", supersedes="old", created_at=20)
        await write_entry(full, id="brief", expires_at=1_000, created_at=30)
        assert await query_ids(full, at=1_000) == ["new"]
        assert await query_ids(full, at=999) == ["brief", "new"]
        assert await query_ids(full, filter={"include_superseded": True}) == ["new", "old"]
        assert await query_ids(full, filter={"include_expired": True}) == ["brief", "new"]

    async def test_a_query_can_ask_for_an_earlier_state(self, store: Store) -> None:
        """A query as of an earlier time shows entries as they were then."""
        full = self.require(store, SupportsQuery)
        with clock.override(FrozenClock(1_000)) as time:
            old = (await write_entry(full, "Tea.", id="old")).entry
            time.advance(100)
            await write_entry(full, "Green tea.", id="old")
            await write_entry(full, "Coffee.", id="new", supersedes="old")
            assert await query_ids(full) == ["new"]
            assert await query_ids(full, as_of=999) == []
            page = await full.query(Query(scope=ADA, as_of=1_099))
            assert page.entries == (old,)

    async def test_pages_make_up_the_whole(self, store: Store) -> None:
        """Page after page gives every entry once, in order, and the last page says that it is the last."""
        full = self.require(store, SupportsQuery)
        for at in range(11):
            await write_entry(full, id=f"e{at}", created_at=100 + at // 3)
        expected = await query_ids(full, limit=100)
        assert len(expected) == 11
        for size in (1, 2, 3, 10, 11, 12):
            assert await _collect_pages(full, size) == expected

    async def test_pages_hold_while_others_write(self, store: Store) -> None:
        """Entries that are there throughout are neither missed nor repeated."""
        full = self.require(store, SupportsQuery)
        names = [f"e{at}" for at in range(9)]
        for at, name in enumerate(names):
            await write_entry(full, id=name, created_at=100 + at)
        ids = await _collect_pages(full, 2, concurrent_writes=True)
        assert [id for id in ids if id in names] == names[::-1]

    async def test_a_cursor_that_was_made_up_is_refused(self, store: Store) -> None:
        """It is bad input, with a remedy, and not a failure of the store."""
        full = self.require(store, SupportsQuery)
        await write_entry(full)
        for cursor in ("x", "", "1' OR '1'='1", "AAAA", "{}", "[1, 2"):
            with pytest.raises(Invalid):
                await full.query(Query(scope=ADA, cursor=cursor))

    # Recall

    async def test_nothing_to_recall_is_no_error(self, store: Store) -> None:
        """An empty store answers with the request and no entries."""
        request = RecallRequest(agent_id="ada", query="anything", metadata={"unknown": "key"})
        result = await store.recall(request)
        assert (result.request, result.entries, result.hits) == (request, (), ())

    async def test_what_is_recalled_is_what_is_kept(self, store: Store) -> None:
        """Entries come back as they are stored, each with its rank."""
        stored = [(await write_entry(store, text, id=f"e{at}")).entry for at, text in enumerate(UNRELATED)]
        result = await store.recall(RecallRequest(agent_id="ada", query="trombone"))
        assert sorted(entry.id for entry in result.entries) == ["e0", "e1", "e2"]
        assert all(entry in stored for entry in result.entries)
        assert [hit.entry for hit in result.hits] == list(result.entries)
        assert [hit.rank for hit in result.hits] == [1, 2, 3]

    async def test_no_word_needs_to_match(self, store: Store) -> None:
        """A question about the preferred timezone finds that the user prefers Chicago time."""
        await write_entry(store, "User prefers Chicago time", id="zone")
        assert await recall_ids(store, "preferred timezone") == ["zone"]
        assert await recall_ids(store, "hello") == ["zone"]

    async def test_what_answers_best_comes_first(self, store: Store) -> None:
        """An older entry about the question comes before newer ones about other things."""
        await write_entry(store, "Maria moved to Lisbon in spring.", id="move")
        for at, text in enumerate(UNRELATED):
            await write_entry(store, text, id=f"e{at}")
        assert (await recall_ids(store, "When did Maria move to Lisbon?"))[0] == "move"
        assert await recall_ids(store, "Lisbon", limit=1) == ["move"]

    async def test_among_equals_the_newest_comes_first(self, store: Store) -> None:
        """Where nothing tells entries apart, the one written last leads."""
        with clock.override(FrozenClock(1_000)):
            for name in "abcd":
                await write_entry(store, "The same words.", id=name)
        assert await recall_ids(store, "nothing of that") == ["d", "c", "b", "a"]
        assert await recall_ids(store, "nothing of that", limit=2) == ["d", "c"]

    async def test_a_recall_gives_no_more_than_its_limit(self, store: Store) -> None:
        """The limit applies after the scope; it defaults to five."""
        for at in range(12):
            await write_entry(store, f"Tea number {at}.", id=f"ada-{at}")
            await write_entry(store, f"Tea number {at}.", id=f"bob-{at}", agent_id="bob")
        assert len(await recall_ids(store, "tea")) == 5
        assert len(await recall_ids(store, "tea", limit=7)) == 7
        assert len(await recall_ids(store, "tea", limit=100)) == 12
        assert all(id.startswith("ada-") for id in await recall_ids(store, "tea", limit=100))

    async def test_an_agent_recalls_across_its_sessions(self, store: Store) -> None:
        """Scope agent sees all of the agent's entries, whichever session is named."""
        await write_entry(store, id="s1", session_id="s1")
        await write_entry(store, id="s2", session_id="s2")
        await write_entry(store, id="none")
        await write_entry(store, id="bobs", agent_id="bob", session_id="s1")
        everything = ["none", "s1", "s2"]
        assert sorted(await recall_ids(store)) == everything
        assert sorted(await recall_ids(store, session_id="s1")) == everything

    async def test_a_session_recalls_its_own_entries_only(self, store: Store) -> None:
        """Scope session takes exactly the session named; without one it matches nothing at all."""
        await write_entry(store, id="s1", session_id="s1")
        await write_entry(store, id="s2", session_id="s2")
        await write_entry(store, id="none")
        assert await recall_ids(store, scope="session", session_id="s1") == ["s1"]
        assert await recall_ids(store, scope="session", session_id="s3") == []
        assert await recall_ids(store, scope="session") == []

    async def test_a_project_and_a_namespace_can_be_asked_as_a_whole(self, store: Store) -> None:
        """Then the entries of every agent in them are meant, and of no other project or namespace."""
        await write_entry(store, id="a", project_id="p")
        await write_entry(store, id="b", project_id="p", agent_id="bob")
        await write_entry(store, id="c", project_id="q")
        await write_entry(store, id="d", project_id="p", namespace="elsewhere")
        assert sorted(await recall_ids(store, scope="project", project_id="p")) == ["a", "b"]
        assert sorted(await recall_ids(store, scope="namespace")) == ["a", "b", "c"]
        assert await recall_ids(store, scope="namespace", namespace="elsewhere") == ["d"]
        assert await recall_ids(store, project_id="p") == ["a"]

    async def test_no_recall_crosses_from_one_user_to_another(self, store: Store) -> None:
        """Scope user takes all agents; a user narrows every other scope, too, and none opens them all."""
        for user in ("ann", "bob", None):
            for agent in ("ada", "eve"):
                owner = {"user_id": user, "agent_id": agent, "session_id": "s", "project_id": "p"}
                await write_entry(store, id=f"{user}-{agent}", **owner)
        both = ["ann-ada", "ann-eve"]
        assert sorted(await recall_ids(store, scope="user", user_id="ann", limit=9)) == both
        assert await recall_ids(store, user_id="ann") == ["ann-ada"]
        assert await recall_ids(store, scope="session", session_id="s", user_id="ann") == ["ann-ada"]
        assert sorted(await recall_ids(store, scope="project", project_id="p", user_id="ann")) == both
        assert sorted(await recall_ids(store, scope="namespace", user_id="ann")) == both
        assert await recall_ids(store, scope="user", user_id="nobody") == []
        assert len(await recall_ids(store, scope="namespace", limit=9)) == 6
        assert sorted(await recall_ids(store, limit=9)) == ["None-ada", "ann-ada", "bob-ada"]
        request = RecallRequest.for_scope(Scope(user_id="bob"), "anything")
        found = (await store.recall(request)).entries
        assert sorted(entry.id for entry in found) == ["bob-ada", "bob-eve"]

    async def test_what_has_expired_is_not_recalled(self, store: Store) -> None:
        """An entry is live until it expires, judged at the time of the request."""
        await write_entry(store, id="brief", expires_at=2_000, created_at=1_000)
        await write_entry(store, id="lasting", created_at=1_000)
        assert sorted(await recall_ids(store, at=1_999)) == ["brief", "lasting"]
        assert await recall_ids(store, at=2_000) == ["lasting"]
        assert sorted(await recall_ids(store, at=2_000, filter={"include_expired": True})) == [
            "brief",
            "lasting",
        ]

    async def test_what_was_replaced_is_not_recalled(self, store: Store) -> None:
        """Superseded entries are recalled only with `include_superseded`."""
        await write_entry(store, "Tea.", id="old")
        await write_entry(store, "Coffee.", id="new", supersedes="old")
        assert await recall_ids(store, "tea") == ["new"]
        assert sorted(await recall_ids(store, "tea", filter={"include_superseded": True})) == ["new", "old"]

    async def test_new_words_replace_the_old_ones(self, store: Store) -> None:
        """A changed entry is found by its current content and not by its earlier one."""
        await write_entry(store, "A harbour in Valparaíso.", id="b")
        await write_entry(store, "Valparaíso.", id="a")
        assert (await recall_ids(store, "Valparaíso"))[0] == "a"
        await write_entry(store, "Ljubljana.", id="a")
        assert (await recall_ids(store, "Ljubljana"))[0] == "a"
        assert (await recall_ids(store, "Valparaíso"))[0] == "b"

    @pytest.mark.parametrize(
        ("filter", "passing"),
        [
            ({"types": ["decision"]}, ["arch", "decision"]),
            ({"types": ["architectural_decision"]}, ["arch"]),
            ({"types": ["fact", "architectural_decision"]}, ["arch", "fact"]),
            ({"types": ["memory_item"]}, ["arch", "decision", "fact", "plain"]),
            ({"tags": ["x"]}, ["arch", "fact"]),
            ({"tags": ["x", "y"]}, ["fact"]),
            ({"tags_any": ["x", "y"]}, ["arch", "decision", "fact"]),
            ({"min_confidence": 0.5}, ["arch", "decision", "plain"]),
            ({"since": 30}, ["decision", "plain"]),
            ({"until": 30}, ["arch", "fact", "plain"]),
            ({"since": 30, "until": 30}, ["plain"]),
            ({"types": ["decision"], "tags": ["x"], "min_confidence": 0.9}, ["arch"]),
            ({"tags": ["unheard of"]}, []),
        ],
        ids=str,
    )
    async def test_a_filter_leaves_out_what_is_not_meant(
        self, store: Store, filter: dict[str, Any], passing: list[str]
    ) -> None:
        """Types with those that refine them, tags, confidence and time; a limit counts what passed."""
        await write_entry(store, id="fact", type="fact", tags=["x", "y"], confidence=0.4, created_at=10)
        await write_entry(
            store, id="arch", type="architectural_decision", tags=["x"], created_at=50, occurred_at=20
        )
        await write_entry(store, id="plain", confidence=0.5, created_at=30)
        await write_entry(store, id="decision", type="decision", tags=["y"], confidence=0.5, created_at=40)
        assert sorted(await recall_ids(store, filter=filter)) == passing
        assert len(await recall_ids(store, filter=filter, limit=1)) == min(1, len(passing))

    @pytest.mark.parametrize("query", HOSTILE_QUERIES, ids=lambda query: repr(query[:12]))
    async def test_any_text_is_a_question(self, store: Store, query: str) -> None:
        """Operators, quotes and symbols are words like others, and never reach a query language."""
        await write_entry(store, "Plain words.", id="a")
        assert await recall_ids(store, query) == ["a"]

    # Statistics and access counts

    async def test_figures_count_what_the_scope_holds(self, store: Store) -> None:
        """Entries, live and not, by type; other scopes do not count."""
        full = self.require(store, SupportsQuery, SupportsSupersede, SupportsLinks)
        with clock.override(FrozenClock(1_000)):
            await write_entry(full, "One.", id="a", type="fact")
            await write_entry(full, "Two.", id="a", type="fact")
            await write_entry(full, id="b", type="bug", session_id="s")
            await write_entry(full, id="c", expires_at=500)
            await write_entry(full, id="d", type="fact")
            await full.supersede("d", ADA)
            await write_entry(full, id="e", agent_id="bob")
            await write_entry(full, id="f", namespace="elsewhere")
            await full.link(Link(source="a", relation="refines", target="b"), ADA)
            stats = await full.stats(ADA)
            assert (stats.entries, stats.live, stats.superseded, stats.expired) == (4, 2, 1, 1)
            assert (stats.versions, stats.links) == (6, 1)
            assert (await full.stats(Scope(session_id="s"))).entries == 1
            assert (await full.stats(BOB)).entries == 1
            assert (await full.stats(Scope(namespace="nowhere"))).entries == 0

    async def test_figures_name_the_types_of_what_is_live(self, store: Store) -> None:
        """An entry without a type is a plain memory item."""
        full = self.require(store, SupportsQuery)
        await write_entry(full, id="a", type="fact")
        await write_entry(full, id="b", type="fact")
        await write_entry(full, id="c")
        assert (await full.stats(ADA)).by_type == {"fact": 2, "memory_item": 1}

    async def test_who_has_entries_is_told(self, store: Store) -> None:
        """Users, agents and projects of the scope, with all and live entries; others do not count."""
        full = self.require(store, SupportsOwners, SupportsSupersede, SupportsErase)
        assert await full.owners(Scope()) == []
        with clock.override(FrozenClock(1_000)):
            await write_entry(full, id="a")
            await write_entry(full, id="b", session_id="s")
            await write_entry(full, id="c", expires_at=500)
            await write_entry(full, id="d", project_id="shop", user_id="u")
            await write_entry(full, id="e", agent_id="bob", user_id="u")
            await write_entry(full, id="f", namespace="elsewhere")
            await write_entry(full, id="g", agent_id="gone")
            await full.supersede("b", ADA)
            await full.erase(Scope(agent_id="gone"))
            mine = Owner(namespace="default", agent_id="ada", entries=3, live=1)
            shop = mine.replace(user_id="u", project_id="shop", entries=1)
            bobs = mine.replace(user_id="u", agent_id="bob", entries=1)
            assert await full.owners(Scope()) == [mine, shop, bobs]
            assert await full.owners(ADA) == [mine, shop]
            assert await full.owners(Scope(user_id="u")) == [shop, bobs]
            assert await full.owners(Scope(session_id="s")) == [mine.replace(entries=1, live=0)]
            assert await full.owners(Scope(agent_id="nobody")) == []

    async def test_all_namespaces_can_be_gone_through(self, store: Store) -> None:
        """Those with an entry or a document, in order, with the kinds of their documents; no others."""
        full = self.require(store, SupportsDocuments, SupportsErase)
        assert await full.namespaces() == []
        await write_entry(full, namespace="b")
        await write_entry(full, namespace="a")
        await write_entry(full, namespace="a", agent_id="bob")
        await write_entry(full, namespace="Ä gone")
        for kind, id in (("thread", "x"), ("session", "x"), ("session", "y")):
            await full.save(Document(kind=kind, id=id, namespace="c"))
        await full.erase(Scope(namespace="Ä gone"))
        assert await full.namespaces() == ["a", "b", "c"]
        assert [await full.kinds(name) for name in ("a", "c", "d")] == [[], ["session", "thread"], []]

    async def test_uses_are_counted(self, store: Store) -> None:
        """The count and the time of the last access are kept beside the entry, which does not change."""
        full = self.require(store, SupportsAccess)
        stored = (await write_entry(full, id="a")).entry
        assert await full.access("a", ADA) == Access()
        with clock.override(FrozenClock(2_000)) as time:
            await full.record_access(["a"], ADA)
            time.advance(500)
            await full.record_access(["a", "nobody's"], ADA)
        assert await full.access("a", ADA) == Access(count=2, last=2_500)
        assert await full.list_entries(ADA) == [stored]

    async def test_uses_count_for_those_who_hold_the_entry(self, store: Store) -> None:
        """From another scope nothing is counted and nothing can be read."""
        full = self.require(store, SupportsAccess)
        await write_entry(full, id="a")
        for scope in (BOB, ELSEWHERE):
            await full.record_access(["a"], scope)
            with pytest.raises(NotFound):
                await full.access("a", scope)
        assert await full.access("a", ADA) == Access()


async def _collect_pages(store: FullStore, size: int, *, concurrent_writes: bool = False) -> list[str]:
    """Return the ids of all pages; with `concurrent_writes`, entries are added at both ends in between."""
    ids: list[str] = []
    cursor = None
    for turn in count():
        page = await store.query(Query(scope=ADA, limit=size, cursor=cursor))
        assert len(page.entries) <= size
        ids += [entry.id for entry in page.entries]
        cursor = page.cursor
        if cursor is None:
            return ids
        if concurrent_writes and turn < 3:
            await write_entry(store, id=f"new {turn}", created_at=200 + turn)
            await write_entry(store, id=f"old {turn}", created_at=10 + turn)
    raise AssertionError("pages never end")
