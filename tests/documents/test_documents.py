"""Adding documents: passages with evidence, again after changes, on every store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.documents import GUIDE, make_pdf
from tests.support.stores import url

import omoide
from omoide import AgentSpec, Entry, Filter, Scope, open_store
from omoide.documents import DocumentResult
from omoide.errors import Conflict, Invalid, WrongType
from omoide.stores import Query

ADA = Scope(agent_id="ada", project_id="shop")


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    """An empty store of each kind."""
    async with open_store(url(request.param, tmp_path), embedder="none", guard="refuse") as opened:
        yield opened


async def add(store: Any, text: str, name: str = "guide.md", **options: Any) -> DocumentResult:
    """Add a text under a name."""
    return await omoide.add_document(store, text.encode(), ADA, name=name, **options)


async def live(store: Any, scope: Scope = ADA) -> dict[str, Entry]:
    """The passages in use, by the first words of their text."""
    page = await store.query(Query(scope=scope, limit=500))
    return {
        entry.content.rpartition("\n")[2][:12]: entry
        for entry in page.entries
        if not entry.id.startswith("doc_")
    }


async def test_a_document_becomes_passages_with_evidence(store: Any) -> None:
    """Path, heading and place are in the evidence and the metadata; the owner is that of the scope."""
    result = await add(store, GUIDE, tags=["handbook"])
    assert (result.outcome, result.passages, result.added) == ("stored", 3, 3)
    entry = (await live(store))["The service "]
    start = GUIDE.index("The service")
    assert [(one.kind, one.ref) for one in entry.evidence] == [
        ("document", f"guide.md#char={start},{len(GUIDE) - 1}"),
        ("entry", result.id),
    ]
    assert entry.metadata["heading"] == "Guide > Ports"
    assert (entry.scope, entry.source, "handbook" in entry.tags) == (ADA, "external_document", True)
    assert (await store.get(result.id, ADA)).content == "Document guide.md: Guide; Setup; Ports"


async def test_a_page_is_part_of_the_evidence(store: Any) -> None:
    """What a PDF file says leads to the page."""
    data = make_pdf([["Sales were up."], ["Costs were down."]])
    await omoide.add_document(store, data, ADA, name="report.pdf")
    entry = (await live(store))["Costs were d"]
    assert entry.metadata["page"] == 2
    assert entry.evidence[0].ref.startswith("report.pdf#page=2&char=")


async def test_passages_are_found_by_what_they_and_their_headings_say(store: Any) -> None:
    """A question about the heading finds the passage under it, and a filter those of one document."""
    result = await add(store, GUIDE)
    await add(store, "The other service listens on port 1.\n", "other.txt")
    found = await omoide.recall(store, "which database in the setup?", ADA, limit=1)
    assert found.entries[0].metadata["heading"] == "Guide > Setup"
    mine = await omoide.recall(store, "port", ADA, filter=Filter(tags=[result.id]))
    assert {entry.metadata["path"] for entry in mine.entries} == {"guide.md"}


async def test_a_prompt_shows_the_passages_and_not_the_entry_of_their_document() -> None:
    """Where a passage was recalled, the list of sections takes no room; alone, it is shown."""
    spec = AgentSpec(id="ada", memory=True)
    async with open_store("memory://", embedder="none") as store:
        result = await omoide.add_document(store, GUIDE.encode(), Scope(agent_id="ada"), name="guide.md")
        prompt = (await omoide.preflight(spec, "Which ports does the guide name?", store=store)).prompt
        assert "8765" in prompt.messages[0].content
        assert "Document guide.md" not in prompt.messages[0].content
        assert [cut.ref for cut in prompt.cut] == [result.id]
        for entry in (await live(store, Scope(agent_id="ada"))).values():
            await omoide.forget(store, entry.id, Scope(agent_id="ada"))
        prompt = (await omoide.preflight(spec, "Which ports does the guide name?", store=store)).prompt
        assert "Document guide.md" in prompt.messages[0].content


async def test_adding_an_unchanged_document_changes_nothing(store: Any) -> None:
    """No revision, no new entry, no change in the feed."""
    first = await add(store, GUIDE)
    before = await store.list_entries(ADA), (await store.stats(ADA)).last_seq
    again = await add(store, GUIDE)
    assert (again.outcome, again.id) == ("unchanged", first.id)
    assert (await store.list_entries(ADA), (await store.stats(ADA)).last_seq) == before


async def test_what_changed_supersedes_what_was_there(store: Any) -> None:
    """The rest stays as it is, at its new place in a new revision; what is gone is superseded, too."""
    first = await add(store, GUIDE)
    before = await live(store)
    changed = GUIDE.replace("port 8765", "port 80").replace("Omoide keeps what agents learn.\n\n", "")
    result = await add(store, changed)
    assert (result.outcome, result.passages) == ("updated", 2)
    assert (result.superseded, result.removed, result.moved, result.added) == (1, 1, 1, 0)
    after = await live(store)
    assert after["It needs 2 G"].id == before["It needs 2 G"].id
    assert after["It needs 2 G"].metadata["start"] == changed.index("The database")
    old = await store.get(before["The service "].id, ADA)
    assert old.superseded_by == after["The service "].id
    assert (await store.get(before["Omoide keeps"].id, ADA)).superseded_by == first.id


async def test_documents_of_others_are_not_touched(store: Any) -> None:
    """The same name in another scope, with a user or session of its own, is another document."""
    await add(store, GUIDE)
    others = [ADA.replace(user_id="u"), ADA.replace(session_id="s"), ADA.replace(agent_id="bob")]
    for scope in others:
        added = await omoide.add_document(store, b"# Guide\n\nMine.\n", scope, name="guide.md")
        assert (added.outcome, added.passages) == ("stored", 1)
    assert (await add(store, GUIDE)).outcome == "unchanged"


async def test_forgetting_the_document_takes_its_passages_out_and_adding_brings_them_back(store: Any) -> None:
    """Passages derive from the entry of the document; the receipt of erasing it names them."""
    result = await add(store, GUIDE)
    await omoide.forget(store, result.id, ADA)
    assert await live(store) == {}
    assert (await add(store, GUIDE)).outcome == "restored"
    assert len(await live(store)) == 3
    passages = {entry.id for entry in (await live(store)).values()}
    receipt = await omoide.erase(store, ADA, id=result.id)
    assert all(any(id in line for line in receipt.unreachable) for id in passages)
    assert (await add(store, GUIDE)).outcome == "stored"
    assert {entry.id for entry in (await live(store)).values()} == passages


@pytest.mark.parametrize("way", ["forgotten", "superseded"])
async def test_adding_an_unchanged_document_brings_back_nothing_that_was_taken_out(
    store: Any, way: str
) -> None:
    """A passage that was forgotten, or corrected by another memory, stays so until the document differs."""
    await add(store, GUIDE)
    wrong = next(entry for entry in (await live(store)).values() if "8765" in entry.content)
    if way == "forgotten":
        await omoide.forget(store, wrong.id, ADA, reason="wrong")
    else:
        await omoide.remember(store, "The port is 99.", ADA, supersedes=wrong.id)
    before = await store.list_entries(ADA)
    again = await add(store, GUIDE)
    assert (again.outcome, again.added) == ("unchanged", 0)
    assert await store.list_entries(ADA) == before
    moved = await add(store, f"# Preface\n\nNew.\n\n{GUIDE}")
    assert (moved.added, moved.superseded, moved.removed) == (1, 0, 0)
    assert not any("8765" in entry.content for entry in (await live(store)).values())
    changed = await add(store, GUIDE.replace("8765", "80"))
    assert (changed.outcome, changed.added, changed.superseded) == ("updated", 0, 1)
    assert any("port 80" in entry.content for entry in (await live(store)).values())


async def test_two_programs_that_add_a_document_do_not_store_it_twice(store: Any) -> None:
    """The one that comes second gets a conflict, and nothing of what it wrote stays."""
    await add(store, GUIDE)

    class Late:
        """A store in which another program is faster."""

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        async def write_many(self, requests: Any) -> Any:
            await add(store, "# Guide\n\nTheirs.\n")
            return await store.write_many(requests)

    with pytest.raises(Conflict):
        await add(Late(), "# Guide\n\nOurs.\n")
    assert [*await live(store)] == ["Theirs."]


async def test_what_is_neither_a_path_nor_bytes_is_refused(store: Any) -> None:
    """The error names the argument and what it takes."""
    with pytest.raises(WrongType, match="source must be a path or bytes, not int"):
        await omoide.add_document(store, 123, ADA)  # type: ignore[arg-type]


async def test_a_document_is_whole_or_absent(store: Any) -> None:
    """A passage that the store refuses leaves nothing of its file."""
    text = "# One\n\nFine.\n\n# Two\n\nThe password is hunter22.\n"
    with pytest.raises(Invalid, match="password"):
        await add(store, text)
    assert await store.list_entries(ADA) == []
