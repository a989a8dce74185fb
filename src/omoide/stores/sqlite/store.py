"""How does a file answer what a store is asked?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omoide.embedders import Embedder
from omoide.errors import StoreFailed
from omoide.stores.findings import Finding
from omoide.stores.records import EraseReceipt
from omoide.stores.settings import Settings
from omoide.stores.sql.store import SQLStore
from omoide.stores.sql.upkeep import Progress
from omoide.stores.sqlite import schema, upkeep
from omoide.stores.sqlite.connections import Connections


class SQLiteStore(SQLStore):
    """Memories in one SQLite file, for several threads and processes at once."""

    _db: Connections

    def __init__(self, path: Path, embedder: Embedder | None, settings: Settings) -> None:
        self.path = path
        connections = Connections(
            path,
            power_safe=settings.durability == "power",
            read_only=settings.read_only,
            max_pages=settings.max_pages,
            timeout=settings.timeout,
        )
        super().__init__(connections, embedder, settings)

    def findings(self) -> list[Finding]:
        """What there is to know about the file's upkeep."""
        return [Finding("version", "ok", f"schema {schema.VERSION}, the newest known")]

    def check(self) -> list[str]:
        """What is wrong with the file; empty when it is sound."""
        with self._db.reading() as db:
            damage = upkeep.damage(db)
        return damage or super().check()

    def backup(self, target: Path | str, progress: Progress | None = None) -> None:
        """Copy the store to another file while it is in use."""
        upkeep.backup(self._db, Path(target), progress)

    def restore_backup(self, source: Path | str, progress: Progress | None = None) -> None:
        """Put a backup in the place of everything that is here."""
        upkeep.restore_backup(self._db, Path(source), progress)

    def _scrubbed(self, receipt: EraseReceipt) -> EraseReceipt:
        try:
            with self._db.alone() as db:
                done = upkeep.empty_log(db)
        except StoreFailed as error:  # what was erased stays erased
            return receipt.replace(pending=(f"the write-ahead log ({error}): call scrub() later",))
        if done:
            return receipt.replace(scrubbed=True, pending=())
        return receipt.replace(pending=("the write-ahead log, which somebody reads: call scrub() later",))

    def _size_bytes(self, db: Any) -> int:
        return upkeep.size_bytes(db)
