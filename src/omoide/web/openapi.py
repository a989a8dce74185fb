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
from omoide.web.middleware import MEDIA
from omoide.web.schemas import MEANING, OWN, PRINTABLE, RIGHT, WHOSE, Meaning

# shapes: What does a value look like in JSON?


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


# describing: What does the service say about itself?


USUAL = (400, 401, 403, 408, 413, 421, 422, 429, 500, 503)
RESULTS = "application/sparql-results+json"
OPENAPI = "application/vnd.oai.openapi+json"
JSON = "application/json"
_HEADERS = {
    "If-Match": ("The revision that is expected, in quotes, as the ETag told it; else 412.", r'^"\d{1,15}"$'),
    "Idempotency-Key": (
        "A repeated request with the same key counts once; kept for seven days.",
        r"^[!-~]+$",
    ),
}
_FOLLOWING = ("getEntry", "getHistory", "getProvenance", "getRelated")
"""What can be asked about a memory by its id."""


def described(routes: Iterable[tuple[str, HTTPRouteHandler]], version: str) -> Schema:
    """The document about routes, each with what stands before its path."""
    shapes = Shapes()
    shapes.of(Problem)
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
            "schemas": dict(sorted(shapes.named.items())),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(handler: HTTPRouteHandler, path: str, shapes: Shapes) -> Schema:
    meaning: Meaning = handler.opt[MEANING]
    summary, _, more = (handler.fn.__doc__ or "").strip().partition("\n")
    body = {"requestBody": _body(meaning.hints["asked"], shapes)} if "asked" in meaning.hints else {}
    right = handler.opt[RIGHT]
    usual = (421,) if right is None else (*USUAL, 415) if body else USUAL
    statuses = sorted({*usual, *meaning.statuses})
    made: Schema = {
        "operationId": operation_id(handler, path),
        "summary": summary,
        "x-right": right,
        "parameters": [
            *(_parameter(name, kind, handler, shapes) for name, kind in _asked_of(meaning).items()),
            *(_header(name) for name in meaning.headers),
        ],
        **body,
        "responses": {
            "200": _answer(meaning, path, shapes),
            **{str(status): _problem(status) for status in statuses},
        },
    }
    if right is None:
        made["security"] = []
    if more.strip():
        made["description"] = " ".join(more.split())
    return made


def _asked_of(meaning: Meaning) -> dict[str, Any]:
    """The parameters of the query, with their annotations; those that say whose memory it is first."""
    if "within" not in meaning.hints:
        return {}
    return WHOSE | {name: kind for name, kind in meaning.hints.items() if name not in OWN}


def operation_id(handler: HTTPRouteHandler, path: str) -> str:
    """The name of a route: what its function is called, `get` before it where it reads."""
    first, *rest = path.strip("/").split("-")
    name = first + "".join(map(str.capitalize, rest))
    return f"get{name[:1].upper()}{name[1:]}" if "GET" in handler.http_methods else name


def _parameter(name: str, hint: Any, handler: HTTPRouteHandler, shapes: Shapes) -> Schema:
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
    schema = shapes.of(kind) | ({"pattern": PRINTABLE} if name in {*WHOSE, "id"} else {})
    if field is not None and not field.has_default:
        made["required"] = True
        schema = {"minLength": 1, **schema}
    elif name in handler.opt[MEANING].needs:
        made["required"] = True
    elif field is not None and isinstance(field.default, (str, int, float)):
        schema = {**schema, "default": field.default}
    return {**made, "schema": schema}


def _header(name: str) -> Schema:
    text, pattern = _HEADERS[name]
    return {
        "name": name,
        "in": "header",
        "description": text,
        "schema": {"type": "string", "pattern": pattern, "maxLength": 200},
    }


def _body(kind: Any, shapes: Shapes) -> Schema:
    return {"required": True, "content": {JSON: {"schema": shapes.of(kind)}}}


def _answer(meaning: Meaning, path: str, shapes: Shapes) -> Schema:
    kind = meaning.hints["return"]
    kind = get_args(kind)[0] if get_origin(kind) is Response else kind
    made: Schema = {"description": "What was asked for."}
    if kind is ServerSentEvent:
        return {**made, "content": {"text/event-stream": {"schema": {"type": "string"}}}}
    if kind is bytes:
        media = RESULTS if path == "/sparql" else OPENAPI
        return {**made, "content": {media: {"schema": {"type": "object"}}}}
    made["content"] = {JSON: {"schema": shapes.of(kind)}}
    if "If-Match" in meaning.headers or path == "/entry":
        made["headers"] = {"ETag": {"description": "The revision.", "schema": {"type": "string"}}}
        made["links"] = _links("/entry/id" if path == "/remember" else "/id")
    return made


def _links(place: str) -> Schema:
    leads: Schema = {
        name: {"operationId": name, "parameters": {"id": f"$response.body#{place}"}} for name in _FOLLOWING
    }
    for name in ("forget", "restore", "erase"):
        leads[name] = {"operationId": name, "requestBody": {"id": f"$response.body#{place}"}}
    for link in leads.values():
        link.setdefault("parameters", {})["namespace"] = "$request.query.namespace"
    return leads


def _problem(status: int) -> Schema:
    made: Schema = {
        "description": "What went wrong, and what to do.",
        "content": {MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    if status == 429:
        made["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "string"}}}
    return made
