"""The Redis store passes the conformance suite."""

from __future__ import annotations

from pathlib import Path

from tests.support.stores import url

from omoide.stores import Store, open_store
from omoide.testing import HashEmbedder, StoreSuite


class TestRedis(StoreSuite):
    """One server, without vectors."""

    complete = True

    def open_store(self, folder: Path) -> Store:
        return open_store(url("redis", folder), embedder="none")


class TestRedisWithVectors(StoreSuite):
    """One server, with an embedder, safe against power loss."""

    complete = True

    def open_store(self, folder: Path) -> Store:
        return open_store(url("redis", folder), embedder=HashEmbedder(64), durability="power")
