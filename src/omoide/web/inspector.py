"""Serve the inspector: static pages that call the REST routes.

`omoide serve` prints a URL with a key that signs in one browser, once. The session is a cookie with
`SameSite=strict`, which other sites cannot send; requests that change something also need the CSRF token,
which other sites cannot read.
"""

from __future__ import annotations

from collections.abc import Callable
from hmac import compare_digest
from importlib.resources import files
from secrets import token_urlsafe
from typing import Annotated, Any

import msgspec
from litestar import Response, get
from litestar.datastructures import Cookie, State
from litestar.exceptions import HTTPException, NotAuthorizedException
from litestar.params import PathParameter, QueryParameter
from litestar.response import Redirect

from omoide import clock
from omoide.core.entry import MEMORY_TYPES, Scope
from omoide.service.auth import ALL_NAMESPACES, RIGHTS, ApiToken
from omoide.service.reasons import NEGATIVE_PART_DESCRIPTIONS, PART_DESCRIPTIONS
from omoide.service.schemas import scope_fields
from omoide.web.schemas import HTTPConnection, HTTPRequest

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
    """Signed-in browser."""

    csrf: str
    expires_at: int


class InspectorSessions:
    """Sign-in keys and sessions, kept in memory until the process ends."""

    def __init__(self, scope: Scope | None = None) -> None:
        self.scope = scope or Scope()
        self._keys: dict[str, int] = {}
        self._sessions: dict[str, InspectorSession] = {}

    def create_key(self) -> str:
        """Return a key that signs in once, within ten minutes."""
        key = token_urlsafe(24)
        self._keys[key] = clock.now() + KEY_LIFETIME_MS
        return key

    def sign_in(self, key: str) -> str | None:
        """Return the value of a new session cookie; None if the key is unknown, used or too old."""
        expires_at = self._keys.pop(key, 0)
        if clock.now() >= expires_at:
            return None
        cookie = token_urlsafe(32)
        self._sessions[cookie] = InspectorSession(token_urlsafe(24), clock.now() + SESSION_LIFETIME_MS)
        return cookie

    def get(self, cookie: str | None) -> InspectorSession | None:
        """Return the session of a cookie; None if there is none or it has expired."""
        session = self._sessions.get(cookie or "")
        if session is None or clock.now() >= session.expires_at:
            self._sessions.pop(cookie or "", None)
            return None
        return session

    def api_token(self, connection: HTTPConnection) -> ApiToken | None:
        """Return a token with all rights for a signed-in browser; None for others.

        A request that changes something must carry the CSRF token, and must not come from another origin.
        """
        session = self.get(connection.cookies.get(SESSION_COOKIE))
        if session is None:
            return None
        if connection.scope.get("method") not in ("GET", "HEAD"):
            csrf = connection.headers.get(CSRF_HEADER, "")
            if not compare_digest(csrf.encode(), session.csrf.encode()) or _is_cross_origin(connection):
                return None
        return ApiToken(
            id="inspector", name="inspector", rights=RIGHTS, namespaces=(ALL_NAMESPACES,), created_at=0
        )


def _is_cross_origin(connection: HTTPConnection) -> bool:
    """Return True if the Origin header names another site."""
    origin = connection.headers.get("origin")
    return origin is not None and origin.partition("://")[2] != connection.headers.get("host")


class InspectorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Data that the pages need before their first request."""

    csrf: str
    scope: dict[str, str | None]
    types: tuple[str, ...] = MEMORY_TYPES
    """All memory types."""
    words: dict[str, str]
    """Descriptions of the parts of a score."""
    less: dict[str, str]
    """Descriptions of negative parts, where they differ."""


@get("/", include_in_schema=False)
async def home() -> Redirect:
    """Redirect to the inspector."""
    return Redirect(HOME_PATH, status_code=303, headers=HEADERS)


@get("/inspect/enter", include_in_schema=False)
async def sign_in(
    request: HTTPRequest, state: State, key: Annotated[str, QueryParameter()] = ""
) -> Response[Any]:
    """Sign in with the key of the printed URL; a browser that is signed in already is redirected."""
    if state.inspector_sessions.get(request.cookies.get(SESSION_COOKIE)) is not None:
        return Redirect(HOME_PATH, status_code=303, headers=HEADERS)
    cookie = state.inspector_sessions.sign_in(key)
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
async def session_config(request: HTTPRequest, state: State) -> Response[InspectorConfig]:
    """Return the configuration of the pages for a signed-in browser."""
    session = state.inspector_sessions.get(request.cookies.get(SESSION_COOKIE))
    if session is None:
        raise NotAuthorizedException("sign in with the address that omoide serve printed")
    config = InspectorConfig(
        csrf=session.csrf,
        scope=scope_fields(state.inspector_sessions.scope),
        words=PART_DESCRIPTIONS,
        less=NEGATIVE_PART_DESCRIPTIONS,
    )
    return Response(config, headers=HEADERS)


@get(["/inspect/", "/inspect/{name:str}"], include_in_schema=False)
async def static_file(
    request: HTTPRequest, name: Annotated[str, PathParameter()] = "index.html"
) -> Response[Any]:
    """Return one of the static files. They are looked up by name; no path is built from the request."""
    # Without the trailing slash, relative links of the page would point elsewhere.
    if request.scope.get("raw_path") == HOME_PATH.rstrip("/").encode():
        return Redirect(HOME_PATH, status_code=303, headers=HEADERS)
    if name not in _FILES:
        raise HTTPException("there is no such page", status_code=404)
    media_type = _MEDIA_TYPES[name.rpartition(".")[2]]
    return Response(_FILES[name], media_type=media_type, headers=HEADERS)


def _load_files() -> dict[str, bytes]:
    folder = files("omoide.web") / "inspector"
    return {
        file.name: file.read_bytes()
        for file in folder.iterdir()
        if file.name.rpartition(".")[2] in _MEDIA_TYPES
    }


_FILES = _load_files()
HANDLERS: list[Callable[..., Any]] = [home, sign_in, session_config, static_file]
