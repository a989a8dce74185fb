"""What do triples say about one thing?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from omoide.errors import InvalidRDF, MissingExtra
from omoide.graph import iris
from omoide.graph.vocabulary import JIDO

try:
    from pyoxigraph import DefaultGraph, Literal, Quad, Triple
except ImportError as error:
    raise MissingExtra("the graph", "graph") from error

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

Node = dict[str, list[Any]]
"""Property -> objects."""


def grouped(quads: Iterable[Quad | Triple]) -> dict[str | None, dict[Any, Node]]:
    """What is said in each graph about each subject."""
    graphs: dict[str | None, dict[Any, Node]] = {}
    for quad in quads:
        if isinstance(quad.object, Triple):
            continue  # statements about statements: nothing of a memory is told so
        name = None if isinstance(quad, Triple) else quad.graph_name
        graph = None if name is None or isinstance(name, DefaultGraph) else name.value
        objects = (
            graphs.setdefault(graph, {}).setdefault(quad.subject, {}).setdefault(quad.predicate.value, [])
        )
        if quad.object not in objects:
            objects.append(quad.object)
    return graphs


class Described:
    """A subject and what is said about it; errors name it and the property."""

    def __init__(self, subject: Any, node: Node) -> None:
        self.subject = subject
        self.node = node

    def wrong(self, field: str, problem: str, remedy: str) -> InvalidRDF:
        """The error that names this memory and one of its fields."""
        return InvalidRDF(f"{self.subject} {field}".strip(), problem, remedy)

    def one(self, name: str) -> Any:
        """The only value of a property of the ontology, or None."""
        found = self.node.get(JIDO + name, ())
        if len(found) > 1:
            raise self.wrong(name, f"has {len(found)} values", "keep one of them")
        return found[0] if found else None

    def text(self, name: str) -> str | None:
        """The text of one."""
        term = self.one(name)
        if term is None:
            return None
        if not isinstance(term, Literal):
            raise self.wrong(name, "is no text", "write a literal")
        return term.value

    def required(self, name: str) -> str:
        """The text of one that must not be missing."""
        text = self.text(name)
        if text is None:
            raise self.wrong(name, "is missing", "say what is remembered")
        return text

    def named(self, name: str, prefix: str) -> str | None:
        """The id in the IRI of one."""
        term = self.one(name)
        return None if term is None else iris.id_of(term.value, prefix)

    def number(self, name: str, kind: Callable[[str], Any] = int) -> Any:
        """The number of one."""
        text = self.text(name)
        try:
            return None if text is None else kind(text)
        except ValueError as error:
            raise self.wrong(name, f"is {_short(text)}", "write a number") from error

    def moment(self, name: str) -> int | None:
        """The moment of one, in milliseconds since 1970."""
        text = self.text(name)
        if text is None:
            return None
        try:
            at = datetime.fromisoformat(text.strip())
            return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND
        except (ValueError, OverflowError) as error:
            raise self.wrong(name, f"is {_short(text)}", "write an xsd:dateTime") from error

    def json(self, name: str, kind: Any) -> Any:
        """The data of one that holds JSON."""
        text = self.text(name)
        try:
            return None if text is None else msgspec.json.decode(text, type=kind)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise self.wrong(name, f"is not readable ({error})", "leave it as it was written") from error


def _short(text: str | None) -> str:
    return repr(text) if text is None or len(text) <= 60 else repr(f"{text[:60]}…")
