"""Who may use a server over HTTP, from where, and for what?

Tokens are those of `omoide.service.access`. One that does not allow reading in the namespace of the server is
none here; writing needs its own right.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, BearerAuthBackend, RequireAuthMiddleware
from mcp.server.auth.provider import AccessToken
from mcp.server.mcpserver import Context
from mcp.server.transport_security import TransportSecuritySettings
from starlette.applications import Starlette
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Asked

from omoide.core.scope import Scope
from omoide.errors import Invalid
from omoide.service import access
from omoide.service.problems import Problem

_NAMES = ("127.0.0.1", "localhost", "[::1]")


class Tokens:
    """Looks a token up in the store, at every request: one that is revoked counts no more."""

    def __init__(self, store: Any, namespace: str) -> None:
        self._store = store
        self._namespace = namespace

    async def verify_token(self, token: str) -> AccessToken | None:
        """What a token allows in this namespace; None where that is nothing."""
        known = await access.check(self._store, token)
        if known is None:
            return None
        rights = [right for right in access.RIGHTS if known.allows(right, self._namespace)]
        if "read" not in rights:
            return None
        return AccessToken(token=token, client_id=known.id, scopes=rights)


class _Required:
    """Lets through what has a token, and what is no request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._guarded = RequireAuthMiddleware(app, ["read"])

    async def __call__(self, scope: Asked, receive: Receive, send: Send) -> None:
        guard = self._guarded if scope["type"] == "http" else self._app
        await guard(scope, receive, send)


def require_tokens(app: Starlette, tokens: Tokens) -> None:
    """Refuse every request without a token that counts here."""
    app.add_middleware(_Required)
    app.add_middleware(AuthenticationMiddleware, backend=BearerAuthBackend(tokens))


def forbidden(context: Context[Any, Any], right: str, scope: Scope) -> Problem | None:
    """What is told where the token of a request does not allow something; a request without one may all."""
    try:
        request = context.request_context.request
    except ValueError:
        return None  # it was called in this process
    user = None if request is None else request.scope.get("user")
    if not isinstance(user, AuthenticatedUser) or right in user.scopes:
        return None
    remedy = f"use a token with the right {right!r}"
    return Problem(
        type="forbidden",
        title="Forbidden",
        status=403,
        detail=f"this token may not {right} in {scope.namespace!r}; {remedy}",
        remedy=remedy,
    )


def allowed_hosts(host: str, more: Iterable[str] = ()) -> TransportSecuritySettings:
    """Which names of this server a browser may have been led by: its own address, and those added.

    A page of somebody else that has its name point here is refused.
    """
    for name in (host, *more):
        if not name or any(letter.isspace() or letter in "/@*" for letter in name):
            raise Invalid("host", f"is {name!r}", "pass the name or the address alone")
    names = [*_NAMES, *(_bracketed(name) for name in (host, *more))]
    hosts = [form for name in dict.fromkeys(names) for form in (name, f"{name}:*")]
    origins = [f"{scheme}://{name}" for scheme in ("http", "https") for name in hosts]
    return TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins)


def _bracketed(name: str) -> str:
    """A name as it stands in a URL."""
    if ":" not in name or name.startswith("["):
        return name
    try:
        return f"[{ip_address(name)}]"
    except ValueError:
        raise Invalid("host", f"is {name!r}", "pass the name or the address alone, without a port") from None
