"""How do people look at a memory in a browser?

The pages are files that come with the library; they ask the same routes as everybody else. Whoever has the
address that was printed in the terminal signs in with it, once. From then on a cookie says who it is, which
other sites cannot send along; and what changes something needs a word besides, which they cannot read.

"""

from __future__ import annotations

from collections.abc import Callable
from hmac import compare_digest
from importlib.resources import files
from secrets import token_urlsafe
from typing import Annotated, Any

import msgspec
from litestar import Request, Response, get
from litestar.connection import ASGIConnection
from litestar.datastructures import Cookie, State
from litestar.exceptions import HTTPException, NotAuthorizedException
from litestar.params import PathParameter, QueryParameter
from litestar.response import Redirect

from omoide import clock
from omoide.core.entry import MEMORY_TYPES, Scope
from omoide.service.auth import ALL_NAMESPACES, RIGHTS, ApiToken
from omoide.service.reasons import NEGATIVE_PART_DESCRIPTIONS, PART_DESCRIPTIONS

SESSION_COOKIE = "omoide"
CSRF_HEADER = "omoide-csrf"
HOME_PATH = "/inspect/"
KEY_LIFETIME_MS = 10 * 60_000
SESSION_LIFETIME_MS = 12 * 3_600_000
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
INVALID_KEY_PAGE = (
    b'<!doctype html><html lang="en"><title>Omoide</title><link rel="stylesheet" href="inspector.css">'
    b"<main><h1>Omoide</h1><p>This address was used before, or is too old. "
    b"Start <code>omoide serve</code> again, and open the one that it prints.</p></main></html>"
)
_MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


class InspectorSession(msgspec.Struct, frozen=True):
    """Somebody who signed in."""

    csrf: str
    expires_at: int


class InspectorSessions:
    """Who may sign in, and who did; both are gone when the program ends."""

    def __init__(self, scope: Scope | None = None) -> None:
        self.scope = scope or Scope()
        self._keys: dict[str, int] = {}
        self._sessions: dict[str, InspectorSession] = {}

    def create_key(self) -> str:
        """A word with which somebody can sign in once, within ten minutes."""
        key = token_urlsafe(24)
        self._keys[key] = clock.now() + KEY_LIFETIME_MS
        return key

    def sign_in(self, key: str) -> str | None:
        """The value of the cookie, if the word is good; it is used up then."""
        until = self._keys.pop(key, 0)
        if clock.now() >= until:
            return None
        cookie = token_urlsafe(32)
        self._sessions[cookie] = InspectorSession(token_urlsafe(24), clock.now() + SESSION_LIFETIME_MS)
        return cookie

    def get(self, cookie: str | None) -> InspectorSession | None:
        """Who comes with a cookie."""
        found = self._sessions.get(cookie or "")
        if found is None or clock.now() >= found.expires_at:
            self._sessions.pop(cookie or "", None)
            return None
        return found

    def api_token(self, connection: ASGIConnection[Any, Any, Any, Any]) -> ApiToken | None:
        """What somebody may do who signed in; what changes something has to come from our own pages."""
        found = self.get(connection.cookies.get(SESSION_COOKIE))
        if found is None:
            return None
        if connection.scope.get("method") not in ("GET", "HEAD"):
            given = connection.headers.get(CSRF_HEADER, "")
            if not compare_digest(given.encode(), found.csrf.encode()) or _is_cross_origin(connection):
                return None
        return ApiToken(
            id="inspector", name="inspector", rights=RIGHTS, namespaces=(ALL_NAMESPACES,), created_at=0
        )


def _is_cross_origin(connection: ASGIConnection[Any, Any, Any, Any]) -> bool:
    """Whether a browser says that another site sent it."""
    origin = connection.headers.get("origin")
    return origin is not None and origin.partition("://")[2] != connection.headers.get("host")


class InspectorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a page has to know before it can ask."""

    csrf: str
    scope: dict[str, str | None]
    types: tuple[str, ...] = MEMORY_TYPES
    """The types of memory that there are."""
    words: dict[str, str]
    """What the parts of a score say."""
    less: dict[str, str]
    """What they say below zero, where that is something else."""


@get("/", include_in_schema=False)
async def home() -> Redirect:
    """The pages are below."""
    return Redirect(HOME_PATH, status_code=303, headers=HEADERS)


@get("/inspect/enter", include_in_schema=False)
async def sign_in(
    request: Request[Any, Any, Any], state: State, key: Annotated[str, QueryParameter()] = ""
) -> Response[Any]:
    """Sign in with the word from the terminal; who did so before goes on."""
    if state.visitors.visit(request.cookies.get(SESSION_COOKIE)) is not None:
        return Redirect(HOME_PATH, status_code=303, headers=HEADERS)
    cookie = state.visitors.enter(key)
    if cookie is None:
        return Response(INVALID_KEY_PAGE, status_code=403, media_type="text/html", headers=HEADERS)
    set_cookie = Cookie(
        key=SESSION_COOKIE,
        value=cookie,
        path="/",
        httponly=True,
        samesite="strict",
        max_age=SESSION_LIFETIME_MS // 1000,
    )
    return Redirect(HOME_PATH, status_code=303, cookies=[set_cookie], headers=HEADERS)


@get("/inspect/session", include_in_schema=False)
async def session_config(request: Request[Any, Any, Any], state: State) -> Response[InspectorConfig]:
    """Who is signed in."""
    found = state.visitors.visit(request.cookies.get(SESSION_COOKIE))
    if found is None:
        raise NotAuthorizedException("sign in with the address that omoide serve printed")
    scope = state.visitors.scope
    shown = {
        "namespace": scope.namespace,
        "agent": scope.agent_id,
        "session": scope.session_id,
        "project": scope.project_id,
    }
    told = InspectorConfig(
        csrf=found.csrf, scope=shown, words=PART_DESCRIPTIONS, less=NEGATIVE_PART_DESCRIPTIONS
    )
    return Response(told, headers=HEADERS)


@get(["/inspect/", "/inspect/{name:str}"], include_in_schema=False)
async def static_file(
    request: Request[Any, Any, Any], name: Annotated[str, PathParameter()] = "index.html"
) -> Response[Any]:
    """One of the files; they are known by name, and no path is ever put together."""
    if (
        request.scope.get("raw_path") == HOME_PATH.rstrip("/").encode()
    ):  # files are looked for beside the page
        return Redirect(HOME_PATH, status_code=303, headers=HEADERS)
    if name not in _FILES:
        raise HTTPException("there is no such page", status_code=404)
    kind = _MEDIA_TYPES[name.rpartition(".")[2]]
    return Response(_FILES[name], media_type=kind, headers=HEADERS)


def _load_files() -> dict[str, bytes]:
    folder = files("omoide.web") / "inspector"
    return {
        one.name: one.read_bytes() for one in folder.iterdir() if one.name.rpartition(".")[2] in _MEDIA_TYPES
    }


_FILES = _load_files()
HANDLERS: list[Callable[..., Any]] = [home, sign_in, session_config, static_file]
