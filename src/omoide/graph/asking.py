"""What does whoever keeps the graph have to be able to do?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from omoide.core.recalling import check_positive
from omoide.core.value import check_number
from omoide.errors import Invalid, InvalidRDF
from omoide.graph.answers import Answer
from omoide.graph.binding import Bound, bind
from omoide.graph.guarding import check
from omoide.graph.iris import EVIDENCE

OWNED = (EVIDENCE,)
"""How the IRIs of nodes begin that belong to the memories which name them, and go with the last of these."""

Subject = tuple[str, str]
"""A named graph, and a subject in it."""


class State(msgspec.Struct, frozen=True):
    """How far a graph has followed a store."""

    life: str
    seq: int
    used: int = 0
    mark: str = ""
    """What tells the last change from any other of its number."""
    build: str = ""
    """What tells this graph from one that was built again."""


@runtime_checkable
class Backend(Protocol):
    """Keeps triples in named graphs, and answers queries about some of them."""

    name: str
    shared: bool
    """Whether others may write to it at the same time."""

    def query(
        self,
        query: str,
        *,
        default_graphs: Sequence[str],
        named_graphs: Sequence[str] = (),
        bindings: Mapping[str, Any] = {},
        limit: int = 10_000,
        timeout: float | None = None,
    ) -> Answer:
        """What a query finds in these graphs, and in no other."""
        ...

    def replace(self, removed: Iterable[Subject], told: str | bytes, *, into: str | None = None) -> None:
        """Forget what is said about these subjects, and then take in what is told.

        That is N-Quads, or N-Triples where the graph is named that they belong to. Nodes that only the
        subjects named go with them. Doing it again changes nothing.
        """
        ...

    def use(self, prefixes: Sequence[str], uses: Sequence[tuple[str, str, str]]) -> None:
        """Say how often memories were used, in all graphs whose names begin so.

        Each use is the memory's IRI, with a number and a moment as literals.
        """
        ...

    def places(self, subjects: Sequence[str], prefixes: Sequence[str]) -> list[Subject]:
        """Where subjects are spoken of, among the graphs whose names begin so."""
        ...

    def copy_graphs(self, sources: Sequence[str], target: str) -> None:
        """Make one graph say what several say together, and nothing else."""
        ...

    def drop(self, graphs: Iterable[str]) -> None:
        """Forget whole graphs; those that do not exist are passed over."""
        ...

    def graphs(self, prefix: str = "") -> list[str]:
        """The named graphs that hold something, in order."""
        ...

    def dump(self, graphs: Sequence[str]) -> bytes:
        """All that some graphs say, as N-Quads."""
        ...

    def state(self, namespace: str) -> State | None:
        """How far a namespace has been followed; None when it was never set."""
        ...

    def set_state(self, namespace: str, state: State) -> None:
        """Write down how far a namespace has been followed."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


def asked(query: str, bindings: Mapping[str, Any], limit: int) -> Bound:
    """A query that was checked and has its values, with a limit that makes sense."""
    check_positive(limit, "limit")
    return bind(check(query), bindings)


def positive(timeout: float) -> float:
    """A number of seconds to wait."""
    if not 0 < check_number(timeout, "timeout") < 1e9:
        raise Invalid("timeout", f"is {timeout}", "pass seconds, more than 0")
    return float(timeout)


def unreadable(error: SyntaxError, into: str | None) -> InvalidRDF:
    """What is told is not what it should be."""
    wanted = "N-Quads" if into is None else "N-Triples"
    return InvalidRDF("told", f"cannot be read ({error})", f"pass {wanted}")
