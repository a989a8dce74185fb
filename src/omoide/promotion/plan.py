"""Policy, scores, plan, marks.

Each key of the working context leaves a mark when its value is promoted. An unchanged value is known by it;
a changed one finds the memory that it supersedes.

The formula and its weights are those of `shortterm.importance`; here they meet what a session holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, ClassVar

import msgspec

from omoide.core import codec
from omoide.core.entry import Entry, Evidence, Scope, check_positive
from omoide.core.frozen import EMPTY_MAP
from omoide.core.value import (
    Count,
    Id,
    Millis,
    Name,
    Record,
    Value,
    check_instance,
    check_unit,
    set_field,
    shallow_copy,
)
from omoide.shortterm.context import ContextItem
from omoide.shortterm.importance import DEFAULT_WEIGHTS, AccessLog, Score, Weights, reaches, score
from omoide.shortterm.memory import ShortTerm
from omoide.shortterm.pending import PendingItem

# marks: What was promoted already?


class PromotionMark(Value, frozen=True, kw_only=True):
    """The memory that a key of the working context has become."""

    key: Name
    id: Id
    digest: Name
    """What the value was."""


class PromotedEntry(Value, frozen=True, kw_only=True):
    """One memory that a run made."""

    id: Id
    item: Id
    """What it was called while it waited; the same, unless it turned out to be known already."""
    key: Name | None = None
    """The key of the working context that it was."""
    digest: str | None = None
    """What the value under that key was."""
    supersedes: Id | None = None
    before: PromotionMark | None = None
    """The mark that stood there until then."""
    print: str = ""
    """What tells whether somebody rewrote it since."""
    made: bool = True
    """Whether it is new: what was there already is not taken back with the run."""


class PromotionFailure(Value, frozen=True, kw_only=True):
    """One item that could not be kept; it stays where it was."""

    id: Id
    kind: Name
    problem: str


class PromotionRun(Value, frozen=True, kw_only=True):
    """One promotion: what it made, and what it could not make."""

    id: Id
    at: Millis
    trigger: Name
    promoted: tuple[PromotedEntry, ...] = ()
    failed: tuple[PromotionFailure, ...] = ()
    undone_at: Millis | None = None


def digest(value: Any) -> str:
    """What tells one value of the working context from another."""
    return sha256(codec.encode({"value": value})).hexdigest()


def fingerprint(entry: Entry) -> str:
    """What a memory says, as one word; being superseded and restored does not change it."""
    said = entry.replace(superseded_by=None, superseded_at=None, superseded_reason=None, stale=False, rev=0)
    return sha256(said.to_json()).hexdigest()


def entry_id_for_value(session_id: str, key: str, value: Any, before: PromotionMark | None) -> str:
    """The id of the memory that a value becomes: the same, however often its promotion is tried.

    It depends on the memory before it, so that a value which comes back is a new memory.
    """
    return entry_id_for_digest(session_id, key, digest(value), before)


def entry_id_for_digest(session_id: str, key: str, digest: str, before: PromotionMark | None) -> str:
    """The same, of a value that is known by its digest."""
    parts = (session_id, key, digest, "" if before is None else before.id)
    return "mem_" + sha256("\0".join(parts).encode()).hexdigest()[:32]


# scoring: How much does a candidate for promotion matter?


def score_context_item(
    item: ContextItem, log: AccessLog, now: int | None = None, weights: Weights = DEFAULT_WEIGHTS
) -> Score:
    """How much a value of the working context matters, by its own figures and those of the log.

    It was used as often as the larger of the two says, and last when the log says so, if it knows it.
    """
    seen = log.get_stats(item.key)
    return score(
        item.last_accessed if seen.recency is None else seen.recency,
        max(seen.frequency, item.access_count),
        item.confidence,
        item.suggested_type,
        now,
        weights,
    )


# policy: When is short-term memory promoted, and how much has to speak for it?


class PromotionPolicy(Record, frozen=True, kw_only=True):
    """What is good enough for long-term memory, and when that is looked at."""

    LABEL: ClassVar[str] = "promotion policy"

    enabled: bool = True
    """Whether promotions happen by themselves; on demand they always do."""
    threshold: float = 0.6
    closing_threshold: float = 0.4
    """What is enough when the session ends, and short-term memory with it; not for mere messages."""
    every_ms: Count = 30_000
    max_items: Count = 20
    """How many items one run promotes; what an agent decided comes on top, and the rest waits. A session that
    is paused or closed waits for nothing."""
    weights: Weights = Weights()
    strict: bool = False
    """Whether a memory that contradicts another, or lacks what its type needs, is refused."""
    capacity: float = 0.9
    """The part of what short-term memory can hold from which on it is promoted early."""

    def _check(self) -> None:
        for field in ("threshold", "closing_threshold", "capacity"):
            set_field(self, field, check_unit(getattr(self, field), field))
        check_positive(self.every_ms, "every_ms")
        check_positive(self.max_items, "max_items")
        check_instance(self.weights, "weights", kind=Weights)

    def threshold_for(self, trigger: str) -> float:
        """What is enough when this is the reason to look."""
        return self.closing_threshold if trigger == "close" else self.threshold


# planning: What would be promoted, what not, and why?


MAX_CONTENT_BYTES = 64 * 1024
"""How many bytes of a value become the content of a memory."""
TRUNCATION_SUFFIX = " … [cut]"
FINAL_TRIGGERS = ("close", "pause")
"""When nobody may come back for the rest."""
SOURCES = {"explicit": "user", "tool": "tool", "inferred": "agent"}


class PromotionCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """Something that may be promoted, the memory it would become, and what is to be done about it."""

    entry: Entry
    origin: str
    """`context`, `pending` or `decision`."""
    score: float
    parts: Score | None = None
    verdict: str
    """`promote`, or why not: `below`, `untyped`, `unchanged`, `held`, `later`."""
    why: str
    item: str | None = None
    """What it is called while it waits, where that is not the memory's id."""
    key: str | None = None
    digest: str | None = None
    before: PromotionMark | None = None

    @property
    def id(self) -> str:
        """The id of the memory that it would become."""
        return self.entry.id

    def __str__(self) -> str:
        kind = self.entry.type or "no type"
        return f"{self.verdict:<9} {self.score:.3f} {kind:<14} {_short(self.entry.content)!r}: {self.why}"


class PromotionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All that short-term memory holds, the most important first, each with its verdict."""

    candidates: tuple[PromotionCandidate, ...] = ()
    threshold: float
    trigger: str = "demand"
    at: int

    @property
    def to_promote(self) -> tuple[PromotionCandidate, ...]:
        """What is to be promoted."""
        return tuple(one for one in self.candidates if one.verdict == "promote")

    def __str__(self) -> str:
        head = f"{len(self.to_promote)} of {len(self.candidates)} reach {self.threshold:g}"
        return "\n".join([head, *map(str, self.candidates)])


def build_plan(
    memory: ShortTerm,
    scope: Scope,
    policy: PromotionPolicy,
    *,
    now: int,
    trigger: str = "demand",
    threshold: float | None = None,
    marks: Mapping[str, PromotionMark] = EMPTY_MAP,
    origins: Mapping[str, Evidence] = EMPTY_MAP,
    evicted: Mapping[str, PromotionMark] = EMPTY_MAP,
    undone_ids: Iterable[str] = (),
) -> PromotionPlan:
    """A verdict on everything in short-term memory; nothing is changed.

    `marks` are what was promoted of the working context, `origins` where its values come from, `dropped`
    which pending items were such values until there was no room for them, by their ids, and `held` the ids
    of what somebody took back.
    """
    least = policy.threshold_for(trigger) if threshold is None else threshold
    # A message that nobody made a memory of has to matter by itself, also when the session ends.
    plain = policy.threshold if threshold is None else threshold
    most = None if trigger in FINAL_TRIGGERS else policy.max_items
    kept_back = frozenset(undone_ids)
    found = [
        *(
            _from_context(one, memory, scope, policy, least, now, marks, origins)
            for one in memory.context.to_list()
        ),
        *(
            _with_context_key(
                _from_pending(one, scope, "pending", plain if _is_message(one.entry) else least),
                memory.session_id,
                evicted,
                marks,
            )
            for one in memory.pending.list_implicit()
        ),
        *(_from_pending(one, scope, "decision", least) for one in memory.pending.list_agent_decisions()),
    ]
    found = [_hold_back(one) if one.id in kept_back and one.verdict == "promote" else one for one in found]
    found.sort(key=lambda one: (-one.score, one.origin, one.id))
    return PromotionPlan(
        candidates=tuple(_limit_promotions(found, most)), threshold=least, trigger=trigger, at=now
    )


def _is_message(entry: Entry) -> bool:
    return entry.type is None and entry.message is not None


def _limit_promotions(
    candidates: list[PromotionCandidate], max_items: int | None
) -> Iterable[PromotionCandidate]:
    taken = 0
    for one in candidates:
        if one.verdict == "promote" and one.origin != "decision":
            taken += 1
            if max_items is not None and taken > max_items:
                one = _with_verdict(one, "later", f"a run promotes {max_items}: the next one takes it")
        yield one


def _from_context(
    item: ContextItem,
    memory: ShortTerm,
    scope: Scope,
    policy: PromotionPolicy,
    threshold: float,
    now: int,
    marks: Mapping[str, PromotionMark],
    origins: Mapping[str, Evidence],
) -> PromotionCandidate:
    parts = score_context_item(item, memory.access_log, now, policy.weights)
    before, value = marks.get(item.key), digest(item.value)
    entry = entry_from_item(item, memory.session_id, scope, parts.total, before, origins.get(item.key))
    if item.suggested_type is None:
        verdict, why = "untyped", f"{item.key!r} is no kind of memory; pass memory_type to make it one"
    elif before is not None and before.digest == value:
        verdict, why = "unchanged", f"it is memory {before.id!r} already"
    elif reaches(parts.total, threshold):
        verdict, why = "promote", str(parts)
    else:
        verdict, why = "below", str(parts)
    return PromotionCandidate(
        entry=entry, origin="context", score=parts.total, parts=parts, verdict=verdict, why=why,
        key=item.key, digest=value, before=before,
    )  # fmt: skip


def _from_pending(item: PendingItem, scope: Scope, origin: str, threshold: float) -> PromotionCandidate:
    entry = item.entry.replace(
        agent_id=scope.require_agent_id(),
        session_id=scope.session_id,
        project_id=scope.project_id,
        namespace=scope.namespace,
        importance=item.importance_score,
    )
    score = item.importance_score
    if origin == "decision":
        verdict, why = "promote", "the agent decided it"
    elif reaches(score, threshold):
        verdict, why = "promote", f"importance {score:.3f}"
    else:
        verdict, why = "below", f"importance {score:.3f} of {threshold:g}"
    return PromotionCandidate(entry=entry, origin=origin, score=score, verdict=verdict, why=why)


def entry_from_item(
    item: ContextItem,
    session_id: str,
    scope: Scope,
    importance: float,
    before: PromotionMark | None = None,
    origin: Evidence | None = None,
) -> Entry:
    """The memory that a value of the working context becomes."""
    return Entry(
        id=entry_id_for_value(session_id, item.key, item.value, before),
        agent_id=scope.require_agent_id(),
        session_id=scope.session_id,
        project_id=scope.project_id,
        namespace=scope.namespace,
        content=content_of(item),
        type=item.suggested_type,
        confidence=item.confidence,
        importance=importance,
        source=SOURCES[item.source],
        metadata={"key": item.key, **_value_metadata(item)},
        evidence=() if origin is None else (origin,),
        created_at=item.changed_at,
    )


def _with_context_key(
    candidate: PromotionCandidate,
    session_id: str,
    evicted: Mapping[str, PromotionMark],
    marks: Mapping[str, PromotionMark],
) -> PromotionCandidate:
    """A pending item that was a value of the working context, with the memory that it supersedes."""
    place = evicted.get(candidate.id)
    if place is None:
        return candidate
    before = marks.get(place.key)
    id = entry_id_for_digest(session_id, place.key, place.digest, before)
    known = before is not None and before.digest == place.digest
    return msgspec.structs.replace(
        candidate,
        entry=candidate.entry.replace(id=id),
        item=candidate.id,
        key=place.key,
        digest=place.digest,
        before=before,
        verdict="unchanged" if known else candidate.verdict,
    )


def content_of(item: ContextItem) -> str:
    """A value of the working context in words, with the key that says what it is."""
    text = item.text
    if len(text.encode()) <= MAX_CONTENT_BYTES:
        return text
    return (
        text.encode()[: MAX_CONTENT_BYTES - len(TRUNCATION_SUFFIX.encode())].decode(errors="ignore")
        + TRUNCATION_SUFFIX
    )


def _value_metadata(item: ContextItem) -> dict[str, object]:
    """The value itself, unless it is so long that its content has to do."""
    return {"value": item.value} if len(item.text.encode()) <= MAX_CONTENT_BYTES else {}


def _hold_back(candidate: PromotionCandidate) -> PromotionCandidate:
    return _with_verdict(candidate, "held", "its promotion was undone")


def _with_verdict(candidate: PromotionCandidate, verdict: str, why: str) -> PromotionCandidate:
    new = shallow_copy(candidate)
    set_field(new, "verdict", verdict)
    set_field(new, "why", why)
    return new


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"
