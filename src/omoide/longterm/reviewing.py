"""What in a memory needs somebody's attention?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from omoide import clock
from omoide.core.entry import Entry
from omoide.core.recalling import Filter, check_positive
from omoide.core.scope import Scope
from omoide.core.value import check_count, check_instance
from omoide.longterm import querying, reading, rendering
from omoide.longterm.conflicts import Disagreement, conflicts
from omoide.longterm.staleness import Chain, why_stale

SOON_MS = 7 * 24 * 3_600_000


class Stale(msgspec.Struct, frozen=True, kw_only=True):
    """A memory that rests on something which no longer holds, and why."""

    entry: Entry
    chains: tuple[Chain, ...] = ()


class ReviewReport(msgspec.Struct, frozen=True, kw_only=True):
    """What contradicts, what no longer holds, what is not known, and what will soon expire."""

    conflicts: tuple[Disagreement, ...] = ()
    stale: tuple[Stale, ...] = ()
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
            *_part("Contradictions", [(str(one), []) for one in self.conflicts]),
            *_part("No longer holds", [_stale(one) for one in self.stale]),
            *_part("Open questions", _plain(self.open_questions)),
            *_part("Expires soon", _plain(self.expiring)),
        ]
        return "\n".join([*parts, *(["There is more."] if self.cut else [])])


async def review(
    store: Any, scope: Scope, *, limit: int = 50, soon_ms: int = SOON_MS, now: int | None = None
) -> ReviewReport:
    """What needs attention in a scope, at most `limit` of each kind; nothing is changed.

    What expires within `soon_ms` counts as expiring.
    """
    check_instance(scope, "scope", kind=Scope)
    check_positive(limit, "limit")
    check_count(soon_ms, "soon_ms")
    at = clock.resolve(now)
    contradicting = await conflicts(store, scope, limit=limit + 1)
    asking = await querying.by_type(store, "unknown", scope, limit=limit + 1)
    stale: list[Entry] = []
    expiring: list[Entry] = []
    async for entry in reading.each(store, scope, Filter(include_stale=True), at=at):
        if entry.stale:
            stale.append(entry)
        elif entry.expires_at is not None and entry.expires_at <= at + soon_ms:
            expiring.append(entry)
    expiring.sort(key=lambda entry: entry.expires_at or 0)
    return ReviewReport(
        conflicts=contradicting[:limit],
        stale=tuple(
            [Stale(entry=one, chains=await why_stale(store, one.id, scope, limit=3)) for one in stale[:limit]]
        ),
        open_questions=tuple(asking[:limit]),
        expiring=tuple(expiring[:limit]),
        cut=any(len(found) > limit for found in (contradicting, asking, stale, expiring)),
    )


def _part(title: str, branches: list[rendering.Branch]) -> list[str]:
    return [rendering.tree((title, branches))] if branches else []


def _plain(entries: Iterable[Entry]) -> list[rendering.Branch]:
    return [(rendering.memory(entry), []) for entry in entries]


def _stale(one: Stale) -> rendering.Branch:
    return rendering.memory(one.entry), [(str(chain), []) for chain in one.chains]
