"""Memories of other programs that use the Jido ontology come in as they are, and go out as they came."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from io import BytesIO
from typing import Any

import pytest
import rdflib
from pyoxigraph import Quad, RdfFormat, Triple, parse
from rdflib.namespace import RDF, RDFS
from tests.support.graph_memories import NOW

import omoide
from omoide import Entry, Scope, graph, open_store
from omoide.core import MEMORY_TYPES
from omoide.core.entry import ontology_class, supertypes, with_subtypes
from omoide.graph import PREFIXES, ImportDefaults, from_quads, ontology, to_nquads
from omoide.graph.vocabulary import DETAILS, JIDO
from omoide.longterm import RELATIONS
from omoide.stores import Link

HEAD = "".join(f"@prefix {name}: <{iri}> .\n" for name, iri in PREFIXES.items())
HEAD += "@prefix ex: <https://example.org/> .\n"
ADA = Scope(agent_id="ada", project_id="shop")
PLAIN = "jido:hasConfidence jido:Medium ; jido:hasSourceType jido:UserSource ; jido:assertedBy jido:agent_ada"
TIME = "jido:hasTimestamp '2026-01-02T03:04:05.000Z'^^xsd:dateTime"

STATEMENTS = {
    "Convention": [
        "jido:hasConventionScope jido:GlobalScope",
        "jido:hasConventionScope jido:ProjectScope",
        "jido:hasEnforcementLevel jido:Strict",
        "jido:hasEnforcementLevel ex:Sometimes",
        "jido:conventionName 'Cents'",
        "jido:conventionDescription 'Prices are kept in cents.'",
        "jido:violationConsequence 'Wrong bills.'@en",
        "jido:appliesToModule jido:module_Shop.Web",
        "jido:appliesToModule ex:Web, jido:module_a",
        "jido:appliesToDomain jido:domain_billing",
    ],
    "AgentRule": ["jido:governsAgent jido:agent_eve, jido:agent_bob"],
    "Bug": [
        "jido:hasErrorStatus jido:Resolved",
        "jido:hasErrorStatus jido:Reported",
        "jido:severityLevel 'major'",
        "jido:severityLevel 'major', 'minor'",
        "jido:errorCode 'E42' ; jido:errorCode 42",
    ],
    "ArchitecturalDecision": [
        "jido:decisionStatus 'accepted' ; jido:impactLevel 'high'",
        "jido:justifiedBy ex:reason",
    ],
    "Task": [
        "jido:hasTaskStatus jido:InProgress",
        "jido:assignedTo jido:agent_bob",
        "jido:createdBy jido:agent_eve ; jido:taskCreatedAt '2026-01-01T00:00:00Z'^^xsd:dateTime",
    ],
    "Fact": [
        "jido:detailedExplanation 'At length.'",
        "jido:severityLevel 'odd here'",
        "ex:colour 'red', 'rot'@de, 7, ex:Red ; a ex:Note",
        'ex:said "He said: \\"no\\"\\n\\\\ and left."',
    ],
}


def read(turtle: str) -> list[Any]:
    return list(parse(HEAD + turtle, RdfFormat.TURTLE))


def about(name: str, said: str) -> str:
    return f'jido:memory_x a jido:{name} ; jido:summary "s" ; {PLAIN} ; {TIME} ; {said} .'


def statements(quads: Iterable[Quad | Triple]) -> set[tuple[str, str]]:
    return {
        (quad.predicate.value, str(quad.object)) for quad in quads if str(quad.subject) == f"<{JIDO}memory_x>"
    }


@pytest.mark.parametrize(("name", "said"), [(name, one) for name in STATEMENTS for one in STATEMENTS[name]])
async def test_what_a_memory_states_comes_in_and_goes_out(name: str, said: str) -> None:
    """Each statement about a memory is exported again after it was imported, twice over, beside our own."""
    given, format = f"{HEAD}{about(name, said)}".encode(), "turtle"
    for _ in range(2):
        async with open_store("memory://", embedder="none") as store, graph.open(store) as view:
            assert await view.load(given, ADA, format=format) == 1
            target = BytesIO()
            await view.export(target, ADA, format="nquads")
        given, format = target.getvalue(), "nquads"
        assert statements(read(about(name, said))) <= statements(parse(given, RdfFormat.N_QUADS))


@pytest.mark.parametrize(
    ("name", "said", "property"),
    [
        ("Convention", "jido:hasConventionScope jido:GlobalScope", "hasConventionScope"),
        ("Convention", "jido:hasEnforcementLevel jido:Strict", "hasEnforcementLevel"),
        ("Convention", "jido:hasEnforcementLevel ex:Sometimes", "hasEnforcementLevel"),
        ("Bug", "jido:hasErrorStatus jido:Resolved", "hasErrorStatus"),
    ],
)
def test_no_default_stands_beside_what_was_stated(name: str, said: str, property: str) -> None:
    """A default value does not replace or join the value that the memory has."""
    (entry,) = from_quads(read(about(name, said)), ImportDefaults(keep_unknown=True)).entries
    told = [
        object
        for name, object in statements(parse(to_nquads(entry), RdfFormat.N_QUADS))
        if name == JIDO + property
    ]
    assert len(told) == 1
    assert told[0].rpartition("#")[2].rpartition("/")[2].strip(">") == said.rpartition(":")[2]


def test_stated_values_are_words_in_the_metadata() -> None:
    """Individuals are read as the words that the metadata uses, agents as their ids, texts as they are."""
    (rule,) = from_quads(
        read(
            about(
                "AgentRule",
                "jido:hasConventionScope jido:GlobalScope ; jido:hasEnforcementLevel jido:Required ;"
                " jido:governsAgent jido:agent_bob ; jido:detailedExplanation 'Long.' ;"
                " jido:appliesToModule jido:module_Shop.Web",
            )
        )
    ).entries
    assert rule.metadata == {
        "convention_scope": "global",
        "enforcement_level": "required",
        "governs_agent": "bob",
        "detailed_explanation": "Long.",
    }
    assert rule.about == ("module:Shop.Web",)
    task = "jido:hasTaskStatus jido:InProgress ; jido:assignedTo jido:agent_bob, jido:agent_eve"
    (entry,) = from_quads(read(about("Task", task))).entries
    assert entry.metadata == {"task_status": "in_progress", "assigned_to": ["bob", "eve"]}


def test_an_edited_export_says_what_it_was_edited_to() -> None:
    """A value that somebody changed in an exported file is read, although the metadata beside it differ."""
    entry = Entry(
        id="x", agent_id="a", content="c", type="bug", metadata={"error_status": "reported"}, created_at=NOW
    )
    text = to_nquads(entry).replace(f"{JIDO}Reported", f"{JIDO}Resolved")
    (edited,) = from_quads(parse(text, RdfFormat.N_QUADS)).entries
    assert edited.metadata == {"error_status": "resolved"}


HOSTILE: list[Any] = [
    {"https://example.org/p": ['"x" .\n<urn:a> <urn:b> <urn:c']},
    {"https://example.org/p> <urn:x> <urn:y": ['"x"']},
    {f"{JIDO}assertedBy": [f"<{JIDO}agent_eve>"]},
    {"urn:omoide:ofUser": ['"eve"']},
    {"http://www.w3.org/1999/02/22-rdf-syntax-ns#type": [f"<{JIDO}Decision>"]},
    {f"{JIDO}refines": [f"<{JIDO}memory_other>"]},
    {"https://example.org/p": ["_:b"]},
    {"https://example.org/p": "text"},
    {"https://example.org/p": ['"b"', '"a"']},
    {"https://example.org/p": []},
    {},
    "text",
]


@pytest.mark.parametrize("foreign", HOSTILE, ids=range(len(HOSTILE)))
def test_metadata_state_nothing_that_they_must_not(foreign: Any) -> None:
    """Whatever stands under the key of foreign statements stays data unless it is harmless RDF."""
    entry = Entry(id="x", agent_id="a", content="c", type="fact", metadata={"rdf": foreign}, created_at=NOW)
    quads = list(parse(to_nquads(entry), RdfFormat.N_QUADS))
    plain = list(parse(to_nquads(entry.replace(metadata={"rdf": 1})), RdfFormat.N_QUADS))
    assert len(quads) == len(plain)
    assert from_quads(quads).entries == (entry,)


@pytest.mark.parametrize("type", [None, *MEMORY_TYPES])
def test_every_memory_has_a_source(type: str | None) -> None:
    """A memory without a source is exported as the agent's, and comes back without one."""
    entry = Entry(id="x", agent_id="a", content="c", type=type, created_at=NOW)
    assert (f"{JIDO}hasSourceType", f"<{JIDO}AgentSource>") in statements(
        parse(to_nquads(entry), RdfFormat.N_QUADS)
    )
    assert from_quads(parse(to_nquads(entry), RdfFormat.N_QUADS)).entries == (entry,)
    stated = entry.replace(source="agent")
    assert from_quads(parse(to_nquads(stated), RdfFormat.N_QUADS)).entries == (stated,)


@pytest.mark.parametrize("relation", sorted({*RELATIONS} - {"superseded_by", "supersedes"}))
@pytest.mark.parametrize("type", ["fact", "decision", "error", "hypothesis", "task"])
def test_relations_keep_to_the_domains_and_ranges_of_the_ontology(relation: str, type: str) -> None:
    """A fact that contradicts does not become Evidence; where types fit, nothing else is implied either."""
    entry = Entry(id="x", agent_id="a", content="c", type=type, created_at=NOW)
    link = Link(source="x", relation=relation, target="y", created_at=NOW)
    text = to_nquads(entry, [link])
    (found,) = from_quads(parse(text, RdfFormat.N_QUADS)).links
    assert found == link
    source, target = (inferred_types(text, f"{JIDO}memory_{id}") for id in ("x", "y"))
    others = {f"{JIDO}Evidence", f"{JIDO}Justification"}
    assert not others & (source | target)
    if type in with_subtypes(RELATIONS[relation].source):
        implied = {name.removeprefix(JIDO) for name in source}
        assert implied <= {"MemoryItem", "Entity", *ontology_supertypes(type)}


def ontology_supertypes(type: str) -> list[str]:
    return [ontology_class(name) for name in (type, *supertypes(type))]


@cache
def ontology_schema() -> rdflib.Graph:
    schema = rdflib.Graph()
    for name in (*ontology.MODULES, ontology.OWN):
        schema.parse(data=ontology.turtle(name), format="turtle")
    return schema


def inferred_types(nquads: str, subject: str) -> set[str]:
    """Return the classes of a resource that RDFS infers from domains, ranges and superclasses."""
    schema, types = ontology_schema(), set[str]()
    for quad in parse(nquads, RdfFormat.N_QUADS):
        property = rdflib.URIRef(quad.predicate.value)
        if str(quad.subject) == f"<{subject}>":
            types |= {str(kind) for kind in schema.objects(property, RDFS.domain)}
            if property == RDF.type:
                types.add(quad.object.value)
        if str(quad.object) == f"<{subject}>":
            types |= {str(kind) for kind in schema.objects(property, RDFS.range)}
    for kind in [*types]:
        types |= {str(one) for one in schema.transitive_objects(rdflib.URIRef(kind), RDFS.subClassOf)}
    return types


async def test_relations_are_replaced_and_removed_with_their_nodes() -> None:
    """A relation that is taken back leaves nothing in the graph, and its target stays as it was."""
    async with open_store("memory://", embedder="none") as store, graph.open(store) as view:
        for id in ("a", "b"):
            await omoide.remember(store, f"memory {id}", ADA, id=id, type="decision")
        before = await view.sparql("SELECT ?s ?p ?o { ?s ?p ?o FILTER(?p != jido:linkTimes) }", ADA)
        asked = "SELECT ?x ?y { ?e jido:refersTo ?x ; jido:contradicts ?y }"
        link = await store.link(Link(source="a", relation="contradicts", target="b"), ADA)
        reason = await store.link(Link(source="a", relation="justified_by", target="b"), ADA)
        assert len(await view.sparql(asked, ADA)) == 1
        assert len(await view.sparql("SELECT ?m { ?m jido:justifiedBy/omoide:statedBy ?n }", ADA)) == 1
        await store.unlink(link, ADA)
        await store.unlink(reason, ADA)
        after = await view.sparql("SELECT ?s ?p ?o { ?s ?p ?o FILTER(?p != jido:linkTimes) }", ADA)
        assert {*map(str, after.rows)} == {*map(str, before.rows)}


def test_every_detail_of_the_ontology_has_a_place() -> None:
    """Each datatype property of a memory, and each object property to no memory, is read into a field."""
    known = {facet.property for facets in DETAILS.values() for facet in facets} | {*PLACES}
    declared = set()
    for name in ontology.MODULES:
        schema = rdflib.Graph().parse(data=ontology.turtle(name), format="turtle")
        for property, kind in schema.subject_objects(RDFS.domain):
            local = str(kind).removeprefix(JIDO)
            if local == "MemoryItem" or local in {
                "".join(map(str.capitalize, t.split("_"))) for t in MEMORY_TYPES
            }:
                declared.add(str(property).removeprefix(JIDO))
    assert declared - {relation.property for relation in RELATIONS.values()} - known == set()


PLACES = {
    *("summary", "rationale", "hasTimestamp", "hasConfidence", "hasSourceType"),
    *("assertedBy", "assertedIn", "appliesToProject", "appliesToModule"),
}
