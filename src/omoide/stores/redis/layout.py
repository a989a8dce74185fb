"""Define the keys of a store on Redis, and encode and decode its values.

Every key of a namespace has the namespace in braces as its hash tag, so that a cluster keeps all of them in
one slot and one script can change them. Keys of the store as a whole have a tag of their own.

Schema 2 added `slots`, and a last field to tombstones, documents, their owners and receipts: the user, and
what a write superseded. Values of schema 1 end before it, and are decoded without it. Schema 3 put a checksum
before entries, versions, documents and the items of their logs, and the length at the end of leases; older
values have neither.

Each value that several writers may change begins with a stamp of sixteen digits, a new one after every
change, so that a script can compare it with what was read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote
from zlib import crc32

import msgspec

from omoide.core import codec
from omoide.core.entry import Entry, Scope, WriteRequest
from omoide.errors import WrongVersion
from omoide.stores import semantics
from omoide.stores.records import (
    DECODE_ERRORS,
    MAX_TTL_MS,
    TOKEN_DIM,
    Document,
    IndexData,
    Lease,
    Link,
    VectorSet,
    Version,
    decode_entry,
    encode_entry,
    index_entry,
    parse_model_key,
)
from omoide.stores.semantics import StaleTransition
from omoide.stores.state import DocumentKey, Receipt

DEFAULT_PREFIX = "omoide:"
"""Prefix of all keys, unless the URL names another."""

SEPARATOR = "\x1f"
"""Separates ids, which have no control characters."""

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
    "slots": "hash",
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
"""The Redis type of each key, by the word after the namespace:

`meta` counters; `rows` entries; `found` their index data; `past` their older versions; `all` live entries, by
commit; `time` all entries, by time; `gone` entries that are no longer live, by commit; `expiry` live entries,
by expiry; `same` ids by content; `slots` the id that fills each slot; `on` dependents of an id; `links`,
`ends` links, and links of an entry; `invalid` number of invalidating links; `stones` tombstones; `receipts`,
`keys`, `kept` receipts by idempotency key, keys by entry, and keys by time; `access`, `used` count and time
of uses; `docs`, `owners`, `doclog`, `kind`, `kinds`, `leases` documents; `log` changes; `watch` stamps of
what is read together; `gate` lock; `done` last commit of a writer.
"""


_GLOB_CHARACTERS, _ESCAPED = re.compile(r"([\\*?\[\]^-])"), r"\\\1"


class NamespaceKeys:
    """The keys of one namespace."""

    def __init__(self, prefix: str, namespace: str) -> None:
        self._prefix = f"{prefix}{{n{escape_namespace(namespace)}}}:"

    def __call__(self, name: str, part: str = "") -> bytes:
        return f"{self._prefix}{name}{':' if part else ''}{part}".encode()

    def type_of(self, key: bytes) -> str:
        """Return the Redis type of a key."""
        return KEY_TYPES[self.split(key)[0]]

    def split(self, key: bytes) -> tuple[str, str]:
        """Return the name of a key, and its part."""
        name, _, part = key[len(self._prefix.encode()) :].decode(errors="replace").partition(":")
        return name, part

    @property
    def pattern(self) -> str:
        """The pattern of all keys of the namespace."""
        return f"{_GLOB_CHARACTERS.sub(_ESCAPED, self._prefix)}*"


SCHEMA_VERSION = 3
"""2 added users and keys, 3 checksums. Older stores can be read; opened for writing they become one of 3."""


def check_schema(stored: bytes | None, name: str) -> None:
    """Raise `WrongVersion` for the number of a schema of a newer Omoide."""
    if stored is not None and not (stored.isdigit() and 1 <= int(stored) <= SCHEMA_VERSION):
        problem = f"has schema {decode_text(stored)}, and this Omoide knows schemas up to {SCHEMA_VERSION}"
        raise WrongVersion(name, problem, "use the newer Omoide that made it; nothing was changed")


def store_key(prefix: str, name: str) -> bytes:
    """Return a key of the store as a whole."""
    return f"{prefix}{{store}}:{name}".encode()


def escape_namespace(namespace: str) -> str:
    """Return a namespace without characters that have a meaning in keys."""
    return quote(namespace, safe="")


def is_valid_prefix(text: str) -> bool:
    """Return whether a text can be the prefix of all keys; braces would be a hash tag."""
    return bool(re.fullmatch(r"[^{}\s\x00-\x1f\x7f]{1,64}", text))


def partitions_of(entry: Entry) -> list[str]:
    """Return the partitions of the indexes that contain an entry: all, those of its owner, and of its key."""
    own = (
        ("u", entry.user_id),
        ("a", entry.agent_id),
        ("s", entry.session_id),
        ("p", entry.project_id),
        ("k", entry.key),
    )
    return ["*", *(f"{letter}{id}" for letter, id in own if id is not None)]


def partition_for(scope: Scope) -> str:
    """Return the smallest partition that contains a scope."""
    keys = (("s", scope.session_id), ("u", scope.user_id), ("p", scope.project_id), ("a", scope.agent_id))
    for letter, id in keys:
        if id is not None:
            return f"{letter}{id}"
    return "*"


def key_partition(key: str) -> str:
    """Return the partition of the entries with a key."""
    return f"k{key}"


def slot_field(entry: Entry) -> bytes:
    """Return the field of `slots` for the slot of an entry."""
    return join_ids(
        entry.agent_id, entry.user_id or "", entry.session_id or "", entry.project_id or "", entry.key or ""
    )


def watch_field(id: str) -> str:
    """Return the field of `watch` for what refers to an id: links, dependents and receipts."""
    return f"i{id}"


def join_ids(*parts: str) -> bytes:
    """Join ids to one field; only the last part may be any text."""
    return SEPARATOR.join(parts).encode()


def split_ids(field: bytes, parts: int) -> list[str]:
    """Split a field into its parts; a damaged one may have fewer."""
    return decode_text(field).split(SEPARATOR, parts - 1)


def decode_text(raw: bytes | None) -> str:
    """Decode an id or a name; a damaged one names nothing that exists."""
    return (raw or b"").decode(errors="replace")


def decode_ids(raw_ids: Iterable[bytes]) -> list[str]:
    """Decode the ids of a reply."""
    return [decode_text(id) for id in raw_ids]


def member_id(member: bytes) -> str:
    """Return the id in a value that begins with a stamp or a number."""
    return decode_text(member[STAMP_LENGTH:])


def member_ids(raw: bytes) -> list[str]:
    """Return the ids of a value of `same`."""
    return [id for id in member_id(raw).split(SEPARATOR) if id]


def embedder_name(model: str) -> str:
    """Return the name of the embedder of a model key; the key itself if it is damaged."""
    try:
        return parse_model_key(model)[0]
    except ValueError:
        return model


STAMP_LENGTH = 16
SEAL_POSITIONS = {"rows": 3 * STAMP_LENGTH, "past": 0, "docs": STAMP_LENGTH}
"""Where the checksum begins in the values of a hash; in the items of `doclog` it is the beginning."""
SEALED_SETTING = "sealed"
"""Setting of a store in which every value that can have a checksum has one."""

COMMIT_TICK = 0
"""Placeholder for the number of the commit; a number above it is that of a change in it."""

Argument = bytes | str | int | list[bytes | int]

pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


SEAL = b"\xc1"
"""Begins a value with a checksum; neither MessagePack nor JSON begins with it, so older values differ."""


def seal(name: bytes, value: bytes) -> bytes:
    """Put a checksum of a value, and of the field that it is stored under, before it."""
    return SEAL + crc32(value, crc32(name)).to_bytes(4, "big") + value


def is_sealed(raw: bytes) -> bool:
    """Return True if a value has a checksum."""
    return raw[:1] == SEAL


def unseal(name: bytes, raw: bytes) -> bytes:
    """Return a value without its checksum; those of schemas 1 and 2 have none.

    Raises:
        ValueError: The value does not agree with its checksum.
    """
    if not is_sealed(raw):
        return raw
    if crc32(raw[5:], crc32(name)).to_bytes(4, "big") != raw[1:5]:
        raise ValueError("the checksum differs")
    return raw[5:]


def to_digits(number: int) -> bytes:
    """Format a number as a stamp."""
    return b"%016d" % number


class EntryRow(NamedTuple):
    """The decoded value of `rows`."""

    written_seq: int
    number: int
    first_rev: int
    version: Version
    model: str
    has_custom_vector: bool
    transitions: list[StaleTransition]


def decode_row(raw: bytes, id: str) -> EntryRow:
    """Decode a value of `rows`."""
    first, at, model, given, flips, body = _unpack(unseal(id.encode(), raw[3 * STAMP_LENGTH :]))
    entry = decode_entry(body)
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
    """Encode a value of `rows`, without its three numbers."""
    assert last.entry is not None
    fields = [first_rev, last.at, model, has_custom_vector, transitions, encode_entry(last.entry)]
    return seal(last.id.encode(), pack(fields))


def version_of(id: str, at: int, entry: Entry) -> Version:
    """Return the version of an entry."""
    return Version(id=id, rev=entry.rev, at=at, entry=entry)


def decode_version(raw: bytes | None, id: str, rev: int) -> Version:
    """Decode a value of `past`."""
    if raw is None:
        raise ValueError("the version is missing")
    at, body = _unpack(unseal(id.encode(), raw))
    version = version_of(id, at, decode_entry(body))
    if version.rev != rev:
        raise ValueError("the revision differs")
    return version


def encode_version(old: Version) -> bytes:
    """Encode a value of `past`."""
    assert old.entry is not None
    return seal(old.id.encode(), pack([old.at, encode_entry(old.entry)]))


def decode_index_data(raw: bytes | None) -> IndexData:
    """Decode a value of `found`; it has no checksum, but what nothing could compute with is damaged."""
    if raw is None:
        return IndexData(b"", ())
    model, features, pooled, tokens, given, *others = _unpack(raw)
    data = IndexData(
        features,
        (),
        pooled or None,
        tokens or None,
        given,
        model,
        tuple(VectorSet(*other) for other in others),
    )
    if not (type(features) is bytes and len(features) % 8 == 0 != len(features)):
        raise ValueError("the features are damaged")
    for found in (VectorSet(model, data.pooled, data.tokens, given) if data.pooled else None, *data.others):
        if found is not None and not _is_sound(found):
            raise ValueError("a vector is damaged")
    return data


def _is_sound(found: VectorSet) -> bool:
    """Return True if vectors have the size that their embedder makes."""
    _, dim = parse_model_key(found.model)
    tokens = found.tokens or b""
    return (
        type(found.pooled) is type(tokens) is bytes
        and len(found.pooled) > 0 == len(found.pooled) % (4 * dim)
        and len(tokens) % TOKEN_DIM == 0
    )


def index_data_of(entry: Entry, raw: bytes | None) -> IndexData:
    """Return the index data of an entry; without vectors, from its text, if the stored one is damaged."""
    try:
        return decode_index_data(raw)
    except DECODE_ERRORS:
        return index_entry(entry)


def encode_index_data(data: IndexData) -> bytes:
    """Encode a value of `found`; vectors by other embedders follow those that serve."""
    return pack(
        [
            data.model,
            data.features,
            data.pooled or b"",
            data.tokens or b"",
            data.given,
            *map(list, data.others),
        ]
    )


def decode_link(field: bytes, raw: bytes) -> Link:
    """Decode a field and its value of `links`."""
    source, target, relation = field.decode().split(SEPARATOR, 2)
    return Link(source=source, relation=relation, target=target, created_at=int(raw))


def decode_tombstones(raw: bytes, id: str, namespace: str) -> list[tuple[Entry, Version]]:
    """Decode a value of `stones`: tombstones, each with an empty entry that carries the owner."""
    return [
        (
            Entry(
                id=id, user_id=next(iter(user), None), agent_id=agent, session_id=session,
                project_id=project, namespace=namespace, content="-", created_at=0,
            ),
            Version(id=id, rev=rev, at=at, reason=reason),
        )
        for agent, session, project, rev, at, reason, *user in _unpack(raw[STAMP_LENGTH:])
    ]  # fmt: skip


def encode_tombstones(tombstones: Sequence[tuple[Entry, Version]]) -> list[bytes | int]:
    """Encode a value of `stones`."""
    plain = [
        (like.agent_id, like.session_id, like.project_id, stone.rev, stone.at, stone.reason, like.user_id)
        for like, stone in tombstones
    ]
    return [COMMIT_TICK, pack(plain)]


def decode_receipt(raw: bytes) -> Receipt:
    """Decode a value of `receipts`."""
    fingerprint, outcome, at, stale, body, *superseded = _unpack(raw[STAMP_LENGTH:])
    entry = decode_entry(body)
    entry = semantics.replace_unchecked(entry, stale=True) if stale else entry
    request = WriteRequest(entry=entry)
    return fingerprint, semantics.write_result(request, entry, outcome, next(iter(superseded), None)), at


def encode_receipt(receipt: Receipt) -> list[bytes | int]:
    """Encode a value of `receipts`."""
    fingerprint, result, at = receipt
    entry = result.entry
    superseded = result.metadata.get("superseded")
    return [
        COMMIT_TICK,
        pack([fingerprint, result.outcome, at, entry.stale, encode_entry(entry), superseded]),
    ]


def decode_document(raw: bytes, key: DocumentKey) -> Document:
    """Decode a document without its log."""
    namespace, kind, id = key
    agent, session, rev, at, body, *user = _unpack(unseal(join_ids(kind, id), raw[STAMP_LENGTH:]))
    return Document(
        kind=kind,
        id=id,
        namespace=namespace,
        user_id=next(iter(user), None),
        agent_id=agent,
        session_id=session,
        rev=rev,
        updated_at=at,
        body=codec.decode(body, codec.Frozen),
    )


def encode_document(document: Document) -> list[bytes | int]:
    """Encode a document without its log."""
    fields = [
        document.agent_id,
        document.session_id,
        document.rev,
        document.updated_at,
        codec.encode(document.body),
        document.user_id,
    ]
    return [COMMIT_TICK, seal(join_ids(document.kind, document.id), pack(fields))]


def decode_owner(raw: bytes, namespace: str) -> Scope:
    """Decode the owner of a document."""
    agent, session, *user = (text or None for text in raw.decode().split(SEPARATOR, 2))
    return Scope(namespace=namespace, user_id=next(iter(user), None), agent_id=agent, session_id=session)


def encode_owner(document: Document) -> str:
    """Encode the owner of a document."""
    return SEPARATOR.join((document.agent_id or "", document.session_id or "", document.user_id or ""))


def decode_item(raw: bytes) -> Any:
    """Decode an item of the log of a document."""
    return codec.decode(unseal(b"", raw), codec.Frozen)


def encode_item(item: Any) -> bytes:
    """Encode an item of the log of a document."""
    return seal(b"", codec.encode(item))


def decode_lease(raw: bytes) -> Lease:
    """Decode a lease."""
    owner, until, token, *ttl = _unpack(raw[STAMP_LENGTH:])
    return Lease(owner=owner, until=until, token=token, ttl=next(iter(ttl), MAX_TTL_MS))


def encode_lease(lease: Lease) -> list[bytes | int]:
    """Encode a lease."""
    return [COMMIT_TICK, pack([lease.owner, lease.until, lease.token, lease.ttl])]


def encode_change(id: str, op: str, rev: int, at: int) -> bytes:
    """Encode a change for the log."""
    return pack([id, op, rev, at])


def decode_change(raw: bytes) -> tuple[str, str, int, int]:
    """Decode a change of the log."""
    id, op, rev, at = _unpack(raw)
    return id, op, rev, at
