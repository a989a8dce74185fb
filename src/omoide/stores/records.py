"""Link, Document, Lease, Feed, Page, Stats, Finding, cursors.

A cursor is the place after the last entry of a page, in letters; it says nothing to anybody else.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import msgspec

from omoide import clock, ids
from omoide.core.codec import Frozen, MapField, TextsField
from omoide.core.entry import DEFAULT_NAMESPACE, Entry, Filter, Scope, check_positive
from omoide.core.frozen import EMPTY_MAP, freeze
from omoide.core.value import Count, Id, Millis, Name, Record, Value, set_field
from omoide.errors import Invalid, WrongType

# cursors: Where did the last page end?


def encode_cursor(*place: int) -> str:
    """The cursor for a place."""
    return "-".join([f"{part:x}" for part in place])


def decode_cursor(cursor: str, parts: int = 2) -> tuple[int, ...]:
    """The place that a cursor means."""
    try:
        place = tuple(int(part, 16) for part in cursor.split("-"))
    except ValueError:
        place = ()
    if len(place) != parts or any(abs(part) >= 1 << 63 for part in place):
        raise Invalid("cursor", f"is {cursor!r}", "pass the cursor of the page before, or none")
    return place


# findings: What does a store say about its own upkeep?


class Finding(NamedTuple):
    """One thing that was looked at."""

    name: str
    state: str
    """`ok`, `note` (can be lived with) or `problem`."""
    detail: str


# records: What do stores tell and take beside entries?


class Query(Record, frozen=True, kw_only=True):
    """Entries of a scope, newest first, a page at a time."""

    LABEL: ClassVar[str] = "memory query"

    scope: Scope
    filter: Filter = Filter()
    limit: int = 50
    cursor: str | None = None
    as_of: Millis | None = None
    """The moment whose state is asked for, instead of the present one."""
    at: Millis = msgspec.field(default_factory=clock.now)

    def _check(self) -> None:
        check_positive(self.limit, "limit")


class Page(Value, frozen=True, kw_only=True):
    """Some entries, and where the next ones begin; no cursor means that these were the last."""

    entries: tuple[Entry, ...] = ()
    cursor: str | None = None


class Link(Value, frozen=True, kw_only=True):
    """A typed link from one entry to another of the same namespace."""

    source: Id
    relation: Name
    target: Id
    created_at: Millis = msgspec.field(default_factory=clock.now)

    def __post_init__(self) -> None:
        super().__post_init__()
        size = len(self.relation.encode())
        if size > ids.MAX_BYTES:
            raise Invalid("relation", f"has {size} bytes", f"use at most {ids.MAX_BYTES}")


class Version(Value, frozen=True, kw_only=True):
    """An entry as it was from a moment on; erased ones have no entry any more, only the reason."""

    id: Id
    rev: Count
    at: Millis
    entry: Entry | None = None
    reason: str | None = None


class Change(Value, frozen=True, kw_only=True):
    """One step in the life of a store: what was done to which entry, never its content."""

    seq: Count
    namespace: Id
    id: Id
    op: str
    """`write`, `supersede`, `restore`, `link`, `unlink`, `erase`, `stale` or `current`."""
    rev: Count
    at: Millis


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """What changed in a namespace after a sequence number, and what it became."""

    generation: str
    """Which life of the store this is: after a backup was restored, numbers mean something else."""
    seq: int
    """The number up to which nothing is missing here; in another store, it may be below the one asked for."""
    after_fingerprint: str = ""
    """What tells the change asked about from others of its number: in a copy, a number may mean another."""
    seq_fingerprint: str = ""
    """The same of the change numbered `seq`."""
    more: bool = False
    """Whether there is more after that."""
    entries: tuple[Entry, ...] = ()
    """The entries that changed, each once, as they are now."""
    links: tuple[Link, ...] = ()
    """All links that begin at these entries."""
    access: dict[str, Access] = {}
    """How often entries were used: those that changed, and those used since the moment asked for."""
    erased_ids: tuple[str, ...] = ()
    """The ids of what was erased, whether or not there is something new under them."""
    new_ids: frozenset[str] = frozenset()
    """The ids of entries that were not there before."""


class EraseReceipt(Value, frozen=True, kw_only=True):
    """What an erasure removed, and what it could not reach."""

    ids: TextsField = ()
    versions: Count = 0
    links: Count = 0
    documents: Count = 0
    at: Millis = msgspec.field(default_factory=clock.now)
    reason: str | None = None
    scrubbed: bool = False
    """Whether no trace of the content is left in the store's files."""
    pending: TextsField = ()
    """What `scrub` still has to do."""
    unreachable: TextsField = ()
    """Where copies may exist that a store cannot know of."""


class Stats(Value, frozen=True, kw_only=True):
    """Figures about a scope, and about the store around it."""

    entries: Count = 0
    live: Count = 0
    superseded: Count = 0
    stale: Count = 0
    """Those that rest on something which no longer holds, and are not superseded."""
    expired: Count = 0
    versions: Count = 0
    links: Count = 0
    by_type: MapField = EMPTY_MAP
    without_vectors: Count = 0
    embedder: str | None = None
    last_seq: Count = 0
    size_bytes: Count = 0


class Access(Value, frozen=True, kw_only=True):
    """How often an entry was recalled, and when last."""

    count: Count = 0
    last: Millis | None = None


class Document(Value, frozen=True, kw_only=True):
    """A document with revisions, such as a session or a checkpoint, beside the entries of its scope."""

    kind: Id
    id: Id
    namespace: Id = DEFAULT_NAMESPACE
    agent_id: Id | None = None
    session_id: Id | None = None
    body: Frozen = None
    log: tuple[Frozen, ...] = ()
    """What was appended since, oldest first."""
    rev: Count = 0
    updated_at: Millis = msgspec.field(default_factory=clock.now)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.log, (tuple, list)):
            raise WrongType("log", "a list", self.log)
        set_field(self, "log", tuple(freeze(item, f"log[{at}]") for at, item in enumerate(self.log)))


class Lease(Value, frozen=True, kw_only=True):
    """The right to be the only one who works on a document, until a moment; `token` grows with each owner."""

    owner: Id
    until: Millis
    token: Count
