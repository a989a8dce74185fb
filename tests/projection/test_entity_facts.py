"""Entities of a conversation become facts of the world."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.projection import NOW, add_entries, agent, entries, errors, mark, message, note, splits

from omoide import Agent, memory, thread
from omoide.errors import Invalid
from omoide.projection import EntityFacts, EntityRule, project


def facts(given: Agent, **options: Any) -> dict[str, Any]:
    """The facts after a run."""
    after, directives = project(given, [EntityFacts(**options)], now=NOW)
    assert directives == []
    return dict(memory.world_get(after, "facts", {}))


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("Ask Ada Lovelace about it.", {"Ada Lovelace": "name"}),
        ("We met in Portland, then in Berlin.", {"Portland": "name", "Berlin": "name"}),
        ("Write to ada@example.org, please.", {"ada@example.org": "email"}),
        ("It is at https://example.org/a?b=1.", {"https://example.org/a?b=1": "url"}),
        ("The bug is in lib/web.ex and src/app.py:12", {"lib/web.ex": "path", "src/app.py": "path"}),
        ("Yesterday I saw the dog. It was late.", {}),
        ("The Golden Gate Bridge is red.", {"Golden Gate Bridge": "name"}),
        ("We use SQLite with Python.", {"SQLite": "name", "Python": "name"}),
        ("nothing here", {}),
        ("Ada's cat likes Grace O'Hara-Smith.", {"Grace O'Hara-Smith": "name"}),
        ("Wir fuhren nach Überlingen.", {"Überlingen": "name"}),
    ],
)
def test_names_addresses_and_paths_are_found(said: str, found: dict[str, str]) -> None:
    """A capital at the start of a sentence is no name by itself."""
    assert {name: fact["kind"] for name, fact in facts(agent(said)).items()} == found


def test_a_fact_tells_where_and_how_often_it_was_said() -> None:
    """With the place in the thread as evidence; other entries than messages are not read."""
    given = add_entries(
        agent("Ask Ada Lovelace."), [note("Grace Hopper"), message("Ada Lovelace, again Ada Lovelace")]
    )
    assert facts(given) == {
        "Ada Lovelace": {
            "kind": "name",
            "source": "projector",
            "mentions": 2,
            "thread": thread.of(given).id,
            "first_seq": 0,
            "last_seq": 2,
            "projected_at": NOW,
        }
    }


@given(entries.flatmap(splits))
def test_it_does_not_matter_in_how_many_runs(runs: list[list[dict[str, Any]]]) -> None:
    """The facts are the same, whether the entries come at once or one after the other."""
    parted = whole = thread.ensure(Agent.new("clerk"))
    for run in runs:
        parted, _ = project(add_entries(parted, run), [EntityFacts()], now=NOW)
        whole = add_entries(whole, run)
    whole, _ = project(whole, [EntityFacts()], now=NOW)

    def counts(given: Agent) -> dict[str, Any]:
        found = memory.world_get(given, "facts", {})
        return {name: (fact["mentions"], fact["first_seq"], fact["last_seq"]) for name, fact in found.items()}

    assert counts(parted) == counts(whole)


def test_facts_of_others_stay_as_they_are() -> None:
    """What somebody else wrote into `world.facts` is neither changed nor counted."""
    given = memory.world_put(agent("In Portland and Berlin."), "facts", {"Portland": "rainy", "door": "open"})
    found = facts(given, max_facts=1)
    assert (found["Portland"], found["door"], found["Berlin"]["mentions"]) == ("rainy", "open", 1)


def test_the_number_of_facts_is_bounded() -> None:
    """Those that were not mentioned for the longest time give way."""
    given = agent("We met Ada.", "We met Bob.", "We met Ada.", "We met Eve.")
    assert {*facts(given, max_facts=2)} == {"Ada", "Eve"}


def test_what_was_projected_before_does_not_count_twice() -> None:
    """Even where the cursor was lost."""
    once, _ = project(agent("In Portland."), [EntityFacts()], now=NOW)
    lost = memory.delete_space(once, "omoide:projection")
    assert facts(lost)["Portland"]["mentions"] == 1
    assert mark(once, "entity_facts")["covers_seq"] == [0, 0]


def test_rules_may_be_given() -> None:
    """The first group of the pattern, or the whole match, is the entity; its kind is the rule's name."""
    rules = (
        EntityRule(name="ticket", pattern=r"\b[A-Z]{2,5}-\d+\b"),
        EntityRule(name="tag", pattern=r"#(\w+)"),
    )
    assert {
        name: fact["kind"] for name, fact in facts(agent("See AB-12 in #memory by Ada"), rules=rules).items()
    } == {
        "AB-12": "ticket",
        "memory": "tag",
    }
    with pytest.raises(Invalid, match="pattern"):
        EntityRule(name="x", pattern="(")


def test_facts_that_are_no_map_are_an_error() -> None:
    """They are left as they are, and the projector says so."""
    given = memory.world_put(agent("In Portland."), "facts", ["a"])
    after, directives = project(given, [EntityFacts()], now=NOW)
    (error,) = errors(directives)
    assert "world.facts" in error.message
    assert memory.world_get(after, "facts") == ["a"]


@given(st.text(max_size=80))
def test_any_text_is_read(text: str) -> None:
    """Whatever was said."""
    if text.strip() and "\0" not in text:
        try:
            given = agent(text)
        except Invalid:
            return
        facts(given)
