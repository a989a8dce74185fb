"""User-supplied schemas: msgspec structs, dataclasses, TypedDicts and pydantic models."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cached_property
from typing import Any

import msgspec

from omoide.core import codec
from omoide.core.frozen import thaw
from omoide.errors import Invalid, InvalidDefinition, OmoideError

ErrorFactory = Callable[[str, str, str], OmoideError]
"""Builds the error for a field, a problem and a remedy."""


class Schema:
    """The schema of a mapping, defined by a class."""

    is_open = False
    """Whether a mapping may have more than the fields."""

    def __init__(self, model_type: Any, owner: str) -> None:
        self.model_type = model_type
        self.owner = owner
        self._pydantic = hasattr(model_type, "model_validate")  # by its shape: pydantic is not a dependency
        if not isinstance(model_type, type):
            raise InvalidDefinition(f"schema of {owner}", f"is {model_type!r}, not a class", _REMEDY)
        try:
            self.fields: dict[str, str] = self._field_names()
        except (TypeError, AttributeError) as error:
            raise InvalidDefinition(f"schema of {owner}", f"cannot be used ({error})", _REMEDY) from error
        if not self._pydantic:
            self._check_types(owner)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Schema) and other.model_type is self.model_type

    def __hash__(self) -> int:
        return hash(self.model_type)

    def _check_types(self, owner: str) -> None:
        """Raise `InvalidDefinition` for types that cannot be decoded, before the first data arrives."""
        info: Any = msgspec.inspect.type_info(self.model_type)
        for field in info.fields:
            kind = field.type
            if isinstance(kind, msgspec.inspect.CustomType) and kind.cls not in codec.DECODABLE_TYPES:
                raise InvalidDefinition(
                    f"{owner}: {field.name!r}",
                    f"is a {kind.cls.__name__}, which cannot be decoded",
                    "use data types, a msgspec struct or a dataclass",
                )

    def _field_names(self) -> dict[str, str]:
        """Return the names of the fields in data, with the names of their attributes."""
        if self._pydantic:
            return {field.alias or name: name for name, field in self.model_type.model_fields.items()}
        info: Any = msgspec.inspect.type_info(self.model_type)
        return {field.encode_name: field.name for field in info.fields}

    def check(
        self, data: Mapping[str, Any], make_error: ErrorFactory = Invalid, *, strict: bool = False
    ) -> Any:
        """Convert a mapping to an instance of the schema's class.

        Args:
            data: the mapping.
            make_error: builds the error to raise from field, problem and remedy.
            strict: read the data as JSON, in which "5" is no number; pydantic alone differs.

        Raises:
            OmoideError: the error of `make_error`, if a field is wrong, missing or unknown.
        """
        # Thawed: user code gets dicts and lists of its own, as annotated.
        plain = {str(key): thaw(value) for key, value in data.items()}
        # Checked here, because msgspec and pydantic ignore unknown fields by default.
        for name in plain:
            if name not in self.fields and not self.is_open:
                raise make_error(name, "is an unknown field", f"use {', '.join(self.fields) or 'no fields'}")
        try:
            return self._convert(plain, strict)
        except OmoideError:
            raise
        except (msgspec.ValidationError, ValueError) as error:
            raise make_error(*self._parse_error(error)) from error

    def _convert(self, plain: dict[str, Any], strict: bool = False) -> Any:
        if self._pydantic and strict:
            return self.model_type.model_validate_json(json.dumps(plain), strict=True)
        if self._pydantic:
            return self.model_type.model_validate(plain)
        return msgspec.convert(plain, self.model_type, dec_hook=codec.freeze_hook)

    def _parse_error(self, error: Exception) -> tuple[str, str, str]:
        if self._pydantic and hasattr(error, "errors"):
            first = error.errors()[0]  # one problem at a time, as msgspec reports them
            field, problem = ".".join(str(part) for part in first["loc"]), f"is wrong: {first['msg'].lower()}"
        else:
            field, problem = codec.parse_error_message(str(error))
        return field.strip() or "value", problem, "correct it, or see json_schema()"

    def defaults(self) -> dict[str, Any]:
        """Return the default values of the optional fields."""
        if self._pydantic:
            return {
                name: field.get_default(call_default_factory=True)
                for name, field in self.model_type.model_fields.items()
                if not field.is_required()
            }
        info: Any = msgspec.inspect.type_info(self.model_type)
        values = {}
        for field in info.fields:
            if field.default_factory is not msgspec.NODEFAULT:
                values[field.encode_name] = field.default_factory()
            elif field.default is not msgspec.NODEFAULT and field.default is not msgspec.UNSET:
                values[field.encode_name] = field.default
        return values

    def json_schema(self) -> dict[str, Any]:
        """Return the schema as JSON Schema."""
        # A copy, because a caller may change what it gets.
        return deepcopy(self._cached_json_schema)

    @cached_property
    def _cached_json_schema(self) -> dict[str, Any]:
        if self._pydantic:
            schema: dict[str, Any] = self.model_type.model_json_schema()
            root = schema.pop("$ref", "").rpartition("/")[2]  # a recursive schema is one of its definitions
            return schema | schema["$defs"][root] if root else schema
        schemas = msgspec.json.schema_components(
            [self.model_type], schema_hook=codec.schema_hook, ref_template="#/$defs/{name}"
        )
        # A default may be a tuple, which JSON does not have: encoding turns it into a list.
        (schema,), components = msgspec.json.decode(msgspec.json.encode(schemas))
        own: dict[str, Any]
        if "$ref" not in schema:
            return schema | ({"$defs": components} if components else {})
        root = schema["$ref"].rpartition("/")[2]
        own = components.pop(root)
        if schema["$ref"] in str(own) or schema["$ref"] in str(components):
            components[root] = own  # a recursive schema refers to itself
        return own | ({"$defs": components} if components else {})


_REMEDY = "use a msgspec struct, a dataclass, a TypedDict or a pydantic model"
