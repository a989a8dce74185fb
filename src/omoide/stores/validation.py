"""Validation of arguments and of imported entries.

Both stores have the same operations, whose arguments have the same names everywhere. A class decorator checks
them by name before the operation begins, so that bad input is refused alike and changes nothing.
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

# arguments: Is what a store is given what the operation takes?


MAX_TTL_MS = 100 * 366 * 86_400_000
"""For which something can be claimed, at most."""


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What can be chosen when a store is opened."""

    durability: str = "crash"
    """`crash`: what was acknowledged survives the death of the process; `power`: also that of the machine."""
    max_content: int = semantics.MAX_CONTENT
    """Bytes that an entry's content may have."""
    session_limit: int | None = None
    """Entries that count which a session may hold; no limit by default."""
    guard: Guard | None = None
    count_tokens: TokenCounter = estimate_tokens
    timeout: float = 60.0
    """Seconds to wait for other processes."""
    read_only: bool = False
    max_pages: int | None = None
    """Pages that a file may have."""

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
        """A reason as it may be kept: the guard sees it as it sees content."""
        if reason is None or not reason.strip() or self.guard is None:
            return reason
        seen = self.guard(Entry(id="reason", agent_id="reason", content=reason, created_at=0))
        return str(check_instance(seen, "what the guard gave back", kind=Entry).content)

    def guard_request(self, request: WriteRequest) -> WriteRequest:
        """A request for what may be kept, if it may."""
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

    Keywords are those of the operations, or a name of `_ARGUMENT_CHECKS` where operations differ in what they
    accept under one name.

    Raises:
        Invalid: An argument has the wrong type or value; the message names the parameter.
    """
    for name, value in arguments.items():
        field, check = _ARGUMENT_CHECKS[name]
        check(value, field)


# taking: May entries of another store be taken over, and which of them are new?


def prepare_import(
    entries: Sequence[Entry], links: Sequence[Link], access: Mapping[str, Access], settings: StoreSettings
) -> list[Entry]:
    """The entries as they may be kept, if they may; all of one namespace, which is then that of the links."""
    if not entries and (links or access):
        raise Invalid("entries", "is empty", "pass the entries that the links and the figures are about")
    namespaces = sorted({entry.namespace for entry in entries})
    if len(namespaces) > 1:
        raise Invalid("entries", f"lie in {len(namespaces)} namespaces", "take over one namespace at a time")
    return [_as_imported(settings.guard_request(WriteRequest(entry=entry)).entry) for entry in entries]


MISSING_PREMISE_REASON = "left behind where what rests on it comes from"


def missing_premises(entries: Sequence[Entry]) -> dict[str, Entry]:
    """The ids that stale entries rest on and that do not come with them, each with one that does.

    Where they are not here either they count as erased, so that nothing comes back to life by moving.
    """
    there = {entry.id for entry in entries}
    stale = [entry for entry in entries if entry.stale]
    # What something rests on that counts did not stand in its way.
    fine = {ref for entry in entries if not entry.stale for ref in truth.premises(entry)}
    known = there | fine
    found = {ref: one for one in stale for ref in truth.premises(one) if ref not in known}
    return {ref: one for ref, one in found.items() if _is_valid_id(ref)}


def _is_valid_id(ref: str) -> bool:
    """Whether an entry could be called so: evidence may be anything that somebody wrote down."""
    try:
        ids.check(ref, "ref")
    except Invalid:
        return False
    return True


def _as_imported(entry: Entry) -> Entry:
    """What is kept of it: a store counts revisions from one, and says itself what is stale."""
    return semantics.replace_unchecked(entry, rev=max(1, entry.rev), stale=False)


def is_new(entry: Entry, existing: Entry | None) -> bool:
    """Whether an entry has to be kept; one that is here and says something else stands in the way."""
    if existing is None:
        return True
    if not is_same(entry, existing):
        raise IdTaken(entry.id)
    return False


def is_same(entry: Entry, existing: Entry) -> bool:
    """Whether an entry is kept as it is."""
    return semantics.replace_unchecked(existing, stale=False) == entry
