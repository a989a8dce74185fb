"""Conformance tests of slots: entries with a key, of which one per exact scope is current."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from omoide import clock
from omoide.core.entry import Entry, Filter, RecallRequest, Scope
from omoide.errors import Conflict, OmoideError
from omoide.stores.protocols import (
    Store,
    SupportsBatchWrite,
    SupportsErase,
    SupportsGet,
    SupportsImport,
    SupportsQuery,
    SupportsSupersede,
)
from omoide.stores.records import Query
from omoide.testing import FrozenClock
from omoide.testing.store_suite.base import (
    ADA,
    StoreFixtures,
    make_entry,
    query_ids,
    recall_ids,
    write_entry,
    write_request,
)

EVERYTHING = Scope()
HISTORY = Filter(key="city", include_superseded=True, include_expired=True, include_stale=True)


async def values_of(store: Store, scope: Scope = EVERYTHING, key: str = "city") -> list[str]:
    """Return the ids of the values of a key that are not superseded, oldest first."""
    entries = await store.list_entries(scope)
    return [entry.id for entry in entries if entry.key == key and entry.superseded_by is None]


async def entry_of(store: Store, id: str) -> Entry:
    """Return an entry of the default namespace by its id."""
    return next(entry for entry in await store.list_entries(EVERYTHING) if entry.id == id)


class SlotSuite(StoreFixtures):
    """One current value per key and exact scope, with history."""

    async def test_the_next_value_of_a_key_supersedes_the_one_before(self, store: Store) -> None:
        """The receipt names the old value, which stays stored with the reason; revisions go on."""
        await write_entry(store, "Berlin.", id="a", key="city")
        receipt = await write_entry(store, "Paris.", id="b", key="city")
        assert (receipt.outcome, receipt.metadata["superseded"], receipt.rev) == ("superseded", "a", 2)
        assert receipt.entry.key == "city"
        old = await entry_of(store, "a")
        assert (old.superseded_by, old.rev, old.content, old.key) == ("b", 2, "Berlin.", "city")
        assert "city" in (old.superseded_reason or "")
        assert await values_of(store) == ["b"]
        assert await recall_ids(store, "Berlin Paris") == ["b"]

    async def test_the_first_value_of_a_key_is_stored_like_any_other(self, store: Store) -> None:
        """Where the slot is empty nothing is superseded."""
        receipt = await write_entry(store, key="city")
        assert (receipt.outcome, dict(receipt.metadata)) == ("stored", {})

    async def test_the_same_value_again_is_a_duplicate(self, store: Store) -> None:
        """Equal type and content leave the slot as it is; another type is another value."""
        first = await write_entry(store, "Paris.", id="a", key="city")
        for dedupe in (False, True):
            again = await write_entry(store, "Paris.", id=f"b{dedupe}", key="city", dedupe=dedupe)
            assert (again.outcome, again.entry) == ("duplicate_of", first.entry)
        other = await write_entry(store, "Paris.", id="c", key="city", type="fact")
        assert other.outcome == "superseded"
        assert await values_of(store) == ["c"]

    async def test_a_key_is_no_duplicate_of_the_same_words_without_it(self, store: Store) -> None:
        """An entry without the key does not stand in for the value of the slot, nor the other way round."""
        await write_entry(store, "Paris.", id="plain")
        assert (await write_entry(store, "Paris.", id="a", key="city", dedupe=True)).outcome == "stored"
        assert (await write_entry(store, "Paris.", id="b", key="home", dedupe=True)).outcome == "stored"
        assert (await write_entry(store, "Paris.", id="c", dedupe=True)).entry.id == "plain"

    async def test_each_exact_scope_has_slots_of_its_own(self, store: Store) -> None:
        """An absent field is a value, not a wildcard: no value supersedes that of another scope."""
        scopes = [
            {name: value for name, value in zip(names, values, strict=True) if value is not None}
            for names in [("namespace", "user_id", "agent_id", "session_id", "project_id")]
            for values in product(("m", "n"), (None, "u"), ("a", "b"), (None, "s"), (None, "p"))
        ]
        for number, scope in enumerate(scopes):
            receipt = await write_entry(store, f"One of {number}.", id=f"one-{number}", key="city", **scope)
            assert receipt.outcome == "stored"
        for number, scope in enumerate(scopes):
            receipt = await write_entry(store, f"Two of {number}.", id=f"two-{number}", key="city", **scope)
            assert receipt.metadata["superseded"] == f"one-{number}"
        live = [*await values_of(store, Scope(namespace="m")), *await values_of(store, Scope(namespace="n"))]
        assert sorted(live) == sorted(f"two-{number}" for number in range(len(scopes)))

    async def test_ids_that_look_like_separators_do_not_mix_slots(self, store: Store) -> None:
        """Where one field ends and the next begins is never in doubt."""
        scopes: list[dict[str, Any]] = [
            {"user_id": "a:b"},
            {"user_id": "a", "session_id": "b"},
            {"session_id": "a:b"},
            {"project_id": "a:b"},
            {"user_id": "a", "project_id": "b"},
        ]
        for number, scope in enumerate(scopes):
            receipt = await write_entry(store, f"Value {number}.", id=f"v{number}", key="b:city", **scope)
            assert receipt.outcome == "stored"

    async def test_expected_rev_refers_to_the_live_value_of_the_slot(self, store: Store) -> None:
        """A caller who read an older value, or none, changes nothing."""
        await write_entry(store, "Berlin.", id="a", key="city", expected_rev=0)
        with pytest.raises(Conflict) as raised:
            await write_entry(store, "Paris.", id="b", key="city", expected_rev=0)
        assert (raised.value.expected, raised.value.actual) == (0, 1)
        with pytest.raises(Conflict):
            await write_entry(store, "Berlin.", id="b", key="city", expected_rev=0)
        assert await values_of(store) == ["a"]
        await write_entry(store, "Berlin!", id="a", key="city", expected_rev=1)
        with pytest.raises(Conflict):
            await write_entry(store, "Paris.", id="b", key="city", expected_rev=1)
        receipt = await write_entry(store, "Paris.", id="b", key="city", expected_rev=2)
        assert (receipt.outcome, receipt.rev) == ("superseded", 3)
        with pytest.raises(Conflict):
            await write_entry(store, "Rome.", id="c", key="city", expected_rev=2)
        assert await values_of(store) == ["b"]

    async def test_an_expired_value_is_none(self, store: Store) -> None:
        """It is superseded all the same, so that the slot has one value; to expect none is right."""
        await write_entry(store, "Away.", id="a", key="city", created_at=0, expires_at=1)
        receipt = await write_entry(store, "Away.", id="b", key="city", expected_rev=0)
        assert (receipt.outcome, receipt.metadata["superseded"]) == ("superseded", "a")
        assert await values_of(store) == ["b"]

    async def test_a_new_revision_of_a_value_keeps_its_slot(self, store: Store) -> None:
        """Writing under the same id revises the value, and supersedes nothing."""
        await write_entry(store, "Berlin.", id="a", key="city")
        receipt = await write_entry(store, "Berlin, Mitte.", id="a", key="city")
        assert (receipt.outcome, receipt.rev) == ("stored", 2)
        assert (await write_entry(store, "Berlin, Mitte.", id="a", key="city")).outcome == "unchanged"
        assert await values_of(store) == ["a"]

    async def test_another_key_moves_an_entry_to_another_slot(self, store: Store) -> None:
        """The value there is superseded, and the slot that the entry leaves is empty."""
        await write_entry(store, "Berlin.", id="a", key="home")
        await write_entry(store, "Paris.", id="b", key="city")
        moved = await write_entry(store, "Berlin.", id="a", key="city")
        assert (moved.outcome, moved.metadata["superseded"], moved.rev) == ("superseded", "b", 2)
        assert (await values_of(store), await values_of(store, key="home")) == (["a"], [])
        assert (await write_entry(store, "Rome.", id="c", key="home", expected_rev=0)).outcome == "stored"
        assert (await write_entry(store, "Berlin.", id="a")).outcome == "stored"
        assert await values_of(store) == []
        assert (await write_entry(store, "Oslo.", id="d", key="city", expected_rev=0)).outcome == "stored"

    async def test_a_superseded_value_can_be_revised_without_taking_the_slot(self, store: Store) -> None:
        """Only restoring brings it back."""
        await write_entry(store, "Berlin.", id="a", key="city")
        await write_entry(store, "Paris.", id="b", key="city")
        revised = await write_entry(store, "Berlin, Mitte.", id="a", key="city")
        assert (revised.outcome, revised.entry.superseded_by) == ("stored", "b")
        assert await values_of(store) == ["b"]

    async def test_a_value_and_another_entry_can_be_superseded_at_once(self, store: Store) -> None:
        """`supersedes` works beside the key, also where both name the same entry."""
        await write_entry(store, "Lives in Berlin.", id="plain")
        await write_entry(store, "Berlin.", id="a", key="city")
        both = await write_entry(store, "Paris.", id="b", key="city", supersedes="plain")
        assert both.metadata["superseded"] == "plain"
        assert {(await entry_of(store, id)).superseded_by for id in ("plain", "a")} == {"b"}
        await write_entry(store, "Paris.", id="c", key="city", supersedes="b")
        assert (await entry_of(store, "b")).rev == 3
        assert await values_of(store) == ["c"]

    async def test_a_repeated_request_returns_the_first_receipt(self, store: Store) -> None:
        """With its idempotency key it names again what it superseded, also after another value came."""
        await write_entry(store, "Berlin.", id="a", key="city")
        request = write_request("Paris.", id="b", key="city", idempotency_key="k")
        first = await store.write(request)
        await write_entry(store, "Rome.", id="c", key="city")
        again = await store.write(request)
        assert (again.outcome, again.metadata, again.entry.id) == (first.outcome, first.metadata, "b")
        assert await values_of(store) == ["c"]

    async def test_values_are_read_by_their_key(self, store: Store) -> None:
        """A filter by key finds the current value in any scope that holds it, and the others on request."""
        full = self.require(store, SupportsQuery)
        with clock.override(FrozenClock(1_000)) as time:
            for number, content in enumerate(("Berlin.", "Paris.", "Rome.")):
                await write_entry(full, content, id=f"v{number}", key="city", user_id="u", type="fact")
                time.advance(1_000)
            await write_entry(full, "Oslo.", id="bob", key="city", user_id="u", agent_id="bob")
            await write_entry(full, "Green.", id="colour", key="colour", user_id="u")
            await write_entry(full, "Paris.", id="plain", user_id="u")
            by_key = Filter(key="city")
            assert await query_ids(full, filter=by_key) == ["v2"]
            assert await query_ids(full, Scope(user_id="u"), filter=by_key) == ["bob", "v2"]
            assert await query_ids(full, Scope(user_id="u", session_id="s"), filter=by_key) == []
            assert await query_ids(full, filter=HISTORY) == ["v2", "v1", "v0"]
            assert await query_ids(full, filter=Filter(key="city", types=("decision",))) == []
            assert await query_ids(full, filter=Filter(key="CITY")) == []
            page = await full.query(Query(scope=ADA, filter=HISTORY, limit=2))
            assert await query_ids(full, filter=HISTORY, cursor=page.cursor) == ["v0"]
            assert await query_ids(full, filter=by_key, as_of=1_500) == ["v0"]

    async def test_recall_looks_only_at_a_key(self, store: Store) -> None:
        """The filter holds in recall, too."""
        await write_entry(store, "Lives in Berlin.", id="a", key="city")
        await write_entry(store, "Lives in Paris.", id="b", key="city")
        await write_entry(store, "Lives in a house.", id="c", key="building")
        await write_entry(store, "Lives in a street.", id="d")
        request = RecallRequest(agent_id="ada", query="Where does she live?", filter=Filter(key="city"))
        assert [entry.id for entry in (await store.recall(request)).entries] == ["b"]
        history = request.replace(filter=HISTORY)
        assert sorted(entry.id for entry in (await store.recall(history)).entries) == ["a", "b"]

    async def test_restoring_a_value_supersedes_the_newer_one(self, store: Store) -> None:
        """There is one value after it, and both are in the history."""
        full = self.require(store, SupportsSupersede)
        await write_entry(full, "Berlin.", id="a", key="city")
        await write_entry(full, "Paris.", id="b", key="city")
        with pytest.raises(Conflict):
            await full.reinstate("a", ADA, expected_rev=1)
        assert await values_of(full) == ["b"]
        restored = await full.reinstate("a", ADA, expected_rev=2)
        assert (restored.superseded_by, restored.rev) == (None, 3)
        newer = await entry_of(full, "b")
        assert (newer.superseded_by, newer.rev) == ("a", 3)
        assert await values_of(full) == ["a"]
        assert await recall_ids(full, "Berlin Paris") == ["a"]

    async def test_a_forgotten_value_leaves_its_slot_empty(self, store: Store) -> None:
        """The next value supersedes nothing, and restoring the forgotten one then supersedes it."""
        full = self.require(store, SupportsSupersede)
        await write_entry(full, "Berlin.", id="a", key="city")
        await full.supersede("a", ADA)
        assert (await write_entry(full, "Berlin.", id="b", key="city", expected_rev=0)).outcome == "stored"
        await full.reinstate("a", ADA)
        assert (await entry_of(full, "b")).superseded_by == "a"
        assert await values_of(full) == ["a"]

    async def test_an_erased_value_leaves_its_slot_empty(self, store: Store) -> None:
        """The value before it stays superseded, and can be restored."""
        full = self.require(store, SupportsErase, SupportsSupersede)
        await write_entry(full, "Berlin.", id="a", key="city")
        await write_entry(full, "Paris.", id="b", key="city")
        await full.erase(ADA, id="b")
        assert await values_of(full) == []
        assert await recall_ids(full, "Berlin Paris") == []
        assert (await write_entry(full, "Rome.", id="c", key="city", expected_rev=0)).outcome == "stored"
        await full.erase(ADA, id="c")
        assert (await full.reinstate("a", ADA)).superseded_by is None
        assert await values_of(full) == ["a"]

    async def test_what_rests_on_a_replaced_value_is_stale(self, store: Store) -> None:
        """It follows the value through being superseded and restored."""
        full = self.require(store, SupportsSupersede, SupportsGet)
        await write_entry(full, "Berlin.", id="a", key="city")
        evidence = [{"kind": "entry", "ref": "a"}]
        await write_entry(full, "Speaks German.", id="d", evidence=evidence)
        receipt = await write_entry(full, "Paris.", id="b", key="city", evidence=evidence)
        assert receipt.entry.stale  # its own evidence is superseded by it
        assert (await full.get("d", ADA)).stale
        await full.reinstate("a", ADA)
        assert not (await full.get("d", ADA)).stale

    async def test_a_value_that_derives_from_what_it_replaces_is_stale(self, store: Store) -> None:
        """Also where an entry is moved to the slot of its own premise."""
        full = self.require(store, SupportsGet)
        await write_entry(full, "Berlin.", id="a", key="city")
        evidence = [{"kind": "entry", "ref": "a"}]
        await write_entry(full, "Germany.", id="b", evidence=evidence)
        moved = await write_entry(full, "Germany.", id="b", key="city", evidence=evidence)
        assert (moved.outcome, moved.entry.stale) == ("superseded", True)
        assert (await full.get("b", ADA)).stale
        assert await values_of(full) == ["b"]

    async def test_a_stale_value_holds_its_slot_without_being_live(self, store: Store) -> None:
        """A caller may expect none; the next value supersedes it, so that it does not come back beside."""
        full = self.require(store, SupportsSupersede)
        await write_entry(full, "She said so.", id="p")
        await write_entry(full, "Berlin.", id="a", key="city", evidence=[{"kind": "entry", "ref": "p"}])
        await full.supersede("p", ADA)
        receipt = await write_entry(full, "Berlin.", id="b", key="city", expected_rev=0)
        assert (receipt.outcome, receipt.metadata["superseded"]) == ("superseded", "a")
        await full.reinstate("p", ADA)
        assert await values_of(full) == ["b"]

    async def test_a_batch_leaves_the_last_value(self, store: Store) -> None:
        """Values of one key in one batch supersede each other in order, and a failure leaves none."""
        full = self.require(store, SupportsBatchWrite)
        cities = ("Berlin.", "Paris.", "Paris.", "Rome.")
        requests = [write_request(city, id=f"v{at}", key="city") for at, city in enumerate(cities)]
        outcomes = [receipt.outcome for receipt in await full.write_many(requests)]
        assert outcomes == ["stored", "superseded", "duplicate_of", "superseded"]
        assert await values_of(full) == ["v3"]
        bad = write_request("Wien.", id="w", key="city", expected_rev=7)
        with pytest.raises(Conflict):
            await full.write_many([write_request("Oslo.", id="o", key="city"), bad])
        assert await values_of(full) == ["v3"]
        assert (await entry_of(full, "v3")).rev == 3

    async def test_slots_are_imported_with_their_history(self, store: Store) -> None:
        """Entries of another store come as they are; what is imported fills its slot."""
        full = self.require(store, SupportsImport)
        now = clock.now()
        old = make_entry(
            "Berlin.", id="a", key="city", user_id="u", rev=2, superseded_by="b", superseded_at=now
        )
        new = make_entry("Paris.", id="b", key="city", user_id="u", rev=1)
        assert await full.import_entries([new, old]) == 2
        assert await full.import_entries([old, new]) == 0
        assert sorted(await full.list_entries(EVERYTHING), key=lambda entry: entry.id) == [old, new]
        receipt = await write_entry(full, "Rome.", id="c", key="city", user_id="u")
        assert receipt.metadata["superseded"] == "b"

    @pytest.mark.parametrize(("created_at", "current"), [(1, "kept"), (5_000, "new")])
    async def test_of_two_values_the_newer_one_stays_after_an_import(
        self, store: Store, created_at: int, current: str
    ) -> None:
        """Both are in the history, and the same import again changes nothing."""
        full = self.require(store, SupportsImport)
        await write_entry(full, "Berlin.", id="kept", key="city", created_at=1_000)
        new = make_entry("Paris.", id="new", key="city", created_at=created_at, rev=3)
        assert await full.import_entries([new]) == 1
        assert await values_of(full) == [current]
        other = await entry_of(full, "new" if current == "kept" else "kept")
        assert other.superseded_by == current
        before = await full.list_entries(EVERYTHING)
        assert await full.import_entries([new]) == 0
        assert await full.list_entries(EVERYTHING) == before

    @pytest.mark.parametrize("key", ["", "x" * 201, "a\nb", "a\x7fb"])
    async def test_a_key_is_a_short_line(self, store: Store, key: str) -> None:
        """One that is empty, longer than 200 characters or has control characters is refused."""
        with pytest.raises(OmoideError):
            await write_entry(store, key=key)
        with pytest.raises(OmoideError):
            Filter(key=key)
        assert await store.list_entries(EVERYTHING) == []

    async def test_a_key_may_hold_any_text(self, store: Store) -> None:
        """Its bytes are compared exactly."""
        keys = ("Stadt ☕", "stadt ☕", "x'; --", "\u00e9", "e\u0301", "界" * 200, "a b:c\\d%e")
        for number, key in enumerate(keys):
            assert (await write_entry(store, "One.", id=f"a{number}", key=key)).outcome == "stored"
        for number, key in enumerate(keys):
            receipt = await write_entry(store, "Two.", id=f"b{number}", key=key)
            assert receipt.metadata["superseded"] == f"a{number}"
