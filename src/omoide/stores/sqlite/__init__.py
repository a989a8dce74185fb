"""Store memories in a SQLite file: `store` opens it, `connection` talks to it and migrates it."""

from __future__ import annotations
