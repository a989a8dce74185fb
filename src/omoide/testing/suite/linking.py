"""Does a store keep links between entries, and find them from both ends?"""

from __future__ import annotations

import pytest

from omoide import clock
from omoide.core.scope import Scope
from omoide.errors import NotFound
from omoide.stores.protocols import Links, Store
from omoide.stores.records import Link
from omoide.testing import FrozenClock
from omoide.testing.suite.offered import ADA, BOB, ELSEWHERE, Full, Offered, keep


class Linking(Offered):
    """Links."""

    async def linked(self, store: Store) -> Full:
        """A store in which a refines b, and c contradicts a."""
        full = self.offering(store, Links)
        for name in "abc":
            await keep(full, id=name, session_id=f"s-{name}")
        with clock.using(FrozenClock(1_000)):
            await full.link(Link(source="a", relation="refines", target="b"), ADA)
            await full.link(Link(source="c", relation="contradicts", target="a"), ADA)
        return full

    async def test_links_are_found_from_both_ends(self, store: Store) -> None:
        """Oldest first, with the moment at which they were made."""
        full = await self.linked(store)
        refines = Link(source="a", relation="refines", target="b", created_at=1_000)
        contradicts = Link(source="c", relation="contradicts", target="a", created_at=1_000)
        assert await full.links("a", ADA) == [refines, contradicts]
        assert await full.links("b", ADA) == [refines]
        assert await full.links("c", ADA) == [contradicts]

    async def test_links_can_be_asked_for_by_relation(self, store: Store) -> None:
        """Only links of that name are given."""
        full = await self.linked(store)
        assert [link.target for link in await full.links("a", ADA, relation="refines")] == ["b"]
        assert await full.links("a", ADA, relation="confirms") == []

    async def test_the_same_link_is_kept_once(self, store: Store) -> None:
        """Linking again is answered with the link there is; the other direction is another link."""
        full = await self.linked(store)
        again = await full.link(Link(source="a", relation="refines", target="b", created_at=9_000), ADA)
        assert again.created_at == 1_000
        assert len(await full.links("b", ADA)) == 1
        await full.link(Link(source="b", relation="refines", target="a"), ADA)
        assert len(await full.links("b", ADA)) == 2

    async def test_a_link_can_be_removed(self, store: Store) -> None:
        """It is gone from both ends; the second time there is nothing to remove."""
        full = await self.linked(store)
        gone = Link(source="a", relation="refines", target="b")
        assert await full.unlink(gone, ADA) is True
        assert await full.unlink(gone, ADA) is False
        assert [link.source for link in await full.links("a", ADA)] == ["c"]
        assert await full.links("b", ADA) == []

    async def test_both_ends_must_lie_in_the_scope(self, store: Store) -> None:
        """Nobody links to what they cannot see."""
        full = await self.linked(store)
        await keep(full, id="bobs", agent_id="bob")
        await keep(full, id="far", namespace="elsewhere")
        for other in ("bobs", "far", "nobody's"):
            for source, target in (("a", other), (other, "a")):
                with pytest.raises(NotFound):
                    await full.link(Link(source=source, relation="refines", target=target), ADA)
        for scope in (BOB, ELSEWHERE, Scope(agent_id="ada", session_id="s-a")):
            with pytest.raises(NotFound):
                await full.link(Link(source="a", relation="confirms", target="b"), scope)
        assert len(await full.links("a", ADA)) == 2

    async def test_links_are_shown_as_far_as_the_scope_holds_them(self, store: Store) -> None:
        """A link whose other end lies outside is not told, nor can it be removed from there."""
        full = await self.linked(store)
        assert await full.links("a", Scope(agent_id="ada", session_id="s-a")) == []
        for scope in (BOB, ELSEWHERE):
            with pytest.raises(NotFound):
                await full.links("a", scope)
        with pytest.raises(NotFound):
            await full.links("nobody's", ADA)
