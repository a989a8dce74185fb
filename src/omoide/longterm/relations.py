"""How can one memory be related to another?

The relations of the Jido ontology as data, each with its property and the types it connects. A store keeps
links of any name; these are the ones that mean something to everybody.
"""

from __future__ import annotations

from types import MappingProxyType

import msgspec

from omoide.core import memory_types
from omoide.core.entry import Entry
from omoide.core.memory_types import ROOT
from omoide.errors import Invalid, NotFound

CONTRADICTS = "contradicts"
DERIVED_FROM = "derived_from"
INVALIDATED_BY = "invalidated_by"
SUPERSEDED_BY = "superseded_by"
SUPERSEDES = "supersedes"
SAME_TYPE = "same_type"
SAME_PROJECT = "same_project"


class Relation(msgspec.Struct, frozen=True):
    """A way in which one memory can be related to another."""

    name: str
    property: str
    """The local name of its property in the ontology."""
    source: str
    """The type that the memory it starts from has, or refines."""
    target: str
    """The type that the memory it leads to has, or refines."""
    meaning: str
    inverted: bool = False
    """Whether the property leads the other way, from the target to the source."""


_ALL = (
    Relation("refines", "refines", "hypothesis", "hypothesis", "says the same more exactly"),
    Relation("confirms", "confirms", ROOT, "fact", "is evidence for it"),
    Relation(CONTRADICTS, "contradicts", ROOT, ROOT, "cannot be true together with it"),
    Relation("has_alternative", "hasAlternative", "decision", "alternative", "was weighed against it"),
    Relation("selected_alternative", "selectedAlternative", "decision", "alternative", "chose it"),
    Relation("has_trade_off", "hasTradeOff", "decision", "trade_off", "accepts it"),
    Relation("justified_by", "justifiedBy", "decision", ROOT, "was made because of it"),
    Relation("has_root_cause", "hasRootCause", "error", "root_cause", "happened because of it"),
    Relation("produced_lesson", "producedLesson", "error", "lesson_learned", "taught it"),
    Relation("related_error", "relatedError", "error", "error", "has to do with it"),
    Relation(DERIVED_FROM, "derivedFrom", ROOT, ROOT, "rests on it"),
    Relation(SUPERSEDED_BY, "supersededBy", ROOT, ROOT, "was replaced by it"),
    Relation(SUPERSEDES, "supersededBy", ROOT, ROOT, "replaced it", inverted=True),
    Relation(INVALIDATED_BY, "invalidatedBy", ROOT, ROOT, "no longer holds because of it"),
    Relation("depends_on", "dependsOn", "task", "task", "needs it first"),
    Relation("blocked_by", "blockedBy", "task", "task", "cannot go on before it"),
    Relation("part_of_milestone", "partOfMilestone", "task", "milestone", "belongs to it"),
    Relation("part_of_plan", "partOfPlan", "task", "plan", "belongs to it"),
)

RELATIONS = MappingProxyType({relation.name: relation for relation in _ALL})

BY_PROPERTY = MappingProxyType({one.property: one for one in _ALL if not one.inverted})
"""The relation that a property of the ontology stands for."""

CONSEQUENT = frozenset({DERIVED_FROM, SUPERSEDED_BY, SUPERSEDES, INVALIDATED_BY})
"""Relations that decide whether a memory still holds."""

IMPLICIT = (SAME_TYPE, SAME_PROJECT)
"""What memories can have in common without anybody having said so."""


def check(name: object) -> Relation:
    """The relation of a name."""
    if not isinstance(name, str) or name not in RELATIONS:
        raise NotFound("relation", name, f"use one of {', '.join(RELATIONS)}")
    return RELATIONS[name]


def check_ends(relation: Relation, source: Entry, target: Entry) -> None:
    """Raise unless both memories are of the types that the ontology says the relation connects."""
    for end, entry, wanted in (
        ("source", source, relation.source),
        ("target", target, relation.target),
    ):
        if not is_a(entry, wanted):
            raise Invalid(
                f"{end} {entry.id!r}",
                f"is {_called(entry)}, and {relation.name} takes a memory of type {wanted} there",
                "choose another memory or relation, or relate them without strict",
            )


def is_a(entry: Entry, wanted: str) -> bool:
    """Whether a memory is of a type, or of one that refines it."""
    return (ROOT if entry.type is None else entry.type) in memory_types.with_subtypes(wanted)


def _called(entry: Entry) -> str:
    return "untyped" if entry.type is None else f"of type {entry.type}"
