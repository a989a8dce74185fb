"""How does a store write an entry down?

As a JSON object of the fields that are not at their defaults. What comes back was checked when it was
written, so it is put together without being checked again: that is what makes listing entries fast. Whether
an entry is stale is no part of it: that is decided by what it rests on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from omoide.core import codec
from omoide.core.entry import Entry, Evidence, MessageRef
from omoide.core.frozen import EMPTY_MAP
from omoide.core.value import Value, copied, force

V = TypeVar("V", bound=Value)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode

_EMPTY = Entry(id="-", agent_id="-", content="-", created_at=0, rev=1)  # nothing is kept at revision 0
_ALWAYS = ("id", "agent_id", "content", "created_at")
_PLAIN = tuple(
    (field.name, getattr(_EMPTY, field.name))
    for field in msgspec.structs.fields(Entry)
    if field.name not in (*_ALWAYS, "metadata", "message", "evidence", "stale")
)


def pack(entry: Entry) -> bytes:
    """The bytes to keep."""
    said: dict[str, Any] = {name: getattr(entry, name) for name in _ALWAYS}
    for name, default in _PLAIN:
        value = getattr(entry, name)
        if value != default:
            said[name] = value
    if entry.metadata:
        said["metadata"] = codec.dump(entry.metadata)
    if entry.message is not None:
        said["message"] = {name: value for name, value in _items(entry.message) if value is not None}
    if entry.evidence:
        said["evidence"] = entry.evidence
    return _encode(said)


def _items(message: MessageRef) -> list[tuple[str, Any]]:
    return [(name, getattr(message, name)) for name in MessageRef.__struct_fields__]


def unpack(body: bytes | str) -> Entry:
    """The entry that was kept."""
    entry = copied(_EMPTY)
    said = _decode(body)
    for name, read in _READERS:
        if name in said:
            force(entry, name, read(said.pop(name)))
    for name, value in said.items():
        force(entry, name, value)
    return entry


def _filled(empty: V, fields: dict[str, Any]) -> V:
    new = copied(empty)
    for name, value in fields.items():
        force(new, name, value)
    return new


_NOTHING = MessageRef(thread="-", seq=0)
_NOWHERE = Evidence(kind="entry", ref="-")

_READERS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("metadata", lambda value: codec.dec_hook(type(EMPTY_MAP), value)),
    ("tags", tuple),
    ("message", lambda value: _filled(_NOTHING, value)),
    ("evidence", lambda value: tuple(_filled(_NOWHERE, item) for item in value)),
)
