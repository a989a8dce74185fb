"""How does short-term memory become long-term memory?

Each memory has an id that follows from what it is, so a promotion that was interrupted can be tried again
and makes nothing twice. What cannot be kept stays where it was.

"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import msgspec

from omoide import ids
from omoide.core.entry import DELETED, Entry, Scope, WriteRequest
from omoide.core.frozen import EMPTY_MAP
from omoide.core.signal import Signal
from omoide.errors import Contradiction, NotFound
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
    """What was looked at, and what became of it; a dry run has no run."""

    plan: PromotionPlan
    run: PromotionRun | None = None
    signals: tuple[Signal, ...] = ()

    @property
    def dry_run(self) -> bool:
        """Whether nothing was written."""
        return self.run is None

    def __str__(self) -> str:
        if self.run is None:
            return str(self.plan)
        failed = "".join(f"\nfailed    {one.id}: {one.kind}: {one.problem}" for one in self.run.failed)
        return f"run {self.run.id}: {len(self.run.promoted)} promoted\n{self.plan}{failed}"


async def promote(
    store: Store, plan: PromotionPlan, *, strict: bool = False, promoted_ids: Container[str] = ()
) -> Promotion:
    """Carry a plan out; what fails is named, and hinders nothing else.

    `earlier` are the ids of what other runs made: what is there and is not among them was made by a try of
    this run that came to no end.
    """
    promoted: list[PromotedEntry] = []
    failed: list[PromotionFailure] = []
    signals: list[Signal] = []
    run_id = ids.new("prm_")
    for candidate in plan.to_promote:
        try:
            done = await _promote_candidate(store, candidate, strict, promoted_ids)
        except Exception as error:  # a store may be somebody's own, and so may its guard
            failed.append(PromotionFailure(id=candidate.id, kind=type(error).__name__, problem=str(error)))
            continue
        promoted.append(done)
        signals += _signals_for(candidate, done, run_id)
    run = PromotionRun(
        id=run_id, at=plan.at, trigger=plan.trigger, promoted=tuple(promoted), failed=tuple(failed)
    )
    return Promotion(plan=plan, run=run, signals=(*signals, *_run_signals(run, plan)))


async def _promote_candidate(
    store: Store, candidate: PromotionCandidate, strict: bool, promoted_ids: Container[str]
) -> PromotedEntry:
    entry, old = candidate.entry, None
    if candidate.before is not None:
        old = await _latest_successor(store, candidate.before, entry)
    if strict:
        await _check_strict(store, entry, old)
    known = await _find_entry(store, entry.id, entry.scope, superseded=True)
    kept, new = await _write_or_restore(store, candidate, known, old)
    if not strict:
        await _link_conflicts(store, kept)
    return PromotedEntry(
        id=kept.id,
        item=candidate.item or candidate.id,
        key=candidate.key,
        digest=candidate.digest,
        supersedes=None if old is None else old.id,
        before=candidate.before,
        print=fingerprint(kept),
        made=new and kept.id not in promoted_ids,
    )


async def _write_or_restore(
    store: Store, candidate: PromotionCandidate, known: Entry | None, old: Entry | None
) -> tuple[Entry, bool]:
    """The memory as it is kept, and whether it is this promotion's own."""
    entry = candidate.entry
    if known is not None and (known.content, known.type) == (entry.content, entry.type):
        if _is_undone(known):
            able: SupportsSupersede = require(store, SupportsSupersede, "promote again what was undone")
            known = await able.reinstate(entry.id, entry.scope)
        return known, True
    receipt = await store.write(
        WriteRequest(
            entry=entry,
            dedupe=candidate.key is None,  # the same words, said again, are the same memory
            supersedes=None if old is None else old.id,
        )
    )
    return receipt.entry, receipt.outcome != "duplicate_of"


async def _check_strict(store: Store, entry: Entry, old: Entry | None) -> None:
    """Raise where a memory is not fit to be kept; what it is to replace is no contradiction."""
    conflicts.check_complete(entry)
    found = [
        one.other if one.one.id == entry.id else one.one for one in await conflicts.conflicts_of(store, entry)
    ]
    others = [one.id for one in found if old is None or one.id != old.id]
    if others:
        raise Contradiction(entry.id, others)


async def _link_conflicts(store: Store, entry: Entry) -> None:
    """Link a memory with those it contradicts, in a store that keeps links."""
    if isinstance(store, SupportsLinks) and isinstance(store, SupportsGet):
        await conflicts.link_conflicts(store, entry, Scope(namespace=entry.namespace))


async def _latest_successor(store: Store, mark: PromotionMark, entry: Entry) -> Entry | None:
    """What a value has to replace: the memory of the mark, or the one that has replaced it under its key.

    The mark may be older than that: another program promoted meanwhile, or this one died before it was saved.
    """
    seen: set[str] = set()
    id: str | None = mark.id
    while id is not None and id not in seen:
        seen.add(id)
        found = await _find_entry(store, id, entry.scope, superseded=True)
        if found is None or found.id == entry.id or found.metadata.get("key") != mark.key:
            return None
        if found.superseded_by is None:
            return found
        id = found.superseded_by
    return None


async def _find_entry(store: Store, id: str, scope: Scope, *, superseded: bool = False) -> Entry | None:
    """A memory that is still there, and by default still counts."""
    if not isinstance(store, SupportsGet):
        return None
    try:
        found = await store.get(id, scope)
    except NotFound:
        return None
    return found if superseded or found.superseded_by is None else None


async def undo(
    store: Store, run: PromotionRun, scope: Scope, *, undone: Mapping[str, PromotedEntry] = EMPTY_MAP
) -> tuple[list[Signal], list[Entry]]:
    """Take back what a run made: its memories are forgotten, and what they superseded counts again.

    What somebody changed since stays as it is now, and what other runs made that were undone (`gone`) does
    not come back. What was taken back comes with what there is to tell.
    """
    able: SupportsSupersede = require(store, SupportsSupersede, "undo a promotion")
    signals: list[Signal] = []
    taken: list[Entry] = []
    for one in reversed(run.promoted):
        kept = await _find_entry(store, one.id, scope, superseded=True) if one.made else None
        if kept is None or not (_is_undone(kept) or _is_unmodified(kept, one)):
            continue
        taken.append(kept)
        if not _is_undone(kept):  # an earlier try may have come to this point
            await able.supersede(one.id, scope, reason=UNDONE_REASON)
        signals.append(_signal("memory.superseded", scope, id=one.id, by=None, reason=UNDONE_REASON))
        heir, before = one.id, one.supersedes
        while before is not None and before in undone:
            heir, before = before, undone[before].supersedes
        if before is not None:
            old = await _find_entry(store, before, scope, superseded=True)
            if old is not None and old.superseded_by == heir:
                await able.reinstate(old.id, scope)
    return signals, taken


def _is_undone(kept: Entry) -> bool:
    return kept.superseded_by == DELETED and kept.superseded_reason == UNDONE_REASON


def _is_unmodified(kept: Entry, promoted: PromotedEntry) -> bool:
    return kept.superseded_by is None and fingerprint(kept) == promoted.print


def _signals_for(candidate: PromotionCandidate, done: PromotedEntry, run_id: str) -> list[Signal]:
    """What others may want to hear about one memory: what it is called, never what it says."""
    scope = candidate.entry.scope
    found = []
    if done.made:
        found.append(_signal("memory.stored", scope, id=done.id, type=candidate.entry.type, run=run_id))
    if done.supersedes is not None and done.made:
        found.append(_signal("memory.superseded", scope, id=done.supersedes, by=done.id, run=run_id))
    return found


def _run_signals(run: PromotionRun, plan: PromotionPlan) -> Sequence[Signal]:
    if not run.promoted:
        return ()
    scope = plan.to_promote[0].entry.scope
    told = [one.id for one in run.promoted]
    return (
        _signal("memory.promoted", scope, run=run.id, trigger=run.trigger, ids=told, count=len(told),
            failed=len(run.failed),
        ),
    )  # fmt: skip


def _signal(name: str, scope: Scope, **data: object) -> Signal:
    whose = {
        "namespace": scope.namespace,
        "agent_id": scope.agent_id,
        "session_id": scope.session_id,
        "project_id": scope.project_id,
    }
    return Signal(type=name, source="/omoide/promotion", data={**whose, **data})
