"""What does the session understand right now?

A live face of the working context: reading counts as access, and whatever is put here is saved at the end of
the turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from omoide import clock
from omoide.core.entry import Evidence
from omoide.core.value import check_instance
from omoide.sessions.notes import Notes
from omoide.shortterm.context import ContextItem, WorkingContext
from omoide.turns.prompt import Counter

Change = Callable[[Notes], Notes]


class Scratchpad:
    """The working context of a session."""

    def __init__(
        self,
        notes: Callable[[], Notes],
        apply: Callable[[Change], None],
        place: Callable[[str], Evidence | None],
        dropped: Callable[[Notes, ContextItem], Notes],
        count: Counter,
    ) -> None:
        self._count = count
        self._dropped = dropped
        """What becomes of a value for which there is no room any more."""
        self._notes = notes
        self._apply = apply
        self._place = place

    @property
    def value(self) -> WorkingContext:
        """The working context as a value."""
        return self._notes().context

    def put(
        self,
        key: str,
        value: Any,
        *,
        source: str = "inferred",
        confidence: float = 0.7,
        memory_type: str | None = None,
        evidence: Evidence | None = None,
    ) -> None:
        """Note a value; its evidence, where none is given, is what was said last."""
        now = clock.now()
        if evidence is not None:
            check_instance(evidence, "evidence", kind=Evidence)

        def change(notes: Notes) -> Notes:
            context, dropped = notes.context.put(
                key, value, source=source, confidence=confidence, memory_type=memory_type, now=now,
                count=self._count,
            )  # fmt: skip
            notes = notes.replace(context=context, access_log=notes.access_log.record(key, "write", now))
            for item in dropped:
                notes = self._dropped(notes, item).with_origin(item.key, None)
            return notes.without_dropped(key).with_origin(key, evidence or place)

        place = self._place(source)
        self._apply(change)

    def get(self, key: str, default: Any = None) -> Any:
        """A value, or the default; an access is counted."""
        now = clock.now()
        if not self.value.has(key):
            return default
        found = self.value.peek(key)

        def change(notes: Notes) -> Notes:
            context, _ = notes.context.get(key, now=now)
            return notes.replace(context=context, access_log=notes.access_log.record(key, "read", now))

        self._apply(change)
        return found

    def peek(self, key: str, default: Any = None) -> Any:
        """A value, or the default; nothing is counted."""
        return self.value.peek(key, default)

    def item(self, key: str) -> ContextItem | None:
        """All that is known about a value."""
        return self.value.item(key)

    def delete(self, key: str) -> bool:
        """Remove a value; whether there was one. What was promoted of it stays."""
        if not self.value.has(key):
            return False
        self._apply(lambda notes: notes.replace(context=notes.context.delete(key)).with_origin(key, None))
        return True

    def clear(self) -> None:
        """Remove all values."""
        self._apply(lambda notes: notes.replace(context=notes.context.clear(), origins=()))

    def to_dict(self) -> dict[str, Any]:
        """All values; nothing is counted."""
        return self.value.to_dict()

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.value.has(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self.value.to_dict())

    def __len__(self) -> int:
        return self.value.size
