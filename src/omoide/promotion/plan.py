"""Plan a promotion: policy, candidates, verdicts, and marks of what was promoted.

A mark records, for each key of the working context, the memory that its value became. It tells an unchanged
value from a changed one, and names the memory that a changed value supersedes. The same value with another
type, source or confidence, or confirmed by other evidence, is a new revision of its memory.

Ids are derived from session, key and value, so that an interrupted promotion can be repeated without making
anything twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any, ClassVar

import msgspec

from omoide.core import codec
from omoide.core.entry import Entry, Evidence, Scope, check_positive
from omoide.core.frozen import EMPTY_MAP
from omoide.core.value import Count, Id, Millis, Name, Record, Value, check_instance, check_unit, set_field
from omoide.shortterm.context import ContextItem
from omoide.shortterm.importance import DEFAULT_WEIGHTS, AccessLog, Score, Weights, reaches, score
from omoide.shortterm.memory import PendingItem, ShortTerm


class PromotionMark(Value, frozen=True, kw_only=True):
    """The memory that a key of the working context was promoted to."""

    key: Name
    id: Id
    digest: Name
    """Digest of the promoted value."""
    type: str | None = None
    source: str | None = None
    """Source of the memory; None in marks that were stored before sources were."""
    confidence: float = 0.0
    evidence: Evidence | None = None
    """The last evidence for the value."""

    @classmethod
    def of(cls, key: str, digest: str, id: str, entry: Entry) -> PromotionMark:
        """Return the mark of a value that became this entry, under an id."""
        return cls(
            key=key, id=id, digest=digest, type=entry.type, source=entry.source,
            confidence=entry.confidence, evidence=entry.evidence[-1] if entry.evidence else None,
        )  # fmt: skip

    def differences(self, entry: Entry) -> list[str]:
        """Return what is new about the same value, in words."""
        found = [
            f"{name} {old} → {new}"
            for name, old, new in (
                ("type", self.type, entry.type),
                ("source", self.source, entry.source),
                ("confidence", f"{self.confidence:g}", f"{entry.confidence:g}"),
            )
            if old != new
        ]
        # An agent that infers the same again is no witness; a user or a tool is.
        if entry.source != SOURCES["inferred"] and entry.evidence and entry.evidence[-1] != self.evidence:
            found.append(f"confirmed by {entry.evidence[-1].ref}")
        return found


class PromotedEntry(Value, frozen=True, kw_only=True):
    """One memory that a run made."""

    id: Id
    item: Id
    """Id of the pending item; differs from `id` if the memory existed already."""
    key: Name | None = None
    """Key of the working context that the value had."""
    digest: str | None = None
    """Digest of the value under that key."""
    supersedes: Id | None = None
    before: PromotionMark | None = None
    """The mark of the key before the run."""
    print: str = ""
    """Fingerprint of the memory, to detect later modifications."""
    made: bool = True
    """True if the run created the memory; `undo` leaves others alone."""
    revises: Count | None = None
    """The revision of the memory before the run, if the run wrote a new one of it."""
    mark: PromotionMark | None = None
    """The mark of the key after the run."""


class PromotionFailure(Value, frozen=True, kw_only=True):
    """One item that could not be stored; it stays in short-term memory."""

    id: Id
    kind: Name
    problem: str


class PromotionRun(Value, frozen=True, kw_only=True):
    """One promotion: what was stored and what failed."""

    id: Id
    at: Millis
    trigger: Name
    promoted: tuple[PromotedEntry, ...] = ()
    failed: tuple[PromotionFailure, ...] = ()
    undone_at: Millis | None = None


def digest(value: Any) -> str:
    """Return a digest that identifies a value of the working context."""
    return sha256(codec.encode({"value": value}, sort_keys=True)).hexdigest()


def fingerprint(entry: Entry) -> str:
    """Return a digest of a memory that supersession and reinstatement do not change."""
    # Forgetting and reinstating change these fields and the revision, and nothing else.
    content = entry.replace(
        superseded_by=None, superseded_at=None, superseded_reason=None, stale=False, rev=0
    )
    return sha256(codec.encode(content, sort_keys=True)).hexdigest()


def entry_id_for_value(session_id: str, key: str, value: Any, before: PromotionMark | None) -> str:
    """Return the id of the memory that a value becomes; the same for every attempt.

    The id depends on the previous memory of the key, so that a value which returns is a new memory.
    """
    return entry_id_for_digest(session_id, key, digest(value), before)


def entry_id_for_digest(session_id: str, key: str, digest: str, before: PromotionMark | None) -> str:
    """Return the id of the memory that the value with this digest becomes."""
    parts = (session_id, key, digest, "" if before is None else before.id)
    return "mem_" + sha256("\0".join(parts).encode()).hexdigest()[:32]


def score_context_item(
    item: ContextItem, log: AccessLog, now: int | None = None, weights: Weights = DEFAULT_WEIGHTS
) -> Score:
    """Return the importance of a value of the working context.

    Frequency is the larger of the item's own count and that of the log; recency is that of the log if it has
    one.
    """
    logged = log.get_stats(item.key)
    return score(
        item.last_accessed if logged.recency is None else logged.recency,
        max(logged.frequency, item.access_count),
        item.confidence,
        item.suggested_type,
        now,
        weights,
    )


class PromotionPolicy(Record, frozen=True, kw_only=True):
    """Thresholds, limits and triggers of promotion."""

    LABEL: ClassVar[str] = "promotion policy"

    enabled: bool = True
    """Promote automatically; explicit promotion always works."""
    threshold: float = 0.6
    closing_threshold: float = 0.4
    """Threshold when the session closes and short-term memory ends."""
    every_ms: Count = 30_000
    max_items: Count = 20
    """Maximum number of items of one run besides decisions; closing and pausing have no limit."""
    weights: Weights = Weights()
    strict: bool = False
    """Refuse memories that contradict another one or lack a field that their type requires."""
    capacity: float = 0.9
    """Fill level of short-term memory, from 0 to 1, that triggers an early promotion."""
    extract: bool = False
    """Ask the session's model for memories in new messages at pause, close and explicit promotion."""
    extract_tokens: Count = 8_000
    """Maximum number of tokens of the messages and known memories that one extraction shows."""

    def _check(self) -> None:
        for field in ("threshold", "closing_threshold", "capacity"):
            set_field(self, field, check_unit(getattr(self, field), field))
        check_positive(self.every_ms, "every_ms")
        check_positive(self.max_items, "max_items")
        check_positive(self.extract_tokens, "extract_tokens")
        check_instance(self.weights, "weights", kind=Weights)

    def threshold_for(self, trigger: str) -> float:
        """Return the threshold that applies to a trigger."""
        return self.closing_threshold if trigger == "close" else self.threshold


MAX_CONTENT_BYTES = 64 * 1024
"""Maximum number of bytes of a value that become the content of a memory."""
TRUNCATION_SUFFIX = " … [cut]"
FINAL_TRIGGERS = ("close", "pause")
"""Triggers after which no later run may follow, so that nothing is postponed."""
SOURCES = {"explicit": "user", "tool": "tool", "inferred": "agent"}


class PromotionCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """Something that may be promoted, with the entry it would become and the verdict on it."""

    entry: Entry
    origin: str
    """`context`, `pending` or `decision`."""
    score: float
    parts: Score | None = None
    verdict: str
    """`promote`, or the reason against: `below`, `untyped`, `unchanged`, `held`, `later`."""
    why: str
    item: str | None = None
    """Id of the pending item if it differs from that of the entry."""
    key: str | None = None
    digest: str | None = None
    before: PromotionMark | None = None
    relation: str = "adds"
    """What it does to the known memory `target`: `confirms`, `updates` or `contradicts`; or `adds`."""
    target: str | None = None

    @property
    def is_revision(self) -> bool:
        """True if the value is known, and something about it is new."""
        return self.before is not None and self.before.digest == self.digest

    @property
    def id(self) -> str:
        """Id of the entry it would become."""
        return self.entry.id

    def __str__(self) -> str:
        kind = self.entry.type or "no type"
        return f"{self.verdict:<9} {self.score:.3f} {kind:<14} {_short(self.entry.content)!r}: {self.why}"


class PromotionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Candidates from all of short-term memory, the most important first, each with its verdict."""

    candidates: tuple[PromotionCandidate, ...] = ()
    threshold: float
    trigger: str = "demand"
    at: int

    @property
    def to_promote(self) -> tuple[PromotionCandidate, ...]:
        """Candidates with the verdict `promote`."""
        return tuple(candidate for candidate in self.candidates if candidate.verdict == "promote")

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
    """Return the verdicts on all of short-term memory; nothing is changed.

    Args:
        memory: short-term memory of the session.
        scope: owner of the future entries.
        policy: thresholds and limits.
        now: timestamp in milliseconds.
        trigger: reason for the run.
        threshold: replaces that of the policy.
        marks: what was promoted of the working context, by key.
        origins: evidence for the values of the working context, by key.
        evicted: marks of pending items that were values of the working context, by item id.
        undone_ids: ids of entries whose promotion was undone; they are held back.
    """
    minimum = policy.threshold_for(trigger) if threshold is None else threshold
    candidates = [
        _from_context(item, memory, scope, policy, minimum, now, marks, origins)
        for item in memory.context.to_list()
    ]
    for pending in memory.pending.list_implicit():
        candidate = _from_pending(pending, scope, "pending", minimum)
        # What was merely said becomes a memory only if a caller asks for it.
        if pending.from_eviction and trigger != "demand":
            candidate = _with_verdict(candidate, "below", "merely said; promoted on demand only")
        # A value evicted from the context is a pending item; with its key it supersedes the former value.
        candidates.append(_with_context_key(candidate, memory.session_id, evicted, marks))
    decisions = memory.pending.list_agent_decisions()
    candidates += [_from_pending(decision, scope, "decision", minimum) for decision in decisions]
    held_ids = frozenset(undone_ids)
    candidates = [_hold_back(item) if item.id in held_ids else item for item in candidates]
    # Origin and id break ties, so that the limit always cuts the same candidates.
    candidates.sort(key=lambda item: (-item.score, item.origin, item.id))
    limited = _limit_promotions(candidates, None if trigger in FINAL_TRIGGERS else policy.max_items)
    return PromotionPlan(candidates=tuple(limited), threshold=minimum, trigger=trigger, at=now)


def _limit_promotions(
    candidates: list[PromotionCandidate], max_items: int | None
) -> Iterable[PromotionCandidate]:
    accepted = 0
    for candidate in candidates:
        # Decisions are promoted in any case, and do not use up the limit.
        if candidate.verdict == "promote" and candidate.origin != "decision":
            accepted += 1
            if max_items is not None and accepted > max_items:
                candidate = _with_verdict(
                    candidate, "later", f"limit of {max_items} per run; left for the next run"
                )
        yield candidate


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
    item_score = score_context_item(item, memory.access_log, now, policy.weights)
    # The digest tells a changed value from an unchanged one without reading the store.
    previous, value_digest = marks.get(item.key), digest(item.value)
    entry = entry_from_item(item, memory.session_id, scope, item_score.total, previous, origins.get(item.key))
    if previous is not None and previous.digest == value_digest:
        verdict, why = _judge_known(previous, entry)
    elif item.suggested_type is None:
        verdict, why = "untyped", f"{item.key!r} has no memory type; pass memory_type to promote it"
    elif reaches(item_score.total, threshold):
        verdict, why = "promote", str(item_score)
    else:
        verdict, why = "below", str(item_score)
    return PromotionCandidate(
        entry=entry, origin="context", score=item_score.total, parts=item_score, verdict=verdict, why=why,
        key=item.key, digest=value_digest, before=previous,
    )  # fmt: skip


def _judge_known(previous: PromotionMark, entry: Entry) -> tuple[str, str]:
    """Return the verdict on a value that is known: what is new about it is written, whatever it scores."""
    new = previous.differences(entry) if previous.source is not None else []
    if new:
        return "promote", f"memory {previous.id!r} has this value; new: {', '.join(new)}"
    return "unchanged", f"memory {previous.id!r} has this value already"


def _from_pending(item: PendingItem, scope: Scope, origin: str, threshold: float) -> PromotionCandidate:
    # The scope of the run is the owner, whatever owner the item was made with.
    entry = item.entry.replace(
        agent_id=scope.require_agent_id(),
        session_id=scope.session_id,
        project_id=scope.project_id,
        user_id=scope.user_id,
        namespace=scope.namespace,
        importance=item.importance_score,
    )
    importance = item.importance_score
    if origin == "decision":
        verdict, why = "promote", "the agent decided it"
    elif reaches(importance, threshold):
        verdict, why = "promote", f"importance {importance:.3f}"
    else:
        verdict, why = "below", f"importance {importance:.3f} of {threshold:g}"
    if item.target is not None:
        why = f"{item.relation} {item.target!r}; {why}"
    return PromotionCandidate(
        entry=entry, origin=origin, score=importance, verdict=verdict, why=why,
        relation=item.relation, target=item.target,
    )  # fmt: skip


def entry_from_item(
    item: ContextItem,
    session_id: str,
    scope: Scope,
    importance: float,
    before: PromotionMark | None = None,
    origin: Evidence | None = None,
) -> Entry:
    """Return the entry that a value of the working context becomes, or the next revision of the one it is."""
    known = before if before is not None and before.digest == digest(item.value) else None
    return Entry(
        id=known.id if known is not None else entry_id_for_value(session_id, item.key, item.value, before),
        agent_id=scope.require_agent_id(),
        session_id=scope.session_id,
        project_id=scope.project_id,
        user_id=scope.user_id,
        namespace=scope.namespace,
        content=content_of(item),
        # A source may imply no type: a value that is confirmed keeps the type that it has.
        type=item.suggested_type or (None if known is None else known.type),
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
    """Return a candidate for an evicted value of the working context, with the entry that it supersedes."""
    mark = evicted.get(candidate.id)
    if mark is None:
        return candidate
    previous, verdict, why = marks.get(mark.key), candidate.verdict, candidate.why
    if previous is not None and previous.digest == mark.digest:
        entry = candidate.entry.replace(id=previous.id)
        verdict, why = _judge_known(previous, entry)
    else:
        id = entry_id_for_digest(session_id, mark.key, mark.digest, previous)
        entry = candidate.entry.replace(id=id)
    return msgspec.structs.replace(
        candidate, entry=entry, item=candidate.id, key=mark.key, digest=mark.digest, before=previous,
        verdict=verdict, why=why,
    )  # fmt: skip


def content_of(item: ContextItem) -> str:
    """Return a value of the working context as text with its key, cut to `MAX_CONTENT_BYTES`."""
    data = item.text.encode()
    if len(data) <= MAX_CONTENT_BYTES:
        return item.text
    head = data[: MAX_CONTENT_BYTES - len(TRUNCATION_SUFFIX.encode())]
    # The cut may split a character of several bytes.
    return head.decode(errors="ignore") + TRUNCATION_SUFFIX


def _value_metadata(item: ContextItem) -> dict[str, object]:
    """Return the value itself unless it is so long that the content was cut."""
    return {"value": item.value} if len(item.text.encode()) <= MAX_CONTENT_BYTES else {}


def _hold_back(candidate: PromotionCandidate) -> PromotionCandidate:
    if candidate.verdict != "promote":
        return candidate
    return _with_verdict(candidate, "held", "its promotion was undone")


def _with_verdict(candidate: PromotionCandidate, verdict: str, why: str) -> PromotionCandidate:
    return msgspec.structs.replace(candidate, verdict=verdict, why=why)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"
