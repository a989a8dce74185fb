"""How does an entry look that was fetched from the server?"""

from __future__ import annotations

from collections.abc import Callable

from omoide.core.entry import Entry
from omoide.stores.indexing import Indexed
from omoide.stores.records import Access, Version
from omoide.stores.redis.packing import Row
from omoide.stores.reference_state import Kept, marked

FRESH = 1 << 60
"""Numbers from here on are not given yet: the server adds what is above this to its last one."""


class Held(Kept):
    """An entry as it is; what it is found by, how often it was used and its past come when asked for."""

    def __init__(self, row: Row, fetch: Callable[[Held], Indexed], used: Callable[[Held], Access]) -> None:
        self.no = row.no
        self.written = row.written
        self.versions = [row.version]
        self.flips = row.flips
        self.model = row.model
        """Whose vector it has; nobody's if it has none."""
        self.given = row.given
        self.was: Entry | None = None if row.no >= FRESH else marked(row.version, stale=self.stale)
        """As it is kept, before what is about to change."""
        self.had = "" if self.was is None else row.model
        self.older: list[Version] = []
        """Versions that this commit makes old ones."""
        self.renewed = False
        """Whether what it is found by is written anew."""
        self._first = row.first
        self._fetch = fetch
        self._used = used
        self._found: Indexed | None = None

    @property
    def first(self) -> int:
        """The first revision that was kept here."""
        return self._first

    @property
    def is_complete(self) -> bool:
        """Whether all of its versions are here."""
        return self.versions[0].rev == self._first

    @property
    def found(self) -> Indexed:
        """What it is found by."""
        if self._found is None:
            self._found = self._fetch(self)
        return self._found

    @found.setter
    def found(self, value: Indexed) -> None:
        self._found = value

    @property
    def is_described(self) -> bool:
        """Whether it is known what it is found by."""
        return self._found is not None

    @property
    def access(self) -> Access:
        """How often it was used, and when last."""
        return self._used(self)

    @access.setter
    def access(self, value: Access) -> None:
        raise NotImplementedError  # uses are added up by the server

    @property
    def embedded(self) -> bool:
        """Whether it has a vector."""
        return bool(self.model)
