"""What does a value look like in JSON?

As a JSON Schema, made from the value's own fields; what is code and not data is left out, as it is in the
JSON. Each kind of value has a name, under which others refer to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, get_origin

import msgspec
from msgspec import inspect as shape
from msgspec.inspect import Type

from omoide.core import codec

Schema = dict[str, Any]

PLACE = "#/components/schemas/"
_BOUNDS = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "le": "maximum",
    "min_length": "minLength",
    "max_length": "maxLength",
}
_PLAIN: dict[type[Type], str] = {
    shape.StrType: "string",
    shape.IntType: "integer",
    shape.FloatType: "number",
    shape.BoolType: "boolean",
    shape.NoneType: "null",
}


class Shapes:
    """The schemas of all values that a document speaks of, by name."""

    def __init__(self) -> None:
        self.named: dict[str, Schema] = {}
        self._names: dict[type, str] = {}

    def of(self, kind: Any) -> Schema:
        """The schema of an annotation; structs are described once, and referred to."""
        return self._of(shape.type_info(kind))

    def _of(self, info: Type) -> Schema:
        if type(info) in _PLAIN:
            return _bounded(info, _PLAIN[type(info)])
        return _READERS[type(info)](self, info)

    def _described(self, info: shape.Metadata) -> Schema:
        return self._of(info.type) | (info.extra_json_schema or {})

    def _either(self, info: shape.UnionType) -> Schema:
        found = [self._of(one) for one in info.types]
        kinds = [one["type"] for one in found if set(one) == {"type"}]
        return {"type": kinds} if len(kinds) == len(found) else {"anyOf": found}

    def _map(self, info: shape.DictType) -> Schema:
        inner = self._of(info.value_type)
        return {"type": "object"} | ({"additionalProperties": inner} if inner else {})

    def _items(self, info: Any) -> Schema:
        inner = self._of(info.item_type)
        return {"type": "array"} | ({"items": inner} if inner else {})

    def _tuple(self, info: shape.TupleType) -> Schema:
        size = len(info.item_types)
        inner = [self._of(one) for one in info.item_types]
        return {"type": "array", "prefixItems": inner, "minItems": size, "maxItems": size}

    def _words(self, info: shape.LiteralType) -> Schema:
        return {"enum": list(info.values)}

    def _any(self, info: Type) -> Schema:
        return {}

    def _own(self, info: shape.CustomType) -> Schema:
        return dict(codec.schema_hook(get_origin(info.cls) or info.cls))

    def _struct(self, info: shape.StructType) -> Schema:
        if info.cls not in self._names:
            name = _name(info.cls, self.named)
            self._names[info.cls] = name
            self.named[name] = {}  # so that it may speak of itself
            self.named[name] = self._fields(info)
        return {"$ref": f"{PLACE}{self._names[info.cls]}"}

    def _fields(self, info: shape.StructType) -> Schema:
        unwritten = getattr(info.cls, "UNWRITTEN", ())
        fields = [field for field in info.fields if field.name not in unwritten]
        made: Schema = {
            "type": "object",
            "description": (info.cls.__doc__ or "").partition("\n")[0],
            "properties": {field.encode_name: self._field(field) for field in fields},
        }
        required = [field.encode_name for field in fields if field.required]
        if required:
            made["required"] = required
        if info.forbid_unknown_fields:
            made["additionalProperties"] = False
        return made

    def _field(self, field: shape.Field) -> Schema:
        found = self._of(field.type)
        plain = field.default is not None and isinstance(field.default, (str, int, float))
        return found | {"default": field.default} if plain and "$ref" not in found else found


_READERS: dict[type[Type], Callable[[Shapes, Any], Schema]] = {
    shape.Metadata: Shapes._described,
    shape.UnionType: Shapes._either,
    shape.DictType: Shapes._map,
    shape.ListType: Shapes._items,
    shape.VarTupleType: Shapes._items,
    shape.TupleType: Shapes._tuple,
    shape.LiteralType: Shapes._words,
    shape.AnyType: Shapes._any,
    shape.CustomType: Shapes._own,
    shape.StructType: Shapes._struct,
}


def _bounded(info: Type, name: str) -> Schema:
    bounds = {
        word: getattr(info, bound)
        for bound, word in _BOUNDS.items()
        if getattr(info, bound, None) is not None
    }
    return {"type": name, **bounds}


def _name(kind: type[msgspec.Struct], taken: Iterable[str]) -> str:
    name = kind.__name__
    return name if name not in taken else f"{kind.__module__.rpartition('.')[2].capitalize()}{name}"
