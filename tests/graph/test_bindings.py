"""A bound value means that value and nothing else."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyoxigraph
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omoide.errors import Invalid, InvalidQuery, WrongType
from omoide.graph import IRI, BlankNode, RDFTerm
from omoide.graph.oxigraph import OxigraphBackend
from omoide.graph.sparql import bind, check_query, tokenize
from omoide.graph.terms import term_of

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
HOSTILE = [
    '" } SERVICE <u:x> { "',
    "'''",
    '"""',
    "\\",
    '\\"',
    "\\u0022",
    "\\\\u0041",
    "?o",
    "#",
    "\n\r\t",
    "<u:x>",
    "}",
]
hostile = st.one_of(texts, st.lists(st.sampled_from(HOSTILE), max_size=4).map("".join))
values: st.SearchStrategy[Any] = st.one_of(
    hostile,
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.booleans(),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**9), max_value=10**9),
    st.datetimes(datetime(1000, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)),  # noqa: DTZ001
)

NQUADS = """
<u:a> <u:p> "x" <u:g> .
<u:b> <u:p> "y" <u:g> .
<u:b> <u:n> "3"^^<http://www.w3.org/2001/XMLSchema#integer> <u:g> .
<u:b> <u:q> <u:a> <u:g> .
"""


@pytest.fixture(scope="module")
def graph() -> OxigraphBackend:
    kept = OxigraphBackend()
    kept.replace([], NQUADS)
    return kept


def kinds(query: str) -> list[str]:
    return [piece.kind for piece in tokenize(query)]


def rows(graph: OxigraphBackend, query: str, **bindings: Any) -> list[dict[str, Any]]:
    found = graph.query(query, default_graphs=["u:g"], bindings=bindings)
    return sorted((dict(row) for row in found), key=repr)


@given(values)
@example("a\\u0041")
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    """A bound value that is asked for is the value that was bound."""
    found = OxigraphBackend().query(
        "SELECT ?x ?y { BIND(?x AS ?y) }", default_graphs=[], bindings={"x": value}
    )
    for name in "xy":
        got = found.rows[0][name]
        assert got == value or (value != value and got != got)
        assert type(got) is type(value)


@given(hostile)
def test_a_value_is_one_term(text: str) -> None:
    """However a text reads, the query keeps its words and its shape."""
    query = check_query("SELECT ?s { ?s ?p ?o FILTER(?o = ?x || ?x = 'z') } ORDER BY ?x")
    plain, given_text = (bind(query, {"x": value}) for value in ("plain", text))
    if "CONCAT" in given_text.text:
        return
    assert kinds(plain.text) == kinds(given_text.text)


@given(hostile)
@example("x")
@example("\\u0041")
def test_a_text_is_found_as_itself(text: str) -> None:
    """A text that is kept is found by binding it, and no other text is."""
    graph = OxigraphBackend()
    kept = pyoxigraph.Quad(
        pyoxigraph.NamedNode("u:a"),
        pyoxigraph.NamedNode("u:p"),
        pyoxigraph.Literal(text),
        pyoxigraph.NamedNode("u:g"),
    )
    graph.replace([], pyoxigraph.serialize([kept], format=pyoxigraph.RdfFormat.N_QUADS) or b"")
    assert rows(graph, "SELECT ?s { ?s <u:p> ?o FILTER(?o = ?x) }", x=text) == [{"s": "u:a"}]
    assert rows(graph, "SELECT ?s { ?s <u:p> ?o FILTER(?o = ?x) }", x=f"{text}!") == []


@pytest.mark.parametrize(
    ("query", "bindings", "expected"),
    [
        ("SELECT ?s { ?s <u:p> ?o }", {"o": "y"}, [{"s": "u:b"}]),
        ("SELECT ?s { ?s <u:p> $o }", {"o": "y"}, [{"s": "u:b"}]),
        ("SELECT ?s ?o { ?s <u:p> ?o }", {"o": "y"}, [{"s": "u:b", "o": "y"}]),
        ("SELECT * { ?s <u:p> ?o }", {"o": "y"}, [{"s": "u:b"}]),
        ("SELECT DISTINCT ?o { ?s <u:p> ?o }", {"o": "y"}, [{"o": "y"}]),
        ("SELECT (?o AS ?z) { ?s <u:p> ?o }", {"o": "y"}, [{"z": "y"}]),
        ("SELECT ?p { ?s ?p ?o }", {"s": IRI("u:a")}, [{"p": "u:p"}]),
        ("SELECT ?s { ?s ?p ?o }", {"p": IRI("u:n")}, [{"s": "u:b"}]),
        ("SELECT ?s { ?s <u:n> ?o FILTER(?o > ?least) }", {"least": 2}, [{"s": "u:b"}]),
        ("SELECT ?s { ?s <u:n> ?o FILTER(?o > ?least) }", {"least": 3}, []),
        ("SELECT ?s { ?s <u:p> ?o FILTER(?o IN (?x, 'z')) }", {"x": "x"}, [{"s": "u:a"}]),
        ("SELECT ?s { ?s <u:p> ?o FILTER(BOUND(?x) && ?o = ?x) }", {"x": "x"}, [{"s": "u:a"}]),
        ("SELECT ?s { ?s <u:p> ?o FILTER NOT EXISTS { ?s <u:p> ?x } }", {"x": "x"}, [{"s": "u:b"}]),
        ("SELECT ?s { ?s <u:p> ?o MINUS { ?s <u:p> ?x } }", {"x": "x"}, [{"s": "u:b"}]),
        (
            "SELECT ?o (COUNT(?s) AS ?n) { ?s <u:p> ?o } GROUP BY ?o ORDER BY ?o",
            {"o": "y"},
            [{"o": "y", "n": 1}],
        ),
        ("SELECT ?o (COUNT(?s) AS ?n) { ?s <u:p> ?o } GROUP BY ?o", {"o": "none"}, []),
        (
            "SELECT ?s { ?s <u:p> ?o } ORDER BY DESC(?x) ?x STR(?x) LIMIT 1",
            {"x": "y", "o": "x"},
            [{"s": "u:a"}],
        ),
        (
            "SELECT ?s ?o { { SELECT ?s ?o { ?s <u:p> ?o } ORDER BY ?o } }",
            {"o": "y"},
            [{"s": "u:b", "o": "y"}],
        ),
        ("SELECT * { { SELECT ?o { ?s <u:p> ?o } } ?s <u:p> ?o }", {"o": "y"}, [{"s": "u:b"}]),
        ("SELECT ?s { ?s <u:p> ?o } VALUES ?s { <u:a> <u:b> }", {"o": "y"}, [{"s": "u:b"}]),
        ("SELECT ?s { VALUES (?s ?z) { (<u:b> 1) } ?s <u:p> ?o }", {"o": "y"}, [{"s": "u:b"}]),
        ("SELECT ?s { ?s <u:q>/<u:p> ?o }", {"o": "x"}, [{"s": "u:b"}]),
        ("SELECT ?s { ?s <u:p> ?o . } GROUP BY ?s HAVING(?x = 'x')", {"x": "x", "o": "x"}, [{"s": "u:a"}]),
    ],
)
def test_a_bound_name_means_its_value_everywhere(
    graph: OxigraphBackend, query: str, bindings: dict[str, Any], expected: list[dict[str, Any]]
) -> None:
    """Wherever a bound variable stands, the query means what it would mean with the value written there."""
    assert rows(graph, query, **bindings) == expected


def test_other_forms_take_values_as_well(graph: OxigraphBackend) -> None:
    """ASK, CONSTRUCT and DESCRIBE can be bound."""

    def ask(query: str, **bindings: Any) -> Any:
        return graph.query(query, default_graphs=["u:g"], bindings=bindings)

    assert ask("ASK { ?s <u:p> ?o }", o="x")
    assert not ask("ASK { ?s <u:p> ?o }", o="none")
    built = ask("CONSTRUCT { ?s <u:is> ?o } WHERE { ?s <u:p> ?o }", o="x")
    assert [triple.values for triple in built] == [("u:a", "u:is", "x")]
    assert [triple.values for triple in ask("DESCRIBE ?s", s=IRI("u:a"))] == [("u:a", "u:p", "x")]


PROJECTED = [
    "SELECT ?s ?o { ?s <u:p> ?o }",
    "SELECT ?s ?o { ?s ?p ?o FILTER(?o != 'x') }",
    "SELECT ?s ?o { ?s <u:p> ?q OPTIONAL { ?s <u:q> ?o } }",
    "SELECT ?s ?o { ?s <u:p> ?q MINUS { ?s <u:p> ?o } }",
    "SELECT ?o (COUNT(?s) AS ?n) { ?s <u:p> ?o } GROUP BY ?o",
    "SELECT ?s ?o { { SELECT ?s ?o { ?s <u:p> ?o } } }",
]


@pytest.mark.parametrize("query", PROJECTED)
@given(value=st.sampled_from(["x", "y", "", '"', 3, IRI("u:a")]))
def test_values_mean_what_they_mean_to_the_engine(query: str, value: Any) -> None:
    """Where the engine itself can substitute, which is only for columns of the result, the answers agree."""
    store = pyoxigraph.Store()
    store.load(NQUADS.encode(), format=pyoxigraph.RdfFormat.N_QUADS)
    graph = OxigraphBackend()
    graph.replace([], NQUADS)
    term = pyoxigraph.NamedNode(value) if isinstance(value, IRI) else pyoxigraph.Literal(value)
    solutions = store.query(
        query, default_graph=[pyoxigraph.NamedNode("u:g")], substitutions={pyoxigraph.Variable("o"): term}
    )
    assert isinstance(solutions, pyoxigraph.QuerySolutions)
    names = [variable.value for variable in solutions.variables]
    expected = sorted(str([row[name] for name in names]) for row in solutions)
    found = graph.query(query, default_graphs=["u:g"], bindings={"o": value})
    assert len(found) == len(expected)
    assert sorted(str(row.term("o")) for row in found) == [str(term)] * len(expected)


@pytest.mark.parametrize(
    ("query", "bindings", "problem"),
    [
        ("SELECT ?s { ?s ?p ?o }", {"x": 1}, r"no variable \?x.*\?o, \?p, \?s"),
        ("ASK { <u:a> <u:b> 'x ?y' }", {"y": 1}, "none"),
        ("SELECT ?s { ?s ?p ?q BIND(?q AS ?o) }", {"o": 1}, r"gives \?o a value itself"),
        ("SELECT (1 AS ?o) { ?s ?p ?q }", {"o": 1}, r"gives \?o a value itself"),
        ("SELECT ?s { VALUES ?o { 1 } ?s ?p ?o }", {"o": 1}, r"gives \?o a value itself"),
        ("SELECT ?s { VALUES (?s ?o) { (1 2) } }", {"o": 1}, r"gives \?o a value itself"),
        ("SELECT ?s { ?s ?p ?o } VALUES ?o { 1 }", {"o": 1}, r"gives \?o a value itself"),
        ("SELECT ?s { ?s ?p ?o } GROUP BY (STR(?s) AS ?o)", {"o": 1}, r"gives \?o a value itself"),
        ("SELECT ?s { ?s ?p ?o FILTER(?s<u:x&&?o>?p) }", {"o": 1}, "spaces around"),
        ("SELECT ?s { ?s ?p ?o }", {"p": 3}, "cannot be read"),
        ("DESCRIBE ?s", {"s": "text"}, "cannot be read"),
        ("SELECT ?s { ?s ?p ?o }", {"o": "a\\u0041"}, r"FILTER\(\?other = \?o\)"),
    ],
)
def test_what_cannot_be_bound_is_refused(
    graph: OxigraphBackend, query: str, bindings: dict[str, Any], problem: str
) -> None:
    """A name that is not there, or has a value already, or a value where none can stand, is an error."""
    with pytest.raises(InvalidQuery, match=problem):
        graph.query(query, default_graphs=["u:g"], bindings=bindings)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (None, WrongType),
        ([1], WrongType),
        (b"x", WrongType),
        (object(), WrongType),
        ("a\0b", Invalid),
        ("\ud800", Invalid),
        (IRI("no iri"), Invalid),
        (IRI("u:a> ?p ?o . <u:b"), Invalid),
        (IRI("relative"), Invalid),
        (BlankNode("b0"), Invalid),
        (RDFTerm("blank", "b0"), Invalid),
        (RDFTerm("literal", "x", "no iri>"), Invalid),
        (RDFTerm("literal", "x", None, "en } SERVICE"), Invalid),
        (RDFTerm("triple", "<<( <u:a> <u:b> <u:c> )>>"), Invalid),
        (Decimal("NaN"), Invalid),
        (Decimal("1e999999"), Invalid),
        (datetime(2024, 1, 1), Invalid),  # noqa: DTZ001
        (pyoxigraph.BlankNode(), Invalid),
    ],
)
def test_only_values_that_can_be_said_are_bound(value: object, error: type[Exception]) -> None:
    """What is no text, number, bool, moment or whole IRI is refused by the name of its variable."""
    with pytest.raises(error, match="binding 'x'"):
        bind(check_query("ASK { ?s ?p ?x }"), {"x": value})


def test_a_text_is_no_subject(graph: OxigraphBackend) -> None:
    """Nothing is said about a text, so a pattern with a text for its subject finds nothing."""
    assert rows(graph, "SELECT ?p { ?s ?p ?o }", s="u:a") == []


def test_terms_of_the_engine_can_be_bound(graph: OxigraphBackend) -> None:
    """A term of pyoxigraph's is as good as a value."""
    assert rows(graph, "SELECT ?s { ?s <u:p> ?o }", o=pyoxigraph.Literal("x")) == [{"s": "u:a"}]
    assert rows(graph, "SELECT ?o { ?s <u:p> ?o }", s=pyoxigraph.NamedNode("u:a")) == [{"o": "x"}]


def test_a_moment_is_told_in_utc() -> None:
    """A moment of any zone is the same moment in UTC."""
    told = term_of(datetime(2024, 5, 1, 14, 30, tzinfo=timezone(timedelta(hours=2))))
    assert told.value == "2024-05-01T12:30:00Z"
    assert told.python == datetime(2024, 5, 1, 12, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "datatype", "expected"),
    [
        ("12", "integer", 12),
        ("12", "nonNegativeInteger", 12),
        ("1.50", "decimal", Decimal("1.50")),
        ("1e2", "double", 100.0),
        ("-INF", "double", float("-inf")),
        ("true", "boolean", True),
        ("0", "boolean", False),
        ("2024-05-01T12:30:00.123Z", "dateTime", datetime(2024, 5, 1, 12, 30, 0, 123_000, tzinfo=UTC)),
        ("2024-05-01T12:30:00.123456789Z", "dateTime", datetime(2024, 5, 1, 12, 30, 0, 123_456, tzinfo=UTC)),
        ("2024-05-01T12:30:00", "dateTime", datetime(2024, 5, 1, 12, 30, tzinfo=UTC)),
        ("2024-05-01", "date", "2024-05-01"),
        ("-0044-03-15T00:00:00Z", "dateTime", "-0044-03-15T00:00:00Z"),
        ("2024-05-01T24:00:00Z", "dateTime", "2024-05-01T24:00:00Z"),
        ("maybe", "boolean", "maybe"),
        ("NaN", "decimal", "NaN"),
        ("9" * 5_000, "integer", "9" * 5_000),
        ("twelve", "integer", "twelve"),
    ],
)
def test_a_literal_is_the_value_it_means(value: str, datatype: str, expected: object) -> None:
    """A literal becomes the Python value it means, or stays text where Python has none."""
    told = RDFTerm("literal", value, f"http://www.w3.org/2001/XMLSchema#{datatype}")
    assert told.python == expected
    assert type(told.python) is type(expected)
