"""Can this store be trusted?

Subclass `StoreSuite` under a name that pytest collects, and say how a fresh store is opened:

    class TestMine(StoreSuite):
        def open_store(self, folder: Path) -> Store:
            return MyStore(folder / "memory.db")

It needs pytest and nothing else that Omoide does not bring. The three methods of `Store` are tested in any
case; tests of what a store does not offer are skipped, unless the class sets `complete = True`.
"""

from __future__ import annotations

from omoide.testing.suite.counting import Counting
from omoide.testing.suite.doubting import Doubting
from omoide.testing.suite.erasing import Erasing
from omoide.testing.suite.finding import Finding
from omoide.testing.suite.following import Following
from omoide.testing.suite.forgetting import Forgetting
from omoide.testing.suite.holding import Holding
from omoide.testing.suite.keeping import Keeping
from omoide.testing.suite.linking import Linking
from omoide.testing.suite.recalling import Recalling
from omoide.testing.suite.taking import Taking
from omoide.testing.suite.telling import Telling

__all__ = ["StoreSuite"]


class StoreSuite(
    Keeping,
    Recalling,
    Finding,
    Forgetting,
    Doubting,
    Telling,
    Following,
    Taking,
    Linking,
    Counting,
    Holding,
    Erasing,
):
    """All that a store has to do, and what it does if it offers more."""
