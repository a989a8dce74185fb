"""Where do agents keep what does not fit into them?"""

from __future__ import annotations

from omoide.runtime.providers.backends import (
    InlineProvider,
    StoreProvider,
    TableProvider,
    drop_table,
    drop_tables_of,
)
from omoide.runtime.providers.protocol import (
    NOT_FOUND,
    Outcome,
    Provider,
    ProviderFailure,
    ProviderResult,
    QueryableProvider,
)
from omoide.runtime.providers.resolver import (
    UNOPENED,
    Providers,
    ResolvedProvider,
    execute_directive,
    refusal_data,
)

__all__ = [
    "NOT_FOUND",
    "UNOPENED",
    "InlineProvider",
    "Outcome",
    "Provider",
    "ProviderFailure",
    "ProviderResult",
    "Providers",
    "QueryableProvider",
    "ResolvedProvider",
    "StoreProvider",
    "TableProvider",
    "drop_table",
    "drop_tables_of",
    "execute_directive",
    "refusal_data",
]
