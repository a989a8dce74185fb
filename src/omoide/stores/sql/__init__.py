"""Run the operations of a store as SQL statements that SQLite and PostgreSQL share.

`store` has the operations; `writes`, `queries` and `maintenance` the statements; `rows` maps entries and
documents to rows; `candidates` finds what a query is scored on, and caches it; `database` is what a back end
provides.
"""

from __future__ import annotations
