"""The relations of the ontology connect memories."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.custom_stores import ListStore
from tests.support.longterm import SHOP, connect, keep

from omoide import Entry, Scope
from omoide.core import MEMORY_TYPES
from omoide.core.entry import supertypes
from omoide.errors import Conflict, Invalid, NotFound
from omoide.longterm import RELATIONS, relate, relations
from omoide.longterm.relations import BY_PROPERTY, IMPLICIT

UPSTREAM = (
    "refines confirms contradicts has_alternative selected_alternative has_trade_off justified_by"
    " has_root_cause produced_lesson related_error derived_from superseded_by"
)
TASKS = "depends_on blocked_by part_of_milestone part_of_plan"


def an_entry(type: str | None) -> Entry:
    return Entry(id="one", agent_id="ada", content="Something.", type=type)


def test_every_relation_of_the_ontology_between_memories_is_there() -> None:
    """The relations that others know by name are all here, with the property that each stands for."""
    assert {*UPSTREAM.split(), *TASKS.split(), "invalidated_by", "supersedes"} == {*RELATIONS}
    for name, relation in RELATIONS.items():
        assert relation.name == name
        assert relation.meaning
        if not relation.inverted:
            first, *rest = name.split("_")
            assert relation.property == first + "".join(part.capitalize() for part in rest)
    assert (RELATIONS["supersedes"].property, RELATIONS["supersedes"].inverted) == ("supersededBy", True)
    assert BY_PROPERTY["supersededBy"].name == "superseded_by"
    assert len(BY_PROPERTY) == len(RELATIONS) - 1


def test_an_unknown_relation_is_refused_with_the_names_of_the_others() -> None:
    """Whoever mistypes a relation is told which there are."""
    assert relations.get_relation("refines").target == "hypothesis"
    for wrong in ("refine", "", None, 7, *IMPLICIT):
        with pytest.raises(NotFound, match="has_root_cause"):
            relations.get_relation(wrong)


@given(st.sampled_from([*RELATIONS]), st.sampled_from(MEMORY_TYPES), st.sampled_from(MEMORY_TYPES))
def test_strict_ends_are_of_the_types_that_the_ontology_connects(name: str, source: str, target: str) -> None:
    """A type passes where it is the one that is asked for, or refines it."""
    relation = relations.get_relation(name)
    fits = relation.source in (source, *supertypes(source)) and relation.target in (
        target,
        *supertypes(target),
    )
    if fits:
        relations.check_ends(relation, an_entry(source), an_entry(target))
    else:
        with pytest.raises(Invalid, match=name):
            relations.check_ends(relation, an_entry(source), an_entry(target))


def test_a_memory_without_a_type_is_any_memory() -> None:
    """What has no type passes where any memory does, and nowhere else."""
    relations.check_ends(relations.get_relation("contradicts"), an_entry(None), an_entry("bug"))
    with pytest.raises(Invalid, match="untyped"):
        relations.check_ends(relations.get_relation("has_root_cause"), an_entry(None), an_entry("root_cause"))


async def test_relating_makes_a_link_that_both_ends_know(store: Any) -> None:
    """A relation is found from both memories, and saying it twice changes nothing."""
    await keep(store, "bug", type="bug")
    await keep(store, "cause", type="root_cause")
    for _ in range(2):
        await relate(store, "bug", "has_root_cause", "cause", SHOP, strict=True)
    for end in ("bug", "cause"):
        (link,) = await store.links(end, SHOP)
        assert (link.source, link.relation, link.target) == ("bug", "has_root_cause", "cause")


async def test_relating_is_lenient_about_types_unless_told_otherwise(store: Any) -> None:
    """Memories of other types can be related; strict refuses them and leaves no link."""
    await keep(store, "one", type="fact")
    await keep(store, "two", type="fact")
    with pytest.raises(Invalid, match="hypothesis"):
        await relate(store, "one", "refines", "two", SHOP, strict=True)
    assert await store.links("one", SHOP) == []
    await relate(store, "one", "refines", "two", SHOP)
    assert len(await store.links("one", SHOP)) == 1


async def test_what_is_derived_rests_on_its_premise(store: Any) -> None:
    """`derived_from` becomes evidence, so that the memory falls with what it rests on."""
    await keep(store, "premise")
    await keep(store, "other")
    await keep(store, "conclusion", on=["other"])
    for _ in range(2):
        await relate(store, "conclusion", "derived_from", "premise", SHOP)
    entry = await store.get("conclusion", SHOP)
    assert [one.ref for one in entry.evidence] == ["other", "premise"]
    await store.supersede("premise", SHOP)
    assert (await store.get("conclusion", SHOP)).stale
    await store.reinstate("premise", SHOP)
    assert not (await store.get("conclusion", SHOP)).stale


@pytest.mark.parametrize(("relation", "old", "new"), [("superseded_by", 0, 1), ("supersedes", 1, 0)])
async def test_superseding_is_more_than_a_link(store: Any, relation: str, old: int, new: int) -> None:
    """Either direction replaces the older memory, with the reason."""
    names = ("one", "two")
    for name in names:
        await keep(store, name)
    await relate(store, "one", relation, "two", SHOP, reason="it changed")
    gone = await store.get(names[old], SHOP)
    assert (gone.superseded_by, gone.superseded_reason) == (names[new], "it changed")
    assert (await store.get(names[new], SHOP)).superseded_by is None


async def test_an_invalidated_memory_no_longer_holds(store: Any) -> None:
    """`invalidated_by` takes a memory out of what is known, and taking it back brings it in again."""
    await keep(store, "claim")
    await keep(store, "finding")
    await relate(store, "claim", "invalidated_by", "finding", SHOP)
    assert (await store.get("claim", SHOP)).stale
    (link,) = await store.links("claim", SHOP)
    await store.unlink(link, SHOP)
    assert not (await store.get("claim", SHOP)).stale


async def test_only_what_the_scope_holds_can_be_related(store: Any) -> None:
    """A memory outside the scope is not found, at either end, and a memory has no relation to itself."""
    theirs = Scope(agent_id="eve", project_id="shop")
    await keep(store, "mine")
    await keep(store, "theirs", scope=theirs)
    for source, target in (("mine", "theirs"), ("theirs", "mine"), ("mine", "nothing")):
        for relation in ("refines", "derived_from", "superseded_by"):
            with pytest.raises(NotFound):
                await relate(store, source, relation, target, SHOP)
    with pytest.raises(Invalid, match="same memory"):
        await relate(store, "mine", "refines", "mine", SHOP)
    assert (await store.get("mine", SHOP)).rev == 1


async def test_a_premise_is_not_written_over_what_somebody_else_wrote(store: Any, monkeypatch: Any) -> None:
    """Where the memory changed since it was read, relating it fails and nothing is lost."""
    await keep(store, "premise")
    mine = await keep(store, "conclusion")
    await keep(store, "conclusion", "Somebody changed it.")

    read = store.get

    async def as_it_was(id: str, scope: Scope) -> Entry:
        return mine if id == "conclusion" else await read(id, scope)

    monkeypatch.setattr(store, "get", as_it_was)
    with pytest.raises(Conflict):
        await relate(store, "conclusion", "derived_from", "premise", SHOP)
    monkeypatch.undo()
    assert (await store.get("conclusion", SHOP)).content == "Somebody changed it."


async def test_a_store_without_links_says_so() -> None:
    """A store that cannot find memories by id, or link them, is refused by name."""
    with pytest.raises(Invalid, match="cannot find"):
        await relate(ListStore(), "one", "refines", "two", SHOP)


async def test_links_of_any_name_stay_possible(store: Any) -> None:
    """The store itself keeps links of other names; they are simply not the ontology's."""
    for name in ("one", "two"):
        await keep(store, name)
    await connect(store, "one", "reminds_me_of", "two")
    assert [link.relation for link in await store.links("two", SHOP)] == ["reminds_me_of"]
