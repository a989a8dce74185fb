"""How does an operation find and change documents?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from omoide.core import codec
from omoide.core.scope import Scope
from omoide.stores.records import Document, Lease
from omoide.stores.redis import packing
from omoide.stores.redis.changing import Changing
from omoide.stores.redis.connections import Ask
from omoide.stores.redis.keys import SEPARATOR, joined, parted, texts
from omoide.stores.redis.known import portions
from omoide.stores.redis.parts import Part
from omoide.stores.reference_state import DocumentKey

_PAGE = 200
_DOCUMENTS = "documents"  # what `watch` calls them; no other name begins with a d


class Unit(Changing):
    """The part of the state that one operation has asked for, and what becomes of it."""

    def document(self, key: DocumentKey) -> Document | None:
        """A document without its log, if there is one."""
        part, field = self.part(key[0]), joined(*key[1:])
        (raw,) = self.ask([["HGET", part.keys("docs"), field]])
        part.check("docs", field, raw)
        return None if raw is None else packing.document(raw, key)

    def log_of(self, key: DocumentKey) -> tuple[Any, ...]:
        """What was appended to a document."""
        (found,) = self.ask([["LRANGE", _log(self.part(key[0]), key), "0", "-1"]])
        return tuple(packing.item(raw) for raw in found)

    def listed(self, kind: str, namespace: str, after: str | None) -> Iterator[Document]:
        """The documents of a kind after an id, in the order of their ids."""
        keys = self.part(namespace).keys
        low = "-" if after is None else b"(" + after.encode()
        while True:
            ask: Ask = ["ZRANGEBYLEX", keys("kind", kind), low, "+", "LIMIT", "0", str(_PAGE)]
            names = texts(self.ask([ask])[0])
            if not names:
                return
            (found,) = self.ask([["HMGET", keys("docs"), *(joined(kind, id) for id in names)]])
            for id, raw in zip(names, found, strict=True):
                if raw is not None:
                    yield packing.document(raw, (namespace, kind, id))
            low = b"(" + names[-1].encode()

    def owners(self, namespace: str) -> dict[DocumentKey, Scope]:
        """All documents of a namespace, with whose they are."""
        part = self.part(namespace)
        flat, stamp = self.ask([["HGETALL", part.keys("owners")], ["HGET", part.keys("watch"), _DOCUMENTS]])
        part.check("watch", _DOCUMENTS, stamp)
        found: dict[DocumentKey, Scope] = {}
        for field, raw in zip(flat[::2], flat[1::2], strict=True):
            kind, id = parted(field, 2)
            key = (namespace, kind, id)
            if key not in self._dropped:
                agent, session = (text or None for text in raw.decode().split(SEPARATOR))
                found[key] = Scope(namespace=namespace, agent_id=agent, session_id=session)
        return found

    def put_document(self, key: DocumentKey, document: Document, log: Sequence[Any]) -> None:
        """Replace a document and its log."""
        part, field = self.part(key[0]), joined(*key[1:])
        keys = part.keys
        part.do("HSET", keys("docs"), field, packing.put_document(document))
        part.do("DEL", _log(part, key))
        self._append(part, key, log)
        if document.rev == 1:
            owner = f"{document.agent_id or ''}{SEPARATOR}{document.session_id or ''}"
            part.do("HSET", keys("owners"), field, owner)
            part.do("ZADD", keys("kind", key[1]), "0", key[2])
            part.do("SADD", keys("kinds"), key[1])
            part.watch(_DOCUMENTS)

    def append_document(self, key: DocumentKey, document: Document, added: Sequence[Any]) -> None:
        """Replace a document and add to its log."""
        part = self.part(key[0])
        part.do("HSET", part.keys("docs"), joined(*key[1:]), packing.put_document(document))
        self._append(part, key, added)

    def _append(self, part: Part, key: DocumentKey, added: Sequence[Any]) -> None:
        for some in portions([codec.encode(item) for item in added]):
            part.do("RPUSH", _log(part, key), *some)

    def drop_document(self, key: DocumentKey) -> None:
        """Remove a document with its log and its lease."""
        part, field = self.part(key[0]), joined(*key[1:])
        for name in ("docs", "owners", "leases"):
            part.free("HDEL", part.keys(name), [field])
        part.free("ZREM", part.keys("kind", key[1]), [key[2]])
        part.forget(_log(part, key))
        part.watch(_DOCUMENTS)
        self._dropped.add(key)

    def lease(self, key: DocumentKey) -> Lease | None:
        """Who holds a document, or held it last."""
        part, field = self.part(key[0]), joined(*key[1:])
        (raw,) = self.ask([["HGET", part.keys("leases"), field]])
        part.check("leases", field, raw)
        return None if raw is None else packing.lease(raw)

    def put_lease(self, key: DocumentKey, lease: Lease) -> None:
        """Note who holds a document."""
        part = self.part(key[0])
        part.do("HSET", part.keys("leases"), joined(*key[1:]), packing.put_lease(lease))

    def drop_leases(self, namespace: str) -> None:
        """Forget who holds what in a namespace."""
        part = self.part(namespace)
        part.forget(part.keys("leases"))


def _log(part: Part, key: DocumentKey) -> bytes:
    return part.keys("doclog", joined(*key[1:]).decode())
