"""Only what is relevant enters a prompt, and what a newer memory updates says so."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.custom_stores import RatedStore
from tests.support.turns import Talker, a_spec, system_of

from omoide import Entry, RecallRequest, RecallResult, Scope, WriteRequest
from omoide.core import Hit
from omoide.core.entry import DEFAULT_MIN_RELEVANCE
from omoide.retrieval import estimate_tokens
from omoide.sessions.context import load_memories
from omoide.turns import preflight, turn
from omoide.turns.prompt import assemble, fit_memories, line_prefixes, memory_block, time_labels


def at(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=UTC).timestamp() * 1000)  # type: ignore[arg-type,misc]


async def rated_store(
    contents: dict[str, str], relevance: dict[str, float | None], agent_id: str = "memory_agent"
) -> RatedStore:
    store = RatedStore(**relevance)
    for id, content in contents.items():
        entry = Entry(id=id, agent_id=agent_id, content=content, created_at=at(2026, 1, 14))
        await store.write(WriteRequest(entry=entry))
    return store


MEMORIES = {"near": "The dentist is Dr. Vega.", "far": "The canoe leaks.", "some": "Tea is green."}
RATED = {"near": 0.8, "far": DEFAULT_MIN_RELEVANCE - 0.01, "some": None}


async def test_nothing_below_the_relevance_of_the_policy_enters_a_prompt() -> None:
    """A turn shows what is relevant and what has no relevance, and asks the store for no more than that."""
    store = await rated_store(MEMORIES, RATED)
    talker = Talker()
    await turn(a_spec(), "Who is my dentist?", model=talker, store=store)
    shown = system_of(talker.prompts[0])
    assert "Dr. Vega" in shown
    assert "Tea is green" in shown
    assert "canoe" not in shown


@pytest.mark.parametrize(("floor", "is_shown"), [(None, True), (0.0, True), (0.5, False)])
async def test_a_policy_sets_its_own_relevance(floor: float | None, is_shown: bool) -> None:
    """None and 0 let everything pass."""
    store = await rated_store(MEMORIES, RATED)
    spec = a_spec(memory={"min_relevance": floor})
    seen = await preflight(spec, "Who is my dentist?", store=store)
    assert ("canoe" in system_of(seen.prompt)) == is_shown


@pytest.mark.parametrize("inject", ["instructions", "context"])
async def test_a_preflight_names_what_was_withheld(inject: str) -> None:
    """Its id, its first words, its relevance and the threshold are on the page, however memory is shown."""
    store = await rated_store(MEMORIES, {**RATED, "far": 0.021})
    seen = await preflight(a_spec(memory={"inject": inject}), "Who is my dentist?", store=store)
    (cut,) = seen.prompt.cut
    assert (cut.part, cut.ref) == ("memory", "far")
    assert cut.reason == f"relevance 0.021 is below min_relevance {DEFAULT_MIN_RELEVANCE}: The canoe leaks."
    assert f"memory far: {cut.reason}" in str(seen)
    assert "relevance 0.80" in str(seen)


async def test_a_preflight_says_that_all_was_withheld() -> None:
    """Where nothing is relevant, the hint is about relevance and not about a wrong scope."""
    store = await rated_store({"far": "The canoe leaks."}, {"far": 0.01})
    seen = await preflight(a_spec(), "Who is my dentist?", store=store)
    assert seen.prompt.memory == {"entries": [], "count": 0}
    assert any("below min_relevance" in hint for hint in seen.diagnostics)
    assert not any("check scope" in hint for hint in seen.diagnostics)


async def test_the_context_of_a_session_holds_only_what_is_relevant() -> None:
    """With a hint, memories below the threshold are left out, and a notice counts them."""
    store = await rated_store(MEMORIES, RATED)
    memories, notices = await load_memories(store, Scope(agent_id="memory_agent"), "dentist")
    assert {one.id for one in memories} == {"near", "some"}
    assert notices == [f"memories below min_relevance {DEFAULT_MIN_RELEVANCE}: 1"]


def hits(*specs: tuple[str, int, str | None], **fields: Any) -> list[Hit]:
    return [
        Hit(
            entry=Entry(id=id, agent_id="a", content=f"I live in {id}.", occurred_at=when, **fields),
            newer=newer,
        )
        for id, when, newer in specs
    ]


MOVED = hits(("Paris", at(2026, 3, 2), None), ("Berlin", at(2025, 1, 14), "Paris"))


def test_a_memory_that_was_updated_refers_to_the_newer_one() -> None:
    """Lines are numbered where one refers to another; the older one names the number of the newer."""
    lines, _ = fit_memories(MOVED, 1_000, estimate_tokens)
    assert [one.line for one in lines] == [
        '- [1] 2026-03-02: "I live in Paris."\n',
        '- [2] 2025-01-14 (older, see [1]): "I live in Berlin."\n',
    ]


def test_a_memory_whose_newer_one_is_not_shown_says_so() -> None:
    """It is marked as older all the same, after its type, and no line is numbered."""
    (prefix,) = line_prefixes(hits(("Berlin", at(2025, 1, 14), "Paris"), type="fact"))
    assert prefix == "- 2025-01-14 (fact, older, a newer one is not shown)"


def test_a_memory_whose_newer_one_is_pinned_says_so() -> None:
    """The newer one stands above, among the pins, so it is not called missing."""
    recalled = RecallResult(request=RecallRequest(agent_id="a", query="Where?"), hits=tuple(MOVED))
    pinned = [hit.entry for hit in MOVED if hit.newer is None]
    prompt = assemble(a_spec(), "Where do I live?", recalled=recalled, pinned=pinned)
    assert '- 2025-01-14 (older, the newer one is pinned): "I live in Berlin."' in system_of(prompt)


@given(room=st.integers(0, 200))
def test_a_reference_always_leads_to_a_line(room: int) -> None:
    """However little room there is, no line refers to one that was left out."""
    many = [*MOVED, *hits(*((f"{'far ' * 30}{at}", at, "Paris") for at in range(3)))][::-1]
    lines, omitted = fit_memories(many, room, estimate_tokens)
    assert len(lines) + len(omitted) == len(many)
    shown = {line.entry.id for line in lines}
    for line in lines:
        assert ("older, see [" in line.line) == ("Paris" in shown and line.entry.id != "Paris")
    assert not lines or estimate_tokens(memory_block(lines)) <= room


@pytest.mark.parametrize(
    ("times", "labels"),
    [
        ([at(2026, 1, 14, 9, 30), at(2026, 1, 15, 9, 30)], ["2026-01-14", "2026-01-15"]),
        (
            [at(2026, 1, 14, 9, 30), at(2026, 1, 14, 18), at(2026, 1, 15)],
            ["2026-01-14 09:30", "2026-01-14 18:00", "2026-01-15"],
        ),
        (
            [at(2026, 1, 14, 9, 30, 5), at(2026, 1, 14, 9, 30, 7), at(2026, 1, 14, 18)],
            ["2026-01-14 09:30:05", "2026-01-14 09:30:07", "2026-01-14 18:00"],
        ),
        ([at(2026, 1, 14, 9, 30)] * 2, ["2026-01-14"] * 2),
        ([], []),
    ],
)
def test_lines_carry_the_time_of_day_where_the_date_does_not_order_them(
    times: list[int], labels: list[str]
) -> None:
    """Two memories of one date have their minutes, those of one minute their seconds, equal times neither."""
    entries = [Entry(agent_id="a", content="Tea.", occurred_at=time) for time in times]
    assert time_labels(entries) == labels


async def test_the_data_of_a_prompt_has_relevance_and_the_newer_memory() -> None:
    """`prompt.memory` has both for each memory, and the page of a preflight shows them."""
    store = await rated_store({"new": "Lives in Paris.", "old": "Lives in Berlin."}, {"new": 0.9, "old": 0.7})
    store.newer = {"old": "new"}
    seen = await preflight(a_spec(), "Where do I live?", store=store)
    assert seen.prompt.memory is not None
    data = {one["id"]: (one["relevance"], one["newer"]) for one in seen.prompt.memory["entries"]}
    assert data == {"new": (0.9, None), "old": (0.7, "new")}
    assert "newer: new" in str(seen)
