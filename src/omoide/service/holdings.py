"""What does a namespace hold, all of it?

Entries as they are, also those that were forgotten or no longer hold, the links between them, and how often
they were used. `parts` cuts it where nothing hangs together, so that each part can be taken over by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from omoide.core.entry import Entry
from omoide.core.scope import Scope
from omoide.stores import standing
from omoide.stores.protocols import Projects
from omoide.stores.records import Access, Feed, Link
from omoide.verbs import offering

Progress = Callable[[str, int, int | None], object]
"""Called with what is being done, how much of it is done, and how much there is where that is known."""


def quiet(name: str, done: int, total: int | None) -> None:
    """Tell nobody."""


PART = 1_000
"""How many entries are taken over at a time, where they can be told apart."""
_PORTION = 10_000


class Holdings(msgspec.Struct, kw_only=True):
    """Entries of one namespace, with their links and figures."""

    entries: dict[str, Entry] = {}
    links: list[Link] = []
    access: dict[str, Access] = {}

    def within(self, scope: Scope) -> Holdings:
        """What of it a scope holds; a link belongs there with both its ends."""
        return self._only({id: entry for id, entry in self.entries.items() if scope.holds(entry)})

    def parts(self, size: int = PART) -> Iterator[Holdings]:
        """The same in parts of about this size; what rests on one another or is linked stays together."""
        begun: dict[str, list[Link]] = {}
        for link in self.links:
            begun.setdefault(link.source, []).append(link)
        some: dict[str, Entry] = {}
        for group in self._groups():
            some.update((entry.id, entry) for entry in group)
            if len(some) >= size:
                yield self._part(some, begun)
                some = {}
        if some:
            yield self._part(some, begun)

    def _only(self, entries: dict[str, Entry]) -> Holdings:
        links = [link for link in self.links if link.source in entries and link.target in entries]
        access = {id: used for id, used in self.access.items() if id in entries}
        return Holdings(entries=entries, links=links, access=access)

    def _part(self, entries: dict[str, Entry], begun: dict[str, list[Link]]) -> Holdings:
        links = [link for id in entries for link in begun.get(id, ())]
        access = {id: self.access[id] for id in entries if id in self.access}
        return Holdings(entries=entries, links=links, access=access)

    def _groups(self) -> Iterable[list[Entry]]:
        """The entries that hang together, also by something they rest on that is not here any more."""
        above: dict[str, str] = {}

        def top(id: str) -> str:
            while (next_ := above.get(id, id)) != id:
                above[id] = id = above.get(next_, next_)
            return id

        for entry in self.entries.values():
            for premise in standing.premises(entry):
                above[top(entry.id)] = top(premise)
        for link in self.links:
            above[top(link.source)] = top(link.target)
        groups: dict[str, list[Entry]] = {}
        for entry in self.entries.values():
            groups.setdefault(top(entry.id), []).append(entry)
        return groups.values()


async def of(store: Any, namespace: str) -> Holdings:
    """All that a store holds in a namespace, as of one moment after this was asked."""
    able: Projects = offering(store, Projects, "tell all that it holds")
    feed = await able.changed(namespace, limit=_PORTION)
    life, found = feed.life, _Heard()
    found.hear(feed)
    while feed.more:
        feed = await able.changed(namespace, after=feed.seq, limit=_PORTION)
        if feed.life != life:  # a backup was put in its place meanwhile
            return await of(store, namespace)
        found.hear(feed)
    return found.told()


class _Heard:
    """What was heard of a namespace so far: what changed again meanwhile is heard again."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._links: dict[str, list[Link]] = {}
        self._access: dict[str, Access] = {}

    def hear(self, feed: Feed) -> None:
        for id in (*feed.gone, *(entry.id for entry in feed.entries)):
            self._entries.pop(id, None)
            self._links.pop(id, None)
        self._entries.update((entry.id, entry) for entry in feed.entries)
        for link in feed.links:
            self._links.setdefault(link.source, []).append(link)
        self._access.update(feed.access)

    def told(self) -> Holdings:
        links = [link for begun in self._links.values() for link in begun]
        return Holdings(links=links, access=self._access)._only(self._entries)
