"""Where do agents keep what does not fit into them?"""

from __future__ import annotations

from omoide.runtime.providers.inline import Inline
from omoide.runtime.providers.operating import UNOPENED, carried_out, refused
from omoide.runtime.providers.protocol import NOT_FOUND, Answered, Failed, Outcome, Provider, Queries
from omoide.runtime.providers.resolving import Providers, Resolved
from omoide.runtime.providers.store import StoreProvider
from omoide.runtime.providers.table import Table, drop_table, drop_tables_of

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
