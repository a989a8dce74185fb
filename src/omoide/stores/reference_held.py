"""What do the parts of the store in memory share?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import RLock
from typing import TypeVar

from omoide import ids
from omoide.core.entry import Entry
from omoide.core.scope import Scope
from omoide.embedders import Embedder
from omoide.errors import Closed
from omoide.stores import rules, standing
from omoide.stores.reference_state import Kept, MemoryLedger, State
from omoide.stores.settings import Settings

T = TypeVar("T")


class MemoryHeld:
    """Entries that last as long as the process, and how they are found."""

    def __init__(self, embedder: Embedder | None, settings: Settings) -> None:
        self.embedder = embedder
        self.settings = settings
        self._state = State()
        self._life = ids.uuid7()
        self._lock = RLock()
        self._closed = False

    def close(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._closed = True
            self._state = State()

    def _look(self, work: Callable[[State], T]) -> T:
        """Do something that changes nothing."""
        with self._lock:
            if self._closed:
                raise Closed("memory://", "is closed", "open another; it kept nothing")
            return work(self._state)

    def _do(self, work: Callable[[State], T], *, undo: bool = False) -> T:
        """Do something that may change the state; `undo`: it may fail when a part of it is done."""
        with self._lock:
            before = self._state.copy() if undo else None
            try:
                return self._look(work)
            except BaseException:
                if before is not None:
                    self._state = before
                raise

    def _check_session(self, state: State, entry: Entry) -> None:
        """Raise when the session of an entry holds more than it may."""
        if self.settings.session_limit is not None and entry.session_id is not None:
            session = Scope(namespace=entry.namespace, agent_id=entry.agent_id, session_id=entry.session_id)
            held = [one for one in state.inside(session) if one.standing == standing.LIVE]
            rules.check_session(entry.session_id, len(held), self.settings.session_limit)

    def _settle(self, state: State, namespace: str, was_out: Mapping[str, bool], now: int) -> None:
        """Bring what rests on some entries in line with how they are now."""
        settled = standing.settle(MemoryLedger(state, namespace), was_out)
        held = state.among(namespace, settled)
        for id, live in settled.items():
            state.flip(held[id], now, stale=live >= standing.STALE)

    def _get(self, state: State, id: str, scope: Scope) -> Kept:
        kept = state.find(scope.namespace, id)
        if kept is None or not scope.holds(kept.entry):
            raise rules.missing(id)
        return kept
