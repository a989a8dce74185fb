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
from omoide.core.entry import Entry, Scope
from omoide.core.frozen import check_str
from omoide.core.requests import RecallRequest, WriteRequest, check_positive
from omoide.core.value import check_count, check_instance
from omoide.errors import IdTaken, Invalid, WrongType
from omoide.stores import semantics, truth
from omoide.stores.config import Settings
from omoide.stores.records import Access, Document, Link, Query

# arguments: Is what a store is given what the operation takes?


LONGEST_MS = 100 * 366 * 86_400_000
"""For which something can be claimed, at most."""

S = TypeVar("S", bound=type)
Check = Callable[[Any, str], Any]


def checked(cls: S) -> S:
    """Decorator: the arguments of a store's operations are checked by their names."""
    for name, method in vars(cls).copy().items():
        if not name.startswith("_") and inspect.isfunction(method):
            checks = _checks(name, method)
            if checks:
                setattr(cls, name, _checking(method, checks))
    return cls


def _checks(method: str, function: Callable[..., Any]) -> list[tuple[str, Check | None]]:
    """The parameters after self, each with its check."""
    names = [*inspect.signature(function).parameters][1:]
    found = [(name, _SPECIAL.get((method, name)) or _BY_NAME.get(name)) for name in names]
    return found if any(check for _, check in found) else []


def _checking(function: Callable[..., Any], checks: list[tuple[str, Check | None]]) -> Callable[..., Any]:
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


def _several(value: object, field: str, *, check: Check | None = None) -> None:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise WrongType(field, "a list", value)
    if check is not None:
        if not isinstance(value, (list, tuple)):
            raise WrongType(field, "a list", value)
        for at, item in enumerate(value):
            check(item, f"{field}[{at}]")


def _or_none(value: object, field: str, *, check: Check) -> None:
    if value is not None:
        check(value, field)


def _figures(value: object, field: str) -> None:
    if not isinstance(value, Mapping):
        raise WrongType(field, "a mapping from ids to Access", value)
    for id, access in value.items():
        ids.check(id, field)
        check_instance(access, f"{field}[{id!r}]", kind=Access)


def _a(kind: type) -> Check:
    return partial(check_instance, kind=kind)


def _time_to_live(value: object, field: str) -> None:
    check_positive(value, field)
    if isinstance(value, int) and value > LONGEST_MS:
        raise Invalid(field, f"is {value}", f"use at most {LONGEST_MS}, which is a century")


_BY_NAME: dict[str, Check] = {
    "scope": _a(Scope),
    "id": ids.check,
    "kind": ids.check,
    "owner": ids.check,
    "namespace": ids.check,
    "link": _a(Link),
    "query": _a(Query),
    "document": _a(Document),
    "requests": partial(_several, check=_a(WriteRequest)),
    "ids": partial(_several, check=ids.check),
    "entries": _several,
    "by": partial(_or_none, check=ids.check),
    "reason": partial(_or_none, check=check_str),
    "relation": partial(_or_none, check=check_str),
    "as_of": partial(_or_none, check=clock.check),
    "used_since": partial(_or_none, check=clock.check),
    "access": _figures,
    "after": check_count,
    "limit": check_positive,
    "ttl_ms": _time_to_live,
}
_SPECIAL: dict[tuple[str, str], Check] = {
    ("take", "entries"): partial(_several, check=_a(Entry)),
    ("take", "links"): partial(_several, check=_a(Link)),
    ("write", "request"): _a(WriteRequest),
    ("write_with_vector", "request"): _a(WriteRequest),
    ("recall", "request"): _a(RecallRequest),
    ("erase", "id"): partial(_or_none, check=ids.check),
    ("documents", "after"): partial(_or_none, check=ids.check),
}


# taking: May entries of another store be taken over, and which of them are new?


def admitted(
    entries: Sequence[Entry], links: Sequence[Link], access: Mapping[str, Access], settings: Settings
) -> list[Entry]:
    """The entries as they may be kept, if they may; all of one namespace, which is then that of the links."""
    if not entries and (links or access):
        raise Invalid("entries", "is empty", "pass the entries that the links and the figures are about")
    namespaces = sorted({entry.namespace for entry in entries})
    if len(namespaces) > 1:
        raise Invalid("entries", f"lie in {len(namespaces)} namespaces", "take over one namespace at a time")
    return [_taken(settings.admitted(WriteRequest(entry=entry)).entry) for entry in entries]


LEFT_BEHIND = "left behind where what rests on it comes from"


def left_behind(given: Sequence[Entry]) -> dict[str, Entry]:
    """The ids that stale entries rest on and that do not come with them, each with one that does.

    Where they are not here either they count as erased, so that nothing comes back to life by moving.
    """
    there = {entry.id for entry in given}
    stale = [entry for entry in given if entry.stale]
    # What something rests on that counts did not stand in its way.
    fine = {ref for entry in given if not entry.stale for ref in truth.premises(entry)}
    known = there | fine
    found = {ref: one for one in stale for ref in truth.premises(one) if ref not in known}
    return {ref: one for ref, one in found.items() if _can_be_an_id(ref)}


def _can_be_an_id(ref: str) -> bool:
    """Whether an entry could be called so: evidence may be anything that somebody wrote down."""
    try:
        ids.check(ref, "ref")
    except Invalid:
        return False
    return True


def _taken(entry: Entry) -> Entry:
    """What is kept of it: a store counts revisions from one, and says itself what is stale."""
    return semantics.changed(entry, rev=max(1, entry.rev), stale=False)


def is_new(given: Entry, kept: Entry | None) -> bool:
    """Whether an entry has to be kept; one that is here and says something else stands in the way."""
    if kept is None:
        return True
    if not is_same(given, kept):
        raise IdTaken(given.id)
    return False


def is_same(given: Entry, kept: Entry) -> bool:
    """Whether an entry is kept as it is."""
    return semantics.changed(kept, stale=False) == given
