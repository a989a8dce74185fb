"""What do the parts of the store in memory share?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from omoide import ids
from omoide.core.entry import Entry
from omoide.core.scope import Scope
from omoide.embedders import Embedder
from omoide.stores import rules, standing
from omoide.stores.records import Change, Version
from omoide.stores.reference_documents import MemoryDocuments
from omoide.stores.reference_state import Kept, MemoryLedger, State
from omoide.stores.settings import Settings
from omoide.stores.standing import Flip


class MemoryHeld(MemoryDocuments):
    """Entries that last as long as the process, and how they are found."""

    def __init__(self, embedder: Embedder | None, settings: Settings) -> None:
        super().__init__()
        self.embedder = embedder
        self.settings = settings
        self._state = State()
        self._life = ids.uuid7()

    @contextmanager
    def _open(self) -> Iterator[State]:
        with self._alone():
            yield self._state

    def _note(self, state: State, entry: Entry, op: str, now: int) -> None:
        state.log.append(
            Change(
                seq=len(state.log) + 1, namespace=entry.namespace, id=entry.id, op=op, rev=entry.rev, at=now
            )
        )

    def _check_session(self, state: State, entry: Entry) -> None:
        """Raise when the session of an entry holds more than it may."""
        if self.settings.session_limit is not None and entry.session_id is not None:
            session = Scope(namespace=entry.namespace, agent_id=entry.agent_id, session_id=entry.session_id)
            held = [one for one in self._in(state, session) if one.standing == standing.LIVE]
            rules.check_session(entry.session_id, len(held), self.settings.session_limit)

    def _settle(self, state: State, namespace: str, was_out: Mapping[str, bool], now: int) -> None:
        """Bring what rests on some entries in line with how they are now."""
        for id, live in standing.settle(MemoryLedger(state, namespace), was_out).items():
            kept = state.kept[namespace, id]
            stale = live >= standing.STALE
            kept.flips.append(Flip(kept.entry.rev, now, stale))
            self._note(state, kept.entry, "stale" if stale else "current", now)

    def _get(self, state: State, id: str, scope: Scope) -> Kept:
        kept = state.kept.get((scope.namespace, id))
        if kept is None or not scope.holds(kept.entry):
            raise rules.missing(id)
        return kept

    def _in(self, state: State, scope: Scope) -> list[Kept]:
        return [one for one in state.kept.values() if scope.holds(one.entry)]

    def _stones(self, state: State, id: str, scope: Scope) -> list[Version]:
        return [version for entry, version in state.stones if entry.id == id and scope.holds(entry)]
