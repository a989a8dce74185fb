"""Define the values that stores exchange beside entries, and page cursors.

A cursor encodes the position of the last entry of a page; clients treat it as opaque.
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


def encode_cursor(*position: int) -> str:
    """Encode a position as a page cursor."""
    return "-".join([f"{part:x}" for part in position])


def decode_cursor(cursor: str, parts: int = 2) -> tuple[int, ...]:
    """Decode a page cursor; raise `Invalid` if it is malformed."""
    try:
        position = tuple(int(part, 16) for part in cursor.split("-"))
    except ValueError:
        position = ()
    if len(position) != parts or any(abs(part) >= 1 << 63 for part in position):
        raise Invalid("cursor", f"is {cursor!r}", "pass the cursor of the page before, or none")
    return position


class Finding(NamedTuple):
    """One result of a health check of a store."""

    name: str
    state: str
    """`ok`, `note` (acceptable) or `problem`."""
    detail: str


class Query(Record, frozen=True, kw_only=True):
    """A request for the entries of a scope, newest first, one page at a time."""

    LABEL: ClassVar[str] = "memory query"

    scope: Scope
    filter: Filter = Filter()
    limit: int = 50
    cursor: str | None = None
    as_of: Millis | None = None
    """Query the state at this time instead of the current one."""
    at: Millis = msgspec.field(default_factory=clock.now)

    def _check(self) -> None:
        check_positive(self.limit, "limit")


class Page(Value, frozen=True, kw_only=True):
    """One page of entries; `cursor` is None on the last page."""

    entries: tuple[Entry, ...] = ()
    cursor: str | None = None


class Link(Value, frozen=True, kw_only=True):
    """A typed link from one entry to another in the same namespace."""

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
    """One version of an entry; an erased entry leaves a version with a reason and no content."""

    id: Id
    rev: Count
    at: Millis
    entry: Entry | None = None
    reason: str | None = None


class Change(Value, frozen=True, kw_only=True):
    """One record of the change log: what was done to which entry, without content."""

    seq: Count
    namespace: Id
    id: Id
    op: str
    """`write`, `supersede`, `restore`, `link`, `unlink`, `erase`, `stale` or `current`."""
    rev: Count
    at: Millis


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """What changed in a namespace after a sequence number, with its current state."""

    generation: str
    """Identifies the history that sequence numbers refer to; it changes when a backup is restored."""
    seq: int
    """Sequence number up to which the feed is complete; may be below the requested one in another store."""
    after_fingerprint: str = ""
    """Fingerprint of the change at the requested number, to detect another history in a copied store."""
    seq_fingerprint: str = ""
    """Fingerprint of the change at `seq`."""
    more: bool = False
    """True if further changes follow `seq`."""
    entries: tuple[Entry, ...] = ()
    """The changed entries in their current state, each once."""
    links: tuple[Link, ...] = ()
    """All links whose source is one of these entries."""
    access: dict[str, Access] = {}
    """Access counts of the changed entries, and of those used since the requested time."""
    erased_ids: tuple[str, ...] = ()
    """Ids of erased entries, even if a new entry has the same id."""
    new_ids: frozenset[str] = frozenset()
    """Ids of entries that did not exist before."""


class EraseReceipt(Value, frozen=True, kw_only=True):
    """What an erasure removed, and what it could not reach."""

    ids: TextsField = ()
    versions: Count = 0
    links: Count = 0
    documents: Count = 0
    at: Millis = msgspec.field(default_factory=clock.now)
    reason: str | None = None
    scrubbed: bool = False
    """True if no trace of the content is left in the store's files."""
    pending: TextsField = ()
    """What `scrub` still has to do."""
    unreachable: TextsField = ()
    """Where copies may exist outside the store."""


class Stats(Value, frozen=True, kw_only=True):
    """Statistics of a scope and of its store."""

    entries: Count = 0
    live: Count = 0
    superseded: Count = 0
    stale: Count = 0
    """Entries that depend on something invalid and are not superseded."""
    expired: Count = 0
    versions: Count = 0
    links: Count = 0
    by_type: MapField = EMPTY_MAP
    without_vectors: Count = 0
    embedder: str | None = None
    last_seq: Count = 0
    size_bytes: Count = 0


class Access(Value, frozen=True, kw_only=True):
    """How often an entry was used, and when last."""

    count: Count = 0
    last: Millis | None = None


class Document(Value, frozen=True, kw_only=True):
    """A document with revisions and a log, such as a session or a checkpoint."""

    kind: Id
    id: Id
    namespace: Id = DEFAULT_NAMESPACE
    agent_id: Id | None = None
    session_id: Id | None = None
    body: Frozen = None
    log: tuple[Frozen, ...] = ()
    """Appended items, oldest first."""
    rev: Count = 0
    updated_at: Millis = msgspec.field(default_factory=clock.now)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.log, (tuple, list)):
            raise WrongType("log", "a list", self.log)
        set_field(self, "log", tuple(freeze(item, f"log[{at}]") for at, item in enumerate(self.log)))


class Lease(Value, frozen=True, kw_only=True):
    """Exclusive ownership of a document until a time; `token` grows with each owner (fencing token)."""

    owner: Id
    until: Millis
    token: Count
