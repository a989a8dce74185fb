"""Define what the operations of a store mean, as functions without I/O.

Every store takes these decisions in the same way, from what is stored and what is requested.

As in a truth maintenance system, an entry is *out* if it is superseded, invalidated or stale. It is *stale*
if it is invalidated, or if something it depends on is out or was erased. In a cycle of dependencies only
those entries are stale from which evidence leads to something that is out for a reason of its own.

The end of a lease is a time of its owner's clock. Others believe it only while the lease is as old as its
length or younger, counted by a clock that cannot be set, from when this process first saw it. An owner that
renews its lease changes its end, and is believed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

import msgspec

from omoide import clock, ids
from omoide.core import codec
from omoide.core.entry import (
    DELETED,
    ROOT_TYPE,
    Entry,
    Filter,
    Scope,
    WriteRequest,
    WriteResult,
    check_positive,
    with_subtypes,
)
from omoide.core.frozen import freeze_map
from omoide.core.value import (
    check_choice,
    check_instance,
    check_number,
    check_revision,
    set_field,
    shallow_copy,
)
from omoide.errors import IdTaken, Invalid, NotFound, WrongType
from omoide.retrieval.text import TokenCounter, estimate_tokens
from omoide.stores.records import Access, Lease, Link, Owner
from omoide.stores.redaction import Guard
from omoide.stores.reranker import DEFAULT_RERANK_DEPTH, check_reranker

MAX_CONTENT = 1 << 20
KEY_LIFETIME_MS = 7 * 24 * 3_600_000

SUPERSEDED, LIVE, STALE, SUPERSEDED_AND_STALE = 0, 1, 2, 3
"""Status of an entry, as stored in the column `live`."""

INVALIDATED_BY = "invalidated_by"
"""Relation of a link whose source is invalidated."""

THREAD_KIND = "thread"
"""Kind of the documents that store transcripts, by thread id."""

MISSING_PREMISE_REASON = "not copied with what depends on it"

_SUPERSEDED_NOTICE = "the entry is superseded: restore it to have it recalled"
_STALE_NOTICE = "the entry is stale: it depends on something superseded or stale, and is not recalled"
_EMPTY_RESULT = WriteResult(
    request=WriteRequest(entry=Entry(id="-", agent_id="-", content="-", created_at=0)),
    entry=Entry(id="-", agent_id="-", content="-", created_at=0),
)

_TO_STALE = {LIVE: STALE, SUPERSEDED: SUPERSEDED_AND_STALE}
_TO_CURRENT = {STALE: LIVE, SUPERSEDED_AND_STALE: SUPERSEDED}
_NO_PREMISES: frozenset[str] = frozenset()


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a store, passed to `open_store` or in the URL."""

    durability: str = "crash"
    """`crash`: acknowledged writes survive a crash of the process; `power`: also a power failure."""
    max_content: int = MAX_CONTENT
    """Maximum size of an entry's content in bytes."""
    session_limit: int | None = None
    """Maximum number of live entries per session; None for no limit."""
    guard: Guard | None = None
    count_tokens: TokenCounter = estimate_tokens
    timeout: float = 60.0
    """Seconds to wait for locks of other processes."""
    read_only: bool = False
    max_pages: int | None = None
    """Maximum size of a SQLite file in pages."""
    reranker: Any = None
    """A function `(query, texts) -> scores`, or an object with such a method `rerank`, that orders the first
    hits of a recall anew; None for none."""
    rerank_depth: int = DEFAULT_RERANK_DEPTH
    """Number of hits that the reranker scores."""

    def __post_init__(self) -> None:
        check_choice(self.durability, "durability", ("crash", "power"))
        for field in ("max_content", "rerank_depth"):
            check_positive(getattr(self, field), field)
        for field in ("session_limit", "max_pages"):
            if getattr(self, field) is not None:
                check_positive(getattr(self, field), field)
        for name in ("guard", "count_tokens"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise WrongType(name, "a function", getattr(self, name))
        if self.reranker is not None:
            check_reranker(self.reranker)
        check_number(self.timeout, "timeout")
        if type(self.read_only) is not bool:
            raise WrongType("read_only", "True or False", self.read_only)
        if not 0 < self.timeout < 1e6:
            raise Invalid("timeout", f"is {self.timeout}", "pass seconds to wait for other processes")

    def guard_reason(self, reason: str | None) -> str | None:
        """Apply the guard to a reason, as it is applied to content."""
        if reason is None or not reason.strip() or self.guard is None:
            return reason
        seen = self.guard(Entry(id="reason", agent_id="reason", content=reason, created_at=0))
        return str(check_instance(seen, "what the guard gave back", kind=Entry).content)

    def guard_request(self, request: WriteRequest) -> WriteRequest:
        """Apply the guard to a write request and check the size of its entry."""
        entry = request.entry
        if self.guard is not None:
            entry = check_instance(self.guard(entry), "what the guard gave back", kind=Entry)
            reason = self.guard_reason(entry.superseded_reason)
            if reason != entry.superseded_reason:
                entry = entry.replace(superseded_reason=reason)
        check_size(entry, self.max_content)
        return request if entry is request.entry else request.replace(entry=entry)


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
    request: WriteRequest,
    existing: Entry | None,
    *,
    vector_changed: bool = False,
    holder: Entry | None = None,
    successor: Entry | None = None,
    now: int = 0,
) -> WriteDecision:
    """Decide what a write does, given the entry stored under its id and the one that fills its slot.

    Args:
        vector_changed: The write supplies another vector than the stored one, which makes it a new
            revision.
        holder: The entry that fills the slot of the new one; see `replaced_value`.
        successor: The entry that `superseded_by` of the new one names; see `successor_id`.
        now: The time at which a holder that expired is no value any more.

    Raises:
        IdTaken: The id belongs to another scope.
        Conflict: The stored revision is not `expected_rev`.
        NotFound: A new entry is superseded by one that its agent and user do not have.
    """
    new = request.entry
    if existing is not None and existing.scope != new.scope:
        raise IdTaken(new.id)
    if existing is None and new.fills_slot:
        # Readers of the key see live values alone, so that is what a caller can expect.
        live = holder is not None and holder.is_live(now)
        check_revision(f"key {new.key!r}", request.expected_rev, holder.rev if holder and live else 0)
        if holder is not None and request.supersedes is None and is_duplicate(holder, new, now):
            return WriteDecision("duplicate_of", holder)
    else:
        check_revision(f"entry {new.id!r}", request.expected_rev, 0 if existing is None else existing.rev)
    if existing is None:
        by, owner = successor_id(new), owner_scope(new)
        # Exactly the same user: a scope without one would hold the memories of all.
        if by is not None and (successor is None or owner_scope(successor) != owner):
            raise entry_not_found(by, owner)
        # Revisions of a slot go on from value to value: a caller that read an older value conflicts.
        rev = 1 if holder is None or not new.fills_slot else holder.rev + 1
        return WriteDecision("stored", replace_unchecked(new, rev=rev, stale=False))
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


def successor_id(entry: Entry) -> str | None:
    """Return the id of the entry that supersedes this one; None if there is none."""
    return None if entry.superseded_by == DELETED else entry.superseded_by


def owner_scope(entry: Entry) -> Scope:
    """Return the scope of the agent and user of an entry, inside which it may supersede others."""
    return Scope(namespace=entry.namespace, agent_id=entry.agent_id, user_id=entry.user_id)


def replaced_value(entry: Entry, holder: Entry | None) -> Entry | None:
    """Return the value of its slot that an entry supersedes when it is stored."""
    return holder if holder is not None and entry.fills_slot and holder.id != entry.id else None


def as_replaced(holder: Entry, by: Entry, now: int) -> Entry:
    """Return the former value of a slot as superseded by the next one."""
    return as_superseded(holder, by, f"another value of the key {by.key!r} took its place", now)


def superseded_id(request: WriteRequest, replaced: Entry | None) -> str | None:
    """Return the id for the receipt of a write that superseded another entry."""
    return request.supersedes or (None if replaced is None else replaced.id)


class ImportDecision(NamedTuple):
    """An imported value of a slot as it is stored, and the value that it supersedes."""

    entry: Entry
    replaced: Entry | None = None


def decide_import(entry: Entry, holder: Entry | None, now: int) -> ImportDecision:
    """Decide between an imported value of a slot and the one that fills it: the newer one stays.

    The older one is superseded by it, so that both are in the history.
    """
    if holder is None or not entry.fills_slot:
        return ImportDecision(entry)
    if entry.created_at < holder.created_at:
        return ImportDecision(as_replaced(entry, holder, now))
    return ImportDecision(entry, holder)


def write_result(
    request: WriteRequest, entry: Entry, outcome: str, superseded: str | None = None
) -> WriteResult:
    """Build the result of a write from validated parts."""
    result = shallow_copy(_EMPTY_RESULT)
    set_field(result, "request", request)
    set_field(result, "entry", entry)
    set_field(result, "outcome", outcome)
    if entry.superseded_by is not None or entry.stale:
        notices = [(_SUPERSEDED_NOTICE, entry.superseded_by is not None), (_STALE_NOTICE, entry.stale)]
        set_field(result, "notices", tuple(notice for notice, applies in notices if applies))
    if outcome == "superseded":
        set_field(result, "metadata", freeze_map({"superseded": superseded or request.supersedes}))
    return result


def as_superseded(entry: Entry, by: Entry | None, reason: str | None, now: int) -> Entry:
    """Return an entry marked as superseded by another one, or as forgotten."""
    if by is not None and by.id == entry.id:
        raise Invalid("by", "names the entry itself", "name another, or none to forget it")
    if by is not None and by.superseded_by is not None:
        raise Invalid("by", f"names {by.id!r}, which is superseded itself", "name what holds now")
    # Who reads as the one user would lose the entry and not see its successor.
    if by is not None and by.user_id != entry.user_id:
        raise Invalid(
            "user_id", "is that of another user than what it supersedes", "write it for the same user"
        )
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
            and (filter.key is None or entry.key == filter.key)
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
    fields = codec.to_builtins(entry, sort_keys=True)
    del fields["stale"]  # not the caller's to say
    for name in ("user_id", "key"):  # as before there were any: receipts outlive an upgrade
        if fields[name] is None:
            del fields[name]
    options = msgspec.json.encode([request.expected_rev, request.dedupe, request.supersedes])
    return blake2b(msgspec.json.encode(fields) + options, digest_size=16).digest()


def receipt_keys(request: WriteRequest) -> tuple[str, ...]:
    """Return the keys under which the receipt of a request may be stored, the present one first.

    An idempotency key belongs to an agent and a user, so that nobody meets the keys of another. Receipts of
    older versions lie under the key itself.
    """
    key, entry = request.idempotency_key, request.entry
    if key is None:
        return ()
    parts = msgspec.json.encode([entry.agent_id, entry.user_id, key])
    return blake2b(parts, digest_size=16).hexdigest(), key


def content_key(entry: Entry) -> bytes:
    """Return the digest that makes entries duplicates: scope, key, type and content."""
    parts = [
        entry.namespace,
        entry.agent_id,
        entry.session_id,
        entry.project_id,
        type_of(entry),
        entry.content,
    ]
    if entry.user_id is not None or entry.key is not None:  # only where set, so that older digests stay valid
        parts += [entry.user_id, entry.key]
    return blake2b(msgspec.json.encode(parts), digest_size=12).digest()


def is_duplicate(existing: Entry, entry: Entry, now: int) -> bool:
    """Return True if a live entry already has the scope, key, type and content of another."""
    return (
        existing.content == entry.content
        and existing.key == entry.key
        and type_of(existing) == type_of(entry)
        and existing.scope == entry.scope
        and existing.is_live(now)
    )


def derived_entry_notice(other: str, id: str) -> str:
    """Describe, for an erase receipt, an entry that is derived from an erased one."""
    return f"entry {other!r}, whose evidence is {id!r}"


def remaining_copies(notices: Sequence[str], outside: int, documents: int) -> list[str]:
    """Describe what may still repeat erased content; at most twenty entries are named.

    Args:
        notices: descriptions of the entries in the scope that are derived from erased ones.
        outside: the number of those outside the scope, which are not named.
        documents: the number of documents that may quote erased content.
    """
    lines = [*notices[:20]]
    if len(notices) > len(lines):
        lines.append(f"{len(notices) - len(lines)} more entries that depend on it")
    if outside:
        lines.append(f"entries outside the scope that depend on it: {outside}")
    if documents:
        lines.append(f"documents (sessions, checkpoints) that may quote it: {documents}")
    return lines


def depends_on(entry: Entry, id: str) -> bool:
    """Return True if an entry names another one as evidence."""
    return any(evidence.kind == "entry" and evidence.ref == id for evidence in entry.evidence)


def unique_ids(id: str | Sequence[str]) -> list[str]:
    """Return the ids of one entry or several, each once."""
    return [id] if isinstance(id, str) else list(dict.fromkeys(id))


def entry_not_found(id: object, scope: Scope) -> NotFound:
    """Return the error for an id outside the scope; it does not tell whether other scopes have it."""
    return NotFound("entry", id, f"check the id, and the scope that was searched: {scope.describe()}")


def sorted_owners(
    namespace: str, counts: Iterable[tuple[str | None, str, str | None, int, int]]
) -> list[Owner]:
    """Return owners from rows of user, agent, project and the two counts, sorted by their names."""
    rows = sorted(counts, key=lambda row: (row[0] or "", row[1], row[2] or ""))
    return [
        Owner(
            namespace=namespace, user_id=user, agent_id=agent, project_id=project, entries=entries, live=live
        )
        for user, agent, project, entries, live in rows
    ]


def require_in_scope(entry: Entry | None, scope: Scope, id: object) -> Entry:
    """Return the entry if it exists and is in the scope; raise `NotFound` otherwise."""
    if entry is None or not scope.contains(entry):
        raise entry_not_found(id, scope)
    return entry


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


def status_of(entry: Entry) -> int:
    """Return the status of an entry."""
    if entry.superseded_by is None:
        return STALE if entry.stale else LIVE
    return SUPERSEDED_AND_STALE if entry.stale else SUPERSEDED


def is_superseded(status: int) -> bool:
    """Return True if a status means superseded or forgotten."""
    return status in (SUPERSEDED, SUPERSEDED_AND_STALE)


def allowed_statuses(*, superseded: bool, stale: bool) -> tuple[int, ...]:
    """Return the statuses that a filter admits."""
    return (LIVE, *((SUPERSEDED, SUPERSEDED_AND_STALE) if superseded else ()), *((STALE,) if stale else ()))


def premises(entry: Entry) -> frozenset[str]:
    """Return the ids of the entries that an entry depends on; references too long for an id are ignored."""
    if not entry.evidence:
        return _NO_PREMISES
    refs = (evidence.ref for evidence in entry.evidence if evidence.kind == "entry")
    return frozenset(ref for ref in refs if len(ref) <= ids.MAX_BYTES)


class StaleTransition(NamedTuple):
    """An entry, at some revision, became stale or current at a time."""

    rev: int
    at: int
    stale: bool


def was_stale_at(transitions: Sequence[StaleTransition], moment: int) -> bool:
    """Return True if an entry was stale at a time."""
    return next((transition.stale for transition in reversed(transitions) if transition.at <= moment), False)


def was_stale_in_rev(transitions: Sequence[StaleTransition], rev: int) -> bool:
    """Return True if a revision was stale when it was replaced, or is stale if it is the newest."""
    return next((transition.stale for transition in reversed(transitions) if transition.rev <= rev), False)


class DependencyIndex(Protocol):
    """The statuses and dependencies of the entries of one namespace."""

    def statuses(self, ids: Collection[str]) -> dict[str, int]:
        """Return the status of each of these entries that exists."""

    def dependents(self, ids: Collection[str]) -> dict[str, int]:
        """Return the entries that currently depend on any of these, with their statuses."""

    def premises(self, ids: Collection[str]) -> Iterable[tuple[str, str]]:
        """Yield each of these ids with each id it currently depends on."""

    def invalidated_ids(self, ids: Collection[str]) -> set[str]:
        """Return those that have an `invalidated_by` link."""

    def erased_ids(self, ids: Collection[str]) -> set[str]:
        """Return those that were erased; none of them exists."""


def propagate(index: DependencyIndex, was_out: Mapping[str, bool]) -> dict[str, int]:
    """Return the new status of every entry whose status changes after some entries changed.

    Each affected entry is visited once; nothing else is read.

    Args:
        was_out: Every entry that changed, with whether it was out before. An entry that was erased
            earlier was out.
    """
    before = index.statuses(was_out.keys())
    uncertain = _possibly_current(index, was_out, before)
    now = {id: _TO_CURRENT[status] if id in uncertain else status for id, status in before.items()}
    frontier = {id for id, out in was_out.items() if not out and now.get(id) != LIVE}
    for id in _with_stale_reason(index, {*uncertain, *(id for id in was_out if id in now)}, now):
        if now[id] == LIVE:
            frontier.add(id)
        now[id] = _TO_STALE[now[id]]
    while frontier:
        dependents = index.dependents(frontier)
        frontier = set()
        for id, status in dependents.items():
            before.setdefault(id, status)
            status = now.get(id, status)
            if status in _TO_STALE:
                now[id] = _TO_STALE[status]
                if status == LIVE:
                    frontier.add(id)
    return {id: now[id] for id in sorted(now) if now[id] != before[id]}


def _possibly_current(
    index: DependencyIndex, was_out: Mapping[str, bool], before: dict[str, int]
) -> set[str]:
    """Return the stale entries that may have become current; add their statuses to `before`."""
    uncertain = {id for id, status in before.items() if status in _TO_CURRENT}
    frontier = {id for id, out in was_out.items() if out and before.get(id) in (LIVE, STALE)}
    while frontier:
        frontier -= index.invalidated_ids(frontier)  # what is out for a reason of its own leads no further
        dependents = index.dependents(frontier)
        fresh = {
            id: status for id, status in dependents.items() if status in _TO_CURRENT and id not in uncertain
        }
        before.update(fresh)
        uncertain.update(fresh)
        frontier = {id for id, status in fresh.items() if status == STALE}
    return uncertain


def _with_stale_reason(index: DependencyIndex, ids: set[str], now: Mapping[str, int]) -> set[str]:
    """Return those that are invalidated or depend on something that is out."""
    if not ids:
        return set()
    pairs = [*index.premises(ids)]
    premise_ids = {premise for _, premise in pairs if premise not in now}
    others = index.statuses(premise_ids) if premise_ids else {}
    absent = premise_ids - others.keys()
    erased = index.erased_ids(absent) if absent else set()
    stale = index.invalidated_ids(ids)
    for id, premise in pairs:
        status = now.get(premise, others.get(premise))
        if premise in erased if status is None else status != LIVE:
            stale.add(id)
    return stale


def reachable(roots: Iterable[str], dependents: Mapping[str, Iterable[str]]) -> set[str]:
    """Return everything that depends on the roots, directly or not."""
    found, frontier = set[str](), [*roots]
    while frontier:
        for id in dependents.get(frontier.pop(), ()):
            if id not in found:
                found.add(id)
                frontier.append(id)
    return found


def prepare_import(
    entries: Sequence[Entry], links: Sequence[Link], access: Mapping[str, Access], settings: StoreSettings
) -> list[Entry]:
    """Apply the guard to imported entries and check that they are of one namespace."""
    if not entries and (links or access):
        raise Invalid("entries", "is empty", "pass the entries that the links and the figures are about")
    namespaces = sorted({entry.namespace for entry in entries})
    if len(namespaces) > 1:
        raise Invalid("entries", f"lie in {len(namespaces)} namespaces", "take over one namespace at a time")
    return [_as_imported(settings.guard_request(WriteRequest(entry=entry)).entry) for entry in entries]


def missing_premises(entries: Sequence[Entry]) -> dict[str, Entry]:
    """Return the premises of stale entries that are not imported with them, each with a dependent.

    Unless they are stored here they count as erased, so that moving an entry does not make it current
    again.
    """
    imported = {entry.id for entry in entries}
    stale = [entry for entry in entries if entry.stale]
    # A premise that is live makes nothing stale.
    live = {ref for entry in entries if not entry.stale for ref in premises(entry)}
    known = imported | live
    missing = {ref: dependent for dependent in stale for ref in premises(dependent) if ref not in known}
    return {ref: dependent for ref, dependent in missing.items() if _is_valid_id(ref)}


def _is_valid_id(ref: str) -> bool:
    """Return True if a reference can be an id; evidence may cite anything."""
    try:
        ids.check(ref, "ref")
    except Invalid:
        return False
    return True


def _as_imported(entry: Entry) -> Entry:
    """Return an entry as it is stored: revisions count from one, and staleness is decided here."""
    return replace_unchecked(entry, rev=max(1, entry.rev), stale=False)


def is_new(entry: Entry, existing: Entry | None) -> bool:
    """Return True if an imported entry has to be stored.

    Raises:
        IdTaken: Another entry is stored under its id.
    """
    if existing is None:
        return True
    if not is_same(entry, existing):
        raise IdTaken(entry.id)
    return False


def is_same(entry: Entry, existing: Entry) -> bool:
    """Return True if an entry is stored unchanged, or was and lost its slot to a newer value on import."""
    stored = replace_unchecked(existing, stale=False)
    if stored == entry:
        return True
    by = stored.superseded_by
    if not entry.fills_slot or by in (None, DELETED) or stored.rev != entry.rev + 1:
        return False
    return stored == replace_unchecked(
        entry,
        superseded_by=by,
        superseded_at=stored.superseded_at,
        superseded_reason=stored.superseded_reason,
        rev=stored.rev,
    )


def claim_lease(
    held: Lease | None, place: tuple[str, ...], owner: str, ttl_ms: int, now: int
) -> Lease | None:
    """Return the lease that an owner acquires or renews, or None while another owner holds it.

    Args:
        held: The present or last lease.
        place: The store and the document, for `clock.is_believed`.
        owner: Who claims it.
        ttl_ms: Its length.
        now: The time by the clock of this process.
    """
    token = 0 if held is None else held.token
    if held is not None and held.until > 0:  # not released
        if held.owner == owner:
            # Nobody else had it in between, whatever the clock says. A clock that went back does not end it.
            return Lease(owner=owner, until=max(now + ttl_ms, held.until + 1), token=token, ttl=ttl_ms)
        if held.until > now and clock.is_believed(place, (token, held.until), held.ttl):
            return None
    return Lease(owner=owner, until=now + ttl_ms, token=token + 1, ttl=ttl_ms)
