"""Does a store find entries by id and by what is known of them, now and as of an earlier moment?"""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from omoide import clock
from omoide.core.scope import Scope
from omoide.errors import Invalid, NotFound
from omoide.stores.protocols import Gets, Queries, Store
from omoide.stores.records import Query
from omoide.testing import FrozenClock
from omoide.testing.suite.offered import ADA, BOB, ELSEWHERE, Full, Offered, found, keep


class Finding(Offered):
    """Getting and querying."""

    async def test_an_entry_is_found_by_its_id(self, store: Store) -> None:
        """The same id always gives the entry as it is kept now, superseded or not."""
        full = self.offering(store, Gets)
        await keep(full, "Tea.", id="a")
        second = (await keep(full, "Coffee.", id="a")).entry
        assert await full.get("a", ADA) == second
        await keep(full, "Cocoa.", id="b", supersedes="a")
        assert (await full.get("a", ADA)).superseded_by == "b"

    @pytest.mark.parametrize("field", ["agent_id", "session_id", "project_id", "namespace"])
    async def test_an_id_of_another_scope_is_not_there(self, store: Store, field: str) -> None:
        """Whoever asks from elsewhere learns no more than for an id that nobody has."""
        full = self.offering(store, Gets)
        here: dict[str, Any] = {"agent_id": "a", "session_id": "s", "project_id": "p", "namespace": "n"}
        kept = (await keep(full, id="x", **here)).entry
        assert await full.get("x", Scope(**here)) == kept
        said = []
        for id in ("x", "nobody's"):
            with pytest.raises(NotFound) as caught:
                await full.get(id, Scope(**{**here, field: "other"}))
            said.append(str(caught.value).replace(repr(id), "…"))
        assert said[0] == said[1]

    async def test_an_entry_can_be_seen_as_it_was(self, store: Store) -> None:
        """Each moment shows the last version up to then; before the first there is none."""
        full = self.offering(store, Gets)
        with clock.using(FrozenClock(1_000)) as time:
            versions = [(await keep(full, "One.", id="a")).entry]
            for content in ("Two.", "Three."):
                time.advance(100)
                versions.append((await keep(full, content, id="a")).entry)
            for moment, version in ((1_000, 0), (1_099, 0), (1_100, 1), (1_200, 2), (9_999, 2)):
                assert await full.get("a", ADA, as_of=moment) == versions[version]
            with pytest.raises(NotFound):
                await full.get("a", ADA, as_of=999)

    async def test_a_query_lists_the_newest_first(self, store: Store) -> None:
        """By when it happened, or else was created; among equals the one written later leads."""
        full = self.offering(store, Queries)
        await keep(full, id="late", created_at=30)
        await keep(full, id="told late", created_at=40, occurred_at=10)
        await keep(full, id="twin 1", created_at=20)
        await keep(full, id="twin 2", created_at=20)
        assert await found(full) == ["late", "twin 2", "twin 1", "told late"]
        assert await found(full, limit=2) == ["late", "twin 2"]

    async def test_a_query_sees_its_scope_and_its_filter(self, store: Store) -> None:
        """Only entries of the scope that the filter lets pass are found."""
        full = self.offering(store, Queries)
        await keep(full, id="a", type="bug", tags=["x"], created_at=10)
        await keep(full, id="b", type="error", confidence=0.2, session_id="s", created_at=20)
        await keep(full, id="c", agent_id="bob", created_at=30)
        await keep(full, id="d", namespace="elsewhere", created_at=40)
        assert await found(full) == ["b", "a"]
        assert await found(full, BOB) == ["c"]
        assert await found(full, ELSEWHERE) == ["d"]
        assert await found(full, Scope()) == ["c", "b", "a"]
        assert await found(full, Scope(session_id="s")) == ["b"]
        assert await found(full, filter={"types": ["error"]}) == ["b", "a"]
        assert await found(full, filter={"types": ["bug"]}) == ["a"]
        assert await found(full, filter={"min_confidence": 0.5}) == ["a"]
        assert await found(full, filter={"tags": ["x"]}) == ["a"]
        assert await found(full, filter={"tags_any": ["x", "y"]}) == ["a"]
        assert await found(full, filter={"since": 15}) == ["b"]

    async def test_a_query_shows_what_is_superseded_or_expired_when_asked(self, store: Store) -> None:
        """Both are left out otherwise; expiry is judged at the moment of asking."""
        full = self.offering(store, Queries)
        await keep(full, id="old", created_at=10)
        await keep(full, id="new", supersedes="old", created_at=20)
        await keep(full, id="brief", expires_at=1_000, created_at=30)
        assert await found(full, at=1_000) == ["new"]
        assert await found(full, at=999) == ["brief", "new"]
        assert await found(full, filter={"include_superseded": True}) == ["new", "old"]
        assert await found(full, filter={"include_expired": True}) == ["brief", "new"]

    async def test_a_query_can_ask_for_an_earlier_state(self, store: Store) -> None:
        """What was written, changed or superseded later is seen as it was then."""
        full = self.offering(store, Queries)
        with clock.using(FrozenClock(1_000)) as time:
            old = (await keep(full, "Tea.", id="old")).entry
            time.advance(100)
            await keep(full, "Green tea.", id="old")
            await keep(full, "Coffee.", id="new", supersedes="old")
            assert await found(full) == ["new"]
            assert await found(full, as_of=999) == []
            page = await full.query(Query(scope=ADA, as_of=1_099))
            assert page.entries == (old,)

    async def test_pages_make_up_the_whole(self, store: Store) -> None:
        """Page after page gives every entry once, in order, and the last page says that it is the last."""
        full = self.offering(store, Queries)
        for at in range(11):
            await keep(full, id=f"e{at}", created_at=100 + at // 3)
        whole = await found(full, limit=100)
        assert len(whole) == 11
        for size in (1, 2, 3, 10, 11, 12):
            assert await _paged(full, size) == whole

    async def test_pages_hold_while_others_write(self, store: Store) -> None:
        """Entries that are there throughout are neither missed nor repeated."""
        full = self.offering(store, Queries)
        names = [f"e{at}" for at in range(9)]
        for at, name in enumerate(names):
            await keep(full, id=name, created_at=100 + at)
        seen = await _paged(full, 2, disturbed=True)
        assert [id for id in seen if id in names] == names[::-1]

    async def test_a_cursor_that_was_made_up_is_refused(self, store: Store) -> None:
        """It is bad input, with a remedy, and not a failure of the store."""
        full = self.offering(store, Queries)
        await keep(full)
        for cursor in ("x", "", "1' OR '1'='1", "AAAA", "{}", "[1, 2"):
            with pytest.raises(Invalid):
                await full.query(Query(scope=ADA, cursor=cursor))


async def _paged(store: Full, size: int, *, disturbed: bool = False) -> list[str]:
    """The ids page by page; disturbed: with new entries at both ends in between."""
    seen: list[str] = []
    cursor = None
    for turn in count():
        page = await store.query(Query(scope=ADA, limit=size, cursor=cursor))
        assert len(page.entries) <= size
        seen += [entry.id for entry in page.entries]
        cursor = page.cursor
        if cursor is None:
            return seen
        if disturbed and turn < 3:
            await keep(store, id=f"new {turn}", created_at=200 + turn)
            await keep(store, id=f"old {turn}", created_at=10 + turn)
    raise AssertionError("pages never end")
