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
from omoide.stores.protocols import Documents, ListsDocuments
from omoide.stores.records import Document
from omoide.verbs import offering

# access: Who may do what from outside?


RIGHTS = ("read", "write", "erase", "admin")
ANY = "*"
"""In the place of a namespace: all of them."""
KIND = "token"
PLACE = Scope(namespace="omoide:tokens")
"""Where tokens are kept; no token reaches this namespace, whatever it allows."""
PREFIX = "omd_"
_SECRET = 32
_SHAPE = re.compile(rf"{PREFIX}[\w-]{{1,64}}\.[\w-]{{1,128}}", re.ASCII)


class Token(Value, frozen=True, kw_only=True):
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
        if namespace == PLACE.namespace or not {right, "admin"} & {*self.rights}:
            return False
        return ANY in self.namespaces or namespace in self.namespaces

    def is_live(self, at: int) -> bool:
        """Whether it counts at a moment."""
        return self.revoked_at is None and (self.expires_at is None or at < self.expires_at)


class _Kept(msgspec.Struct):
    token: Token
    digest: str


async def create(
    store: Any,
    name: str,
    rights: Iterable[str],
    namespaces: Iterable[str],
    *,
    expires_at: int | None = None,
) -> tuple[str, Token]:
    """A new token: its secret, which is told only here, and what it allows."""
    token = Token(
        id=ids.new("tok_"),
        name=check_text(name, "name", "say what it is for"),
        rights=_rights(rights),
        namespaces=_namespaces(namespaces),
        created_at=clock.now(),
        expires_at=expires_at,
    )
    secret = f"{PREFIX}{token.id}.{token_urlsafe(_SECRET)}"
    await _save(store, _Kept(token, _digest(secret)), expected_rev=0)
    return secret, token


async def tokens(store: Any) -> list[Token]:
    """All tokens, those that no longer count included, oldest first."""
    found = [kept.token async for kept in _all(store)]
    return sorted(found, key=lambda token: (token.created_at, token.id))


async def revoke(store: Any, id: str) -> Token:
    """Let a token no longer count; of one that was revoked before this is no error."""
    document = await offering(store, Documents, "keep tokens").load(KIND, ids.check(id), PLACE)
    if document is None:
        raise NotFound("token", id, "see which there are")
    kept = _read(document)
    if kept.token.revoked_at is None:
        kept.token = kept.token.replace(revoked_at=clock.now())
        await _save(store, kept, expected_rev=document.rev)
    return kept.token


async def check(store: Any, secret: str) -> Token | None:
    """What a secret allows now; None where it is none, or no longer counts."""
    id = secret.removeprefix(PREFIX).partition(".")[0]
    if not _SHAPE.fullmatch(secret):
        return None
    document = await offering(store, Documents, "keep tokens").load(KIND, id, PLACE)
    if document is None:
        return None
    kept = _read(document)
    same = compare_digest(kept.digest, _digest(secret))
    return kept.token if same and kept.token.is_live(clock.now()) else None


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _rights(given: Iterable[str]) -> tuple[str, ...]:
    rights = check_texts(given, "rights")
    for right in rights:
        if right not in RIGHTS:
            raise Invalid("rights", f"holds {right!r}", f"use {', '.join(RIGHTS)}")
    if not rights:
        raise Invalid("rights", "are none", f"use {', '.join(RIGHTS)}")
    return tuple(right for right in RIGHTS if right in rights)


def _namespaces(given: Iterable[str]) -> tuple[str, ...]:
    named = check_texts(given, "namespaces")
    namespaces = tuple(dict.fromkeys(ids.check(one, "namespaces") for one in named))
    if not namespaces:
        raise Invalid("namespaces", "are none", f"name some, or {ANY!r} for all")
    return namespaces


async def _save(store: Any, kept: _Kept, *, expected_rev: int) -> None:
    body = {"token": kept.token.to_json().decode(), "digest": kept.digest}
    document = Document(kind=KIND, id=kept.token.id, namespace=PLACE.namespace, body=body)
    await offering(store, Documents, "keep tokens").save(document, expected_rev=expected_rev)


async def _all(store: Any) -> AsyncIterator[_Kept]:
    able: ListsDocuments = offering(store, ListsDocuments, "list its tokens")
    after: str | None = None
    while page := await able.documents(KIND, PLACE, after=after):
        for document in page:
            yield _read(document)
        after = page[-1].id


def _read(document: Document) -> _Kept:
    body = document.body
    return _Kept(Token.from_json(body["token"]), body["digest"])


# addresses: Where does a service listen, and who can reach it there?


def bound(host: str, port: int) -> socket.socket:
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


def is_everywhere(host: str) -> bool:
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
