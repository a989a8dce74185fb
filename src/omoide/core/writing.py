"""What is a store asked to keep, and what became of it?"""

from __future__ import annotations

from typing import ClassVar

from omoide.core.codec import MapField, TextsField
from omoide.core.contract import Record, check_choice
from omoide.core.entry import Entry
from omoide.core.frozen import EMPTY_MAP
from omoide.core.value import Count, Id, check_instance
from omoide.errors import Invalid

OUTCOMES = ("stored", "unchanged", "duplicate_of", "superseded")


class WriteRequest(Record, frozen=True, kw_only=True):
    """An entry to keep: a new one, or the next revision of the one with its id."""

    LABEL: ClassVar[str] = "memory write request"

    entry: Entry
    metadata: MapField = EMPTY_MAP
    expected_rev: Count | None = None
    """The revision the stored entry must have; 0 for an entry that must not exist yet."""
    idempotency_key: Id | None = None
    """A repeated request with the same key gets the first receipt; kept for seven days."""
    dedupe: bool = False
    """Whether a live entry of the same scope, type and content makes this one a duplicate."""
    supersedes: Id | None = None
    """The entry that this one replaces, in the same moment."""

    def _check(self) -> None:
        check_instance(self.entry, "entry", kind=Entry)
        if self.supersedes == self.entry.id:
            raise Invalid("supersedes", "names the entry itself", "give the new entry another id")


class WriteResult(Record, frozen=True, kw_only=True):
    """A receipt: the entry as it is stored."""

    LABEL: ClassVar[str] = "memory write result"

    request: WriteRequest
    entry: Entry
    status: str = "ok"
    metadata: MapField = EMPTY_MAP
    outcome: str = "stored"
    """`stored`, `unchanged`, `duplicate_of` (which the entry here is), or `superseded` (an older one was)."""
    notices: TextsField = ()

    def _check(self) -> None:
        check_instance(self.request, "request", kind=WriteRequest)
        check_instance(self.entry, "entry", kind=Entry)
        check_choice(self.status, "status", ("ok",))
        check_choice(self.outcome, "outcome", OUTCOMES)

    @property
    def id(self) -> str:
        """The id of the entry that is stored."""
        return self.entry.id

    @property
    def rev(self) -> int:
        """Its revision."""
        return self.entry.rev
