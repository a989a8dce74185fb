"""Can this store be trusted?

Subclass `StoreSuite` under a name that pytest collects, and say how a fresh store is opened:

    class TestMine(StoreSuite):
        def open_store(self, folder: Path) -> Store:
            return MyStore(folder / "memory.db")

It needs pytest and nothing else that Omoide does not bring. The three methods of `Store` are tested in any
case; tests of what a store does not offer are skipped, unless the class sets `complete = True`.

"""

from __future__ import annotations

from omoide.testing.store_suite.exchange import DocumentSuite, ImportSuite, ProjectionSuite
from omoide.testing.store_suite.lifecycle import EraseSuite, ForgetSuite, LinkSuite
from omoide.testing.store_suite.reads import QuerySuite, RecallSuite
from omoide.testing.store_suite.truth import StalenessSuite
from omoide.testing.store_suite.writes import ChangeFeedSuite, StatsSuite, WriteSuite

__all__ = ["StoreSuite"]


class StoreSuite(
    WriteSuite,
    RecallSuite,
    QuerySuite,
    ForgetSuite,
    StalenessSuite,
    ChangeFeedSuite,
    ProjectionSuite,
    ImportSuite,
    LinkSuite,
    StatsSuite,
    DocumentSuite,
    EraseSuite,
):
    """All that a store has to do, and what it does if it offers more."""
