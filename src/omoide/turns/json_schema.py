"""Check data against JSON Schemas.

An agent's state and its structured output are checked against a class. A spec that was read from data has
only the JSON Schema, and the data is checked against that, by the package `jsonschema_rs`. A schema may come
from anyone: references lead nowhere else, and the work of a check is bounded before it begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from importlib import import_module
from typing import Any
from urllib.parse import unquote
from uuid import UUID

import msgspec

from omoide.core.frozen import freeze_map
from omoide.core.schema import Schema
from omoide.errors import InvalidDefinition, MissingExtra

MAX_PARTS = 10_000
"""Maximum number of the schemas in a schema."""
MAX_STEPS = 2_000_000
"""Steps that checking data may take; most of them take less than a microsecond."""
MAX_PATTERN_LENGTH = 10_000
"""Maximum length of a text that is compared with a pattern."""
MAX_LOOKAROUND_LENGTH = 1_000
"""The same for a pattern with look-around or references to its groups, whose work may be quadratic."""

_SAME_VALUE = ("allOf", "anyOf", "oneOf", "not", "dependentSchemas", "dependencies", "if")
"""Keywords whose schemas apply to the value itself; of `then` and `else` only one does."""
_ANY_MEMBER = ("additionalProperties", "unevaluatedProperties", "patternProperties", "propertyNames")
_ITEMS = ("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains")
_BY_NAME = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"}
)
_PARTS = (*_SAME_VALUE, "then", "else", *_ANY_MEMBER, *_ITEMS, "properties", "$defs", "definitions")
_OPEN = frozenset({"allOf", "anyOf", "oneOf", "if", "patternProperties"})
"""Keywords of an object that may describe more members than its properties."""
_DYNAMIC = ("$dynamicRef", "$recursiveRef")
_FORMATS: dict[str, Any] = {
    "date-time": datetime,
    "date": date,
    "time": time,
    "duration": timedelta,
    "uuid": UUID,
    "decimal": Decimal,
    "base64": bytes,
}
"""Formats that are read as the fields of a class are."""
_LOOKAROUND = re.compile(r"\(\?<?[=!]|\\[1-9]|\\k")
_PATTERN_STEPS = 50
_CHARACTERS_PER_STEP = 50
_MAX_PATTERN_BYTES = 128 * 1024
_MAX_BACKTRACKS = 10_000
_MAX_EXPLAINED_STEPS = 100_000  # each may take ten microseconds then


class SchemaDocument(Schema):
    """The schema of a mapping, as a JSON Schema."""

    def __init__(self, schema: Mapping[str, Any], owner: str) -> None:
        self.owner = owner
        self._plain: dict[str, Any] = freeze_map(schema, owner).to_python()
        prepared = _Preparation(self._plain, owner)
        self._work = prepared.work()
        self._validator = _compile(prepared.root, owner)
        self._properties: dict[str, Any] = prepared.own_part.get("properties", {})
        self.fields = {name: name for name in self._properties}
        closed = self.fields and prepared.own_part.get("additionalProperties", False) is False
        self.is_open = not closed or not _OPEN.isdisjoint(prepared.own_part)
        self._check_defaults()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SchemaDocument) and other._plain == self._plain

    def __hash__(self) -> int:
        return hash(tuple(self.fields))

    def defaults(self) -> dict[str, Any]:
        """Return the default values of the properties, made anew."""
        return {
            name: deepcopy(part["default"])
            for name, part in self._properties.items()
            if isinstance(part, dict) and "default" in part
        }

    def json_schema(self) -> dict[str, Any]:
        """Return the schema as JSON Schema."""
        return deepcopy(self._plain)

    def _convert(self, plain: dict[str, Any], strict: bool = False) -> Any:
        value = msgspec.to_builtins(
            plain, str_keys=True
        )  # a state may hold what JSON writes as text, such as a datetime
        steps = self._work.steps(value)
        if steps > MAX_STEPS:
            raise ValueError("is too large, or nested too deep, for the choices of its schema")
        if not self._validator.is_valid(value):
            if steps < _MAX_EXPLAINED_STEPS:
                self._validator.validate(value)
            raise ValueError("does not fit the JSON Schema")
        return plain

    def _parse_error(self, error: Exception) -> tuple[str, str, str]:
        field, problem = _describe(error)
        return field or "value", problem, "correct it, or see json_schema()"

    def _check_defaults(self) -> None:
        """Raise unless each default fits its property; what else the schema asks for does not matter."""
        defaults = self.defaults()
        if defaults and self._work.steps(defaults) < _MAX_EXPLAINED_STEPS:
            for error in self._validator.iter_errors(defaults):
                if error.instance_path:
                    path = f"{self.owner}.properties.{error.instance_path[0]}.default"
                    raise InvalidDefinition(path, f"does not fit ({_describe(error)[1]})", "correct it")


class _Preparation:
    """A schema made ready for the validator: checked, with bounds, and with choices that a tag decides."""

    def __init__(self, plain: dict[str, Any], owner: str) -> None:
        self._plain, self._owner = plain, owner
        self._parts = 0
        self.root: dict[str, Any] = self._prepare(plain, owner)
        self.own_part = self._follow(self.root, owner)
        types = self.own_part.get("type", ["object"])
        described = not {"type", "properties", *_OPEN}.isdisjoint(self.own_part)
        if not described or not isinstance(types, (str, list)) or "object" not in types:
            problem = f"has the type {self.own_part.get('type')!r}"
            raise InvalidDefinition(owner, problem, "describe an object")

    def work(self) -> _Work:
        """Return what bounds the work of a check."""
        return _Work(self.root, self._owner)

    def _follow(self, part: Any, path: str) -> dict[str, Any]:
        """Return the schema that a part refers to, or itself."""
        for _ in range(MAX_PARTS):
            if not isinstance(part, dict):
                return {}
            if "$ref" not in part:
                return part
            part = _target(self._plain, part["$ref"], path)
        raise InvalidDefinition(f"{path}.$ref", "refers back to itself", "describe a type there")

    def _prepare(self, part: Any, path: str) -> Any:
        if isinstance(part, bool):
            return part
        if not isinstance(part, dict):
            raise InvalidDefinition(path, f"is {part!r}", "describe a type with an object")
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise InvalidDefinition(self._owner, f"has more than {MAX_PARTS} parts", "simplify it")
        for word in _DYNAMIC if part is self._plain else (*_DYNAMIC, "$id", "id"):
            if isinstance(part.get(word), str):
                raise InvalidDefinition(path, f"has {word!r}, which is not supported there", "leave it out")
        if "$ref" in part:
            _target(self._plain, part["$ref"], path)
        made = {word: self._prepare_word(word, value, path) for word, value in part.items()}
        _bound_patterns(made, path)
        _read_as_classes_do(made)
        return self._choose_by_tag(made, path)

    def _prepare_word(self, word: str, value: Any, path: str) -> Any:
        path = f"{path}.{word}"
        if word not in _PARTS:
            return value
        if word in _BY_NAME and isinstance(value, dict):
            return {
                name: part if isinstance(part, list) else self._prepare(part, f"{path}.{name}")
                for name, part in value.items()
            }
        if isinstance(value, list) and word not in ("not", "if", "then", "else"):
            return [self._prepare(part, f"{path}[{at}]") for at, part in enumerate(value)]
        if word in _BY_NAME or word in ("allOf", "anyOf", "oneOf", "prefixItems"):
            expected = "an object" if word in _BY_NAME else "an array"
            raise InvalidDefinition(path, f"is {value!r}", f"write {expected}")
        return self._prepare(value, path)

    def _choose_by_tag(self, part: dict[str, Any], path: str) -> dict[str, Any]:
        """Have the field of a discriminator decide which of the variants is checked, and be required."""
        word = "oneOf" if "oneOf" in part else "anyOf"
        discriminator = part.get("discriminator")
        tag = discriminator.get("propertyName") if isinstance(discriminator, dict) else None
        if not isinstance(tag, str) or word not in part:
            return part
        variants: list[tuple[list[Any], Any]] = []
        others = []
        for choice in part[word]:
            properties = self._follow(choice, path).get("properties", {})
            named = properties.get(tag) if isinstance(properties, dict) else None
            values = _constants(named)
            if values:
                variants.append((values, choice))
            else:
                others.append(choice)
        if not variants:
            return part
        known = [value for values, _ in variants for value in values]
        chosen: Any = {"type": "object", "required": [tag], "properties": {tag: {"enum": known}}}
        for values, choice in reversed(variants):
            condition = {"required": [tag], "properties": {tag: {"enum": values}}}
            chosen = {"if": condition, "then": choice, "else": chosen}
        rest = {name: value for name, value in part.items() if name != word}
        return {**rest, "allOf": [*rest.get("allOf", []), {"anyOf": [chosen, *others]} if others else chosen]}


def _constants(part: Any) -> list[Any]:
    """Return the values that a schema names."""
    if not isinstance(part, dict):
        return []
    values = part.get("enum", [part["const"]] if "const" in part else [])
    return values if isinstance(values, list) else []


class _Work:
    """An upper bound of the steps that a check takes.

    A value may be checked once for each way through the schema that leads to it. Their number grows with its
    depth, and to the power of it where the choices of a schema refer to the schema itself.
    """

    def __init__(self, root: dict[str, Any], owner: str) -> None:
        self._root, self._owner = root, owner
        self._levels: list[dict[int, int]] = []
        self._targets: dict[int, Any] = {}
        self._nodes: list[dict[str, Any]] = []
        self._collect(root)
        known = {*map(id, self._nodes)}
        for target in self._targets.values():
            if not isinstance(target, bool) and id(target) not in known:
                raise InvalidDefinition(f"{owner}.$ref", "refers to what is no schema", "use #/$defs/…")
        self._add_level()

    def steps(self, value: Any) -> int:
        """Return an upper bound of the steps for a value."""
        size, depth = _measure(value)
        while len(self._levels) <= depth and self._is_growing():
            self._add_level()
        return size * self._levels[min(depth, len(self._levels) - 1)][id(self._root)]

    def _is_growing(self) -> bool:
        settled = len(self._levels) > 1 and self._levels[-1] == self._levels[-2]
        return not settled and self._levels[-1][id(self._root)] <= MAX_STEPS

    def _collect(self, part: Any) -> None:
        if not isinstance(part, dict):
            return
        self._nodes.append(part)
        if "$ref" in part:
            self._targets[id(part)] = _target(self._root, part["$ref"], self._owner)
        for word in _PARTS:
            for inner in _inner(part, word):
                self._collect(inner)

    def _add_level(self) -> None:
        """Count the steps for values that are one level deeper."""
        below = self._levels[-1] if self._levels else {}
        level: dict[int, int] = {}
        pending: set[int] = set()
        try:
            for node in self._nodes:
                self._count(node, level, below, pending)
        except RecursionError as error:
            raise InvalidDefinition(self._owner, "is nested too deep", "simplify it") from error
        self._levels.append(level)

    def _count(self, part: Any, level: dict[int, int], below: dict[int, int], pending: set[int]) -> int:
        if not isinstance(part, dict):
            return 1
        if (known := level.get(id(part))) is not None:
            return known
        if id(part) in pending:
            raise InvalidDefinition(f"{self._owner}.$ref", "refers back to itself", "describe a type there")
        pending.add(id(part))
        count = partial(self._count, level=level, below=below, pending=pending)
        same = [self._targets[id(part)]] if id(part) in self._targets else []
        same += [inner for word in _SAME_VALUE for inner in _inner(part, word)]
        steps = _own_steps(part) + sum(map(count, same))
        steps += max((count(part[word]) for word in ("then", "else") if word in part), default=0)
        if below:
            steps += _steps_below(part, below)
        pending.discard(id(part))
        # Marks of what was evaluated take another pass over all that applies to the value.
        steps *= 2 if "unevaluatedProperties" in part or "unevaluatedItems" in part else 1
        level[id(part)] = min(steps, MAX_STEPS + 1)
        return level[id(part)]


def _steps_below(part: dict[str, Any], below: dict[int, int]) -> int:
    """Return the steps for one member or one item: that with the most of them."""

    def total(words: Iterable[str]) -> int:
        return sum(below.get(id(inner), 1) for word in words for inner in _inner(part, word))

    named = max((below.get(id(inner), 1) for inner in _inner(part, "properties")), default=0)
    return max(named + total(_ANY_MEMBER), total(_ITEMS))


def _own_steps(part: dict[str, Any]) -> int:
    patterns = ("pattern" in part) + len(part.get("patternProperties", ()))
    values = part.get("enum", ())
    return 1 + _PATTERN_STEPS * patterns + (len(values) if isinstance(values, list) else 0)


def _inner(part: dict[str, Any], word: str) -> Iterator[Any]:
    """Yield the schemas that a keyword of a prepared schema holds."""
    value = part.get(word)
    if isinstance(value, list):
        yield from value
    elif isinstance(value, dict) and word in _BY_NAME:
        yield from value.values()
    elif value is not None:
        yield value


def _measure(value: Any) -> tuple[int, int]:
    """Return the size of a value and its depth."""
    if isinstance(value, str):
        return 1 + len(value) // _CHARACTERS_PER_STEP, 0
    if not isinstance(value, (dict, list)):
        return 1, 0
    parts = [_measure(part) for part in (value.values() if isinstance(value, dict) else value)]
    names = sum(map(len, value)) // _CHARACTERS_PER_STEP if isinstance(value, dict) else 0
    return 1 + names + sum(size for size, _ in parts), 1 + max((depth for _, depth in parts), default=0)


def _target(root: dict[str, Any], ref: object, path: str) -> Any:
    """Return the part of a schema that a reference points to."""
    part: Any = root
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        raise InvalidDefinition(f"{path}.$ref", f"refers to {ref!r}", "use #/$defs/…")
    for key in ref.split("/")[1:]:
        name = unquote(key).replace("~1", "/").replace("~0", "~")
        if isinstance(part, list) and name.isdecimal() and int(name) < len(part):
            part = part[int(name)]
        elif isinstance(part, dict) and name in part:
            part = part[name]
        else:
            raise InvalidDefinition(
                f"{path}.$ref", f"refers to {ref!r}, which does not exist", "use #/$defs/…"
            )
    return part


def _bound_patterns(part: dict[str, Any], path: str) -> None:
    """Limit the length of text that is compared with a pattern."""
    pattern, limit = part.get("pattern"), part.get("maxLength")
    if isinstance(pattern, str):
        most = MAX_LOOKAROUND_LENGTH if _LOOKAROUND.search(pattern) else MAX_PATTERN_LENGTH
        if limit is None or (isinstance(limit, int) and limit > most):
            part["maxLength"] = most
    for pattern in part.get("patternProperties", ()):
        if _LOOKAROUND.search(pattern):
            raise InvalidDefinition(
                f"{path}.patternProperties",
                f"has the pattern {pattern!r}, which looks around or back and may take very long",
                "use a plain pattern",
            )


def _read_as_classes_do(part: dict[str, Any]) -> None:
    """Check text in a form of its own as the field of a class would be checked."""
    if part.get("contentEncoding") == "base64" and "format" not in part:
        part["format"] = "base64"
    if part.get("format") == "decimal" and part.get("type") == "string":
        part["type"] = ["string", "number"]


def _reads_as(kind: Any, text: str) -> bool:
    try:
        msgspec.convert(text, kind)
    except (msgspec.ValidationError, ValueError):
        return False
    return True


def _compile(schema: dict[str, Any], owner: str) -> Any:
    try:
        package = import_module("jsonschema_rs")
    except ImportError as error:
        raise MissingExtra("JSON Schemas of agent specs", "schemas") from error
    try:
        return package.validator_for(
            schema,
            validate_formats=True,
            formats={word: partial(_reads_as, kind) for word, kind in _FORMATS.items()},
            mask="value",
            offline=True,
            pattern_options=package.FancyRegexOptions(
                backtrack_limit=_MAX_BACKTRACKS,
                size_limit=_MAX_PATTERN_BYTES,
                dfa_size_limit=_MAX_PATTERN_BYTES,
            ),
        )
    except package.ValidationError as error:
        field = _path_text([owner, *error.instance_path])
        choices = error.kind.name in ("anyOf", "oneOf")  # their message has no more to say
        problem = "the value is not allowed there" if choices else error.message[:200]
        raise InvalidDefinition(field, f"is no JSON Schema: {problem}", "correct it") from error
    except (package.ReferencingError, ValueError) as error:
        raise InvalidDefinition(owner, f"cannot be used ({error})", "simplify it") from error


def _describe(error: Any) -> tuple[str, str]:
    """Return the field that an error is about, and the problem."""
    if not hasattr(error, "instance_path"):
        return "", str(error)
    field, kind = _path_text(error.instance_path), error.kind
    if kind.name == "required":
        return f"{field}.{kind.property}".removeprefix("."), "is missing"
    # The message is one about "value", and without what the value holds.
    return field, f"is wrong: {error.message}"


def _path_text(path: Iterable[str | int]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")
