"""Protocol of graph backends, and the SPARQL text that they share.

A backend stores triples in named graphs. Both implementations build their updates from the steps here, and
the endpoint writes the dataset and the limit into the text of a query.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from omoide.core.entry import check_positive
from omoide.core.value import check_number
from omoide.errors import Invalid, InvalidQuery, InvalidRDF
from omoide.graph.results import Answer
from omoide.graph.sparql import BoundQuery, SparqlToken, bind, check_query
from omoide.graph.terms import check_iri, quote_string
from omoide.graph.vocabulary import (
    ABOUT_PREFIXES,
    EVIDENCE,
    JIDO,
    JUSTIFICATION,
    META_GRAPH,
    OMOIDE,
    percent_encode,
)

OWNED_PREFIXES = (EVIDENCE, JUSTIFICATION, *ABOUT_PREFIXES.values())
"""IRI prefixes of nodes that are deleted with the last memory that references them."""

GraphSubject = tuple[str, str]
"""A named graph, and a subject in it."""


class SyncState(msgspec.Struct, frozen=True):
    """Position of a graph in the change feed of its store."""

    generation: str
    """Generation of the store that the sequence number belongs to."""
    seq: int
    last_use_ms: int = 0
    """Timestamp of the last access that the graph has."""
    seq_fingerprint: str = ""
    """Fingerprint of the change numbered `seq`; distinguishes copies of a store."""
    build_id: str = ""
    """Id of this build of the graph; a rebuilt graph has another one."""


@runtime_checkable
class GraphBackend(Protocol):
    """Store triples in named graphs and answer queries about some of them."""

    name: str
    shared: bool
    """True if other programs may write to the backend at the same time."""

    def query(
        self,
        query: str,
        *,
        default_graphs: Sequence[str],
        named_graphs: Sequence[str] = (),
        bindings: Mapping[str, Any] = {},
        limit: int = 10_000,
        timeout: float | None = None,
    ) -> Answer:
        """Return the result of a query over these graphs and no others.

        Args:
            query: SPARQL query text.
            default_graphs: graphs that are merged into the default graph.
            named_graphs: graphs that the query may address with GRAPH.
            bindings: values for variables of the query.
            limit: maximum number of rows or triples.
            timeout: seconds.

        Raises:
            InvalidQuery: the query cannot be parsed or is not a plain query.
            QueryStopped: the query exceeds a limit.
        """

    def replace(
        self, subjects: Iterable[GraphSubject], rdf: str | bytes, *, graph_name: str | None = None
    ) -> None:
        """Delete all triples about these subjects, then insert triples. Idempotent.

        Nodes that only these subjects reference are deleted too (see `OWNED_PREFIXES`).

        Args:
            subjects: subjects to delete, with their graphs.
            rdf: N-Quads, or N-Triples if `graph_name` is given.
            graph_name: graph that the N-Triples belong to.
        """

    def record_uses(self, prefixes: Sequence[str], uses: Sequence[tuple[str, str, str]]) -> None:
        """Set the access counts of memories in all graphs with these prefixes.

        Each use is the IRI of a memory, with the count and the timestamp as literals.
        """

    def find_subjects(self, subjects: Sequence[str], prefixes: Sequence[str]) -> list[GraphSubject]:
        """Return the graphs with these prefixes in which the subjects are described."""

    def copy_graphs(self, sources: Sequence[str], target: str) -> None:
        """Replace a graph by the union of several graphs."""

    def drop(self, graphs: Iterable[str]) -> None:
        """Delete whole graphs; unknown ones are ignored."""

    def graphs(self, prefix: str = "") -> list[str]:
        """Return the names of all graphs that are not empty, sorted."""

    def dump(self, graphs: Sequence[str]) -> bytes:
        """Return all triples of some graphs as N-Quads."""

    def state(self, namespace: str) -> SyncState | None:
        """Return the sync state of a namespace, or None if it was never set."""

    def set_state(self, namespace: str, state: SyncState) -> None:
        """Store the sync state of a namespace."""

    def close(self) -> None:
        """Release all resources."""


def prepare_query(query: str, bindings: Mapping[str, Any], limit: int) -> BoundQuery:
    """Check a query and its limit, and bind its values."""
    check_positive(limit, "limit")
    return bind(check_query(query), bindings)


def check_timeout(timeout: float) -> float:
    """Return a timeout in seconds as a float; raise `Invalid` unless it is positive."""
    if not 0 < check_number(timeout, "timeout") < 1e9:
        raise Invalid("timeout", f"is {timeout}", "pass seconds, more than 0")
    return float(timeout)


def unreadable_rdf(error: SyntaxError, graph_name: str | None) -> InvalidRDF:
    """Return the error for RDF that cannot be parsed."""
    expected = "N-Quads" if graph_name is None else "N-Triples"
    return InvalidRDF("rdf", f"cannot be read ({error})", f"pass {expected}")


_STATE_PREFIX = f"{OMOIDE}state:"


def delete_steps(subjects: Iterable[GraphSubject], owned: Iterable[GraphSubject] = ()) -> list[str]:
    """Return the updates that delete subjects, and owned nodes that nothing references any more."""
    steps = [
        f"DELETE WHERE {{ GRAPH {iri_ref(graph)} {{ {iri_ref(node)} ?p ?o }} }}" for graph, node in subjects
    ]
    # The steps of an update run in order, so the filter no longer sees references from deleted subjects.
    for graph, node in owned:
        triples = f"GRAPH {iri_ref(graph)} {{ {iri_ref(node)} ?p ?o"
        unreferenced = f"FILTER NOT EXISTS {{ ?any ?names {iri_ref(node)} }}"
        steps.append(f"DELETE {{ {triples} }} }} WHERE {{ {triples} {unreferenced} }} }}")
    return steps


def insert_step(graph: str, triples: Iterable[str]) -> str:
    """Return the update that inserts triples: subject, predicate and object in SPARQL syntax.

    The triples are a VALUES table, which slow servers read much faster than a template.
    """
    rows = "\n".join(f"({triple})" for triple in triples)
    table = f"{{ VALUES (?s ?p ?o) {{\n{rows}\n}} }}"
    return f"INSERT {{ GRAPH {iri_ref(graph)} {{ ?s ?p ?o }} }}\nWHERE {table}"


def copy_steps(sources: Sequence[str], target: str) -> list[str]:
    """Return the updates that replace a graph by the union of several graphs."""
    # Without SILENT, dropping a graph that does not exist is an error in SPARQL.
    steps = [f"DROP SILENT GRAPH {iri_ref(target)}"]
    if sources:
        pattern = f"{{ VALUES ?g {{ {' '.join(map(iri_ref, sources))} }} GRAPH ?g {{ ?s ?p ?o }} }}"
        steps.append(f"INSERT {{ GRAPH {iri_ref(target)} {{ ?s ?p ?o }} }}\nWHERE {pattern}")
    return steps


def drop_steps(graphs: Iterable[str]) -> list[str]:
    """Return the updates that delete whole graphs."""
    return [f"DROP SILENT GRAPH {iri_ref(graph)}" for graph in graphs]


def usage_steps(prefixes: Iterable[str], uses: Iterable[tuple[str, str, str]]) -> list[str]:
    """Return the updates that set the access counts of memories in all graphs with these prefixes."""
    counted = [*uses]
    in_graphs = " || ".join(f"STRSTARTS(STR(?g), {quote_string(prefix)})" for prefix in prefixes)
    # Two updates, because a memory without counts would not match the pattern of a combined one. The type
    # restricts the insertion to graphs that describe the memory.
    count, last = f"<{JIDO}accessCount>", f"<{JIDO}lastAccessed>"
    memories = " ".join(iri_ref(iri) for iri, _, _ in counted)
    rows = " ".join(f"({iri_ref(iri)} {number} {at})" for iri, number, at in counted)
    return [
        f"DELETE {{ GRAPH ?g {{ ?m ?p ?o }} }} WHERE {{ VALUES ?m {{ {memories} }} "
        f"VALUES ?p {{ {count} {last} }} GRAPH ?g {{ ?m ?p ?o }} FILTER ({in_graphs}) }}",
        f"INSERT {{ GRAPH ?g {{ ?m {count} ?n ; {last} ?t }} }} WHERE {{ VALUES (?m ?n ?t) {{ {rows} }} "
        f"GRAPH ?g {{ ?m a ?type }} FILTER ({in_graphs}) }}",
    ]


def state_iri(namespace: str) -> str:
    """Return the IRI of the sync state of a namespace."""
    return _STATE_PREFIX + percent_encode(namespace)


def state_steps(namespace: str, state: SyncState) -> list[str]:
    """Return the updates that store the sync state of a namespace."""
    subject = state_iri(namespace)
    # The names are part of the data format; they stay if a field is renamed.
    facts = (
        ("life", state.generation),
        ("seq", str(state.seq)),
        ("used", str(state.last_use_ms)),
        ("mark", state.seq_fingerprint),
        ("build", state.build_id),
    )
    triples = [f"<{subject}> <{OMOIDE}{name}> {quote_string(value)}" for name, value in facts]
    return [*delete_steps([(META_GRAPH, subject)]), insert_step(META_GRAPH, triples)]


def parse_state(facts: Mapping[str, str]) -> SyncState | None:
    """Return the sync state that its properties describe; None if they are incomplete."""
    try:
        names = ("life", "seq", "used", "mark", "build")
        life, seq, used, mark, build = (facts[OMOIDE + name] for name in names)
        return SyncState(life, int(seq), int(used), mark, build)
    except (KeyError, ValueError):
        return None


def iri_ref(iri: str) -> str:
    """Return an IRI in angle brackets."""
    return f"<{check_iri(iri)}>"


def with_dataset(bound: BoundQuery, default_graphs: Sequence[str], named_graphs: Sequence[str]) -> BoundQuery:
    """Return the query with FROM and FROM NAMED clauses for these graphs."""
    clauses = [f"FROM {iri_ref(graph)}" for graph in default_graphs]
    clauses += [f"FROM NAMED {iri_ref(graph)}" for graph in named_graphs]
    at = _dataset_index(bound)
    dataset = SparqlToken("inserted", f" {' '.join(clauses)} ")
    return BoundQuery(bound.form, (*bound.tokens[:at], dataset, *bound.tokens[at:]), bound.hidden)


def with_limit(bound: BoundQuery, limit: int) -> BoundQuery:
    """Return the query with a LIMIT of at most `limit`."""
    tokens = list(bound.tokens)
    # Only the outermost level counts: a subquery, in braces, has a LIMIT of its own.
    depth = 0
    end = len(tokens)
    for at, token in enumerate(tokens):
        depth += (token.text in ("{", "(")) - (token.text in ("}", ")")) if token.kind == "sign" else 0
        if depth or token.kind != "word":
            continue
        if token.text.upper() == "LIMIT":
            number = next((n for n in range(at + 1, len(tokens)) if tokens[n].kind != "space"), at)
            if not tokens[number].text.isdecimal():
                raise InvalidQuery("has a LIMIT without a number", "write a number after LIMIT")
            if int(tokens[number].text) > limit:
                tokens[number] = SparqlToken("number", str(limit))
            return BoundQuery(bound.form, tuple(tokens), bound.hidden)
        if token.text.upper() == "VALUES":  # in the grammar a final VALUES follows LIMIT
            end = at
    tokens.insert(end, SparqlToken("inserted", f" LIMIT {limit} "))
    return BoundQuery(bound.form, tuple(tokens), bound.hidden)


def describe_targets(bound: BoundQuery) -> tuple[list[str], BoundQuery | None]:
    """Return the IRIs that a DESCRIBE names, and a SELECT for the subjects of its pattern, if any."""
    start = next(at for at, token in enumerate(bound.tokens) if token.kind == "word")
    end = _where_index(bound.tokens, start + 1)
    header = bound.tokens[start + 1 : end]
    iris = [token.text[1:-1] for token in header if token.text.startswith("<")]
    variables = [token.text for token in header if token.kind == "variable" or token.text == "*"]
    if not variables or end == len(bound.tokens):
        return iris, None
    select = (SparqlToken("word", "SELECT"), SparqlToken("inserted", f" DISTINCT {' '.join(variables)} "))
    return iris, BoundQuery("SELECT", (*select, *bound.tokens[end:]), bound.hidden)


def _dataset_index(bound: BoundQuery) -> int:
    tokens = bound.tokens
    start = next(at for at, token in enumerate(tokens) if token.kind == "word") + 1
    # FROM follows the projection of SELECT and the template of CONSTRUCT; ASK has neither.
    if bound.form == "ASK":
        return start
    if bound.form == "CONSTRUCT":
        first = next((at for at in range(start, len(tokens)) if tokens[at].kind != "space"), start)
        return _index_after_bracket(tokens, first) if tokens[first].text == "{" else start
    return _where_index(tokens, start)


def _where_index(tokens: Sequence[SparqlToken], start: int) -> int:
    """Return the index at which the graph pattern begins: WHERE, or its opening brace."""
    depth = 0
    for at in range(start, len(tokens)):
        kind, text = tokens[at]
        if kind == "sign" and text in "()":
            depth += 1 if text == "(" else -1
        elif depth == 0 and (
            (kind == "word" and text.upper() == "WHERE") or (kind == "sign" and text == "{")
        ):
            return at
    return len(tokens)


def _index_after_bracket(tokens: Sequence[SparqlToken], start: int) -> int:
    """Return the index after the brace that closes the one at `start`."""
    depth = 0
    for at in range(start, len(tokens)):
        if tokens[at].kind == "sign":
            depth += (tokens[at].text == "{") - (tokens[at].text == "}")
        if depth == 0:
            return at + 1
    return len(tokens)
