"""Request bodies and parameters."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from litestar import Request, get, post
from litestar.di import Dependency, Provide
from litestar.exceptions import HTTPException, ValidationException
from litestar.params import QueryParameter
from msgspec import Meta

from omoide.core import codec
from omoide.core.codec import MapField
from omoide.core.entry import DEFAULT_NAMESPACE, MEMORY_TYPES, SOURCES, Evidence, Scope

# asking: What does a request mean: whose memory, which revision of it, and what is asked?


RIGHT_KEY = "right"
"""Where a route says what it takes; one that says nothing is open to all."""
ROUTE_INFO_KEY = "meaning"
"""Where a route says what may be asked of it."""
INJECTED_PARAMETERS = frozenset({"asked", "request", "return", "state", "within"})
"""Parameters of a function that are no parameters of its route."""

_ETAG = re.compile(r'(?:W/)?"(\d{1,15})"')
_JSON_CONTENT_TYPE = re.compile(
    r'application/(?:[\w.-]+\+)?json\s*(?:;\s*charset="?utf-?8"?\s*)?', re.IGNORECASE
)

Handler = Callable[..., Any]


class RouteInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What may be asked of a route, and what it answers with."""

    hints: dict[str, Any]
    names: frozenset[str]
    """The parameters of the query."""
    numbers: frozenset[str] = frozenset()
    """Those of them that are no text."""
    needs: frozenset[str] = frozenset()
    """Parameters that usually may be left out, and here may not."""
    headers: tuple[str, ...] = ()
    statuses: tuple[int, ...] = ()
    """The problems it may answer with, beside the usual ones."""


ScopeId = Annotated[str | None, QueryParameter(min_length=1, description="Of this one only; usually of any.")]


def query_scope(
    namespace: Annotated[str, QueryParameter(min_length=1, description="The namespace.")] = DEFAULT_NAMESPACE,
    agent: ScopeId = None,
    session: ScopeId = None,
    project: ScopeId = None,
) -> Scope:
    """The part of the store that a request means."""
    return Scope(namespace=namespace, agent_id=agent, session_id=session, project_id=project)


SCOPE_PARAMETERS = {
    name: kind for name, kind in get_type_hints(query_scope, include_extras=True).items() if name != "return"
}


def expected_rev(request: Request[Any, Any, Any]) -> int | None:
    """The revision that `If-Match` expects."""
    given = request.headers.get("if-match")
    if given is None:
        return None
    found = _ETAG.fullmatch(given.strip())
    if found is None:
        raise invalid_parameter("if-match", 'must be one revision in quotes, such as "3"')
    return int(found[1])


def idempotency_key(request: Request[Any, Any, Any]) -> str | None:
    """The key under which a request counts once."""
    return request.headers.get("idempotency-key")


def etag(rev: int) -> dict[str, str]:
    """The header that tells a revision."""
    return {"ETag": f'"{rev}"'}


def invalid_parameter(name: str, problem: str) -> ValidationException:
    """A parameter or a header that cannot be taken."""
    return ValidationException(problem, extra=[{"key": name, "message": f"{name} {problem}"}])


def route(
    method: Handler,
    right: str | None,
    path: str,
    *statuses: int,
    headers: tuple[str, ...] = (),
    needs: tuple[str, ...] = (),
    **options: Any,
) -> Callable[[Handler], Any]:
    """A route that needs a right, reads these headers, and may answer with these problems."""

    def made(function: Handler) -> Any:
        hints = get_type_hints(function, include_extras=True)
        names = frozenset({*SCOPE_PARAMETERS, *hints} - INJECTED_PARAMETERS)
        numbers = frozenset(
            name for name in hints.keys() - INJECTED_PARAMETERS if str not in _union_members(hints[name])
        )
        meaning = RouteInfo(
            hints=hints,
            names=names,
            numbers=numbers,
            needs=frozenset(needs),
            headers=headers,
            statuses=statuses,
        )
        if "asked" in hints:
            options["dependencies"] = {"asked": Provide(_body_reader(hints["asked"]))}
        # The framework wants to be told where each parameter comes from.
        for name in hints.keys() & {"asked", "within"}:
            function.__annotations__[name] = Annotated[hints[name], Dependency(kind="named")]
        for name in hints.keys() - INJECTED_PARAMETERS:
            if get_origin(hints[name]) is not Annotated:
                function.__annotations__[name] = Annotated[hints[name], QueryParameter()]
        return method(path, opt={RIGHT_KEY: right, ROUTE_INFO_KEY: meaning}, **options)(function)

    return made


public_route = partial(route, get, None)
read_route = partial(route, get, "read")
query_route = partial(route, post, "read", status_code=200)
write_route = partial(route, post, "write", status_code=200)
erase_route = partial(route, post, "erase", status_code=200)


def _union_members(hint: Any) -> tuple[Any, ...]:
    """What a parameter may be."""
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return get_args(kind) or (kind,)


def _body_reader(kind: type[Any]) -> Handler:
    """What reads the body of a request; the same hooks as everywhere make values of it."""

    async def read(request: Request[Any, Any, Any]) -> Any:
        if _JSON_CONTENT_TYPE.fullmatch(request.headers.get("content-type", "").strip()) is None:
            raise HTTPException("send application/json, in UTF-8", status_code=415)
        try:
            plain = msgspec.json.decode(await request.body())
        except (msgspec.DecodeError, UnicodeError):
            raise HTTPException("the body is not readable as JSON in UTF-8", status_code=400) from None
        try:
            return msgspec.convert(plain, kind, dec_hook=codec.dec_hook)
        except msgspec.ValidationError as error:
            raise codec.translate_error(error) from None

    return read


# bodies: What may be sent to the service?


ID_PATTERN = "^[^\\u0000-\\u001f\\u007f-\\u009f]+$"
"""What an id is made of."""

NonEmptyText = Annotated[str, Meta(min_length=1)]
IdText = Annotated[str, Meta(min_length=1, extra_json_schema={"pattern": ID_PATTERN})]
Count = Annotated[int, Meta(ge=1, le=10_000)]
UnitFloat = Annotated[float, Meta(ge=0.0, le=1.0)]
Timestamp = Annotated[int, Meta(ge=0, description="milliseconds since 1970 UTC")]
SourceName = Annotated[str, Meta(extra_json_schema={"enum": [*SOURCES]})]
MemoryTypeName = Annotated[str, Meta(extra_json_schema={"enum": [*MEMORY_TYPES]})]


class RequestBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What comes with a request; unknown fields are refused."""

    def to_kwargs(self) -> dict[str, Any]:
        """The fields that were said."""
        found = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in found.items() if value is not None}


class RememberBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A memory to keep."""

    content: NonEmptyText
    id: IdText | None = None
    type: MemoryTypeName | None = None
    confidence: UnitFloat | None = None
    importance: UnitFloat | None = None
    source: SourceName | None = None
    tags: tuple[NonEmptyText, ...] | None = None
    rationale: str | None = None
    evidence: tuple[Evidence, ...] | None = None
    metadata: MapField | None = None
    occurred_at: Timestamp | None = None
    expires_at: Timestamp | None = None
    supersedes: IdText | None = None
    dedupe: bool | None = None


class FilterBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which memories are meant at all."""

    types: tuple[MemoryTypeName, ...] | None = None
    tags: tuple[NonEmptyText, ...] | None = None
    tags_any: tuple[NonEmptyText, ...] | None = None
    min_confidence: UnitFloat | None = None
    since: Timestamp | None = None
    until: Timestamp | None = None
    include_superseded: bool | None = None
    include_stale: bool | None = None
    include_expired: bool | None = None


class RecallBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question."""

    query: NonEmptyText
    limit: Annotated[int, Meta(ge=1, le=100)] = 5
    filter: FilterBody | None = None
    max_tokens: Count | None = None


class ForgetBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A memory that no longer counts."""

    id: IdText
    reason: str | None = None
    replacement: IdText | None = None


class RestoreBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A memory that counts again."""

    id: IdText


class EraseBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be removed for good: a memory, or with `everything` all that the scope holds."""

    id: IdText | None = None
    everything: bool = False
    reason: str | None = None


class RelateBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How two memories are related."""

    source: IdText
    relation: NonEmptyText
    target: IdText


class PruneBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which memories can go; nothing goes unless `dry_run` is false."""

    older_than_ms: Annotated[int, Meta(ge=0)] | None = None
    max_confidence: UnitFloat | None = None
    max_access: Annotated[int, Meta(ge=0)] | None = None
    types: tuple[MemoryTypeName, ...] = ()
    limit: Count = 1_000
    dry_run: bool = True


class SparqlBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A query in SPARQL, with values for its variables."""

    query: NonEmptyText
    bindings: dict[str, str | int | float | bool] | None = None
    limit: Count = 1_000
    timeout: Annotated[float, Meta(gt=0, le=60)] = 10.0


class PromoteBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of a session is to become lasting memory; nothing does unless `dry_run` is false."""

    session: IdText
    dry_run: bool = True
    threshold: UnitFloat | None = None


class UndoPromotionBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A promotion to take back: the last one of a session, or the run that is named."""

    session: IdText
    run: IdText | None = None


class PreflightBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What would be said in a session."""

    session: IdText
    message: NonEmptyText


class WhoCanBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What somebody is needed for."""

    action: NonEmptyText | None = None
    tags: tuple[NonEmptyText, ...] = ()
    limits: dict[str, int | float] | None = None
