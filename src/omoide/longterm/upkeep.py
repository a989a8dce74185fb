"""Review and pruning.

Pruning forgets, it never erases: what is pruned is superseded with the reason, and `restore` brings it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from omoide import clock
from omoide.core import entry as memory_types
from omoide.core.entry import ROOT_TYPE, Entry, Filter, Scope, check_positive
from omoide.core.value import check_count, check_instance, check_texts, check_unit
from omoide.errors import Conflict, Invalid, NotFound
from omoide.longterm import lineage, queries
from omoide.longterm.conflicts import Disagreement, find_conflicts
from omoide.longterm.lineage import Chain, why_stale
from omoide.stores.protocols import SupportsSupersede
from omoide.verbs import require

# pruning: Which memories can go, and what would go with them?


PROTECTED_TYPES = ("decision", "convention", "lesson_learned")
DAY_MS = 24 * 3_600_000


class PruneCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A memory that can go."""

    entry: Entry
    reasons: tuple[str, ...]
    supports: tuple[str, ...] = ()
    """The memories that rest on it, and would no longer hold."""

    @property
    def reason(self) -> str:
        """The reason that is kept with it."""
        return f"pruned: {', '.join(self.reasons)}"


class PruneReport(msgspec.Struct, frozen=True, kw_only=True):
    """What can go, what stays, and what has gone."""

    candidates: tuple[PruneCandidate, ...] = ()
    """Oldest first."""
    kept: int = 0
    """How many live memories do not meet the criteria."""
    protected: int = 0
    """How many would, and are of a type that is protected."""
    cut: int = 0
    """How many more could go than the limit allows."""
    pruned: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()
    """What somebody changed in the meantime, and was left alone."""
    dry_run: bool = True

    def __str__(self) -> str:
        done = "would go" if self.dry_run else "went"
        shown = len(self.candidates) if self.dry_run else len(self.pruned)
        title = f"{shown} memories {done}, {self.kept} stay, {self.protected} are protected"
        below: list[lineage.Branch] = []
        for one in self.candidates:
            resting: list[lineage.Branch] = [(f"{id} rests on it", []) for id in one.supports]
            below.append((f"{lineage.render_entry(one.entry)}: {', '.join(one.reasons)}", resting))
        return lineage.render_tree((title, below)) + (f"\n{self.cut} more could go." if self.cut else "")


class _Criteria(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a memory one that can go: everything that is given has to hold."""

    older_than_ms: int | None
    max_confidence: float | None
    max_access: int | None
    now: int

    def __post_init__(self) -> None:
        if (self.older_than_ms, self.max_confidence, self.max_access) == (None, None, None):
            raise Invalid(
                "criteria", "are missing", "pass older_than_ms, max_confidence, max_access or several of them"
            )
        if self.older_than_ms is not None:
            check_count(self.older_than_ms, "older_than_ms")
        if self.max_confidence is not None:
            check_unit(self.max_confidence, "max_confidence")
        if self.max_access is not None:
            check_count(self.max_access, "max_access")

    def reasons(self, entry: Entry) -> list[str] | None:
        """Why a memory can go as far as it tells itself; None where it cannot."""
        found = []
        if self.older_than_ms is not None:
            age = self.now - entry.created_at
            if age <= self.older_than_ms:
                return None
            found.append(f"{age // DAY_MS} days old")
        if self.max_confidence is not None:
            if entry.confidence > self.max_confidence:
                return None
            found.append(f"confidence {entry.confidence:g}")
        return found


async def prune(
    store: Any,
    scope: Scope,
    *,
    older_than_ms: int | None = None,
    max_confidence: float | None = None,
    max_access: int | None = None,
    types: Sequence[str] = (),
    protected: Sequence[str] = PROTECTED_TYPES,
    now: int | None = None,
    dry_run: bool = True,
    limit: int = 1_000,
) -> PruneReport:
    """Find the memories that meet all criteria given, and with `dry_run=False` forget them.

    Protected types, with those that refine them, never go. Each candidate names the memories that rest on it.
    """
    check_instance(scope, "scope", kind=Scope)
    check_instance(dry_run, "dry_run", kind=bool)
    check_positive(limit, "limit")
    criteria = _Criteria(
        older_than_ms=older_than_ms,
        max_confidence=max_confidence,
        max_access=max_access,
        now=clock.resolve(now),
    )
    safe = {name for one in check_texts(protected, "protected") for name in memory_types.with_subtypes(one)}
    wanted = {name for one in check_texts(types, "types") for name in memory_types.with_subtypes(one)}
    report = await _plan(store, scope, criteria, wanted, safe, limit)
    return report if dry_run else await _apply(store, scope, report)


async def _plan(
    store: Any, scope: Scope, criteria: _Criteria, wanted: set[str], safe: set[str], limit: int
) -> PruneReport:
    found: list[tuple[Entry, list[str]]] = []
    resting: dict[str, list[str]] = {}
    seen = 0
    # What is stale can go as well: nobody recalls it.
    async for entry in queries.iter_entries(store, scope, Filter(include_stale=True), at=criteria.now):
        seen += 1
        for premise in queries.premises(entry):
            resting.setdefault(premise, []).append(entry.id)
        reasons = criteria.reasons(entry) if not wanted or _type_of(entry) in wanted else None
        if reasons is not None:
            found.append((entry, reasons))
    if criteria.max_access is not None:
        uses = await queries.use_counts(store, [entry.id for entry, _ in found], scope)
        found = [
            (entry, [*reasons, f"used {uses[entry.id]} times"])
            for entry, reasons in found
            if uses[entry.id] <= criteria.max_access
        ]
    free = [(entry, reasons) for entry, reasons in reversed(found) if _type_of(entry) not in safe]
    candidates = tuple(
        PruneCandidate(entry=entry, reasons=tuple(reasons), supports=tuple(resting.get(entry.id, ())))
        for entry, reasons in free[:limit]
    )
    return PruneReport(
        candidates=candidates,
        kept=seen - len(found),
        protected=len(found) - len(free),
        cut=len(free) - len(candidates),
    )


def _type_of(entry: Entry) -> str:
    return entry.type or ROOT_TYPE


async def _apply(store: Any, scope: Scope, report: PruneReport) -> PruneReport:
    able: SupportsSupersede = require(store, SupportsSupersede, "forget")
    pruned: list[str] = []
    for one in report.candidates:
        with suppress(Conflict, NotFound):
            await able.supersede(one.entry.id, scope, reason=one.reason, expected_rev=one.entry.rev)
            pruned.append(one.entry.id)
    gone = {*pruned}
    left = tuple(one.entry.id for one in report.candidates if one.entry.id not in gone)
    return msgspec.structs.replace(report, pruned=tuple(pruned), passed_over=left, dry_run=False)


# reviewing: What in a memory needs somebody's attention?


EXPIRY_WINDOW_MS = 7 * 24 * 3_600_000


class StaleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A memory that rests on something which no longer holds, and why."""

    entry: Entry
    chains: tuple[Chain, ...] = ()


class ReviewReport(msgspec.Struct, frozen=True, kw_only=True):
    """What contradicts, what no longer holds, what is not known, and what will soon expire."""

    conflicts: tuple[Disagreement, ...] = ()
    stale: tuple[StaleEntry, ...] = ()
    open_questions: tuple[Entry, ...] = ()
    expiring: tuple[Entry, ...] = ()
    cut: bool = False
    """Whether there is more of something than was asked for."""

    @property
    def is_clear(self) -> bool:
        """Whether there is nothing to look at."""
        return not (self.conflicts or self.stale or self.open_questions or self.expiring)

    def __str__(self) -> str:
        if self.is_clear:
            return "Nothing needs attention."
        parts = [
            *_section("Contradictions", [(str(one), []) for one in self.conflicts]),
            *_section("No longer holds", [_stale_branch(one) for one in self.stale]),
            *_section("Open questions", _entry_branches(self.open_questions)),
            *_section("Expires soon", _entry_branches(self.expiring)),
        ]
        return "\n".join([*parts, *(["There is more."] if self.cut else [])])


async def review(
    store: Any, scope: Scope, *, limit: int = 50, soon_ms: int = EXPIRY_WINDOW_MS, now: int | None = None
) -> ReviewReport:
    """What needs attention in a scope, at most `limit` of each kind; nothing is changed.

    What expires within `soon_ms` counts as expiring.
    """
    check_instance(scope, "scope", kind=Scope)
    check_positive(limit, "limit")
    check_count(soon_ms, "soon_ms")
    at = clock.resolve(now)
    contradicting = await find_conflicts(store, scope, limit=limit + 1)
    asking = await queries.query_by_type(store, "unknown", scope, limit=limit + 1)
    stale: list[Entry] = []
    expiring: list[Entry] = []
    async for entry in queries.iter_entries(store, scope, Filter(include_stale=True), at=at):
        if entry.stale:
            stale.append(entry)
        elif entry.expires_at is not None and entry.expires_at <= at + soon_ms:
            expiring.append(entry)
    expiring.sort(key=lambda entry: entry.expires_at or 0)
    return ReviewReport(
        conflicts=contradicting[:limit],
        stale=tuple(
            [
                StaleEntry(entry=one, chains=await why_stale(store, one.id, scope, limit=3))
                for one in stale[:limit]
            ]
        ),
        open_questions=tuple(asking[:limit]),
        expiring=tuple(expiring[:limit]),
        cut=any(len(found) > limit for found in (contradicting, asking, stale, expiring)),
    )


def _section(title: str, branches: list[lineage.Branch]) -> list[str]:
    return [lineage.render_tree((title, branches))] if branches else []


def _entry_branches(entries: Iterable[Entry]) -> list[lineage.Branch]:
    return [(lineage.render_entry(entry), []) for entry in entries]


def _stale_branch(one: StaleEntry) -> lineage.Branch:
    return lineage.render_entry(one.entry), [(str(chain), []) for chain in one.chains]
