"""What did a query find?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from omoide.errors import Invalid, NotFound
from omoide.graph.terms import Term

_WIDTH = 60


class Row(Mapping[str, Any]):
    """One answer: each variable of the query and its value, None where it has none."""

    __slots__ = ("_terms", "_variables")

    def __init__(self, variables: tuple[str, ...], terms: Mapping[str, Term]) -> None:
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
        """The value of a variable, or the default where there is no such variable."""
        return self[name] if name in self._variables else default

    def __contains__(self, name: object) -> bool:
        return name in self._variables

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Row):
            return self._variables == other._variables and self._terms == other._terms
        return NotImplemented if not isinstance(other, Mapping) else dict(self) == dict(other)

    def __hash__(self) -> int:
        return hash((self._variables, tuple(map(self._terms.get, self._variables))))

    def __repr__(self) -> str:
        return f"Row({dict(self)!r})"

    def term(self, name: str) -> Term | None:
        """The term itself, with its datatype and language."""
        return self._terms.get(name)


class Triple(msgspec.Struct, frozen=True):
    """One statement."""

    subject: Term
    predicate: Term
    object: Term

    def __str__(self) -> str:
        return f"{self.subject} {self.predicate} {self.object} ."

    @property
    def values(self) -> tuple[Any, Any, Any]:
        """Subject, predicate and object as Python values."""
        return self.subject.python, self.predicate.python, self.object.python


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a query found: rows (SELECT), a truth (ASK), or triples (CONSTRUCT and DESCRIBE)."""

    kind: Literal["rows", "truth", "triples"]
    variables: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()
    truth: bool | None = None
    triples: tuple[Triple, ...] = ()
    truncated: bool = False
    """Whether there was more than the limit let through."""

    def __iter__(self) -> Iterator[Any]:
        return iter(self.triples if self.kind == "triples" else self.rows)

    def __len__(self) -> int:
        return len(self.triples if self.kind == "triples" else self.rows)

    def __bool__(self) -> bool:
        return bool(self.truth) if self.kind == "truth" else len(self) > 0

    def values(self, name: str) -> tuple[Any, ...]:
        """The values of one variable, row by row."""
        if name not in self.variables:
            raise NotFound("variable", name, f"use {', '.join(self.variables) or 'none'}")
        return tuple(row[name] for row in self.rows)

    def to_json(self) -> bytes:
        """This answer in the JSON format for SPARQL results; triples have three columns."""
        if self.kind == "truth":
            return _written({"head": {}, "boolean": self.truth})
        names, terms = self._table()
        bindings = [
            {name: _told(term) for name, term in zip(names, row, strict=True) if term is not None}
            for row in terms
        ]
        return _written({"head": {"vars": names}, "results": {"bindings": bindings}})

    def to_ntriples(self) -> str:
        """The triples as N-Triples."""
        if self.kind != "triples":
            raise Invalid("answer", f"has {self.kind} and no triples", "ask with CONSTRUCT or DESCRIBE")
        return "".join(f"{triple}\n" for triple in self.triples)

    def __str__(self) -> str:
        """A table for reading."""
        if self.kind == "truth":
            return "yes" if self.truth else "no"
        names, terms = self._table()
        table = [names, *([_shown(term) for term in row] for row in terms)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
        count = f"{len(self)} {'row' if self.kind == 'rows' else 'triple'}{'' if len(self) == 1 else 's'}"
        more = ", and there are more" if self.truncated else ""
        return "\n".join(
            [lines[0], "  ".join("-" * width for width in widths), *lines[1:], f"({count}{more})"]
        )

    def _table(self) -> tuple[list[str], list[list[Term | None]]]:
        if self.kind == "triples":
            names = ["subject", "predicate", "object"]
            return names, [[each.subject, each.predicate, each.object] for each in self.triples]
        return list(self.variables), [[row.term(name) for name in self.variables] for row in self.rows]


def distinct(triples: Iterable[Triple]) -> Iterator[Triple]:
    """Each triple once, in the order it came."""
    seen: set[Triple] = set()
    for triple in triples:
        if triple not in seen:
            seen.add(triple)
            yield triple


_KINDS = {"iri": "uri", "literal": "literal", "blank": "bnode", "triple": "literal"}


def _told(term: Term) -> dict[str, str]:
    told = {"type": _KINDS[term.kind], "value": term.value}
    if term.language is not None:
        told["xml:lang"] = term.language
    elif term.datatype is not None:
        told["datatype"] = term.datatype
    return told


def _shown(term: Term | None) -> str:
    if term is None:
        return ""
    text = (
        f"<{term.value}>" if term.kind == "iri" else f"_:{term.value}" if term.kind == "blank" else term.value
    )
    line = " ".join(text.split())
    return line if len(line) <= _WIDTH else f"{line[: _WIDTH - 1]}…"


def _written(value: object) -> bytes:
    return msgspec.json.encode(value)
