"""Where do agents keep what does not fit into them?"""

from __future__ import annotations

from omoide.runtime.providers.backends import Inline, StoreProvider, Table, drop_table, drop_tables_of
from omoide.runtime.providers.protocol import NOT_FOUND, Answered, Failed, Outcome, Provider, Queries
from omoide.runtime.providers.resolver import UNOPENED, Providers, Resolved, carried_out, refused

__all__ = [
    "NOT_FOUND",
    "UNOPENED",
    "Answered",
    "Failed",
    "Inline",
    "Outcome",
    "Provider",
    "Providers",
    "Queries",
    "Resolved",
    "StoreProvider",
    "Table",
    "carried_out",
    "drop_table",
    "drop_tables_of",
    "refused",
]
