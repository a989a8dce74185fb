"""A memory leads back to the messages it was derived from."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.custom_stores import ListStore
from tests.support.longterm import SHOP, a_store, connect, keep, keep_transcript

from omoide import Evidence, Scope, recall
from omoide.core import MessageRef
from omoide.errors import Invalid, NotFound
from omoide.longterm import Provenance, TracedEvidence, lineage, provenance
from omoide.testing import reproducible

ADA = Scope(agent_id="ada")


def message(ref: str) -> Evidence:
    return Evidence(kind="message", ref=ref)


def statuses(one: Provenance) -> list[str]:
    return [traced.status for traced in one.evidence]


async def test_a_recalled_line_leads_back_to_the_message(store: Any) -> None:
    """From what recall gives, through what it rests on, to what the user said, and when."""
    await keep_transcript(store, "t1", "We need vectors.", "Then take Postgres.", session_id="conv")
    await keep(store, "need", "They need vectors.", type="fact", evidence=[message("t1:0")])
    await keep(store, "choice", "Use Postgres.", type="decision", on=["need"])
    (hit,) = (await recall(store, "Use Postgres", SHOP, limit=1)).hits
    traced = await provenance(store, hit.entry.id, SHOP)
    (source,) = traced.sources()
    assert source.said is not None
    assert (source.said.role, source.said.content, source.said.at) == ("user", "We need vectors.", 1_000)
    assert (source.said.thread, source.said.seq) == ("t1", 0)


async def test_the_message_that_a_memory_is_leads_back_too(store: Any) -> None:
    """A memory that was captured from a conversation knows its own place in it."""
    await keep_transcript(store, "t1", "I am Alex.", "Hello, Alex.")
    await keep(store, "said", "I am Alex.", message=MessageRef(thread="t1", seq=0, role="user"))
    traced = await provenance(store, "said", SHOP)
    assert traced.message is not None
    assert traced.message.said is not None
    assert traced.message.said.content == "I am Alex."
    assert len(traced.sources()) == 1


async def test_every_kind_of_evidence_is_followed_or_named(store: Any) -> None:
    """What has something to show is shown; other tools and documents are named, with their quote."""
    await keep_transcript(store, "t1", "hi", "hello")
    evidence = [
        Evidence(kind="tool", ref="t1:1"),
        Evidence(kind="tool", ref="web_search"),
        Evidence(kind="document", ref="https://example.com/guide", quote="Use indexes."),
        message("t1:99"),
        message("t2:0"),
        message("t1"),
        message("t1:x"),
        Evidence(kind="entry", ref="nothing"),
    ]
    await keep(store, "one", evidence=evidence)
    traced = await provenance(store, "one", SHOP)
    assert statuses(traced) == ["found", "named only", "named only", *["outside the scope"] * 5]
    told = str(traced)
    assert "document https://example.com/guide: “Use indexes.”" in told
    assert "tool web_search" in told
    assert "message t1:99 — outside the scope" in told


async def test_chains_are_followed_and_circles_end(store: Any) -> None:
    """Premises are shown with their own premises; one that was shown above is not shown again."""
    await keep(store, "a", on=["b", "c"])
    await keep(store, "b", on=["c"])
    await keep(store, "c", on=["a"])
    traced = await provenance(store, "a", SHOP)
    b = traced.evidence[0].memory
    assert b is not None
    c = b.evidence[0].memory
    assert c is not None
    assert (b.entry.id, c.entry.id) == ("b", "c")
    assert statuses(c) == ["shown above"]
    assert traced.evidence[1].status == "shown above"
    assert str(traced).count("“This is c.”") == 1


async def test_a_long_chain_is_cut_where_asked(store: Any) -> None:
    """A depth says how many memories are shown in a row; more than is sensible is refused."""
    await keep(store, "m0")
    for at in range(1, 6):
        await keep(store, f"m{at}", on=[f"m{at - 1}"])
    shallow = await provenance(store, "m5", SHOP, depth=2)
    below = shallow.evidence[0].memory
    assert below is not None
    assert statuses(below) == ["deeper than was asked for"]
    deep = str(await provenance(store, "m5", SHOP))
    assert [f"“This is m{at}.”" in deep for at in range(6)] == [True] * 6
    for wrong in (0, 101):
        with pytest.raises(Invalid, match="depth"):
            await provenance(store, "m5", SHOP, depth=wrong)


async def test_what_took_whose_place_is_told_with_reason_and_time(store: Any) -> None:
    """Both ends of a supersession name each other."""
    with reproducible(5_000):
        await keep(store, "old", "It is blue.")
        await keep(store, "new", "It is red.")
        await store.supersede("old", SHOP, by="new", reason="repainted")
        await keep(store, "gone")
        await store.supersede("gone", SHOP, reason="wrong")
    new, old, gone = [await provenance(store, id, SHOP) for id in ("new", "old", "gone")]
    (before,) = new.supersedes
    assert (before.id, before.at, before.reason) == ("old", 5_000, "repainted")
    assert before.entry is not None
    after = old.superseded_by
    assert after is not None
    assert (after.id, after.at, after.reason) == ("new", 5_000, "repainted")
    assert new.superseded_by is None
    assert "superseded by new “It is red.” (repainted, 1970-01-01 00:00)" in str(old)
    assert "forgotten (wrong, 1970-01-01 00:00)" in str(gone)


async def test_links_are_part_of_it(store: Any) -> None:
    """Relations to other memories are shown in the direction in which they were made."""
    for name in ("one", "two"):
        await keep(store, name)
    await connect(store, "one", "refines", "two")
    assert "refines two" in str(await provenance(store, "one", SHOP))
    assert "one refines this" in str(await provenance(store, "two", SHOP))


async def test_what_was_erased_says_so(store: Any) -> None:
    """A premise that was erased is named with the time and the reason, and never with its words."""
    await keep(store, "secret", "The password is swordfish.")
    await keep(store, "one", on=["secret"])
    with reproducible(9_000):
        await store.erase(SHOP, id="secret", reason="asked for")
    traced = await provenance(store, "one", SHOP)
    (gone,) = traced.evidence
    assert (gone.status, gone.at, gone.reason) == ("erased", 9_000, "asked for")
    assert "swordfish" not in str(traced)
    assert "entry secret — erased (asked for" in str(traced)


async def test_a_reader_sees_nothing_outside_its_scope(store: Any) -> None:
    """Memories and transcripts of other agents, sessions and projects stay unseen, whoever names them."""
    await keep(store, "theirs", "Eve likes tea.", scope=Scope(agent_id="eve", project_id="shop"))
    await keep_transcript(store, "of_eve", "Eve said tea.", agent_id="eve", session_id="eves")
    await keep_transcript(store, "of_farm", "Cows eat grass.", session_id="farms", project_id="farm")
    await keep_transcript(store, "of_other", "Other words.", session_id="other", project_id="shop")
    evidence = [message("of_eve:0"), message("of_farm:0"), message("of_other:0")]
    mine = Scope(agent_id="ada", session_id="conv", project_id="shop")
    await keep(store, "mine", scope=mine, on=["theirs"], evidence=evidence)
    found = {
        "session": await provenance(store, "mine", mine),
        "project": await provenance(store, "mine", SHOP),
        "agent": await provenance(store, "mine", ADA),
        "all": await provenance(store, "mine", Scope()),
    }
    seen = {name: [one.status == "found" for one in each.evidence] for name, each in found.items()}
    assert seen == {
        "session": [False, False, False, False],
        "project": [False, False, False, True],
        "agent": [False, False, True, True],
        "all": [True, True, True, True],
    }
    assert "tea" not in str(found["agent"])
    with pytest.raises(NotFound):
        await provenance(store, "theirs", SHOP)


async def test_transcripts_may_lie_in_another_namespace(store: Any) -> None:
    """A program that keeps sessions elsewhere says where, and only then they are read."""
    await keep_transcript(store, "t1", "Hello there.", namespace="sessions")
    await keep(store, "one", evidence=[message("t1:0")])
    assert statuses(await provenance(store, "one", SHOP)) == ["outside the scope"]
    elsewhere = await provenance(store, "one", SHOP, documents_in=Scope(namespace="sessions"))
    assert elsewhere.evidence[0].said is not None
    assert elsewhere.evidence[0].said.content == "Hello there."


async def test_threads_with_colons_and_strange_entries_are_read(store: Any) -> None:
    """The position is what stands after the last colon; what is no message is shown as what it is."""
    await keep_transcript(store, "urn:t:1", "Hello there.")
    await store.append(
        "thread",
        "urn:t:1",
        [
            {"seq": 1, "kind": "tool_result", "payload": {"name": "add", "content": "5"}},
            "nonsense",
            {"seq": 3},
        ],
        Scope(),
    )
    await keep(store, "one", evidence=[message(f"urn:t:1:{seq}") for seq in (0, 1, 2, 3)])
    said = [one.said for one in (await provenance(store, "one", SHOP)).evidence]
    assert [None if one is None else (one.kind, one.role, one.content) for one in said] == [
        ("message", "user", "Hello there."),
        ("tool_result", "add", "5"),
        None,
        ("note", None, ""),
    ]


class Bookless:
    """A store that finds, lists and links memories, and keeps no documents."""

    def __init__(self, store: Any) -> None:
        self.get, self.query, self.history, self.stats = store.get, store.query, store.history, store.stats
        self.link, self.unlink, self.links = store.link, store.unlink, store.links


async def test_a_store_without_documents_names_the_places(store: Any) -> None:
    """Where no transcripts are kept, messages are named and nothing fails; other needs are told."""
    await keep(store, "one", on=["two"], evidence=[message("t1:0")])
    assert statuses(await provenance(Bookless(store), "one", SHOP)) == ["outside the scope"] * 2
    with pytest.raises(Invalid, match="cannot find"):
        await provenance(ListStore(), "one", SHOP)


def test_a_long_tree_is_shown_without_end_or_breaks() -> None:
    """Long and broken texts take one line each, and are cut."""
    told = lineage.render_tree((lineage.quote_text("a\nb" * 500), [("c", [("d", [])]), ("e", [])]))
    first, *rest = told.splitlines()
    assert len(first) <= lineage.MAX_TEXT_LENGTH + 2
    assert rest == ["├── c", "│   └── d", "└── e"]


Graph = list[list[int]]


@given(st.lists(st.lists(st.integers(0, 6), max_size=4, unique=True), min_size=7, max_size=7))
async def test_each_premise_that_can_be_reached_is_shown_once(graph: Graph) -> None:
    """Whatever rests on what, each memory appears once with its words, and the walk ends."""
    async with a_store("memory") as store:
        for at, premises in enumerate(graph):
            await keep(store, f"m{at}", on=[f"m{other}" for other in premises])
        reached, left = {0}, [0]
        while left:
            new = {*graph[left.pop()]} - reached
            reached |= new
            left += new
        shown: list[str] = []

        def walk(one: Provenance) -> None:
            shown.append(one.entry.id)
            for traced in one.evidence:
                assert isinstance(traced, TracedEvidence)
                if traced.memory is not None:
                    walk(traced.memory)

        walk(await provenance(store, "m0", SHOP))
        assert sorted(shown) == sorted(f"m{at}" for at in reached)
