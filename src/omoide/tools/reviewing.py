"""How does a model find out what in its memory needs attention?"""

from __future__ import annotations

from typing import Any

from omoide.core.action import Action, action
from omoide.core.entry import Entry
from omoide.longterm.reviewing import review as review_memories
from omoide.tools.desk import QUERY, Setting, desk_of
from omoide.tools.params import Limit
from omoide.tools.showing import shown


def make(setting: Setting) -> Action:
    """The tool, set up as the program wants it."""

    @action(effectful=True, idempotent=True, tags=("memory",))
    async def review(ctx: Any, limit: Limit = 10) -> dict[str, Any]:
        """Find what needs attention: contradictions, what no longer holds and why, and open questions."""
        desk = desk_of(ctx, setting, "review", QUERY)
        found = await review_memories(desk.store, desk.seen, limit=limit)
        answer: dict[str, Any] = {
            "conflicts": [
                {"about": one.key or "said to contradict", "memories": _shown((one.one, one.other))}
                for one in found.conflicts
            ],
            "stale": [shown(one.entry, why=[str(chain) for chain in one.chains]) for one in found.stale],
            "open_questions": _shown(found.open_questions),
            "expiring": _shown(found.expiring),
        }
        answer["message"] = "Nothing needs attention." if found.is_clear else "Look at these."
        if found.cut:
            answer["message"] += " There is more than is shown."
        return answer

    return review


def _shown(entries: tuple[Entry, ...]) -> list[dict[str, Any]]:
    return [shown(entry) for entry in entries]
