"""Store memories on PostgreSQL: `store` opens a schema, `connection` is its pool, `schema` migrates it."""

from __future__ import annotations
