"""What does it mean to tell what changed, and to take it over?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omoide import clock
from omoide.core.entry import Entry
from omoide.core.frozen import EMPTY_MAP
from omoide.core.writing import WriteRequest
from omoide.stores import rules, taking
from omoide.stores.arguments import checked
from omoide.stores.indexing import Indexed, index
from omoide.stores.records import Access, Change, Feed, Link, Version
from omoide.stores.reference_held import MemoryHeld
from omoide.stores.reference_state import Kept, LinkKey, State
from omoide.stores.standing import INVALIDATED_BY, LIVE


@checked
class MemoryExchange(MemoryHeld):
    """What passes between a store in memory and others."""

    def namespaces(self) -> list[str]:
        """The namespaces that hold an entry or a document, in order."""
        return self._look(lambda state: sorted({key[0] for key in (*state.kept, *state.documents)}))

    def kinds(self, namespace: str) -> list[str]:
        """The kinds of the documents in a namespace, in order."""
        return self._look(
            lambda state: sorted({kind for name, kind, _ in state.documents if name == namespace})
        )

    def changes(self, namespace: str, *, after: int = 0, limit: int = 1000) -> list[Change]:
        """The changes after a sequence number, in order."""
        return self._look(lambda state: self._told(state, namespace, after)[:limit])

    def _told(self, state: State, namespace: str, after: int) -> list[Change]:
        return [change for change in state.log[after:] if change.namespace == namespace]

    def changed(
        self, namespace: str, *, after: int = 0, limit: int = 10_000, used_since: int | None = None
    ) -> Feed:
        """What changed after a sequence number, and what it became."""

        def work(state: State) -> Feed:
            told = self._told(state, namespace, after)
            # What is asked for from the start and fits is told at once, however often it changed.
            more = len(told) > limit and (after > 0 or self._size(state, namespace) > limit)
            if more:
                told = told[:limit]
            latest = dict.fromkeys(change.id for change in reversed(told))
            ids = dict.fromkeys(reversed(latest))  # in the order of their last changes
            held = {id: one for id in ids if (one := state.kept.get((namespace, id))) is not None}
            written = {(change.id, change.rev) for change in told if change.op == "write"}
            return Feed(
                life=self._life,
                seq=told[-1].seq if told else after,
                more=more,
                entries=tuple(held[id].entry for id in ids if id in held),
                links=tuple(state.links[key] for key in sorted(state.links) if _begins(key, namespace, ids)),
                access=self._used(state, namespace, held, used_since),
                gone=tuple(dict.fromkeys(change.id for change in told if change.op == "erase")),
                fresh=frozenset(
                    id
                    for id, one in held.items()
                    if (id, one.first) in written and (namespace, id) not in state.stones
                ),
            )

        return self._look(work)

    def _size(self, state: State, namespace: str) -> int:
        entries = sum(name == namespace for name, _ in state.kept)
        return entries + sum(len(told) for (name, _), told in state.stones.items() if name == namespace)

    def _used(
        self, state: State, namespace: str, changed: Mapping[str, Kept], since: int | None
    ) -> dict[str, Access]:
        found = {id: one.access for id, one in changed.items() if one.access.count}
        if since is not None:
            for name, id in state.used:
                kept = state.kept.get((name, id)) if name == namespace else None
                if kept is not None and _is_recent(kept.access, since):
                    found[id] = kept.access
        return found

    def take(
        self, entries: Sequence[Entry], links: Sequence[Link] = (), access: Mapping[str, Access] = EMPTY_MAP
    ) -> int:
        """Keep entries exactly as they were elsewhere; how many were new."""
        given = taking.admitted(entries, links, access, self.settings)
        if not given:
            return 0
        found = index(given, self.embedder)
        now = clock.now()

        def work(state: State) -> int:
            state.foresee([WriteRequest(entry=entry) for entry in given])
            pairs = zip(given, found, strict=True)
            new = [entry for entry, terms in pairs if self._take(state, entry, terms, access, now)]
            self._take_links(state, given[0].namespace, links, now)
            left = self._leave(state, given[0].namespace, taking.left_behind(entries), now)
            self._settle_taken(state, given[0].namespace, new, links, left, now)
            for entry in {(entry.agent_id, entry.session_id): entry for entry in new}.values():
                self._check_session(state, entry)
            return len(new)

        return self._do(work, undo=True)

    def _take(
        self, state: State, entry: Entry, found: Indexed, access: Mapping[str, Access], now: int
    ) -> bool:
        kept = state.find(entry.namespace, entry.id)
        if not taking.is_new(entry, None if kept is None else kept.entry):
            return False
        one = state.add(entry, found, now)
        used = access.get(entry.id)
        if used is not None and used.count:
            state.use(one, used.count, used.last)
        return True

    def _take_links(self, state: State, namespace: str, links: Sequence[Link], now: int) -> None:
        held = state.among(namespace, {end for link in links for end in (link.source, link.target)})
        for link in links:
            for end in (link.source, link.target):
                if end not in held:
                    raise rules.missing(end)
            key = (namespace, link.source, link.relation, link.target)
            if state.link_of(key) is None:
                state.add_link(key, link)
                state.note(held[link.source].entry, "link", now)

    def _leave(self, state: State, namespace: str, left: Mapping[str, Entry], now: int) -> list[str]:
        """Count what was left behind as erased, where it is not here; the ids of it."""
        here = state.among(namespace, left).keys() | state.erased(namespace, left)
        gone = [id for id in left if id not in here]
        for id in gone:
            state.bury(left[id], Version(id=id, rev=0, at=now, reason=taking.LEFT_BEHIND))
        return gone

    def _settle_taken(
        self,
        state: State,
        namespace: str,
        new: Sequence[Entry],
        links: Sequence[Link],
        left: Sequence[str],
        now: int,
    ) -> None:
        sources = [link.source for link in links if link.relation == INVALIDATED_BY]
        was_out = {id: one.standing != LIVE for id, one in state.among(namespace, sources).items()}
        erased = state.erased(namespace, {entry.id for entry in new})
        was_out.update((entry.id, entry.id in erased) for entry in new)
        was_out.update((id, False) for id in left)
        self._settle(state, namespace, was_out, now)


def _begins(key: LinkKey, namespace: str, ids: Mapping[str, None]) -> bool:
    return key[0] == namespace and key[1] in ids


def _is_recent(access: Access, since: int) -> bool:
    return access.last is not None and access.last >= since
