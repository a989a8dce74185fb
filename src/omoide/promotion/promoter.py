"""Carry out a promotion plan, and undo a run.

The id of each entry is derived from its content, so an interrupted promotion can be repeated and makes
nothing twice. What cannot be stored stays in short-term memory.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import msgspec

from omoide import ids
from omoide.core.entry import DELETED, Entry, Scope, WriteRequest
from omoide.core.frozen import EMPTY_MAP
from omoide.core.signal import Signal
from omoide.errors import NotFound
from omoide.longterm import conflicts
from omoide.promotion.plan import (
    PromotedEntry,
    PromotionCandidate,
    PromotionFailure,
    PromotionMark,
    PromotionPlan,
    PromotionRun,
    fingerprint,
)
from omoide.stores.protocols import Store, SupportsGet, SupportsLinks, SupportsSupersede
from omoide.verbs import require

UNDONE_REASON = "promotion undone"


class Promotion(msgspec.Struct, frozen=True, kw_only=True):
    """A plan and its run; a dry run has no run."""

    plan: PromotionPlan
    run: PromotionRun | None = None
    signals: tuple[Signal, ...] = ()

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
        return f"run {self.run.id}: {len(self.run.promoted)} promoted\n{self.plan}{failed}"


async def promote(
    store: Store, plan: PromotionPlan, *, strict: bool = False, promoted_ids: Container[str] = ()
) -> Promotion:
    """Carry out a plan; a failure is reported in the run and does not stop the others.

    Args:
        store: store to write to.
        plan: plan to carry out.
        strict: refuse entries that contradict others or are incomplete.
        promoted_ids: ids of entries that earlier runs made. An existing entry that is not among them was
            written by an interrupted attempt of this run.
    """
    promoted: list[PromotedEntry] = []
    failed: list[PromotionFailure] = []
    signals: list[Signal] = []
    run_id = ids.new("prm_")
    for candidate in plan.to_promote:
        try:
            entry = await _promote_candidate(store, candidate, strict, promoted_ids)
        except Exception as error:  # the store, or a guard around it, may be user code
            failed.append(PromotionFailure(id=candidate.id, kind=type(error).__name__, problem=str(error)))
            continue
        promoted.append(entry)
        signals += _signals_for(candidate, entry, run_id)
    run = PromotionRun(
        id=run_id, at=plan.at, trigger=plan.trigger, promoted=tuple(promoted), failed=tuple(failed)
    )
    return Promotion(plan=plan, run=run, signals=(*signals, *_run_signals(run, plan)))


async def _promote_candidate(
    store: Store, candidate: PromotionCandidate, strict: bool, promoted_ids: Container[str]
) -> PromotedEntry:
    entry, superseded = candidate.entry, None
    if candidate.before is not None:
        superseded = await _latest_successor(store, candidate.before, entry)
    # Before anything is written, so that a refused entry leaves nothing behind.
    if strict:
        await _check_strict(store, entry, superseded)
    existing = await _find_entry(store, entry.id, entry.scope)
    stored, created = await _write_or_reinstate(store, candidate, existing, superseded)
    if not strict:
        await _link_conflicts(store, stored)
    return PromotedEntry(
        id=stored.id,
        item=candidate.item or candidate.id,
        key=candidate.key,
        digest=candidate.digest,
        supersedes=None if superseded is None else superseded.id,
        before=candidate.before,
        print=fingerprint(stored),
        # `undo` of this run must not forget what an earlier run made.
        made=created and stored.id not in promoted_ids,
    )


async def _write_or_reinstate(
    store: Store, candidate: PromotionCandidate, existing: Entry | None, superseded: Entry | None
) -> tuple[Entry, bool]:
    """Return the stored entry, and True if this promotion made it."""
    entry = candidate.entry
    # An interrupted attempt wrote it already; a second write would be another revision.
    if existing is not None and (existing.content, existing.type) == (entry.content, entry.type):
        if _is_undone(existing):
            undoer: SupportsSupersede = require(store, SupportsSupersede, "promote again what was undone")
            existing = await undoer.reinstate(entry.id, entry.scope)
        return existing, True
    receipt = await store.write(
        WriteRequest(
            entry=entry,
            # Equal text is the same memory, but a key of the context may return to a former value.
            dedupe=candidate.key is None,
            supersedes=None if superseded is None else superseded.id,
        )
    )
    return receipt.entry, receipt.outcome != "duplicate_of"


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
    store: Store, run: PromotionRun, scope: Scope, *, undone: Mapping[str, PromotedEntry] = EMPTY_MAP
) -> tuple[list[Signal], list[Entry]]:
    """Undo a run: forget its entries and reinstate what they superseded.

    Entries that were modified since stay as they are.

    Args:
        store: store that the run wrote to.
        run: run to undo.
        scope: scope of its entries.
        undone: entries of other undone runs by id; they are not reinstated.

    Returns:
        Signals to publish, and the entries that were forgotten.
    """
    undoer: SupportsSupersede = require(store, SupportsSupersede, "undo a promotion")
    signals: list[Signal] = []
    forgotten: list[Entry] = []
    # In reverse order, because an entry of a run may supersede an earlier one of the same run.
    for made in reversed(run.promoted):
        stored = await _find_entry(store, made.id, scope) if made.made else None
        if stored is None or not (_is_undone(stored) or _is_unmodified(stored, made)):
            continue
        forgotten.append(stored)
        if not _is_undone(stored):  # an interrupted attempt may have come this far
            await undoer.supersede(made.id, scope, reason=UNDONE_REASON)
        signals.append(_signal("memory.superseded", scope, id=made.id, by=None, reason=UNDONE_REASON))
        successor, predecessor = made.id, made.supersedes
        # Runs may be undone in any order: predecessors that were undone themselves stay forgotten.
        while predecessor is not None and predecessor in undone:
            successor, predecessor = predecessor, undone[predecessor].supersedes
        if predecessor is not None:
            entry = await _find_entry(store, predecessor, scope)
            # Something else may have replaced it since; then it stays superseded.
            if entry is not None and entry.superseded_by == successor:
                await undoer.reinstate(entry.id, scope)
    return signals, forgotten


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
