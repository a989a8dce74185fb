"""Parameters, headers and JSON bodies of the REST routes."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from litestar import Request, get, post
from litestar.connection import ASGIConnection
from litestar.di import Dependency, Provide
from litestar.exceptions import HTTPException, ValidationException
from litestar.params import QueryParameter
from msgspec import Meta

from omoide.core import codec
from omoide.core.codec import MapField
from omoide.core.entry import (
    DEFAULT_NAMESPACE,
    MAX_KEY_LENGTH,
    MEMORY_TYPES,
    SOURCES,
    TYPE_WORDS,
    Evidence,
    Scope,
)

RIGHT_KEY = "right"
"""Key in a handler's `opt`: the right it needs; None for a public route."""
SLOTS_KEY = "slots"
"""Key in a handler's `opt`: the kind of slots that a request holds while it runs."""
ROUTE_INFO_KEY = "meaning"
"""Key in a handler's `opt`: its `RouteInfo`."""
INJECTED_PARAMETERS = frozenset({"payload", "request", "return", "state", "memory_scope"})
"""Parameters of a handler that Litestar injects by name; all others are query parameters."""

_ETAG = re.compile(r'(?:W/)?"(\d{1,15})"')
_JSON_CONTENT_TYPE = re.compile(
    r'application/(?:[\w.-]+\+)?json\s*(?:;\s*charset="?utf-?8"?\s*)?', re.IGNORECASE
)

Handler = Callable[..., Any]
HTTPRequest = Request[Any, Any, Any]
HTTPConnection = ASGIConnection[Any, Any, Any, Any]


class RouteInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Annotations, parameters and responses of a route, for validation and the OpenAPI document."""

    hints: dict[str, Any]
    parameters: frozenset[str]
    """Query parameters."""
    scope: tuple[str, ...] = ()
    """Scope parameters that the route takes; it refuses the others."""
    non_text: frozenset[str] = frozenset()
    """Query parameters that are not text."""
    required: frozenset[str] = frozenset()
    """Scope parameters that are optional elsewhere and required here."""
    headers: tuple[str, ...] = ()
    statuses: tuple[int, ...] = ()
    """Error statuses besides the common ones."""


ScopeId = Annotated[str | None, QueryParameter(min_length=1, description="Of this one only; usually of any.")]


def query_scope(
    namespace: Annotated[str, QueryParameter(min_length=1, description="The namespace.")] = DEFAULT_NAMESPACE,
    user: ScopeId = None,
    agent: ScopeId = None,
    session: ScopeId = None,
    project: ScopeId = None,
) -> Scope:
    """Return the scope that the query parameters of a request name."""
    return Scope(namespace=namespace, user_id=user, agent_id=agent, session_id=session, project_id=project)


SCOPE_PARAMETERS = {
    name: kind for name, kind in get_type_hints(query_scope, include_extras=True).items() if name != "return"
}


AGENT_SCOPE = ("namespace", "agent")
"""Scope parameters of the routes about hibernated agents, which belong to no user, session or project."""


def expected_rev(request: HTTPRequest) -> int | None:
    """Return the revision in `If-Match`; None if there is none."""
    header = request.headers.get("if-match")
    if header is None:
        return None
    match = _ETAG.fullmatch(header.strip())
    if match is None:
        raise invalid_parameter("if-match", 'must be one revision in quotes, such as "3"')
    return int(match[1])


def idempotency_key(request: HTTPRequest) -> str | None:
    """Return the `Idempotency-Key`; None if there is none."""
    return request.headers.get("idempotency-key")


def etag(rev: int) -> dict[str, str]:
    """Return the ETag header of a revision."""
    return {"ETag": f'"{rev}"'}


def invalid_parameter(name: str, problem: str) -> ValidationException:
    """Return the error for an invalid parameter or header."""
    return ValidationException(problem, extra=[{"key": name, "message": f"{name} {problem}"}])


def route(
    method: Handler,
    right: str | None,
    path: str,
    *statuses: int,
    headers: tuple[str, ...] = (),
    required: tuple[str, ...] = (),
    scope: tuple[str, ...] = tuple(SCOPE_PARAMETERS),
    slots: str = "requests",
    **options: Any,
) -> Callable[[Handler], Any]:
    """Return a decorator that registers a handler as a route.

    Litestar injects arguments by parameter name. The decorator reads the handler's annotations once,
    registers the reader of the JSON body for `payload`, and marks every other parameter as injected or as a
    query parameter.

    Args:
        method: Litestar's `get` or `post`.
        right: right that a token needs; None for a public route.
        path: path below the version.
        statuses: error statuses besides the common ones.
        headers: request headers that the handler reads.
        required: scope parameters that are required.
        scope: scope parameters that narrow what the route is about; the others are refused.
        slots: kind of slots that a request holds while it runs.
        options: further options of Litestar's decorator.
    """

    def register(function: Handler) -> Any:
        hints = get_type_hints(function, include_extras=True)
        taken = scope if "memory_scope" in hints else ()
        parameters = frozenset({*taken, *hints} - INJECTED_PARAMETERS)
        non_text = frozenset(
            name for name in hints.keys() - INJECTED_PARAMETERS if str not in _union_members(hints[name])
        )
        info = RouteInfo(
            hints=hints,
            parameters=parameters,
            scope=taken,
            non_text=non_text,
            required=frozenset(required),
            headers=headers,
            statuses=statuses,
        )
        if "payload" in hints:
            options["dependencies"] = {"payload": Provide(_body_reader(hints["payload"]))}
        # Litestar warns unless each parameter states where it comes from.
        for name in hints.keys() & {"payload", "memory_scope"}:
            function.__annotations__[name] = Annotated[hints[name], Dependency(kind="named")]
        for name in hints.keys() - INJECTED_PARAMETERS:
            if get_origin(hints[name]) is not Annotated:
                function.__annotations__[name] = Annotated[hints[name], QueryParameter()]
        opt = {RIGHT_KEY: right, ROUTE_INFO_KEY: info, SLOTS_KEY: slots}
        return method(path, opt=opt, **options)(function)

    return register


public_route = partial(route, get, None)
read_route = partial(route, get, "read")
query_route = partial(route, post, "read", status_code=200)
write_route = partial(route, post, "write", status_code=200)
erase_route = partial(route, post, "erase", status_code=200)


def _union_members(hint: Any) -> tuple[Any, ...]:
    """Return the members of a union annotation, or the annotation itself."""
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return get_args(kind) or (kind,)


def _body_reader(kind: type[Any]) -> Handler:
    """Return a dependency that decodes the JSON body with the library's codec."""

    async def read_body(request: HTTPRequest) -> Any:
        if _JSON_CONTENT_TYPE.fullmatch(request.headers.get("content-type", "").strip()) is None:
            raise HTTPException("send application/json, in UTF-8", status_code=415)
        try:
            data = msgspec.json.decode(await request.body())
        except (msgspec.DecodeError, UnicodeError):
            raise HTTPException("the body is not readable as JSON in UTF-8", status_code=400) from None
        try:
            return msgspec.convert(data, kind, dec_hook=codec.dec_hook)
        except msgspec.ValidationError as error:
            raise codec.translate_error(error) from None

    return read_body


ID_PATTERN = "^[^\\u0000-\\u001f\\u007f-\\u009f]+$"
"""Pattern of an id."""

NonEmptyText = Annotated[str, Meta(min_length=1)]
IdText = Annotated[str, Meta(min_length=1, extra_json_schema={"pattern": ID_PATTERN})]
KeyText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_KEY_LENGTH,
        description="name of a slot, whose next value supersedes the one before",
        extra_json_schema={"pattern": ID_PATTERN},
    ),
]
Count = Annotated[int, Meta(ge=1, le=10_000)]
UnitFloat = Annotated[float, Meta(ge=0.0, le=1.0)]
TIME_DESCRIPTION = "A time as ISO 8601 text, UTC without an offset, or as milliseconds since 1970 UTC."
Timestamp = Annotated[int | str, Meta(description=TIME_DESCRIPTION)]
SourceName = Annotated[str, Meta(extra_json_schema={"enum": [*SOURCES]})]
MemoryTypeName = Annotated[
    str,
    Meta(
        description="a type, or an everyday word that stands for one, such as preference",
        extra_json_schema={"enum": [*MEMORY_TYPES, *TYPE_WORDS]},
    ),
]


class RequestBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """JSON body; unknown fields are refused."""

    def to_kwargs(self) -> dict[str, Any]:
        """Return the fields that are not None."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in fields.items() if value is not None}


class RememberBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory to store."""

    content: NonEmptyText
    id: IdText | None = None
    key: KeyText | None = None
    type: MemoryTypeName | None = None
    confidence: UnitFloat | None = None
    importance: UnitFloat | None = None
    source: SourceName | None = None
    tags: tuple[NonEmptyText, ...] | None = None
    rationale: str | None = None
    evidence: tuple[Evidence | NonEmptyText, ...] | None = None
    metadata: MapField | None = None
    occurred_at: Timestamp | None = None
    expires_at: Timestamp | None = None
    supersedes: IdText | None = None
    dedupe: bool | None = None


class DocumentBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Text of a document, and its name."""

    name: IdText
    text: NonEmptyText
    format: Annotated[str, Meta(extra_json_schema={"enum": ["text", "markdown", "html"]})] | None = None
    tags: tuple[NonEmptyText, ...] = ()


class FilterBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter for entries."""

    types: tuple[MemoryTypeName, ...] | None = None
    tags: tuple[NonEmptyText, ...] | None = None
    tags_any: tuple[NonEmptyText, ...] | None = None
    key: KeyText | None = None
    min_confidence: UnitFloat | None = None
    since: Timestamp | None = None
    until: Timestamp | None = None
    include_superseded: bool | None = None
    include_stale: bool | None = None
    include_expired: bool | None = None


class RecallBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query for memories."""

    query: NonEmptyText
    limit: Annotated[int, Meta(ge=1, le=100)] = 5
    filter: FilterBody | None = None
    max_tokens: Count | None = None
    min_relevance: UnitFloat | None = None
    at: Timestamp | None = None


class ForgetBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory to forget."""

    id: IdText
    reason: str | None = None
    replacement: IdText | None = None


class RestoreBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory to bring back."""

    id: IdText


class PinBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory to pin or unpin."""

    id: IdText


class EraseBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory or list of memories to erase, or the whole scope with `everything`."""

    id: IdText | Annotated[list[IdText], Meta(min_length=1)] | None = None
    everything: bool = False
    reason: str | None = None


class RelateBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Relation between two memories."""

    source: IdText
    relation: NonEmptyText
    target: IdText


class PruneBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Criteria for pruning; nothing is forgotten unless `dry_run` is false."""

    older_than_ms: Annotated[int, Meta(ge=0)] | None = None
    max_confidence: UnitFloat | None = None
    max_access: Annotated[int, Meta(ge=0)] | None = None
    types: tuple[MemoryTypeName, ...] = ()
    limit: Count = 1_000
    dry_run: bool = True


class SparqlBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """SPARQL query, with values for its variables."""

    query: NonEmptyText
    bindings: dict[str, str | int | float | bool] | None = None
    limit: Count = 1_000
    timeout: Annotated[float, Meta(gt=0, le=60)] = 10.0


class PromoteBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Session to promote; nothing is written unless `dry_run` is false."""

    session: IdText
    dry_run: bool = True
    threshold: UnitFloat | None = None


class UndoPromotionBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Promotion to undo: the named run, or the last one of the session."""

    session: IdText
    run: IdText | None = None


class PreflightBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Message that would be sent in a session."""

    session: IdText
    message: NonEmptyText


class WhoCanBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Action, tags, limits and I/O flags that an agent has to support."""

    action: NonEmptyText | None = None
    tags: tuple[NonEmptyText, ...] = ()
    limits: dict[str, int | float] | None = None
    io: dict[str, bool | str] | None = None
