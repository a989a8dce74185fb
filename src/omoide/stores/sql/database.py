"""What do the statements need of the database that carries them out?

They are written once, in the SQL that SQLite and PostgreSQL share, with `?` for what users say. Where the two
speak differently, `Words` has the word of each.

"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")

SLOTS = 8
"""How many embedders' vectors can be held at once; a vector's key is `no * SLOTS + slot`."""


class Words(NamedTuple):
    """What one database says differently from the other."""

    contains: str
    """The condition that some bytes are in a body."""
    in_order: str = ""
    """Said after a table that is best read in its own order, though an index would do."""
    as_given: str = ""
    """Said between two tables that are best joined in the order in which they are named."""
    unindexed: str = ""
    """Said before a column whose index is not to be used."""
    lateral: bool = False
    """Whether the newest of several kinds can be asked for at once, each from its own stretch of an index."""
    codes: bool = False
    """Whether a vector is kept with its code beside it."""
    near: str = ""
    """How far a code is from another, where an index knows; `{dim}` is how many bits they have."""
    while_there: str = ""
    """Said after a query of rows that must not go away before the transaction ends."""
    unless_held: str = ""
    """Said after a query of rows that are about to go, all but those that others are changing."""


class Found(Protocol):
    """What a statement found."""

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""
        ...

    def fetchone(self) -> Any:
        """The next row, or None."""
        ...

    def fetchmany(self, size: int, /) -> list[Any]:
        """Some of the next rows."""
        ...

    def fetchall(self) -> list[Any]:
        """All further rows."""
        ...

    def __iter__(self) -> Iterator[Any]: ...


class Database(Protocol):
    """A connection inside a transaction."""

    owners: dict[tuple[str, str], int]
    """The numbers of owners, which never change once they are committed."""

    @property
    def words(self) -> Words:
        """How it speaks."""
        ...

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> Found:
        """Carry a statement out."""
        ...

    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]], /) -> object:
        """Carry a statement out once for each of these parameters."""
        ...

    def hold(self, *holds: Hold) -> None:
        """Keep others from what is held until the transaction ends."""
        ...

    def prepare_search(self, count: int) -> None:
        """Have an index look at so many candidates at least, until the transaction ends."""
        ...


class Hold(NamedTuple):
    """Something that only one transaction at a time may change, or only such as share it."""

    name: str
    shared: bool = False
    namespace: str | None = None
    """Whose feed has something new once the transaction is committed."""


MODELS = Hold("models")
"""Which embedder's vectors the database holds."""


VECTORS = Hold("vectors", shared=True)
"""That the embedder whose vectors are kept stays the same; held by itself, before `MODELS`, to change it."""


def entries_in(namespace: str) -> Hold:
    """All entries of a namespace, with its part of the log, whose order is the order of commits."""
    return Hold(f"entries {namespace}", namespace=namespace)


def everything_in(namespace: str) -> tuple[Hold, Hold]:
    """All entries and all documents of a namespace."""
    return Hold(f"documents {namespace}"), entries_in(namespace)


def one_document(namespace: str, kind: str, id: str) -> tuple[Hold, Hold]:
    """One document, while others may change others."""
    key = " ".join(f"{len(part)} {part}" for part in (namespace, kind, id))
    return Hold(f"documents {namespace}", shared=True), Hold(f"document {key}")


class Connections(Protocol):
    """The connections of one store to its database."""

    @property
    def name(self) -> str:
        """What the database is called in errors."""
        ...

    @property
    def closed(self) -> bool:
        """Whether it was let go of."""
        ...

    def reading(self) -> AbstractContextManager[Database]:
        """A block that sees the store as it is at one moment."""
        ...

    def writing(self, *holds: Hold) -> AbstractContextManager[Database]:
        """A block that changes the store as a whole, or not at all."""
        ...

    def glance(self, look: Callable[[Database], T]) -> T:
        """What one statement finds, which needs no transaction of its own."""
        ...

    def close(self) -> None:
        """Let go of the database."""
        ...
