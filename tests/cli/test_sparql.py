"""The `sparql` command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from unicodedata import category

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st
from pyoxigraph import RdfFormat, parse
from tests.cli.test_process import without
from tests.support import sparql_servers as servers
from tests.support.sparql_servers import Server

from omoide.cli import transfer
from omoide.cli.shell import UNSAFE_CATEGORIES
from omoide.graph import IRI, RDFTerm, Triple

Run = Callable[..., Result]
Answer = Callable[..., Any]

TEXTS = "SELECT ?text { ?memory jido:summary ?text } ORDER BY ?text"
WORDS = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A SPARQL server."""
    with servers.oxigraph(tmp_path_factory.mktemp("oxigraph")) as running:
        yield running


@pytest.mark.usefixtures("three")
def test_a_question_has_an_answer_of_its_kind(omoide: Run) -> None:
    """SELECT gives lines with tabs, ASK yes or no, CONSTRUCT triples; nothing and no have code 1."""
    assert omoide("sparql", TEXTS).stdout == "".join(f"Memory number {number}.\n" for number in (1, 2, 3))
    assert omoide("sparql", "ASK { ?m jido:summary 'Memory number 2.' }").stdout == "yes\n"
    assert omoide("sparql", "ASK { ?m jido:summary 'Nothing.' }", code=1).stdout == "no\n"
    triples = omoide("sparql", "CONSTRUCT WHERE { ?m jido:summary 'Memory number 2.' }").stdout
    assert triples == (
        '<https://jido.ai/ontology#memory_m2> <https://jido.ai/ontology#summary> "Memory number 2." .\n'
    )
    for query in (
        "SELECT * { ?m jido:summary 'Nothing.' }",
        "CONSTRUCT WHERE { ?m jido:summary 'Nothing.' }",
    ):
        assert omoide("sparql", query, code=1).stderr == "Nothing found.\n"
    assert omoide("sparql", "SELECT ?m ?no { ?m jido:summary 'Memory number 1.' }").stdout == (
        "https://jido.ai/ontology#memory_m1\t\n"
    )


@pytest.mark.usefixtures("three")
def test_programs_get_the_format_of_sparql_results(answer: Answer) -> None:
    """With `--json` an answer has the standard form for SPARQL results."""
    found = answer("sparql", TEXTS)
    assert found["head"] == {"vars": ["text"]}
    assert found["results"]["bindings"][0] == {"text": {"type": "literal", "value": "Memory number 1."}}
    assert answer("sparql", "ASK { ?m jido:summary 'Nothing.' }", code=1)["boolean"] is False
    told = answer("sparql", "CONSTRUCT WHERE { ?m jido:summary 'Memory number 1.' }")
    assert told["head"]["vars"] == ["subject", "predicate", "object"]


@pytest.mark.usefixtures("three")
def test_a_query_comes_from_where_it_is(omoide: Run, home: Path) -> None:
    """As an argument, from standard input or from a file, and from one of them only."""
    (home / "all.rq").write_text(TEXTS)
    wanted = omoide("sparql", TEXTS).stdout
    assert omoide("sparql", "-", input=TEXTS).stdout == wanted
    assert omoide("sparql", "--file", "all.rq").stdout == wanted
    assert "must be given once" in omoide("sparql", code=2).stderr
    assert "must be given once" in omoide("sparql", TEXTS, "--file", "all.rq", code=2).stderr
    omoide("sparql", "--file", "absent.rq", code=1)
    (home / "latin.rq").write_bytes(b"SELECT \xff")
    assert "is not UTF-8" in omoide("sparql", "--file", "latin.rq", code=2).stderr


@pytest.mark.usefixtures("three")
def test_values_are_bound_and_never_read_as_a_query(omoide: Run) -> None:
    """A value stands for a variable whatever is in it."""
    ask = "ASK { ?m jido:summary ?text }"
    omoide("sparql", ask, "--bind", "text=Memory number 1.")
    omoide(
        "sparql", ask, "--bind", "?text=Memory number 1.", "--bind", "m=<https://jido.ai/ontology#memory_m1>"
    )
    omoide("sparql", ask, "--bind", "text=Memory number 1.", "--bind", "m=<urn:other>", code=1)
    omoide("sparql", ask, "--bind", 'text=" } ; DROP ALL #', code=1)
    for wrong in ("text", "=x", "1x=2", "text=a\ttext=b", "limit=3", "m=<no iri>", "other=1"):
        omoide("sparql", ask, *(part for one in wrong.split("\t") for part in ("--bind", one)), code=2)


def test_values_mean_what_they_look_like() -> None:
    """Numbers, truths and IRIs are told from text, and quotes make anything text."""
    read = {
        "12": 12, "-3": -3, "1.50": Decimal("1.50"), "2e3": 2000.0, "true": True, "false": False,
        "True": "True", "<urn:a>": IRI("urn:a"), '"12"': "12", "": "", "<": "<", '"': '"', "1,5": "1,5",
        "nan": "nan", "a=b": "a=b", "²": "²", "٣": "٣",
    }  # fmt: skip
    for text, value in read.items():
        found = transfer.parse_value(text)
        assert (type(found), found) == (type(value), value)


@given(WORDS)
def test_any_text_can_be_bound(text: str) -> None:
    """In quotes a value is exactly the text between them."""
    assert transfer.parse_bindings([f'x="{text}"']) == {"x": text}


@given(st.integers(-(10**30), 10**30))
def test_any_whole_number_can_be_bound(number: int) -> None:
    """A whole number is read as itself."""
    assert transfer.parse_bindings([f"$n={number}"]) == {"n": number}


@pytest.mark.parametrize("name", ["query", "scope", "limit", "bindings", "self", "call", "timeout"])
def test_a_variable_may_have_any_name(name: str) -> None:
    """A variable never passes for an option of the question."""
    assert transfer.parse_bindings([f"{name}=1"]) == {name: 1}


@given(WORDS)
def test_triples_are_safe_to_see_and_to_read(text: str) -> None:
    """What is printed acts on no terminal, stays on its line, and means the same to a parser."""
    line = transfer.to_ntriples(
        Triple(RDFTerm("iri", "urn:s"), RDFTerm("iri", "urn:p"), RDFTerm("literal", text))
    )
    [quad] = parse(line, RdfFormat.N_TRIPLES)
    assert quad.object.value == text
    assert not any(category(char) in UNSAFE_CATEGORIES for char in line)


@pytest.mark.usefixtures("three")
def test_a_query_only_asks(omoide: Run, answer: Answer) -> None:
    """What would change, ask elsewhere or cannot be read is refused in one line, and nothing is changed."""
    for query in (
        "DROP ALL",
        "DELETE WHERE { ?a ?b ?c }",
        "SELECT * { SERVICE <urn:x> { ?a ?b ?c } }",
        "SELECT {",
    ):
        assert omoide("sparql", query, code=2).stderr.count("\n") == 1
    assert len(answer("list")["entries"]) == 3


@pytest.mark.usefixtures("three")
def test_a_query_sees_what_is_meant_and_no_more(omoide: Run) -> None:
    """Agent, project and namespace hold for SPARQL as they do for everything."""
    omoide("remember", "Of another.", "--agent", "other")
    omoide("remember", "Elsewhere.", "--namespace", "elsewhere")
    assert omoide("sparql", TEXTS, "--agent", "other").stdout == "Of another.\n"
    assert omoide("sparql", TEXTS, "--agent", "").stdout.count("\n") == 4
    assert omoide("sparql", TEXTS, "--namespace", "elsewhere").stdout == "Elsewhere.\n"


@pytest.mark.usefixtures("three")
def test_a_limit_is_told(omoide: Run) -> None:
    """What the limit leaves out is mentioned, and a limit that makes no sense is refused."""
    cut = omoide("sparql", TEXTS, "--limit", "2")
    assert cut.stdout.count("\n") == 2
    assert cut.stderr == "There are more than 2: see --limit.\n"
    assert omoide("sparql", TEXTS, "--limit", "3").stderr == ""
    omoide("sparql", TEXTS, "--limit", "0", code=2)
    omoide("sparql", TEXTS, "--timeout", "0", code=2)


@pytest.mark.usefixtures("three")
def test_a_query_that_never_ends_is_stopped(omoide: Run) -> None:
    """When the time is over the command ends with code 4."""
    endless = f"SELECT (COUNT(*) AS ?n) {{ {' '.join(f'?a{n} ?b{n} ?c{n} .' for n in range(6))} }}"
    stopped = omoide("sparql", endless, "--timeout", "0.5", code=4)
    assert "took longer than 0.5 s" in stopped.stderr


@pytest.mark.usefixtures("three")
def test_a_graph_is_kept_in_a_folder(omoide: Run, home: Path) -> None:
    """It is there the next time, and follows the store."""
    wanted = omoide("sparql", TEXTS, "--graph", "graph").stdout
    assert any((home / "graph").iterdir())
    omoide("remember", "Something new.", "--id", "m4")
    assert omoide("sparql", TEXTS, "--graph", "graph").stdout == f"{wanted}Something new.\n"
    omoide("erase", "m4", "--yes")
    assert omoide("sparql", TEXTS, "--graph", "graph").stdout == wanted


@pytest.mark.usefixtures("three")
def test_an_endpoint_keeps_the_graph(omoide: Run, server: Server) -> None:
    """A server answers as the own engine does; one that is not there has code 4."""
    where = ("--endpoint", server.query_url, "--update-endpoint", server.update_url)
    wanted = omoide("sparql", TEXTS).stdout
    assert omoide("sparql", TEXTS, *where).stdout == wanted
    omoide("sparql", "ASK { ?m jido:summary ?text }", "--bind", "text=Memory number 1.", *where)
    absent = f"http://127.0.0.1:{servers.free_port()}/query"
    assert "cannot be reached" in omoide("sparql", TEXTS, "--endpoint", absent, code=4).stderr
    omoide("sparql", TEXTS, *where, "--graph", "graph", code=2)


@pytest.mark.parametrize("command", [("sparql", TEXTS), ("export", "a.ttl"), ("import", "a.ttl")])
@pytest.mark.usefixtures("three")
def test_the_extra_for_graphs_is_named(command: tuple[str, ...], home: Path) -> None:
    """Without Oxigraph there is one line that says what to install."""
    if command[0] == "import":
        (home / "a.ttl").touch()
    done = without(["pyoxigraph"], *command)
    assert done.returncode == 2
    assert done.stderr.endswith("pip install 'omoide[graph]'\n")
    assert done.stderr.count("\n") == 1
