"""Store memories in a SQLite file: `store` opens it, `connection` talks to it, `schema` migrates it."""

from __future__ import annotations
