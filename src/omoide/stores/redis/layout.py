"""Keys and values.

Every key of a namespace carries the namespace in braces, so that a cluster keeps all of them in one place and
one script can change them. What belongs to the store as a whole has a place of its own.

Each value that several may change begins with a stamp of sixteen digits, another one after every change, so
that a script can tell at a glance whether it is still what somebody read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from omoide.core import codec
from omoide.core.entry import Entry, Scope, WriteRequest
from omoide.stores import codec as bodies
from omoide.stores import semantics
from omoide.stores.codec import IndexData
from omoide.stores.records import Document, Lease, Version
from omoide.stores.state import DocumentKey, Receipt
from omoide.stores.truth import StaleTransition

# keys: Where does what is kept lie?


SEPARATOR = "\x1f"
"""Stands between ids, which hold no control characters."""

KEY_TYPES = {
    "meta": "hash",
    "rows": "hash",
    "found": "hash",
    "past": "hash",
    "links": "hash",
    "invalid": "hash",
    "stones": "hash",
    "receipts": "hash",
    "docs": "hash",
    "owners": "hash",
    "leases": "hash",
    "watch": "hash",
    "same": "hash",
    "access": "hash",
    "used": "zset",
    "all": "zset",
    "time": "zset",
    "gone": "zset",
    "expiry": "zset",
    "on": "zset",
    "ends": "set",
    "keys": "set",
    "kept": "zset",
    "kind": "zset",
    "kinds": "set",
    "doclog": "list",
    "log": "stream",
    "gate": "string",
    "done": "string",
}
"""What each key holds, by the word after the namespace:

`meta` the counters; `rows` the entries; `found` their terms and vectors; `past` their older versions; `all`
what counts, by when it was last touched; `time` everything, by when it happened; `gone` what counts no more;
`expiry` what will expire; `same` who says the same; `on` what rests on an entry; `links`, `ends` the links;
`invalid` how many links invalidate an entry; `stones` the tombstones; `receipts`, `keys`, `kept` the answers
under idempotency keys; `access`, `used` how often and when; `docs`, `owners`, `doclog`, `kind`, `kinds`,
`leases` the documents; `log` the changes; `watch` when what is read together last changed; `gate` who alone
may write; `done` what a writer did last.
"""


class NamespaceKeys:
    """The keys of one namespace."""

    def __init__(self, prefix: str, namespace: str) -> None:
        self._prefix = f"{prefix}{{n{escape_namespace(namespace)}}}:"

    def __call__(self, name: str, part: str = "") -> bytes:
        return f"{self._prefix}{name}{':' if part else ''}{part}".encode()

    def type_of(self, key: bytes) -> str:
        """What a key of these holds."""
        return KEY_TYPES[key[len(self._prefix.encode()) :].split(b":", 1)[0].decode()]


def store_key(prefix: str, name: str) -> bytes:
    """A key of the store as a whole."""
    return f"{prefix}{{store}}:{name}".encode()


def escape_namespace(namespace: str) -> str:
    """A namespace in letters that mean nothing to Redis, another for each."""
    return quote(namespace, safe="")


def is_valid_prefix(text: str) -> bool:
    """Whether text can stand before all keys of a store: what is in braces has a meaning to a cluster."""
    return bool(re.fullmatch(r"[^{}\s\x00-\x1f\x7f]{1,64}", text))


def partitions_of(entry: Entry) -> list[str]:
    """The lists that an entry is in: everybody's, its agent's, its session's and its project's."""
    own = (("a", entry.agent_id), ("s", entry.session_id), ("p", entry.project_id))
    return ["*", *(f"{letter}{id}" for letter, id in own if id is not None)]


def partition_for(scope: Scope) -> str:
    """The shortest list that holds all that a scope does."""
    for letter, id in (("s", scope.session_id), ("p", scope.project_id), ("a", scope.agent_id)):
        if id is not None:
            return f"{letter}{id}"
    return "*"


def watch_field(id: str) -> str:
    """The name under which `watch` notes that something about an id changed beside its row."""
    return f"i{id}"


def join_ids(*parts: str) -> bytes:
    """Ids in one field; only the last part may be any text."""
    return SEPARATOR.join(parts).encode()


def split_ids(field: bytes, parts: int) -> list[str]:
    """The parts of a field."""
    return field.decode().split(SEPARATOR, parts - 1)


def decode_ids(raw_ids: Iterable[bytes]) -> list[str]:
    """Ids as they came from the server."""
    return [one.decode() for one in raw_ids]


# packing: How is what is kept written down in Redis?


STAMP_LENGTH = 16
COMMIT_TICK = 0
"""In a command, stands for the number of the commit; a number above it for that of a change in it."""

Argument = bytes | str | int | list[bytes | int]

pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


def to_digits(number: int) -> bytes:
    """A number as stamps are written."""
    return b"%016d" % number


class EntryRow(NamedTuple):
    """An entry as it is kept."""

    written_seq: int
    number: int
    first_rev: int
    version: Version
    model: str
    has_custom_vector: bool
    transitions: list[StaleTransition]


def decode_row(raw: bytes, id: str) -> EntryRow:
    """The entry in a value of `rows`."""
    first, at, model, given, flips, body = _unpack(raw[3 * STAMP_LENGTH :])
    entry = bodies.decode_entry(body)
    return EntryRow(
        int(raw[STAMP_LENGTH : 2 * STAMP_LENGTH]),
        int(raw[2 * STAMP_LENGTH : 3 * STAMP_LENGTH]),
        first,
        version_of(id, at, entry),
        model,
        given,
        [StaleTransition(*flip) for flip in flips],
    )


def encode_row(
    first_rev: int, last: Version, model: str, has_custom_vector: bool, transitions: Sequence[StaleTransition]
) -> bytes:  # fmt: skip
    """What stands in `rows` after the three numbers."""
    assert last.entry is not None
    return pack([first_rev, last.at, model, has_custom_vector, transitions, bodies.encode_entry(last.entry)])


def version_of(id: str, at: int, entry: Entry) -> Version:
    """A version of an entry."""
    return Version(id=id, rev=entry.rev, at=at, entry=entry)


def decode_version(raw: bytes, id: str) -> Version:
    """The version in a value of `past`."""
    at, body = _unpack(raw)
    return version_of(id, at, bodies.decode_entry(body))


def encode_version(old: Version) -> bytes:
    """A version that is not the last one any more."""
    assert old.entry is not None
    return pack([old.at, bodies.encode_entry(old.entry)])


def decode_index_data(raw: bytes | None) -> tuple[str, IndexData]:
    """Whose vectors a value of `found` holds, and what an entry is found by."""
    if raw is None:
        return "", IndexData(b"", ())
    model, features, pooled, tokens, given = _unpack(raw)
    return model, IndexData(features, (), pooled or None, tokens or None, given)


def encode_index_data(model: str, record: IndexData) -> bytes:
    """What an entry is found by."""
    return pack([model, record.features, record.pooled or b"", record.tokens or b"", record.given])


def decode_tombstones(raw: bytes, id: str, namespace: str) -> list[tuple[Entry, Version]]:
    """The tombstones in a value of `stones`, each with an empty entry that says whose it was."""
    return [
        (
            Entry(
                id=id, agent_id=agent, session_id=session, project_id=project, namespace=namespace,
                content="-", created_at=0,
            ),
            Version(id=id, rev=rev, at=at, reason=reason),
        )
        for agent, session, project, rev, at, reason in _unpack(raw[STAMP_LENGTH:])
    ]  # fmt: skip


def encode_tombstones(tombstones: Sequence[tuple[Entry, Version]]) -> list[bytes | int]:
    """The tombstones of an id."""
    plain = [
        (like.agent_id, like.session_id, like.project_id, stone.rev, stone.at, stone.reason)
        for like, stone in tombstones
    ]
    return [COMMIT_TICK, pack(plain)]


def decode_receipt(raw: bytes) -> Receipt:
    """What was answered under an idempotency key."""
    print_, outcome, at, stale, body = _unpack(raw[STAMP_LENGTH:])
    entry = bodies.decode_entry(body)
    entry = semantics.replace_unchecked(entry, stale=True) if stale else entry
    return print_, semantics.write_result(WriteRequest(entry=entry), entry, outcome), at


def encode_receipt(receipt: Receipt) -> list[bytes | int]:
    """What is remembered of an answer."""
    print_, result, at = receipt
    entry = result.entry
    return [COMMIT_TICK, pack([print_, result.outcome, at, entry.stale, bodies.encode_entry(entry)])]


def decode_document(raw: bytes, key: DocumentKey) -> Document:
    """A document without its log."""
    agent, session, rev, at, body = _unpack(raw[STAMP_LENGTH:])
    namespace, kind, id = key
    return Document(
        kind=kind,
        id=id,
        namespace=namespace,
        agent_id=agent,
        session_id=session,
        rev=rev,
        updated_at=at,
        body=decode_item(body),
    )


def encode_document(document: Document) -> list[bytes | int]:
    """What is kept of a document."""
    return [
        COMMIT_TICK,
        pack(
            [
                document.agent_id,
                document.session_id,
                document.rev,
                document.updated_at,
                codec.encode(document.body),
            ]
        ),
    ]


def decode_item(raw: bytes) -> Any:
    """One thing that was appended to a document."""
    return codec.decode(raw, codec.Frozen)


def decode_lease(raw: bytes) -> Lease:
    """Who holds a document."""
    owner, until, token = _unpack(raw[STAMP_LENGTH:])
    return Lease(owner=owner, until=until, token=token)


def encode_lease(lease: Lease) -> list[bytes | int]:
    """What is kept of a lease."""
    return [COMMIT_TICK, pack([lease.owner, lease.until, lease.token])]


def encode_change(id: str, op: str, rev: int, at: int) -> bytes:
    """A change, as the log tells it."""
    return pack([id, op, rev, at])


def decode_change(raw: bytes) -> tuple[str, str, int, int]:
    """The change in a line of the log."""
    id, op, rev, at = _unpack(raw)
    return id, op, rev, at
