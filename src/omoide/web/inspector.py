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
from omoide.service.auth import ANY, RIGHTS, Token
from omoide.service.reasons import IN_WORDS, LESS_IN_WORDS

COOKIE = "omoide"
CSRF = "omoide-csrf"
HOME = "/inspect/"
KEY_MS = 10 * 60_000
STAY_MS = 12 * 3_600_000
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
USED = (
    b'<!doctype html><html lang="en"><title>Omoide</title><link rel="stylesheet" href="inspector.css">'
    b"<main><h1>Omoide</h1><p>This address was used before, or is too old. "
    b"Start <code>omoide serve</code> again, and open the one that it prints.</p></main></html>"
)
_KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


class Visit(msgspec.Struct, frozen=True):
    """Somebody who signed in."""

    csrf: str
    until: int


class Visitors:
    """Who may sign in, and who did; both are gone when the program ends."""

    def __init__(self, scope: Scope | None = None) -> None:
        self.scope = scope or Scope()
        self._keys: dict[str, int] = {}
        self._visits: dict[str, Visit] = {}

    def invite(self) -> str:
        """A word with which somebody can sign in once, within ten minutes."""
        key = token_urlsafe(24)
        self._keys[key] = clock.now() + KEY_MS
        return key

    def enter(self, key: str) -> str | None:
        """The value of the cookie, if the word is good; it is used up then."""
        until = self._keys.pop(key, 0)
        if clock.now() >= until:
            return None
        cookie = token_urlsafe(32)
        self._visits[cookie] = Visit(token_urlsafe(24), clock.now() + STAY_MS)
        return cookie

    def visit(self, cookie: str | None) -> Visit | None:
        """Who comes with a cookie."""
        found = self._visits.get(cookie or "")
        if found is None or clock.now() >= found.until:
            self._visits.pop(cookie or "", None)
            return None
        return found

    def token(self, connection: ASGIConnection[Any, Any, Any, Any]) -> Token | None:
        """What somebody may do who signed in; what changes something has to come from our own pages."""
        found = self.visit(connection.cookies.get(COOKIE))
        if found is None:
            return None
        if connection.scope.get("method") not in ("GET", "HEAD"):
            given = connection.headers.get(CSRF, "")
            if not compare_digest(given.encode(), found.csrf.encode()) or _is_foreign(connection):
                return None
        return Token(id="inspector", name="inspector", rights=RIGHTS, namespaces=(ANY,), created_at=0)


def _is_foreign(connection: ASGIConnection[Any, Any, Any, Any]) -> bool:
    """Whether a browser says that another site sent it."""
    origin = connection.headers.get("origin")
    return origin is not None and origin.partition("://")[2] != connection.headers.get("host")


class Welcome(msgspec.Struct, frozen=True, kw_only=True):
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
    return Redirect(HOME, status_code=303, headers=HEADERS)


@get("/inspect/enter", include_in_schema=False)
async def enter(
    request: Request[Any, Any, Any], state: State, key: Annotated[str, QueryParameter()] = ""
) -> Response[Any]:
    """Sign in with the word from the terminal; who did so before goes on."""
    if state.visitors.visit(request.cookies.get(COOKIE)) is not None:
        return Redirect(HOME, status_code=303, headers=HEADERS)
    cookie = state.visitors.enter(key)
    if cookie is None:
        return Response(USED, status_code=403, media_type="text/html", headers=HEADERS)
    set_cookie = Cookie(
        key=COOKIE, value=cookie, path="/", httponly=True, samesite="strict", max_age=STAY_MS // 1000
    )
    return Redirect(HOME, status_code=303, cookies=[set_cookie], headers=HEADERS)


@get("/inspect/session", include_in_schema=False)
async def session(request: Request[Any, Any, Any], state: State) -> Response[Welcome]:
    """Who is signed in."""
    found = state.visitors.visit(request.cookies.get(COOKIE))
    if found is None:
        raise NotAuthorizedException("sign in with the address that omoide serve printed")
    scope = state.visitors.scope
    shown = {
        "namespace": scope.namespace,
        "agent": scope.agent_id,
        "session": scope.session_id,
        "project": scope.project_id,
    }
    told = Welcome(csrf=found.csrf, scope=shown, words=IN_WORDS, less=LESS_IN_WORDS)
    return Response(told, headers=HEADERS)


@get(["/inspect/", "/inspect/{name:str}"], include_in_schema=False)
async def page(
    request: Request[Any, Any, Any], name: Annotated[str, PathParameter()] = "index.html"
) -> Response[Any]:
    """One of the files; they are known by name, and no path is ever put together."""
    if request.scope.get("raw_path") == HOME.rstrip("/").encode():  # files are looked for beside the page
        return Redirect(HOME, status_code=303, headers=HEADERS)
    if name not in _FILES:
        raise HTTPException("there is no such page", status_code=404)
    kind = _KINDS[name.rpartition(".")[2]]
    return Response(_FILES[name], media_type=kind, headers=HEADERS)


def _read() -> dict[str, bytes]:
    folder = files("omoide.web") / "inspector"
    return {one.name: one.read_bytes() for one in folder.iterdir() if one.name.rpartition(".")[2] in _KINDS}


_FILES = _read()
HANDLERS: list[Callable[..., Any]] = [home, enter, session, page]
