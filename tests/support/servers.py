"""Servers that the tests of stores share.

One of each kind for a process of tests, started when it is first asked for and ended with the process. Each
test has a place of its own in it.
"""

from __future__ import annotations

import atexit
from functools import cache

from omoide.testing import PgBouncerServer, PostgresServer, RedisServer


@cache
def postgres() -> PostgresServer:
    """A PostgreSQL server; what it keeps need not outlive the machine."""
    server = PostgresServer(fsync="off", full_page_writes="off")
    server.start()
    atexit.register(server.close)
    return server


@cache
def pooler() -> PgBouncerServer:
    """A pooler in front of the PostgreSQL server."""
    server = PgBouncerServer(postgres())
    server.start()
    atexit.register(server.close)
    return server


@cache
def redis() -> RedisServer:
    """A Redis server."""
    server = RedisServer()
    server.start()
    atexit.register(server.close)
    return server
