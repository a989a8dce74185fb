"""How deeply may data be nested?

Deep data can be made of frozen parts that are shallow themselves. So every map and list knows its depth, and
is refused where it would go too deep: what is kept can always be compared, printed and written.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from functools import cache
from typing import Any, TypeVar, cast, get_args

import msgspec

from omoide.errors import Unsupported

S = TypeVar("S", bound=type)

MAX_DEPTH = 64  # of what is given to be frozen
DEPTH = 2 * MAX_DEPTH  # of what arises by keeping frozen data inside of other data

PLAIN = frozenset({str, int, float, bool, type(None), bytes, datetime})
"""The types that are no containers."""

OWN: dict[type, str] = {}
"""The frozen structs that may stand inside other data, with the names they are written under."""


def own(cls: S) -> S:
    """Decorator: values of this struct may be held in maps and lists, and come back as what they were."""
    OWN[cls] = cls.__name__
    return cls


def depth_of(value: Any) -> int:
    """How many levels of containers frozen data has."""
    kind = type(value)
    if kind in PLAIN:
        return 0
    if kind in OWN:
        holders: tuple[str, ...] = _holders(cast("Any", kind))
        return 1 + max([depth_of(getattr(value, field)) for field in holders], default=0)
    if kind in (frozenset, tuple):
        return 1 + max(map(depth_of, value), default=0)
    try:
        depth: int = value._depth  # maps and lists keep theirs
    except AttributeError:
        depth = value._depth = 1 + max(map(depth_of, value.values()), default=0)
    return depth


@cache
def _holders(kind: Any) -> tuple[str, ...]:
    """The fields of a struct that can hold containers."""
    return tuple(field.name for field in msgspec.structs.fields(kind) if not _is_plain(field.type))


def _is_plain(kind: Any) -> bool:
    inner = [arg for arg in get_args(kind) if isinstance(arg, type)]
    return kind in PLAIN if not inner else all(arg in PLAIN for arg in inner)


def deeper(depth: int, held: Any, path: str) -> int:
    """The depth of a container once it holds something more, if that is not too deep to be written."""
    if type(held) in PLAIN:
        return depth
    depth = max(depth, 1 + depth_of(held))
    # A value of ours has a few levels of its own around the data that it keeps.
    if depth > (DEPTH + 8 if type(held) in OWN else DEPTH):
        raise Unsupported(path, f"would be nested deeper than {DEPTH} levels", "keep less inside of it")
    return depth


def depth_around(items: Iterable[Any]) -> int:
    """The depth of a container of these items."""
    depth = 1
    for item in items:
        if type(item) not in PLAIN:
            depth = deeper(depth, item, "value")
    return depth
