"""Define what writes and erasures mean, as pure functions.

Every store takes these decisions in the same way, from what is stored and what is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from omoide.core import codec
from omoide.core.entry import (
    DELETED,
    ROOT_TYPE,
    Entry,
    Filter,
    Scope,
    WriteRequest,
    WriteResult,
    with_subtypes,
)
from omoide.core.frozen import freeze_map
from omoide.core.value import set_field, shallow_copy
from omoide.errors import Conflict, IdTaken, Invalid, NotFound

MAX_CONTENT = 1 << 20
KEY_LIFETIME_MS = 7 * 24 * 3_600_000


def replace_unchecked(entry: Entry, **fields: Any) -> Entry:
    """Return a copy of an entry with fields that are known to be valid, without validating it again."""
    new = shallow_copy(entry)
    for name, value in fields.items():
        set_field(new, name, value)
    return new


class WriteDecision(NamedTuple):
    """Outcome of a write, and the entry to store."""

    outcome: str
    entry: Entry


def check_size(entry: Entry, limit: int) -> None:
    """Raise `Invalid` if a field of an entry is larger than the store allows."""
    for field in ("content", "rationale", "metadata", "tags", "evidence"):
        value = getattr(entry, field)
        if not value or (isinstance(value, str) and len(value) * 4 <= limit):
            continue
        size = len(value.encode() if isinstance(value, str) else codec.encode({"value": value}))
        if size > limit:
            raise Invalid(
                field, f"has {size} bytes", f"keep at most {limit}, or open the store with max_content"
            )


def check_session(session: str, count: int, limit: int) -> None:
    """Raise `Invalid` if a session would contain more entries than the store allows."""
    if count > limit:
        raise Invalid(
            "session_id",
            f"{session!r} would hold {count} memories of {limit}",
            "forget some, or raise session_limit",
        )


def decide_write(
    request: WriteRequest, existing: Entry | None, *, vector_changed: bool = False
) -> WriteDecision:
    """Decide what a write does, given the entry stored under its id.

    Args:
        vector_changed: The write supplies another vector than the stored one, which makes it a new
            revision.

    Raises:
        IdTaken: The id belongs to another scope.
        Conflict: The stored revision is not `expected_rev`.
    """
    new = request.entry
    if existing is not None and existing.scope != new.scope:
        raise IdTaken(new.id)
    Conflict.check(f"entry {new.id!r}", request.expected_rev, 0 if existing is None else existing.rev)
    if existing is None:
        return WriteDecision("stored", replace_unchecked(new, rev=1, stale=False))
    # A memory is as old as its first version; being superseded or stale is no part of what a write says.
    same = replace_unchecked(
        new,
        rev=existing.rev,
        created_at=existing.created_at,
        superseded_by=existing.superseded_by,
        superseded_at=existing.superseded_at,
        superseded_reason=existing.superseded_reason,
        stale=existing.stale,
    )
    if same == existing and not vector_changed:
        return WriteDecision("unchanged", existing)
    return WriteDecision("stored", replace_unchecked(same, rev=existing.rev + 1))


_SUPERSEDED_NOTICE = "the entry is superseded: restore it to have it recalled"
_STALE_NOTICE = "the entry is stale: it rests on something that no longer holds, and is not recalled"
_EMPTY_RESULT = WriteResult(
    request=WriteRequest(entry=Entry(id="-", agent_id="-", content="-", created_at=0)),
    entry=Entry(id="-", agent_id="-", content="-", created_at=0),
)


def write_result(request: WriteRequest, entry: Entry, outcome: str) -> WriteResult:
    """Build the result of a write from validated parts."""
    result = shallow_copy(_EMPTY_RESULT)
    set_field(result, "request", request)
    set_field(result, "entry", entry)
    set_field(result, "outcome", outcome)
    if entry.superseded_by is not None or entry.stale:
        notices = [(_SUPERSEDED_NOTICE, entry.superseded_by is not None), (_STALE_NOTICE, entry.stale)]
        set_field(result, "notices", tuple(notice for notice, applies in notices if applies))
    if outcome == "superseded":
        set_field(result, "metadata", freeze_map({"superseded": request.supersedes}))
    return result


def as_superseded(entry: Entry, by: Entry | None, reason: str | None, now: int) -> Entry:
    """Return an entry marked as superseded by another one, or as forgotten."""
    if by is not None and by.id == entry.id:
        raise Invalid("by", "names the entry itself", "name another, or none to forget it")
    if by is not None and by.superseded_by is not None:
        raise Invalid("by", f"names {by.id!r}, which is superseded itself", "name what holds now")
    return entry.replace(
        superseded_by=DELETED if by is None else by.id,
        superseded_at=now,
        superseded_reason=reason,
        rev=entry.rev + 1,
    )


def as_reinstated(entry: Entry) -> Entry:
    """Return a superseded entry as current again."""
    return replace_unchecked(
        entry, superseded_by=None, superseded_at=None, superseded_reason=None, rev=entry.rev + 1
    )


def time_of(entry: Entry) -> int:
    """Return when an entry happened, or else when it was created."""
    return entry.created_at if entry.occurred_at is None else entry.occurred_at


def type_of(entry: Entry) -> str:
    """Return the type of an entry, or the root type."""
    return ROOT_TYPE if entry.type is None else entry.type


def filter_types(filter: Filter) -> tuple[str, ...] | None:
    """Return the types that a filter admits, including subtypes; None for all."""
    return _expand_types(filter.types) if filter.types else None


@lru_cache(256)
def _expand_types(types: tuple[str, ...]) -> tuple[str, ...] | None:
    if ROOT_TYPE in types:
        return None
    return tuple(dict.fromkeys(found for name in types for found in with_subtypes(name)))


def entry_predicate(filter: Filter, now: int) -> Callable[[Entry], bool]:
    """Return a function that tells whether an entry passes a filter at a time."""
    types = filter_types(filter)
    stale = filter.include_stale
    plain = not (filter.tags or filter.tags_any or filter.since or filter.until is not None)

    def passes(entry: Entry) -> bool:
        return (
            (filter.include_superseded if entry.superseded_by is not None else stale or not entry.stale)
            and (filter.include_expired or entry.expires_at is None or entry.expires_at > now)
            and (types is None or type_of(entry) in types)
            and entry.confidence >= filter.min_confidence
            and (plain or _matches_details(entry, filter))
        )

    return passes


def _matches_details(entry: Entry, filter: Filter) -> bool:
    return (
        (filter.since is None or time_of(entry) >= filter.since)
        and (filter.until is None or time_of(entry) <= filter.until)
        and all(tag in entry.tags for tag in filter.tags)
        and (not filter.tags_any or any(tag in entry.tags for tag in filter.tags_any))
    )


def request_fingerprint(request: WriteRequest) -> bytes:
    """Return the digest that requests with the same idempotency key must share."""
    entry = replace_unchecked(request.entry, rev=0, created_at=0)
    if entry.id.startswith("mem_"):
        # A repeated call may have made its entry anew, with a fresh id of our own.
        entry = replace_unchecked(entry, id="mem_")
    fields = codec.to_builtins(entry)
    del fields["stale"]  # not the caller's to say
    options = msgspec.json.encode([request.expected_rev, request.dedupe, request.supersedes])
    return blake2b(msgspec.json.encode(fields) + options, digest_size=16).digest()


def content_key(entry: Entry) -> bytes:
    """Return the digest that makes entries duplicates: scope, type and content."""
    parts = [
        entry.namespace,
        entry.agent_id,
        entry.session_id,
        entry.project_id,
        type_of(entry),
        entry.content,
    ]
    return blake2b(msgspec.json.encode(parts), digest_size=12).digest()


def is_duplicate(existing: Entry, entry: Entry, now: int) -> bool:
    """Return True if a live entry already has the scope, type and content of another."""
    return (
        existing.content == entry.content
        and type_of(existing) == type_of(entry)
        and existing.scope == entry.scope
        and existing.is_live(now)
    )


def derived_entry_notice(other: str, id: str) -> str:
    """Describe, for an erase receipt, an entry that is derived from an erased one."""
    return f"entry {other!r}, whose evidence is {id!r}"


def remaining_copies(notices: Sequence[str], documents: int) -> list[str]:
    """Describe what may still repeat erased content; at most twenty entries are named."""
    lines = [*notices[:20]]
    if len(notices) > len(lines):
        lines.append(f"{len(notices) - len(lines)} more entries that rest on it")
    if documents:
        lines.append(f"documents (sessions, checkpoints) that may quote it: {documents}")
    return lines


def depends_on(entry: Entry, id: str) -> bool:
    """Return True if an entry names another one as evidence."""
    return any(evidence.kind == "entry" and evidence.ref == id for evidence in entry.evidence)


def entry_not_found(id: object) -> NotFound:
    """Return the error for an id outside the scope; it does not tell whether other scopes have it."""
    return NotFound("entry", id, "check the id and the scope (namespace, agent, session, project)")


def require_in_scope(entry: Entry | None, scope: Scope, id: object) -> Entry:
    """Return the entry if it exists and is in the scope; raise `NotFound` otherwise."""
    if entry is None or not scope.contains(entry):
        raise entry_not_found(id)
    return entry


THREAD_KIND = "thread"
"""Kind of the documents that store transcripts, by thread id."""


def threads_of(entry: Entry) -> list[str]:
    """Return the threads that an entry comes from or cites."""
    own = [] if entry.message is None else [entry.message.thread]
    return own + [_thread_id(evidence.ref) for evidence in entry.evidence if evidence.kind == "message"]


def _thread_id(ref: str) -> str:
    """Return the thread of a reference, which may end in a position: `thread:7`."""
    thread, _, position = ref.rpartition(":")
    return thread if thread and position.isdecimal() else ref


def remaining_transcripts(versions: Iterable[Entry], documents: Iterable[tuple[str, str]]) -> list[str]:
    """Describe the transcripts of erased entries, except documents that were erased with them."""
    erased = {*documents}
    threads = dict.fromkeys(thread for entry in versions for thread in threads_of(entry))
    return [f"transcript {thread}" for thread in threads if (THREAD_KIND, thread) not in erased]
