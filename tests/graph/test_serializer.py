"""A memory comes back from triples exactly as it was."""

from __future__ import annotations

import time
from typing import Any

import pytest
import rdflib
from hypothesis import given
from hypothesis import strategies as st
from pyoxigraph import NamedNode, RdfFormat, Store, Triple, parse, serialize
from tests.support.graph_memories import NOW, entries, memories

from omoide import Entry, Evidence
from omoide.core import MEMORY_TYPES
from omoide.graph import (
    CLASSES,
    MEMORY,
    PREFIXES,
    MemoryBatch,
    from_quads,
    graph_iri,
    memory_iri,
    ontology,
    to_nquads,
)
from omoide.graph.serializer import datetime_literal, entries_to_nquads
from omoide.graph.vocabulary import JIDO, TYPE, XSD, evidence_iri
from omoide.stores import Access, Link

DECLARED = {quad.subject.value for quad in parse(ontology.nquads(), RdfFormat.N_QUADS)}
Memory = tuple[Entry, tuple[Link, ...], Access | None]


def expected_batch(memory: Memory) -> MemoryBatch:
    entry, links, access = memory
    return MemoryBatch(entries=(entry,), links=links, access={} if access is None else {entry.id: access})


def entry(**fields: Any) -> Entry:
    given: dict[str, Any] = {"id": "m1", "agent_id": "a1", "content": "We use Phoenix.", "created_at": NOW}
    return Entry(**given | fields)


def statements_about(told: Entry, *links: Link, access: Access | None = None) -> dict[str, set[str]]:
    """Property -> objects in N-Triples, of what is said about the memory itself."""
    found: dict[str, set[str]] = {}
    for quad in parse(to_nquads(told, links, access), RdfFormat.N_QUADS):
        if quad.subject == NamedNode(memory_iri(told.id)):
            name = quad.predicate.value.removeprefix(JIDO)
            found.setdefault(name, set()).add(str(quad.object))
    return found


def jido(name: str) -> str:
    return f"<{JIDO}{name}>"


@given(memories())
def test_a_memory_comes_back_from_n_quads(memory: Memory) -> None:
    """Every field of an entry, its links with their times, and its use survive N-Quads."""
    assert from_quads(parse(to_nquads(*memory), RdfFormat.N_QUADS)) == expected_batch(memory)


@given(memories())
def test_a_memory_comes_back_from_a_triple_store(memory: Memory) -> None:
    """A triple store may write numbers and times in another way, and still nothing is lost."""
    store = Store()
    store.load(to_nquads(*memory), RdfFormat.N_QUADS)
    assert from_quads(store) == expected_batch(memory)


@given(memories(), st.sampled_from((RdfFormat.TURTLE, RdfFormat.TRIG, RdfFormat.JSON_LD)))
def test_a_memory_comes_back_from_every_format(memory: Memory, kind: RdfFormat) -> None:
    """Whose it is can be told from the triples alone, so a format without graphs loses nothing either."""
    quads = list(parse(to_nquads(*memory), RdfFormat.N_QUADS))
    triples: list[Any] = [Triple(q.subject, q.predicate, q.object) for q in quads]
    told: list[Any] = triples if kind == RdfFormat.TURTLE else list(quads)
    written = serialize(told, format=kind, prefixes=dict(PREFIXES))
    assert written is not None
    assert from_quads(parse(written, kind)) == expected_batch(memory)


@given(memories())
def test_another_reader_reads_what_was_written(memory: Memory) -> None:
    """A library that shares no code reads our Turtle, and what it writes then is still the same memory."""
    quads = parse(to_nquads(*memory), RdfFormat.N_QUADS)
    triples = [Triple(q.subject, q.predicate, q.object) for q in quads]
    turtle = serialize(triples, format=RdfFormat.TURTLE, prefixes=dict(PREFIXES))
    graph = rdflib.Graph().parse(data=turtle, format="turtle")
    assert len(graph) == len(set(triples))
    again = graph.serialize(format="nt", encoding="utf-8")
    assert from_quads(parse(again, RdfFormat.N_TRIPLES)) == expected_batch(memory)


@given(st.lists(memories(), max_size=5, unique_by=lambda memory: memory[0].id))
def test_many_at_once_are_the_same_as_one_by_one(several: list[Memory]) -> None:
    """What a batch says is what its memories say one by one, with what they share said once."""
    entries = [entry for entry, _, _ in several]
    links = [link for _, links, _ in several for link in links]
    access = {entry.id: used for entry, _, used in several if used is not None}
    batch = entries_to_nquads(entries, links, access)
    singly = "".join(to_nquads(*memory) for memory in several)
    assert set(batch.splitlines(keepends=True)) <= set(singly.splitlines(keepends=True))
    assert set(parse(batch, RdfFormat.N_QUADS)) == set(parse(singly, RdfFormat.N_QUADS))


@given(memories())
def test_nothing_is_told_in_words_that_are_not_declared(memory: Memory) -> None:
    """Every property, class and individual that a memory is told with stands in the ontology."""
    quads = list(parse(to_nquads(*memory), RdfFormat.N_QUADS))
    used = {quad.predicate.value for quad in quads}
    used |= {str(quad.object.value) for quad in quads if quad.predicate.value == TYPE}
    used |= {str(quad.object.value) for quad in quads if quad.predicate.value.startswith(f"{JIDO}has")}
    assert {iri for iri in used if iri.startswith(JIDO) and not iri.startswith(MEMORY)} <= DECLARED


@given(entries)
def test_writing_twice_says_the_same(told: Entry) -> None:
    """The triples of an entry depend on the entry alone, so writing it again adds nothing."""
    store = Store()
    store.load(to_nquads(told), RdfFormat.N_QUADS)
    before = len(store)
    store.load(to_nquads(told), RdfFormat.N_QUADS)
    assert len(store) == before


@given(memories())
def test_everything_lies_in_the_graph_of_its_owner(memory: Memory) -> None:
    """Each quad is in the graph of exactly this owner, about the memory, its evidence or its owner."""
    told, _, _ = memory
    graph = graph_iri(told.namespace, told.agent_id, told.session_id, told.project_id, told.user_id)
    quads = list(parse(to_nquads(*memory), RdfFormat.N_QUADS))
    assert {str(quad.graph_name) for quad in quads} == {f"<{graph}>"}
    reached = {q.object for q in quads if q.subject == NamedNode(memory_iri(told.id))}
    assert {q.subject for q in quads} <= {NamedNode(memory_iri(told.id)), *reached}


def test_a_memory_is_told_in_the_words_of_the_ontology() -> None:
    """Class, summary, confidence, source, session, time, agent, project, rationale and evidence are there."""
    told = entry(
        type="architectural_decision",
        session_id="conv_1",
        project_id="p1",
        confidence=0.79,
        source="external_document",
        rationale="It scales.",
        evidence=(Evidence(kind="document", ref="docs/adr.md"),),
    )
    words = statements_about(told)
    assert words[TYPE] == {jido("ArchitecturalDecision")}
    assert words["summary"] == {'"We use Phoenix."'}
    assert words["hasConfidence"] == {jido("Medium")}
    assert words["hasSourceType"] == {jido("ExternalDocumentSource")}
    assert words["assertedIn"] == {jido("session_conv_1")}
    assert words["hasTimestamp"] == {f'"2025-11-13T02:13:20.123Z"^^<{XSD}dateTime>'}
    assert words["assertedBy"] == {jido("agent_a1")}
    assert words["appliesToProject"] == {jido("project_p1")}
    assert words["rationale"] == {'"It scales."'}
    assert words["derivedFrom"] == {f"<{evidence_iri('docs/adr.md')}>"}


@pytest.mark.parametrize("type", MEMORY_TYPES)
def test_every_type_is_its_own_class(type: str) -> None:
    """A memory has the class of its type and no other, whichever of the 25 types it has."""
    assert statements_about(entry(type=type))[TYPE] == {f"<{CLASSES[type]}>"}


def test_a_memory_without_a_type_is_a_memory_item() -> None:
    """The root class stands for no type."""
    assert statements_about(entry())[TYPE] == {jido("MemoryItem")}


@pytest.mark.parametrize(
    ("confidence", "level"),
    [(1.0, "High"), (0.8, "High"), (0.79, "Medium"), (0.5, "Medium"), (0.49, "Low"), (0.0, "Low")],
)
def test_confidence_is_told_in_words_and_exactly(confidence: float, level: str) -> None:
    """The level begins at 0.8 and 0.5, and the number itself stands beside it."""
    words = statements_about(entry(confidence=confidence))
    assert words["hasConfidence"] == {jido(level)}
    assert words["confidence"] == {f'"{confidence!r}"^^<{XSD}double>'}


def test_evidence_is_a_node_with_its_reference() -> None:
    """Evidence is typed and says its kind, its reference and its quote; that of a memory leads to it."""
    told = entry(evidence=(Evidence(kind="entry", ref="m0", quote="so it is"),))
    node = NamedNode(evidence_iri("m0", "so it is"))
    found = {
        (q.predicate.value.removeprefix(JIDO), str(q.object))
        for q in parse(to_nquads(told), RdfFormat.N_QUADS)
        if q.subject == node
    }
    assert found == {
        (TYPE, jido("Evidence")),
        ("evidenceKind", '"entry"'),
        ("evidenceReference", '"m0"'),
        ("evidenceQuote", '"so it is"'),
        ("refersTo", jido("memory_m0")),
    }


def test_one_reference_may_serve_in_several_ways() -> None:
    """Evidence with one reference but another kind or quote stays apart, in order and as often as given."""
    several = (
        Evidence(kind="tool", ref="t:1"),
        Evidence(kind="message", ref="t:1", quote="yes"),
        Evidence(kind="message", ref="t:1"),
        Evidence(kind="message", ref="t:1", quote=""),
        Evidence(kind="tool", ref="t:1"),
    )
    one, other = entry(evidence=several), entry(id="m2", evidence=several[2:3])
    quads = parse(entries_to_nquads([one, other]), RdfFormat.N_QUADS)
    assert from_quads(quads).entries == (one, other)


def test_what_was_forgotten_is_superseded_by_the_marker() -> None:
    """A memory without a successor points to the marker, one with a successor to that memory."""
    assert statements_about(entry(superseded_by="deleted"))["supersededBy"] == {jido("DeletedMarker")}
    assert statements_about(entry(superseded_by="m2"))["supersededBy"] == {jido("memory_m2")}


def test_links_are_properties_of_the_ontology() -> None:
    """A known relation is its property, another one a property made from its name."""
    links = [
        Link(source="m1", relation=relation, target="m2", created_at=NOW)
        for relation in ("has_root_cause", "likes to see")
    ]
    other = Link(source="m9", relation="refines", target="m1", created_at=NOW)
    words = statements_about(entry(), *links, other)
    assert words["hasRootCause"] == {jido("memory_m2")}
    assert words["urn:omoide:relation:likes%20to%20see"] == {jido("memory_m2")}
    assert "refines" not in words


def test_conventions_and_errors_have_defaults() -> None:
    """A convention holds in its project as advice and an error is reported, unless the metadata says more."""
    words = statements_about(entry(type="coding_standard"))
    assert words["hasConventionScope"] == {jido("ProjectScope")}
    assert words["hasEnforcementLevel"] == {jido("Advisory")}
    assert statements_about(entry(type="bug"))["hasErrorStatus"] == {jido("Reported")}
    told = entry(type="agent_rule", metadata={"convention_scope": "global", "enforcement_level": "Strict"})
    assert statements_about(told)["hasConventionScope"] == {jido("GlobalScope")}
    assert statements_about(told)["hasEnforcementLevel"] == {jido("Strict")}
    assert statements_about(entry(type="bug", metadata={"error_status": "resolved"}))["hasErrorStatus"] == {
        jido("Resolved")
    }


def test_metadata_tells_the_state_of_decisions_errors_and_tasks() -> None:
    """Status, impact, severity and assignment are properties where the type has them, and nowhere else."""
    state = {
        "decision_status": "accepted",
        "impact_level": "high",
        "severity_level": "major",
        "task_status": "in_progress",
        "assigned_to": "bob",
    }
    decision, error, task, fact = (
        statements_about(entry(type=type, metadata=state))
        for type in ("decision", "incident", "task", "fact")
    )
    assert decision["decisionStatus"] == {'"accepted"'}
    assert decision["impactLevel"] == {'"high"'}
    assert error["severityLevel"] == {'"major"'}
    assert task["hasTaskStatus"] == {jido("InProgress")}
    assert task["assignedTo"] == {jido("agent_bob")}
    several = statements_about(entry(type="task", metadata={"assigned_to": ["bob", "eve"]}))
    assert several["assignedTo"] == {jido("agent_bob"), jido("agent_eve")}
    assert not {"decisionStatus", "impactLevel", "severityLevel", "hasTaskStatus", "assignedTo"} & set(fact)


def test_the_neighbours_of_a_memory_are_typed() -> None:
    """Its session, agent and project have their classes, so that queries and shapes find them."""
    quads = list(parse(to_nquads(entry(session_id="s1", project_id="p1")), RdfFormat.N_QUADS))
    types = {(str(q.subject), str(q.object)) for q in quads if q.predicate.value == TYPE}
    assert {
        (jido("session_s1"), jido("WorkSession")),
        (jido("agent_a1"), jido("Agent")),
        (jido("project_p1"), jido("Project")),
    } < types


@given(st.integers(0, 253_402_300_799_999))
def test_moments_are_told_to_the_millisecond(at: int) -> None:
    """A moment is written in UTC, with three digits after the second, and means the same millisecond."""
    value = next(iter(parse(f"<a:b> <a:b> {datetime_literal(at)} .", RdfFormat.N_TRIPLES))).object
    graph = rdflib.Literal(str(getattr(value, "value", "")), datatype=rdflib.XSD.dateTime).toPython()
    assert str(getattr(value, "value", "")).endswith("Z")
    assert round((graph.timestamp()) * 1000) == at


def test_a_very_long_memory_survives() -> None:
    """A mebibyte of text with quotes, line breaks and other alphabets comes back unchanged."""
    told = entry(content='שלום "world"\r\n\\' * 80_000)
    assert len(told.content) > 1 << 20
    assert from_quads(parse(to_nquads(told), RdfFormat.N_QUADS)).entries == (told,)


def test_telling_is_linear() -> None:
    """A thousand memories are told in a few milliseconds, and ten times as many in about ten times that."""
    several = [entry(id=f"mem_{at}", session_id=f"s{at % 10}", project_id="p") for at in range(10_000)]
    started = time.perf_counter()
    entries_to_nquads(several[:1000])
    few = time.perf_counter() - started
    started = time.perf_counter()
    entries_to_nquads(several)
    assert time.perf_counter() - started < 60 * max(few, 0.004)
