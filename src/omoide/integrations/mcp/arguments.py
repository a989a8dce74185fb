"""What did a model mean that did not quite keep to a schema?

Models write numbers as text, names in another case, and lists with commas. What can only mean one thing is
taken so; what is beyond a limit is brought to it, and what is not known is left out, with a notice.

"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from omoide.tools.context import ALL_TYPES, CONFIDENCE_LEVELS

ALIASES: Mapping[str, tuple[str, ...]] = {
    "content": ("text", "memory", "statement", "note", "message", "value"),
    "query": ("text", "question", "q", "search", "content"),
    "memory_id": ("id", "entry_id", "memory"),
    "type": ("kind", "memory_type", "category"),
    "limit": ("max_results", "top_k", "k", "n", "max", "count"),
    "min_confidence": ("confidence", "minimum_confidence", "threshold"),
    "replacement_id": ("replacement", "replaced_by", "superseded_by"),
    "source_id": ("source", "from"),
    "target_id": ("target", "to"),
    "relation": ("relationship", "predicate", "type"),
    "rationale": ("reason", "why"),
    "reason": ("rationale", "why"),
    "tags": ("tag", "labels"),
    "action": ("capability", "skill", "task"),
}
"""What a parameter is also called."""

SCOPE_PARAMETERS = (
    "namespace",
    "agent",
    "agent_id",
    "project",
    "project_id",
    "session",
    "session_id",
    "scope",
)
"""What a model may name, and never decides."""

_ANY_WORDS = ("", "any", "every", "everything", "*")
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_CAMEL_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SEPARATORS = re.compile(r"[\s\-.]+")
_NUMBER = re.compile(r"[+-]?\d{1,15}(?:\.\d{0,30})?|[+-]?\.\d{1,30}")
_MAX_JSON_LENGTH = 20_000  # characters of a text that is looked into for JSON
_MAX_PRINTABLE = 10**300
_MAX_LISTED_NAMES = 5
_MAX_NAME_LENGTH = 40


def coerce(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The parameters that were meant, and what the model should know about how they were taken."""
    known: Mapping[str, Any] = schema["properties"]
    named, strange = _match_names(known, arguments)
    required, notices = schema.get("required", ()), _unknown_notices(strange)
    meant: dict[str, Any] = {}
    for name, value in named.items():
        if value is None and name not in required:
            continue  # as good as not given
        taken = _coerce_value(value, known[name])
        brought = _clamp(taken, known[name])
        if brought != taken:
            notices.append(f"{name} {_number_text(taken)} was taken as {brought}.")
        meant[name] = brought
    return meant, notices


def to_snake_case(name: str) -> str:
    """A name the way ours are written: `Root Cause`, `root-cause` and `RootCause` are `root_cause`."""
    return _SEPARATORS.sub("_", _CAMEL_BOUNDARY.sub("_", name.strip())).lower()


def _match_names(known: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What was given, by our names, and the names that mean nothing here."""
    found = {name: value for name, value in arguments.items() if name in known}
    strange: list[str] = []
    for name, value in arguments.items():
        if name in known:
            continue
        called = to_snake_case(name[:_MAX_NAME_LENGTH])
        ours = called if called in known else _alias(called, known, found)
        if ours is None or ours in found:
            strange.append(name)
        else:
            found[ours] = value
    return found, strange


def _alias(name: str, known: Mapping[str, Any], found: Mapping[str, Any]) -> str | None:
    return next((ours for ours in known if ours not in found and name in ALIASES.get(ours, ())), None)


def _unknown_notices(names: list[str]) -> list[str]:
    if not names:
        return []
    told = ", ".join(repr(name[:_MAX_NAME_LENGTH]) for name in names[:_MAX_LISTED_NAMES])
    more = f" and {len(names) - _MAX_LISTED_NAMES} more" if len(names) > _MAX_LISTED_NAMES else ""
    notices = [f"Not known here, and ignored: {told}{more}."]
    if any(to_snake_case(name[:_MAX_NAME_LENGTH]) in SCOPE_PARAMETERS for name in names):
        notices.append("Whose memory this is was fixed when the server was started.")
    return notices


def _coerce_value(value: Any, schema: Mapping[str, Any]) -> Any:
    if "anyOf" in schema:  # a confidence: a number or a level
        return _confidence(value)
    if "enum" in schema:
        return _enum_value(value, schema["enum"])
    take: Callable[[Any], Any] | None = _COERCIONS.get(schema.get("type", ""))
    return value if take is None else take(value)


def _confidence(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    said = value.strip().lower()
    if said in CONFIDENCE_LEVELS:
        return said
    number = said.removesuffix("%").rstrip()
    if not _NUMBER.fullmatch(number):
        return value
    return float(number) / 100 if said.endswith("%") else float(number)


def _enum_value(value: Any, choices: list[Any]) -> Any:
    if not isinstance(value, str) or value in choices:
        return value
    called = to_snake_case(value[:_MAX_NAME_LENGTH].rpartition(":")[2])  # jido:Fact is a fact
    if called in _ANY_WORDS and ALL_TYPES in choices:
        return ALL_TYPES
    return next((one for one in (called, called.removesuffix("s")) if one in choices), value)


def _integer(value: Any) -> Any:
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _text_list(value: Any) -> Any:
    if isinstance(value, str):
        inner = _decode_json(value) if value.lstrip().startswith("[") else None
        value = inner if isinstance(inner, list) else [part.strip() for part in re.split(r"[,;\n]", value)]
    if not isinstance(value, list):
        return value
    return [_text(one) for one in value if one not in ("", None)]


def _text(value: Any) -> Any:
    return _number_text(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _number_text(number: float) -> str:
    """A number as text; Python refuses to write very long ones."""
    return f"{number}" if abs(number) < _MAX_PRINTABLE else "(very large)"


def _boolean(value: Any) -> Any:
    return _BOOLEANS.get(value.strip().lower(), value) if isinstance(value, str) else value


def _object(value: Any) -> Any:
    inner = _decode_json(value) if isinstance(value, str) else None
    return inner if isinstance(inner, dict) else value


def _decode_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text) if len(text) <= _MAX_JSON_LENGTH else None
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None


_COERCIONS: Mapping[str, Callable[[Any], Any]] = {
    "integer": _integer,
    "array": _text_list,
    "object": _object,
    "boolean": _boolean,
    "string": _text,
}


def _clamp(value: Any, schema: Mapping[str, Any]) -> Any:
    """A number, brought between the limits of its parameter."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    limits = {"minimum": 0.0, "maximum": 1.0} if "anyOf" in schema else schema
    least, most = limits.get("minimum"), limits.get("maximum")
    if least is not None and value < least:
        return least
    return most if most is not None and value > most else value
