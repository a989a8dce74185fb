"""Does a store recall the right entries, and only those it may?"""

from __future__ import annotations

from typing import Any

import pytest

from omoide import clock
from omoide.core.recalling import RecallRequest
from omoide.stores.protocols import Store
from omoide.testing import FrozenClock
from omoide.testing.suite.offered import Offered, keep, recall

UNRELATED = ["The bakery opens at six.", "Paul plays the trombone.", "Grass is green in May."]

QUESTIONS = [
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


class Recalling(Offered):
    """Asking."""

    async def test_nothing_to_recall_is_no_error(self, store: Store) -> None:
        """An empty store answers with the request and no entries."""
        request = RecallRequest(agent_id="ada", query="anything", metadata={"unknown": "key"})
        result = await store.recall(request)
        assert (result.request, result.entries, result.hits) == (request, (), ())

    async def test_what_is_recalled_is_what_is_kept(self, store: Store) -> None:
        """Entries come back as they are stored, each with its rank."""
        kept = [(await keep(store, text, id=f"e{at}")).entry for at, text in enumerate(UNRELATED)]
        result = await store.recall(RecallRequest(agent_id="ada", query="trombone"))
        assert sorted(entry.id for entry in result.entries) == ["e0", "e1", "e2"]
        assert all(entry in kept for entry in result.entries)
        assert [hit.entry for hit in result.hits] == list(result.entries)
        assert [hit.rank for hit in result.hits] == [1, 2, 3]

    async def test_no_word_needs_to_match(self, store: Store) -> None:
        """A question about the preferred timezone finds that the user prefers Chicago time."""
        await keep(store, "User prefers Chicago time", id="zone")
        assert await recall(store, "preferred timezone") == ["zone"]
        assert await recall(store, "hello") == ["zone"]

    async def test_what_answers_best_comes_first(self, store: Store) -> None:
        """An older entry about the question comes before newer ones about other things."""
        await keep(store, "Maria moved to Lisbon in spring.", id="move")
        for at, text in enumerate(UNRELATED):
            await keep(store, text, id=f"e{at}")
        assert (await recall(store, "When did Maria move to Lisbon?"))[0] == "move"
        assert await recall(store, "Lisbon", limit=1) == ["move"]

    async def test_among_equals_the_newest_comes_first(self, store: Store) -> None:
        """Where nothing tells entries apart, the one written last leads."""
        with clock.using(FrozenClock(1_000)):
            for name in "abcd":
                await keep(store, "The same words.", id=name)
        assert await recall(store, "nothing of that") == ["d", "c", "b", "a"]
        assert await recall(store, "nothing of that", limit=2) == ["d", "c"]

    async def test_a_recall_gives_no_more_than_its_limit(self, store: Store) -> None:
        """The limit counts after the scope was applied; five is what is given unless asked otherwise."""
        for at in range(12):
            await keep(store, f"Tea number {at}.", id=f"ada-{at}")
            await keep(store, f"Tea number {at}.", id=f"bob-{at}", agent_id="bob")
        assert len(await recall(store, "tea")) == 5
        assert len(await recall(store, "tea", limit=7)) == 7
        assert len(await recall(store, "tea", limit=100)) == 12
        assert all(id.startswith("ada-") for id in await recall(store, "tea", limit=100))

    async def test_an_agent_recalls_across_its_sessions(self, store: Store) -> None:
        """Scope agent sees all of the agent's entries, whichever session is named."""
        await keep(store, id="s1", session_id="s1")
        await keep(store, id="s2", session_id="s2")
        await keep(store, id="none")
        await keep(store, id="bobs", agent_id="bob", session_id="s1")
        everything = ["none", "s1", "s2"]
        assert sorted(await recall(store)) == everything
        assert sorted(await recall(store, session_id="s1")) == everything

    async def test_a_session_recalls_its_own_entries_only(self, store: Store) -> None:
        """Scope session takes exactly the session named; without one it matches nothing at all."""
        await keep(store, id="s1", session_id="s1")
        await keep(store, id="s2", session_id="s2")
        await keep(store, id="none")
        assert await recall(store, scope="session", session_id="s1") == ["s1"]
        assert await recall(store, scope="session", session_id="s3") == []
        assert await recall(store, scope="session") == []

    async def test_a_project_and_a_namespace_can_be_asked_as_a_whole(self, store: Store) -> None:
        """Then the entries of every agent in them are meant, and of no other project or namespace."""
        await keep(store, id="a", project_id="p")
        await keep(store, id="b", project_id="p", agent_id="bob")
        await keep(store, id="c", project_id="q")
        await keep(store, id="d", project_id="p", namespace="elsewhere")
        assert sorted(await recall(store, scope="project", project_id="p")) == ["a", "b"]
        assert sorted(await recall(store, scope="namespace")) == ["a", "b", "c"]
        assert await recall(store, scope="namespace", namespace="elsewhere") == ["d"]
        assert await recall(store, project_id="p") == ["a"]

    async def test_what_has_expired_is_not_recalled(self, store: Store) -> None:
        """An entry counts until the moment it expires, judged at the moment of asking."""
        await keep(store, id="brief", expires_at=2_000, created_at=1_000)
        await keep(store, id="lasting", created_at=1_000)
        assert sorted(await recall(store, at=1_999)) == ["brief", "lasting"]
        assert await recall(store, at=2_000) == ["lasting"]
        assert sorted(await recall(store, at=2_000, filter={"include_expired": True})) == ["brief", "lasting"]

    async def test_what_was_replaced_is_not_recalled(self, store: Store) -> None:
        """Only who asks for superseded entries sees them."""
        await keep(store, "Tea.", id="old")
        await keep(store, "Coffee.", id="new", supersedes="old")
        assert await recall(store, "tea") == ["new"]
        assert sorted(await recall(store, "tea", filter={"include_superseded": True})) == ["new", "old"]

    async def test_new_words_replace_the_old_ones(self, store: Store) -> None:
        """A changed entry is found by what it says now and not by what it said."""
        await keep(store, "A harbour in Valparaíso.", id="b")
        await keep(store, "Valparaíso.", id="a")
        assert (await recall(store, "Valparaíso"))[0] == "a"
        await keep(store, "Ljubljana.", id="a")
        assert (await recall(store, "Ljubljana"))[0] == "a"
        assert (await recall(store, "Valparaíso"))[0] == "b"

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
        await keep(store, id="fact", type="fact", tags=["x", "y"], confidence=0.4, created_at=10)
        await keep(store, id="arch", type="architectural_decision", tags=["x"], created_at=50, occurred_at=20)
        await keep(store, id="plain", confidence=0.5, created_at=30)
        await keep(store, id="decision", type="decision", tags=["y"], confidence=0.5, created_at=40)
        assert sorted(await recall(store, filter=filter)) == passing
        assert len(await recall(store, filter=filter, limit=1)) == min(1, len(passing))

    @pytest.mark.parametrize(
        "query",
        QUESTIONS,
        ids=lambda query: repr(query[:12]),
    )
    async def test_any_text_is_a_question(self, store: Store, query: str) -> None:
        """Operators, quotes and symbols are words like others, and never reach a query language."""
        await keep(store, "Plain words.", id="a")
        assert await recall(store, query) == ["a"]
