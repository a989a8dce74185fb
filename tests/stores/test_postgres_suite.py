"""Does the store on a PostgreSQL server pass the suite that comes with Omoide, all of it?"""

from __future__ import annotations

from pathlib import Path

from tests.stores.serving import postgres

from omoide.stores.opening import open_store
from omoide.stores.protocols import Store
from omoide.testing import HashEmbedder, StoreSuite


class TestPostgres(StoreSuite):
    """A server, without vectors."""

    complete = True

    def open_store(self, folder: Path) -> Store:
        return open_store(postgres().fresh(), embedder="none")


class TestPostgresWithVectors(StoreSuite):
    """A server, with an embedder, and statements that are never prepared."""

    complete = True

    def open_store(self, folder: Path) -> Store:
        return open_store(f"{postgres().fresh()}&prepare=0", embedder=HashEmbedder(64))
