"""The PostgreSQL store passes the conformance suite."""

from __future__ import annotations

from pathlib import Path

from tests.support.servers import pooler, postgres

from omoide.stores import Store, open_store
from omoide.testing import HashEmbedder, StoreSuite


class TestPostgres(StoreSuite):
    """A server, without vectors."""

    complete = True

    def open_store(self, folder: Path) -> Store:
        return open_store(postgres().fresh_url(), embedder="none")


class TestPostgresBehindAPooler(StoreSuite):
    """A server that each transaction may reach by another connection, with an embedder."""

    complete = True

    def open_store(self, folder: Path) -> Store:
        place = postgres().fresh_url().partition("?")[2]
        return open_store(f"{pooler().url}?{place}&prepare=0", embedder=HashEmbedder(64))
