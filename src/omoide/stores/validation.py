"""Validation of arguments and of imported entries.

Both stores have the same operations, whose arguments have the same names everywhere. A class decorator checks
them by name before the operation begins, so that bad input is refused alike and changes nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from typing import Any, TypeVar

from omoide import clock, ids
from omoide.core.entry import Entry, RecallRequest, Scope, WriteRequest, check_positive
from omoide.core.frozen import check_str
from omoide.core.value import check_count, check_instance
from omoide.errors import IdTaken, Invalid, WrongType
from omoide.stores import semantics, truth
from omoide.stores.config import StoreSettings
from omoide.stores.records import Access, Document, Link, Query

# arguments: Is what a store is given what the operation takes?


MAX_TTL_MS = 100 * 366 * 86_400_000
"""For which something can be claimed, at most."""

S = TypeVar("S", bound=type)
Check = Callable[[Any, str], Any]


def validate_arguments(cls: S) -> S:
    """Decorator: the arguments of a store's operations are checked by their names."""
    for name, method in vars(cls).copy().items():
        if not name.startswith("_") and inspect.isfunction(method):
            checks = _parameter_checks(name, method)
            if checks:
                setattr(cls, name, _with_validation(method, checks))
    return cls


def _parameter_checks(method: str, function: Callable[..., Any]) -> list[tuple[str, Check | None]]:
    """The parameters after self, each with its check."""
    names = [*inspect.signature(function).parameters][1:]
    found = [(name, _METHOD_CHECKS.get((method, name)) or _PARAMETER_CHECKS.get(name)) for name in names]
    return found if any(check for _, check in found) else []


def _with_validation(
    function: Callable[..., Any], checks: list[tuple[str, Check | None]]
) -> Callable[..., Any]:
    by_name = {name: check for name, check in checks if check is not None}

    @wraps(function)
    def operation(self: Any, *args: Any, **kwargs: Any) -> Any:
        for value, (name, check) in zip(args, checks, strict=False):
            if check is not None:
                check(value, name)
        for name, value in kwargs.items():
            check = by_name.get(name)
            if check is not None:
                check(value, name)
        return function(self, *args, **kwargs)

    return operation


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
_METHOD_CHECKS: dict[tuple[str, str], Check] = {
    ("import_entries", "entries"): partial(_check_list, check=_instance_check(Entry)),
    ("import_entries", "links"): partial(_check_list, check=_instance_check(Link)),
    ("write", "request"): _instance_check(WriteRequest),
    ("write_with_vector", "request"): _instance_check(WriteRequest),
    ("recall", "request"): _instance_check(RecallRequest),
    ("erase", "id"): partial(_check_optional, check=ids.check),
    ("documents", "after"): partial(_check_optional, check=ids.check),
}


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
