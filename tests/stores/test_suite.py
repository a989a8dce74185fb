"""The built-in stores pass the conformance suite."""

from __future__ import annotations

from pathlib import Path

from omoide.stores import Store, open_store
from omoide.testing import HashEmbedder, StoreSuite


class TestMemory(StoreSuite):
    """The reference, without vectors."""

    complete = True

    def open_store(self, folder: Path) -> Store:
        return open_store("memory://", embedder="none")


class TestMemoryWithVectors(StoreSuite):
    """The reference, with an embedder."""

    complete = True

    def open_store(self, folder: Path) -> Store:
        return open_store("memory://", embedder=HashEmbedder(64))


class TestSQLite(StoreSuite):
    """One file, without vectors."""

    complete = True

    def open_store(self, folder: Path) -> Store:
        return open_store(f"sqlite:///{folder / 'memory.db'}", embedder="none")


class TestSQLiteWithVectors(StoreSuite):
    """One file, with an embedder, safe against power loss."""

    complete = True

    def open_store(self, folder: Path) -> Store:
        return open_store(f"sqlite:///{folder / 'memory.db'}", embedder=HashEmbedder(64), durability="power")
