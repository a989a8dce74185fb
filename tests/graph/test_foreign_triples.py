"""Foreign triples are read as far as they use the ontology."""

from __future__ import annotations

import pytest
from pyoxigraph import Quad, RdfFormat, Triple, parse

from omoide import Entry, Evidence
from omoide.errors import InvalidRDF
from omoide.graph import MEMORY, PREFIXES, ImportDefaults, MemoryBatch, from_quads
from omoide.graph.vocabulary import evidence_iri
from omoide.stores import Access

HEAD = "".join(f"@prefix {name}: <{iri}> .\n" for name, iri in PREFIXES.items())
PLAIN = """
jido:memory_my_mem_1 a jido:Fact ;
    jido:summary "The API listens on port 4000" ;
    jido:hasConfidence jido:High ;
    jido:hasSourceType jido:ToolSource ;
    jido:assertedIn jido:session_conv_1 ;
    jido:assertedBy jido:agent_coder ;
    jido:hasTimestamp "2025-01-02T03:04:05Z"^^xsd:dateTime .
"""
AT = 1_735_787_045_000


def read_turtle(turtle: str, missing: ImportDefaults | None = None) -> MemoryBatch:
    quads: list[Quad | Triple] = list(parse(HEAD + turtle, RdfFormat.TURTLE))
    return from_quads(
        quads, ImportDefaults(agent_id="someone", created_at=AT) if missing is None else missing
    )


def one(turtle: str) -> Entry:
    (entry,) = read_turtle(turtle).entries
    return entry


def about(said: str) -> str:
    return f'jido:memory_x a jido:Fact ; jido:summary "s" ; {said} .'


def test_the_plain_triples_of_the_ontology_are_a_memory() -> None:
    """Class, summary, level, source, session, agent and time are enough; ids keep their underscores."""
    assert one(PLAIN) == Entry(
        id="my_mem_1",
        agent_id="coder",
        session_id="conv_1",
        type="fact",
        content="The API listens on port 4000",
        confidence=0.9,
        source="tool",
        created_at=AT,
    )


@pytest.mark.parametrize(
    ("said", "confidence"),
    [
        ("jido:hasConfidence jido:High", 0.9),
        ("jido:hasConfidence jido:Medium", 0.6),
        ("jido:hasConfidence jido:Low", 0.3),
        ("jido:hasConfidence jido:Enormous", 0.5),
        ("jido:rationale 'r'", 0.5),
        ("jido:hasConfidence jido:Low ; jido:confidence 0.95", 0.95),
        ("jido:confidence '7.9E-1'^^xsd:double", 0.79),
    ],
)
def test_confidence_is_the_number_or_else_what_its_level_stands_for(said: str, confidence: float) -> None:
    """Where only the level is known it stands for 0.9, 0.6 or 0.3, and for 0.5 where nothing is."""
    assert one(about(said)).confidence == confidence


def test_an_unknown_source_is_the_agent() -> None:
    """A source that the ontology does not have counts as the agent's, and none as none."""
    assert one(about("jido:hasSourceType <https://example.org/Rumour>")).source == "agent"
    assert one(about("jido:hasConfidence jido:Low")).source is None


@pytest.mark.parametrize(
    ("types", "type"),
    [
        ("jido:Decision, jido:ArchitecturalDecision, jido:MemoryItem, jido:Entity", "architectural_decision"),
        ("jido:MemoryItem, <https://example.org/Thing>, jido:Error, jido:Bug", "bug"),
        ("jido:MemoryItem", None),
        ("jido:Milestone", "milestone"),
    ],
)
def test_the_most_specific_known_class_is_the_type(types: str, type: str | None) -> None:
    """Of several classes the one that says most counts, and classes of others do not."""
    assert one(f'jido:memory_x a {types} ; jido:summary "s" .').type == type


def test_what_is_no_memory_is_passed_over() -> None:
    """Sessions, agents, classes, unknown things and unknown properties are no reason to stumble."""
    others = """
    jido:session_conv_1 a jido:WorkSession ; jido:startedAt "2025-01-01T00:00:00Z"^^xsd:dateTime .
    jido:evidence_1 a jido:Evidence ; jido:contradicts jido:memory_my_mem_1 .
    jido:Fact a owl:Class ; rdfs:subClassOf jido:MemoryItem .
    <https://example.org/x> a <https://example.org/Note> ; jido:summary "not ours" .
    jido:memory_my_mem_1 <https://example.org/colour> "red" ; jido:justifiedBy <https://example.org/reason> .
    jido:DeletedMarker a jido:Entity .
    """
    assert read_turtle(PLAIN + others) == read_turtle(PLAIN)


def test_a_subject_of_others_gets_its_iri_as_id() -> None:
    """A memory with a name of another kind keeps that name, and a nameless one gets the same id each time."""
    assert one('<https://example.org/7> a jido:Fact ; jido:summary "s" .').id == "https://example.org/7"
    nameless = '[] a jido:Fact ; jido:summary "s" ; jido:derivedFrom [ jido:evidenceReference "r" ] .'
    assert one(nameless).id == one(nameless).id
    assert one(nameless).evidence == (Evidence(kind="document", ref="r"),)


def test_a_memory_may_be_known_by_its_name_alone() -> None:
    """Something called a memory that has a summary is one, of no particular type."""
    assert one('jido:memory_1 jido:summary "s" .').type is None
    assert read_turtle("jido:memory_1 jido:rationale 's' .") == MemoryBatch()


def test_what_is_missing_comes_from_the_caller() -> None:
    """Agent, session, project, namespace and time are taken from the caller where the triples are silent."""
    missing = ImportDefaults(agent_id="a", session_id="s", project_id="p", namespace="n", created_at=7)
    (entry,) = read_turtle('jido:memory_1 a jido:Fact ; jido:summary "x" .', missing).entries
    assert (entry.agent_id, entry.session_id, entry.project_id) == ("a", "s", "p")
    assert (entry.namespace, entry.created_at) == ("n", 7)
    with pytest.raises(InvalidRDF, match=r"memory_1.* assertedBy is missing"):
        read_turtle('jido:memory_1 a jido:Fact ; jido:summary "x" .', ImportDefaults())


def test_evidence_keeps_what_is_known_of_it() -> None:
    """Described evidence gives its reference, a memory its id, and anything else its name."""
    entry = one(
        about(f"""
        jido:derivedFrom <{evidence_iri("a.md")}>, jido:memory_m0, "b.md", <https://example.org/c>, [] .
        <{evidence_iri("a.md")}> a jido:Evidence ; jido:evidenceReference "a.md" ; jido:evidenceKind "tool"
        """)
    )
    assert set(entry.evidence) == {
        Evidence(kind="tool", ref="a.md"),
        Evidence(kind="entry", ref="m0"),
        Evidence(kind="document", ref="b.md"),
        Evidence(kind="document", ref="https://example.org/c"),
    }


def test_links_lead_to_memories_only() -> None:
    """A relation to a memory, whatever its name, is a link as old as it; one to other things is none."""
    found = read_turtle(
        about("jido:refines jido:memory_y, <https://example.org/m>, <https://example.org/other>")
        + "<https://example.org/m> a jido:Hypothesis ; jido:summary 't' ."
    )
    ends = {(link.source, link.relation, link.target, link.created_at) for link in found.links}
    assert ends == {("x", "refines", "y", AT), ("x", "refines", "https://example.org/m", AT)}


def test_supersession_goes_from_old_to_new() -> None:
    """What superseded a memory is read from the old one, and the marker means that it was forgotten."""
    assert one(about("jido:supersededBy jido:memory_new_1")).superseded_by == "new_1"
    assert one(about("jido:supersededBy jido:DeletedMarker")).superseded_by == "deleted"


def test_use_is_read() -> None:
    """How often and when a memory was recalled comes back beside it."""
    used = "jido:accessCount 3 ; jido:lastAccessed '2025-01-02T03:04:05Z'^^xsd:dateTime"
    assert read_turtle(about(used)).access == {"x": Access(count=3, last=AT)}


@pytest.mark.parametrize(
    ("moment", "at"),
    [
        ("2025-01-02T03:04:05Z", AT),
        ("2025-01-02T03:04:05", AT),
        ("2025-01-02T04:04:05+01:00", AT),
        ("2025-01-02T03:04:05.1234567Z", AT + 123),
        ("1970-01-01", 0),
    ],
)
def test_times_are_read_in_all_their_forms(moment: str, at: int) -> None:
    """Offsets, missing offsets, fine fractions and bare dates all mean a millisecond of UTC."""
    assert one(about(f"jido:hasTimestamp '{moment}'^^xsd:dateTime")).created_at == at


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("jido:summary 'two'", "summary has 2 values"),
        ("jido:hasTimestamp 'yesterday'^^xsd:dateTime", "hasTimestamp is 'yesterday'"),
        ("jido:hasTimestamp '1960-01-01T00:00:00Z'^^xsd:dateTime", "created_at is -"),
        ("jido:hasTimestamp jido:High", "hasTimestamp is no text"),
        ("jido:confidence 'much'", "confidence is 'much'"),
        ("jido:confidence 1.5", "confidence is 1.5"),
        ("jido:confidence 'NaN'^^xsd:double", "confidence is nan"),
        ("jido:hasConfidence jido:High, jido:Low", "hasConfidence has 2 values"),
        ("jido:assertedBy jido:agent_a, jido:agent_b", "assertedBy has 2 values"),
        ("jido:supersededBy jido:memory_a, jido:memory_b", "supersededBy has 2 values"),
        ("jido:supersededBy 'm2'", "supersededBy names no memory"),
        ("jido:metadata '[1]'", "metadata is not readable"),
        ("jido:metadata '{'", "metadata is not readable"),
        ("""jido:metadata '{"x":{"$wizard":1}}'""", "holds \\$wizard"),
        ("jido:accessCount -3", "accessCount is -3"),
        ("jido:revision 'x'", "revision is 'x'"),
        ("jido:messageThread 't' ; jido:messageSeq -1", "seq is -1"),
        ("jido:tag ''", "tags.* is empty"),
        (f"jido:metadata '{'[' * 100_000}'", "metadata is not readable"),
    ],
)
def test_what_cannot_be_names_the_memory_and_the_field(said: str, problem: str) -> None:
    """A value that no memory can have is refused with the subject, the field and what is wrong with it."""
    with pytest.raises(InvalidRDF, match=f"(?s)memory_x> .*{problem}"):
        read_turtle(about(said))


def test_an_empty_summary_is_refused() -> None:
    """A memory has content."""
    with pytest.raises(InvalidRDF, match="memory_x> summary is missing"):
        read_turtle("jido:memory_x a jido:Fact .")
    with pytest.raises(InvalidRDF, match="memory_x> content is empty"):
        read_turtle("jido:memory_x a jido:Fact ; jido:summary ' ' .")


def test_two_descriptions_of_one_memory_must_agree() -> None:
    """The same memory in two graphs is one memory if both say the same, and an error if they do not."""
    told = f'<{MEMORY}1> a jido:Fact ; jido:summary "s" .'
    same = f"{HEAD} <urn:a> {{ {told} }} <urn:b> {{ {told} }}"
    missing = ImportDefaults(agent_id="a", created_at=1)
    assert len(from_quads(parse(same, RdfFormat.TRIG), missing).entries) == 1
    with pytest.raises(InvalidRDF, match="described twice"):
        from_quads(parse(same.replace('"s"', '"other"', 1), RdfFormat.TRIG), missing)


def test_statements_about_statements_are_passed_over() -> None:
    """A triple as the object of a triple tells nothing of a memory, and does no harm."""
    told = about("jido:hasConfidence <<( <urn:a> <urn:b> <urn:c> )>>, jido:High")
    assert one(told).confidence == 0.9
