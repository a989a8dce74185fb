"""Queries for the graph, the memories they are about, and the results computed from the entries alone."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from omoide import Entry, Evidence, Scope, WriteRequest
from omoide.core import MEMORY_TYPES
from omoide.core import entry as memory_types
from omoide.core.entry import ROOT_TYPE
from omoide.core.frozen import EMPTY_MAP
from omoide.graph import CLASSES, IRI, graph_iri, memory_iri
from omoide.graph.vocabulary import JIDO, agent_iri, level_of, project_iri, session_iri
from omoide.stores import Access, AsyncStore, Link

NOW, HOUR = 1_763_000_000_123, 3_600_000
EVERYTHING = Scope(namespace="shops")
TEA = Scope(namespace="shops", project_id="tea shop")
ADA = Scope(namespace="shops", agent_id="ada")
FIRST = Scope(namespace="shops", agent_id="ada", session_id="s/1", project_id="tea shop")
WORDS = (
    "The tea shop uses Flask.",
    "Grüner Tee kommt aus Japan, 「緑茶」.",
    'They call it "the till".',
    "TEA is sold by the 100 g\nand by the tin.",
    "Coffee is not sold.",
    "Back\\slash and a\ttab.",
)


class World(NamedTuple):
    """What a scope holds, as the store tells it."""

    entries: list[Entry]
    links: list[Link]
    access: dict[str, Access]

    def of(self, type: str) -> list[Entry]:
        """The memories of a type, and of those that refine it."""
        return [one for one in self.entries if (one.type or ROOT_TYPE) in memory_types.with_subtypes(type)]

    def linked(self, relation: str) -> list[tuple[str, str]]:
        """The ids of memories that a relation connects."""
        return [(one.source, one.target) for one in self.links if one.relation == relation]


def memories() -> Iterator[Entry]:
    """Memories of each type, of two agents, two sessions and two projects, and some that have neither."""
    for at, type in enumerate((*MEMORY_TYPES, None, *MEMORY_TYPES[:14])):
        yield Entry(
            id=f"m_{at}" if at % 7 else f"m {at}/é",
            agent_id=("ada", "bob")[at % 2],
            session_id=(None, "s/1", "s/2")[1 + at // 2 % 2 if at % 11 else 0],
            project_id=(None, "tea shop", "books")[1 + at // 4 % 2 if at % 13 else 0],
            namespace="shops",
            type=type,
            content=f"{WORDS[at % len(WORDS)]} ({at})",
            confidence=(0.1, 0.49, 0.5, 0.79, 0.8, 1.0, 0.123456789)[at % 7],
            source=(None, "user", "agent", "tool", "external_document")[at % 5],
            rationale="because it is so" if at % 3 == 0 else None,
            tags=("tea", "shop")[: at % 3],
            evidence=tuple(supports(at)),
            created_at=NOW + at * 7 * HOUR,
            occurred_at=NOW - at * HOUR if at % 4 == 0 else None,
        )


def supports(at: int) -> Iterator[Evidence]:
    """Evidence of each kind; some memories rest on earlier ones, which rest on others."""
    if at % 5 == 1:
        yield Evidence(kind="message", ref=f"t1:{at % 3}", quote="so it was said" if at % 2 else None)
    if at > 3 and at % 3 == 1:
        yield Evidence(kind="entry", ref=f"m_{at - 3}" if (at - 3) % 7 else f"m {at - 3}/é")
    if at % 9 == 2:
        yield Evidence(kind="document", ref="https://tea.example/a?b=c#d")


LINKS = (
    ("m_10", "has_root_cause", "m_15"),
    ("m_12", "has_root_cause", "m_15"),
    ("m_11", "produced_lesson", "m_9"),
    ("m_2", "refines", "m_3"),
    ("m_3", "refines", "m_4"),
    ("m_4", "refines", "m_2"),
    ("m_5", "justified_by", "m_1"),
    ("m_6", "contradicts", "m_8"),
    ("m_6", "reminds of", "m_8"),
)


async def fill_store(store: AsyncStore) -> None:
    """Write the memories, relate some, replace some, and use some."""
    await store.write_many([WriteRequest(entry=entry) for entry in memories()])
    for source, relation, target in LINKS:
        await store.link(Link(source=source, relation=relation, target=target), EVERYTHING)
    await store.supersede("m_1", EVERYTHING, by="m_3", reason="it changed")
    await store.supersede("m_16", EVERYTHING, by="m_18")
    await store.supersede("m_18", EVERYTHING, by="m_22")
    await store.supersede("m_20", EVERYTHING, reason="wrong")
    await store.record_access(["m_3", "m_4"], EVERYTHING)
    await store.record_access(["m_3"], EVERYTHING)


async def read_world(store: AsyncStore, scope: Scope) -> World:
    """Return all that a scope holds."""
    entries = await store.list_entries(scope)
    links = [link for one in entries for link in await store.links(one.id, scope) if link.source == one.id]
    return World(entries, links, {one.id: await store.access(one.id, scope) for one in entries})


class Question(NamedTuple):
    """A question, whom it is asked about, and how its answer follows from the entries."""

    query: str
    answer: Callable[[World], Any]
    scope: Scope = EVERYTHING
    bindings: Mapping[str, Any] = EMPTY_MAP
    ordered: bool = False


def iri(entry: Entry) -> str:
    return memory_iri(entry.id)


def moment(at: int | None) -> datetime | None:
    return None if at is None else datetime.fromtimestamp(at / 1000, UTC)


def transitive_closure(pairs: list[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the pairs that a chain of one or more of these connects."""
    found = {*pairs}
    while True:
        more = found | {(a, d) for a, b in found for c, d in pairs if b == c}
        if more == found:
            return found
        found = more


def derivations(world: World) -> list[tuple[str, str]]:
    return [(one.id, each.ref) for one in world.entries for each in one.evidence if each.kind == "entry"]


def successions(world: World) -> list[tuple[str, str]]:
    gone = [one for one in world.entries if one.superseded_by not in (None, "deleted")]
    return [(one.id, str(one.superseded_by)) for one in gone]


def newest_of_each(world: World) -> list[tuple[Any, ...]]:
    newest: dict[str, Entry] = {}
    for one in world.entries:
        kind = CLASSES[one.type or ROOT_TYPE]
        if kind not in newest or one.created_at > newest[kind].created_at:
            newest[kind] = one
    return [(kind, iri(one), moment(one.created_at)) for kind, one in newest.items()]


def per_project(world: World) -> list[tuple[Any, ...]]:
    sure = defaultdict(list)
    for one in world.entries:
        if one.project_id is not None:
            sure[project_iri(one.project_id)].append(one.confidence)
    return [
        (project, len(all), min(all), max(all), round(sum(all) / len(all), 6))
        for project, all in sure.items() if len(all) > 5
    ]  # fmt: skip


QUESTIONS = {
    "of a type": Question(
        "SELECT ?m ?text { ?m a jido:Fact ; jido:summary ?text }",
        lambda world: [(iri(one), one.content) for one in world.entries if one.type == "fact"],
    ),
    "of a type and its subtypes": Question(
        "SELECT ?m { ?m a/rdfs:subClassOf* jido:Decision }",
        lambda world: [(iri(one),) for one in world.of("decision")],
    ),
    "of all types, in one session": Question(
        "SELECT ?m { ?m a/rdfs:subClassOf* jido:MemoryItem }",
        lambda world: [(iri(one),) for one in world.entries],
        scope=FIRST,
    ),
    "the newest": Question(
        "SELECT ?m ?at { ?m jido:hasTimestamp ?at } ORDER BY DESC(?at) LIMIT 7 OFFSET 2",
        lambda world: [
            (iri(one), moment(one.created_at))
            for one in sorted(world.entries, key=lambda one: -one.created_at)[2:9]
        ],
        ordered=True,
    ),
    "sure enough": Question(
        "SELECT ?m ?sure { ?m jido:confidence ?sure FILTER(?sure >= 0.5 && ?sure < 0.8) }",
        lambda world: [(iri(one), one.confidence) for one in world.entries if 0.5 <= one.confidence < 0.8],
        scope=TEA,
    ),
    "by level of confidence": Question(
        "SELECT ?level (COUNT(*) AS ?n) { ?m jido:hasConfidence ?level } GROUP BY ?level",
        lambda world: [
            (JIDO + level, n)
            for level, n in Counter(level_of(one.confidence) for one in world.entries).items()
        ],
    ),
    "what still holds": Question(
        """SELECT ?m { ?m jido:summary ?text
             FILTER NOT EXISTS { ?m jido:supersededBy ?other } FILTER NOT EXISTS { ?m jido:stale true } }""",
        lambda world: [(iri(one),) for one in world.entries if one.superseded_by is None and not one.stale],
    ),
    "what was forgotten, and why": Question(
        "SELECT ?m ?why { ?m jido:supersededBy jido:DeletedMarker ; jido:supersessionReason ?why }",
        lambda world: [
            (iri(one), one.superseded_reason) for one in world.entries if one.superseded_by == "deleted"
        ],
    ),
    "evidence": Question(
        """SELECT ?m ?kind ?ref ?quote { ?m jido:derivedFrom ?e .
             ?e jido:evidenceKind ?kind ; jido:evidenceReference ?ref
             OPTIONAL { ?e jido:evidenceQuote ?quote } }""",
        lambda world: [
            (iri(one), each.kind, each.ref, each.quote) for one in world.entries for each in one.evidence
        ],
    ),
    "evidence, in a few graphs": Question(
        "SELECT ?m ?ref { ?m jido:derivedFrom ?e . ?e jido:evidenceReference ?ref }",
        lambda world: [(iri(one), each.ref) for one in world.entries for each in one.evidence],
        scope=TEA,
    ),
    "what something rests on in the end": Question(
        "SELECT ?m ?root { ?m (jido:derivedFrom/jido:refersTo)+ ?root }",
        lambda world: [(memory_iri(a), memory_iri(b)) for a, b in transitive_closure(derivations(world))],
    ),
    "how many of each type": Question(
        "SELECT ?type (COUNT(?m) AS ?n) { ?m a ?type ; jido:revision ?rev } GROUP BY ?type ORDER BY ?type",
        lambda world: sorted(Counter(CLASSES[one.type or ROOT_TYPE] for one in world.entries).items()),
        ordered=True,
    ),
    "causes": Question(
        "SELECT ?error ?cause { ?error jido:hasRootCause ?cause }",
        lambda world: [(memory_iri(a), memory_iri(b)) for a, b in world.linked("has_root_cause")],
    ),
    "around in circles": Question(
        "SELECT ?a ?b { ?a jido:refines+ ?b }",
        lambda world: [
            (memory_iri(a), memory_iri(b)) for a, b in transitive_closure(world.linked("refines"))
        ],
    ),
    "a relation of our own": Question(
        "SELECT ?a ?b { ?a <urn:omoide:relation:reminds%20of> ?b }",
        lambda world: [(memory_iri(a), memory_iri(b)) for a, b in world.linked("reminds of")],
    ),
    "with a reason, if there is one": Question(
        "SELECT ?m ?why { ?m a jido:Risk OPTIONAL { ?m jido:rationale ?why } }",
        lambda world: [(iri(one), one.rationale) for one in world.entries if one.type == "risk"],
    ),
    "one kind or another": Question(
        "SELECT ?m { { ?m a jido:Unknown } UNION { ?m a jido:Risk } UNION { ?m jido:tag 'shop' } }",
        lambda world: [
            (iri(one),)
            for one in world.entries
            for fits in (one.type == "unknown", one.type == "risk", "shop" in one.tags)
            if fits
        ],
    ),
    "words": Question(
        """SELECT ?m (STRLEN(?text) AS ?length) (UCASE(SUBSTR(?text, 1, 5)) AS ?start) {
             ?m jido:summary ?text FILTER(CONTAINS(LCASE(?text), "tea") && !STRSTARTS(?text, "The"))
             FILTER(REGEX(?text, "\\\\(\\\\d+\\\\)$")) }""",
        lambda world: [
            (iri(one), len(one.content), one.content[:5].upper())
            for one in world.entries
            if "tea" in one.content.lower() and not one.content.startswith("The")
        ],
    ),
    "exact words, whatever they hold": Question(
        "SELECT ?m { ?m jido:summary ?text }",
        lambda world: [(iri(one),) for one in world.entries if one.content == f"{WORDS[5]} (5)"],
        bindings={"text": f"{WORDS[5]} (5)"},
    ),
    "from a time to a time": Question(
        "SELECT ?m ?at { ?m jido:hasTimestamp ?at FILTER(?at >= ?from && ?at < ?until) }",
        lambda world: [
            (iri(one), moment(one.created_at))
            for one in world.entries
            if NOW + 21 * HOUR <= one.created_at < NOW + 70 * HOUR
        ],
        bindings={"from": moment(NOW + 21 * HOUR), "until": moment(NOW + 70 * HOUR)},
    ),
    "by whom, and in which session": Question(
        "SELECT ?m ?session { ?m jido:assertedBy ?who ; jido:assertedIn ?session }",
        lambda world: [
            (iri(one), session_iri(one.session_id))
            for one in world.entries
            if one.agent_id == "bob" and one.session_id is not None
        ],
        bindings={"who": IRI(agent_iri("bob"))},
    ),
    "whether there is one": Question(
        "ASK { ?m a jido:LessonLearned ; jido:confidence ?sure FILTER(?sure > ?least) }",
        lambda world: any(one.type == "lesson_learned" and one.confidence > 0.7 for one in world.entries),
        bindings={"least": 0.7},
    ),
    "whether there is none": Question(
        "ASK { ?m jido:assertedBy ?who }",
        lambda world: any(one.agent_id == "bob" for one in world.entries),
        scope=ADA,
        bindings={"who": IRI(agent_iri("bob"))},
    ),
    "a graph of another shape": Question(
        """CONSTRUCT { ?new <urn:my:replaced> ?old . ?new <urn:my:text> ?text }
           WHERE { ?old jido:supersededBy ?new . ?new jido:summary ?text }""",
        lambda world: {
            triple
            for old, new in successions(world)
            for one in world.entries
            if one.id == new
            for triple in (
                (memory_iri(new), "urn:my:replaced", memory_iri(old)),
                (memory_iri(new), "urn:my:text", one.content),
            )
        },
    ),
    "figures of each project": Question(
        """SELECT ?p (COUNT(?m) AS ?n) (MIN(?c) AS ?least) (MAX(?c) AS ?most) (AVG(?c) AS ?mean) {
             ?m jido:appliesToProject ?p ; jido:confidence ?c } GROUP BY ?p HAVING(COUNT(?m) > 5)""",
        per_project,
    ),
    "the newest of each type": Question(
        """SELECT ?type ?m ?at { { SELECT ?type (MAX(?when) AS ?at) {
             ?each a ?type ; jido:hasTimestamp ?when } GROUP BY ?type }
             ?m a ?type ; jido:hasTimestamp ?at }""",
        newest_of_each,
    ),
    "what came before and after": Question(
        """SELECT ?a ?b { ?a jido:supersededBy|^jido:supersededBy ?b
             FILTER(?a != jido:DeletedMarker && ?b != jido:DeletedMarker) }""",
        lambda world: [
            (memory_iri(x), memory_iri(y)) for a, b in successions(world) for x, y in ((a, b), (b, a))
        ],
    ),
    "the last of a succession": Question(
        """SELECT ?old ?now { ?old jido:supersededBy+ ?now FILTER NOT EXISTS { ?now jido:supersededBy ?x }
             FILTER(?now != jido:DeletedMarker) }""",
        lambda world: [
            (memory_iri(a), memory_iri(b))
            for a, b in transitive_closure(successions(world))
            if b not in {old for old, _ in successions(world)}
        ],
    ),
    "without evidence": Question(
        "SELECT ?m { ?m jido:revision ?rev MINUS { ?m jido:derivedFrom ?e } }",
        lambda world: [(iri(one),) for one in world.entries if not one.evidence],
        scope=TEA,
    ),
    "tags in a row": Question(
        "SELECT ?m (COUNT(?tag) AS ?n) { ?m jido:revision ?rev OPTIONAL { ?m jido:tag ?tag } } GROUP BY ?m",
        lambda world: [(iri(one), len(one.tags)) for one in world.entries],
        scope=ADA,
    ),
    "how often used": Question(
        "SELECT ?m ?n { ?m jido:accessCount ?n FILTER(?n > 0) } ORDER BY DESC(?n)",
        lambda world: sorted(
            ((memory_iri(id), used.count) for id, used in world.access.items() if used.count),
            key=lambda pair: -pair[1],
        ),
        ordered=True,
    ),
    "who is there": Question(
        "SELECT ?who { ?who a jido:Agent }",
        lambda world: [(agent_iri(name),) for name in {one.agent_id for one in world.entries}],
    ),
    "who is there, in a few graphs": Question(
        "SELECT ?who ?role { ?who a jido:Agent ; jido:hasRole ?role }",
        lambda world: [(agent_iri("ada"), f"{JIDO}MemoryWriter")],
        scope=Scope(namespace="shops", agent_id="ada", project_id="tea shop"),
    ),
    "which graph": Question(
        "SELECT ?g (COUNT(?m) AS ?n) { GRAPH ?g { ?m jido:summary ?text } } GROUP BY ?g",
        lambda world: [*Counter(graph_of(one) for one in world.entries).items()],
        scope=TEA,
    ),
    "words of one's own": Question(
        """SELECT ?m ?word { VALUES (?type ?word) { (jido:Bug "bug") (jido:Incident "incident") }
             ?m a ?type BIND(STR(?m) AS ?name) FILTER(STRLEN(?name) > 3) }""",
        lambda world: [(iri(one), one.type) for one in world.entries if one.type in ("bug", "incident")],
    ),
    "different subjects": Question(
        "SELECT DISTINCT ?when { ?m jido:occurredAt ?when } ORDER BY ?when",
        lambda world: [
            (moment(at),) for at in sorted({one.occurred_at for one in world.entries if one.occurred_at})
        ],
        ordered=True,
    ),
}


def graph_of(entry: Entry) -> str:
    return graph_iri(entry.namespace, entry.agent_id, entry.session_id, entry.project_id, entry.user_id)
