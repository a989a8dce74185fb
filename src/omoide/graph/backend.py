"""Backend protocol; dataset, limit and update clauses."""

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
from omoide.graph.vocabulary import EVIDENCE, JIDO, META_GRAPH, OMOIDE, percent_encode

# asking: What does whoever keeps the graph have to be able to do?


OWNED_PREFIXES = (EVIDENCE,)
"""How the IRIs of nodes begin that belong to the memories which name them, and go with the last of these."""

GraphSubject = tuple[str, str]
"""A named graph, and a subject in it."""


class SyncState(msgspec.Struct, frozen=True):
    """How far a graph has followed a store."""

    generation: str
    seq: int
    last_use_ms: int = 0
    seq_fingerprint: str = ""
    """What tells the last change from any other of its number."""
    build_id: str = ""
    """What tells this graph from one that was built again."""


@runtime_checkable
class GraphBackend(Protocol):
    """Keeps triples in named graphs, and answers queries about some of them."""

    name: str
    shared: bool
    """Whether others may write to it at the same time."""

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
        """What a query finds in these graphs, and in no other."""
        ...

    def replace(
        self, subjects: Iterable[GraphSubject], rdf: str | bytes, *, graph_name: str | None = None
    ) -> None:
        """Forget what is said about these subjects, and then take in what is told.

        That is N-Quads, or N-Triples where the graph is named that they belong to. Nodes that only the
        subjects named go with them. Doing it again changes nothing.
        """
        ...

    def record_uses(self, prefixes: Sequence[str], uses: Sequence[tuple[str, str, str]]) -> None:
        """Say how often memories were used, in all graphs whose names begin so.

        Each use is the memory's IRI, with a number and a moment as literals.
        """
        ...

    def find_subjects(self, subjects: Sequence[str], prefixes: Sequence[str]) -> list[GraphSubject]:
        """Where subjects are spoken of, among the graphs whose names begin so."""
        ...

    def copy_graphs(self, sources: Sequence[str], target: str) -> None:
        """Make one graph say what several say together, and nothing else."""
        ...

    def drop(self, graphs: Iterable[str]) -> None:
        """Forget whole graphs; those that do not exist are passed over."""
        ...

    def graphs(self, prefix: str = "") -> list[str]:
        """The named graphs that hold something, in order."""
        ...

    def dump(self, graphs: Sequence[str]) -> bytes:
        """All that some graphs say, as N-Quads."""
        ...

    def state(self, namespace: str) -> SyncState | None:
        """How far a namespace has been followed; None when it was never set."""
        ...

    def set_state(self, namespace: str, state: SyncState) -> None:
        """Write down how far a namespace has been followed."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


def prepare_query(query: str, bindings: Mapping[str, Any], limit: int) -> BoundQuery:
    """A query that was checked and has its values, with a limit that makes sense."""
    check_positive(limit, "limit")
    return bind(check_query(query), bindings)


def check_timeout(timeout: float) -> float:
    """A number of seconds to wait."""
    if not 0 < check_number(timeout, "timeout") < 1e9:
        raise Invalid("timeout", f"is {timeout}", "pass seconds, more than 0")
    return float(timeout)


def unreadable_rdf(error: SyntaxError, graph_name: str | None) -> InvalidRDF:
    """What is told is not what it should be."""
    wanted = "N-Quads" if graph_name is None else "N-Triples"
    return InvalidRDF("told", f"cannot be read ({error})", f"pass {wanted}")


# updating: How is a change of the graph told in SPARQL?


_STATE_PREFIX = f"{OMOIDE}state:"


def delete_steps(subjects: Iterable[GraphSubject], owned: Iterable[GraphSubject] = ()) -> list[str]:
    """The steps that forget these subjects, and then those of the owned nodes that nothing names any more."""
    steps = [
        f"DELETE WHERE {{ GRAPH {iri_ref(graph)} {{ {iri_ref(node)} ?p ?o }} }}" for graph, node in subjects
    ]
    for graph, node in owned:
        said = f"GRAPH {iri_ref(graph)} {{ {iri_ref(node)} ?p ?o"
        steps.append(
            f"DELETE {{ {said} }} }} WHERE {{ {said} FILTER NOT EXISTS {{ ?any ?names {iri_ref(node)} }} }} }}"
        )
    return steps


def insert_step(graph: str, triples: Iterable[str]) -> str:
    """The step that takes in triples: subject, predicate and object as SPARQL writes them.

    As a table of values, because a server that reads slowly reads a table much faster than a template.
    """
    rows = "\n".join(f"({triple})" for triple in triples)
    table = f"{{ VALUES (?s ?p ?o) {{\n{rows}\n}} }}"
    return f"INSERT {{ GRAPH {iri_ref(graph)} {{ ?s ?p ?o }} }}\nWHERE {table}"


def copy_steps(sources: Sequence[str], target: str) -> list[str]:
    """The steps that make one graph say what several say together."""
    steps = [f"DROP SILENT GRAPH {iri_ref(target)}"]
    if sources:
        found = f"{{ VALUES ?g {{ {' '.join(map(iri_ref, sources))} }} GRAPH ?g {{ ?s ?p ?o }} }}"
        steps.append(f"INSERT {{ GRAPH {iri_ref(target)} {{ ?s ?p ?o }} }}\nWHERE {found}")
    return steps


def drop_steps(graphs: Iterable[str]) -> list[str]:
    """The steps that forget whole graphs."""
    return [f"DROP SILENT GRAPH {iri_ref(graph)}" for graph in graphs]


def usage_steps(prefixes: Iterable[str], uses: Iterable[tuple[str, str, str]]) -> list[str]:
    """The steps that say how often memories were used: each one's IRI, a number and a moment as literals.

    Prefixes are those of the graphs that may speak of them.
    """
    used = [*uses]
    ours = " || ".join(f"STRSTARTS(STR(?g), {quote_string(prefix)})" for prefix in prefixes)
    count, last = f"<{JIDO}accessCount>", f"<{JIDO}lastAccessed>"
    memories = " ".join(iri_ref(iri) for iri, _, _ in used)
    figures = " ".join(f"({iri_ref(iri)} {number} {moment})" for iri, number, moment in used)
    return [
        f"DELETE {{ GRAPH ?g {{ ?m ?p ?o }} }} WHERE {{ VALUES ?m {{ {memories} }} "
        f"VALUES ?p {{ {count} {last} }} GRAPH ?g {{ ?m ?p ?o }} FILTER ({ours}) }}",
        f"INSERT {{ GRAPH ?g {{ ?m {count} ?n ; {last} ?t }} }} WHERE {{ VALUES (?m ?n ?t) {{ {figures} }} "
        f"GRAPH ?g {{ ?m a ?type }} FILTER ({ours}) }}",
    ]


def state_iri(namespace: str) -> str:
    """The IRI of how far a namespace has been followed."""
    return _STATE_PREFIX + percent_encode(namespace)


def state_steps(namespace: str, state: SyncState) -> list[str]:
    """The steps that write down how far a namespace has been followed."""
    subject = state_iri(namespace)
    facts = (
        ("life", state.generation),
        ("seq", str(state.seq)),
        ("used", str(state.last_use_ms)),
        ("mark", state.seq_fingerprint),
        ("build", state.build_id),
    )
    said = [f"<{subject}> <{OMOIDE}{name}> {quote_string(value)}" for name, value in facts]
    return [*delete_steps([(META_GRAPH, subject)]), insert_step(META_GRAPH, said)]


def parse_state(facts: Mapping[str, str]) -> SyncState | None:
    """The state that facts about it tell; None where they are not whole."""
    try:
        names = ("life", "seq", "used", "mark", "build")
        life, seq, used, mark, build = (facts[OMOIDE + name] for name in names)
        return SyncState(life, int(seq), int(used), mark, build)
    except (KeyError, ValueError):
        return None


def iri_ref(iri: str) -> str:
    """An IRI as SPARQL writes it."""
    return f"<{check_iri(iri)}>"


# shaping: Where in a query do its graphs and its limit go?


def with_dataset(bound: BoundQuery, default_graphs: Sequence[str], named_graphs: Sequence[str]) -> BoundQuery:
    """The query, asked of these graphs: FROM and FROM NAMED, where the grammar has them."""
    clauses = [f"FROM {iri_ref(graph)}" for graph in default_graphs]
    clauses += [f"FROM NAMED {iri_ref(graph)}" for graph in named_graphs]
    at = _dataset_index(bound)
    dataset = SparqlToken("given", f" {' '.join(clauses)} ")
    return BoundQuery(bound.form, (*bound.tokens[:at], dataset, *bound.tokens[at:]), bound.hidden)


def with_limit(bound: BoundQuery, limit: int) -> BoundQuery:
    """The query, with at most so many rows."""
    tokens = list(bound.tokens)
    depth = 0
    end = len(tokens)
    for at, token in enumerate(tokens):
        depth += (token.text in ("{", "(")) - (token.text in ("}", ")")) if token.kind == "sign" else 0
        if depth or token.kind != "word":
            continue
        if token.text.upper() == "LIMIT":
            number = next((n for n in range(at + 1, len(tokens)) if tokens[n].kind != "space"), at)
            if not tokens[number].text.isdecimal():
                raise InvalidQuery("has a LIMIT without a number", "say how many rows you want")
            if int(tokens[number].text) > limit:
                tokens[number] = SparqlToken("number", str(limit))
            return BoundQuery(bound.form, tuple(tokens), bound.hidden)
        if token.text.upper() == "VALUES":
            end = at
    tokens.insert(end, SparqlToken("given", f" LIMIT {limit} "))
    return BoundQuery(bound.form, tuple(tokens), bound.hidden)


def describe_targets(bound: BoundQuery) -> tuple[list[str], BoundQuery | None]:
    """What a DESCRIBE asks about: the IRIs it names, and a SELECT that finds the others, if any."""
    start = next(at for at, token in enumerate(bound.tokens) if token.kind == "word")
    end = _where_index(bound.tokens, start + 1)
    header = bound.tokens[start + 1 : end]
    iris = [token.text[1:-1] for token in header if token.text.startswith("<")]
    sought = [token.text for token in header if token.kind == "variable" or token.text == "*"]
    if not sought or end == len(bound.tokens):
        return iris, None
    select = (SparqlToken("word", "SELECT"), SparqlToken("given", f" DISTINCT {' '.join(sought)} "))
    return iris, BoundQuery("SELECT", (*select, *bound.tokens[end:]), bound.hidden)


def _dataset_index(bound: BoundQuery) -> int:
    tokens = bound.tokens
    start = next(at for at, token in enumerate(tokens) if token.kind == "word") + 1
    if bound.form == "ASK":
        return start
    if bound.form == "CONSTRUCT":
        first = next((at for at in range(start, len(tokens)) if tokens[at].kind != "space"), start)
        return _index_after_bracket(tokens, first) if tokens[first].text == "{" else start
    return _where_index(tokens, start)


def _where_index(tokens: Sequence[SparqlToken], start: int) -> int:
    """Where the pattern of a query begins: at WHERE, or at its bracket."""
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
    """The place after the bracket that closes the one at `start`."""
    depth = 0
    for at in range(start, len(tokens)):
        if tokens[at].kind == "sign":
            depth += (tokens[at].text == "{") - (tokens[at].text == "}")
        if depth == 0:
            return at + 1
    return len(tokens)
