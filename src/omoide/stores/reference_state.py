"""What does the store in memory hold?"""

from __future__ import annotations

from dataclasses import dataclass, field

from omoide.core.entry import Entry
from omoide.core.writing import WriteResult
from omoide.stores.indexing import Indexed
from omoide.stores.records import Access, Change, Link, Version

Key = tuple[str, str]


@dataclass
class Kept:
    """An entry with its past."""

    no: int
    versions: list[Version]
    found: Indexed
    written: int
    access: Access = field(default_factory=Access)

    @property
    def entry(self) -> Entry:
        """As it is now."""
        entry = self.versions[-1].entry
        assert entry is not None
        return entry

    def at(self, moment: int | None) -> Entry | None:
        """As it was."""
        if moment is None:
            return self.entry
        past = [version for version in self.versions if version.at <= moment]
        return past[-1].entry if past else None


@dataclass
class State:
    """All that the store holds; copied before a write, put back when the write fails."""

    kept: dict[Key, Kept] = field(default_factory=dict)
    links: dict[tuple[str, str, str, str], Link] = field(default_factory=dict)
    stones: list[tuple[Entry, Version]] = field(default_factory=list)
    log: list[Change] = field(default_factory=list)
    receipts: dict[Key, tuple[bytes, WriteResult, int]] = field(default_factory=dict)
    last: int = 0

    def copy(self) -> State:
        """One that can be changed without changing this one."""
        kept = {
            key: Kept(one.no, [*one.versions], one.found, one.written, one.access)
            for key, one in self.kept.items()
        }
        return State(
            kept, {**self.links}, [*self.stones], [*self.log], {**self.receipts}, self.last,
        )  # fmt: skip
