"""A query has the same result in this process and on servers that share no code."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyoxigraph import Literal

from omoide.graph import IRI, Answer
from omoide.graph.backend import GraphBackend
from omoide.graph.endpoint import EndpointBackend
from omoide.graph.oxigraph import OxigraphBackend

QUOTES = ["'''", '"""', "\\", '\\"', "\\u0022", "\\\\u0041", "\\U00000041"]
HOSTILE = [*QUOTES, '" } #', "?o", "\n\r\t", "}", "\x7f", "é😀"]
characters = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffe\uffff")
hostile = st.text(characters, max_size=12) | st.lists(st.sampled_from(HOSTILE), max_size=3).map("".join)


@given(hostile, hostile)
@settings(max_examples=15)
@example("a\\u0041", "a\\u0041")
@example("a\\\\u0041\\u0042", "aA")
def test_texts_are_the_same_everywhere(remotes: tuple[EndpointBackend, ...], kept: str, sought: str) -> None:
    """A text of any kind is kept, asked for and found alike in this process and on every server."""
    graphs: tuple[GraphBackend, ...] = (OxigraphBackend(), *remotes)
    for graph in graphs:
        graph.drop(["urn:texts"])
        graph.replace([], f"<u:a> <u:p> {Literal(kept)} <urn:texts> .\n<u:b> <u:p> <u:a> <urn:texts> .")
        found = graph.query(
            "SELECT ?s ?o ?x (?x = 'z' AS ?z) { ?s <u:p> ?o FILTER(?o = ?x || ?s = ?y) } ORDER BY ?x",
            default_graphs=["urn:texts"],
            bindings={"x": sought, "y": IRI("u:a")},
        )
        assert [dict(row) for row in found] == [{"s": "u:a", "o": kept, "x": sought, "z": False}]
        same = graph.query(
            "ASK { ?s ?p ?o FILTER(?o = ?x) }", default_graphs=["urn:texts"], bindings={"x": sought}
        )
        assert same.truth is (kept == sought)


def plain(found: Answer) -> list[str] | bool:
    """An answer without its order."""
    if found.truth is not None:
        return found.truth
    rows = json.loads(found.to_json())["results"]["bindings"]
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


QUERIES = [
    "SELECT ?s ?o { ?s <u:p> ?o }",
    "SELECT ?o (COUNT(?s) AS ?n) { ?s <u:p> ?x } GROUP BY ?o ORDER BY ?o",
    "SELECT ?s ?o { { SELECT ?s ?o { ?s <u:p> ?o } } }",
    "SELECT * { { SELECT ?o { ?s <u:p> ?o } } ?s <u:p> ?o }",
    "SELECT ?s { ?s <u:p> ?q FILTER(BOUND(?o) && ?q != ?o) } ORDER BY ?o",
    "SELECT ?s { ?s <u:p> ?q MINUS { ?s <u:p> ?o } }",
    "SELECT ?s { ?s <u:p> ?q FILTER NOT EXISTS { ?s <u:p> ?o } }",
    "SELECT DISTINCT ?o { ?s <u:p>/<u:p>* ?o }",
    "ASK { ?s ?p ?o }",
    "CONSTRUCT { ?s <u:q> ?o } WHERE { ?s <u:p> ?o }",
]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("value", ["x", "none", IRI("u:a"), 3])
def test_bound_values_mean_the_same_everywhere(
    remotes: tuple[EndpointBackend, ...], query: str, value: Any
) -> None:
    """A query with a bound value has one answer, wherever it is asked."""
    said = '<u:a> <u:p> "x" <urn:q> .\n<u:b> <u:p> <u:a> <urn:q> .\n<u:c> <u:p> "y" <urn:q> .'
    graphs: tuple[GraphBackend, ...] = (OxigraphBackend(), *remotes)
    for graph in graphs:
        graph.replace([], said)
    answers = [graph.query(query, default_graphs=["urn:q"], bindings={"o": value}) for graph in graphs]
    assert list(map(plain, answers)) == [plain(answers[0])] * 3


def test_many_memories_arrive(remotes: tuple[EndpointBackend, ...]) -> None:
    """What takes several requests to remove and to send is all there afterwards, and once only."""
    said = "".join(f'<u:{n}> <u:p> "{n} of {n % 7}" <urn:many{n % 2}> .\n' for n in range(120))
    pairs = [(f"urn:many{n % 2}", f"u:{n}") for n in range(120)]
    for graph in remotes:
        for _ in range(2):
            graph.replace(pairs, said)
            assert sorted(graph.dump(["urn:many0", "urn:many1"]).decode().splitlines()) == sorted(
                said.splitlines()
            )
