"""Serve the memory directives of agents from memory providers.

`protocol` has the `Provider` protocol and guarded calls, `backends` the inline, table and store providers,
`resolver` maps aliases to providers and executes the directives.
"""

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
