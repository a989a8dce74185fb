"""Pending memories are ordered, limited, and promoted by importance."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide import Entry, Evidence
from omoide.core import codec
from omoide.errors import Invalid, InvalidRecord, WrongType
from omoide.shortterm import PendingItem, PendingMemories
from omoide.testing import reproducible

EMPTY = PendingMemories()
GIVEN: dict[str, Any] = {
    "agent_id": "coder",
    "content": "Use Postgres.",
    "memory_type": "decision",
    "confidence": 0.8,
    "source_type": "user",
}


def make_item(id: str, score: float | None = None, **fields: Any) -> PendingItem:
    return PendingItem.new({**GIVEN, "id": id, "importance_score": score, "created_at": 0, **fields})


def make_pending(
    *items: PendingItem, decided: tuple[PendingItem, ...] = (), **limits: Any
) -> PendingMemories:
    pending = PendingMemories(**limits)
    for item in items:
        pending, _ = pending.add_implicit(item)
    for item in decided:
        pending, _ = pending.add_agent_decision(item)
    return pending


def names(items: object) -> str:
    assert isinstance(items, (list, tuple))
    return "".join(item.id for item in items)


def test_an_item_is_the_entry_that_it_will_be() -> None:
    """Every part of it has one place, and the names of the design lead there."""
    with reproducible(at=5):
        item = PendingItem.new(
            GIVEN, evidence=["README.md", Evidence(kind="message", ref="t:3")], rationale="why"
        )
    assert item.entry == Entry(
        id="mem_1",
        agent_id="coder",
        content="Use Postgres.",
        type="decision",
        confidence=0.8,
        source="user",
        importance=0.5,
        rationale="why",
        evidence=(Evidence(kind="document", ref="README.md"), Evidence(kind="message", ref="t:3")),
        created_at=5,
    )
    assert (item.id, item.content, item.confidence, item.source_type) == (
        "mem_1",
        "Use Postgres.",
        0.8,
        "user",
    )
    assert item.memory_type == item.suggested_type == "decision"
    assert (item.evidence, item.rationale) == (item.entry.evidence, "why")
    assert (item.importance_score, item.created_at, item.access_count) == (0.5, 5, 0)
    assert item.suggested_by == "implicit"


@pytest.mark.parametrize("name", ["type", "memory_type", "suggested_type"])
def test_a_type_may_come_under_each_of_its_names(name: str) -> None:
    """The same for source, importance and evidence."""
    given = {key: value for key, value in GIVEN.items() if key != "memory_type"}
    item = PendingItem.new({**given, name: "risk"})
    assert item.memory_type == item.suggested_type == item.entry.type == "risk"


def test_other_names_are_known_too() -> None:
    """`source`, `importance`, `evidence_refs`, and evidence as a mapping."""
    item = PendingItem.new(
        agent_id="coder",
        content="x",
        type="fact",
        confidence=1,
        source="tool",
        importance=0.9,
        evidence_refs=[{"kind": "tool", "ref": "t:4"}],
        suggested_by="agent",
        access_count=3,
    )
    assert (item.source_type, item.importance_score, item.access_count) == ("tool", 0.9, 3)
    assert item.evidence == (Evidence(kind="tool", ref="t:4"),)
    assert PendingItem.new(item) == item


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"content": None}, "content is missing"),
        ({"content": " "}, "content is empty"),
        ({"memory_type": None}, "type is missing"),
        ({"memory_type": "rumour"}, "type is 'rumour'"),
        ({"memory_type": "fact", "type": "risk"}, "type differs from type|memory_type differs from type"),
        ({"confidence": None}, "confidence is missing"),
        ({"confidence": 2}, "confidence is 2"),
        ({"source_type": None}, "source is missing"),
        ({"source_type": "rumour"}, "source is 'rumour'"),
        ({"importance_score": 1.1}, "importance is 1.1"),
        ({"evidence": "README.md"}, "evidence must be a list"),
        ({"evidence": [7]}, r"evidence\[0\] must be a Evidence"),
        ({"evidence": [{"kind": "rumour", "ref": "x"}]}, "kind is 'rumour'"),
        ({"suggested_by": "rumour"}, "suggested_by is 'rumour'; use one of implicit, agent"),
        ({"access_count": -1}, "access_count is -1"),
        ({"agent_id": ""}, "agent_id must be a non-empty string"),
        ({"colour": "red"}, "colour is an unknown field"),
    ],
)
def test_a_wrong_part_of_an_item_is_named(fields: dict[str, Any], problem: str) -> None:
    """And that it is a part of a pending memory."""
    with pytest.raises(InvalidRecord, match=f"invalid pending memory: .*(?:{problem})"):
        PendingItem.new({**GIVEN, **fields})


def test_what_is_no_mapping_is_no_item() -> None:
    """Nor is what is no item taken in."""
    with pytest.raises(InvalidRecord, match="must be a mapping or a PendingItem, not str"):
        PendingItem.new("Use Postgres.")  # type: ignore[arg-type]
    for add in (EMPTY.add_implicit, EMPTY.add_agent_decision):
        with pytest.raises(WrongType, match="item must be a PendingItem, not dict"):
            add(GIVEN)  # type: ignore[arg-type]


def test_an_item_takes_the_place_of_an_older_one() -> None:
    """There is one item for each id."""
    pending = make_pending(make_item("a", 0.4), make_item("b"), make_item("a", 0.7))
    assert pending.size == 2
    found = pending.get("a")
    assert found is not None
    assert found.importance_score == 0.7


def test_the_least_important_leaves_when_there_are_too_many() -> None:
    """Be it the new one; of several, the one that waited longest."""
    pending = make_pending(make_item("a", 0.5), make_item("b", 0.3), make_item("c", 0.3), max_items=3)
    fuller, evicted = pending.add_implicit(make_item("d", 0.4))
    assert (names(evicted), names(fuller.list_implicit())) == ("b", "acd")
    same, evicted = pending.add_implicit(make_item("d", 0.1))
    assert (names(evicted), names(same.list_implicit())) == ("d", "abc")
    again, evicted = pending.add_implicit(make_item("b", 0.9))
    assert (evicted, names(again.list_implicit())) == ((), "acb")


def test_five_hundred_items_and_a_hundred_decisions_wait() -> None:
    """Unless other limits are set."""
    pending = make_pending(*(make_item(str(at), 0.5 + at / 10_000) for at in range(501)))
    assert pending.size == 500
    assert pending.get("0") is None
    decided = make_pending(decided=tuple(make_item(str(at)) for at in range(101)))
    assert decided.size == 100
    assert decided.get("0") is None
    assert decided.list_agent_decisions()[0].id == "100"


def test_what_the_agent_decided_is_as_important_as_can_be() -> None:
    """Newest first, and the oldest is handed back when there are too many."""
    pending, evicted = EMPTY.add_agent_decision(make_item("a", 0.1))
    assert evicted == ()
    (decision,) = pending.list_agent_decisions()
    assert (decision.importance_score, decision.suggested_by) == (1.0, "agent")
    full = make_pending(decided=(make_item("a"), make_item("b"), make_item("c")), max_agent_decisions=3)
    fuller, evicted = full.add_agent_decision(make_item("d"))
    assert (names(evicted), names(fuller.list_agent_decisions())) == ("a", "dcb")
    again, evicted = full.add_agent_decision(make_item("a"))
    assert (evicted, names(again.list_agent_decisions())) == ((), "acb")


def test_an_id_waits_in_one_place() -> None:
    """What the agent decides was noticed before, and is not noticed again."""
    pending = make_pending(make_item("a", 0.2), decided=(make_item("a"),))
    assert (pending.size, pending.list_implicit()) == (1, [])
    again, _ = pending.add_implicit(make_item("a", 0.2))
    assert again == pending


def test_the_important_and_the_decided_are_ready() -> None:
    """Most important first; the threshold is not asked about decisions."""
    pending = make_pending(
        make_item("a", 0.6), make_item("b", 0.9), make_item("c", 0.59), decided=(make_item("d", 0.0),)
    )
    assert names(pending.ready_for_promotion()) == "dba"
    assert names(pending.ready_for_promotion(0.9)) == "db"
    assert names(pending.ready_for_promotion(1.1)) == "d"
    assert names(pending.ready_for_promotion(0)) == "dbac"
    with pytest.raises(WrongType, match="threshold must be a number"):
        pending.ready_for_promotion("high")  # type: ignore[arg-type]


def test_a_score_that_equals_the_threshold_on_paper_is_ready() -> None:
    """Whatever rounding made of it."""
    almost = 0.2 + 0.3 * 0.5 + 0.25 * 0.7 + 0.25 * 0.3
    assert almost < 0.6
    assert names(make_pending(make_item("a", almost)).ready_for_promotion(0.6)) == "a"


def test_only_what_was_promoted_is_cleared() -> None:
    """In both places; decisions that were not promoted still wait."""
    pending = make_pending(make_item("a"), make_item("b"), decided=(make_item("c"), make_item("d")))
    left = pending.clear_promoted(["a", "c", "nobody"])
    assert (names(left.list_implicit()), names(left.list_agent_decisions())) == ("b", "d")
    assert pending.clear_promoted([]) == pending
    assert pending.clear_promoted({"a", "b", "c", "d"}).size == 0
    with pytest.raises(WrongType, match="ids must be a list of strings"):
        pending.clear_promoted("a")


def test_a_score_can_be_set_for_what_was_noticed() -> None:
    """It is brought into 0 to 1; what was decided keeps its own, and who is gone is no error."""
    pending = make_pending(make_item("a", 0.2), decided=(make_item("d"),))
    for score, kept in ((0.7, 0.7), (3, 1.0), (-1, 0.0)):
        found = pending.update_score("a", score).get("a")
        assert found is not None
        assert found.importance_score == kept
    assert pending.update_score("d", 0.1) == pending
    assert pending.update_score("nobody", 0.1) == pending
    with pytest.raises(Invalid, match="score is no number"):
        pending.update_score("a", float("nan"))


def test_items_are_found_wherever_they_wait() -> None:
    """By id; and all of them can be dropped."""
    pending = make_pending(make_item("a"), decided=(make_item("d"),), max_items=7)
    assert [getattr(pending.get(id), "id", None) for id in "adx"] == ["a", "d", None]
    assert pending.clear() == PendingMemories(max_items=7)


def test_items_that_no_adding_could_have_made_are_refused() -> None:
    """One id twice, and what is no item."""
    with pytest.raises(InvalidRecord, match=r"agent_decisions\[0\].id is 'a' once more"):
        PendingMemories(items=(make_item("a"),), agent_decisions=(make_item("a"),))
    with pytest.raises(InvalidRecord, match=r"items\[0\] must be a PendingItem"):
        PendingMemories(items=({},))  # type: ignore[arg-type]
    with pytest.raises(InvalidRecord, match="max_items is 0"):
        PendingMemories(max_items=0)


STEPS = st.tuples(
    st.sampled_from(["notice", "decide", "promote", "score"]), st.sampled_from("abcdefgh"), st.floats(0, 1)
)


@given(st.lists(STEPS, max_size=40))
def test_what_waits_is_what_was_added_and_not_handed_back(steps: list[tuple[str, str, float]]) -> None:
    """Whatever is done: limits hold, nothing is lost silently, and it is read back as it was written."""
    pending, model = PendingMemories(max_items=3, max_agent_decisions=2), set[str]()
    for what, id, score in steps:
        if what == "promote":
            pending, model = pending.clear_promoted([id]), model - {id}
            continue
        if what == "score":
            pending = pending.update_score(id, score)
            continue
        add = pending.add_implicit if what == "notice" else pending.add_agent_decision
        pending, evicted = add(make_item(id, score))
        model = (model | {id}) - {one.id for one in evicted}
    both = [*pending.list_implicit(), *pending.list_agent_decisions()]
    assert sorted(one.id for one in both) == sorted(model)
    assert len(pending.list_implicit()) <= 3
    assert len(pending.list_agent_decisions()) <= 2
    ready = [one.importance_score for one in pending.ready_for_promotion(0)]
    assert ready == sorted(ready, reverse=True)
    assert len(ready) == pending.size
    assert codec.from_builtins(codec.to_builtins(pending), PendingMemories) == pending
