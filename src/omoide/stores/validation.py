"""Validate the settings of stores, the arguments of their operations, and imported entries.

Every store checks its arguments before an operation begins, so that bad input is refused alike everywhere and
changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from omoide import clock, ids
from omoide.core.entry import Entry, RecallRequest, Scope, WriteRequest, check_positive
from omoide.core.frozen import check_str
from omoide.core.value import check_choice, check_count, check_instance, check_number
from omoide.errors import IdTaken, Invalid, WrongType
from omoide.retrieval.text import TokenCounter, estimate_tokens
from omoide.stores import semantics, truth
from omoide.stores.records import Access, Document, Link, Query
from omoide.stores.redaction import Guard

MAX_TTL_MS = 100 * 366 * 86_400_000
"""Longest time for which a lease can be claimed."""


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a store, passed to `open_store` or in the URL."""

    durability: str = "crash"
    """`crash`: acknowledged writes survive a crash of the process; `power`: also a power failure."""
    max_content: int = semantics.MAX_CONTENT
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

    def __post_init__(self) -> None:
        check_choice(self.durability, "durability", ("crash", "power"))
        check_positive(self.max_content, "max_content")
        for field in ("session_limit", "max_pages"):
            if getattr(self, field) is not None:
                check_positive(getattr(self, field), field)
        for name in ("guard", "count_tokens"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise WrongType(name, "a function", getattr(self, name))
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
        semantics.check_size(entry, self.max_content)
        return request if entry is request.entry else request.replace(entry=entry)


Check = Callable[[Any, str], Any]


def _check_list(value: object, field: str, *, check: Check | None = None) -> None:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise WrongType(field, "a list", value)
    if check is not None:
        if not isinstance(value, (list, tuple)):
            raise WrongType(field, "a list", value)
        for at, item in enumerate(value):
            check(item, f"{field}[{at}]")


def _check_optional(value: object, field: str, *, check: Check) -> None:
    if value is not None:
        check(value, field)


def _check_access(value: object, field: str) -> None:
    if not isinstance(value, Mapping):
        raise WrongType(field, "a mapping from ids to Access", value)
    for id, access in value.items():
        ids.check(id, field)
        check_instance(access, f"{field}[{id!r}]", kind=Access)


def _instance_check(kind: type) -> Check:
    return partial(check_instance, kind=kind)


def _check_ttl(value: object, field: str) -> None:
    check_positive(value, field)
    if isinstance(value, int) and value > MAX_TTL_MS:
        raise Invalid(field, f"is {value}", f"use at most {MAX_TTL_MS}, which is a century")


_PARAMETER_CHECKS: dict[str, Check] = {
    "scope": _instance_check(Scope),
    "id": ids.check,
    "kind": ids.check,
    "owner": ids.check,
    "namespace": ids.check,
    "link": _instance_check(Link),
    "query": _instance_check(Query),
    "document": _instance_check(Document),
    "requests": partial(_check_list, check=_instance_check(WriteRequest)),
    "ids": partial(_check_list, check=ids.check),
    "entries": _check_list,
    "by": partial(_check_optional, check=ids.check),
    "reason": partial(_check_optional, check=check_str),
    "relation": partial(_check_optional, check=check_str),
    "as_of": partial(_check_optional, check=clock.check),
    "used_since": partial(_check_optional, check=clock.check),
    "access": _check_access,
    "after": check_count,
    "limit": check_positive,
    "ttl_ms": _check_ttl,
}
_ARGUMENT_CHECKS: dict[str, tuple[str, Check]] = {
    **{name: (name, check) for name, check in _PARAMETER_CHECKS.items()},
    "write_request": ("request", _instance_check(WriteRequest)),
    "recall_request": ("request", _instance_check(RecallRequest)),
    "optional_id": ("id", partial(_check_optional, check=ids.check)),
    "after_id": ("after", partial(_check_optional, check=ids.check)),
    "imported_entries": ("entries", partial(_check_list, check=_instance_check(Entry))),
    "imported_links": ("links", partial(_check_list, check=_instance_check(Link))),
}


def check_arguments(**arguments: object) -> None:
    """Check the arguments of a store operation before it changes anything.

    Keywords are those of the operations, or a name of `_ARGUMENT_CHECKS` where operations differ in what
    they accept under one name.

    Raises:
        Invalid: An argument has the wrong type or value; the message names the parameter.
    """
    for name, value in arguments.items():
        field, check = _ARGUMENT_CHECKS[name]
        check(value, field)


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


MISSING_PREMISE_REASON = "left behind where what rests on it comes from"


def missing_premises(entries: Sequence[Entry]) -> dict[str, Entry]:
    """Return the premises of stale entries that are not imported with them, each with a dependent.

    Unless they are stored here they count as erased, so that moving an entry does not make it current
    again.
    """
    imported = {entry.id for entry in entries}
    stale = [entry for entry in entries if entry.stale]
    # What something rests on that counts did not stand in its way.
    live = {ref for entry in entries if not entry.stale for ref in truth.premises(entry)}
    known = imported | live
    missing = {ref: dependent for dependent in stale for ref in truth.premises(dependent) if ref not in known}
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
    return semantics.replace_unchecked(entry, rev=max(1, entry.rev), stale=False)


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
    """Return True if an entry is stored unchanged."""
    return semantics.replace_unchecked(existing, stale=False) == entry
