"""Carry out a promotion plan, and undo a run.

The id of each entry is derived from its content, so an interrupted promotion can be repeated and makes
nothing twice. What is known already gets a new revision if something about it is new: its type, source,
confidence or evidence. What cannot be stored stays in short-term memory.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

import msgspec

from omoide import clock, ids
from omoide.core.entry import DELETED, Entry, Evidence, Scope, WriteRequest
from omoide.core.frozen import EMPTY_MAP
from omoide.core.signal import Signal
from omoide.errors import NotFound
from omoide.longterm import conflicts
from omoide.longterm.relations import CONTRADICTS
from omoide.promotion.extraction import ExtractionReport
from omoide.promotion.plan import (
    PromotedEntry,
    PromotionCandidate,
    PromotionFailure,
    PromotionMark,
    PromotionPlan,
    PromotionRun,
    fingerprint,
)
from omoide.stores.protocols import (
    AnyStore,
    Store,
    SupportsGet,
    SupportsLinks,
    SupportsQuery,
    SupportsSupersede,
)
from omoide.stores.records import Link
from omoide.verbs import async_store, require

UNDONE_REASON = "promotion undone"
MAX_EVIDENCE = 100
"""Pieces of evidence of one memory: the first, and the newest ones."""


class Promotion(msgspec.Struct, frozen=True, kw_only=True):
    """A plan and its run; a dry run has no run."""

    plan: PromotionPlan
    run: PromotionRun | None = None
    signals: tuple[Signal, ...] = ()
    extraction: ExtractionReport | None = None
    """What an extractor read for it, and what that cost."""
    notices: tuple[str, ...] = ()
    """What could not be done because of what the store lacks."""

    @property
    def dry_run(self) -> bool:
        """True if nothing was written."""
        return self.run is None

    def __str__(self) -> str:
        if self.run is None:
            return str(self.plan)
        failed = "".join(
            f"\nfailed    {failure.id}: {failure.kind}: {failure.problem}" for failure in self.run.failed
        )
        noticed = "".join(f"\n{notice}" for notice in self.notices)
        return f"run {self.run.id}: {len(self.run.promoted)} promoted\n{self.plan}{failed}{noticed}"


async def promote(
    store: AnyStore, plan: PromotionPlan, *, strict: bool = False, promoted_ids: Container[str] = ()
) -> Promotion:
    """Carry out a plan; a failure is reported in the run and does not stop the others.

    Args:
        store: store to write to.
        plan: plan to carry out.
        strict: refuse entries that contradict others or are incomplete.
        promoted_ids: ids of entries that earlier runs made. An existing entry that is not among them was
            written by an interrupted attempt of this run.
    """
    able: Store = async_store(store)
    promoted: list[PromotedEntry] = []
    failed: list[PromotionFailure] = []
    signals: list[Signal] = []
    notices: list[str] = []
    run_id = ids.new("prm_")
    for candidate in plan.to_promote:
        try:
            entry = await _promote_candidate(able, candidate, strict, promoted_ids)
        except Exception as error:  # the store, or a guard around it, may be user code
            failed.append(PromotionFailure(id=candidate.id, kind=type(error).__name__, problem=str(error)))
            continue
        promoted.append(entry)
        notices += _supersession_notices(able, candidate)
        signals += _signals_for(candidate, entry, run_id)
    run = PromotionRun(
        id=run_id, at=plan.at, trigger=plan.trigger, promoted=tuple(promoted), failed=tuple(failed)
    )
    signals += _run_signals(run, plan)
    return Promotion(plan=plan, run=run, signals=tuple(signals), notices=tuple(notices))


def _supersession_notices(store: Store, candidate: PromotionCandidate) -> list[str]:
    """Return a notice for a value that changed where the store cannot supersede the former one."""
    if isinstance(store, SupportsGet) or candidate.is_revision:
        return []
    if candidate.before is not None:
        former = f"the former value of {candidate.before.key!r}, memory {candidate.before.id!r},"
    elif candidate.relation == "updates" and candidate.target is not None:
        former = f"memory {candidate.target!r}, which {candidate.id!r} updates,"
    else:
        return []
    return [f"{former} still counts: the store cannot find it by id"]


class _Written(NamedTuple):
    """What became of a candidate."""

    entry: Entry
    made: bool = False
    """True if this promotion made the entry."""
    revises: int | None = None
    """The revision before, if this promotion wrote the next one."""


async def _promote_candidate(
    store: Store, candidate: PromotionCandidate, strict: bool, promoted_ids: Container[str]
) -> PromotedEntry:
    entry, superseded = candidate.entry, None
    if candidate.before is not None and not candidate.is_revision:
        superseded = await _latest_successor(store, candidate.before, entry)
    target = await _find_target(store, candidate)
    if target is not None and candidate.relation == "updates":
        superseded = target
    # Before anything is written, so that a refused entry leaves nothing behind.
    if strict:
        await _check_strict(store, entry, superseded)
        if target is not None and candidate.relation == "contradicts":
            raise conflicts.contradiction(entry, [target])
    existing = await _find_entry(store, entry.id, entry.scope)
    if target is not None and candidate.relation == "confirms":
        written = await _confirm(store, target, entry)
    elif existing is None:
        written = await _write_new(store, candidate, superseded)
    else:
        written = await _write_again(store, candidate, existing)
    stored = written.entry
    if target is not None and candidate.relation == "contradicts" and isinstance(store, SupportsLinks):
        link = Link(source=stored.id, relation=CONTRADICTS, target=target.id)
        await store.link(link, Scope(namespace=entry.namespace))
    if not strict:
        await _link_conflicts(store, stored)
    key, digest = candidate.key, candidate.digest
    return PromotedEntry(
        id=stored.id,
        item=candidate.item or candidate.id,
        key=key,
        digest=digest,
        supersedes=None if superseded is None else superseded.id,
        before=candidate.before,
        print=fingerprint(stored),
        # `undo` of this run must not forget what an earlier run made.
        made=written.made and stored.id not in promoted_ids,
        revises=written.revises,
        mark=None if key is None or digest is None else PromotionMark.of(key, digest, stored.id, entry),
    )


async def _find_target(store: Store, candidate: PromotionCandidate) -> Entry | None:
    """Return the known memory that a candidate is about; None if it counts no more."""
    if candidate.target is None:
        return None
    target = await _find_entry(store, candidate.target, _own_scope(candidate.entry.scope))
    if target is None or target.user_id != candidate.entry.user_id:
        return None
    # An interrupted attempt may have superseded it already.
    if not (target.is_live(clock.now()) or target.superseded_by == candidate.id):
        return None
    return target


def _own_scope(scope: Scope) -> Scope:
    """Return the scope in which a session may revise and supersede: that of its agent and user."""
    return Scope(namespace=scope.namespace, user_id=scope.user_id, agent_id=scope.agent_id)


async def _confirm(store: Store, known: Entry, entry: Entry) -> _Written:
    """Add evidence to a known memory, and confidence if there is more."""
    confidence = max(known.confidence, entry.confidence)
    return await _revise(store, known, known.replace(confidence=confidence, evidence=entry.evidence))


async def _write_new(store: Store, candidate: PromotionCandidate, superseded: Entry | None) -> _Written:
    """Write an entry; where its text is known, add what is new to the memory that has it."""
    receipt = await store.write(
        WriteRequest(
            entry=candidate.entry,
            # Equal text is the same memory, but a key of the context may return to a former value.
            dedupe=candidate.key is None,
            supersedes=None if superseded is None else superseded.id,
        )
    )
    if receipt.outcome != "duplicate_of":
        return _Written(receipt.entry, made=True)
    known, entry = receipt.entry, candidate.entry
    # Saying something again, with less confidence, is no reason to doubt what was known.
    if (entry.confidence, entry.source == "user") <= (known.confidence, known.source == "user"):
        entry = entry.replace(confidence=known.confidence, source=known.source)
    return await _revise(store, known, entry)


async def _write_again(store: Store, candidate: PromotionCandidate, existing: Entry) -> _Written:
    """Write the next revision of an entry, or find that an interrupted attempt has written it."""
    entry = candidate.entry
    if _is_undone(existing):
        undoer: SupportsSupersede = require(store, SupportsSupersede, "promote again what was undone")
        reinstated = await undoer.reinstate(entry.id, entry.scope)
        return _Written((await _revise(store, reinstated, entry)).entry, made=True)
    if existing.superseded_by is not None:  # forgotten or replaced meanwhile: so it stays
        return _Written(existing)
    written = await _revise(store, existing, entry)
    if written.revises is not None:
        return written
    if candidate.is_revision:  # the mark of the key is older than the stored revision
        return _Written(existing, revises=existing.rev - 1 if existing.rev > 1 else None)
    return _Written(existing, made=True)


async def _revise(store: Store, known: Entry, entry: Entry) -> _Written:
    """Write what is new about a known entry as its next revision, if anything is."""
    if known.content == entry.content:
        revised = known.replace(
            type=entry.type,
            confidence=entry.confidence,
            source=entry.source,
            rationale=entry.rationale or known.rationale,
            evidence=_merge_evidence(known.evidence, entry.evidence),
        )
        if revised == known:
            return _Written(known)
        entry = revised.replace(importance=entry.importance)
    receipt = await store.write(WriteRequest(entry=entry))
    return _Written(receipt.entry, revises=known.rev)


def _merge_evidence(known: Sequence[Evidence], new: Sequence[Evidence]) -> tuple[Evidence, ...]:
    merged = tuple(dict.fromkeys((*known, *new)))
    return merged if len(merged) <= MAX_EVIDENCE else (merged[0], *merged[1 - MAX_EVIDENCE :])


async def _check_strict(store: Store, entry: Entry, superseded: Entry | None) -> None:
    """Raise if an entry is incomplete or contradicts others; the entry it supersedes is no contradiction."""
    conflicts.check_complete(entry)
    allowed = {entry.id} if superseded is None else {entry.id, superseded.id}
    pairs = await conflicts.conflicts_of(store, entry)
    others = [side for pair in pairs for side in (pair.one, pair.other) if side.id not in allowed]
    if others:
        raise conflicts.contradiction(entry, others)


async def _link_conflicts(store: Store, entry: Entry) -> None:
    """Link an entry with those it contradicts if the store supports links."""
    if isinstance(store, SupportsLinks) and isinstance(store, SupportsGet):
        await conflicts.link_conflicts(store, entry, Scope(namespace=entry.namespace))


async def _latest_successor(store: Store, mark: PromotionMark, entry: Entry) -> Entry | None:
    """Return the entry that a value supersedes: that of the mark, or its latest successor.

    The mark may be outdated: another process promoted meanwhile, or this one stopped before the mark was
    saved.
    """
    seen: set[str] = set()
    id: str | None = mark.id
    while id is not None and id not in seen:
        seen.add(id)
        found = await _find_entry(store, id, entry.scope)
        if found is None or found.id == entry.id or found.metadata.get("key") != mark.key:
            return None
        if found.superseded_by is None:
            return found
        id = found.superseded_by
    return None


async def _find_entry(store: Store, id: str, scope: Scope) -> Entry | None:
    """Return the entry of an id, superseded or not; None if it is unknown or the store cannot look it up."""
    if not isinstance(store, SupportsGet):
        return None
    try:
        return await store.get(id, scope)
    except NotFound:
        return None


async def undo(
    store: Store,
    run: PromotionRun,
    scope: Scope,
    *,
    undone: Mapping[str, PromotedEntry] = EMPTY_MAP,
    undone_revisions: Sequence[PromotedEntry] = (),
) -> tuple[list[Signal], list[Entry]]:
    """Undo a run: forget its entries and reinstate what they superseded.

    Entries that were modified since stay as they are.

    Args:
        store: store that the run wrote to.
        run: run to undo.
        scope: scope of its entries.
        undone: entries of other undone runs by id; they are not reinstated.
        undone_revisions: revisions of other undone runs; they are not restored.

    Returns:
        Signals to publish, and the entries that were forgotten.
    """
    undoer: SupportsSupersede = require(store, SupportsSupersede, "undo a promotion")
    signals: list[Signal] = []
    forgotten: list[Entry] = []
    own = _own_scope(scope)  # it may have revised or superseded memories of earlier sessions
    # In reverse order, because an entry of a run may supersede or revise an earlier one of the same run.
    for made in reversed(run.promoted):
        stored = await _find_entry(store, made.id, own) if made.made or made.revises else None
        if stored is None:
            continue
        # A revision of what an undone run made goes with it.
        if made.revises is not None and made.id not in undone:
            if await _restore_revision(store, stored, made, undone_revisions):
                forgotten.append(stored)
                signals.append(_signal("memory.revised", scope, id=made.id, reason=UNDONE_REASON))
            continue
        if not (_is_undone(stored) or _is_unmodified(stored, made)):
            continue
        forgotten.append(stored)
        if not _is_undone(stored):  # an interrupted attempt may have come this far
            await undoer.supersede(made.id, own, reason=UNDONE_REASON)
        signals.append(_signal("memory.superseded", scope, id=made.id, by=None, reason=UNDONE_REASON))
        successor, predecessor = made.id, undone.get(made.id, made).supersedes
        # Runs may be undone in any order: predecessors that were undone themselves stay forgotten.
        while predecessor is not None and predecessor in undone:
            successor, predecessor = predecessor, undone[predecessor].supersedes
        if predecessor is not None:
            entry = await _find_entry(store, predecessor, own)
            # Something else may have replaced it since; then it stays superseded.
            if entry is not None and entry.superseded_by == successor:
                await undoer.reinstate(entry.id, own)
    return signals, forgotten


async def _restore_revision(
    store: Store, stored: Entry, made: PromotedEntry, undone: Sequence[PromotedEntry]
) -> bool:
    """Write the former revision of an entry again; return False if it was modified since."""
    if stored.superseded_by is not None:
        return False
    archive: SupportsQuery = require(store, SupportsQuery, "undo a revision")
    versions = {version.rev: version.entry for version in await archive.history(stored.id, stored.scope)}
    former = versions.get(made.revises or 0)
    # Runs may be undone in any order: a revision that was undone itself is not restored.
    others = [other for other in undone if other.id == stored.id and other.revises is not None]
    while former is not None and others:
        former_print = fingerprint(former)
        other = next((other for other in others if other.print == former_print), None)
        if other is None:
            break
        others.remove(other)
        former = versions.get(other.revises or 0)
    if former is None:
        return False
    # An interrupted attempt may have come this far.
    if fingerprint(stored) != fingerprint(former):
        if not _is_unmodified(stored, made):
            return False
        await store.write(WriteRequest(entry=former))
    return True


def _is_undone(entry: Entry) -> bool:
    return entry.superseded_by == DELETED and entry.superseded_reason == UNDONE_REASON


def _is_unmodified(entry: Entry, promoted: PromotedEntry) -> bool:
    return entry.superseded_by is None and fingerprint(entry) == promoted.print


def _signals_for(candidate: PromotionCandidate, promoted: PromotedEntry, run_id: str) -> list[Signal]:
    """Return the signals about one entry; they carry its id, never its content."""
    scope = candidate.entry.scope
    signals = []
    if promoted.made:
        signals.append(_signal("memory.stored", scope, id=promoted.id, type=candidate.entry.type, run=run_id))
    if promoted.revises is not None:
        signals.append(_signal("memory.revised", scope, id=promoted.id, run=run_id))
    if promoted.supersedes is not None and promoted.made:
        signals.append(
            _signal("memory.superseded", scope, id=promoted.supersedes, by=promoted.id, run=run_id)
        )
    return signals


def _run_signals(run: PromotionRun, plan: PromotionPlan) -> Sequence[Signal]:
    if not run.promoted:
        return ()
    scope = plan.to_promote[0].entry.scope
    entry_ids = [entry.id for entry in run.promoted]
    counts = {"count": len(entry_ids), "failed": len(run.failed)}
    return (_signal("memory.promoted", scope, run=run.id, trigger=run.trigger, ids=entry_ids, **counts),)


def _signal(name: str, scope: Scope, **data: object) -> Signal:
    owner = {
        "namespace": scope.namespace,
        "user_id": scope.user_id,
        "agent_id": scope.agent_id,
        "session_id": scope.session_id,
        "project_id": scope.project_id,
    }
    return Signal(type=name, source="/omoide/promotion", data={**owner, **data})
