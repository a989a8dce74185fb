"""Queries that do more than read are refused."""

import random
import string

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyoxigraph import Store

from omoide.errors import InvalidQuery, WrongType
from omoide.graph.sparql import MAX_BYTES, MAX_DEPTH, MAX_TOKENS, check_query, decode_escapes, tokenize

FINE = [
    "SELECT ?s WHERE { ?s a jido:Fact }",
    "select*where{?s ?p ?o.filter(?o<=3||?o>5)}",
    "ASK { ?s a/rdfs:subClassOf* jido:Decision }",
    "CONSTRUCT { ?s ?p ?o } WHERE { { SELECT ?s { ?s ?p ?o } LIMIT 1 } ?s ?p ?o }",
    "DESCRIBE jido:memory_1",
    "SELECT (COUNT(*) AS ?n) (GROUP_CONCAT(?x; SEPARATOR=', ') AS ?y) { ?s a ?x } GROUP BY ?s HAVING(?n>1)",
    "SELECT ?s { ?s (jido:a|^jido:b)+/!(jido:c|^jido:d) _:b1 . [] jido:x [ jido:y (1 2) ] }",
    "ASK { ?s ?p 'x'@en-GB, 1.5e3, -2, +3.0, true, '4'^^xsd:integer FILTER(?s <?p && ?p> 3) }",
    "SELECT ?s { GRAPH ?g { ?s ?p ?o } VALUES (?p ?o) { (jido:a UNDEF) } }",
    'SELECT ?s { ?s ?p \'\'\'it\'s "x" \'\'\' , """a"b""c\\"""" }',
    "SELECT ?s { ?s jido:a.b ?o . ?s jido:a\\-b ?o . ?s omoide:x\\#y ?o }",
    "# who?\nPREFIX x: <http://x.example/> # and\nSELECT ?s { ?s x:p ?o } # why",
]
WORDS_OF_NO_HARM = [
    "SELECT ?SERVICE { ?SERVICE ?p 'SERVICE <http://x.example/> { }' }",
    'SELECT ?s { ?s ?p """LOAD <x> ; INSERT DATA { }""" } # DELETE WHERE { ?s ?p ?o }',
    "PREFIX service: <http://s.example/> SELECT ?s { ?s service:load ?o . service:x ?p ?from }",
    "PREFIX FROM: <u:s/> PREFIX : <http://e.example/> ASK { FROM:x :INSERT <http://x/DROP/LOAD> }",
]
UPDATES = [
    "INSERT DATA { <u:a> <u:b> 1 }",
    "insert data { <u:a> <u:b> 1 }",
    "DELETE WHERE { ?s ?p ?o }",
    "WITH <u:g> DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }",
    "LOAD <http://x.example/>",
    "LOAD SILENT <http://x.example/> INTO GRAPH <u:g>",
    "CLEAR ALL",
    "DROP GRAPH <u:g>",
    "CREATE GRAPH <u:g>",
    "COPY <u:a> TO <u:b>",
    "MOVE <u:a> TO <u:b>",
    "ADD <u:a> TO <u:b>",
    "SELECT * { ?s ?p ?o } ; DROP ALL",
    "PREFIX x: <http://x.example/> DELETE DATA { x:a x:b x:c }",
]
ELSEWHERE = [
    "SELECT * { SERVICE <http://x.example/> { ?s ?p ?o } }",
    "SELECT * { sErViCe SILENT <http://x.example/> { ?s ?p ?o } }",
    "SELECT * { SERVICE# not\n<http://x.example/> { ?s ?p ?o } }",
    "SELECT * { \\u0053ERVICE <http://x.example/> { ?s ?p ?o } }",
    "SELECT * { S\\U00000045RVICE <http://x.example/> { ?s ?p ?o } }",
    "SELECT * { { SELECT * { OPTIONAL { SERVICE ?where { ?s ?p ?o } } } } }",
    "SELECT * { ?s ?p 1SERVICE <http://x.example/> { ?s ?p ?o } }",
    "SELECT * { ?s ?p 'x'SERVICE <http://x.example/> { ?s ?p ?o } }",
    "SELECT * FROM <u:g> { ?s ?p ?o }",
    "SELECT * FROM NAMED <u:g> { GRAPH ?g { ?s ?p ?o } }",
    "ASK from <u:g> { ?s ?p ?o }",
    "SELECT * { # \\u000A } SERVICE <http://x.example/> {\n ?s ?p ?o }",
    "SELECT * { ?s ?p '\\u0027 } SERVICE <http://x.example/> { ?s ?p ?o' }",
]
# Engines without an end of words read these as SERVICE, or as FROM, followed by something.
GLUED = [
    "PREFIX ex: <http://x.example/> SELECT * { SERVICEex:foo { ?s ?p ?o } }",
    "SELECT * { ?s ?p trueSERVICE<http://x.example/>{ ?s ?p ?o } }",
    "SELECT * { SERVICESILENT<http://x.example/>{ ?s ?p ?o } }",
    "PREFIX ex: <http://x.example/> SELECT *FROMex:g{ ?s ?p ?o }",
    "SELECTDISTINCT ?s { ?s ?p ?o }",
]


@pytest.mark.parametrize("query", FINE + WORDS_OF_NO_HARM)
def test_a_query_that_asks_is_let_through(query: str) -> None:
    """Every form of question passes, whatever words stand in its texts, comments, names and variables."""
    Store().query(check_query(query).text)


@pytest.mark.parametrize("query", UPDATES)
def test_an_update_is_refused(query: str) -> None:
    """Nothing that changes data is a query, and the error says what to do instead."""
    with pytest.raises(InvalidQuery, match=r"changes data.*ask with SELECT"):
        check_query(query)


@pytest.mark.parametrize("query", ELSEWHERE)
def test_a_query_cannot_look_elsewhere(query: str) -> None:
    """No spelling of SERVICE or FROM reaches another server or another graph, and the error says why."""
    with pytest.raises(InvalidQuery, match=r"another server|its own graphs|engines read differently"):
        check_query(query)


@pytest.mark.parametrize("query", GLUED)
def test_words_are_not_glued_together(query: str) -> None:
    """A word that only begins like a keyword is refused, because engines differ in where words end."""
    with pytest.raises(InvalidQuery, match=r"unknown keyword|does not declare"):
        check_query(query)


def test_a_prefix_cannot_turn_into_a_keyword() -> None:
    """A prefixed name is sent on as a whole IRI, so that no engine reads SERVICE out of its prefix."""
    query = "PREFIX SERVICEex: <http://x.example/> PREFIX ex: <http://y.example/> ASK { SERVICEex:a ?p ?o }"
    assert check_query(query).text.strip() == "ASK { <http://x.example/a> ?p ?o }"
    with pytest.raises(InvalidQuery, match="prefix 'SERVICEex'"):
        check_query("PREFIX ex: <http://y.example/> ASK { SERVICEex:a ?p ?o }")


def test_some_prefixes_are_known() -> None:
    """jido, rdf, rdfs, xsd, owl and omoide need no PREFIX, and a query may give them another meaning."""
    for prefix in ("jido", "rdf", "rdfs", "xsd", "owl", "omoide"):
        assert f" {prefix}:" not in check_query(f"ASK {{ ?s {prefix}:p ?o }}").text
    assert "<https://jido.ai/ontology#p>" in check_query("ASK { ?s jido:p ?o }").text
    assert "<u:p>" in check_query("PREFIX jido: <u:> ASK { ?s jido:p ?o }").text


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("", "has no query form"),
        ("  # nothing\n", "has no query form"),
        ("{ ?s ?p ?o }", "has no query form"),
        ("'SELECT' { ?s ?p ?o }", "has no query form"),
        ("SELECT ?s { ?s ?p 'open }", "cannot be read from line 1, column 19"),
        ("SELECT ?s {\n ?s ?p \\ }", "cannot be read from line 2, column 8"),
        ("SELECT ?s { <relative> ?p ?o }", "'relative'"),
        ("BASE <http://x.example/> SELECT ?s { ?s ?p ?o }", "declares a BASE"),
        ("PREFIX x <http://x.example/> SELECT ?s { ?s ?p ?o }", "declares a prefix wrongly"),
        ("SELECT ?s { ?s nowhere:p ?o }", "prefix 'nowhere'"),
        ("SELECT ?s { ?s A jido:Fact }", "'A'"),
        ("SELECT ?s { ?s ?p 'a\0b' }", "NUL"),
        ("SELECT ?s { ?s ?p '\ud800' }", "surrogate"),
        ("SELECT ?s { ?s ?p '\\uD800' }", "engines read differently"),
        ("ASK { # \\u000A ?s ?p ?o\n}", "engines read differently"),
        ("ASK { ?s ?p '\\u0027' }", "engines read differently"),
        ("SELECT ?s { ?s ?p 'x" + "x" * MAX_BYTES + "' }", "longer than"),
        ("SELECT ?s { ?s ?p 'x" + "é" * (MAX_BYTES // 2) + "' }", "longer than"),
    ],
)
def test_what_is_no_query_is_told_so(query: str, problem: str) -> None:
    """A text that cannot be asked is refused, and the error says why and where."""
    with pytest.raises(InvalidQuery, match=problem):
        check_query(query)


def test_a_query_is_text() -> None:
    """Anything but text is of the wrong type."""
    with pytest.raises(WrongType):
        check_query(b"ASK {}")  # type: ignore[arg-type]


DEEP = [
    ("SELECT * {braces ?s ?p ?o }", "{", "}"),
    ("SELECT * { ?s ?p ?o FILTER(braces ?s ) }", "(", ")"),
    ("SELECT * { ?s ?p ?o FILTER(braces ?s) }", "!", ""),
    ("SELECT * { braces ?s ?p ?o }", "{SELECT * {", "}}"),
    ("SELECT * { ?s ?p braces 1 }", "[ ?p ", "]"),
]


@pytest.mark.parametrize(("query", "opened", "closed"), DEEP)
@pytest.mark.parametrize("times", [3_000, 9_000])
def test_a_query_cannot_exhaust_the_stack(query: str, opened: str, closed: str, times: int) -> None:
    """What would bring the process down is refused before an engine sees it."""
    with pytest.raises(InvalidQuery, match=r"nested|longer"):
        check_query(query.replace("braces", opened * times).replace(" }", f"{closed * times} }}"))


@pytest.mark.parametrize(
    "part", ["OPTIONAL { ?s ?p ?o } ", "MINUS { ?s ?p ?o } ", "BIND(1 AS ?x) ", "?s ?p ?o . "]
)
def test_a_query_has_so_many_parts(part: str) -> None:
    """A query of very many parts is refused, while lists of values may be long."""
    with pytest.raises(InvalidQuery, match="too long"):
        check_query(f"SELECT * {{ ?s ?p ?o . {part * MAX_TOKENS} }}")
    values = " ".join(f"({n} {n})" for n in range(5_000))
    assert check_query(f"SELECT * {{ VALUES (?s ?o) {{ {values} }} }}").form == "SELECT"
    assert check_query(f"SELECT * {{ ?s ?p ?o FILTER(?o IN ({', '.join('1' * 9_000)})) }}").form == "SELECT"


@pytest.mark.parametrize(("opened", "closed"), [("{", "}"), ("(", ")")])
def test_nesting_up_to_the_limit_is_fine(opened: str, closed: str) -> None:
    """A query that is nested as deep as allowed is read without harm."""
    inner = "?s ?p ?o" if opened == "{" else "?s ?p ?o FILTER"
    deep = opened * (MAX_DEPTH - 1)
    text = f"{deep} {inner} {closed * (MAX_DEPTH - 1)}" if opened == "{" else f"{inner}{deep}?s{closed * 49}"
    Store().query(check_query(f"SELECT * {{ {text} }}").text)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=80))
@example("SELECT ?s { ?s ?p '\\\\u0041' }")
@example("?a<?b&&?c>?d")
def test_pieces_make_up_the_whole(text: str) -> None:
    """Whatever text there is: either it is refused, or its pieces together are the text, decoded."""
    try:
        pieces = tokenize(text)
    except InvalidQuery:
        return
    assert "".join(piece.text for piece in pieces) == decode_escapes(text)


@given(st.integers(0, 2**32), st.sampled_from(ELSEWHERE[:6] + UPDATES))
def test_no_disguise_helps(seed: int, query: str) -> None:
    r"""However a forbidden word is cased, escaped or surrounded by comments, it is refused."""
    chance = random.Random(seed)
    disguised = "".join(
        f"\\u{ord(letter):04x}" if letter in string.ascii_letters and chance.random() < 0.2
        else letter.swapcase() if chance.random() < 0.3
        else f" #{chance.choice(['', 'SELECT', chr(34), '>'])}\n" if letter == " " and chance.random() < 0.5
        else letter
        for letter in query.replace("http://x.example/", "u:x")
    )  # fmt: skip
    with pytest.raises(InvalidQuery):
        check_query(disguised)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n"), max_size=40))
@example("} SERVICE <http://x.example/> {")
@example("\\")
def test_texts_and_comments_are_never_read_as_words(text: str) -> None:
    """Whatever a text or a comment says, the query means the same."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    if "\\u" in text.lower().replace("\\\\", ""):
        return
    query = check_query(f'ASK {{ ?s ?p "{escaped}" }} # {text.replace(chr(92), "")}')
    assert query.variables == {"s", "p"}
    assert [token.kind for token in query.tokens if token.kind in ("word", "iri")] == ["word"]
