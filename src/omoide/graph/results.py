"""Results of SPARQL queries, from Oxigraph and from the SPARQL JSON format."""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from typing import Any, Literal

import msgspec

from omoide.errors import (
    Busy,
    Corrupted,
    DiskFull,
    Invalid,
    InvalidQuery,
    MissingExtra,
    NotFound,
    QueryStopped,
    ReadOnly,
    StoreFailed,
)
from omoide.graph.sparql import BoundQuery
from omoide.graph.terms import XSD, RDFTerm, from_oxigraph

_MAX_CELL_WIDTH = 60


class ResultRow(Mapping[str, Any]):
    """One solution: the variables of the query and their values, None where unbound."""

    __slots__ = ("_terms", "_variables")

    def __init__(self, variables: tuple[str, ...], terms: Mapping[str, RDFTerm]) -> None:
        self._variables = variables
        self._terms = dict(terms)

    def __getitem__(self, name: str) -> Any:
        term = self._terms.get(name)
        if term is not None:
            return term.python
        if name in self._variables:
            return None
        raise NotFound("variable", name, f"use {', '.join(self._variables) or 'none'}")

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of a variable, or the default if there is no such variable."""
        return self[name] if name in self._variables else default

    def __contains__(self, name: object) -> bool:
        return name in self._variables

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ResultRow):
            return self._variables == other._variables and self._terms == other._terms
        return NotImplemented if not isinstance(other, Mapping) else dict(self) == dict(other)

    def __hash__(self) -> int:
        return hash((self._variables, tuple(map(self._terms.get, self._variables))))

    def __repr__(self) -> str:
        return f"ResultRow({dict(self)!r})"

    def term(self, name: str) -> RDFTerm | None:
        """Return the RDF term of a variable, with datatype and language."""
        return self._terms.get(name)


class Triple(msgspec.Struct, frozen=True):
    """One RDF statement."""

    subject: RDFTerm
    predicate: RDFTerm
    object: RDFTerm

    def __str__(self) -> str:
        return f"{self.subject} {self.predicate} {self.object} ."

    @property
    def values(self) -> tuple[Any, Any, Any]:
        """Subject, predicate and object as Python values."""
        return self.subject.python, self.predicate.python, self.object.python


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a query: rows (SELECT), a truth value (ASK), or triples (CONSTRUCT and DESCRIBE)."""

    kind: Literal["rows", "truth", "triples"]
    variables: tuple[str, ...] = ()
    rows: tuple[ResultRow, ...] = ()
    truth: bool | None = None
    triples: tuple[Triple, ...] = ()
    truncated: bool = False
    """True if the limit cut the result off."""

    def __iter__(self) -> Iterator[Any]:
        return iter(self.triples if self.kind == "triples" else self.rows)

    def __len__(self) -> int:
        return len(self.triples if self.kind == "triples" else self.rows)

    def __bool__(self) -> bool:
        return bool(self.truth) if self.kind == "truth" else len(self) > 0

    def values(self, name: str) -> tuple[Any, ...]:
        """Return the values of one variable, row by row."""
        if name not in self.variables:
            raise NotFound("variable", name, f"use {', '.join(self.variables) or 'none'}")
        return tuple(row[name] for row in self.rows)

    def to_json(self) -> bytes:
        """Return the result in the SPARQL JSON results format; triples become three columns."""
        if self.kind == "truth":
            return msgspec.json.encode({"head": {}, "boolean": self.truth})
        names, terms = self._table()
        bindings = [
            {name: _term_to_json(term) for name, term in zip(names, row, strict=True) if term is not None}
            for row in terms
        ]
        return msgspec.json.encode({"head": {"vars": names}, "results": {"bindings": bindings}})

    def to_ntriples(self) -> str:
        """Return the triples as N-Triples."""
        if self.kind != "triples":
            raise Invalid("answer", f"has {self.kind} and no triples", "ask with CONSTRUCT or DESCRIBE")
        return "".join(f"{triple}\n" for triple in self.triples)

    def __str__(self) -> str:
        """Return the result as a text table."""
        if self.kind == "truth":
            return "yes" if self.truth else "no"
        names, terms = self._table()
        table = [names, *([_term_to_text(term) for term in row] for row in terms)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
        count = f"{len(self)} {'row' if self.kind == 'rows' else 'triple'}{'' if len(self) == 1 else 's'}"
        more = ", and there are more" if self.truncated else ""
        return "\n".join(
            [lines[0], "  ".join("-" * width for width in widths), *lines[1:], f"({count}{more})"]
        )

    def _table(self) -> tuple[list[str], list[list[RDFTerm | None]]]:
        if self.kind == "triples":
            names = ["subject", "predicate", "object"]
            return names, [[triple.subject, triple.predicate, triple.object] for triple in self.triples]
        return list(self.variables), [[row.term(name) for name in self.variables] for row in self.rows]


def distinct(triples: Iterable[Triple]) -> Iterator[Triple]:
    """Yield each triple once, in order of first occurrence."""
    seen: set[Triple] = set()
    for triple in triples:
        if triple not in seen:
            seen.add(triple)
            yield triple


# The results format of SPARQL 1.1 has no type for quoted triples; they are written as text.
_JSON_TERM_TYPES = {"iri": "uri", "literal": "literal", "blank": "bnode", "triple": "literal"}


def _term_to_json(term: RDFTerm) -> dict[str, str]:
    cell = {"type": _JSON_TERM_TYPES[term.kind], "value": term.value}
    if term.language is not None:
        cell["xml:lang"] = term.language
    elif term.datatype is not None:
        cell["datatype"] = term.datatype
    return cell


def _term_to_text(term: RDFTerm | None) -> str:
    if term is None:
        return ""
    text = str(term) if term.kind in ("iri", "blank") else term.value
    line = " ".join(text.split())
    return line if len(line) <= _MAX_CELL_WIDTH else f"{line[: _MAX_CELL_WIDTH - 1]}…"


def load_oxigraph() -> Any:
    """Import `pyoxigraph`; raise `MissingExtra` if it is not installed."""
    try:
        return import_module("pyoxigraph")
    except ImportError as error:
        raise MissingExtra("the RDF graph", "graph") from error


def check_syntax(bound: BoundQuery) -> BoundQuery:
    """Return the query if Oxigraph can parse it; it is not evaluated."""
    text = bound.text
    if bound.form == "ASK":  # Oxigraph evaluates an ASK at once, but rows lazily
        start = next(at for at, token in enumerate(bound.tokens) if token.kind == "word")
        rest = "".join(token.text for token in bound.tokens[start + 1 :])
        text = f"SELECT (1 AS ?omoide_checked) {rest}"
    with map_syntax_errors():
        load_oxigraph().Store().query(text)
    return bound


@contextmanager
def map_syntax_errors() -> Iterator[None]:
    """Raise `InvalidQuery` for a syntax error inside the block."""
    try:
        yield
    except SyntaxError as error:
        raise InvalidQuery(syntax_problem(str(error)), "see the SPARQL 1.1 query language") from error


def syntax_problem(message: str) -> str:
    """Return position and reason of a parser message; the list of expected tokens is left out."""
    position = re.search(r"error at (\d+):(\d+)", message)
    reason = re.search(r"\b(?:The|Syntax|Duplicate)\b[^,\[]*", message)
    # Prefixes and values are expanded by now, so the column would mislead; the line is right.
    where = f" in line {position[1]}" if position else f" ({' '.join(message.split())[:200]})"
    return f"cannot be read{where}{f': {reason[0].strip()}' if reason else ''}"


@contextmanager
def map_oxigraph_errors(name: str) -> Iterator[None]:
    """Map errors of Oxigraph inside the block to those of Omoide."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise oxigraph_error(error, name) from error


def oxigraph_error(error: OSError | RuntimeError, name: str) -> StoreFailed:
    """Return the Omoide error for an error of Oxigraph."""
    message = str(error)
    number = error.errno if isinstance(error, OSError) else None
    # Oxigraph reports errors of its storage as text only, so the message decides.
    if "lock" in message.lower() and ("unavailable" in message or "No locks" in message):
        return Busy(name, "is open already", "close it first, or give each process a path of its own")
    if number == errno.ENOSPC or "No space left" in message or "File too large" in message:
        return DiskFull(
            name, f"has no disk space left ({message})", "free some space and try again; nothing was lost"
        )
    if isinstance(error, PermissionError) or "Permission denied" in message or "Read-only" in message:
        return ReadOnly(name, f"cannot be written to ({message})", "check the permissions of its folder")
    if "orrupt" in message or "hecksum" in message:
        return Corrupted(
            name, f"is damaged ({message})", "remove its folder: it is built again from the store"
        )
    return StoreFailed(name, f"failed ({message})", "check that its folder exists and belongs to you")


class Deadline:
    """The point in time at which a query is stopped."""

    __slots__ = ("_at", "_name", "_timeout")

    def __init__(self, name: str, timeout: float | None) -> None:
        self._name, self._timeout = name, timeout
        self._at = None if timeout is None else time.monotonic() + timeout

    def iterate(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield the items until the deadline passes; then raise `QueryStopped`."""
        for item in items:
            if self._at is not None and time.monotonic() > self._at:
                raise QueryStopped(
                    self._name,
                    f"took longer than {self._timeout} s",
                    "ask for less, or allow more time",
                )
            yield item


def to_answer(result: Any, bound: BoundQuery, limit: int, deadline: Deadline) -> Answer:
    """Convert a result of Oxigraph to an `Answer` within the limit."""
    try:
        return _collect_answer(result, bound, limit, deadline)
    except QueryStopped as stopped:
        # Oxigraph's objects must be released in this thread, but the traceback of this error refers to them:
        # they are dropped here, and a new error is raised outside of the handler.
        reason = stopped.store, stopped.problem, stopped.remedy
        result = None
    raise QueryStopped(*reason)


def _collect_answer(result: Any, bound: BoundQuery, limit: int, deadline: Deadline) -> Answer:
    match bound.form:
        case "ASK":
            return Answer(kind="truth", truth=bool(result))
        case "SELECT":
            names = [variable.value for variable in result.variables]
            variables = tuple(name for name in names if name not in bound.hidden)
            rows = tuple(
                _row(solution, names, variables) for solution in islice(deadline.iterate(result), limit + 1)
            )
            return Answer(kind="rows", variables=variables, rows=rows[:limit], truncated=len(rows) > limit)
        case "CONSTRUCT" | "DESCRIBE":
            # A graph is a set, but an engine may return a triple once per solution.
            triples_found = distinct(map(_triple, deadline.iterate(result)))
            triples = tuple(islice(triples_found, limit + 1))
            return Answer(kind="triples", triples=triples[:limit], truncated=len(triples) > limit)


def _row(solution: Any, names: list[str], variables: tuple[str, ...]) -> ResultRow:
    pairs = zip(names, solution, strict=True)
    terms = {name: from_oxigraph(term) for name, term in pairs if term is not None and name in variables}
    return ResultRow(variables, terms)


def _triple(triple: Any) -> Triple:
    return Triple(
        from_oxigraph(triple.subject), from_oxigraph(triple.predicate), from_oxigraph(triple.object)
    )


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
    """Parse SPARQL JSON results: rows or a truth value."""
    try:
        document = msgspec.json.decode(data, type=_Document)
        if document.boolean is not None:
            return Answer(kind="truth", truth=document.boolean)
        if document.results is None:
            raise Invalid("results", "are missing", "ask a SPARQL endpoint")
        variables = tuple(name for name in document.head.vars if name not in hidden)
        rows = tuple(
            ResultRow(variables, {name: _term(cell) for name, cell in row.items() if name not in hidden})
            for row in document.results.bindings[:limit]
        )
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, RecursionError) as error:
        raise Invalid("results", f"cannot be read ({error})", "ask a SPARQL endpoint") from error
    return Answer(
        kind="rows", variables=variables, rows=rows, truncated=len(document.results.bindings) > limit
    )


MAX_NESTING = 100
_NESTING_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|<<\(|\)>>', re.DOTALL)


def check_nesting(data: bytes) -> None:
    """Raise if terms of N-Triples or N-Quads are nested so deeply that a parser may overflow its stack."""
    depth = 0
    if data.count(b"<<(") <= MAX_NESTING:
        return
    for match in _NESTING_TOKEN.finditer(data):
        token = match[0]
        depth += (token == b"<<(") - (token == b")>>")
        if depth > MAX_NESTING:
            raise Invalid("results", f"nest terms more than {MAX_NESTING} deep", "nest less deeply")


def read_triples(data: bytes, limit: int) -> Answer:
    """Parse N-Triples."""
    engine = load_oxigraph()
    check_nesting(data)
    try:
        quads = engine.parse(data, format=engine.RdfFormat.N_TRIPLES)
        triples = tuple(
            distinct(
                Triple(from_oxigraph(quad.subject), from_oxigraph(quad.predicate), from_oxigraph(quad.object))
                for quad in quads
            )
        )
    except (SyntaxError, UnicodeDecodeError) as error:
        raise Invalid("results", f"cannot be read ({error})", "ask a SPARQL endpoint") from error
    return Answer(kind="triples", triples=triples[:limit], truncated=len(triples) > limit)


def _term(cell: _Cell) -> RDFTerm:
    match cell.type:
        case "uri":
            return RDFTerm("iri", _text(cell.value))
        case "bnode":
            return RDFTerm("blank", _text(cell.value).removeprefix("_:"))
        case "literal" | "typed-literal":  # the latter in drafts of the format, and in some servers
            if cell.language is not None:
                # Language tags ignore case; Oxigraph writes them in lower case, too.
                direction = "" if cell.direction is None else f"--{cell.direction}"
                return RDFTerm("literal", _text(cell.value), None, f"{cell.language.lower()}{direction}")
            datatype = None if cell.datatype == f"{XSD}string" else cell.datatype
            return RDFTerm("literal", _text(cell.value), datatype)
        case "triple":
            parts = msgspec.convert(cell.value, type=dict[str, _Cell])
            terms = (str(_term(parts[name])) for name in ("subject", "predicate", "object"))
            return RDFTerm("triple", f"<<( {' '.join(terms)} )>>")
        case _:
            raise TypeError(f"a term of type {cell.type[:40]!r}")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a value that is no text")
    return value
