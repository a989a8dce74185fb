"""What does the store in memory hold?"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from omoide.core.entry import Entry
from omoide.core.writing import WriteResult
from omoide.stores import rules, standing
from omoide.stores.indexing import Indexed
from omoide.stores.records import Access, Change, Link, Version
from omoide.stores.standing import INVALIDATED_BY, Flip

Key = tuple[str, str]
LinkKey = tuple[str, str, str, str]


@dataclass
class Kept:
    """An entry with its past."""

    no: int
    versions: list[Version]
    found: Indexed
    written: int
    access: Access = field(default_factory=Access)
    flips: list[Flip] = field(default_factory=list)

    @property
    def entry(self) -> Entry:
        """As it is now."""
        return _marked(self.versions[-1], stale=self.stale)

    @property
    def stale(self) -> bool:
        """Whether it rests on what does not hold."""
        return bool(self.flips) and self.flips[-1].stale

    @property
    def standing(self) -> int:
        """How it stands."""
        return standing.of(self.entry)

    def at(self, moment: int | None) -> Entry | None:
        """As it was."""
        if moment is None:
            return self.entry
        past = [version for version in self.versions if version.at <= moment]
        return _marked(past[-1], stale=standing.stale_at(self.flips, moment)) if past else None

    def history(self) -> list[Version]:
        """All versions, each with whether it was stale in the end."""
        return [
            version.replace(entry=_marked(version, stale=standing.stale_in(self.flips, version.rev)))
            for version in self.versions
        ]


def _marked(version: Version, *, stale: bool) -> Entry:
    assert version.entry is not None
    return version.entry if version.entry.stale == stale else rules.changed(version.entry, stale=stale)


@dataclass
class State:
    """All that the store holds; copied before a write, put back when the write fails."""

    kept: dict[Key, Kept] = field(default_factory=dict)
    links: dict[LinkKey, Link] = field(default_factory=dict)
    stones: list[tuple[Entry, Version]] = field(default_factory=list)
    log: list[Change] = field(default_factory=list)
    receipts: dict[Key, tuple[bytes, WriteResult, int]] = field(default_factory=dict)
    last: int = 0
    resting: dict[Key, set[str]] = field(default_factory=dict)
    """What now rests on an entry, whether that exists or not."""
    invalid: dict[Key, set[str]] = field(default_factory=dict)
    """What invalidates an entry."""
    erased: set[Key] = field(default_factory=set)
    used: set[Key] = field(default_factory=set)
    """What was ever used."""

    def copy(self) -> State:
        """One that can be changed without changing this one."""
        kept = {
            key: Kept(one.no, [*one.versions], one.found, one.written, one.access, [*one.flips])
            for key, one in self.kept.items()
        }
        return State(
            kept, {**self.links}, [*self.stones], [*self.log], {**self.receipts}, self.last,
            {key: {*ids} for key, ids in self.resting.items()},
            {key: {*ids} for key, ids in self.invalid.items()}, {*self.erased}, {*self.used},
        )  # fmt: skip

    def rest(self, old: Entry | None, new: Entry | None) -> None:
        """Note what an entry rests on now, instead of what it rested on."""
        if old is not None:
            for id in standing.premises(old):
                self.resting[old.namespace, id].discard(old.id)
        if new is not None:
            for id in standing.premises(new):
                self.resting.setdefault((new.namespace, id), set()).add(new.id)

    def add_link(self, key: LinkKey, link: Link) -> None:
        """Keep a link."""
        self.links[key] = link
        if link.relation == INVALIDATED_BY:
            self.invalid.setdefault(key[:2], set()).add(link.target)

    def drop_link(self, key: LinkKey) -> bool:
        """Remove a link; whether there was one."""
        if key[2] == INVALIDATED_BY:
            self.invalid.get(key[:2], set()).discard(key[3])
        return self.links.pop(key, None) is not None


class MemoryLedger:
    """The entries of one namespace."""

    def __init__(self, state: State, namespace: str) -> None:
        self._state = state
        self._namespace = namespace

    def standing(self, ids: Collection[str]) -> dict[str, int]:
        """How each of these stands that exists."""
        found = ((id, self._state.kept.get((self._namespace, id))) for id in ids)
        return {id: one.standing for id, one in found if one is not None}

    def resting(self, ids: Collection[str]) -> dict[str, int]:
        """The entries that now rest on any of these, and how they stand."""
        return self.standing({by for id in ids for by in self._state.resting.get((self._namespace, id), ())})

    def premises(self, ids: Collection[str]) -> Iterable[tuple[str, str]]:
        """Each of these with each of the ids it now rests on."""
        for id in ids:
            for premise in standing.premises(self._state.kept[self._namespace, id].entry):
                yield id, premise

    def invalidated(self, ids: Collection[str]) -> set[str]:
        """Those of these at which a link begins that says so."""
        return {id for id in ids if self._state.invalid.get((self._namespace, id))}

    def erased(self, ids: Collection[str]) -> set[str]:
        """Those of these, none of which exists, that did exist."""
        return {id for id in ids if (self._namespace, id) in self._state.erased}
