"""Serve the inspector: static pages that call the REST routes.

`omoide serve` prints a URL with a key that signs in one browser, once. The key is in the fragment of the
URL, which browsers do not send; the page exchanges it for the secret of a session. The page keeps the secret
in the storage of its origin (scheme, host and port) and shows it in the Authorization header of each request.
So it reaches no other server, and no other page can use it.
"""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files
from secrets import token_urlsafe

import msgspec
from starlette.datastructures import State
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from omoide import clock
from omoide.core.entry import MEMORY_TYPES, Scope
from omoide.service.auth import ALL_NAMESPACES, RIGHTS, ApiToken
from omoide.service.reasons import NEGATIVE_PART_DESCRIPTIONS, PART_DESCRIPTIONS
from omoide.service.schemas import scope_fields
from omoide.web.endpoints import public_route, route
from omoide.web.middleware import JSONResponse, bearer_secret
from omoide.web.schemas import RequestBody

SECRET_PREFIX = "omi_"
"""Start of a session's secret, by which it differs from that of a token."""
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
_MEDIA_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


class InspectorSessions:
    """Sign-in keys and sessions, kept in memory until the process ends."""

    def __init__(self, scope: Scope | None = None) -> None:
        self.scope = scope or Scope()
        self._keys: dict[str, int] = {}
        self._sessions: dict[str, int] = {}

    def create_key(self) -> str:
        """Return a key that signs in once, within ten minutes."""
        key = token_urlsafe(24)
        self._keys[key] = clock.now() + KEY_LIFETIME_MS
        return key

    def sign_in(self, key: str) -> str | None:
        """Return the secret of a new session; None if the key is unknown, used or too old."""
        expires_at = self._keys.pop(key, 0)
        if clock.now() >= expires_at:
            return None
        secret = SECRET_PREFIX + token_urlsafe(32)
        self._sessions[_digest(secret)] = clock.now() + SESSION_LIFETIME_MS
        return secret

    def sign_out(self, secret: str) -> None:
        """End a session."""
        self._sessions.pop(_digest(secret), None)

    def api_token(self, secret: str) -> ApiToken | None:
        """Return a token with all rights for the secret of a session; None for others."""
        digest = _digest(secret)
        if clock.now() >= self._sessions.get(digest, 0):
            self._sessions.pop(digest, None)
            return None
        return ApiToken(
            id="inspector", name="inspector", rights=RIGHTS, namespaces=(ALL_NAMESPACES,), created_at=0
        )


def _digest(secret: str) -> str:
    """Return a hash, so that the time of a lookup reveals nothing about the secret."""
    return sha256(secret.encode()).hexdigest()


class SignInBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Key of the printed URL."""

    key: str


class SignInResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Secret of a new session."""

    secret: str


class InspectorConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Data that the pages need before their first request."""

    scope: dict[str, str | None]
    types: tuple[str, ...] = MEMORY_TYPES
    """All memory types."""
    words: dict[str, str]
    """Descriptions of the parts of a score."""
    less: dict[str, str]
    """Descriptions of negative parts, where they differ."""


@public_route("/")
async def home() -> RedirectResponse:
    """Redirect to the inspector."""
    return RedirectResponse(HOME_PATH, 303, headers=HEADERS)


# Without the trailing slash, relative links of the page would point elsewhere.
home_without_slash = public_route(HOME_PATH.rstrip("/"))(home.handler)


@route("POST", None, "/inspect/sign-in")
async def sign_in(state: State, payload: SignInBody) -> JSONResponse[SignInResponse]:
    """Sign in with the key of the printed URL."""
    secret = state.inspector_sessions.sign_in(payload.key)
    if secret is None:
        raise HTTPException(401, "this address was used before or is too old; start omoide serve again")
    return JSONResponse(SignInResponse(secret=secret), headers=HEADERS)


@public_route("/inspect/session")
async def session_config(request: Request, state: State) -> JSONResponse[InspectorConfig]:
    """Return the configuration of the pages for a signed-in browser."""
    if state.inspector_sessions.api_token(bearer_secret(request) or "") is None:
        raise HTTPException(401, "sign in with the address that omoide serve printed")
    config = InspectorConfig(
        scope=scope_fields(state.inspector_sessions.scope),
        words=PART_DESCRIPTIONS,
        less=NEGATIVE_PART_DESCRIPTIONS,
    )
    return JSONResponse(config, headers=HEADERS)


@route("POST", None, "/inspect/sign-out")
async def sign_out(request: Request, state: State) -> Response:
    """End the session whose secret the request shows."""
    state.inspector_sessions.sign_out(bearer_secret(request) or "")
    return Response(status_code=204)


@public_route(HOME_PATH + "{name:path}")
async def static_file(request: Request) -> Response:
    """Return one of the static files. They are looked up by name; no path is built from the request."""
    name = request.path_params["name"] or "index.html"
    if name not in _FILES:
        raise HTTPException(404, "there is no such page")
    return Response(_FILES[name], media_type=_MEDIA_TYPES[name.rpartition(".")[2]], headers=HEADERS)


def _load_files() -> dict[str, bytes]:
    folder = files("omoide.web") / "inspector"
    return {
        file.name: file.read_bytes()
        for file in folder.iterdir()
        if file.name.rpartition(".")[2] in _MEDIA_TYPES
    }


_FILES = _load_files()
ENDPOINTS = [home, home_without_slash, sign_in, sign_out, session_config, static_file]
