"""Entry bytes and index terms.

As a JSON object of the fields that are not at their defaults. What comes back was checked when it was
written, so it is put together without being checked again: that is what makes listing entries fast. Whether
an entry is stale is no part of it: that is decided by what it rests on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from omoide.core import codec
from omoide.core.entry import Entry, Evidence, MessageRef
from omoide.core.frozen import EMPTY_MAP, thaw
from omoide.core.value import Value, copied, force
from omoide.embedders import Embedded, Embedder
from omoide.errors import EmbedderFailed, Invalid
from omoide.retrieval import features, text

# bodies: How does a store write an entry down?


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


# indexing: What does a store keep of an entry beside the entry itself, so that it can be found?


CHUNK = 150
"""Words that one vector stands for; longer content has several."""


class Indexed(NamedTuple):
    """What is found of an entry: its terms, and the vectors of its content."""

    features: bytes
    terms: tuple[int, ...]
    pooled: bytes | None = None
    tokens: bytes | None = None
    given: bool = False
    """Whether the vector came with the entry, and not from the store's embedder."""

    def postings(self, owner: int, no: int) -> list[tuple[int, int, int, int]]:
        """Each term of an entry with how often it occurs."""
        return [(owner, term, no, count) for term, count in Counter(self.terms).items()]


def text_of(entry: Entry) -> str:
    """The words by which an entry is found: what it says, why, and its tags."""
    if entry.rationale is None and not entry.tags:
        return entry.content
    return "\n".join([entry.content, entry.rationale or "", " ".join(entry.tags)])


def index(entries: Sequence[Entry], embedder: Embedder | None) -> list[Indexed]:
    """What is kept of each entry."""
    vectors: Sequence[tuple[bytes | None, bytes | None]]
    vectors = [(None, None)] * len(entries) if embedder is None else embed(entries, embedder)
    return [indexed(entry, *found) for entry, found in zip(entries, vectors, strict=True)]


def indexed(entry: Entry, pooled: bytes | None = None, tokens: bytes | None = None) -> Indexed:
    """What is kept of one entry."""
    read = features.read(text_of(entry))
    return Indexed(read.to_bytes(), read.terms, pooled, tokens)


def with_vector(asked: Entry, admitted: Entry, vector: object, embedder: Embedder | None) -> Indexed:
    """What is kept of an entry that comes with its own vector, if the store can compare that with others."""
    if embedder is None:
        raise Invalid("vector", "cannot be kept: the store has no embedder", "open it with one")
    if asked.content != admitted.content:
        raise Invalid("vector", "is of content that the store's guard changed", "embed what it lets pass")
    from omoide.embedders.vectors import rows  # needs NumPy, as every embedder does

    try:
        units = rows("vector", [thaw(vector)], 1, None)
    except EmbedderFailed as error:
        raise Invalid("vector", "is no list of finite numbers", "pass one number after another") from error
    size, dim = units.shape[1], embedder.dim
    if size != dim:
        raise Invalid("vector", f"has {size} numbers, and those of {embedder.name} {dim}", "use that model")
    if not units.any():
        raise Invalid("vector", "is all zeros", "leave it out")
    return indexed(admitted, _float32(units[0]))._replace(given=True)


def embed(entries: Sequence[Entry], embedder: Embedder) -> list[tuple[bytes, bytes | None]]:
    """The vectors of each entry, those of a long one after another."""
    pieces = [text.chunks(entry.content, words=CHUNK) or [entry.content] for entry in entries]
    flat = embedded([piece for parts in pieces for piece in parts], embedder)
    found, at = [], 0
    for parts in pieces:
        mine = flat[at : at + len(parts)]
        at += len(parts)
        pooled = b"".join(_float32(one.pooled) for one in mine)
        tokens = [_telling(one).tobytes() for one in mine if one.tokens is not None]
        found.append((pooled, b"".join(tokens) if tokens else None))
    return found


def embedded(texts: Sequence[str], embedder: Embedder, *, query: bool = False) -> list[Embedded]:
    """The vectors of some texts, if the embedder keeps what it promised."""
    from omoide.embedders.vectors import checked  # needs NumPy, as every embedder does

    return checked(embedder, texts, query=query)


def _telling(one: Embedded) -> Any:
    """The token vectors that say something: those of stop words and marks are never asked for."""
    return one.tokens if one.tokens is None or one.words is None else one.tokens[text.content(one.words)]


def _float32(vector: Any) -> bytes:
    return bytes(vector.astype("<f4", copy=False).tobytes())
