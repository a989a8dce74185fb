"""Correct the arguments that a model sends to a tool.

Models write numbers as text, names in another case, and lists with commas. A value with only one possible
meaning is converted, a number beyond a limit is clamped, and an argument that would name another scope is
dropped; the last two with a notice for the model. Any other unknown argument is refused, and whatever is left
is validated by the tool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

import msgspec

from omoide.core.entry import TYPE_WORDS
from omoide.errors import Invalid
from omoide.tools.context import ALL_TYPES, CONFIDENCE_LEVELS

ALIASES: Mapping[str, tuple[str, ...]] = {
    "content": ("text", "memory", "statement", "note", "message", "value"),
    "query": ("text", "question", "q", "search", "content"),
    "memory_id": ("id", "entry_id", "memory"),
    "type": ("kind", "memory_type", "category"),
    "limit": ("max_results", "top_k", "k", "n", "max", "count"),
    "min_confidence": ("confidence", "minimum_confidence", "threshold"),
    "min_relevance": ("relevance", "minimum_relevance"),
    "replacement_id": ("replacement", "replaced_by", "superseded_by"),
    "source_id": ("source", "from"),
    "target_id": ("target", "to"),
    "relation": ("relationship", "predicate", "type"),
    "rationale": ("reason", "why"),
    "reason": ("rationale", "why"),
    "tags": ("tag", "labels"),
    "action": ("capability", "skill", "task"),
}
"""Other names that models use for a parameter."""

SCOPE_PARAMETERS = (
    "namespace",
    "user",
    "user_id",
    "agent",
    "agent_id",
    "project",
    "project_id",
    "session",
    "session_id",
    "scope",
)
"""Arguments that a model may send, and that are fixed by the server."""

_ANY_WORDS = ("", "any", "every", "everything", "*")
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_CAMEL_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SEPARATORS = re.compile(r"[\s\-.]+")
_NUMBER = re.compile(r"[+-]?\d{1,15}(?:\.\d{0,30})?|[+-]?\.\d{1,30}")
_MAX_JSON_LENGTH = 20_000  # longer text is never parsed as JSON
_MAX_PRINTABLE = 10**300
_MAX_NAME_LENGTH = 40


def coerce(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the corrected arguments, and notices about what was changed.

    Args:
        schema: JSON Schema of the tool's parameters.
        arguments: what the model sent.

    Raises:
        Invalid: An argument is unknown, as a misspelt one is.
    """
    properties: Mapping[str, Any] = schema["properties"]
    values, ignored = _match_names(properties, arguments)
    required, notices = schema.get("required", ()), _scope_notices(ignored)
    corrected: dict[str, Any] = {}
    for name, value in values.items():
        if value is None and name not in required:
            continue  # models send null for arguments they leave out
        converted = _coerce_value(value, properties[name])
        clamped = _clamp(converted, properties[name])
        if clamped != converted:
            notices.append(f"{name} {_number_text(converted)} was taken as {clamped}.")
        corrected[name] = clamped
    return corrected, notices


def to_snake_case(name: str) -> str:
    """Return a name in snake case: `Root Cause`, `root-cause` and `RootCause` become `root_cause`."""
    return _SEPARATORS.sub("_", _CAMEL_BOUNDARY.sub("_", name.strip())).lower()


def _match_names(
    properties: Mapping[str, Any], arguments: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments by parameter name, and the names of those that would select a scope."""
    values = {name: value for name, value in arguments.items() if name in properties}
    ignored: list[str] = []
    for name, value in arguments.items():
        if name in properties:
            continue
        snake = to_snake_case(name[:_MAX_NAME_LENGTH])
        parameter = snake if snake in properties else _alias(snake, properties, values)
        if parameter is not None and parameter not in values:
            values[parameter] = value
        elif snake in SCOPE_PARAMETERS:
            ignored.append(snake)
        else:
            raise _unknown_argument(name, snake, [name for name in properties if name not in values])
    return values, ignored


def _unknown_argument(name: str, snake: str, free: list[str]) -> Invalid:
    """Return the error for an unknown argument.

    Args:
        name: name that the model sent.
        snake: the same in snake case.
        free: parameters that have no value yet.
    """
    near = get_close_matches(snake, free, 1)
    remedy = f"did you mean {near[0]!r}?" if near else f"use {', '.join(free) or 'no other'}, or leave it out"
    return Invalid(repr(name[:_MAX_NAME_LENGTH]), "is an unknown argument", remedy)


def _alias(name: str, properties: Mapping[str, Any], values: Mapping[str, Any]) -> str | None:
    free = (parameter for parameter in properties if parameter not in values)
    return next((parameter for parameter in free if name in ALIASES.get(parameter, ())), None)


def _scope_notices(names: list[str]) -> list[str]:
    if not names:
        return []
    listed = ", ".join(map(repr, names))
    return [f"Ignored: {listed}. Whose memory this is was fixed when the server was started."]


def _coerce_value(value: Any, schema: Mapping[str, Any]) -> Any:
    if "anyOf" in schema:  # a confidence or relevance: a number, perhaps as text, or a level
        return _confidence(value)
    if "enum" in schema:
        return _enum_value(value, schema["enum"])
    convert: Callable[[Any], Any] | None = _COERCIONS.get(schema.get("type", ""))
    return value if convert is None else convert(value)


def _confidence(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    text = value.strip().lower()
    if text in CONFIDENCE_LEVELS:
        return text
    number = text.removesuffix("%").rstrip()
    if not _NUMBER.fullmatch(number):
        return value
    return float(number) / 100 if text.endswith("%") else float(number)


def _enum_value(value: Any, choices: list[Any]) -> Any:
    if not isinstance(value, str) or value in choices:
        return value
    # A model may use the ontology's name, such as jido:Fact.
    name = to_snake_case(value[:_MAX_NAME_LENGTH].rpartition(":")[2])
    if name in _ANY_WORDS and ALL_TYPES in choices:
        return ALL_TYPES
    candidates = (TYPE_WORDS.get(word, word) for word in (name, name.removesuffix("s")))
    return next((candidate for candidate in candidates if candidate in choices), value)


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
    return [_text(item) for item in value if item not in ("", None)]


def _text(value: Any) -> Any:
    return _number_text(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


def _number_text(number: float) -> str:
    """Return a number as text; Python refuses to format very long ones."""
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
    """Return a number clamped to the limits of its schema, and anything else unchanged."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    limits = {"minimum": 0.0, "maximum": 1.0} if "anyOf" in schema else schema
    minimum, maximum = limits.get("minimum"), limits.get("maximum")
    if minimum is not None and value < minimum:
        return minimum
    return maximum if maximum is not None and value > maximum else value
