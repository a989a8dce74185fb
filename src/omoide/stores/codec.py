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
from omoide.core.value import Value, set_field, shallow_copy
from omoide.embedders import Embedder, Embedding
from omoide.errors import EmbedderFailed, Invalid
from omoide.retrieval import text
from omoide.retrieval.text import extract_features

# bodies: How does a store write an entry down?


V = TypeVar("V", bound=Value)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode

_EMPTY_ENTRY = Entry(id="-", agent_id="-", content="-", created_at=0, rev=1)  # nothing is kept at revision 0
_REQUIRED_FIELDS = ("id", "agent_id", "content", "created_at")
_OPTIONAL_FIELDS = tuple(
    (field.name, getattr(_EMPTY_ENTRY, field.name))
    for field in msgspec.structs.fields(Entry)
    if field.name not in (*_REQUIRED_FIELDS, "metadata", "message", "evidence", "stale")
)


def encode_entry(entry: Entry) -> bytes:
    """The bytes to keep."""
    said: dict[str, Any] = {name: getattr(entry, name) for name in _REQUIRED_FIELDS}
    for name, default in _OPTIONAL_FIELDS:
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


def decode_entry(body: bytes | str) -> Entry:
    """The entry that was kept."""
    entry = shallow_copy(_EMPTY_ENTRY)
    said = _decode(body)
    for name, read in _FIELD_DECODERS:
        if name in said:
            set_field(entry, name, read(said.pop(name)))
    for name, value in said.items():
        set_field(entry, name, value)
    return entry


def _fill(empty: V, fields: dict[str, Any]) -> V:
    new = shallow_copy(empty)
    for name, value in fields.items():
        set_field(new, name, value)
    return new


_EMPTY_MESSAGE = MessageRef(thread="-", seq=0)
_EMPTY_EVIDENCE = Evidence(kind="entry", ref="-")

_FIELD_DECODERS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("metadata", lambda value: codec.dec_hook(type(EMPTY_MAP), value)),
    ("tags", tuple),
    ("message", lambda value: _fill(_EMPTY_MESSAGE, value)),
    ("evidence", lambda value: tuple(_fill(_EMPTY_EVIDENCE, item) for item in value)),
)


# indexing: What does a store keep of an entry beside the entry itself, so that it can be found?


CHUNK_WORDS = 150
"""Words that one vector stands for; longer content has several."""


class IndexData(NamedTuple):
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


def index_entries(entries: Sequence[Entry], embedder: Embedder | None) -> list[IndexData]:
    """What is kept of each entry."""
    vectors: Sequence[tuple[bytes | None, bytes | None]]
    vectors = [(None, None)] * len(entries) if embedder is None else embed_entries(entries, embedder)
    return [index_entry(entry, *found) for entry, found in zip(entries, vectors, strict=True)]


def index_entry(entry: Entry, pooled: bytes | None = None, tokens: bytes | None = None) -> IndexData:
    """What is kept of one entry."""
    read = extract_features(text_of(entry))
    return IndexData(read.to_bytes(), read.terms, pooled, tokens)


def index_with_vector(
    original: Entry, guarded: Entry, vector: object, embedder: Embedder | None
) -> IndexData:
    """What is kept of an entry that comes with its own vector, if the store can compare that with others."""
    if embedder is None:
        raise Invalid("vector", "cannot be kept: the store has no embedder", "open it with one")
    if original.content != guarded.content:
        raise Invalid("vector", "is of content that the store's guard changed", "embed what it lets pass")
    from omoide.embedders.vectors import to_unit_rows  # needs NumPy, as every embedder does

    try:
        units = to_unit_rows("vector", [thaw(vector)], 1, None)
    except EmbedderFailed as error:
        raise Invalid("vector", "is no list of finite numbers", "pass one number after another") from error
    size, dim = units.shape[1], embedder.dim
    if size != dim:
        raise Invalid("vector", f"has {size} numbers, and those of {embedder.name} {dim}", "use that model")
    if not units.any():
        raise Invalid("vector", "is all zeros", "leave it out")
    return index_entry(guarded, _float32(units[0]))._replace(given=True)


def embed_entries(entries: Sequence[Entry], embedder: Embedder) -> list[tuple[bytes, bytes | None]]:
    """The vectors of each entry, those of a long one after another."""
    pieces = [text.chunks(entry.content, max_words=CHUNK_WORDS) or [entry.content] for entry in entries]
    flat = embed_texts([piece for parts in pieces for piece in parts], embedder)
    found, at = [], 0
    for parts in pieces:
        mine = flat[at : at + len(parts)]
        at += len(parts)
        pooled = b"".join(_float32(one.pooled) for one in mine)
        tokens = [_content_tokens(one).tobytes() for one in mine if one.tokens is not None]
        found.append((pooled, b"".join(tokens) if tokens else None))
    return found


def embed_texts(texts: Sequence[str], embedder: Embedder, *, query: bool = False) -> list[Embedding]:
    """The vectors of some texts, if the embedder keeps what it promised."""
    from omoide.embedders.vectors import embed_and_validate  # needs NumPy, as every embedder does

    return embed_and_validate(embedder, texts, query=query)


def _content_tokens(vectors: Embedding) -> Any:
    """The token vectors that say something: those of stop words and marks are never asked for."""
    return (
        vectors.tokens
        if vectors.tokens is None or vectors.words is None
        else vectors.tokens[text.content_token_indexes(vectors.words)]
    )


def _float32(vector: Any) -> bytes:
    return bytes(vector.astype("<f4", copy=False).tobytes())
