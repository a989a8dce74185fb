"""Build the OpenAPI document from the annotations of the routes.

Fields that hold code are left out, and frozen collections are described by `codec.schema_hook`. The document
links the response of a write to the operations on that entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, get_args, get_origin

from msgspec import inspect as types
from msgspec import structs
from msgspec.inspect import Type
from starlette.responses import Response

from omoide.core import codec
from omoide.service.problems import Problem
from omoide.web.endpoints import JSON_MEDIA_TYPE, Endpoint, without_null
from omoide.web.middleware import PROBLEM_MEDIA_TYPE, JSONResponse
from omoide.web.schemas import ID_PATTERN, SCOPE_PARAMETERS

Schema = dict[str, Any]

SCHEMA_REF_PREFIX = "#/components/schemas/"
_CONSTRAINTS = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "le": "maximum",
    "min_length": "minLength",
    "max_length": "maxLength",
}
_SCALAR_TYPES: dict[type[Type], str] = {
    types.StrType: "string",
    types.IntType: "integer",
    types.FloatType: "number",
    types.BoolType: "boolean",
    types.NoneType: "null",
}


class OpenAPISchemas:
    """JSON Schemas of annotations; structs become named components."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}

    def schema(self, kind: Any) -> Schema:
        """Return the schema of an annotation; structs are described once and referenced."""
        return self._schema(types.type_info(kind))

    def _schema(self, info: Type) -> Schema:
        if type(info) in _SCALAR_TYPES:
            return _scalar(info, _SCALAR_TYPES[type(info)])
        return _BUILDERS[type(info)](self, info)

    def _add_metadata(self, info: types.Metadata) -> Schema:
        return self._schema(info.type) | (info.extra_json_schema or {})

    def _union(self, info: types.UnionType) -> Schema:
        schemas = [self._schema(member) for member in info.types]
        names = [member["type"] for member in schemas if set(member) == {"type"}]
        return {"type": names} if len(names) == len(schemas) else {"anyOf": schemas}

    def _mapping(self, info: types.DictType) -> Schema:
        inner = self._schema(info.value_type)
        return {"type": "object"} | ({"additionalProperties": inner} if inner else {})

    def _array(self, info: Any) -> Schema:
        inner = self._schema(info.item_type)
        return {"type": "array"} | ({"items": inner} if inner else {})

    def _tuple(self, info: types.TupleType) -> Schema:
        size = len(info.item_types)
        inner = [self._schema(item) for item in info.item_types]
        return {"type": "array", "prefixItems": inner, "minItems": size, "maxItems": size}

    def _literal(self, info: types.LiteralType) -> Schema:
        return {"enum": list(info.values)}

    def _any(self, info: Type) -> Schema:
        return {}

    def _custom(self, info: types.CustomType) -> Schema:
        return dict(codec.schema_hook(get_origin(info.cls) or info.cls))

    def _struct(self, info: types.StructType) -> Schema:
        name = info.cls.__name__  # unique over the library
        if name not in self.components:
            self.components[name] = {}  # registered before its fields are visited: it may refer to itself
            self.components[name] = self._object(info)
        return {"$ref": f"{SCHEMA_REF_PREFIX}{name}"}

    def _object(self, info: types.StructType) -> Schema:
        excluded = getattr(info.cls, "EXCLUDED_FIELDS", ())
        fields = [field for field in info.fields if field.name not in excluded]
        schema: Schema = {
            "type": "object",
            "description": (info.cls.__doc__ or "").partition("\n")[0],
            "properties": {field.encode_name: self._field(field) for field in fields},
        }
        required = [field.encode_name for field in fields if field.required]
        if required:
            schema["required"] = required
        if info.forbid_unknown_fields:
            schema["additionalProperties"] = False
        return schema

    def _field(self, field: types.Field) -> Schema:
        schema = self._schema(field.type)
        has_default = field.default is not None and isinstance(field.default, (str, int, float))
        return schema | {"default": field.default} if has_default and "$ref" not in schema else schema


_BUILDERS: dict[type[Type], Callable[[OpenAPISchemas, Any], Schema]] = {
    types.Metadata: OpenAPISchemas._add_metadata,
    types.UnionType: OpenAPISchemas._union,
    types.DictType: OpenAPISchemas._mapping,
    types.ListType: OpenAPISchemas._array,
    types.VarTupleType: OpenAPISchemas._array,
    types.TupleType: OpenAPISchemas._tuple,
    types.LiteralType: OpenAPISchemas._literal,
    types.AnyType: OpenAPISchemas._any,
    types.CustomType: OpenAPISchemas._custom,
    types.StructType: OpenAPISchemas._struct,
}


def _scalar(info: Type, name: str) -> Schema:
    bounds = {
        keyword: getattr(info, bound)
        for bound, keyword in _CONSTRAINTS.items()
        if getattr(info, bound, None) is not None
    }
    return {"type": name, **bounds}


COMMON_STATUSES = (400, 401, 403, 408, 413, 421, 422, 429, 500, 503, 504)
_HEADERS = {
    "If-Match": ("The revision that is expected, in quotes, as the ETag gave it; else 412.", r'^"\d{1,15}"$'),
    "Idempotency-Key": (
        "A repeated request with the same key counts once; kept for seven days.",
        r"^[!-~]+$",
    ),
}
_ENTRY_OPERATIONS = ("getEntry", "getHistory", "getProvenance", "getRelated")
"""Operations that take the id of an entry."""


def build_document(endpoints: Iterable[Endpoint], version: str) -> Schema:
    """Return the OpenAPI document of routes, of which each path has one."""
    shapes = OpenAPISchemas()
    shapes.schema(Problem)
    paths = {one.path: {one.method.lower(): _operation(one, shapes)} for one in endpoints}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Omoide",
            "version": version,
            "description": "Memory that agents can explain, and an identity others can route to.",
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted(shapes.components.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint, schemas: OpenAPISchemas) -> Schema:
    summary, _, more = (endpoint.handler.__doc__ or "").strip().partition("\n")
    payload = endpoint.hints.get("payload")
    body = {} if payload is None else {"requestBody": _request_body(payload, schemas)}
    right = endpoint.right
    common = (421,) if right is None else (*COMMON_STATUSES, 415) if body else COMMON_STATUSES
    operation: Schema = {
        "operationId": operation_id(endpoint),
        "summary": summary,
        "x-right": right,
        "parameters": [
            *_query_parameters(endpoint, schemas),
            *(_header_parameter(name) for name in endpoint.headers),
        ],
        **body,
        "responses": {
            "200": _success_response(endpoint, schemas),
            **{str(status): _problem_response(status) for status in sorted({*common, *endpoint.statuses})},
        },
    }
    if right is None:
        operation["security"] = []
    if more.strip():
        operation["description"] = " ".join(more.split())
    return operation


def operation_id(endpoint: Endpoint) -> str:
    """Return the operation id of a route: its name in camel case, with `get` before it if it reads."""
    first, *rest = endpoint.path.rpartition("/")[2].split("-")
    name = first + "".join(map(str.capitalize, rest))
    return f"get{name[:1].upper()}{name[1:]}" if endpoint.method == "GET" else name


def _query_parameters(endpoint: Endpoint, schemas: OpenAPISchemas) -> Iterator[Schema]:
    """Yield the query parameters, those of the scope first."""
    for name in endpoint.scope:
        parameter = _parameter(name, SCOPE_PARAMETERS[name], schemas)
        yield parameter | ({"required": True} if name in endpoint.required else {})
    for field in structs.fields(endpoint.query):
        parameter = _parameter(field.name, field.type, schemas)
        if field.required:
            parameter |= {"required": True, "schema": {"minLength": 1, **parameter["schema"]}}
        elif isinstance(field.default, (str, int, float)):
            parameter["schema"]["default"] = field.default
        yield parameter


def _parameter(name: str, hint: Any, schemas: OpenAPISchemas) -> Schema:
    schema = schemas.schema(without_null(hint))
    if name in {*SCOPE_PARAMETERS, "id"}:
        schema["pattern"] = ID_PATTERN
    about = {"description": schema.pop("description")} if "description" in schema else {}
    return {"name": name, "in": "query", **about, "schema": schema}


def _header_parameter(name: str) -> Schema:
    text, pattern = _HEADERS[name]
    return {
        "name": name,
        "in": "header",
        "description": text,
        "schema": {"type": "string", "pattern": pattern, "maxLength": 200},
    }


def _request_body(kind: Any, schemas: OpenAPISchemas) -> Schema:
    return {"required": True, "content": {JSON_MEDIA_TYPE: {"schema": schemas.schema(kind)}}}


def _success_response(endpoint: Endpoint, schemas: OpenAPISchemas) -> Schema:
    kind = endpoint.hints["return"]
    if isinstance(kind, type) and issubclass(kind, Response):
        schema: Schema = {"type": "string" if endpoint.media_type.startswith("text/") else "object"}
    else:
        schema = schemas.schema(get_args(kind)[0] if get_origin(kind) is JSONResponse else kind)
    response: Schema = {
        "description": "What was asked for.",
        "content": {endpoint.media_type: {"schema": schema}},
    }
    name = operation_id(endpoint)
    if "If-Match" in endpoint.headers or name == "getEntry":
        response["headers"] = {"ETag": {"description": "The revision.", "schema": {"type": "string"}}}
        response["links"] = _response_links("/entry/id" if name == "remember" else "/id")
    return response


def _response_links(pointer: str) -> Schema:
    links: Schema = {
        name: {"operationId": name, "parameters": {"id": f"$response.body#{pointer}"}}
        for name in _ENTRY_OPERATIONS
    }
    for name in ("forget", "restore", "erase"):
        links[name] = {"operationId": name, "requestBody": {"id": f"$response.body#{pointer}"}}
    for link in links.values():
        link.setdefault("parameters", {})["namespace"] = "$request.query.namespace"
    return links


def _problem_response(status: int) -> Schema:
    response: Schema = {
        "description": "What went wrong, and what to do.",
        "content": {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    if status == 429:
        response["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "string"}}}
    return response
