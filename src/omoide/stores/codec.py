"""Encode entries as bytes and compute their index data.

An entry is stored as a JSON object of the fields that differ from their defaults. Decoding skips validation,
because only validated entries are written: that is what makes listing fast. Staleness is not part of the
bytes; it follows from the entry's dependencies and lies in its own column.
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
    """Encode an entry."""
    fields: dict[str, Any] = {name: getattr(entry, name) for name in _REQUIRED_FIELDS}
    for name, default in _OPTIONAL_FIELDS:
        value = getattr(entry, name)
        if value != default:
            fields[name] = value
    if entry.metadata:
        fields["metadata"] = codec.dump(entry.metadata)
    if entry.message is not None:
        fields["message"] = {name: value for name, value in _items(entry.message) if value is not None}
    if entry.evidence:
        fields["evidence"] = entry.evidence
    return _encode(fields)


def _items(message: MessageRef) -> list[tuple[str, Any]]:
    """Return the fields of a message reference."""
    return [(name, getattr(message, name)) for name in MessageRef.__struct_fields__]


def decode_entry(body: bytes | str) -> Entry:
    """Decode an entry without validating it again."""
    entry = shallow_copy(_EMPTY_ENTRY)
    fields = _decode(body)
    for name, decode in _FIELD_DECODERS:
        if name in fields:
            set_field(entry, name, decode(fields.pop(name)))
    for name, value in fields.items():
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


CHUNK_WORDS = 150
"""Words per vector; longer content has several vectors."""


class IndexData(NamedTuple):
    """Index data of an entry: its features and terms, and the vectors of its content."""

    features: bytes
    terms: tuple[int, ...]
    pooled: bytes | None = None
    tokens: bytes | None = None
    given: bool = False
    """True if the vector was supplied with the entry instead of computed by the store's embedder."""

    def postings(self, owner: int, no: int) -> list[tuple[int, int, int, int]]:
        """Return the postings of an entry: each term with its frequency."""
        return [(owner, term, no, count) for term, count in Counter(self.terms).items()]


def text_of(entry: Entry) -> str:
    """Return the indexed text of an entry: content, rationale and tags."""
    if entry.rationale is None and not entry.tags:
        return entry.content
    return "\n".join([entry.content, entry.rationale or "", " ".join(entry.tags)])


def index_entries(entries: Sequence[Entry], embedder: Embedder | None) -> list[IndexData]:
    """Compute the index data of entries."""
    vectors: Sequence[tuple[bytes | None, bytes | None]]
    vectors = [(None, None)] * len(entries) if embedder is None else embed_entries(entries, embedder)
    return [index_entry(entry, *vector) for entry, vector in zip(entries, vectors, strict=True)]


def index_entry(entry: Entry, pooled: bytes | None = None, tokens: bytes | None = None) -> IndexData:
    """Compute the index data of one entry from its text and given vectors."""
    extracted = extract_features(text_of(entry))
    return IndexData(extracted.to_bytes(), extracted.terms, pooled, tokens)


def index_with_vector(
    original: Entry, guarded: Entry, vector: object, embedder: Embedder | None
) -> IndexData:
    """Compute the index data of an entry that comes with its own vector.

    Args:
        original: The entry as the caller passed it, which the vector belongs to.
        guarded: The entry as the guard returned it, which is stored.

    Raises:
        Invalid: The store has no embedder, the guard changed the content, or the vector does not fit.
    """
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
    """Compute the vectors of entries; a long entry has several, concatenated."""
    chunked = [text.chunks(entry.content, max_words=CHUNK_WORDS) or [entry.content] for entry in entries]
    vectors = embed_texts([chunk for parts in chunked for chunk in parts], embedder)
    encoded, start = [], 0
    for parts in chunked:
        own = vectors[start : start + len(parts)]
        start += len(parts)
        pooled = b"".join(_float32(vector.pooled) for vector in own)
        tokens = [_content_tokens(vector).tobytes() for vector in own if vector.tokens is not None]
        encoded.append((pooled, b"".join(tokens) if tokens else None))
    return encoded


def embed_texts(texts: Sequence[str], embedder: Embedder, *, query: bool = False) -> list[Embedding]:
    """Embed texts and validate what the embedder returned."""
    from omoide.embedders.vectors import embed_and_validate  # needs NumPy, as every embedder does

    return embed_and_validate(embedder, texts, query=query)


def _content_tokens(vectors: Embedding) -> Any:
    """Return the token vectors of content words; those of stop words and punctuation are never queried."""
    return (
        vectors.tokens
        if vectors.tokens is None or vectors.words is None
        else vectors.tokens[text.content_token_indexes(vectors.words)]
    )


def _float32(vector: Any) -> bytes:
    return bytes(vector.astype("<f4", copy=False).tobytes())
