"""Which of some keys and values does a question mean?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omoide.core.frozen import freeze_map
from omoide.core.recalling import check_positive
from omoide.core.texts import check_str, check_text
from omoide.errors import Invalid

MAX_KEY = 4096
"""Bytes that a key may have."""
MAX_RESULTS = 1000
"""How many items one question may be answered with."""

_FIELDS = ("prefix", "where", "top_k")


def check_key(key: object) -> str:
    """A key itself, if it is text that can be kept and is not too long."""
    text = check_text(key, "key")
    size = len(text.encode())
    if size > MAX_KEY:
        raise Invalid("key", f"has {size} bytes", f"use at most {MAX_KEY}")
    return text


def check_top_k(query: Mapping[str, Any], default: int) -> int:
    """How many results a question asks for."""
    top_k = check_positive(query.get("top_k", default), "top_k")
    if top_k > MAX_RESULTS:
        raise Invalid("top_k", f"is {top_k}", f"ask for at most {MAX_RESULTS}")
    return top_k


def check_fields(query: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Raise for a part of a question that would be passed over."""
    for name in query:
        if name not in known:
            raise Invalid(f"query.{name}"[:80], "is not understood here", f"use {', '.join(known)}")


def matching(items: Mapping[str, Any], query: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The items whose key begins with `prefix` and whose value has the fields of `where`, by their keys."""
    check_fields(query, _FIELDS)
    prefix = check_str(query.get("prefix", ""), "prefix")
    where = freeze_map(query.get("where", {}), "where")
    found = sorted(key for key, value in items.items() if key.startswith(prefix) and _has(value, where))
    return [
        {"key": key, "score": 1.0, "value": items[key]} for key in found[: check_top_k(query, MAX_RESULTS)]
    ]


def _has(value: Any, where: Mapping[str, Any]) -> bool:
    if not where:
        return True
    return isinstance(value, Mapping) and all(
        name in value and _same(value[name], wanted) for name, wanted in where.items()
    )


def _same(value: Any, wanted: Any) -> bool:
    """Equality, in which True is no 1."""
    return isinstance(value, bool) == isinstance(wanted, bool) and bool(value == wanted)
