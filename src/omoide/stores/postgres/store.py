"""How does a PostgreSQL server answer what a store is asked?"""

from __future__ import annotations

from typing import Any

from omoide.errors import ReadOnly
from omoide.stores.findings import Finding
from omoide.stores.postgres import schema
from omoide.stores.postgres.connections import Connections
from omoide.stores.postgres.waking import Bells
from omoide.stores.records import EraseReceipt
from omoide.stores.sql import rows
from omoide.stores.sql.database import Database
from omoide.stores.sql.store import SQLStore

PENDING = "the space of deleted rows, until the server uses it again: scrub() has the tables rewritten"

_LEFT = ("the server's write-ahead log and its archives", "replicas that lag behind")


class PostgresStore(SQLStore):
    """Memories in a schema of a PostgreSQL database, for many machines at once."""

    _db: Connections

    def _begin(self) -> None:
        super()._begin()
        self.bells = Bells(self._db)
        """Ring for those who wait for a change."""

    def last_change(self, namespace: str) -> int:
        """The number of the newest change in a namespace, or 0."""
        return self._db.glance(lambda db: rows.state(db, namespace))[1]

    def close(self) -> None:
        """Write what is buffered and let go of the server."""
        self.bells.close()
        super().close()

    def findings(self) -> list[Finding]:
        """What there is to know about the server."""
        with self._db.reading() as db:
            found = {name: db.execute(statement).fetchone()[0] for name, statement in _ASKED.items()}
        return [*_told(found)]

    def scrub(self) -> EraseReceipt:
        """Write every table anew without what was erased; others wait for each of them meanwhile."""
        receipt = super().scrub()
        if self.settings.read_only:
            raise ReadOnly(self._db.name, "was opened for reading only", "open it without mode=ro")
        left = self._db.rewritten(schema.TABLES)
        return receipt.replace(scrubbed=not left, pending=tuple(left))

    def _scrubbed(self, receipt: EraseReceipt) -> EraseReceipt:
        return receipt.replace(pending=(PENDING,), unreachable=(*receipt.unreachable, *_LEFT))

    def _size_bytes(self, db: Database) -> int:
        (size,) = db.execute(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_catalog.pg_class c"
            " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = ? AND c.relkind IN ('r', 'p')",
            (self._db.schema,),
        ).fetchone()
        return int(size)


_ASKED: dict[str, str] = {
    "version": "SELECT current_setting('server_version')",
    "fsync": "SELECT current_setting('fsync')",
    "synchronous": "SELECT current_setting('synchronous_commit')",
    "replica": "SELECT pg_is_in_recovery()",
    "pgvector": "SELECT max(extversion) FROM pg_catalog.pg_extension WHERE extname = 'vector'",
}


def _told(found: dict[str, Any]) -> list[Finding]:
    told = [
        Finding("server", "ok", f"PostgreSQL {found['version']}"),
        Finding("version", "ok", f"schema {schema.VERSION}, the newest known"),
    ]
    if found["fsync"] == "off":
        remedy = "set fsync = on in postgresql.conf"
        told.append(Finding("durability", "problem", f"a power cut may damage everything; {remedy}"))
    else:
        told.append(Finding("durability", "ok", "what was acknowledged is on the server's disk"))
    if found["replica"]:
        told.append(Finding("role", "note", "a replica, which can only be read; open it with mode=ro"))
    if found["pgvector"]:
        told.append(Finding("pgvector", "ok", f"version {found['pgvector']}"))
    else:
        told.append(
            Finding(
                "pgvector",
                "note",
                "not installed: vectors are compared by the program, which is well up to 250,000 entries"
                " in a scope; above that, CREATE EXTENSION vector and make an index as the docs say",
            )
        )
    return told
