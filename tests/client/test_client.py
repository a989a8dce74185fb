"""The client behaves like a local store."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.rest import HOME, Service, open_test_store
from tests.support.stores import rate_hits

from omoide import Evidence, Filter, Scope, blocking
from omoide.client import AsyncClient, Client
from omoide.stores import Change

ADA = Scope(agent_id="ada")


def test_a_memory_is_kept_found_forgotten_and_brought_back(client: Client) -> None:
    """The verbs do what they do without a service, and give the same values."""
    kept = client.remember("The door is red.", ADA, type="fact", tags=["door"], id="door")
    assert (kept.outcome, kept.id, kept.rev) == ("stored", "door", 1)
    assert client.get("door", ADA) == kept.entry
    found = client.recall("which colour has the door?", ADA, 3, tags=["door"])
    assert [entry.content for entry in found.entries] == ["The door is red."]
    assert client.forget("door", ADA, reason="painted").superseded_reason == "painted"
    assert client.recall("which colour has the door?", ADA, tags=["door"]).hits == ()
    assert client.recall("door", ADA, filter=Filter(tags=["door"], include_superseded=True)).entries != ()
    assert client.reinstate("door", ADA).superseded_by is None
    client.pin("door", ADA)
    assert [entry.id for entry in client.pinned(ADA)] == ["door"]
    client.unpin("door", ADA)
    assert client.pinned(ADA) == ()
    assert [version.rev for version in client.history("door", ADA)] == [1, 2, 3]
    assert client.erase(ADA, id="door").ids == ("door",)


def test_several_memories_are_erased_at_once(client: Client) -> None:
    """A list of ids is one request with one receipt."""
    for id in ("red", "old"):
        client.remember(f"The {id} door.", ADA, id=id)
    assert client.erase(ADA, id=("old", "red")).ids == ("old", "red")


def test_what_is_not_relevant_is_withheld(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client asks for a relevance, and gives both parts of the answer."""
    rate_hits(monkeypatch, {}, red=0.9, old=0.4)
    for id in ("red", "old"):
        client.remember(f"The door is {id}.", ADA, id=id)
    found = client.recall("door", ADA, min_relevance=0.5)
    assert found.hits[0].entry.id == "red"
    assert [(hit.entry.id, hit.relevance) for hit in found.withheld] == [("old", 0.4)]


def test_what_is_kept_comes_back_as_it_was(client: Client, server: Service) -> None:
    """Whatever metadata can hold goes there and back without loss, and means the same in the store itself."""
    metadata = {
        "when": datetime(2026, 1, 2, tzinfo=UTC),
        "raw": b"\x00\xff",
        "set": {1, 2},
        "deep": [{"a": None}],
        "like a tag": {"$bytes": "no"},
    }
    evidence = [Evidence(kind="document", ref="book", quote="p. 3")]
    kept = client.remember("x", ADA, id="m", metadata=metadata, evidence=evidence, occurred_at=5).entry
    assert kept == server.store.sync.get("m", ADA)
    assert kept.metadata == metadata
    assert kept.evidence == tuple(evidence)


def test_the_same_as_without_a_service(client: Client, server: Service) -> None:
    """A recall through the service finds and explains what a recall in the store does."""
    there = client.recall("what does Ada drink?", ADA)
    here = blocking.recall(server.store, "what does Ada drink?", ADA)
    assert there.entries == here.entries
    assert [hit.score for hit in there.hits] == pytest.approx([hit.score for hit in here.hits], abs=0.05)


def test_listing_goes_through_all_pages(client: Client) -> None:
    """`list` asks for page after page until there is no cursor any more."""
    for number in range(5):
        client.remember(f"Note {number}.", Scope(agent_id="bob"), id=f"n{number}")
    found = list(client.list(Scope(agent_id="bob"), limit=2))
    assert sorted(entry.id for entry in found) == [f"n{number}" for number in range(5)]
    assert list(client.list(Scope(agent_id="bob"), type="fact")) == []


def test_a_repeated_request_with_a_key_counts_once(client: Client) -> None:
    """The same key and the same memory give the first receipt."""
    first, again = (
        client.remember("Paid 5.", ADA, id="pay", idempotency_key="k1", dedupe=False) for _ in range(2)
    )
    assert first.entry == again.entry
    assert len(client.history("pay", ADA)) == 1


def test_what_memories_have_to_do_with_each_other(client: Client) -> None:
    """Relations, provenance, conflicts, review and pruning are asked for as they are in the library."""
    client.remember("Ada drinks coffee.", ADA, id="m3", metadata={"key": "drink", "value": "coffee"})
    client.remember("Ada drinks milk.", ADA, id="m4", metadata={"key": "drink", "value": "milk"})
    assert client.relate("m3", "refines", f"{HOME}-1", ADA).name == "refines"
    assert {one.entry.id for one in client.related(f"{HOME}-1", ADA)} == {"m3", f"{HOME}-2"}
    assert client.provenance("m3", ADA).entry.id == "m3"
    assert {one.ids for one in client.conflicts(ADA)} == {("m3", "m4")}
    assert len(client.review(ADA).conflicts) == 1
    assert client.prune(ADA, max_access=0).dry_run


def test_a_query_in_sparql_gives_an_answer(client: Client) -> None:
    """Rows have the variables and values that they have in the library, and what was cut is told."""
    query = "SELECT ?text { ?m jido:summary ?text . FILTER(?text != ?not) }"
    found = client.sparql(query, ADA, bindings={"not": "Ada drinks tea."})
    assert "Ada drinks tea. Often." in found.values("text")
    assert client.sparql("SELECT ?m { ?m jido:summary ?t }", ADA, limit=1).truncated
    assert client.sparql("ASK { ?m jido:summary ?t }", ADA).truth


def test_sessions_are_looked_at_and_promoted(client: Client) -> None:
    """A session is listed, read, previewed and promoted, and its promotion is taken back."""
    assert [one.session_id for one in client.sessions()] == [f"{HOME}-session"]
    id = f"{HOME}-session"
    assert client.transcript(id).entries
    assert client.context(id).shares.total == 32_000
    assert client.preflight(id, "What do I drink?").prompt.messages
    assert client.promote(id).run is None
    done = client.promote(id, dry_run=False)
    assert done.run is not None
    assert client.undo_promotion(id, run=done.run.id).undone_at is not None


def test_who_rests_in_the_store(client: Client) -> None:
    """Agents at rest show who they are, what they believe, and what they can."""
    id = f"{HOME}-agent"
    assert [card.id for card in client.agents()] == [id]
    assert client.identity(id).identity is not None
    assert client.spaces(id)["world"].data == {"drink": "Ada drinks tea."}
    assert client.who_can("sing") == ()
    assert [one.id for one in client.who_can(io={"network": False})] == [id]
    assert client.who_can(io={"network": True}) == ()
    assert (client.status().stats.entries, client.status().problems) == (2, ())


def test_changes_of_another_program_are_heard(client: Client, tmp_path: Path) -> None:
    """Whoever listens hears of what another program writes into the same file."""
    last = client.changes(limit=500)[-1].seq
    with open_test_store(tmp_path) as other:
        blocking.remember(other, "Somebody else was here.", ADA, id="new")
        heard = next(iter(client.events(after=last)))
    assert isinstance(heard, Change)
    assert (heard.id, heard.op) == ("new", "write")


async def test_the_same_with_an_event_loop(server: Service) -> None:
    """The async client has the same verbs, to be awaited."""
    async with AsyncClient(server.url, server.secrets.admin) as client:
        kept = await client.remember("The door is red.", ADA, id="door")
        assert (await client.get("door", ADA)) == kept.entry
        ids = [entry.id async for entry in client.list(ADA, limit=1)]
        assert set(ids) == {"door", f"{HOME}-1", f"{HOME}-2"}
        heard: list[Any] = []
        async for change in client.events():
            heard.append(change.id)
            if change.id == "door":
                break
        assert f"{HOME}-1" in heard


def test_a_client_shows_neither_its_token_nor_a_password(server: Service) -> None:
    """What it looks like can be put into a log."""
    with Client("http://me:hidden@localhost:1", server.secrets.read) as client:
        assert "hidden" not in repr(client)
        assert server.secrets.read not in repr(client)


def test_evidence_may_be_text_and_memories_are_about_files(client: Client) -> None:
    """A service takes texts as evidence, and the client what a memory is about, as a local store does."""
    kept = client.remember(
        "Requests are JSON.", ADA, evidence=["docs/adr.md"], about="lib/web.ex", tags=["api"]
    )
    assert kept.entry.evidence == (Evidence(kind="document", ref="docs/adr.md"),)
    assert kept.entry.tags == ("api", "file:lib/web.ex")
    assert [one.id for one in client.recall("requests", ADA, about="lib/web.ex").entries] == [kept.id]
    assert client.recall("requests", ADA, about="lib/other.ex").entries == ()
