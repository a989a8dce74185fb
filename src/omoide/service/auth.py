"""Tokens, rights, listen addresses.

A token has rights in some namespaces. Its secret is shown once, when it is made; the store keeps a hash of
it, from which nobody can get back to the secret.
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

# access: Who may do what from outside?


RIGHTS = ("read", "write", "erase", "admin")
ALL_NAMESPACES = "*"
"""In the place of a namespace: all of them."""
TOKEN_KIND = "token"
TOKEN_SCOPE = Scope(namespace="omoide:tokens")
"""Where tokens are kept; no token reaches this namespace, whatever it allows."""
SECRET_PREFIX = "omd_"
_SECRET_BYTES = 32
_SECRET_PATTERN = re.compile(rf"{SECRET_PREFIX}[\w-]{{1,64}}\.[\w-]{{1,128}}", re.ASCII)


class ApiToken(Value, frozen=True, kw_only=True):
    """What a token allows."""

    id: Id
    name: str
    rights: TextsField
    namespaces: TextsField
    created_at: Millis
    expires_at: Millis | None = None
    revoked_at: Millis | None = None

    def allows(self, right: str, namespace: str) -> bool:
        """Whether something may be done in a namespace; `admin` allows everything there."""
        if namespace == TOKEN_SCOPE.namespace or not {right, "admin"} & {*self.rights}:
            return False
        return ALL_NAMESPACES in self.namespaces or namespace in self.namespaces

    def is_live(self, at: int) -> bool:
        """Whether it counts at a moment."""
        return self.revoked_at is None and (self.expires_at is None or at < self.expires_at)


class _StoredToken(msgspec.Struct):
    token: ApiToken
    digest: str


async def create(
    store: Any,
    name: str,
    rights: Iterable[str],
    namespaces: Iterable[str],
    *,
    expires_at: int | None = None,
) -> tuple[str, ApiToken]:
    """A new token: its secret, which is told only here, and what it allows."""
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
    """All tokens, those that no longer count included, oldest first."""
    found = [kept.token async for kept in _iter_tokens(store)]
    return sorted(found, key=lambda token: (token.created_at, token.id))


async def revoke(store: Any, id: str) -> ApiToken:
    """Let a token no longer count; of one that was revoked before this is no error."""
    document = await require(store, SupportsDocuments, "keep tokens").load(
        TOKEN_KIND, ids.check(id), TOKEN_SCOPE
    )
    if document is None:
        raise NotFound("token", id, "see which there are")
    kept = _decode_token(document)
    if kept.token.revoked_at is None:
        kept.token = kept.token.replace(revoked_at=clock.now())
        await _save(store, kept, expected_rev=document.rev)
    return kept.token


async def verify(store: Any, secret: str) -> ApiToken | None:
    """What a secret allows now; None where it is none, or no longer counts."""
    id = secret.removeprefix(SECRET_PREFIX).partition(".")[0]
    if not _SECRET_PATTERN.fullmatch(secret):
        return None
    document = await require(store, SupportsDocuments, "keep tokens").load(TOKEN_KIND, id, TOKEN_SCOPE)
    if document is None:
        return None
    kept = _decode_token(document)
    same = compare_digest(kept.digest, _digest(secret))
    return kept.token if same and kept.token.is_live(clock.now()) else None


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _check_rights(given: Iterable[str]) -> tuple[str, ...]:
    rights = check_texts(given, "rights")
    for right in rights:
        if right not in RIGHTS:
            raise Invalid("rights", f"holds {right!r}", f"use {', '.join(RIGHTS)}")
    if not rights:
        raise Invalid("rights", "are none", f"use {', '.join(RIGHTS)}")
    return tuple(right for right in RIGHTS if right in rights)


def _check_namespaces(given: Iterable[str]) -> tuple[str, ...]:
    named = check_texts(given, "namespaces")
    namespaces = tuple(dict.fromkeys(ids.check(one, "namespaces") for one in named))
    if not namespaces:
        raise Invalid("namespaces", "are none", f"name some, or {ALL_NAMESPACES!r} for all")
    return namespaces


async def _save(store: Any, stored: _StoredToken, *, expected_rev: int) -> None:
    body = {"token": stored.token.to_json().decode(), "digest": stored.digest}
    document = Document(kind=TOKEN_KIND, id=stored.token.id, namespace=TOKEN_SCOPE.namespace, body=body)
    await require(store, SupportsDocuments, "keep tokens").save(document, expected_rev=expected_rev)


async def _iter_tokens(store: Any) -> AsyncIterator[_StoredToken]:
    able: SupportsDocuments = require(store, SupportsDocuments, "list its tokens")
    after: str | None = None
    while page := await able.documents(TOKEN_KIND, TOKEN_SCOPE, after=after):
        for document in page:
            yield _decode_token(document)
        after = page[-1].id


def _decode_token(document: Document) -> _StoredToken:
    body = document.body
    return _StoredToken(ApiToken.from_json(body["token"]), body["digest"])


# addresses: Where does a service listen, and who can reach it there?


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens at an address."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host.strip("[]"), port), family=family)
    except (OSError, OverflowError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise Invalid("port", f"{port} of {host} cannot be used ({problem})", "choose others") from error
    # Connections take this over. Without it an answer waits 40 ms for the client to confirm its header.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    found = _address(host)
    return host == "localhost" if found is None else found.is_loopback


def is_wildcard(host: str) -> bool:
    """Whether an address stands for all that this machine has."""
    found = _address(host)
    return found is not None and found.is_unspecified


def url_of(host: str, port: int) -> str:
    """The URL of an address."""
    return f"http://[{host}]:{port}" if ":" in host and not host.startswith("[") else f"http://{host}:{port}"


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None
