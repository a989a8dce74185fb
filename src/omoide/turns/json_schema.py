"""Make msgspec classes from JSON Schemas.

An agent's state and its structured output are checked against a class. A spec that was read from data has
only the JSON Schema, and the class is made from it. A keyword that no class can check is refused, so that
nothing is silently left out.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial, reduce
from importlib import import_module
from operator import or_
from types import GenericAlias, NoneType
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec

from omoide.core.frozen import EMPTY_MAP, FrozenMap, freeze_map, thaw
from omoide.errors import InvalidDefinition

# The parser of `re`, which is no public module.
_parser: Any = import_module("re._parser")
_codes: Any = import_module("re._constants")

_REF_PREFIX = "#/$defs/"
_ANNOTATIONS = frozenset({"title", "description", "examples", "default", "$schema", "$defs"})
_BOUNDS = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
}
_LENGTHS = {"minLength": "min_length", "maxLength": "max_length", "pattern": "pattern"}
_COUNTS = {"minItems": "min_length", "maxItems": "max_length"}
_SIZES = {"minProperties": "min_length", "maxProperties": "max_length"}
_KEYWORDS: dict[str, frozenset[str]] = {
    "string": frozenset({*_LENGTHS, "format", "contentEncoding"}),
    "integer": frozenset(_BOUNDS),
    "number": frozenset(_BOUNDS),
    "boolean": frozenset(),
    "null": frozenset(),
    "array": frozenset({*_COUNTS, "items", "prefixItems", "uniqueItems"}),
    "object": frozenset({*_SIZES, "properties", "required", "additionalProperties", "propertyNames"}),
}
_SCALARS: dict[str, tuple[type, dict[str, str]]] = {
    "string": (str, _LENGTHS),
    "integer": (int, _BOUNDS),
    "number": (float, _BOUNDS),
    "boolean": (bool, {}),
    "null": (NoneType, {}),
}
_FORMATS: dict[object, Any] = {
    "date-time": Annotated[datetime, msgspec.Meta(tz=True)],
    "date": date,
    "time": Annotated[time, msgspec.Meta(tz=True)],
    "duration": timedelta,
    "uuid": UUID,
    "decimal": Decimal,
}
_PENDING = object()  # marks a reference under way, to find one that refers to itself

SchemaNode = FrozenMap[str, Any]


def type_from_schema(schema: Mapping[str, Any], name: str) -> type:
    """Return a class for an object schema; errors call the schema `name`."""
    root = freeze_map(schema, name)
    if root.get("type") != "object":
        raise _invalid(name, f"has the type {root.get('type')!r}", "describe an object")
    builder = _SchemaBuilder(_get_mapping(root, "$defs", name))
    _check_keywords(root, name, "type", *_KEYWORDS["object"])
    made = builder.struct_type(root, name)
    try:
        # msgspec checks a class when a decoder is built for it; otherwise the first answer would fail.
        msgspec.json.Decoder(made)
    except (TypeError, ValueError) as error:
        raise _invalid(name, f"cannot be made into a class ({error})", "simplify it") from error
    builder.check_defaults()
    return made


class _SchemaBuilder:
    """Builds the classes of one schema."""

    def __init__(self, defs: SchemaNode) -> None:
        self._defs = defs
        self._resolved: dict[
            tuple[str, str | None], Any
        ] = {}  # by reference, and by the field that distinguishes variants
        self._defaults: list[tuple[str, Any, Any]] = []

    def type_of(self, schema: object, path: str) -> Any:
        """Return the type of a part of the schema."""
        if schema is True:
            return Any
        if not isinstance(schema, FrozenMap):
            raise _invalid(path, f"is {schema!r}", "describe a type with an object")
        if "$ref" in schema:
            _check_keywords(schema, path, "$ref")
            return self._resolve_ref(schema["$ref"], path)
        if "anyOf" in schema:
            _check_keywords(schema, path, "anyOf", "discriminator")
            return self._union_type(schema, path)
        types = _type_names(schema, path)
        if "enum" in schema or "const" in schema:
            _check_keywords(schema, path, "type", "enum", "const")
            return _literal_type(schema, types, path)
        _check_keywords(schema, path, "type", *(word for one in types for word in _KEYWORDS[one]))
        return _union(self._named_type(one, schema, path) for one in types) if types else Any

    def check_defaults(self) -> None:
        """Raise unless every default fits its own type."""
        for path, plain, kind in self._defaults:
            try:
                msgspec.convert(plain, kind)
            except (msgspec.ValidationError, ValueError, TypeError) as error:
                raise _invalid(path, f"does not fit ({error})", "correct it") from error

    def _named_type(self, word: str, schema: SchemaNode, path: str) -> Any:
        if word == "array":
            return (
                self._tuple_type(schema, path) if "prefixItems" in schema else self._array_type(schema, path)
            )
        if word == "object":
            return self._object_type(schema, path)
        if word == "string" and ("format" in schema or "contentEncoding" in schema):
            return _format_type(schema, path)
        kind, limits = _SCALARS[word]
        return _constrain(kind, schema, limits, path)

    def _array_type(self, schema: SchemaNode, path: str) -> Any:
        item = self.type_of(schema.get("items", True), f"{path}.items")
        if schema.get("uniqueItems", False) is False:
            return _constrain(GenericAlias(list, item), schema, _COUNTS, path)
        # A set needs items that are hashable.
        if getattr(item, "__origin__", item) not in (str, int, float, Literal):
            raise _invalid(f"{path}.uniqueItems", "is supported for text and numbers only", "leave it out")
        return _constrain(GenericAlias(set, item), schema, _COUNTS, path)

    def _tuple_type(self, schema: SchemaNode, path: str) -> Any:
        """Return the type of an array whose items each have a type of their own."""
        places = _get_list(schema, "prefixItems", path)
        fewest, most = schema.get("minItems", 0), schema.get("maxItems")
        if schema.get("items", False) is not False or most not in (None, len(places)):
            raise _invalid(path, "has another number of items than prefixItems", "describe each item")
        named = {f"at_{at}": place for at, place in enumerate(places)}
        required = [name for at, name in enumerate(named) if type(fewest) is int and at < fewest]
        # An array-like struct and not a tuple, because its last items may be optional.
        closed = most is not None or "items" in schema
        return self._define_struct(
            named, required, f"{path}.prefixItems", forbid_unknown_fields=closed, array_like=True
        )

    def _object_type(self, schema: SchemaNode, path: str) -> Any:
        extra = schema.get("additionalProperties", True)
        if "properties" in schema or "required" in schema or extra is False:
            return self.struct_type(schema, path)
        key = {"type": "string", **_get_mapping(schema, "propertyNames", path)}
        name = self.type_of(freeze_map(key), f"{path}.propertyNames")
        value = self.type_of(extra, f"{path}.additionalProperties")
        return _constrain(GenericAlias(dict, (name, value)), schema, _SIZES, path)

    def struct_type(self, schema: SchemaNode, path: str, ref: str = "", tag_field: str | None = None) -> type:
        """Return a class for an object with named properties."""
        for word in ("propertyNames", *_SIZES):
            if word in schema:
                raise _invalid(path, f"has the keyword {word!r} beside properties", "leave it out")
        extra = schema.get("additionalProperties", True)
        if not isinstance(extra, bool):
            raise _invalid(
                f"{path}.additionalProperties", "is a schema beside properties", "use true or false"
            )
        properties = dict(_get_mapping(schema, "properties", path))
        required = _get_list(schema, "required", path)
        for name in required:
            if name not in properties:
                raise _invalid(f"{path}.required", f"names {name!r}", "name properties only")
        options: dict[str, Any] = {"forbid_unknown_fields": not extra, "kw_only": True}
        if tag_field is not None:
            options |= {"tag_field": tag_field, "tag": _tag(properties.pop(tag_field))}
        return self._define_struct(properties, required, f"{path}.properties", (ref, tag_field), **options)

    def _define_struct(
        self,
        properties: Mapping[str, Any],
        required: Sequence[Any],
        path: str,
        known_as: tuple[str, str | None] = ("", None),
        **options: Any,
    ) -> type:
        attributes = dict(zip(_attribute_names(properties), properties.items(), strict=True))
        fields = [
            (attribute, Any, _field(name, schema, name in required))
            for attribute, (name, schema) in attributes.items()
        ]
        try:
            made = msgspec.defstruct(path.removesuffix(".properties"), fields, frozen=True, **options)
        except (TypeError, ValueError) as error:
            raise _invalid(path, f"cannot be made into a class ({error})", "choose other names") from error
        # Registered before its properties, which may refer to it; msgspec reads annotations later.
        self._resolved[known_as] = made
        for attribute, (name, schema) in attributes.items():
            kind = self.type_of(schema, f"{path}.{name}")
            if isinstance(schema, FrozenMap) and "default" in schema:
                self._defaults.append((f"{path}.{name}.default", thaw(schema["default"]), kind))
            elif name not in required:
                kind = _union([kind, msgspec.UnsetType])
            made.__annotations__[attribute] = kind
        return made

    def _resolve_ref(self, ref: object, path: str, tag_field: str | None = None) -> Any:
        schema = self._ref_target(ref)
        if not isinstance(ref, str) or schema is None:
            raise _invalid(f"{path}.$ref", f"refers to {ref!r}, which does not exist", f"use {_REF_PREFIX}…")
        known_as = (ref, tag_field)
        if known_as not in self._resolved:
            self._resolved[known_as] = _PENDING
            at = f"{path.partition('.')[0]}.$defs.{ref.removeprefix(_REF_PREFIX)}"
            if isinstance(schema, FrozenMap) and schema.get("type") == "object" and "properties" in schema:
                _check_keywords(schema, at, "type", *_KEYWORDS["object"])
                self.struct_type(schema, at, ref, tag_field)
            else:
                self._resolved[known_as] = self.type_of(schema, at)
        if self._resolved[known_as] is _PENDING:
            raise _invalid(f"{path}.$ref", f"refers from {ref!r} back to itself", "describe a type there")
        return self._resolved[known_as]

    def _ref_target(self, ref: object) -> Any:
        local = isinstance(ref, str) and ref.startswith(_REF_PREFIX)
        return self._defs.get(str(ref).removeprefix(_REF_PREFIX)) if local else None

    def _union_type(self, schema: SchemaNode, path: str) -> Any:
        choices = _get_list(schema, "anyOf", path)
        if not choices:
            raise _invalid(f"{path}.anyOf", "is empty", "name at least one type")
        tag_field = _get_mapping(schema, "discriminator", path).get("propertyName")
        kinds = []
        for at, choice in enumerate(choices):
            ref = choice.get("$ref") if isinstance(choice, FrozenMap) else None
            target = self._ref_target(ref)
            variant = isinstance(target, FrozenMap) and tag_field in _get_mapping(target, "properties", path)
            place = f"{path}.anyOf[{at}]"
            kinds.append(self._resolve_ref(ref, place, tag_field) if variant else self.type_of(choice, place))
        return _union(kinds)


def _invalid(path: str, problem: str, remedy: str) -> InvalidDefinition:
    return InvalidDefinition(path, problem, remedy)


def _union(kinds: Iterable[Any]) -> Any:
    return reduce(or_, kinds)


def _check_keywords(schema: SchemaNode, path: str, *allowed: str) -> None:
    for word in sorted(schema):
        if word not in _ANNOTATIONS and word not in allowed:
            raise _invalid(
                path,
                f"has the keyword {word!r}, which is not supported there",
                "leave it out, or pass a class",
            )


def _get_mapping(schema: SchemaNode, word: str, path: str) -> SchemaNode:
    part = schema.get(word, EMPTY_MAP)
    if not isinstance(part, FrozenMap):
        raise _invalid(f"{path}.{word}", f"is {part!r}", "write an object")
    return part


def _get_list(schema: SchemaNode, word: str, path: str) -> list[Any]:
    part = schema.get(word, ())
    if isinstance(part, str) or not isinstance(part, Sequence):
        raise _invalid(f"{path}.{word}", f"is {part!r}", "write an array")
    return list(part)


def _type_names(schema: SchemaNode, path: str) -> list[str]:
    given = schema.get("type", ())
    types = [given] if isinstance(given, str) else _get_list(schema, "type", path)
    for word in types:
        if not isinstance(word, str) or word not in _KEYWORDS:
            raise _invalid(f"{path}.type", f"is {word!r}", f"use {', '.join(_KEYWORDS)}")
    return types


def _literal_type(schema: SchemaNode, types: list[str], path: str) -> Any:
    """Return the type of an enum or a constant, whose values must have one of the named types."""
    word = "enum" if "enum" in schema else "const"
    values = _get_list(schema, word, path) if word == "enum" else [schema[word]]
    words = {str: "string", int: "integer", NoneType: "null"}
    for value in values:
        of = words.get(type(value))
        if of is None or (types and of not in types):
            fitting = ", ".join(types) or "string, integer, null"
            raise _invalid(f"{path}.{word}", f"holds {value!r}", f"use values of type {fitting}")
    if not values:
        raise _invalid(f"{path}.{word}", "is empty", "name at least one value")
    return Literal[tuple(values)]


def _format_type(schema: SchemaNode, path: str) -> Any:
    """Return the type of text with a format."""
    for word in _LENGTHS:
        if word in schema:
            raise _invalid(path, f"has the keyword {word!r} beside a format", "leave one of them out")
    if schema.get("contentEncoding", "base64") != "base64" or (
        "contentEncoding" not in schema and schema["format"] not in _FORMATS
    ):
        unknown = schema.get("contentEncoding", schema.get("format"))
        raise _invalid(path, f"has the format {unknown!r}", f"use base64, {', '.join(map(str, _FORMATS))}")
    return bytes if "contentEncoding" in schema else _FORMATS[schema["format"]]


def _constrain(kind: Any, schema: SchemaNode, words: Mapping[str, str], path: str) -> Any:
    """Return the type with the constraints of the schema."""
    limits = {option: schema[word] for word, option in words.items() if word in schema}
    if not limits:
        return kind
    try:
        if "pattern" in limits:
            limits.setdefault("max_length", MAX_PATTERN_LENGTH)  # msgspec checks it first
            _check_pattern(re.compile(limits["pattern"]), limits["max_length"], path)
        return Annotated[kind, msgspec.Meta(**limits)]
    except (TypeError, ValueError, re.error) as error:
        raise _invalid(path, f"has an invalid constraint ({error})", "correct it") from error


MAX_PATTERN_LENGTH = 1_000
"""Maximum length of a text that has a pattern and no `maxLength`."""
MAX_PATTERN_STEPS = 2_000_000
"""Ways in which a pattern may try to match a text of the maximum length: about a tenth of a second."""


def _check_pattern(pattern: re.Pattern[str], length: int, path: str) -> None:
    """Raise unless a pattern ends soon on every text up to a length; `re` cannot be interrupted."""
    tree = list(_parser.parse(pattern.pattern))
    starts_once = not pattern.flags & re.MULTILINE and tree[:1] == [(_codes.AT, _codes.AT_BEGINNING)]
    if _ways(tree, length) * (1 if starts_once else length + 1) > MAX_PATTERN_STEPS:
        raise _invalid(
            path,
            f"has a pattern that may take very long on {length} characters",
            "set maxLength, begin it with ^, limit its repetitions as in {0,20}, or pass a class",
        )


def _ways(nodes: Iterable[tuple[Any, Any]], length: int) -> int:
    """Return an upper bound of the ways to match a text of some length, or a number beyond the limit."""
    ways = 1
    for code, value in nodes:
        ways = min(ways * _ways_of_node(code, value, length), MAX_PATTERN_STEPS + 1)
    return ways


def _ways_of_node(code: Any, value: Any, length: int) -> int:
    if code is _codes.SUBPATTERN:
        return _ways(value[3], length)
    if code is _codes.ATOMIC_GROUP:
        return _ways(value, length)
    if code in (_codes.ASSERT, _codes.ASSERT_NOT):
        return _ways(value[1], length)
    if code is _codes.BRANCH:
        return sum(_ways(branch, length) for branch in value[1])
    if code is _codes.GROUPREF_EXISTS:
        return sum(_ways(branch or (), length) for branch in value[1:])
    if code in (_codes.MAX_REPEAT, _codes.MIN_REPEAT, _codes.POSSESSIVE_REPEAT):
        least, most, body = value
        width, ways = body.getwidth()[0], _ways(body, length)
        if not width and most > 1:  # what may be empty can be repeated in any number of ways
            return MAX_PATTERN_STEPS + 1
        most = min(most, length // width if width else 1)
        total = 0
        for count in range(least, most + 1):
            total += ways**count
            if total > MAX_PATTERN_STEPS:
                break
        return max(total, 1)
    return 1


def _field(name: str, schema: object, required: bool) -> Any:
    """Return a struct field with the schema's default; without one, an optional field may be absent."""
    if not isinstance(schema, FrozenMap) or "default" not in schema:
        return msgspec.field(name=name) if required else msgspec.field(name=name, default=msgspec.UNSET)
    default = thaw(schema["default"])
    if isinstance(default, (list, dict)):
        return msgspec.field(name=name, default_factory=partial(deepcopy, default))
    return msgspec.field(name=name, default=default)


def _tag(schema: object) -> Any:
    if not isinstance(schema, FrozenMap):
        return None
    values: Sequence[Any] = schema.get("enum", [schema.get("const")])
    return values[0] if len(values) == 1 else None


def _attribute_names(names: Mapping[str, Any]) -> list[str]:
    """Return an identifier for each property; only msgspec reads them."""
    fit = {name for name in names if name.isidentifier() and not keyword.iskeyword(name) and name[0] != "_"}
    return [name if name in fit else f"field_{at}_" for at, name in enumerate(names)]
