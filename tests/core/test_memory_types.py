"""The memory types of the ontology and their hierarchy."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.support.memory import check_remedy

from omoide.core import MEMORY_TYPES, entry
from omoide.errors import NotFound, OmoideError

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
