"""Define what the SQL statements need of a database.

Statements are written once, in the SQL that SQLite and PostgreSQL share, with `?` for parameters. `Dialect`
contains what differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")

SLOTS = 8
"""Maximum number of embedders with vectors at once; the key of a vector is `no * SLOTS + slot`."""


class Dialect(NamedTuple):
    """SQL fragments and capabilities that differ between databases."""

    contains_bytes: str
    """Condition that the body contains given bytes."""
    table_order_hint: str = ""
    """Hint after a table to scan it in table order instead of using an index."""
    join_order_hint: str = ""
    """Hint between two tables to join them in the given order."""
    no_index_prefix: str = ""
    """Prefix of a column whose index must not be used."""
    supports_lateral: bool = False
    """True if one statement can merge the newest rows of several index ranges."""
    stores_codes: bool = False
    """True if the bit code of a vector is stored beside it."""
    distance_expression: str = ""
    """Expression for the distance of two codes if there is an index for it; `{dim}` is their length."""
    key_share_lock: str = ""
    """Clause that keeps selected rows from being deleted until the transaction ends."""
    skip_locked: str = ""
    """Clause that locks rows to be deleted and skips those locked by others."""


class Cursor(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int:
        """Number of rows changed."""

    def fetchone(self) -> Any:
        """Return the next row, or None."""

    def fetchmany(self, size: int, /) -> list[Any]:
        """Return some of the next rows."""

    def fetchall(self) -> list[Any]:
        """Return all remaining rows."""

    def __iter__(self) -> Iterator[Any]: ...


class Database(Protocol):
    """A connection inside a transaction."""

    owners: dict[tuple[str, str], int]
    """Cache of owner numbers, which never change once committed."""

    @property
    def name(self) -> str:
        """Name of the database in error messages."""

    @property
    def dialect(self) -> Dialect:
        """SQL dialect of the database."""

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> Cursor:
        """Execute a statement."""

    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]], /) -> object:
        """Execute a statement once for each parameter tuple."""

    def lock(self, *locks: AdvisoryLock) -> None:
        """Acquire locks until the transaction ends."""

    def prepare_search(self, count: int) -> None:
        """Let the vector index examine at least `count` candidates until the transaction ends."""


class AdvisoryLock(NamedTuple):
    """A lock by name, exclusive or shared, for the duration of a transaction."""

    name: str
    shared: bool = False
    namespace: str | None = None
    """Namespace whose listeners are notified after the commit."""


class SQLConnections(Protocol):
    """The connections of a store to its database."""

    @property
    def name(self) -> str:
        """Name of the database in error messages."""

    @property
    def closed(self) -> bool:
        """True once closed."""

    def read_transaction(self) -> AbstractContextManager[Database]:
        """Open a read transaction that sees one snapshot."""

    def write_transaction(self, *locks: AdvisoryLock) -> AbstractContextManager[Database]:
        """Open a write transaction that holds `locks` and commits when the block succeeds."""

    def read_once(self, read: Callable[[Database], T]) -> T:
        """Run a single read statement without a transaction."""

    def close(self) -> None:
        """Close all connections."""
