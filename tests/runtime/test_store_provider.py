"""A store serves as a memory provider of agents."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.custom_stores import ListStore

from omoide import Scope, clock, verbs
from omoide.errors import Invalid, StoreFailed, WrongType
from omoide.runtime.providers import ProviderFailure, ProviderResult, StoreProvider
from omoide.stores import AsyncStore, open_store
from omoide.testing import FrozenClock, HashEmbedder

ADA = {"agent_id": "ada"}
BOB = {"agent_id": "bob"}
OPERATIONS: list[tuple[str, tuple[Any, ...]]] = [
    ("put", ("k", 1)),
    ("get", ("k",)),
    ("delete", ("k",)),
    ("query", ({"text": "tea"},)),
]


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AsyncStore]:
    """A store with vectors."""
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'memory.db'}"
    async with open_store(url, embedder=HashEmbedder(64)) as opened:
        yield opened


async def value(provider: StoreProvider, key: str, opts: dict[str, Any]) -> Any:
    """The value under a key, or why there is none."""
    answer = await provider.get(None, key, opts)
    return answer.value if isinstance(answer, ProviderResult) else answer.reason


async def query_records(provider: StoreProvider, opts: dict[str, Any], **query: Any) -> list[dict[str, Any]]:
    """What a question finds."""
    answer = await provider.query(None, query, opts)
    assert isinstance(answer, ProviderResult), answer
    results: list[dict[str, Any]] = answer.value
    return results


async def test_two_agents_can_use_the_same_key(store: AsyncStore) -> None:
    """Neither reads, replaces, deletes or erases what the other has put."""
    provider = StoreProvider(store)
    await provider.put(None, "drink", "tea", ADA)
    await provider.put(None, "drink", "coffee", BOB)
    assert (await value(provider, "drink", ADA), await value(provider, "drink", BOB)) == ("tea", "coffee")
    await provider.delete(None, "drink", {**BOB, "erase": True})
    assert (await value(provider, "drink", ADA), await value(provider, "drink", BOB)) == ("tea", "not_found")
    assert await query_records(provider, BOB, text="tea") == []


async def test_an_index_is_a_part_of_an_agents_memory(store: AsyncStore) -> None:
    """What is put in one is not found in another, and the agent without an index sees all of it."""
    provider = StoreProvider(store)
    one, two = {**ADA, "index": "one"}, {**ADA, "index": "two"}
    await provider.put(None, "drink", "green tea", one)
    await provider.put(None, "drink", "black tea", two)
    assert await value(provider, "drink", one) == "green tea"
    assert await value(provider, "drink", two) == "black tea"
    assert await value(provider, "drink", ADA) == "not_found"
    assert [(hit["key"], hit["value"]) for hit in await query_records(provider, one, text="tea")] == [
        ("drink", "green tea")
    ]
    everything = await query_records(provider, ADA, text="tea")
    assert {hit["value"] for hit in everything} == {"green tea", "black tea"}
    for hit in everything:  # from here they are not called "drink", and the key given does lead to them
        assert await value(provider, hit["key"], ADA) == hit["value"]


async def test_options_cannot_leave_the_scope_that_was_configured(store: AsyncStore) -> None:
    """Namespace, project and session there count for nothing; another index than the session fails."""
    await verbs.remember(store, "Secret tea.", Scope(agent_id="ada", namespace="theirs"))
    provider = StoreProvider(store, Scope(namespace="ours", session_id="s"))
    outside = {**ADA, "namespace": "theirs", "session_id": "t", "project_id": "p"}
    await provider.put(None, "drink", "tea", outside)
    (entry,) = await store.list_entries(Scope(namespace="ours"))
    assert (entry.agent_id, entry.session_id, entry.project_id) == ("ada", "s", None)
    assert [hit["value"] for hit in await query_records(provider, outside, text="tea")] == ["tea"]
    for method, args in (
        ("put", ("k", 1)),
        ("get", ("k",)),
        ("delete", ("k",)),
        ("query", ({"text": "tea"},)),
    ):
        answer = await getattr(provider, method)(None, *args, {**ADA, "index": "t"})
        assert isinstance(answer, ProviderFailure)
        assert "index" in answer.reason
    owned = StoreProvider(store, Scope(agent_id="team"))
    await owned.put(None, "drink", "cocoa", ADA)
    assert await value(owned, "drink", BOB) == "cocoa"


async def test_somebody_has_to_ask(store: AsyncStore) -> None:
    """Without an agent there is no place to keep anything in."""
    provider = StoreProvider(store)
    answer = await provider.put(None, "k", 1, {})
    assert isinstance(answer, ProviderFailure)
    assert "agent_id" in answer.reason
    with pytest.raises(Invalid, match="agent_id"):
        await provider.init({})
    with pytest.raises(WrongType):
        StoreProvider(3)  # type: ignore[arg-type]


async def test_the_best_answer_comes_first_with_its_score(store: AsyncStore) -> None:
    """At most `top_k`, each with the key that leads to it and the value that was put."""
    provider = StoreProvider(store)
    await provider.put(None, "a", "The harbour lights are lit at night.", ADA)
    await provider.put(None, "b", {"city": "Oslo", "harbour": True}, ADA)
    await provider.put(None, "c", "Kettle and cups.", ADA)
    hits = await query_records(provider, ADA, text="harbour lights at night", top_k=2)
    assert [hit["key"] for hit in hits] == ["a", "b"]
    assert hits[0]["score"] > hits[1]["score"]
    assert hits[1]["value"] == {"city": "Oslo", "harbour": True}
    assert {*hits[0]} == {"key", "score", "value"}


async def test_a_question_can_be_narrowed(store: AsyncStore) -> None:
    """By type and tags, those of the provider first; a text is needed, and words that are no types fail."""
    facts, notes = StoreProvider(store, type="fact", tags=("a",)), StoreProvider(store, tags=("b",))
    await facts.put(None, "f", "Tea is hot.", ADA)
    await notes.put(None, "n", "Tea is green.", ADA)
    assert [hit["key"] for hit in await query_records(facts, ADA, text="tea")] == ["f"]
    assert [hit["key"] for hit in await query_records(notes, ADA, text="tea")] == ["n"]
    plain = StoreProvider(store)
    assert len(await query_records(plain, ADA, text="tea")) == 2
    assert [hit["key"] for hit in await query_records(plain, ADA, text="tea", type="fact")] == ["f"]
    assert [hit["key"] for hit in await query_records(plain, ADA, text="tea", tags=["b"])] == ["n"]
    assert await query_records(plain, ADA, text="tea", tags=["a", "b"]) == []
    for wrong in (
        {},
        {"text": ""},
        {"text": 3},
        {"text": "tea", "type": "nonsense"},
        {"text": "t", "tags": 3},
    ):
        assert isinstance(await plain.query(None, wrong, ADA), ProviderFailure)


async def test_options_say_what_an_entry_is(store: AsyncStore) -> None:
    """Its type, more tags and metadata; what is wrong, or belongs to the provider, is refused."""
    provider, scope = StoreProvider(store, type="fact", tags=("a",)), Scope(agent_id="ada")
    told = {"type": "decision", "tags": ["b"], "metadata": {"signal": "s1"}}
    await provider.put(None, "k", {"x": 1}, {**ADA, **told})
    (entry,) = await store.list_entries(scope)
    assert (entry.type, entry.tags) == ("decision", ("a", "b"))
    assert entry.metadata == {"signal": "s1", "key": "k", "value": {"x": 1}}
    assert await value(provider, "k", ADA) == {"x": 1}
    await provider.put(None, "k", "text", {**ADA, "type": None, "tags": None, "metadata": None})
    (entry,) = await store.list_entries(scope)
    assert (entry.type, entry.tags, entry.metadata) == ("fact", ("a",), {"key": "k"})
    wrong: list[dict[str, Any]] = [
        {"type": "nonsense"},
        {"tags": "b"},
        {"tags": [3]},
        {"metadata": 3},
        {"metadata": {"value": "forged"}},
        {"metadata": {"key": "forged"}},
    ]
    for opts in wrong:
        assert isinstance(await provider.put(None, "k", "other", {**ADA, **opts}), ProviderFailure)
    assert await value(provider, "k", ADA) == "text"


async def test_memories_that_came_another_way_are_found_by_their_ids(store: AsyncStore) -> None:
    """They can be read and deleted like what was put; what their metadata says is not their value."""
    provider, scope = StoreProvider(store), Scope(agent_id="ada")
    fields: Any = {"metadata": {"key": "tea", "value": "forged"}}
    id = (await verbs.remember(store, "Ada drinks tea.", scope, **fields)).id
    (hit,) = await query_records(provider, ADA, text="tea")
    assert (hit["key"], hit["value"]) == (id, "Ada drinks tea.")
    assert await value(provider, id, ADA) == "Ada drinks tea."
    assert await value(provider, id, BOB) == "not_found"
    await provider.put(None, id, "mine", ADA)
    assert await value(provider, id, ADA) == "mine"
    await provider.delete(None, id, ADA)
    assert await value(provider, id, ADA) == "not_found"


async def test_deleting_can_be_taken_back_and_erasing_cannot(store: AsyncStore) -> None:
    """A deleted value stays in the history of its entry; an erased one leaves nothing."""
    provider, scope = StoreProvider(store), Scope(agent_id="ada")
    await provider.put(None, "k", "tea", ADA)
    (entry,) = await store.list_entries(scope)
    await provider.delete(None, "k", ADA)
    await store.reinstate(entry.id, scope)
    assert await value(provider, "k", ADA) == "tea"
    await provider.delete(None, "k", ADA)
    await provider.delete(None, "k", {**ADA, "erase": True})
    assert await store.list_entries(scope) == []
    assert isinstance(await provider.delete(None, "k", {**ADA, "erase": True}), ProviderResult)
    await provider.put(None, "k", "tea", ADA)
    assert await value(provider, "k", ADA) == "tea"


async def test_what_has_expired_is_not_found(store: AsyncStore) -> None:
    """An entry that counts no more has no value either."""
    with clock.override(FrozenClock(1_000)) as time:
        scope = Scope(agent_id="ada")
        await verbs.remember(store, "Ada drinks tea.", scope, id="m", expires_at=2_000)
        provider = StoreProvider(store)
        assert await value(provider, "m", ADA) == "Ada drinks tea."
        time.advance(1_000)
        assert await value(provider, "m", ADA) == "not_found"


async def test_a_value_can_come_with_its_vector(store: AsyncStore) -> None:
    """It is found by that; one of another size is refused with both sizes, and nothing is put."""
    provider, embedder = StoreProvider(store), HashEmbedder(64)
    lights = [float(one) for one in embedder.embed(["harbour lights"])[0].pooled]
    await provider.put(None, "seven", "Note seven.", {**ADA, "embedding": lights})
    for number in range(4):
        await provider.put(None, f"k{number}", f"Kettle and cups {number}.", ADA)
    (best,) = await query_records(provider, ADA, text="harbour lights", top_k=1)
    assert best["key"] == "seven"
    answer = await provider.put(None, "new", "x", {**ADA, "embedding": [0.5] * 3})
    assert isinstance(answer, ProviderFailure)
    assert "3 numbers" in answer.reason
    assert "hash-64 64" in answer.reason
    assert await value(provider, "new", ADA) == "not_found"


async def test_a_store_without_vectors_says_so() -> None:
    """Whether it has no embedder, or is one that takes none at all."""
    async with open_store("memory://", embedder="none") as store:
        answer = await StoreProvider(store).put(None, "k", "x", {**ADA, "embedding": [1.0]})
        assert isinstance(answer, ProviderFailure)
        assert "no embedder" in answer.reason
    answer = await StoreProvider(ListStore()).put(None, "k", "x", {**ADA, "embedding": [1.0]})
    assert isinstance(answer, ProviderFailure)
    assert "embedding" in answer.reason


async def test_a_store_with_three_methods_will_do() -> None:
    """It puts, gets and answers; that it cannot forget it says plainly, unless there is nothing to."""
    provider = StoreProvider(ListStore())
    assert isinstance(await provider.put(None, "k", {"drink": "tea"}, ADA), ProviderResult)
    assert await value(provider, "k", ADA) == {"drink": "tea"}
    assert [hit["key"] for hit in await query_records(provider, ADA, text="tea")] == ["k"]
    for opts, word in ((ADA, "does not forget"), ({**ADA, "erase": True}, "erase")):
        answer = await provider.delete(None, "k", opts)
        assert isinstance(answer, ProviderFailure)
        assert word in answer.reason
    assert await value(provider, "k", ADA) == {"drink": "tea"}
    assert isinstance(await provider.delete(None, "absent", ADA), ProviderResult)


async def test_a_store_that_breaks_is_told_as_a_failure(store: AsyncStore) -> None:
    """A closed store is no reason to raise."""
    provider = StoreProvider(store)
    await provider.put(None, "k", 1, ADA)
    await store.close()
    for method, args in OPERATIONS:
        assert isinstance(await getattr(provider, method)("state", *args, ADA), ProviderFailure)


async def test_a_url_is_opened_once_and_closed_in_the_end(tmp_path: Path) -> None:
    """However many ask at once; a store that was given is not closed, for it is somebody else's."""
    provider = StoreProvider(f"sqlite:///{tmp_path / 'memory.db'}")
    opened: list[Any] = []

    async def ask() -> None:
        await provider.init(ADA)
        opened.append(await provider.open())

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(ask)
    assert len({id(one) for one in opened}) == 1
    await provider.put(None, "k", 1, ADA)
    await provider.close()
    await provider.close()
    with pytest.raises(StoreFailed):
        await opened[0].list_entries(Scope())
    assert await value(provider, "k", ADA) == 1
    await provider.close()
    async with open_store("memory://", embedder="none") as store:
        borrowed = StoreProvider(store)
        await borrowed.close()
        assert await store.list_entries(Scope()) == []


async def test_a_url_that_leads_nowhere_is_told_at_the_start(tmp_path: Path) -> None:
    """Opening raises, and every operation fails in the same words."""
    provider = StoreProvider(f"sqlite:///{tmp_path}")
    with pytest.raises(StoreFailed, match="is a folder"):
        await provider.init(ADA)
    answer = await provider.get(None, "k", ADA)
    assert isinstance(answer, ProviderFailure)
    assert "is a folder" in answer.reason
