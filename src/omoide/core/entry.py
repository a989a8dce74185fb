"""Values of the store contract: entries, scopes, and the requests and results of recall and write.

An `Entry` is one durable memory. Its type is one of the 25 types of the Jido ontology; the root,
`memory_item`, is the type of an untyped memory.

Every operation on a store, by id too, takes a `Scope`: namespace (tenant), user, agent and session, with the
project beside them. Each field that is set narrows it: an entry is inside if its namespace and every other
field set are equal to the scope's. A field that is None is left open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeAlias, TypedDict, Unpack

import msgspec

from omoide import clock, ids
from omoide.core.codec import MapField, TextsField
from omoide.core.frozen import EMPTY_MAP, check_text, value_type
from omoide.core.value import (
    Count,
    EndMoment,
    Id,
    Millis,
    Moment,
    Name,
    Record,
    Value,
    build_value,
    check_choice,
    check_count,
    check_instance,
    check_texts,
    check_tuple,
    check_unit,
    set_field,
)
from omoide.errors import Invalid, InvalidRecord, NotFound, WrongType

ROOT_TYPE = "memory_item"

PARENT_TYPES = MappingProxyType(
    {
        "fact": ROOT_TYPE,
        "assumption": ROOT_TYPE,
        "hypothesis": ROOT_TYPE,
        "discovery": ROOT_TYPE,
        "risk": ROOT_TYPE,
        "unknown": ROOT_TYPE,
        "decision": ROOT_TYPE,
        "architectural_decision": "decision",
        "implementation_decision": "decision",
        "alternative": ROOT_TYPE,
        "trade_off": ROOT_TYPE,
        "convention": ROOT_TYPE,
        "coding_standard": "convention",
        "architectural_convention": "convention",
        "agent_rule": "convention",
        "process_convention": "convention",
        "error": ROOT_TYPE,
        "bug": "error",
        "failure": "error",
        "incident": "error",
        "root_cause": ROOT_TYPE,
        "lesson_learned": ROOT_TYPE,
        "task": ROOT_TYPE,
        "milestone": ROOT_TYPE,
        "plan": ROOT_TYPE,
    }
)

MEMORY_TYPES = tuple(PARENT_TYPES)  # without the root, which stands for "untyped"

_WORDS_BY_TYPE = {
    "fact": "contact entity event experience habit information knowledge location note observation person "
    "place preference profile relationship skill",
    "assumption": "belief",
    "hypothesis": "guess idea theory",
    "discovery": "finding insight",
    "risk": "concern threat warning",
    "unknown": "open_question question",
    "decision": "choice",
    "alternative": "option",
    "trade_off": "tradeoff",
    "convention": "constraint guideline policy requirement rule standard",
    "agent_rule": "directive instruction",
    "process_convention": "procedure process workflow",
    "error": "issue problem",
    "failure": "crash",
    "incident": "outage",
    "root_cause": "cause",
    "lesson_learned": "learning lesson",
    "task": "action_item reminder todo",
    "milestone": "deadline",
    "plan": "goal intention strategy",
}
TYPE_WORDS = MappingProxyType(
    {word: name for name, words in _WORDS_BY_TYPE.items() for word in words.split()}
)
"""The type that an everyday word stands for: each is accepted where a type is, and stored as the type."""


def check_memory_type(name: object) -> str:
    """Return the type that a name or an everyday word stands for, or raise `NotFound` if there is none."""
    if isinstance(name, str):
        if name in PARENT_TYPES or name == ROOT_TYPE:
            return name
        if name in TYPE_WORDS:
            return TYPE_WORDS[name]
    words = "preference, event, person or instruction"
    raise NotFound("memory type", name, f"use one of {', '.join(MEMORY_TYPES)}, or a word such as {words}")


def check_type(name: object, field: str = "type") -> str:
    """Return a memory type like `check_memory_type`, or raise `Invalid` that names the field."""
    try:
        return check_memory_type(name)
    except NotFound as error:
        raise Invalid(field, f"is {name!r}", error.remedy) from error


def supertypes(name: str) -> tuple[str, ...]:
    """Return the types that a type refines, nearest first, up to the root."""
    names = []
    while (name := check_memory_type(name)) != ROOT_TYPE:
        name = PARENT_TYPES[name]
        names.append(name)
    return tuple(names)


def with_subtypes(name: str) -> tuple[str, ...]:
    """Return the type and all types that refine it."""
    name = check_memory_type(name)
    return (name, *(other for other in MEMORY_TYPES if name in supertypes(other)))


def ontology_class(name: str) -> str:
    """Return the name of the class in the ontology: `TradeOff` for `trade_off`."""
    return "".join(part.capitalize() for part in check_memory_type(name).split("_"))


DEFAULT_NAMESPACE = "default"


class Scope(Record, frozen=True, kw_only=True):
    """The part of a store that an operation sees."""

    LABEL: ClassVar[str] = "scope"

    agent_id: Id | None = None
    session_id: Id | None = None
    project_id: Id | None = None
    namespace: Id = DEFAULT_NAMESPACE
    user_id: Id | None = None

    def contains(self, entry: Any) -> bool:
        """Return True if an entry, or any other value with the fields of a scope, is inside."""
        return (
            entry.namespace == self.namespace
            and self.user_id in (None, entry.user_id)  # None does not narrow the scope
            and self.agent_id in (None, entry.agent_id)
            and self.session_id in (None, entry.session_id)
            and self.project_id in (None, entry.project_id)
        )

    def describe(self) -> str:
        """Return the fields that are set, as in `namespace default, agent support`."""
        fields = {
            "namespace": self.namespace,
            "user": self.user_id,
            "agent": self.agent_id,
            "project": self.project_id,
            "session": self.session_id,
        }
        return ", ".join(f"{name} {value}" for name, value in fields.items() if value is not None)

    def require_agent_id(self) -> str:
        """Return the agent that written entries belong to, or raise `Invalid` if none is set."""
        if self.agent_id is None:
            raise Invalid("scope.agent_id", "is missing", "name the agent that owns the memory")
        return self.agent_id


SOURCES = ("user", "agent", "tool", "external_document")
EVIDENCE_KINDS = ("entry", "message", "tool", "document")
DELETED = "deleted"
"""`superseded_by` of an entry that was forgotten without a replacement."""


_MAX_OCCURRED_AT = 32_503_680_000_000
"""The end of the year 2999: what happens later is a mistake of units."""


@value_type
class MessageRef(Value, frozen=True, kw_only=True):
    """The message that a memory was captured from: its place in a conversation, and the speaker."""

    thread: Id
    seq: Count
    role: Name | None = None
    speaker: Name | None = None


@value_type
class Evidence(Value, frozen=True, kw_only=True):
    """A source of a memory."""

    kind: str
    ref: Name
    quote: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.kind, "kind", EVIDENCE_KINDS)


def check_evidence(given: object, field: str = "evidence") -> tuple[Evidence, ...]:
    """Return evidence as a tuple; a text is the name of a document, and a mapping has the fields."""
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        remedy = f"pass [{given!r}]" if isinstance(given, str) else None
        raise WrongType(field, "a list of Evidence or texts", given, remedy)
    return tuple(_to_evidence(item, f"{field}[{at}]") for at, item in enumerate(given))


def _to_evidence(given: object, field: str) -> Any:
    if isinstance(given, Evidence):
        return given
    if isinstance(given, str):
        return Evidence(kind="document", ref=check_text(given, field))
    if isinstance(given, Mapping):
        return build_value(Evidence, given, field)
    raise WrongType(field, "a Evidence, its fields or a text", given)


ABOUT_KINDS = ("file", "module", "artifact")
"""Kinds of things that a memory may be about; each is a tag such as `file:lib/web.ex`."""
_ABOUT_MARKS = tuple(f"{kind}:" for kind in ABOUT_KINDS)


About: TypeAlias = str | Sequence[str] | Mapping[str, str | Sequence[str]] | None
"""What memories are about, as callers name it."""


def about_tags(about: object, field: str = "about") -> tuple[str, ...]:
    """Return the tags for what a memory is about: `lib/web.ex` is a file, `module:Shop.Web` a module.

    Args:
        about: One text, a list of them, or names by kind: `{"module": "Shop.Web"}`.
        field: Name of the argument for errors.
    """
    if isinstance(about, Mapping):
        pairs = [(str(kind), names) for kind, names in about.items()]
        for kind, _ in pairs:
            check_choice(kind, field, ABOUT_KINDS)
        texts = [f"{kind}:{name}" for kind, names in pairs for name in _names(names, field)]
    else:
        texts = [one if one.startswith(_ABOUT_MARKS) else f"file:{one}" for one in _names(about, field)]
    for text in texts:
        if not text.partition(":")[2].strip():
            raise Invalid(field, f"is {text!r}, which names nothing", "name a file, a module or an artifact")
    return tuple(dict.fromkeys(texts))


def _names(given: object, field: str) -> tuple[str, ...]:
    return check_texts([given] if isinstance(given, str) else given, field)


MAX_KEY_LENGTH = 200


def check_key(value: str, field: str = "key") -> str:
    """Return a key, or raise `Invalid` unless it is 1 to 200 characters without control characters."""
    if not value or len(value) > MAX_KEY_LENGTH:
        raise Invalid(field, f"has {len(value)} characters", f"use 1 to {MAX_KEY_LENGTH}")
    if ids.has_control_characters(value):
        raise Invalid(field, "contains a control character", "use printable text")
    return value


class EntryOptions(TypedDict, total=False):
    """Optional fields of an entry that describe the memory itself."""

    id: str
    key: str | None
    type: str | None
    confidence: float
    importance: float | None
    source: str | None
    tags: Sequence[str]
    rationale: str | None
    metadata: Mapping[str, Any]
    evidence: Sequence[Evidence | Mapping[str, Any] | str]
    occurred_at: clock.Time | None
    expires_at: clock.Time | None


class EntryFields(EntryOptions, total=False):
    """Fields of an entry; `agent_id` and `content` are required."""

    agent_id: str
    session_id: str | None
    project_id: str | None
    user_id: str | None
    namespace: str
    content: str
    message: MessageRef | Mapping[str, Any] | None
    created_at: clock.Time
    superseded_by: str | None
    superseded_at: int | None
    superseded_reason: str | None
    stale: bool
    rev: int


@value_type
class Entry(Record, frozen=True, kw_only=True):
    """One memory: content, owner, confidence, sources and times."""

    LABEL: ClassVar[str] = "memory entry"

    id: Id = msgspec.field(default_factory=lambda: ids.new("mem_"))
    agent_id: Id
    session_id: Id | None = None
    content: Name
    key: str | None = None
    """Name of the slot that it fills, such as `home_city`; the next value under the key supersedes it."""
    metadata: MapField = EMPTY_MAP
    namespace: Id = DEFAULT_NAMESPACE
    user_id: Id | None = None
    project_id: Id | None = None
    type: str | None = None
    confidence: float = 1.0
    importance: float | None = None
    source: str | None = None
    tags: TextsField = ()
    rationale: str | None = None
    message: MessageRef | None = None
    evidence: tuple[Evidence, ...] = ()
    created_at: Moment = msgspec.field(default_factory=clock.now)
    occurred_at: Moment | None = None
    expires_at: Moment | None = None
    superseded_by: Id | None = None
    superseded_at: Millis | None = None
    superseded_reason: str | None = None
    stale: bool = False
    """True if a memory that it derives from is superseded; set by the store, ignored on write."""
    rev: Count = 0

    def _check(self) -> None:
        if self.id == DELETED:
            raise Invalid("id", f"is {DELETED!r}, the mark of forgotten entries", "choose another id")
        if self.type is not None and self.type not in PARENT_TYPES:
            set_field(self, "type", check_type(self.type))
        if self.source is not None:
            check_choice(self.source, "source", SOURCES)
        if self.occurred_at is not None and self.occurred_at > _MAX_OCCURRED_AT:
            raise Invalid("occurred_at", f"is {self.occurred_at}, after the year 3000", "pass milliseconds")
        if self.key is not None:
            check_key(self.key)
        # Defaults need no check; entries are constructed for every row that a store reads.
        if self.confidence != 1.0:
            set_field(self, "confidence", check_unit(self.confidence, "confidence"))
        if self.importance is not None:
            set_field(self, "importance", check_unit(self.importance, "importance"))
        if self.tags:
            set_field(self, "tags", tuple(dict.fromkeys(self.tags)))  # each once, in the given order
        if self.evidence != ():
            set_field(self, "evidence", check_evidence(self.evidence))

    @classmethod
    def new(  # type: ignore[override]  # the fields of an entry, not those of any record
        cls,
        source: Self | Mapping[str, Any] | None = None,
        /,
        *,
        id_generator: Callable[[str], str] | None = None,
        **fields: Unpack[EntryFields],
    ) -> Self:
        """Build an entry from a mapping, another entry, or keywords.

        Args:
            source: an entry or a mapping; keywords override its fields.
            id_generator: called with `"mem_"` for an id if none is given.
            fields: the fields of the entry.

        Raises:
            InvalidRecord: if a field is wrong, unknown or missing.
        """
        if id_generator is not None:
            has_id = isinstance(source, cls) or (isinstance(source, Mapping) and "id" in source)
            if not has_id and "id" not in fields:
                fields["id"] = _generate_id(id_generator)
        return super().new(source, **fields)

    @property
    def scope(self) -> Scope:
        """The narrowest scope that contains the entry."""
        return Scope(
            namespace=self.namespace,
            user_id=self.user_id,
            agent_id=self.agent_id,
            session_id=self.session_id,
            project_id=self.project_id,
        )

    @property
    def about(self) -> tuple[str, ...]:
        """What it is about: the tags that name a file, a module or an artifact, such as `file:lib/web.ex`."""
        return tuple(tag for tag in self.tags if tag.startswith(_ABOUT_MARKS)) if self.tags else ()

    @property
    def fills_slot(self) -> bool:
        """True if it is the current value of its slot: it has a key, and nothing supersedes it."""
        return self.key is not None and self.superseded_by is None

    def shares_slot(self, other: Entry) -> bool:
        """Return True if another entry has the same key in exactly the same scope."""
        return self.key is not None and self.key == other.key and self.scope == other.scope

    def is_live(self, now: int) -> bool:
        """Return True if the entry is not superseded, stale or expired."""
        expired = self.expires_at is not None and self.expires_at <= now
        return self.superseded_by is None and not self.stale and not expired


def _generate_id(generator: object) -> str:
    if not callable(generator):
        raise InvalidRecord(
            Entry.LABEL, Invalid("id_generator", "is not a function", "pass one that takes a prefix")
        )
    try:
        entry_id = generator("mem_")
    except Exception as error:
        raise InvalidRecord(
            Entry.LABEL, Invalid("id_generator", f"failed ({error!r})", "pass one that returns an id")
        ) from error
    try:
        return ids.check(entry_id, "generated id")
    except Invalid as error:
        raise InvalidRecord(Entry.LABEL, error) from error


DEFAULT_MIN_RELEVANCE = 0.025
"""Least relevance of what a turn shows to its model; recall calls a result weak where all hits are below."""

RECALL_SCOPES = ("agent", "session", "project", "user", "namespace")


def check_types(names: Sequence[str], field: str = "types") -> tuple[str, ...]:
    """Return the types of several names, each once, or raise `Invalid` that names the field."""
    try:
        return tuple(dict.fromkeys(map(check_memory_type, names)))
    except NotFound as error:
        raise Invalid(field, f"holds {error.name!r}", error.remedy) from error


class Filter(Record, frozen=True, kw_only=True):
    """A condition on the entries of a scope."""

    LABEL: ClassVar[str] = "memory filter"

    types: TextsField = ()
    """Entries of these types and their subtypes; empty for all types."""
    tags: TextsField = ()
    """Entries with all of these tags."""
    tags_any: TextsField = ()
    """Entries with at least one of these tags."""
    key: str | None = None
    """Entries with this key."""
    min_confidence: float = 0.0
    since: Moment | None = None
    """Earliest time; the time of an entry is `occurred_at`, or `created_at` if that is not set."""
    until: EndMoment | None = None
    include_superseded: bool = False
    include_stale: bool = False
    """True to include stale entries, which derive from a superseded one."""
    include_expired: bool = False

    def _check(self) -> None:
        if self.types:
            set_field(self, "types", check_types(self.types))
        if self.key is not None:
            check_key(self.key)
        if self.min_confidence:
            set_field(self, "min_confidence", check_unit(self.min_confidence, "min_confidence"))
        if self.since is not None and self.until is not None and self.since > self.until:
            raise Invalid("since", "is after until", "swap them")


class RecallFields(TypedDict, total=False):
    """Optional fields of a recall request besides its scope and limit."""

    metadata: Mapping[str, Any]
    filter: Filter | Mapping[str, Any]
    max_tokens: int | None
    min_relevance: float | None
    at: clock.Time


class RecallRequest(Record, frozen=True, kw_only=True):
    """A query to a store."""

    LABEL: ClassVar[str] = "memory recall request"

    agent_id: Id
    session_id: Id | None = None
    scope: str = "agent"
    """`agent`: all of the agent's entries; `session`, `project`, `user`: those of the one named; `namespace`:
    all. A `user_id` narrows each of them to the entries of that user."""
    query: Name
    limit: int = 5
    metadata: MapField = EMPTY_MAP
    namespace: Id = DEFAULT_NAMESPACE
    user_id: Id | None = None
    project_id: Id | None = None
    filter: Filter = Filter()
    max_tokens: int | None = None
    """Token budget of all entries together."""
    min_relevance: float | None = None
    """Least relevance of a hit, from 0 to 1; hits whose relevance is not known are kept."""
    at: Moment = msgspec.field(default_factory=clock.now)
    """Time of the query: relative dates such as "last week" and the expiry of entries refer to it."""

    def _check(self) -> None:
        check_choice(self.scope, "scope", RECALL_SCOPES)
        check_positive(self.limit, "limit")
        if self.max_tokens is not None:
            check_positive(self.max_tokens, "max_tokens")
        if self.min_relevance is not None:
            set_field(self, "min_relevance", check_unit(self.min_relevance, "min_relevance"))
        if self.scope == "project" and self.project_id is None:
            raise Invalid("project_id", "is missing for scope 'project'", "name the project")
        if self.scope == "user" and self.user_id is None:
            raise Invalid("user_id", "is missing for scope 'user'", "name the user")

    @classmethod
    def for_scope(
        cls, scope: Scope, query: str, *, limit: int = 5, **fields: Unpack[RecallFields]
    ) -> RecallRequest:
        """Build a request that sees exactly the entries of the scope.

        Args:
            scope: the scope.
            query: the text to search for.
            limit: maximum number of entries.
            fields: `filter`, `max_tokens`, `min_relevance`, `at` and `metadata`.

        Raises:
            Invalid: if the scope names a session without its agent.
            InvalidRecord: if a field is wrong.
        """
        if scope.agent_id is not None:
            reach = "agent" if scope.session_id is None else "session"
        elif scope.project_id is not None:
            reach = "project"
        else:
            reach = "namespace" if scope.user_id is None else "user"
        if scope.agent_id is None and scope.session_id is not None:
            raise Invalid("scope.agent_id", "is missing beside session_id", "name the agent of the session")
        return cls.new(
            # A required field, which the scopes `project`, `user` and `namespace` ignore.
            agent_id=scope.agent_id or "*",
            session_id=scope.session_id,
            project_id=scope.project_id,
            user_id=scope.user_id,
            namespace=scope.namespace,
            scope=reach,
            query=query,
            limit=limit,
            **fields,
        )

    def effective_scope(self) -> Scope | None:
        """Return the scope that it sees; None, which matches nothing, for scope `session` without an id."""
        if self.scope in ("project", "user", "namespace"):
            project = self.project_id if self.scope == "project" else None
            return Scope(namespace=self.namespace, user_id=self.user_id, project_id=project)
        session = self.session_id if self.scope == "session" else None
        if self.scope == "session" and session is None:
            return None
        return Scope(
            namespace=self.namespace,
            user_id=self.user_id,
            agent_id=self.agent_id,
            session_id=session,
            project_id=self.project_id,
        )


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a score: its name, its value, and the rank of the entry in it."""

    part: str
    value: float
    rank: int | None = None
    note: str | None = None

    def __str__(self) -> str:
        rank = "" if self.rank is None else f" (#{self.rank})"
        return f"{self.part} {self.value:+.2f}{rank}{'' if self.note is None else f': {self.note}'}"


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """The explanation of a hit: the parts of its score, largest first, and the evidence of the entry."""

    reasons: tuple[Reason, ...] = ()
    evidence: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = ", ".join(map(str, self.reasons)) or "nothing matched: among the newest"
        return parts + ("" if not self.evidence else f"; from {', '.join(self.evidence)}")


CAPTURE_SOURCE = "omoide_capture"
"""`source` in the metadata of memories that were captured from a conversation."""
_CAPTURE_SOURCES = (CAPTURE_SOURCE, "jidoka_capture")
_USER_PREFIX, _ANSWER_PREFIX = "User: ", "\nAssistant: "


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """What one side said in an exchange that was captured as one entry."""

    role: str
    text: str
    speaker: str | None = None
    seq: int | None = None
    """Its position in the thread of the entry's message."""


def is_captured(entry: Entry) -> bool:
    """Return True if an entry was captured from a conversation."""
    return entry.metadata.get("source") in _CAPTURE_SOURCES


def join_exchange(input: str, answer: str) -> str:
    """Return the content of an entry that holds an exchange."""
    return f"{_USER_PREFIX}{input}{_ANSWER_PREFIX}{answer}"


def passages_of(entry: Entry) -> tuple[Passage, ...]:
    """Return the parts of a captured exchange, the user's first; none for other entries."""
    if entry.metadata.get("kind") != "conversation" or not is_captured(entry):
        return ()
    # The first mark divides: what the assistant said must never count as the user's.
    said, mark, answer = entry.content.removeprefix(_USER_PREFIX).partition(_ANSWER_PREFIX)
    if not mark or not entry.content.startswith(_USER_PREFIX):
        return ()
    message = entry.message
    first, last, speaker = None, None, None
    if message is not None:
        first, speaker = message.seq, message.speaker
        refs = [one.ref for one in entry.evidence if one.ref.startswith(f"{message.thread}:")]
        ends = [ref.rpartition(":")[2] for ref in refs]
        last = max((int(end) for end in ends if end.isdecimal()), default=None)
    return (
        Passage(role="user", text=said, speaker=speaker, seq=first),
        Passage(role="assistant", text=answer, seq=last),
    )


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A recalled entry with its score and explanation."""

    entry: Entry
    score: float = 0.0
    """The value by which hits of one recall are ordered; it means nothing across recalls."""
    rank: int = 1
    why: Why = Why()
    relevance: float | None = None
    """Probability that the entry helps to answer, independent of what else is stored; None if not known."""
    newer: str | None = None
    """The id of a newer entry among the hits that says something else of the same subject."""
    passage: Passage | None = None
    """The part of a captured exchange that matched; None for other entries."""
    said_at: tuple[int, ...] = ()
    """When the same was said, newest first, if it was said more than once; `entry` is the newest."""

    @property
    def text(self) -> str:
        """The text to show: that of the passage, or else of the entry."""
        return self.entry.content if self.passage is None else self.passage.text


class RecallResult(Record, frozen=True, kw_only=True):
    """The entries that a store recalled, best first."""

    LABEL: ClassVar[str] = "memory recall result"

    request: RecallRequest
    entries: tuple[Entry, ...] = ()
    metadata: MapField = EMPTY_MAP
    hits: tuple[Hit, ...] = ()
    withheld: tuple[Hit, ...] = ()
    """The hits below the `min_relevance` of the request, best first."""
    weak: bool = False
    """True if no entry matches well; the entries are the best of the weak matches."""
    notices: TextsField = ()
    """Messages to the caller: a part of the search that could not run, results that were cut."""

    def _check(self) -> None:
        check_instance(self.request, "request", kind=RecallRequest)
        set_field(self, "entries", check_tuple(self.entries, "entries", Entry))
        set_field(self, "hits", check_tuple(self.hits, "hits", Hit))
        set_field(self, "withheld", check_tuple(self.withheld, "withheld", Hit))
        # Stores of others may return entries alone, or hits alone; callers find both.
        if self.hits and not self.entries:
            set_field(self, "entries", tuple(hit.entry for hit in self.hits))
        elif self.entries and not self.hits:
            ranked = enumerate(self.entries, 1)
            set_field(self, "hits", tuple(Hit(entry=entry, rank=rank) for rank, entry in ranked))


def check_positive(value: object, field: str) -> int:
    """Return an int of at least 1, or raise `Invalid`."""
    if type(value) is int and value < 1:
        raise Invalid(field, f"is {value}", "pass 1 or more")
    return check_count(value, field)


WRITE_OUTCOMES = ("stored", "unchanged", "duplicate_of", "superseded")


class WriteRequest(Record, frozen=True, kw_only=True):
    """An entry to store: a new one, or the next revision of the one with its id."""

    LABEL: ClassVar[str] = "memory write request"

    entry: Entry
    metadata: MapField = EMPTY_MAP
    expected_rev: Count | None = None
    """Revision that the stored entry must have; 0 if it must not exist yet.

    For a new entry with a key it is the revision of the live value of the slot; 0 if there must be none.
    """
    idempotency_key: Id | None = None
    """A repeated request with the same key returns the first receipt; stored for seven days."""
    dedupe: bool = False
    """True to return a live entry of the same scope, type and content instead of storing a duplicate."""
    supersedes: Id | None = None
    """The entry that this one supersedes, in the same transaction."""

    def _check(self) -> None:
        check_instance(self.entry, "entry", kind=Entry)
        if self.supersedes == self.entry.id:
            raise Invalid("supersedes", "names the entry itself", "give the new entry another id")


class WriteResult(Record, frozen=True, kw_only=True):
    """The receipt of a write, with the entry as it is stored."""

    LABEL: ClassVar[str] = "memory write result"

    request: WriteRequest
    entry: Entry
    status: str = "ok"
    metadata: MapField = EMPTY_MAP
    outcome: str = "stored"
    """`stored`, `unchanged`, `duplicate_of` (`entry` is the existing one), or `superseded` (another was).

    The id of the superseded entry is `metadata["superseded"]`.
    """
    notices: TextsField = ()

    def _check(self) -> None:
        check_instance(self.request, "request", kind=WriteRequest)
        check_instance(self.entry, "entry", kind=Entry)
        check_choice(self.status, "status", ("ok",))
        check_choice(self.outcome, "outcome", WRITE_OUTCOMES)

    @property
    def id(self) -> str:
        """The id of the stored entry."""
        return self.entry.id

    @property
    def rev(self) -> int:
        """The revision of the stored entry."""
        return self.entry.rev
