"""Is what a store is given what the operation takes?

Both stores have the same operations, whose arguments have the same names everywhere. A class decorator checks
them by name before the operation begins, so that bad input is refused alike and changes nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from typing import Any, TypeVar

from omoide import clock, ids
from omoide.core.entry import Entry
from omoide.core.recalling import RecallRequest, check_positive
from omoide.core.scope import Scope
from omoide.core.texts import check_str
from omoide.core.value import check_count, check_instance
from omoide.core.writing import WriteRequest
from omoide.errors import Invalid, WrongType
from omoide.stores.records import Access, Document, Link, Query

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
