"""How do Oxigraph's answers and errors become ours?"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from typing import Any

from omoide.errors import (
    Busy,
    Corrupted,
    DiskFull,
    InvalidQuery,
    MissingExtra,
    QueryStopped,
    ReadOnly,
    StoreFailed,
)
from omoide.graph.answers import Answer, Row, Triple, distinct
from omoide.graph.binding import Bound
from omoide.graph.terms import from_oxigraph


def oxigraph() -> Any:
    """The package itself."""
    try:
        return import_module("pyoxigraph")
    except ImportError as error:
        raise MissingExtra("a graph of knowledge", "graph") from error


def checked(bound: Bound) -> Bound:
    """A query that Oxigraph can read; it is asked of nothing, and not even that is carried out."""
    text = bound.text
    if bound.form == "ASK":  # which would be answered at once, and rows are not
        start = next(at for at, token in enumerate(bound.tokens) if token.kind == "word")
        rest = "".join(token.text for token in bound.tokens[start + 1 :])
        text = f"SELECT (1 AS ?omoide_checked) {rest}"
    with asking():
        oxigraph().Store().query(text)
    return bound


@contextmanager
def asking() -> Iterator[None]:
    """A block in which a query that makes no sense is told as that."""
    try:
        yield
    except SyntaxError as error:
        raise InvalidQuery(misread(str(error)), "see the SPARQL 1.1 query language") from error


def misread(said: str) -> str:
    """Where a query cannot be read, and why where that is said; what was expected there fills pages."""
    place = re.search(r"error at (\d+):(\d+)", said)
    reason = re.search(r"\b(?:The|Syntax|Duplicate)\b[^,\[]*", said)
    # Prefixes and values are written out by now, so only the line is the caller's own.
    where = f" in line {place[1]}" if place else f" ({' '.join(said.split())[:200]})"
    return f"cannot be read{where}{f': {reason[0].strip()}' if reason else ''}"


@contextmanager
def translating(name: str) -> Iterator[None]:
    """A block in which Oxigraph's errors become ours."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise translated(error, name) from error


def translated(error: OSError | RuntimeError, name: str) -> StoreFailed:
    """Our error for one of Oxigraph's."""
    said = str(error)
    number = error.errno if isinstance(error, OSError) else None
    if "lock" in said.lower() and ("unavailable" in said or "No locks" in said):
        return Busy(name, "is open elsewhere", "close it there, or give each process a path of its own")
    if number == errno.ENOSPC or "No space left" in said or "File too large" in said:
        return DiskFull(name, f"has no room left ({said})", "free some space and try again; nothing was lost")
    if isinstance(error, PermissionError) or "Permission denied" in said or "Read-only" in said:
        return ReadOnly(name, f"cannot be written to ({said})", "check the permissions of its folder")
    if "orrupt" in said or "hecksum" in said:
        return Corrupted(name, f"is damaged ({said})", "remove its folder: it is built again from the store")
    return StoreFailed(name, f"failed ({said})", "check that its folder exists and is yours")


class Deadline:
    """The moment after which an answer is of no use."""

    __slots__ = ("_at", "_name", "_timeout")

    def __init__(self, name: str, timeout: float | None) -> None:
        self._name, self._timeout = name, timeout
        self._at = None if timeout is None else time.monotonic() + timeout

    def held(self, items: Iterable[Any]) -> Iterator[Any]:
        """The same items, for as long as there is time."""
        for item in items:
            if self._at is not None and time.monotonic() > self._at:
                raise QueryStopped(
                    self._name,
                    f"was asked something that took longer than {self._timeout} s",
                    "ask for less, or allow more time",
                )
            yield item


def answered(found: Any, bound: Bound, limit: int, deadline: Deadline) -> Answer:
    """What Oxigraph found, as far as the limit lets it through."""
    try:
        return _answered(found, bound, limit, deadline)
    except QueryStopped as stopped:
        # What Oxigraph gave must be let go of in this thread, so nothing may hold on to it.
        words = stopped.store, stopped.problem, stopped.remedy
        found = None
    raise QueryStopped(*words)


def _answered(found: Any, bound: Bound, limit: int, deadline: Deadline) -> Answer:
    match bound.form:
        case "ASK":
            return Answer(kind="truth", truth=bool(found))
        case "SELECT":
            names = [variable.value for variable in found.variables]
            variables = tuple(name for name in names if name not in bound.hidden)
            rows = tuple(_row(each, names, variables) for each in islice(deadline.held(found), limit + 1))
            return Answer(kind="rows", variables=variables, rows=rows[:limit], truncated=len(rows) > limit)
        case "CONSTRUCT" | "DESCRIBE":
            told = distinct(map(_triple, deadline.held(found)))
            triples = tuple(islice(told, limit + 1))
            return Answer(kind="triples", triples=triples[:limit], truncated=len(triples) > limit)


def _row(solution: Any, names: list[str], variables: tuple[str, ...]) -> Row:
    found = zip(names, solution, strict=True)
    told = {name: from_oxigraph(term) for name, term in found if term is not None and name in variables}
    return Row(variables, told)


def _triple(found: Any) -> Triple:
    return Triple(from_oxigraph(found.subject), from_oxigraph(found.predicate), from_oxigraph(found.object))
