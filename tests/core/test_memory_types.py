"""The memory types of the ontology and their hierarchy."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.memory import check_remedy

from omoide import Entry, Filter, graph
from omoide.core import MEMORY_TYPES, TYPE_WORDS, entry
from omoide.errors import InvalidRecord, NotFound, OmoideError
from omoide.projection.plugins import CaptureRule
from omoide.promotion.extraction import Rule
from omoide.shortterm.importance import score

every_type = pytest.mark.parametrize("name", MEMORY_TYPES)


def test_there_are_twenty_five_types() -> None:
    """The ontology has 25 kinds of memory item, each listed once, the root not among them."""
    assert len(set(MEMORY_TYPES)) == len(MEMORY_TYPES) == 25
    assert entry.ROOT_TYPE not in MEMORY_TYPES


@every_type
def test_every_type_leads_to_the_root(name: str) -> None:
    """Going from refined to refining type ends at the root."""
    assert entry.supertypes(name)[-1] == entry.ROOT_TYPE


@every_type
def test_ancestors_and_subtypes_are_each_others_reverse(name: str) -> None:
    """A type is among the subtypes of itself, of its ancestors, and of nothing else."""
    everything = (entry.ROOT_TYPE, *MEMORY_TYPES)
    inside = {other for other in everything if name in entry.with_subtypes(other)}
    assert inside == {name, *entry.supertypes(name)}


def test_the_root_covers_everything() -> None:
    """Asking for the root with its subtypes asks for all types."""
    assert set(entry.with_subtypes(entry.ROOT_TYPE)) == {entry.ROOT_TYPE, *MEMORY_TYPES}
    assert entry.supertypes(entry.ROOT_TYPE) == ()


@pytest.mark.parametrize(
    ("name", "refining"),
    [
        ("decision", {"architectural_decision", "implementation_decision"}),
        (
            "convention",
            {"coding_standard", "architectural_convention", "agent_rule", "process_convention"},
        ),
        ("error", {"bug", "failure", "incident"}),
        ("fact", set()),
    ],
)
def test_a_type_comes_with_what_refines_it(name: str, refining: set[str]) -> None:
    """Decisions, conventions and errors have subtypes; facts have none."""
    assert entry.with_subtypes(name)[0] == name
    assert set(entry.with_subtypes(name)[1:]) == refining


def test_class_names_follow_the_ontology() -> None:
    """The ontology writes the names as one capitalised word, one class for each type."""
    assert entry.ontology_class("trade_off") == "TradeOff"
    assert entry.ontology_class("bug") == "Bug"
    assert entry.ontology_class(entry.ROOT_TYPE) == "MemoryItem"
    assert len({entry.ontology_class(name) for name in MEMORY_TYPES}) == 25


QUESTIONS: list[Callable[[Any], object]] = [
    entry.check_memory_type,
    entry.supertypes,
    entry.with_subtypes,
    entry.ontology_class,
]


@pytest.mark.parametrize("name", ["", "Fact", "facts"])
@pytest.mark.parametrize("ask", QUESTIONS)
def test_an_unknown_type_is_refused_with_the_known_ones(ask: Callable[[Any], object], name: str) -> None:
    """A name that is no type is refused, and the message lists the types."""
    with pytest.raises(NotFound, match="architectural_decision") as caught:
        ask(name)
    check_remedy(caught.value)


@pytest.mark.parametrize("name", [5, None, ["fact"], {}])
@pytest.mark.parametrize("ask", QUESTIONS)
def test_a_type_is_named_by_text(ask: Callable[[Any], object], name: object) -> None:
    """What is no text is no type either, and is refused in the same way."""
    with pytest.raises(OmoideError) as caught:
        ask(name)
    check_remedy(caught.value)


def test_the_table_of_types_cannot_be_changed() -> None:
    """The table is read-only."""
    with pytest.raises(TypeError):
        entry.PARENT_TYPES["gossip"] = "fact"  # type: ignore[index]


every_word = pytest.mark.parametrize("word", TYPE_WORDS)


def test_everyday_words_stand_for_types_and_are_none_themselves() -> None:
    """The words of the table lead to types of the ontology, and hide none of them."""
    assert set(TYPE_WORDS.values()) <= set(MEMORY_TYPES)
    assert not set(TYPE_WORDS) & {*MEMORY_TYPES, entry.ROOT_TYPE}
    assert [TYPE_WORDS[word] for word in ("preference", "event", "person", "instruction")] == [
        "fact",
        "fact",
        "fact",
        "agent_rule",
    ]


@every_word
def test_a_word_is_its_type_wherever_a_type_is_taken(word: str) -> None:
    """Entries, filters, rules, scores and the hierarchy take the word and hold the type."""
    name = TYPE_WORDS[word]
    assert Entry(agent_id="ada", content="x", type=word).type == name
    assert Filter(types=(word, name)).types == (name,)
    assert entry.with_subtypes(word) == entry.with_subtypes(name)
    assert entry.supertypes(word) == entry.supertypes(name)
    assert entry.ontology_class(word) == entry.ontology_class(name)
    assert Rule(name="r", type=word, pattern="x").type == name
    assert CaptureRule(pattern="a.b", type=word).type == name
    assert score(0, 1, 0.5, word, 0).salience == score(0, 1, 0.5, name, 0).salience


@every_word
def test_a_word_is_no_class_of_its_own_in_rdf(word: str) -> None:
    """RDF has the class of the ontology, and gives the type back."""
    from pyoxigraph import RdfFormat, parse

    one = Entry(id="m", agent_id="ada", content="x", type=word)
    [again] = graph.from_quads(parse(graph.to_nquads(one), RdfFormat.N_QUADS)).entries
    assert again == one
    assert f"<{graph.CLASSES[TYPE_WORDS[word]]}>" in graph.to_nquads(one)


@pytest.mark.parametrize(("record", "fields"), [(Entry, {"type": "rumour"}), (Filter, {"types": ["rumour"]})])
def test_a_wrong_type_is_answered_with_the_right_ones(record: Any, fields: dict[str, Any]) -> None:
    """The message lists all types, and says that everyday words are taken."""
    required = {"agent_id": "ada", "content": "x"} if record is Entry else {}
    with pytest.raises(InvalidRecord) as caught:
        record.new(required | fields)
    assert all(name in str(caught.value) for name in (*MEMORY_TYPES, "preference", "instruction"))
