"""What a write and an erase mean (pure).

The decisions that every store takes in the same way, as pure functions of what is kept and what is asked.
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

# rules: What does a write mean?


MAX_CONTENT = 1 << 20
KEY_LIFETIME_MS = 7 * 24 * 3_600_000


def replace_unchecked(entry: Entry, **fields: Any) -> Entry:
    """An entry with fields that are known to be right, so that they need not be checked again."""
    new = shallow_copy(entry)
    for name, value in fields.items():
        set_field(new, name, value)
    return new


class WriteDecision(NamedTuple):
    """What becomes of a write."""

    outcome: str
    entry: Entry


def check_size(entry: Entry, limit: int) -> None:
    """Raise when an entry is larger than the store allows."""
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
    """Raise when a session would hold more entries than the store allows."""
    if count > limit:
        raise Invalid(
            "session_id",
            f"{session!r} would hold {count} memories of {limit}",
            "forget some, or raise session_limit",
        )


def decide_write(
    request: WriteRequest, existing: Entry | None, *, vector_changed: bool = False
) -> WriteDecision:
    """What a write makes of an entry, given the one that is kept under its id; `renewed`: by its vector."""
    given = request.entry
    if existing is not None and existing.scope != given.scope:
        raise IdTaken(given.id)
    Conflict.check(f"entry {given.id!r}", request.expected_rev, 0 if existing is None else existing.rev)
    if existing is None:
        return WriteDecision("stored", replace_unchecked(given, rev=1, stale=False))
    # A memory is as old as its first version; being superseded or stale is no part of what a write says.
    same = replace_unchecked(
        given,
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
    """What is said of a write; put together from checked parts."""
    new = shallow_copy(_EMPTY_RESULT)
    set_field(new, "request", request)
    set_field(new, "entry", entry)
    set_field(new, "outcome", outcome)
    if entry.superseded_by is not None or entry.stale:
        told = [(_SUPERSEDED_NOTICE, entry.superseded_by is not None), (_STALE_NOTICE, entry.stale)]
        set_field(new, "notices", tuple(notice for notice, applies in told if applies))
    if outcome == "superseded":
        set_field(new, "metadata", freeze_map({"superseded": request.supersedes}))
    return new


def as_superseded(entry: Entry, by: Entry | None, reason: str | None, now: int) -> Entry:
    """The entry once another one, or nothing, has taken its place."""
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
    """The entry once it counts again."""
    return replace_unchecked(
        entry, superseded_by=None, superseded_at=None, superseded_reason=None, rev=entry.rev + 1
    )


def time_of(entry: Entry) -> int:
    """When it happened, or else when it was noted."""
    return entry.created_at if entry.occurred_at is None else entry.occurred_at


def type_of(entry: Entry) -> str:
    """Its type; what has none is a plain memory."""
    return ROOT_TYPE if entry.type is None else entry.type


def filter_types(filter: Filter) -> tuple[str, ...] | None:
    """The types that a filter lets pass, with those that refine them; None for all."""
    return _expand_types(filter.types) if filter.types else None


@lru_cache(256)
def _expand_types(types: tuple[str, ...]) -> tuple[str, ...] | None:
    if ROOT_TYPE in types:
        return None
    return tuple(dict.fromkeys(found for name in types for found in with_subtypes(name)))


def entry_predicate(filter: Filter, now: int) -> Callable[[Entry], bool]:
    """Tells whether a filter lets an entry pass."""
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
    """What two requests with one idempotency key must have in common."""
    entry = replace_unchecked(request.entry, rev=0, created_at=0)
    if entry.id.startswith("mem_"):
        # A repeated call may have made its entry anew, with a fresh id of our own.
        entry = replace_unchecked(entry, id="mem_")
    fields = codec.to_builtins(entry)
    del fields["stale"]  # not the caller's to say
    said = msgspec.json.encode([request.expected_rev, request.dedupe, request.supersedes])
    return blake2b(msgspec.json.encode(fields) + said, digest_size=16).digest()


def content_key(entry: Entry) -> bytes:
    """What makes two entries duplicates: the same scope, type and words."""
    said = [
        entry.namespace,
        entry.agent_id,
        entry.session_id,
        entry.project_id,
        type_of(entry),
        entry.content,
    ]
    return blake2b(msgspec.json.encode(said), digest_size=12).digest()


def is_duplicate(existing: Entry, entry: Entry, now: int) -> bool:
    """Whether an entry says already what another one would."""
    return (
        existing.content == entry.content
        and type_of(existing) == type_of(entry)
        and existing.scope == entry.scope
        and existing.is_live(now)
    )


def derived_entry_notice(other: str, id: str) -> str:
    """How an erase receipt names an entry that rests on what was erased."""
    return f"entry {other!r}, whose evidence is {id!r}"


def remaining_copies(notices: Sequence[str], documents: int) -> list[str]:
    """What is left that may repeat what was erased, in words; the first twenty by name."""
    found = [*notices[:20]]
    if len(notices) > len(found):
        found.append(f"{len(notices) - len(found)} more entries that rest on it")
    if documents:
        found.append(f"documents (sessions, checkpoints) that may quote it: {documents}")
    return found


def depends_on(entry: Entry, id: str) -> bool:
    """Whether an entry is evidence for another."""
    return any(one.kind == "entry" and one.ref == id for one in entry.evidence)


def entry_not_found(id: object) -> NotFound:
    """The answer for an id that a scope does not hold, whoever else may have one like it."""
    return NotFound("entry", id, "check the id and the scope (namespace, agent, session, project)")


def require_in_scope(entry: Entry | None, scope: Scope, id: object) -> Entry:
    """The entry, if there is one and the scope holds it."""
    if entry is None or not scope.contains(entry):
        raise entry_not_found(id)
    return entry


# transcripts: Which transcripts may still hold what was erased?


THREAD_KIND = "thread"
"""The kind of the documents that transcripts are kept in, each under the id of its thread."""


def threads_of(entry: Entry) -> list[str]:
    """The threads that an entry was said in, or that its evidence points into."""
    said = [] if entry.message is None else [entry.message.thread]
    return said + [_thread_id(one.ref) for one in entry.evidence if one.kind == "message"]


def _thread_id(ref: str) -> str:
    """The thread of a reference, which may end in a position: `thread:7`."""
    thread, _, place = ref.rpartition(":")
    return thread if thread and place.isdecimal() else ref


def remaining_transcripts(versions: Iterable[Entry], documents: Iterable[tuple[str, str]]) -> list[str]:
    """The transcripts of erased entries, in words, but for the documents (kind, id) that went with them."""
    gone = {*documents}
    found = dict.fromkeys(thread for entry in versions for thread in threads_of(entry))
    return [f"transcript {thread}" for thread in found if (THREAD_KIND, thread) not in gone]
