"""The ontology is complete, and every tool can read it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import rdflib
from pyoxigraph import NamedNode, RdfFormat, Store, parse

from omoide.core import MEMORY_TYPES, ontology_class
from omoide.core.entry import PARENT_TYPES, ROOT_TYPE
from omoide.errors import NotFound
from omoide.graph import CLASSES, PREFIXES, TYPES, ontology
from omoide.graph.vocabulary import (
    FACETS,
    JIDO,
    LEVELS,
    OMOIDE,
    ONTOLOGY_GRAPH,
    OWL,
    RDF,
    RDFS,
    RELATIONS,
    SOURCE_INDIVIDUALS,
    XSD,
)

CLASS_TABLE = """
core: Entity; Agent>Entity; Project>Entity; WorkSession>Entity; MemoryItem>Entity; Evidence>Entity;
  Justification>Entity; ConfidenceLevel; SourceType
knowledge: Fact>MemoryItem; Assumption>MemoryItem; Hypothesis>MemoryItem; Discovery>MemoryItem;
  Risk>MemoryItem; Unknown>MemoryItem; EvidenceStrength
decision: Decision>MemoryItem; ArchitecturalDecision>Decision; ImplementationDecision>Decision;
  Alternative>MemoryItem; TradeOff>MemoryItem
convention: Convention>MemoryItem; CodingStandard>Convention; ArchitecturalConvention>Convention;
  AgentRule>Convention; ProcessConvention>Convention; ConventionScope; EnforcementLevel
error: Error>MemoryItem; Bug>Error; Failure>Error; Incident>Error; RootCause>MemoryItem;
  LessonLearned>MemoryItem; ErrorStatus
session: SessionStatus; SessionPhase
agent: PrimaryAgent>Agent; SubAgent>Agent; AgentRole; Capability
project: Repository>Entity; Module>Entity; Domain>Entity
task: Task>MemoryItem; Milestone>MemoryItem; Plan>MemoryItem; TaskStatus
code: CodeConcept>Entity; SourceFile>Entity; ElixirModule>CodeConcept; AshResource>CodeConcept;
  DSL>CodeConcept; Command>CodeConcept; Event>CodeConcept; Projection>CodeConcept
"""

INDIVIDUAL_TABLE = """
ConfidenceLevel: High Medium Low
SourceType: UserSource AgentSource ToolSource ExternalDocumentSource
EvidenceStrength: WeakEvidence ModerateEvidence StrongEvidence
ConventionScope: GlobalScope ProjectScope AgentScope
EnforcementLevel: Advisory Required Strict
ErrorStatus: Reported Investigating Resolved Deferred
SessionStatus: Active Paused Closed Abandoned
SessionPhase: PlanningPhase ImplementationPhase DebuggingPhase ReviewPhase
AgentRole: Planner Architect Implementer Reviewer Debugger MemoryWriter MemoryReader
Capability: CanPlan CanWriteCode CanReviewCode CanDebug CanWriteMemory CanQueryMemory
TaskStatus: Planned InProgress Blocked Completed Abandoned
"""

OBJECT_TABLE = """
core: assertedBy MemoryItem>Agent; assertedIn MemoryItem>WorkSession; appliesToProject MemoryItem>Project;
  derivedFrom MemoryItem>Evidence; supersededBy MemoryItem>MemoryItem; invalidatedBy MemoryItem>MemoryItem;
  hasConfidence MemoryItem>ConfidenceLevel; hasSourceType MemoryItem>SourceType
knowledge: refines Hypothesis>Hypothesis; confirms Evidence>Fact; contradicts Evidence>MemoryItem;
  hasEvidenceStrength Evidence>EvidenceStrength
decision: hasAlternative Decision>Alternative; selectedAlternative Decision>Alternative;
  hasTradeOff Decision>TradeOff; justifiedBy Decision>Justification
convention: appliesToModule Convention>Module; appliesToDomain Convention>Domain;
  governsAgent AgentRule>Agent; hasEnforcementLevel Convention>EnforcementLevel;
  hasConventionScope Convention>ConventionScope
error: hasRootCause Error>RootCause; producedLesson Error>LessonLearned; relatedError Error>Error;
  hasErrorStatus Error>ErrorStatus
session: continuesSession WorkSession>WorkSession; hasPreviousSession WorkSession>WorkSession;
  hasParticipatingAgent WorkSession>Agent; hasPrimaryAgent WorkSession>Agent;
  hasStatus WorkSession>SessionStatus; hasPhase WorkSession>SessionPhase
agent: spawnedSubAgent Agent>SubAgent; reportsTo SubAgent>Agent; hasRole Agent>AgentRole;
  hasCapability Agent>Capability
project: hasRepository Project>Repository; hasModule Project>Module; hasDomain Project>Domain;
  partOfProject Entity>Project
task: dependsOn Task>Task; blockedBy Task>Task; partOfMilestone Task>Milestone; partOfPlan Task>Plan;
  assignedTo Task>Agent; createdBy Task>Agent; hasTaskStatus Task>TaskStatus
code: definedInFile CodeConcept>SourceFile; partOfModule CodeConcept>ElixirModule;
  implementsDSL ElixirModule>DSL; emitsEvent Command>Event; handledByProjection Event>Projection
"""

DATA_TABLE = """
core: summary MemoryItem>string; detailedExplanation MemoryItem>string; rationale MemoryItem>string;
  hasTimestamp MemoryItem>dateTime
decision: decisionStatus Decision>string; impactLevel Decision>string
convention: conventionName Convention>string; conventionDescription Convention>string;
  violationConsequence Convention>string
error: severityLevel Error>string; errorCode Error>string
session: startedAt WorkSession>dateTime; endedAt WorkSession>dateTime
agent: agentName Agent>string; agentVersion Agent>string; agentDescription Agent>string
project: repoUrl Repository>anyURI; repoBranch Repository>string; projectName Project>string;
  projectVersion Project>string; projectDescription Project>string
task: taskCreatedAt Task>dateTime; taskStartedAt Task>dateTime; taskCompletedAt Task>dateTime
code: moduleName ElixirModule>string; filePath SourceFile>string; codeSummary CodeConcept>string
"""

Triples = set[tuple[str, str, str]]


def by_pyoxigraph(name: str) -> Triples:
    quads = parse(ontology.turtle(name), RdfFormat.TURTLE)
    return {(q.subject.value, q.predicate.value, _value(q.object)) for q in quads}


def _value(term: Any) -> str:
    return str(term.value)


def by_rdflib(name: str) -> Triples:
    graph = rdflib.Graph().parse(data=ontology.turtle(name), format="turtle")
    return {(str(s), str(p), str(o)) for s, p, o in graph}


READERS: list[Callable[[str], Triples]] = [by_pyoxigraph, by_rdflib]
readers = pytest.mark.parametrize("read", READERS)


def rows(table: str) -> dict[str, list[str]]:
    """The cells of each module."""
    found: dict[str, list[str]] = {}
    for name, cells in re.findall(r"^(\w+): (.*(?:\n  .*)*)", table, re.MULTILINE):
        found[name] = [" ".join(cell.split()) for cell in cells.split(";") if cell.strip()]
    return found


def local(iri: str) -> str:
    for prefix in (JIDO, XSD):
        iri = iri.removeprefix(prefix)
    return iri


def instances(triples: Triples, kind: str) -> set[str]:
    return {local(s) for s, p, o in triples if p == f"{RDF}type" and o == OWL + kind}


def values(triples: Triples, name: str, predicate: str) -> list[str]:
    subject = name if ":" in name else JIDO + name
    return sorted(local(o) for s, p, o in triples if s == subject and p == predicate)


def properties(triples: Triples, kind: str) -> set[str]:
    found = set()
    for name in instances(triples, kind):
        (domain,) = values(triples, name, f"{RDFS}domain")
        (range_,) = values(triples, name, f"{RDFS}range")
        found.add(f"{name} {domain}>{range_}")
    return found


def all_triples(read: Callable[[str], Triples], names: Iterable[str] = ontology.MODULES) -> Triples:
    return set().union(*map(read, names))


@readers
@pytest.mark.parametrize("module", list(rows(CLASS_TABLE)))
def test_each_module_declares_its_classes_with_their_superclasses(
    read: Callable[[str], Triples], module: str
) -> None:
    """The classes of a module, and what each refines, are exactly those of the Jido ontology."""
    triples = read(f"jido-{module}")
    found = set()
    for name in instances(triples, "Class"):
        parents = values(triples, name, f"{RDFS}subClassOf")
        found.add(">".join([name, *parents]))
    assert found == set(rows(CLASS_TABLE)[module])


@readers
@pytest.mark.parametrize("module", [name.removeprefix("jido-") for name in ontology.MODULES])
def test_each_module_declares_its_properties_with_domain_and_range(
    read: Callable[[str], Triples], module: str
) -> None:
    """The object and datatype properties of a module are exactly those of the Jido ontology."""
    triples = read(f"jido-{module}")
    assert properties(triples, "ObjectProperty") == set(rows(OBJECT_TABLE).get(module, ()))
    assert properties(triples, "DatatypeProperty") == set(rows(DATA_TABLE).get(module, ()))


@readers
def test_the_individuals_are_those_of_the_jido_ontology(read: Callable[[str], Triples]) -> None:
    """Each class of choices has exactly its individuals, and Abandoned is one individual of two classes."""
    triples = all_triples(read)
    table = dict(re.findall(r"^(\w+): (.*)$", INDIVIDUAL_TABLE, re.MULTILINE))
    for kind, names in table.items():
        found = {local(s) for s, p, o in triples if p == f"{RDF}type" and o == JIDO + kind}
        assert found == set(names.split())
    assert instances(triples, "NamedIndividual") == set(" ".join(table.values()).split())
    declared = [name for name in ontology.MODULES if "Abandoned" in instances(read(name), "NamedIndividual")]
    assert len(declared) == 1


@readers
def test_the_ontology_is_complete(read: Callable[[str], Triples]) -> None:
    """It has 56 classes, 45 individuals, 51 object and 27 datatype properties, in more than 600 triples."""
    triples = all_triples(read)
    counts = [
        len(instances(triples, kind))
        for kind in ("Class", "NamedIndividual", "ObjectProperty", "DatatypeProperty")
    ]
    assert counts == [56, 45, 51, 27]
    assert len(triples) > 600


@readers
@pytest.mark.parametrize("name", [*ontology.MODULES, ontology.OWN, ontology.SHAPES])
def test_each_file_is_an_ontology_of_a_version_that_imports_what_it_uses(
    read: Callable[[str], Triples], name: str
) -> None:
    """Every file is one owl:Ontology with a version, and what it names is declared in it or its imports."""
    triples = read(name)
    (iri,) = instances(triples, "Ontology")
    assert values(triples, iri, f"{OWL}versionInfo") == ["1.0.0"]
    files = {
        next(iter(instances(read(other), "Ontology"))): other
        for other in (*ontology.MODULES, ontology.OWN, ontology.SHAPES)
    }
    seen: set[str] = set()
    todo = [iri]
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += values(read(files[name]), name, f"{OWL}imports")
    known = all_triples(read, (files[name] for name in seen))
    declared = {s for s, p, _ in known if p == f"{RDF}type"}
    assert {o for _, _, o in triples if o.startswith(JIDO)} <= declared


@readers
def test_the_modules_have_their_names_and_their_order(read: Callable[[str], Triples]) -> None:
    """Ten modules, each an ontology of its name that builds on the core, and a hub that imports them all."""
    modules = list(rows(CLASS_TABLE))
    assert list(ontology.MODULES) == [f"jido-{module}" for module in modules]
    names = [f"Jido{module.capitalize()}Ontology" for module in modules]
    for at, name in enumerate(names):
        triples = read(ontology.MODULES[at])
        assert instances(triples, "Ontology") == {name}
        imported = set(values(triples, name, f"{OWL}imports"))
        assert {*names[: min(at, 1)]} <= imported <= {*names} - {name}
    hub = read(ontology.OWN)
    assert instances(hub, "Ontology") == {"JidoMemoryOntology"}
    assert values(hub, "JidoMemoryOntology", f"{OWL}imports") == sorted(names)


@readers
def test_every_word_is_explained(read: Callable[[str], Triples]) -> None:
    """Everything that is declared has a label and a comment."""
    triples = all_triples(read, (*ontology.MODULES, ontology.OWN))
    declared = {s for s, p, _ in triples if p == f"{RDF}type"}
    for predicate in ("label", "comment"):
        assert {s for s, p, o in triples if p == RDFS + predicate and o.strip()} == declared


@readers
def test_the_words_that_nobody_had_declared_are_declared(read: Callable[[str], Triples]) -> None:
    """What queries use beyond the ten modules is declared beside them, and nothing is declared twice."""
    own = read(ontology.OWN)
    figures = {"confidence MemoryItem>double", "accessCount MemoryItem>integer"}
    figures |= {f"{OMOIDE}{name} MemoryItem>string" for name in ("ofUser", "key")}
    assert {*figures, "lastAccessed MemoryItem>dateTime"} <= properties(own, "DatatypeProperty")
    assert instances(own, "NamedIndividual") == {"DeletedMarker"}
    jido = all_triples(read)
    assert not {s for s, _, _ in own} & {s for s, _, _ in jido}


@readers
def test_both_readers_read_the_same(read: Callable[[str], Triples]) -> None:
    """Two parsers that share no code agree on every file."""
    for name in (*ontology.MODULES, ontology.OWN):
        assert read(name) == by_pyoxigraph(name)


def test_the_ontology_lies_in_a_graph_of_its_own() -> None:
    """The N-Quads of the ontology hold all modules, in one named graph, and say which class refines which."""
    store = Store()
    store.load(ontology.nquads(), RdfFormat.N_QUADS)
    assert [graph.value for graph in store.named_graphs()] == [ONTOLOGY_GRAPH]
    asked = "ASK { jido:Bug rdfs:subClassOf+ jido:MemoryItem }"
    prefixes = dict(PREFIXES)
    assert store.query(asked, prefixes=prefixes, default_graph=NamedNode(ONTOLOGY_GRAPH))
    assert len(store) == len(all_triples(by_pyoxigraph, (*ontology.MODULES, ontology.OWN)))


def test_an_unknown_module_is_an_error() -> None:
    """Asking for a module that does not exist names those that do."""
    with pytest.raises(NotFound, match="jido-core"):
        ontology.turtle("../secrets")


def test_memory_types_and_classes_are_the_same_tree() -> None:
    """Every memory type has its class, with the same parent, and the other way round."""
    triples = all_triples(by_pyoxigraph)
    assert {CLASSES[name] for name in MEMORY_TYPES} | {CLASSES[ROOT_TYPE]} == set(TYPES)
    for name, parent in PARENT_TYPES.items():
        assert values(triples, ontology_class(name), f"{RDFS}subClassOf") == [ontology_class(parent)]


def test_every_word_that_memories_are_told_with_is_declared() -> None:
    """The tables of relations, sources, levels and facets name nothing that the ontology does not declare."""
    triples = all_triples(by_pyoxigraph)
    objects, datas = instances(triples, "ObjectProperty"), instances(triples, "DatatypeProperty")
    individuals = instances(triples, "NamedIndividual")
    assert set(RELATIONS.values()) <= objects
    assert {local(iri) for iri in SOURCE_INDIVIDUALS.values()} | {
        name for name, _, _ in LEVELS
    } <= individuals
    for facet in (facet for facets in FACETS.values() for facet in facets):
        if facet.choices is None:
            assert facet.property in datas
        else:
            assert facet.property in objects
            assert {local(iri) for iri in facet.choices.values()} <= individuals
