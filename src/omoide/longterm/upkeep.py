"""Review the memories of a scope, and prune those that are old, uncertain or unused.

Pruning forgets and never erases: a pruned memory is superseded with the reason, and can be reinstated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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

PROTECTED_TYPES = ("decision", "convention", "lesson_learned")
DAY_MS = 24 * 3_600_000


class PruneCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """A memory that meets all criteria of a pruning."""

    entry: Entry
    reasons: tuple[str, ...]
    supports: tuple[str, ...] = ()
    """The ids of the memories that depend on it, and would become stale."""

    @property
    def reason(self) -> str:
        """The reason that is stored with it."""
        return f"pruned: {', '.join(self.reasons)}"


class PruneReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a pruning, or its plan for a dry run."""

    candidates: tuple[PruneCandidate, ...] = ()
    """Oldest first."""
    kept: int = 0
    """Live memories that do not meet the criteria."""
    protected: int = 0
    """Memories that meet the criteria and have a protected type."""
    cut: int = 0
    """Candidates above the limit."""
    pruned: tuple[str, ...] = ()
    passed_over: tuple[str, ...] = ()
    """Candidates that were changed or erased in the meantime."""
    dry_run: bool = True

    def __str__(self) -> str:
        done = "would be pruned" if self.dry_run else "pruned"
        shown = len(self.candidates) if self.dry_run else len(self.pruned)
        title = f"{shown} memories {done}, {self.kept} stay, {self.protected} are protected"
        below: list[lineage.Branch] = []
        for candidate in self.candidates:
            dependents: list[lineage.Branch] = [(f"{id} depends on it", []) for id in candidate.supports]
            line = f"{lineage.render_entry(candidate.entry)}: {', '.join(candidate.reasons)}"
            below.append((line, dependents))
        return lineage.render_tree((title, below)) + (f"\n{self.cut} above the limit." if self.cut else "")


class _Criteria(msgspec.Struct, frozen=True, kw_only=True):
    """The criteria of a pruning; a memory has to meet all that are given."""

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
        """Return the criteria that a memory meets by its own fields; None if it fails one."""
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
    """Find the memories that meet all given criteria, and with `dry_run=False` forget them.

    Args:
        types: Consider only memories of these types and their subtypes.
        protected: Never prune memories of these types and their subtypes.
        limit: The largest number of candidates, oldest first.

    Raises:
        Invalid: No criterion is given.
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
    never, only = _with_subtypes(protected, "protected"), _with_subtypes(types, "types")
    report = await _plan(store, scope, criteria, only, never, limit)
    return report if dry_run else await _apply(store, scope, report)


async def _plan(
    store: Any, scope: Scope, criteria: _Criteria, only: set[str], never: set[str], limit: int
) -> PruneReport:
    found: list[tuple[Entry, list[str]]] = []
    dependents: dict[str, list[str]] = {}
    seen = 0
    # Stale memories are not recalled, and can be pruned as well.
    async for entry in queries.iter_entries(store, scope, Filter(include_stale=True), at=criteria.now):
        seen += 1
        # Collected from all live memories, and not only from candidates: any of them may become stale.
        for premise in queries.premises(entry):
            dependents.setdefault(premise, []).append(entry.id)
        reasons = criteria.reasons(entry) if not only or _type_of(entry) in only else None
        if reasons is not None:
            found.append((entry, reasons))
    # Use counts may take a read per memory, so they are read for the remaining candidates only.
    if criteria.max_access is not None:
        uses = await queries.use_counts(store, [entry.id for entry, _ in found], scope)
        found = [
            (entry, [*reasons, f"used {uses[entry.id]} times"])
            for entry, reasons in found
            if uses[entry.id] <= criteria.max_access
        ]
    # Entries come newest first; up to the limit, the oldest are pruned.
    free = [(entry, reasons) for entry, reasons in reversed(found) if _type_of(entry) not in never]
    candidates = tuple(
        PruneCandidate(entry=entry, reasons=tuple(reasons), supports=tuple(dependents.get(entry.id, ())))
        for entry, reasons in free[:limit]
    )
    return PruneReport(
        candidates=candidates,
        kept=seen - len(found),
        protected=len(found) - len(free),
        cut=len(free) - len(candidates),
    )


def _with_subtypes(types: Sequence[str], field: str) -> set[str]:
    return {name for type in check_texts(types, field) for name in memory_types.with_subtypes(type)}


def _type_of(entry: Entry) -> str:
    return entry.type or ROOT_TYPE


async def _apply(store: Any, scope: Scope, report: PruneReport) -> PruneReport:
    superseding: SupportsSupersede = require(store, SupportsSupersede, "forget")
    pruned: list[str] = []
    skipped: list[str] = []
    for candidate in report.candidates:
        entry = candidate.entry
        try:
            # The revision of the plan: a memory that was changed since is not forgotten.
            await superseding.supersede(entry.id, scope, reason=candidate.reason, expected_rev=entry.rev)
            pruned.append(entry.id)
        except (Conflict, NotFound):
            skipped.append(entry.id)
    return msgspec.structs.replace(report, pruned=tuple(pruned), passed_over=tuple(skipped), dry_run=False)


EXPIRY_WINDOW_MS = 7 * 24 * 3_600_000


class StaleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A stale memory with the chains that made it stale."""

    entry: Entry
    chains: tuple[Chain, ...] = ()


class ReviewReport(msgspec.Struct, frozen=True, kw_only=True):
    """Contradictions, stale memories, open questions, and memories that expire soon."""

    conflicts: tuple[Disagreement, ...] = ()
    stale: tuple[StaleEntry, ...] = ()
    open_questions: tuple[Entry, ...] = ()
    expiring: tuple[Entry, ...] = ()
    cut: bool = False
    """True if a list was cut at the limit."""

    @property
    def is_clear(self) -> bool:
        """True if all lists are empty."""
        return not (self.conflicts or self.stale or self.open_questions or self.expiring)

    def __str__(self) -> str:
        if self.is_clear:
            return "Nothing needs attention."
        parts = [
            *_section("Contradictions", [(str(pair), []) for pair in self.conflicts]),
            *_section("Stale", [_stale_branch(stale) for stale in self.stale]),
            *_section("Open questions", _entry_branches(self.open_questions)),
            *_section("Expires soon", _entry_branches(self.expiring)),
        ]
        return "\n".join([*parts, *(["There is more."] if self.cut else [])])


async def review(
    store: Any, scope: Scope, *, limit: int = 50, soon_ms: int = EXPIRY_WINDOW_MS, now: int | None = None
) -> ReviewReport:
    """Return what needs attention in a scope; nothing is changed.

    Args:
        limit: The largest number of items in each list.
        soon_ms: Time ahead, in milliseconds, in which an expiry is reported.
    """
    check_instance(scope, "scope", kind=Scope)
    check_positive(limit, "limit")
    check_count(soon_ms, "soon_ms")
    at = clock.resolve(now)
    # One more than is shown tells whether a list was cut.
    contradictions = await find_conflicts(store, scope, limit=limit + 1)
    questions = await queries.query_by_type(store, "unknown", scope, limit=limit + 1)
    stale: list[Entry] = []
    expiring: list[Entry] = []
    async for entry in queries.iter_entries(store, scope, Filter(include_stale=True), at=at):
        if entry.stale:
            stale.append(entry)
        elif entry.expires_at is not None and entry.expires_at <= at + soon_ms:
            expiring.append(entry)
    expiring.sort(key=lambda entry: entry.expires_at or 0)
    return ReviewReport(
        conflicts=contradictions[:limit],
        stale=tuple(
            [
                StaleEntry(entry=entry, chains=await why_stale(store, entry.id, scope, limit=3))
                for entry in stale[:limit]
            ]
        ),
        open_questions=tuple(questions[:limit]),
        expiring=tuple(expiring[:limit]),
        cut=any(len(found) > limit for found in (contradictions, questions, stale, expiring)),
    )


def _section(title: str, branches: list[lineage.Branch]) -> list[str]:
    return [lineage.render_tree((title, branches))] if branches else []


def _entry_branches(entries: Iterable[Entry]) -> list[lineage.Branch]:
    return [(lineage.render_entry(entry), []) for entry in entries]


def _stale_branch(stale: StaleEntry) -> lineage.Branch:
    return lineage.render_entry(stale.entry), [(str(chain), []) for chain in stale.chains]
