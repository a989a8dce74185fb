"""Does a store forget and take it back, and know how each entry came to be?"""

from __future__ import annotations

import pytest

from omoide import clock
from omoide.errors import Conflict, Invalid, NotFound
from omoide.stores.protocols import Gets, KeepsHistory, Queries, Store, Supersedes
from omoide.testing import FrozenClock
from omoide.testing.suite.offered import ADA, BOB, ELSEWHERE, Offered, found, keep, listed, recall


class Forgetting(Offered):
    """Superseding, restoring, and history."""

    async def test_what_is_forgotten_stays_and_is_not_recalled(self, store: Store) -> None:
        """It is marked as deleted, with the reason and the time, one revision on."""
        full = self.offering(store, Supersedes)
        with clock.using(FrozenClock(1_000)) as time:
            kept = (await keep(full, "Tea.", id="a")).entry
            time.advance(500)
            forgotten = await full.supersede("a", ADA, reason="moved on")
            assert forgotten == kept.replace(
                superseded_by="deleted", superseded_at=1_500, superseded_reason="moved on", rev=2
            )
            assert await recall(full, "tea") == []
            assert await full.list_entries(ADA) == [forgotten]

    async def test_an_entry_can_be_replaced_by_another_that_exists(self, store: Store) -> None:
        """The older one names its successor; the successor itself is not touched."""
        full = self.offering(store, Supersedes)
        await keep(full, id="old")
        new = (await keep(full, id="new")).entry
        assert (await full.supersede("old", ADA, by="new")).superseded_by == "new"
        assert (await full.list_entries(ADA))[-1] == new
        assert await recall(full) == ["new"]

    async def test_forgetting_twice_is_forgetting_once(self, store: Store) -> None:
        """The second time changes nothing."""
        full = self.offering(store, Supersedes)
        with clock.using(FrozenClock(1_000)) as time:
            await keep(full, id="a")
            once = await full.supersede("a", ADA, reason="first")
            time.advance(10)
            assert await full.supersede("a", ADA, reason="first") == once
            assert await full.list_entries(ADA) == [once]

    async def test_what_was_forgotten_comes_back(self, store: Store) -> None:
        """Restored, it says what it said, is recalled again, and has one more revision."""
        full = self.offering(store, Supersedes)
        kept = (await keep(full, "Tea.", id="a")).entry
        await full.supersede("a", ADA, reason="moved on")
        restored = await full.restore("a", ADA)
        assert restored == kept.replace(rev=3)
        assert await recall(full, "tea") == ["a"]
        assert await full.list_entries(ADA) == [restored]

    async def test_only_what_the_scope_holds_can_be_forgotten_or_restored(self, store: Store) -> None:
        """Ids from elsewhere and ids that nobody has are not found; nothing changes."""
        full = self.offering(store, Supersedes)
        await keep(full, id="a")
        await keep(full, id="b")
        await full.supersede("b", ADA)
        before = await full.list_entries(ADA)
        for scope in (BOB, ELSEWHERE):
            for id in ("a", "b", "nobody's"):
                with pytest.raises(NotFound):
                    await full.supersede(id, scope)
                with pytest.raises(NotFound):
                    await full.restore(id, scope)
        assert await full.list_entries(ADA) == before

    async def test_a_successor_must_be_another_entry_of_the_scope(self, store: Store) -> None:
        """Unknown successors, those of others, and the entry itself are refused."""
        full = self.offering(store, Supersedes)
        kept = (await keep(full, id="a")).entry
        await keep(full, id="bobs", agent_id="bob")
        await keep(full, id="far", namespace="elsewhere")
        for by in ("nobody's", "bobs", "far"):
            with pytest.raises(NotFound):
                await full.supersede("a", ADA, by=by)
        with pytest.raises(Invalid):
            await full.supersede("a", ADA, by="a")
        assert await full.list_entries(ADA) == [kept]

    async def test_forgetting_and_restoring_can_expect_a_revision(self, store: Store) -> None:
        """With a stale one they are refused and change nothing."""
        full = self.offering(store, Supersedes)
        await keep(full, id="a")
        for stale in (0, 2):
            with pytest.raises(Conflict):
                await full.supersede("a", ADA, expected_rev=stale)
        gone = await full.supersede("a", ADA, expected_rev=1)
        with pytest.raises(Conflict):
            await full.restore("a", ADA, expected_rev=1)
        assert await full.list_entries(ADA) == [gone]
        assert (await full.restore("a", ADA, expected_rev=2)).rev == 3

    async def test_forgetting_does_not_change_the_order(self, store: Store) -> None:
        """Neither forgetting nor restoring makes an entry newer than it is."""
        full = self.offering(store, Supersedes, Queries)
        with clock.using(FrozenClock(1_000)):
            for name in "abc":
                await keep(full, id=name)
            await full.supersede("a", ADA)
            await full.restore("a", ADA)
            assert await listed(full) == ["a", "b", "c"]
            assert await found(full) == ["c", "b", "a"]

    async def test_history_tells_every_version_from_the_first(self, store: Store) -> None:
        """Writing, forgetting and restoring each add one, with the moment it began."""
        full = self.offering(store, Supersedes, KeepsHistory)
        with clock.using(FrozenClock(1_000)) as time:
            made = [(await keep(full, "Tea.", id="a")).entry]
            time.advance(10)
            made.append((await keep(full, "Coffee.", id="a")).entry)
            await keep(full, "Coffee.", id="a")
            time.advance(10)
            made.append(await full.supersede("a", ADA, reason="why not"))
            time.advance(10)
            made.append(await full.restore("a", ADA))
            told = await full.history("a", ADA)
        assert [version.entry for version in told] == made
        assert [(version.id, version.rev, version.at) for version in told] == [
            ("a", 1, 1_000),
            ("a", 2, 1_010),
            ("a", 3, 1_020),
            ("a", 4, 1_030),
        ]

    async def test_history_is_told_to_those_who_hold_the_entry(self, store: Store) -> None:
        """Another scope hears what it hears of an id that nobody has."""
        full = self.offering(store, KeepsHistory)
        await keep(full, id="a")
        for scope, id in ((BOB, "a"), (ELSEWHERE, "a"), (ADA, "nobody's")):
            with pytest.raises(NotFound):
                await full.history(id, scope)

    async def test_an_earlier_moment_knows_what_was_not_yet_forgotten(self, store: Store) -> None:
        """As of then an entry is live that is superseded now, and superseded that is restored now."""
        full = self.offering(store, Supersedes, Gets, Queries)
        with clock.using(FrozenClock(1_000)) as time:
            await keep(full, id="a")
            time.advance(100)
            await full.supersede("a", ADA)
            time.advance(100)
            await full.restore("a", ADA)
            states = [(await full.get("a", ADA, as_of=at)).superseded_by for at in (1_000, 1_150, 1_200)]
            assert states == [None, "deleted", None]
            assert await found(full, as_of=1_050) == ["a"]
            assert await found(full, as_of=1_150) == []
