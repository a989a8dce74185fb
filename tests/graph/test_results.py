"""A query result can be read, printed and serialized."""

import json
import math
from io import BytesIO
from typing import Any

import pytest
import rdflib.query
from hypothesis import given
from hypothesis import strategies as st

from omoide.errors import Invalid, NotFound
from omoide.graph import IRI, Answer, BlankNode, RDFTerm, ResultRow, Triple
from omoide.graph.oxigraph import OxigraphBackend
from omoide.graph.results import read_results, read_triples
from omoide.graph.terms import XSD

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
iris = st.builds(lambda name: RDFTerm("iri", f"urn:{name}"), st.text("abcé-_~/", max_size=8))
literals = st.one_of(
    st.builds(lambda text: RDFTerm("literal", text), texts),
    st.builds(lambda number: RDFTerm("literal", str(number), f"{XSD}integer"), st.integers()),
    st.builds(lambda text: RDFTerm("literal", text, None, "en-gb"), texts),
    st.builds(lambda text: RDFTerm("literal", text, "urn:own"), texts),
)
terms = st.one_of(iris, literals, st.just(RDFTerm("blank", "b0")))
rows = st.lists(st.dictionaries(st.sampled_from(["x", "y"]), terms), max_size=5).map(
    lambda found: tuple(ResultRow(("x", "y"), row) for row in found)
)

SAID = """
<u:a> <u:p> "tea, \\"hot\\"\\nand green" <u:g> .
<u:a> <u:n> "3"^^<http://www.w3.org/2001/XMLSchema#integer> <u:g> .
"""


@pytest.fixture
def graph() -> OxigraphBackend:
    kept = OxigraphBackend()
    kept.replace([], SAID)
    return kept


def test_rows_are_mappings(graph: OxigraphBackend) -> None:
    """A row gives each variable's value in Python; one without a value is None, and the term is there too."""
    found = graph.query(
        "SELECT ?s ?n ?none { ?s <u:n> ?n OPTIONAL { ?s <u:none> ?none } }", default_graphs=["u:g"]
    )
    assert found.kind == "rows"
    assert found.variables == ("s", "n", "none")
    (row,) = found
    assert dict(row) == {"s": "u:a", "n": 3, "none": None}
    assert isinstance(row["s"], IRI)
    assert list(row) == ["s", "n", "none"]
    assert row.term("n") == RDFTerm("literal", "3", f"{XSD}integer")
    assert row.term("none") is None
    assert found.values("n") == (3,)
    assert len(found) == 1
    assert found
    with pytest.raises(NotFound, match="use s, n, none"):
        row["other"]
    with pytest.raises(NotFound):
        found.values("other")
    assert row.get("other", 5) == 5


def test_a_truth_is_true_or_false(graph: OxigraphBackend) -> None:
    """The answer to ASK is as true as what was asked."""
    yes, no = (graph.query(f"ASK {{ ?s <u:{p}> ?o }}", default_graphs=["u:g"]) for p in ("p", "none"))
    assert (bool(yes), yes.truth, str(yes)) == (True, True, "yes")
    assert (bool(no), no.truth, str(no)) == (False, False, "no")
    assert json.loads(no.to_json()) == {"head": {}, "boolean": False}


def test_triples_are_values_and_text(graph: OxigraphBackend) -> None:
    """CONSTRUCT gives triples, each once, that can be read as values or passed on as N-Triples."""
    found = graph.query("CONSTRUCT { ?s <u:has> ?o, 1 } WHERE { ?s ?p ?o }", default_graphs=["u:g"])
    assert found.kind == "triples"
    assert sorted(map(str, (triple.values[2] for triple in found))) == ["1", "3", 'tea, "hot"\nand green']
    assert read_triples(found.to_ntriples().encode(), 10).triples == found.triples
    with pytest.raises(Invalid, match="no triples"):
        graph.query("ASK {}", default_graphs=[]).to_ntriples()


def test_an_answer_reads_as_a_table(graph: OxigraphBackend) -> None:
    """As text an answer is a table, one line a row, that says when there was more."""
    text = str(graph.query("SELECT ?p ?o { ?s ?p ?o } ORDER BY ?p", default_graphs=["u:g"]))
    assert text.splitlines() == [
        "p      o",
        "-----  " + "-" * 20,
        "<u:n>  3",
        '<u:p>  tea, "hot" and green',
        "(2 rows)",
    ]
    cut = graph.query("SELECT ?p { ?s ?p ?o }", default_graphs=["u:g"], limit=1)
    assert str(cut).endswith("(1 row, and there are more)")
    assert str(graph.query("SELECT * {}", default_graphs=[])).endswith("(1 row)")


@given(rows)
def test_results_in_json_can_be_read_back(found: tuple[ResultRow, ...]) -> None:
    """The JSON of an answer is read back as the same answer, by us and by rdflib."""
    answer = Answer(kind="rows", variables=("x", "y"), rows=found)
    assert read_results(answer.to_json(), 100) == answer
    other = rdflib.query.Result.parse(BytesIO(answer.to_json()), format="json")
    assert len(other.bindings) == len(found)


@given(st.lists(st.tuples(iris, iris, st.one_of(iris, literals)), max_size=5, unique=True))
def test_triples_can_be_read_back(found: list[tuple[RDFTerm, RDFTerm, RDFTerm]]) -> None:
    """The N-Triples of an answer are read back as the same triples."""
    answer = Answer(kind="triples", triples=tuple(Triple(*parts) for parts in found))
    assert read_triples(answer.to_ntriples().encode(), 100) == answer


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"<html>no</html>",
        b"{}",
        b'{"head":{"vars":["x"]}}',
        b'{"head":{"vars":["x"]},"results":{}}',
        b'{"head":{"vars":["x"]},"results":{"bindings":[{"x":{"type":"uri"}}]}}',
        b'{"head":{"vars":["x"]},"results":{"bindings":[{"x":{"type":"other","value":"v"}}]}}',
        b'{"head":{"vars":["x"]},"results":{"bindings":[{"x":{"type":"literal","value":3}}]}}',
        b'{"head":{"vars":["x"]},"results":{"bindings":[{"x":{"type":"triple","value":{}}}]}}',
        b'{"head":{"vars":["x"]},"results":{"bindings":[{"x":{"type":"literal","value":"\xff"}}]}}',
    ],
)
def test_what_is_no_result_is_refused(document: bytes) -> None:
    """A document that is not in the format for SPARQL results is an error, never an empty answer."""
    with pytest.raises(Invalid, match="results"):
        read_results(document, 10)


def test_a_triple_can_be_spoken_about() -> None:
    """A triple inside a triple comes back as its text."""
    graph = OxigraphBackend()
    graph.replace([], '<u:a> <u:says> <<( <u:b> <u:p> "x" )>> <u:g> .')
    found = graph.query("SELECT ?o { ?s ?p ?o }", default_graphs=["u:g"])
    assert found.values("o") == ('<<( <u:b> <u:p> "x" )>>',)
    nested = b'{"head":{"vars":["o"]},"results":{"bindings":[{"o":{"type":"triple","value":{"subject":'
    nested += b'{"type":"uri","value":"u:b"},"predicate":{"type":"uri","value":"u:p"},"object":'
    nested += b'{"type":"literal","value":"x"}}}}]}}'
    assert read_results(nested, 10).rows == found.rows


def test_blank_nodes_are_told_from_text() -> None:
    """A node without a name is a Blank, an IRI an IRI, and text is text."""
    kinds: list[tuple[RDFTerm, Any]] = [
        (RDFTerm("blank", "b"), BlankNode),
        (RDFTerm("iri", "u:a"), IRI),
        (RDFTerm("literal", "u:a"), str),
    ]
    for term, kind in kinds:
        assert type(term.python) is kind
    assert repr(IRI("u:a")) == "IRI('u:a')"
    assert repr(BlankNode("b")) == "BlankNode('b')"
    assert math.isnan(RDFTerm("literal", "NaN", f"{XSD}double").python)
