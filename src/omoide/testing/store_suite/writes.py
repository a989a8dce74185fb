"""Conformance tests of writes: revisions, scopes, deduplication, idempotency keys, batches."""

from __future__ import annotations

from typing import Any

import pytest

from omoide import clock
from omoide.core.entry import Scope, WriteRequest
from omoide.errors import Conflict, IdTaken, Invalid, KeyReused, NotFound
from omoide.stores.protocols import Store, SupportsBatchWrite, SupportsGet
from omoide.testing import FrozenClock
from omoide.testing.store_suite.base import (
    ADA,
    DAY_MS,
    ELSEWHERE,
    StoreFixtures,
    list_ids,
    make_entry,
    recall_ids,
    write_entry,
    write_request,
)

ALL_FIELDS: dict[str, Any] = {
    "id": "Müller & Söhne/../%27; DROP TABLE --",
    "key": "home ☕ city",
    "user_id": "Ann <ann@example.org>",
    "session_id": "s 1",
    "project_id": "shop",
    "metadata": {"deep": [1, {"x": [True, None, 2.5]}], "": "empty key", "$set": "no set"},
    "type": "architectural_decision",
    "confidence": 0.79,
    "importance": 0.125,
    "source": "external_document",
    "tags": ("db", "Ünï", "a b"),
    "rationale": "pgvector",
    "message": {"thread": "t", "seq": 4, "role": "user", "speaker": "Zoë"},
    "evidence": ({"kind": "entry", "ref": "e1"}, {"kind": "document", "ref": "doc.pdf", "quote": "p. 3"}),
    "created_at": 10,
    "occurred_at": 5,
    "expires_at": 1 << 45,
}

DIFFERENT_FIELDS: list[dict[str, str]] = [
    {"content": "tea."},
    {"type": "decision"},
    {"session_id": "s"},
    {"user_id": "u"},
    {"agent_id": "bob"},
    {"project_id": "p"},
    {"namespace": "n"},
]


class WriteSuite(StoreFixtures):
    """Writing and listing entries, one at a time and in batches."""

    async def test_a_first_write_is_stored_as_revision_one(self, store: Store) -> None:
        """The receipt says ok and stored, and carries the request and the entry as it is kept."""
        request = write_request("User prefers the name Alex.", id="name")
        receipt = await store.write(request)
        assert (receipt.status, receipt.outcome, receipt.id, receipt.rev) == ("ok", "stored", "name", 1)
        assert receipt.request == request
        assert receipt.entry == request.entry.replace(rev=1)
        assert await store.list_entries(ADA) == [receipt.entry]

    async def test_everything_that_an_entry_says_comes_back(self, store: Store) -> None:
        """Every field survives exactly: odd ids, nested metadata, a confidence of 0.79, evidence, times."""
        entry = make_entry("Naïve “quotes”, emoji 🫖, line\nbreaks and\ttabs.", **ALL_FIELDS)
        receipt = await store.write(WriteRequest(entry=entry))
        assert receipt.entry == entry.replace(rev=1)
        (stored,) = await store.list_entries(ADA)
        assert stored == entry.replace(rev=1)
        assert stored.metadata == ALL_FIELDS["metadata"]

    async def test_an_empty_scope_lists_nothing(self, store: Store) -> None:
        """A scope that nothing was written to is empty, and that is no error."""
        assert await store.list_entries(ADA) == []
        assert await store.list_entries(Scope()) == []

    async def test_the_same_write_again_changes_nothing(self, store: Store) -> None:
        """It is answered with unchanged and the revision there is, even when made at another time."""
        first = await write_entry(store, id="a", created_at=10)
        again = await write_entry(store, id="a", created_at=20)
        assert (again.outcome, again.entry) == ("unchanged", first.entry)
        assert await store.list_entries(ADA) == [first.entry]

    async def test_another_write_to_the_same_id_is_the_next_revision(self, store: Store) -> None:
        """There is still one entry: it says what was written last and is as old as the first."""
        await write_entry(store, "Tea.", id="a", created_at=10, tags=["hot"])
        second = await write_entry(store, "Coffee.", id="a", created_at=20)
        assert (second.outcome, second.rev) == ("stored", 2)
        assert (second.entry.content, second.entry.tags, second.entry.created_at) == ("Coffee.", (), 10)
        assert await store.list_entries(ADA) == [second.entry]

    async def test_a_vector_that_cannot_be_compared_is_refused(self, store: Store) -> None:
        """One of another size than the store's, or of no numbers, keeps nothing and is bad input."""
        full = self.require(store, SupportsBatchWrite)
        for vector in ([1.0], [], [float("nan")] * 64, ["x"] * 64, [0.0] * 64):
            with pytest.raises(Invalid, match="vector"):
                await full.write_with_vector(write_request("Tea.", id="a"), vector)  # type: ignore[arg-type]
        assert await store.list_entries(ADA) == []

    async def test_the_revision_in_an_entry_says_nothing_about_where_it_goes(self, store: Store) -> None:
        """Revisions are counted by the store alone."""
        assert (await store.write(WriteRequest(entry=make_entry("Tea.", id="a", rev=7)))).rev == 1
        assert (await store.write(WriteRequest(entry=make_entry("Coffee.", id="a", rev=1)))).rev == 2

    async def test_entries_are_listed_oldest_first(self, store: Store) -> None:
        """In the order of writing; new content moves an entry to the end, the same content does not."""
        for name in "abc":
            await write_entry(store, f"About {name}.", id=name)
        assert await list_ids(store) == ["a", "b", "c"]
        await write_entry(store, "About a.", id="a")
        assert await list_ids(store) == ["a", "b", "c"]
        await write_entry(store, "News about a.", id="a")
        assert await list_ids(store) == ["b", "c", "a"]

    @pytest.mark.parametrize("field", ["user_id", "agent_id", "session_id", "project_id", "namespace"])
    async def test_a_scope_lists_what_lies_inside_and_nothing_else(self, store: Store, field: str) -> None:
        """Each field of a scope that is given narrows it."""
        here: dict[str, Any] = {"agent_id": "a", "session_id": "s", "project_id": "p", "namespace": "n"}
        here["user_id"] = "u"
        there = {**here, field: "other"}
        await write_entry(store, id="here", **here)
        await write_entry(store, id="there", **there)
        assert await list_ids(store, Scope(**here)) == ["here"]
        assert await list_ids(store, Scope(**there)) == ["there"]
        outer = {name: value for name, value in here.items() if name != field}
        expected = ["here"] if field == "namespace" else ["here", "there"]
        assert await list_ids(store, Scope(**{"namespace": "n", **outer})) == expected

    async def test_names_are_compared_byte_by_byte(self, store: Store) -> None:
        """Names that look or sort alike are different: case, accents, composition, width, spaces."""
        names = ["Café", "CAFÉ", "cafe", "Cafe\u0301", "Ｃａｆé", "Café\u200b", "Café ", "Caf_", "Caf%", "*"]
        for at, name in enumerate(names):
            await write_entry(store, agent_id=name, id=f"by-agent-{at}")
            await write_entry(store, id=name, namespace="ids")
        for at, name in enumerate(names):
            assert await list_ids(store, Scope(agent_id=name)) == [f"by-agent-{at}"]
        assert await list_ids(store, Scope(namespace="ids")) == names

    async def test_namespaces_know_nothing_of_each_other(self, store: Store) -> None:
        """The same id in two namespaces is two entries, with revisions of their own."""
        await write_entry(store, "Here.", id="a")
        there = await write_entry(store, "There.", id="a", namespace="elsewhere", expected_rev=0)
        assert there.rev == 1
        await write_entry(store, "There again.", id="a", namespace="elsewhere")
        assert [entry.content for entry in await store.list_entries(ADA)] == ["Here."]
        assert [entry.content for entry in await store.list_entries(ELSEWHERE)] == ["There again."]

    @pytest.mark.parametrize("field", ["user_id", "agent_id", "session_id", "project_id"])
    async def test_an_id_belongs_to_one_scope(self, store: Store, field: str) -> None:
        """Another user, agent, session or project cannot take it over; the attempt changes nothing."""
        here: dict[str, Any] = {"user_id": "u", "session_id": "s", "project_id": "p"}
        stored = (await write_entry(store, id="a", **here)).entry
        for other in ("eve", None if field != "agent_id" else "bob"):
            with pytest.raises(IdTaken):
                await write_entry(store, "Mine now.", **{"id": "a", **here, field: other})
        assert await store.list_entries(Scope()) == [stored]

    async def test_an_expected_revision_must_be_the_one_there_is(self, store: Store) -> None:
        """Otherwise the write is refused with both numbers, and nothing changes."""
        await write_entry(store, "One.", id="a", expected_rev=0)
        second = await write_entry(store, "Two.", id="a", expected_rev=1)
        for stale in (0, 1, 3):
            with pytest.raises(Conflict) as caught:
                await write_entry(store, "Three.", id="a", expected_rev=stale)
            assert (caught.value.expected, caught.value.actual) == (stale, 2)
        with pytest.raises(Conflict):
            await write_entry(store, "New.", id="b", expected_rev=1)
        assert await store.list_entries(ADA) == [second.entry]

    async def test_a_duplicate_is_answered_with_the_entry_there_is(self, store: Store) -> None:
        """With `dedupe`, the same content of the same type in the same scope is not kept twice."""
        first = (await write_entry(store, "Tea.", id="a", type="fact")).entry
        again = await write_entry(store, "Tea.", id="b", type="fact", dedupe=True)
        assert (again.outcome, again.entry) == ("duplicate_of", first)
        assert await list_ids(store) == ["a"]

    @pytest.mark.parametrize("other", DIFFERENT_FIELDS, ids=lambda other: next(iter(other)))
    async def test_what_differs_is_no_duplicate(self, store: Store, other: dict[str, Any]) -> None:
        """Other words, another type, or any other scope make another memory."""
        await write_entry(store, "Tea.", id="a", type="fact")
        fields = {"content": "Tea.", "type": "fact", "id": "b", **other}
        receipt = await write_entry(store, fields.pop("content"), dedupe=True, **fields)
        assert (receipt.outcome, receipt.id) == ("stored", "b")

    async def test_only_a_live_entry_makes_a_duplicate(self, store: Store) -> None:
        """The content of a superseded or expired entry can be stored again."""
        with clock.override(FrozenClock(1_000)) as time:
            await write_entry(store, "Tea.", id="a", expires_at=2_000)
            time.advance(1_000)
            assert (await write_entry(store, "Tea.", id="b", dedupe=True)).outcome == "stored"
            await write_entry(store, "Coffee.", id="c", supersedes="b")
            assert (await write_entry(store, "Tea.", id="d", dedupe=True)).outcome == "stored"

    async def test_an_entry_can_take_the_place_of_another(self, store: Store) -> None:
        """The older one stays listed, marked with its successor and the time, and is not recalled."""
        with clock.override(FrozenClock(1_000)) as time:
            old = (await write_entry(store, "Tea.", id="old")).entry
            time.advance(500)
            receipt = await write_entry(store, "Coffee.", id="new", supersedes="old")
            assert (receipt.outcome, receipt.id, receipt.rev) == ("superseded", "new", 1)
            assert await recall_ids(store) == ["new"]
            stored = {entry.id: entry for entry in await store.list_entries(ADA)}
            assert stored["old"] == old.replace(superseded_by="new", superseded_at=1_500, rev=2)

    async def test_only_what_the_agent_has_can_be_replaced(self, store: Store) -> None:
        """An unknown id, and an id of another agent or namespace, are not found, and nothing is written."""
        await write_entry(store, id="bobs", agent_id="bob")
        await write_entry(store, id="far", namespace="elsewhere")
        for id in ("bobs", "far", "nobody's"):
            with pytest.raises(NotFound):
                await write_entry(store, id="new", supersedes=id)
        assert await list_ids(store) == []
        assert [entry.superseded_by for entry in await store.list_entries(Scope(agent_id="bob"))] == [None]

    async def test_no_memory_is_born_superseded_by_one_that_does_not_exist(self, store: Store) -> None:
        """A new entry may only be superseded by an entry that its own agent and user has."""
        await write_entry(store, "Theirs.", id="theirs", agent_id="bob")
        await write_entry(store, "Ann's.", id="anns", user_id="ann")
        for successor in ("nobody", "theirs", "anns", "born"):
            with pytest.raises(NotFound, match=f"entry '{successor}' does not exist"):
                await write_entry(store, "Old.", id="born", superseded_by=successor)
        assert await list_ids(store) == ["anns"]

    async def test_a_memory_may_be_born_superseded_by_another(self, store: Store) -> None:
        """An outdated entry can be stored behind the one that holds, or as forgotten."""
        full = self.require(store, SupportsGet)
        await write_entry(full, "New.", id="new")
        for id, by in (("old", "new"), ("gone", "deleted")):
            await write_entry(full, "Old.", id=id, superseded_by=by)
            assert (await full.get(id, ADA)).superseded_by == by
        assert await recall_ids(full) == ["new"]

    async def test_a_write_does_not_bring_back_what_was_superseded(self, store: Store) -> None:
        """A superseded entry can be corrected and stays superseded."""
        await write_entry(store, "Tea.", id="old")
        await write_entry(store, "Coffee.", id="new", supersedes="old")
        corrected = (await write_entry(store, "Green tea.", id="old")).entry
        assert (corrected.superseded_by, corrected.rev) == ("new", 3)
        assert await recall_ids(store) == ["new"]

    async def test_a_repeated_request_gets_the_first_receipt(self, store: Store) -> None:
        """The same key with the same payload writes once, even when the entry has changed since."""
        first = await write_entry(store, "Tea.", id="a", idempotency_key="k")
        await write_entry(store, "Coffee.", id="a")
        again = await write_entry(store, "Tea.", id="a", idempotency_key="k")
        assert (again.outcome, again.entry) == (first.outcome, first.entry)
        assert [entry.content for entry in await store.list_entries(ADA)] == ["Coffee."]

    async def test_a_repeated_request_may_have_made_its_id_anew(self, store: Store) -> None:
        """A retry that lets Omoide choose the id finds the entry of the first attempt."""
        first = await write_entry(store, "Tea.", idempotency_key="k")
        again = await write_entry(store, "Tea.", idempotency_key="k")
        assert again.entry == first.entry
        assert await list_ids(store) == [first.id]

    async def test_a_key_stands_for_one_request(self, store: Store) -> None:
        """With another payload it is refused as a conflict, and nothing is written."""
        await write_entry(store, "Tea.", id="a", idempotency_key="k")
        for fields in ({"id": "a"}, {"id": "b"}):
            with pytest.raises(KeyReused):
                await write_entry(store, "Coffee.", idempotency_key="k", **fields)
        assert [entry.content for entry in await store.list_entries(ADA)] == ["Tea."]

    async def test_a_key_belongs_to_its_agent_and_user(self, store: Store) -> None:
        """Others may use the same key: they neither get the receipt nor learn that there is one."""
        await write_entry(store, "Tea.", id="a", idempotency_key="k")
        other = await write_entry(store, "Coffee.", id="b", agent_id="bob", idempotency_key="k")
        guest = await write_entry(store, "Cocoa.", id="c", user_id="guest", idempotency_key="k")
        assert (other.outcome, guest.outcome) == ("stored", "stored")

    async def test_keys_are_kept_for_seven_days_in_one_namespace(self, store: Store) -> None:
        """Another namespace has keys of its own, and after seven days a key is free again."""
        with clock.override(FrozenClock(1_000)) as time:
            await write_entry(store, "Tea.", id="a", idempotency_key="k")
            await write_entry(store, "Coffee.", id="a", namespace="elsewhere", idempotency_key="k")
            time.advance(7 * DAY_MS - 1)
            with pytest.raises(KeyReused):
                await write_entry(store, "Cocoa.", id="a", idempotency_key="k")
            time.advance(2)
            assert (await write_entry(store, "Cocoa.", id="a", idempotency_key="k")).rev == 2

    # Batches

    async def test_many_entries_are_kept_at_once(self, store: Store) -> None:
        """Receipts come in the order of the requests; a later request sees the earlier ones."""
        full = self.require(store, SupportsBatchWrite)
        receipts = await full.write_many(
            [
                write_request(id="a"),
                write_request("Other.", id="b"),
                write_request("Changed.", id="a"),
                write_request("Other.", id="b"),
            ]
        )
        assert [(receipt.id, receipt.rev, receipt.outcome) for receipt in receipts] == [
            ("a", 1, "stored"),
            ("b", 1, "stored"),
            ("a", 2, "stored"),
            ("b", 1, "unchanged"),
        ]
        assert await list_ids(full) == ["b", "a"]
        assert await full.write_many([]) == []

    async def test_many_entries_are_kept_all_or_none(self, store: Store) -> None:
        """When one is refused, none is written."""
        full = self.require(store, SupportsBatchWrite)
        before = [
            (await write_entry(full, id="a")).entry,
            (await write_entry(full, id="x", agent_id="bob")).entry,
        ]
        good = [write_request("New.", id="n1"), write_request("Changed.", id="a", idempotency_key="k")]
        for bad, refusal in (
            (write_request(id="a", expected_rev=9), Conflict),
            (write_request(id="x"), IdTaken),
        ):
            with pytest.raises(refusal):
                await full.write_many([*good, bad, write_request(id="n2")])
            assert await full.list_entries(Scope()) == before
        # The key was not used up either.
        assert (await write_entry(full, "Other.", id="o", idempotency_key="k")).outcome == "stored"
