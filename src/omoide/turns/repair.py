"""Repair of JSON that a model wrote almost right, by the package `json_repair`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import msgspec

MAX_REPAIRED_LENGTH = 10_000
"""Characters of a text that is repaired; the time for it may grow with their square."""


def repair_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a text was to be, or None; always None without the extra `models`.

    An object that is cut off is none: what is missing is not known. Otherwise something is made of almost
    any text with a brace, so check what comes back against what was asked for.
    """
    start = text.find("{")
    if start < 0 or len(text) - start > MAX_REPAIRED_LENGTH:
        return None
    if text.count("{") > text.count("}") or text.count("[") > text.count("]"):
        return None
    try:
        loads = import_module("json_repair").loads
        # Encoded again, which leaves nothing but JSON: NaN becomes null.
        plain = msgspec.json.decode(msgspec.json.encode(loads(text[start:], skip_json_loads=True)))
    except (ImportError, ValueError, RecursionError, TypeError):
        return None
    return plain if isinstance(plain, dict) else None
