"""Conformance tests for stores.

Subclass `StoreSuite` under a name that pytest collects, and open a fresh store:

    class TestMyStore(StoreSuite):
        def open_store(self, folder: Path) -> Store:
            return MyStore(folder / "memory.db")

The suite needs pytest and nothing else beyond Omoide. The three methods of `Store` are always tested. Tests
of optional capabilities are skipped when the store lacks them, unless the class sets `complete = True`.

`base` has the fixtures and helpers; `writes`, `slots`, `users`, `reads`, `lifecycle`, `truth`, `documents`,
`pins` and `exchange` have one class of tests each.
"""

from __future__ import annotations

from omoide.testing.store_suite.documents import DocumentSuite
from omoide.testing.store_suite.exchange import ExchangeSuite
from omoide.testing.store_suite.lifecycle import LifecycleSuite
from omoide.testing.store_suite.pins import PinSuite
from omoide.testing.store_suite.reads import ReadSuite
from omoide.testing.store_suite.slots import SlotSuite
from omoide.testing.store_suite.truth import StalenessSuite
from omoide.testing.store_suite.users import UserSuite
from omoide.testing.store_suite.writes import WriteSuite

__all__ = ["StoreSuite"]


class StoreSuite(
    WriteSuite,
    SlotSuite,
    UserSuite,
    ReadSuite,
    LifecycleSuite,
    StalenessSuite,
    ExchangeSuite,
    DocumentSuite,
    PinSuite,
):
    """Every requirement on a store, including those of the optional capabilities that it offers."""
