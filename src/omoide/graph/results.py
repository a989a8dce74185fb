"""How is an answer in the SPARQL results format read?"""

from __future__ import annotations

from typing import Any

import msgspec

from omoide.errors import Invalid
from omoide.graph.answers import Answer, Row, Triple, distinct
from omoide.graph.engine import oxigraph
from omoide.graph.terms import XSD, Term, from_oxigraph


class _Cell(msgspec.Struct, frozen=True):
    type: str
    value: Any
    datatype: str | None = None
    language: str | None = msgspec.field(default=None, name="xml:lang")
    direction: str | None = msgspec.field(default=None, name="its:dir")


class _Head(msgspec.Struct, frozen=True):
    vars: tuple[str, ...] = ()


class _Results(msgspec.Struct, frozen=True):
    bindings: list[dict[str, _Cell]]


class _Document(msgspec.Struct, frozen=True):
    head: _Head = _Head()
    results: _Results | None = None
    boolean: bool | None = None


def read_results(data: bytes, limit: int, hidden: frozenset[str] = frozenset()) -> Answer:
    """The rows, or the truth, in a JSON document of SPARQL results."""
    try:
        found = msgspec.json.decode(data, type=_Document)
        if found.boolean is not None:
            return Answer(kind="truth", truth=found.boolean)
        if found.results is None:
            raise Invalid("results", "are missing", "ask a SPARQL endpoint")
        variables = tuple(name for name in found.head.vars if name not in hidden)
        rows = tuple(
            Row(variables, {name: _term(cell) for name, cell in row.items() if name not in hidden})
            for row in found.results.bindings[:limit]
        )
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, RecursionError) as error:
        raise Invalid("results", f"cannot be read ({error})", "ask a SPARQL endpoint") from error
    return Answer(kind="rows", variables=variables, rows=rows, truncated=len(found.results.bindings) > limit)


def read_triples(data: bytes, limit: int) -> Answer:
    """The triples in a document of N-Triples."""
    engine = oxigraph()
    try:
        read = engine.parse(data, format=engine.RdfFormat.N_TRIPLES)
        triples = tuple(
            distinct(
                Triple(from_oxigraph(quad.subject), from_oxigraph(quad.predicate), from_oxigraph(quad.object))
                for quad in read
            )
        )
    except (SyntaxError, UnicodeDecodeError) as error:
        raise Invalid("results", f"cannot be read ({error})", "ask a SPARQL endpoint") from error
    return Answer(kind="triples", triples=triples[:limit], truncated=len(triples) > limit)


def _term(cell: _Cell) -> Term:
    match cell.type:
        case "uri":
            return Term("iri", _text(cell.value))
        case "bnode":
            return Term("blank", _text(cell.value).removeprefix("_:"))
        case "literal" | "typed-literal":
            if cell.language is not None:
                direction = "" if cell.direction is None else f"--{cell.direction}"
                return Term("literal", _text(cell.value), None, f"{cell.language.lower()}{direction}")
            datatype = None if cell.datatype == f"{XSD}string" else cell.datatype
            return Term("literal", _text(cell.value), datatype)
        case "triple":
            parts = msgspec.convert(cell.value, type=dict[str, _Cell])
            said = (str(_term(parts[name])) for name in ("subject", "predicate", "object"))
            return Term("triple", f"<<( {' '.join(said)} )>>")
        case _:
            raise TypeError(f"a term of type {cell.type[:40]!r}")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a value that is no text")
    return value
