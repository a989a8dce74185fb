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


class Dialect(NamedTuple):
    """What one database says differently from the other."""

    contains_bytes: str
    """The condition that some bytes are in a body."""
    table_order_hint: str = ""
    """Said after a table that is best read in its own order, though an index would do."""
    join_order_hint: str = ""
    """Said between two tables that are best joined in the order in which they are named."""
    no_index_prefix: str = ""
    """Said before a column whose index is not to be used."""
    supports_lateral: bool = False
    """Whether the newest of several kinds can be asked for at once, each from its own stretch of an index."""
    stores_codes: bool = False
    """Whether a vector is kept with its code beside it."""
    distance_expression: str = ""
    """How far a code is from another, where an index knows; `{dim}` is how many bits they have."""
    key_share_lock: str = ""
    """Said after a query of rows that must not go away before the transaction ends."""
    skip_locked: str = ""
    """Said after a query of rows that are about to go, all but those that others are changing."""


class Cursor(Protocol):
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
    def dialect(self) -> Dialect:
        """How it speaks."""
        ...

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> Cursor:
        """Carry a statement out."""
        ...

    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]], /) -> object:
        """Carry a statement out once for each of these parameters."""
        ...

    def lock(self, *locks: AdvisoryLock) -> None:
        """Keep others from what is held until the transaction ends."""
        ...

    def prepare_search(self, count: int) -> None:
        """Have an index look at so many candidates at least, until the transaction ends."""
        ...


class AdvisoryLock(NamedTuple):
    """Something that only one transaction at a time may change, or only such as share it."""

    name: str
    shared: bool = False
    namespace: str | None = None
    """Whose feed has something new once the transaction is committed."""


class SQLConnections(Protocol):
    """The connections of one store to its database."""

    @property
    def name(self) -> str:
        """What the database is called in errors."""
        ...

    @property
    def closed(self) -> bool:
        """Whether it was let go of."""
        ...

    def read_transaction(self) -> AbstractContextManager[Database]:
        """A block that sees the store as it is at one moment."""
        ...

    def write_transaction(self, *locks: AdvisoryLock) -> AbstractContextManager[Database]:
        """A block that changes the store as a whole, or not at all."""
        ...

    def read_once(self, read: Callable[[Database], T]) -> T:
        """What one statement finds, which needs no transaction of its own."""
        ...

    def close(self) -> None:
        """Let go of the database."""
        ...
