"""Manage API tokens, and the addresses a service listens on.

A token has rights in some namespaces. Its secret is shown once, on creation; the store keeps a SHA-256 hash
of it, which is safe because the secret is random and long.
"""

from __future__ import annotations

import re
import socket
from collections.abc import AsyncIterator, Iterable
from hashlib import sha256
from hmac import compare_digest
from ipaddress import IPv4Address, IPv6Address, ip_address
from secrets import token_urlsafe
from typing import Any

import msgspec

from omoide import clock, ids
from omoide.core.codec import TextsField
from omoide.core.entry import Scope
from omoide.core.frozen import check_text
from omoide.core.value import Id, Millis, Value, check_texts
from omoide.errors import Invalid, NotFound
from omoide.stores.protocols import SupportsDocuments
from omoide.stores.records import Document
from omoide.verbs import require

RIGHTS = ("read", "write", "erase", "admin")
ALL_NAMESPACES = "*"
"""Stands for every namespace in a token's `namespaces`."""
TOKEN_KIND = "token"
TOKEN_SCOPE = Scope(namespace="omoide:tokens")
"""Scope of the stored tokens. No token gives access to this namespace, not even an admin token."""
SECRET_PREFIX = "omd_"
_SECRET_BYTES = 32
_SECRET_PATTERN = re.compile(rf"{SECRET_PREFIX}[\w-]{{1,64}}\.[\w-]{{1,128}}", re.ASCII)


class ApiToken(Value, frozen=True, kw_only=True):
    """Rights of a token in some namespaces, and its lifetime."""

    id: Id
    name: str
    rights: TextsField
    namespaces: TextsField
    created_at: Millis
    expires_at: Millis | None = None
    revoked_at: Millis | None = None

    def allows(self, right: str, namespace: str) -> bool:
        """Return True if the token has a right in a namespace; `admin` includes all rights."""
        if namespace == TOKEN_SCOPE.namespace or not {right, "admin"} & {*self.rights}:
            return False
        return ALL_NAMESPACES in self.namespaces or namespace in self.namespaces

    def is_live(self, at: int) -> bool:
        """Return True if the token is neither revoked nor expired at a time in milliseconds."""
        return self.revoked_at is None and (self.expires_at is None or at < self.expires_at)


class _StoredToken(msgspec.Struct):
    token: ApiToken
    digest: str


async def create(
    store: Any, name: str, rights: Iterable[str], namespaces: Iterable[str], *, expires_at: int | None = None
) -> tuple[str, ApiToken]:
    """Create a token.

    Args:
        store: any store that keeps documents.
        name: what the token is for, for people.
        rights: some of `RIGHTS`.
        namespaces: where the rights hold; `"*"` for every namespace.
        expires_at: milliseconds since 1970; None if it does not expire.

    Returns:
        The secret, which cannot be read again, and the token.
    """
    token = ApiToken(
        id=ids.new("tok_"),
        name=check_text(name, "name", "say what it is for"),
        rights=_check_rights(rights),
        namespaces=_check_namespaces(namespaces),
        created_at=clock.now(),
        expires_at=expires_at,
    )
    secret = f"{SECRET_PREFIX}{token.id}.{token_urlsafe(_SECRET_BYTES)}"
    await _save(store, _StoredToken(token, _digest(secret)), expected_rev=0)
    return secret, token


async def list_tokens(store: Any) -> list[ApiToken]:
    """Return all tokens, revoked and expired ones included, oldest first."""
    tokens = [stored.token async for stored in _iter_tokens(store)]
    return sorted(tokens, key=lambda token: (token.created_at, token.id))


async def revoke(store: Any, id: str) -> ApiToken:
    """Revoke a token; revoking it again changes nothing."""
    document = await require(store, SupportsDocuments, "keep tokens").load(
        TOKEN_KIND, ids.check(id), TOKEN_SCOPE
    )
    if document is None:
        raise NotFound("token", id, "pass the id of one that omoide token list shows")
    stored = _decode_token(document)
    if stored.token.revoked_at is None:
        stored.token = stored.token.replace(revoked_at=clock.now())
        await _save(store, stored, expected_rev=document.rev)
    return stored.token


async def verify(store: Any, secret: str) -> ApiToken | None:
    """Return the token of a secret; None if the secret is unknown, revoked or expired."""
    id = secret.removeprefix(SECRET_PREFIX).partition(".")[0]
    if not _SECRET_PATTERN.fullmatch(secret):
        return None
    document = await require(store, SupportsDocuments, "keep tokens").load(TOKEN_KIND, id, TOKEN_SCOPE)
    if document is None:
        return None
    stored = _decode_token(document)
    # Compared in constant time, so that response times reveal nothing about the hash.
    matches = compare_digest(stored.digest, _digest(secret))
    return stored.token if matches and stored.token.is_live(clock.now()) else None


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _check_rights(names: Iterable[str]) -> tuple[str, ...]:
    rights = check_texts(names, "rights")
    for right in rights:
        if right not in RIGHTS:
            raise Invalid("rights", f"holds {right!r}", f"use {', '.join(RIGHTS)}")
    if not rights:
        raise Invalid("rights", "are none", f"use {', '.join(RIGHTS)}")
    return tuple(right for right in RIGHTS if right in rights)


def _check_namespaces(names: Iterable[str]) -> tuple[str, ...]:
    texts = check_texts(names, "namespaces")
    namespaces = tuple(dict.fromkeys(ids.check(name, "namespaces") for name in texts))
    if not namespaces:
        raise Invalid("namespaces", "are none", f"name some, or {ALL_NAMESPACES!r} for all")
    return namespaces


async def _save(store: Any, stored: _StoredToken, *, expected_rev: int) -> None:
    body = {"token": stored.token.to_json().decode(), "digest": stored.digest}
    document = Document(kind=TOKEN_KIND, id=stored.token.id, namespace=TOKEN_SCOPE.namespace, body=body)
    await require(store, SupportsDocuments, "keep tokens").save(document, expected_rev=expected_rev)


async def _iter_tokens(store: Any) -> AsyncIterator[_StoredToken]:
    lister: SupportsDocuments = require(store, SupportsDocuments, "list its tokens")
    after: str | None = None
    while page := await lister.documents(TOKEN_KIND, TOKEN_SCOPE, after=after):
        for document in page:
            yield _decode_token(document)
        after = page[-1].id


def _decode_token(document: Document) -> _StoredToken:
    body = document.body
    return _StoredToken(ApiToken.from_json(body["token"]), body["digest"])


def bind(host: str, port: int) -> socket.socket:
    """Return a TCP socket that listens at an address.

    Raises:
        Invalid: the address cannot be used.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host.strip("[]"), port), family=family)
    except (OSError, OverflowError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise Invalid("port", f"{port} of {host} cannot be used ({problem})", "choose others") from error
    # Accepted connections inherit it. With Nagle's algorithm, a response body would wait 40 ms for the client
    # to acknowledge the header.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def is_loopback(host: str) -> bool:
    """Return True if an address can be reached from this machine only."""
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def is_wildcard(host: str) -> bool:
    """Return True if an address stands for all interfaces, such as `0.0.0.0`."""
    address = _address(host)
    return address is not None and address.is_unspecified


def url_of(host: str, port: int) -> str:
    """Return the URL of an address; an IPv6 address gets brackets."""
    return f"http://[{host}]:{port}" if ":" in host and not host.startswith("[") else f"http://{host}:{port}"


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None
