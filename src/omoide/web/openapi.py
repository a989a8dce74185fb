"""OpenAPI document.

As a JSON Schema, made from the value's own fields; what is code and not data is left out, as it is in the
JSON. Each kind of value has a name, under which others refer to it.

An OpenAPI document, made from the functions of the routes: what they take, what they answer with, and where
an answer leads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated, Any, get_args, get_origin

import msgspec
from litestar import Response
from litestar.handlers import HTTPRouteHandler
from litestar.params import QueryParameter
from litestar.response import ServerSentEvent
from msgspec import Meta
from msgspec import inspect as shape
from msgspec.inspect import Type

from omoide.core import codec
from omoide.service.problems import Problem
from omoide.web.middleware import PROBLEM_MEDIA_TYPE
from omoide.web.schemas import (
    ID_PATTERN,
    INJECTED_PARAMETERS,
    RIGHT_KEY,
    ROUTE_INFO_KEY,
    SCOPE_PARAMETERS,
    RouteInfo,
)

# shapes: What does a value look like in JSON?


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
    shape.StrType: "string",
    shape.IntType: "integer",
    shape.FloatType: "number",
    shape.BoolType: "boolean",
    shape.NoneType: "null",
}


class OpenAPISchemas:
    """The schemas of all values that a document speaks of, by name."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}
        self._names: dict[type, str] = {}

    def schema(self, kind: Any) -> Schema:
        """The schema of an annotation; structs are described once, and referred to."""
        return self._schema(shape.type_info(kind))

    def _schema(self, info: Type) -> Schema:
        if type(info) in _SCALAR_TYPES:
            return _scalar(info, _SCALAR_TYPES[type(info)])
        return _BUILDERS[type(info)](self, info)

    def _annotated(self, info: shape.Metadata) -> Schema:
        return self._schema(info.type) | (info.extra_json_schema or {})

    def _union(self, info: shape.UnionType) -> Schema:
        found = [self._schema(one) for one in info.types]
        kinds = [one["type"] for one in found if set(one) == {"type"}]
        return {"type": kinds} if len(kinds) == len(found) else {"anyOf": found}

    def _mapping(self, info: shape.DictType) -> Schema:
        inner = self._schema(info.value_type)
        return {"type": "object"} | ({"additionalProperties": inner} if inner else {})

    def _array(self, info: Any) -> Schema:
        inner = self._schema(info.item_type)
        return {"type": "array"} | ({"items": inner} if inner else {})

    def _tuple(self, info: shape.TupleType) -> Schema:
        size = len(info.item_types)
        inner = [self._schema(one) for one in info.item_types]
        return {"type": "array", "prefixItems": inner, "minItems": size, "maxItems": size}

    def _literal(self, info: shape.LiteralType) -> Schema:
        return {"enum": list(info.values)}

    def _any(self, info: Type) -> Schema:
        return {}

    def _custom(self, info: shape.CustomType) -> Schema:
        return dict(codec.schema_hook(get_origin(info.cls) or info.cls))

    def _struct(self, info: shape.StructType) -> Schema:
        if info.cls not in self._names:
            name = _component_name(info.cls, self.components)
            self._names[info.cls] = name
            self.components[name] = {}  # so that it may speak of itself
            self.components[name] = self._object(info)
        return {"$ref": f"{SCHEMA_REF_PREFIX}{self._names[info.cls]}"}

    def _object(self, info: shape.StructType) -> Schema:
        unwritten = getattr(info.cls, "EXCLUDED_FIELDS", ())
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
        found = self._schema(field.type)
        plain = field.default is not None and isinstance(field.default, (str, int, float))
        return found | {"default": field.default} if plain and "$ref" not in found else found


_BUILDERS: dict[type[Type], Callable[[OpenAPISchemas, Any], Schema]] = {
    shape.Metadata: OpenAPISchemas._annotated,
    shape.UnionType: OpenAPISchemas._union,
    shape.DictType: OpenAPISchemas._mapping,
    shape.ListType: OpenAPISchemas._array,
    shape.VarTupleType: OpenAPISchemas._array,
    shape.TupleType: OpenAPISchemas._tuple,
    shape.LiteralType: OpenAPISchemas._literal,
    shape.AnyType: OpenAPISchemas._any,
    shape.CustomType: OpenAPISchemas._custom,
    shape.StructType: OpenAPISchemas._struct,
}


def _scalar(info: Type, name: str) -> Schema:
    bounds = {
        word: getattr(info, bound)
        for bound, word in _CONSTRAINTS.items()
        if getattr(info, bound, None) is not None
    }
    return {"type": name, **bounds}


def _component_name(kind: type[msgspec.Struct], used: Iterable[str]) -> str:
    name = kind.__name__
    return name if name not in used else f"{kind.__module__.rpartition('.')[2].capitalize()}{name}"


# describing: What does the service say about itself?


COMMON_STATUSES = (400, 401, 403, 408, 413, 421, 422, 429, 500, 503)
SPARQL_RESULTS_MEDIA_TYPE = "application/sparql-results+json"
OPENAPI_MEDIA_TYPE = "application/vnd.oai.openapi+json"
JSON_MEDIA_TYPE = "application/json"
_HEADERS = {
    "If-Match": ("The revision that is expected, in quotes, as the ETag told it; else 412.", r'^"\d{1,15}"$'),
    "Idempotency-Key": (
        "A repeated request with the same key counts once; kept for seven days.",
        r"^[!-~]+$",
    ),
}
_ENTRY_OPERATIONS = ("getEntry", "getHistory", "getProvenance", "getRelated")
"""What can be asked about a memory by its id."""


def build_document(routes: Iterable[tuple[str, HTTPRouteHandler]], version: str) -> Schema:
    """The document about routes, each with what stands before its path."""
    shapes = OpenAPISchemas()
    shapes.schema(Problem)
    paths = {
        f"{prefix}{path}": {method.lower(): _operation(one, path, shapes)}
        for prefix, one in routes
        for path in one.paths
        for method in one.http_methods
    }
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


def _operation(handler: HTTPRouteHandler, path: str, schemas: OpenAPISchemas) -> Schema:
    meaning: RouteInfo = handler.opt[ROUTE_INFO_KEY]
    summary, _, more = (handler.fn.__doc__ or "").strip().partition("\n")
    body = {"requestBody": _request_body(meaning.hints["asked"], schemas)} if "asked" in meaning.hints else {}
    right = handler.opt[RIGHT_KEY]
    usual = (421,) if right is None else (*COMMON_STATUSES, 415) if body else COMMON_STATUSES
    statuses = sorted({*usual, *meaning.statuses})
    made: Schema = {
        "operationId": operation_id(handler, path),
        "summary": summary,
        "x-right": right,
        "parameters": [
            *(_parameter(name, kind, handler, schemas) for name, kind in _query_parameters(meaning).items()),
            *(_header_parameter(name) for name in meaning.headers),
        ],
        **body,
        "responses": {
            "200": _success_response(meaning, path, schemas),
            **{str(status): _problem_response(status) for status in statuses},
        },
    }
    if right is None:
        made["security"] = []
    if more.strip():
        made["description"] = " ".join(more.split())
    return made


def _query_parameters(info: RouteInfo) -> dict[str, Any]:
    """The parameters of the query, with their annotations; those that say whose memory it is first."""
    if "within" not in info.hints:
        return {}
    return SCOPE_PARAMETERS | {
        name: kind for name, kind in info.hints.items() if name not in INJECTED_PARAMETERS
    }


def operation_id(handler: HTTPRouteHandler, path: str) -> str:
    """The name of a route: what its function is called, `get` before it where it reads."""
    first, *rest = path.strip("/").split("-")
    name = first + "".join(map(str.capitalize, rest))
    return f"get{name[:1].upper()}{name[1:]}" if "GET" in handler.http_methods else name


def _parameter(name: str, hint: Any, handler: HTTPRouteHandler, schemas: OpenAPISchemas) -> Schema:
    kind, said = (get_args(hint)[0], get_args(hint)[1]) if get_origin(hint) is Annotated else (hint, None)
    inner = [one for one in get_args(kind) if one is not type(None)]
    kind = inner[0] if inner else kind
    made: Schema = {"name": name, "in": "query"}
    if isinstance(said, QueryParameter):
        bounds = {bound: getattr(said, bound) for bound in ("ge", "le", "min_length")}
        kind = Annotated[kind, Meta(**{key: value for key, value in bounds.items() if value is not None})]
        if said.description:
            made["description"] = said.description
    field = handler.parsed_fn_signature.parameters.get(name)
    schema = schemas.schema(kind) | ({"pattern": ID_PATTERN} if name in {*SCOPE_PARAMETERS, "id"} else {})
    if field is not None and not field.has_default:
        made["required"] = True
        schema = {"minLength": 1, **schema}
    elif name in handler.opt[ROUTE_INFO_KEY].needs:
        made["required"] = True
    elif field is not None and isinstance(field.default, (str, int, float)):
        schema = {**schema, "default": field.default}
    return {**made, "schema": schema}


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


def _success_response(info: RouteInfo, path: str, schemas: OpenAPISchemas) -> Schema:
    kind = info.hints["return"]
    kind = get_args(kind)[0] if get_origin(kind) is Response else kind
    made: Schema = {"description": "What was asked for."}
    if kind is ServerSentEvent:
        return {**made, "content": {"text/event-stream": {"schema": {"type": "string"}}}}
    if kind is bytes:
        media = SPARQL_RESULTS_MEDIA_TYPE if path == "/sparql" else OPENAPI_MEDIA_TYPE
        return {**made, "content": {media: {"schema": {"type": "object"}}}}
    made["content"] = {JSON_MEDIA_TYPE: {"schema": schemas.schema(kind)}}
    if "If-Match" in info.headers or path == "/entry":
        made["headers"] = {"ETag": {"description": "The revision.", "schema": {"type": "string"}}}
        made["links"] = _response_links("/entry/id" if path == "/remember" else "/id")
    return made


def _response_links(pointer: str) -> Schema:
    leads: Schema = {
        name: {"operationId": name, "parameters": {"id": f"$response.body#{pointer}"}}
        for name in _ENTRY_OPERATIONS
    }
    for name in ("forget", "restore", "erase"):
        leads[name] = {"operationId": name, "requestBody": {"id": f"$response.body#{pointer}"}}
    for link in leads.values():
        link.setdefault("parameters", {})["namespace"] = "$request.query.namespace"
    return leads


def _problem_response(status: int) -> Schema:
    made: Schema = {
        "description": "What went wrong, and what to do.",
        "content": {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    if status == 429:
        made["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "string"}}}
    return made
