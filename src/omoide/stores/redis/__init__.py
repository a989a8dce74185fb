"""Store entries on a Redis server, for several machines at once.

- `store`: `RedisStore`, pages and the change feed.
- `transaction`, `snapshot`: write set and read set of an operation, and the optimistic commit.
- `cache`: scopes in memory, for recall.
- `connection`: connections, Lua scripts and error mapping.
- `layout`: keys, and the encoding of values.
- `maintenance`: check, reindex, scrub, and inspection of the server.
"""

from __future__ import annotations
