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


RIGHT = "right"
"""Where a route says what it takes; one that says nothing is open to all."""
MEANING = "meaning"
"""Where a route says what may be asked of it."""
OWN = frozenset({"asked", "request", "return", "state", "within"})
"""Parameters of a function that are no parameters of its route."""

_REV = re.compile(r'(?:W/)?"(\d{1,15})"')
_JSON = re.compile(r'application/(?:[\w.-]+\+)?json\s*(?:;\s*charset="?utf-?8"?\s*)?', re.IGNORECASE)

Handler = Callable[..., Any]


class Meaning(msgspec.Struct, frozen=True, kw_only=True):
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


Of = Annotated[str | None, QueryParameter(min_length=1, description="Of this one only; usually of any.")]


def whose(
    namespace: Annotated[str, QueryParameter(min_length=1, description="The namespace.")] = DEFAULT_NAMESPACE,
    agent: Of = None,
    session: Of = None,
    project: Of = None,
) -> Scope:
    """The part of the store that a request means."""
    return Scope(namespace=namespace, agent_id=agent, session_id=session, project_id=project)


WHOSE = {name: kind for name, kind in get_type_hints(whose, include_extras=True).items() if name != "return"}


def expected_rev(request: Request[Any, Any, Any]) -> int | None:
    """The revision that `If-Match` expects."""
    given = request.headers.get("if-match")
    if given is None:
        return None
    found = _REV.fullmatch(given.strip())
    if found is None:
        raise wrong("if-match", 'must be one revision in quotes, such as "3"')
    return int(found[1])


def idempotency_key(request: Request[Any, Any, Any]) -> str | None:
    """The key under which a request counts once."""
    return request.headers.get("idempotency-key")


def etag(rev: int) -> dict[str, str]:
    """The header that tells a revision."""
    return {"ETag": f'"{rev}"'}


def wrong(name: str, problem: str) -> ValidationException:
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
        names = frozenset({*WHOSE, *hints} - OWN)
        numbers = frozenset(name for name in hints.keys() - OWN if str not in _kinds(hints[name]))
        meaning = Meaning(
            hints=hints,
            names=names,
            numbers=numbers,
            needs=frozenset(needs),
            headers=headers,
            statuses=statuses,
        )
        if "asked" in hints:
            options["dependencies"] = {"asked": Provide(_reader(hints["asked"]))}
        # The framework wants to be told where each parameter comes from.
        for name in hints.keys() & {"asked", "within"}:
            function.__annotations__[name] = Annotated[hints[name], Dependency(kind="named")]
        for name in hints.keys() - OWN:
            if get_origin(hints[name]) is not Annotated:
                function.__annotations__[name] = Annotated[hints[name], QueryParameter()]
        return method(path, opt={RIGHT: right, MEANING: meaning}, **options)(function)

    return made


open_to_all = partial(route, get, None)
reads = partial(route, get, "read")
asks = partial(route, post, "read", status_code=200)
writes = partial(route, post, "write", status_code=200)
erases = partial(route, post, "erase", status_code=200)


def _kinds(hint: Any) -> tuple[Any, ...]:
    """What a parameter may be."""
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return get_args(kind) or (kind,)


def _reader(kind: type[Any]) -> Handler:
    """What reads the body of a request; the same hooks as everywhere make values of it."""

    async def read(request: Request[Any, Any, Any]) -> Any:
        if _JSON.fullmatch(request.headers.get("content-type", "").strip()) is None:
            raise HTTPException("send application/json, in UTF-8", status_code=415)
        try:
            plain = msgspec.json.decode(await request.body())
        except (msgspec.DecodeError, UnicodeError):
            raise HTTPException("the body is not readable as JSON in UTF-8", status_code=400) from None
        try:
            return msgspec.convert(plain, kind, dec_hook=codec.dec_hook)
        except msgspec.ValidationError as error:
            raise codec.explain(error) from None

    return read


# bodies: What may be sent to the service?


PRINTABLE = "^[^\\u0000-\\u001f\\u007f-\\u009f]+$"
"""What an id is made of."""

Text = Annotated[str, Meta(min_length=1)]
Named = Annotated[str, Meta(min_length=1, extra_json_schema={"pattern": PRINTABLE})]
Number = Annotated[int, Meta(ge=1, le=10_000)]
Unit = Annotated[float, Meta(ge=0.0, le=1.0)]
Moment = Annotated[int, Meta(ge=0, description="milliseconds since 1970 UTC")]
Source = Annotated[str, Meta(extra_json_schema={"enum": [*SOURCES]})]
Type = Annotated[str, Meta(extra_json_schema={"enum": [*MEMORY_TYPES]})]


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What comes with a request; unknown fields are refused."""

    def given(self) -> dict[str, Any]:
        """The fields that were said."""
        found = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in found.items() if value is not None}


class Remember(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A memory to keep."""

    content: Text
    id: Named | None = None
    type: Type | None = None
    confidence: Unit | None = None
    importance: Unit | None = None
    source: Source | None = None
    tags: tuple[Text, ...] | None = None
    rationale: str | None = None
    evidence: tuple[Evidence, ...] | None = None
    metadata: MapField | None = None
    occurred_at: Moment | None = None
    expires_at: Moment | None = None
    supersedes: Named | None = None
    dedupe: bool | None = None


class Narrowing(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which memories are meant at all."""

    types: tuple[Type, ...] | None = None
    tags: tuple[Text, ...] | None = None
    tags_any: tuple[Text, ...] | None = None
    min_confidence: Unit | None = None
    since: Moment | None = None
    until: Moment | None = None
    include_superseded: bool | None = None
    include_stale: bool | None = None
    include_expired: bool | None = None


class Recall(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question."""

    query: Text
    limit: Annotated[int, Meta(ge=1, le=100)] = 5
    filter: Narrowing | None = None
    max_tokens: Number | None = None


class Forget(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A memory that no longer counts."""

    id: Named
    reason: str | None = None
    replacement: Named | None = None


class Restore(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A memory that counts again."""

    id: Named


class Erase(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be removed for good: a memory, or with `everything` all that the scope holds."""

    id: Named | None = None
    everything: bool = False
    reason: str | None = None


class Relate(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How two memories are related."""

    source: Named
    relation: Text
    target: Named


class Prune(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which memories can go; nothing goes unless `dry_run` is false."""

    older_than_ms: Annotated[int, Meta(ge=0)] | None = None
    max_confidence: Unit | None = None
    max_access: Annotated[int, Meta(ge=0)] | None = None
    types: tuple[Type, ...] = ()
    limit: Number = 1_000
    dry_run: bool = True


class Sparql(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A query in SPARQL, with values for its variables."""

    query: Text
    bindings: dict[str, str | int | float | bool] | None = None
    limit: Number = 1_000
    timeout: Annotated[float, Meta(gt=0, le=60)] = 10.0


class Promote(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of a session is to become lasting memory; nothing does unless `dry_run` is false."""

    session: Named
    dry_run: bool = True
    threshold: Unit | None = None


class UndoPromotion(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A promotion to take back: the last one of a session, or the run that is named."""

    session: Named
    run: Named | None = None


class Preflight(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What would be said in a session."""

    session: Named
    message: Text


class WhoCan(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What somebody is needed for."""

    action: Text | None = None
    tags: tuple[Text, ...] = ()
    limits: dict[str, int | float] | None = None
