"""How is what is kept written down in Redis?

Each value that several may change begins with a stamp of sixteen digits, another one after every change, so
that a script can tell at a glance whether it is still what somebody read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from omoide.core import codec
from omoide.core.entry import Entry
from omoide.core.writing import WriteRequest
from omoide.stores import bodies, rules
from omoide.stores.indexing import Indexed
from omoide.stores.records import Document, Lease, Version
from omoide.stores.reference_state import DocumentKey, Receipt
from omoide.stores.standing import Flip

STAMP = 16
NOW = 0
"""In a command, stands for the number of the commit; a number above it for that of a change in it."""

Arg = bytes | str | int | list[bytes | int]

pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder().decode


def digits(number: int) -> bytes:
    """A number as stamps are written."""
    return b"%016d" % number


class Row(NamedTuple):
    """An entry as it is kept."""

    written: int
    no: int
    first: int
    version: Version
    model: str
    given: bool
    flips: list[Flip]


def row(raw: bytes, id: str) -> Row:
    """The entry in a value of `rows`."""
    first, at, model, given, flips, body = _unpack(raw[3 * STAMP :])
    entry = bodies.unpack(body)
    return Row(
        int(raw[STAMP : 2 * STAMP]),
        int(raw[2 * STAMP : 3 * STAMP]),
        first,
        version(id, at, entry),
        model,
        given,
        [Flip(*flip) for flip in flips],
    )


def put_row(
    first: int, last: Version, model: str, given: bool, flips: Sequence[Flip]
) -> bytes:  # fmt: skip
    """What stands in `rows` after the three numbers."""
    assert last.entry is not None
    return pack([first, last.at, model, given, flips, bodies.pack(last.entry)])


def version(id: str, at: int, entry: Entry) -> Version:
    """A version of an entry."""
    return Version(id=id, rev=entry.rev, at=at, entry=entry)


def past(raw: bytes, id: str) -> Version:
    """The version in a value of `past`."""
    at, body = _unpack(raw)
    return version(id, at, bodies.unpack(body))


def put_past(old: Version) -> bytes:
    """A version that is not the last one any more."""
    assert old.entry is not None
    return pack([old.at, bodies.pack(old.entry)])


def found(raw: bytes | None) -> tuple[str, Indexed]:
    """Whose vectors a value of `found` holds, and what an entry is found by."""
    if raw is None:
        return "", Indexed(b"", ())
    model, features, pooled, tokens, given = _unpack(raw)
    return model, Indexed(features, (), pooled or None, tokens or None, given)


def put_found(model: str, one: Indexed) -> bytes:
    """What an entry is found by."""
    return pack([model, one.features, one.pooled or b"", one.tokens or b"", one.given])


def stones(raw: bytes, id: str, namespace: str) -> list[tuple[Entry, Version]]:
    """The tombstones in a value of `stones`, each with an empty entry that says whose it was."""
    return [
        (
            Entry(
                id=id, agent_id=agent, session_id=session, project_id=project, namespace=namespace,
                content="-", created_at=0,
            ),
            Version(id=id, rev=rev, at=at, reason=reason),
        )
        for agent, session, project, rev, at, reason in _unpack(raw[STAMP:])
    ]  # fmt: skip


def put_stones(told: Sequence[tuple[Entry, Version]]) -> list[bytes | int]:
    """The tombstones of an id."""
    plain = [
        (like.agent_id, like.session_id, like.project_id, stone.rev, stone.at, stone.reason)
        for like, stone in told
    ]
    return [NOW, pack(plain)]


def receipt(raw: bytes) -> Receipt:
    """What was answered under an idempotency key."""
    print_, outcome, at, stale, body = _unpack(raw[STAMP:])
    entry = bodies.unpack(body)
    entry = rules.changed(entry, stale=True) if stale else entry
    return print_, rules.receipt(WriteRequest(entry=entry), entry, outcome), at


def put_receipt(given: Receipt) -> list[bytes | int]:
    """What is remembered of an answer."""
    print_, result, at = given
    entry = result.entry
    return [NOW, pack([print_, result.outcome, at, entry.stale, bodies.pack(entry)])]


def document(raw: bytes, key: DocumentKey) -> Document:
    """A document without its log."""
    agent, session, rev, at, body = _unpack(raw[STAMP:])
    namespace, kind, id = key
    return Document(
        kind=kind,
        id=id,
        namespace=namespace,
        agent_id=agent,
        session_id=session,
        rev=rev,
        updated_at=at,
        body=item(body),
    )


def put_document(one: Document) -> list[bytes | int]:
    """What is kept of a document."""
    return [NOW, pack([one.agent_id, one.session_id, one.rev, one.updated_at, codec.encode(one.body)])]


def item(raw: bytes) -> Any:
    """One thing that was appended to a document."""
    return codec.decode(raw, codec.Frozen)


def lease(raw: bytes) -> Lease:
    """Who holds a document."""
    owner, until, token = _unpack(raw[STAMP:])
    return Lease(owner=owner, until=until, token=token)


def put_lease(one: Lease) -> list[bytes | int]:
    """What is kept of a lease."""
    return [NOW, pack([one.owner, one.until, one.token])]


def note(id: str, op: str, rev: int, at: int) -> bytes:
    """A change, as the log tells it."""
    return pack([id, op, rev, at])


def noted(raw: bytes) -> tuple[str, str, int, int]:
    """The change in a line of the log."""
    id, op, rev, at = _unpack(raw)
    return id, op, rev, at
