"""What does a session hold before anything of it is durable knowledge?

The transcript is the conversation, so that is not kept again here: only the working context, what waits to be
promoted, and what was promoted already.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from omoide import clock
from omoide.core import codec
from omoide.core.contract import Record
from omoide.core.entry import Evidence
from omoide.core.frozen import thaw
from omoide.core.value import Count, Id, Millis, Value
from omoide.errors import RestoreFailed
from omoide.promotion.marks import Mark, Promoted, Run
from omoide.shortterm.access_log import AccessLog
from omoide.shortterm.context import WorkingContext
from omoide.shortterm.pending import PendingMemories

VERSION = 1
RUNS = 20
"""How many promotions can be undone."""
HELD = 1_000


class Origin(Value, frozen=True, kw_only=True):
    """Where a value of the working context comes from."""

    key: str
    evidence: Evidence


class Notes(Record, frozen=True, kw_only=True):
    """Short-term memory as it is kept between two turns."""

    LABEL: ClassVar[str] = "session's notes"

    schema_version: int = VERSION
    session_id: Id
    context: WorkingContext
    pending: PendingMemories
    access_log: AccessLog
    origins: tuple[Origin, ...] = ()
    marks: tuple[Mark, ...] = ()
    dropped: tuple[Mark, ...] = ()
    """Which pending items were values of the working context until there was no room for them."""
    held: tuple[str, ...] = ()
    """The ids of what was promoted and taken back: it is not promoted again by itself."""
    runs: tuple[Run, ...] = ()
    """The last promotions, oldest first."""
    run_count: Count = 0
    total_promoted: Count = 0
    last_run: Millis | None = None
    evicted: Count = 0
    """Up to where in the thread messages that left the buffer have been looked at."""
    read: Count = 0
    """Up to where in the thread messages have been read for what is worth remembering."""
    closed: bool = False
    saved_at: Millis = msgspec.field(default_factory=clock.now)

    def marked(self) -> dict[str, Mark]:
        """The marks by their keys."""
        return {one.key: one for one in self.marks}

    def traced(self) -> dict[str, Evidence]:
        """Where values come from, by their keys."""
        return {one.key: one.evidence for one in self.origins}

    def with_origin(self, key: str, evidence: Evidence | None) -> Notes:
        """The notes after a value got another origin."""
        rest = tuple(one for one in self.origins if one.key != key)
        return self.replace(origins=rest if evidence is None else (*rest, Origin(key=key, evidence=evidence)))

    def without_dropped(self, key: str) -> Notes:
        """The notes without what waits under a key that has another value now."""
        old = {one.id for one in self.dropped if one.key == key}
        if not old:
            return self
        rest = tuple(one for one in self.dropped if one.id not in old)
        return self.replace(pending=self.pending.clear_promoted(old), dropped=rest)

    def after(self, run: Run) -> Notes:
        """The notes after a promotion."""
        marks = self.marked()
        for one in run.promoted:
            if one.key is not None and one.digest is not None:
                marks[one.key] = Mark(key=one.key, id=one.id, digest=one.digest)
        done = {one.item for one in run.promoted}
        return self.replace(
            pending=self.pending.clear_promoted(done),
            dropped=tuple(one for one in self.dropped if one.id not in done),
            marks=tuple(marks.values()),
            runs=(*self.runs, run)[-RUNS:] if run.promoted else self.runs,
            run_count=self.run_count + 1,
            total_promoted=self.total_promoted + sum(one.made for one in run.promoted),
            last_run=run.at,
        )

    def gone(self) -> dict[str, Promoted]:
        """What runs made that were undone, by the memories' ids."""
        return {one.id: one for run in self.runs if run.undone_at is not None for one in run.promoted}

    def undone(self, run: Run, at: int) -> Notes:
        """The notes after a promotion was taken back."""
        marks, gone = self.marked(), self.gone()
        for one in reversed(run.promoted):
            if one.key is not None and one.key in marks and marks[one.key].id == one.id:
                before = one.before
                while before is not None and before.id in gone:
                    before = gone[before.id].before
                del marks[one.key]
                if before is not None:
                    marks[one.key] = before
        held = (*self.held, *(one.id for one in run.promoted))[-HELD:]
        runs = tuple(one.replace(undone_at=at) if one.id == run.id else one for one in self.runs)
        return self.replace(marks=tuple(marks.values()), held=held, runs=runs)


def written(notes: Notes) -> object:
    """Notes as they stand in a document."""
    return codec.to_builtins(notes)


def read(body: object, session_id: str) -> Notes:
    """The notes that a document holds; damaged ones are refused, and so are those of another version."""
    plain: Any = thaw(body)
    version = plain.get("schema_version") if isinstance(plain, dict) else None
    if version != VERSION:
        raise RestoreFailed(
            f"notes of session {session_id!r}",
            f"they have version {version}, this reads {VERSION}; use another Omoide",
        )
    try:
        return codec.from_builtins(plain, Notes)
    except ValueError as error:
        raise RestoreFailed(f"notes of session {session_id!r}", error) from error
