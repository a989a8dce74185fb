"""Store memories: in memory, in a SQLite file, on PostgreSQL or on Redis.

`factory.open_store` opens the store at a URL. `protocols` declares the operations, `records` their values
and the bytes of entries; `async_store` is the async interface of the synchronous stores, and `adapter` that
of modules, classes and stores of plain functions. `semantics` has the settings, the checks of arguments,
what a write means and what makes an entry stale; `recall` answers a query, and `redaction` keeps secrets
out. `pool` builds candidate pools. `memory` is the reference store; it shares `operations` on a `state`
with `redis`. `sqlite` and `postgres` share the statements in `sql`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omoide._lazy import attach

if TYPE_CHECKING:
    from omoide.stores.async_store import AsyncStore
    from omoide.stores.factory import open_store
    from omoide.stores.protocols import (
        AnyStore,
        PlainStore,
        Store,
        SupportsAccess,
        SupportsBatchWrite,
        SupportsClose,
        SupportsDocuments,
        SupportsErase,
        SupportsFeed,
        SupportsGet,
        SupportsImport,
        SupportsLeases,
        SupportsLinks,
        SupportsOwners,
        SupportsQuery,
        SupportsReindex,
        SupportsSupersede,
        SupportsWait,
    )
    from omoide.stores.records import (
        Access,
        Change,
        Document,
        EraseReceipt,
        Feed,
        Finding,
        Lease,
        Link,
        Owner,
        Page,
        Query,
        ReindexResult,
        Stats,
        Version,
    )
    from omoide.stores.redaction import Guard, mask_secrets, refuse_secrets
    from omoide.stores.semantics import StoreSettings, WriteDecision, decide_write, entry_predicate

__all__ = [
    "Access",
    "AnyStore",
    "AsyncStore",
    "Change",
    "Document",
    "EraseReceipt",
    "Feed",
    "Finding",
    "Guard",
    "Lease",
    "Link",
    "Owner",
    "Page",
    "PlainStore",
    "Query",
    "ReindexResult",
    "Stats",
    "Store",
    "StoreSettings",
    "SupportsAccess",
    "SupportsBatchWrite",
    "SupportsClose",
    "SupportsDocuments",
    "SupportsErase",
    "SupportsFeed",
    "SupportsGet",
    "SupportsImport",
    "SupportsLeases",
    "SupportsLinks",
    "SupportsOwners",
    "SupportsQuery",
    "SupportsReindex",
    "SupportsSupersede",
    "SupportsWait",
    "Version",
    "WriteDecision",
    "decide_write",
    "entry_predicate",
    "mask_secrets",
    "open_store",
    "refuse_secrets",
]

__getattr__, __dir__ = attach(
    __name__,
    attributes={
        "async_store": ("AsyncStore",),
        "factory": ("open_store",),
        "protocols": (
            "AnyStore",
            "PlainStore",
            "Store",
            *(name for name in __all__ if name.startswith("Supports")),
        ),
        "records": (
            "Access",
            "Change",
            "Document",
            "EraseReceipt",
            "Feed",
            "Finding",
            "Lease",
            "Link",
            "Owner",
            "Page",
            "Query",
            "ReindexResult",
            "Stats",
            "Version",
        ),
        "redaction": ("Guard", "mask_secrets", "refuse_secrets"),
        "semantics": ("StoreSettings", "WriteDecision", "decide_write", "entry_predicate"),
    },
)
