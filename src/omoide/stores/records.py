"""Define the values that stores exchange, and how entries, their index data and page cursors are encoded.

A cursor encodes the position of the last entry of a page; clients treat it as opaque.

An entry is stored as a JSON object of the fields that differ from their defaults. Decoding skips validation,
because only validated entries are written: that is what makes listing fast. Arguments of operations are
checked before anything is read or written. Staleness is not part of the
bytes; it follows from the entry's dependencies and lies in its own column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple, TypeVar
from zlib import crc32

import msgspec

from omoide import clock, ids
from omoide.core import codec
from omoide.core.codec import Frozen, MapField, TextsField
from omoide.core.entry import (
    DEFAULT_NAMESPACE,
    Entry,
    Evidence,
    Filter,
    MessageRef,
    Passage,
    RecallRequest,
    Scope,
    WriteRequest,
    check_positive,
    passages_of,
)
from omoide.core.frozen import EMPTY_MAP, check_str, freeze, thaw
from omoide.core.value import (
    Count,
    Id,
    Millis,
    Moment,
    Name,
    Record,
    Value,
    check_count,
    check_instance,
    set_field,
    shallow_copy,
)
from omoide.embedders import Embedder, Embedding
from omoide.errors import Corrupted, EmbedderFailed, Invalid, OmoideError, WrongType
from omoide.retrieval import text
from omoide.retrieval.text import Features, extract_features

V = TypeVar("V", bound=Value)

CHUNK_WORDS = 150
"""Words per vector; longer content has several vectors."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode

_EMPTY_ENTRY = Entry(id="-", agent_id="-", content="-", created_at=0, rev=1)  # nothing is kept at revision 0
_REQUIRED_FIELDS = ("id", "agent_id", "content", "created_at")
_OPTIONAL_FIELDS = tuple(
    (field.name, getattr(_EMPTY_ENTRY, field.name))
    for field in msgspec.structs.fields(Entry)
    if field.name not in (*_REQUIRED_FIELDS, "metadata", "message", "evidence", "stale")
)
_EMPTY_MESSAGE = MessageRef(thread="-", seq=0)
_EMPTY_EVIDENCE = Evidence(kind="entry", ref="-")


class Finding(NamedTuple):
    """One result of a health check of a store."""

    name: str
    state: str
    """`ok`, `note` (acceptable) or `problem`."""
    detail: str


class Query(Record, frozen=True, kw_only=True):
    """A request for the entries of a scope, newest first, one page at a time."""

    LABEL: ClassVar[str] = "memory query"

    scope: Scope
    filter: Filter = Filter()
    limit: int = 50
    cursor: str | None = None
    as_of: Moment | None = None
    """Query the state at this time instead of the current one."""
    at: Moment = msgspec.field(default_factory=clock.now)

    def _check(self) -> None:
        check_positive(self.limit, "limit")


class Page(Value, frozen=True, kw_only=True):
    """One page of entries; `cursor` is None on the last page."""

    entries: tuple[Entry, ...] = ()
    cursor: str | None = None
    notices: TextsField = ()
    """Messages to the caller: of an empty page, where in the namespace there are memories."""


class Link(Value, frozen=True, kw_only=True):
    """A typed link from one entry to another in the same namespace."""

    source: Id
    relation: Name
    target: Id
    created_at: Millis = msgspec.field(default_factory=clock.now)

    def __post_init__(self) -> None:
        super().__post_init__()
        size = len(self.relation.encode())
        if size > ids.MAX_BYTES:
            raise Invalid("relation", f"has {size} bytes", f"use at most {ids.MAX_BYTES}")


class Version(Value, frozen=True, kw_only=True):
    """One version of an entry; an erased entry leaves a version with a reason and no content."""

    id: Id
    rev: Count
    at: Millis
    entry: Entry | None = None
    reason: str | None = None


class Change(Value, frozen=True, kw_only=True):
    """One record of the change log: what was done to which entry, without content."""

    seq: Count
    namespace: Id
    id: Id
    op: str
    """`write`, `supersede`, `restore`, `link`, `unlink`, `erase`, `stale` or `current`."""
    rev: Count
    at: Millis


class Feed(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of a namespace after a sequence number, with its current state."""

    generation: str
    """Identifies the history that sequence numbers refer to; it changes when a backup is restored."""
    seq: int
    """Sequence number up to which the feed is complete; may be below the requested one in another store."""
    after_fingerprint: str = ""
    """Fingerprint of the change at the requested number, to detect another history in a copied store."""
    seq_fingerprint: str = ""
    """Fingerprint of the change at `seq`."""
    more: bool = False
    """True if further changes follow `seq`."""
    entries: tuple[Entry, ...] = ()
    """The changed entries in their current state, each once."""
    links: tuple[Link, ...] = ()
    """All links whose source is one of these entries."""
    access: dict[str, Access] = {}
    """Access counts of the changed entries, and of those used since the requested time."""
    erased_ids: tuple[str, ...] = ()
    """Ids of erased entries, even if a new entry has the same id."""
    new_ids: frozenset[str] = frozenset()
    """Ids of entries that did not exist before."""


class EraseReceipt(Value, frozen=True, kw_only=True):
    """The receipt of an erasure: the number of things removed, and the places that were not reached."""

    ids: TextsField = ()
    versions: Count = 0
    links: Count = 0
    documents: Count = 0
    at: Millis = msgspec.field(default_factory=clock.now)
    reason: str | None = None
    scrubbed: bool = False
    """True if no trace of the content is left in the store's files."""
    pending: TextsField = ()
    """What `scrub` still has to do."""
    unreachable: TextsField = ()
    """Where copies may exist outside the store."""


class Stats(Value, frozen=True, kw_only=True):
    """Statistics of a scope; `embedder` and `size_bytes` are those of the whole store."""

    entries: Count = 0
    live: Count = 0
    superseded: Count = 0
    stale: Count = 0
    """Entries that depend on something invalid and are not superseded."""
    expired: Count = 0
    versions: Count = 0
    links: Count = 0
    by_type: MapField = EMPTY_MAP
    without_vectors: Count = 0
    embedder: str | None = None
    unchecked: Count = 0
    """Rows of the store that have no checksum yet: those that an older version wrote."""
    set_aside: Count = 0
    """Files with damaged rows that a repair set aside."""
    last_seq: Count = 0
    """Sequence number of the newest change in the namespace."""
    size_bytes: Count = 0


class Owner(Value, frozen=True, kw_only=True):
    """One user, agent and project that has memories, and how many."""

    namespace: Id
    user_id: Id | None = None
    agent_id: Id
    project_id: Id | None = None
    entries: Count = 0
    live: Count = 0
    """Entries that are not superseded, stale or expired."""


class ReindexResult(Value, frozen=True, kw_only=True):
    """The counts of a reindex."""

    embedder: str | None = None
    """The embedder whose vectors the store has now; None if it has none."""
    entries: Count = 0
    embedded: Count = 0
    """Entries that got new vectors."""
    updated_terms: Count = 0
    """Entries whose terms were those of another version."""
    given_vectors: Count = 0
    """Vectors that were supplied with entries; they are kept, also those of other embedders."""


class RepairResult(Value, frozen=True, kw_only=True):
    """What a repair found, restored and set aside."""

    entries: Count = 0
    """Entries that are sound now."""
    corrected: Count = 0
    """Those whose columns or terms were restored from their bodies."""
    checked: Count = 0
    """Rows of an older version that got a checksum."""
    set_aside: MapField = EMPTY_MAP
    """Number of damaged rows by table, that were moved to the file."""
    lost: MapField = EMPTY_MAP
    """Number of rows by table that could not be read at all, as far as it is known."""
    links: Count = 0
    """Links that were deleted, because an end is gone."""
    without_vectors: Count = 0
    """Entries that a reindex has to embed."""
    file: str | None = None
    """The file with the damaged rows; None if there are none."""


class Access(Value, frozen=True, kw_only=True):
    """The number of uses of an entry, and the time of the last."""

    count: Count = 0
    last: Millis | None = None


PINS_KIND = "pins"
"""Kind of the documents that list pinned memories by their ids, and quote none."""


class Document(Value, frozen=True, kw_only=True):
    """A document with revisions and a log, such as a session or a checkpoint."""

    kind: Id
    id: Id
    namespace: Id = DEFAULT_NAMESPACE
    user_id: Id | None = None
    agent_id: Id | None = None
    session_id: Id | None = None
    body: Frozen = None
    log: tuple[Frozen, ...] = ()
    """Appended items, oldest first."""
    rev: Count = 0
    updated_at: Millis = msgspec.field(default_factory=clock.now)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.log, (tuple, list)):
            raise WrongType("log", "a list", self.log)
        set_field(self, "log", tuple(freeze(item, f"log[{at}]") for at, item in enumerate(self.log)))

    @property
    def owner(self) -> Scope:
        """The scope that it belongs to."""
        return Scope(
            namespace=self.namespace,
            user_id=self.user_id,
            agent_id=self.agent_id,
            session_id=self.session_id,
        )


MAX_TTL_MS = 600_000
"""Longest time for which a lease can be claimed: its owner renews it within that time."""


class Lease(Value, frozen=True, kw_only=True):
    """Exclusive ownership of a document until a time; `token` grows with each owner (fencing token)."""

    owner: Id
    until: Millis
    """Its end by the clock of the owner, who may renew it."""
    token: Count
    ttl: Count = MAX_TTL_MS
    """Its length in milliseconds; others believe in it for no longer after they first saw it."""


def checksum(columns: Sequence[Any], body: bytes) -> int:
    """Return the checksum of a stored value and of the columns beside it; it finds damage, not forgery."""
    return crc32(body, crc32(_encode(columns)))


TOKEN_DIM = 64
"""Dimension of the vectors of single tokens, a byte each."""

DECODE_ERRORS = (
    msgspec.MsgspecError, TypeError, ValueError, AttributeError, LookupError, OverflowError, OmoideError
)  # fmt: skip
"""What decoding damaged bytes may raise."""

REPAIR_REMEDY = "run `omoide doctor --repair`, which sets it aside, or restore a backup"


def damaged(store: str, kind: str, id: object) -> Corrupted:
    """Return the error for a stored value that is damaged."""
    return Corrupted(store, f"has a damaged {kind} {id!r}", REPAIR_REMEDY, id=str(id))


def encode_cursor(*position: int) -> str:
    """Encode a position as a page cursor."""
    return "-".join([f"{part:x}" for part in position])


def decode_cursor(cursor: str, parts: int = 2) -> tuple[int, ...]:
    """Decode a page cursor; raise `Invalid` if it is malformed."""
    try:
        position = tuple(int(part, 16) for part in cursor.split("-"))
    except ValueError:
        position = ()
    if len(position) != parts or any(abs(part) >= 1 << 63 for part in position):
        raise Invalid("cursor", f"is {cursor!r}", "pass the cursor of the page before, or none")
    return position


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


_FIELD_DECODERS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("metadata", lambda value: codec.dec_hook(type(EMPTY_MAP), value)),
    ("tags", tuple),
    ("message", lambda value: _fill(_EMPTY_MESSAGE, value)),
    ("evidence", lambda value: tuple(_fill(_EMPTY_EVIDENCE, item) for item in value)),
)


def model_key(embedder: Embedder | None) -> str:
    """Return the stored name of an embedder; vectors under the same one can be compared."""
    return "" if embedder is None else f"{embedder.name}\x1f{embedder.dim}\x1f"


def parse_model_key(key: str | bytes) -> tuple[str, int]:
    """Return the name and the dimension of a stored embedder."""
    name, dim, _ = (key.decode() if isinstance(key, bytes) else key).split("\x1f")
    return name, int(dim)


def check_decoded(entry: Entry) -> None:
    """Raise one of `DECODE_ERRORS` unless a decoded entry is valid, which `decode_entry` does not check."""
    if Entry.new(codec.to_builtins(entry)) != entry:
        raise ValueError(entry.id)


class VectorSet(NamedTuple):
    """The vectors of an entry by one embedder."""

    model: str
    """The `model_key` of the embedder."""
    pooled: bytes
    tokens: bytes | None = None
    given: bool = False


class IndexData(NamedTuple):
    """Index data of an entry: its features and terms, and the vectors of its content."""

    features: bytes
    terms: tuple[int, ...]
    pooled: bytes | None = None
    tokens: bytes | None = None
    given: bool = False
    """True if the vector was supplied with the entry instead of computed by the store's embedder."""
    model: str = ""
    """The `model_key` of the embedder; SQL stores keep it elsewhere."""
    others: tuple[VectorSet, ...] = ()
    """Vectors by other embedders: those that a reindex prepares, and supplied ones."""

    def vectors_of(self, model: str) -> VectorSet | None:
        """Return the vectors by an embedder."""
        if self.pooled is not None and self.model == model:
            return VectorSet(model, self.pooled, self.tokens, self.given)
        return next((found for found in self.others if found.model == model), None)

    def with_vectors(self, found: VectorSet | None) -> IndexData:
        """Return the data with these vectors; supplied ones by other embedders stay beside them."""
        own = [] if self.pooled is None else [VectorSet(self.model, self.pooled, self.tokens, self.given)]
        model = "" if found is None else found.model
        given = [other for other in (*own, *self.others) if other.given and other.model != model]
        data = self._replace(pooled=None, tokens=None, given=False, model="", others=tuple(given))
        if found is None:
            return data
        return data._replace(pooled=found.pooled, tokens=found.tokens, given=found.given, model=found.model)

    def with_prepared(self, found: VectorSet) -> IndexData:
        """Return the data with vectors that another embedder prepared; those that serve stay."""
        given = [other for other in self.others if other.given and other.model != found.model]
        return self._replace(others=(*given, found))

    def count_given(self) -> int:
        """Return the number of supplied vectors."""
        return self.given + sum(other.given for other in self.others)

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
    model = model_key(embedder)
    data = [index_entry(entry, *vector) for entry, vector in zip(entries, vectors, strict=True)]
    return [one._replace(model=model) for one in data]


def index_entry(entry: Entry, pooled: bytes | None = None, tokens: bytes | None = None) -> IndexData:
    """Compute the index data of one entry from its text and given vectors."""
    extracted = features_of(entry)
    return IndexData(extracted.to_bytes(), extracted.terms, pooled, tokens)


def features_of(entry: Entry) -> Features:
    """Return the features of an entry: those of its text, and whether it says when it happened."""
    passages = passages_of(entry)
    if passages:
        return Features.join(tuple(extract_features(text) for text in _passage_texts(entry, passages)))
    features = extract_features(text_of(entry))
    # The time of a message is when it was said, and people tell of things afterwards.
    if entry.occurred_at is None or entry.message is not None:
        return features
    return features._replace(flags=features.flags | text.HAS_OCCURRED)


def _passage_texts(entry: Entry, passages: Sequence[Passage]) -> list[str]:
    """Return the indexed text of each passage; rationale and tags belong to the first."""
    first, *others = [passage.text for passage in passages]
    return [text_of(entry.replace(content=first)) if entry.rationale or entry.tags else first, *others]


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
        raise Invalid("vector", "is all zeros", "pass that of the content, or write without one")
    return index_entry(guarded, _float32(units[0]))._replace(given=True, model=model_key(embedder))


def embed_entries(entries: Sequence[Entry], embedder: Embedder) -> list[tuple[bytes, bytes | None]]:
    """Compute the vectors of entries; a long entry has several, concatenated."""
    # Chunks of each entry, passage by passage.
    chunked = [
        [text.chunks(part, max_words=CHUNK_WORDS) or [part] for part in _embedded_texts(entry)]
        for entry in entries
    ]
    vectors = iter(embed_texts([chunk for parts in chunked for part in parts for chunk in part], embedder))
    encoded = []
    for parts in chunked:
        own = [[next(vectors) for _ in part] for part in parts]
        # A row of zeros divides the vectors of passages, and those of their tokens.
        pooled = bytes(4 * embedder.dim).join(
            b"".join(_float32(vector.pooled) for vector in part) for part in own
        )
        tokens = [
            b"".join(_content_tokens(vector).tobytes() for vector in part if vector.tokens is not None)
            for part in own
        ]
        encoded.append((pooled, bytes(TOKEN_DIM).join(tokens) if any(tokens) else None))
    return encoded


def _embedded_texts(entry: Entry) -> list[str]:
    return [passage.text for passage in passages_of(entry)] or [entry.content]


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


# Arguments of operations


Check = Callable[[Any, str], Any]


def _check_list(value: object, field: str, *, check: Check | None = None) -> None:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise WrongType(field, "a list", value)
    if check is not None:
        if not isinstance(value, (list, tuple)):
            raise WrongType(field, "a list", value)
        for at, item in enumerate(value):
            check(item, f"{field}[{at}]")


def _check_optional(value: object, field: str, *, check: Check) -> None:
    if value is not None:
        check(value, field)


def _check_erased(value: object, field: str) -> None:
    if isinstance(value, (list, tuple)):
        if not value:  # which must not mean the whole scope, as None does
            raise Invalid(field, "is an empty list", "name the entries, or pass None for the whole scope")
        _check_list(value, field, check=ids.check)
    else:
        _check_optional(value, field, check=ids.check)


def _check_access(value: object, field: str) -> None:
    if not isinstance(value, Mapping):
        raise WrongType(field, "a mapping from ids to Access", value)
    for id, access in value.items():
        ids.check(id, field)
        check_instance(access, f"{field}[{id!r}]", kind=Access)


def _instance_check(kind: type) -> Check:
    return partial(check_instance, kind=kind)


def check_ttl(value: object, field: str) -> int:
    """Return the length of a lease in milliseconds, or raise `Invalid`."""
    ttl = check_positive(value, field)
    if ttl > MAX_TTL_MS:
        raise Invalid(field, f"is {value}", f"use at most {MAX_TTL_MS}, and renew it in time")
    return ttl


_PARAMETER_CHECKS: dict[str, Check] = {
    "scope": _instance_check(Scope),
    "id": ids.check,
    "kind": ids.check,
    "owner": ids.check,
    "namespace": ids.check,
    "link": _instance_check(Link),
    "query": _instance_check(Query),
    "document": _instance_check(Document),
    "requests": partial(_check_list, check=_instance_check(WriteRequest)),
    "ids": partial(_check_list, check=ids.check),
    "entries": _check_list,
    "by": partial(_check_optional, check=ids.check),
    "reason": partial(_check_optional, check=check_str),
    "relation": partial(_check_optional, check=check_str),
    "as_of": partial(_check_optional, check=clock.check),
    "used_since": partial(_check_optional, check=clock.check),
    "access": _check_access,
    "after": check_count,
    "until": partial(_check_optional, check=check_count),
    "limit": check_positive,
    "ttl_ms": check_ttl,
}
_ARGUMENT_CHECKS: dict[str, tuple[str, Check]] = {
    **{name: (name, check) for name, check in _PARAMETER_CHECKS.items()},
    "write_request": ("request", _instance_check(WriteRequest)),
    "recall_request": ("request", _instance_check(RecallRequest)),
    "optional_scope": ("scope", partial(_check_optional, check=_instance_check(Scope))),
    "erased": ("id", _check_erased),
    "after_id": ("after", partial(_check_optional, check=ids.check)),
    "imported_entries": ("entries", partial(_check_list, check=_instance_check(Entry))),
    "imported_links": ("links", partial(_check_list, check=_instance_check(Link))),
}


def check_arguments(**arguments: object) -> None:
    """Check the arguments of a store operation before it changes anything.

    Keywords are those of the operations, or a name of `_ARGUMENT_CHECKS` where operations differ in what
    they accept under one name.

    Raises:
        Invalid: An argument has the wrong type or value; the message names the parameter.
    """
    for name, value in arguments.items():
        field, check = _ARGUMENT_CHECKS[name]
        check(value, field)
