"""How does a model learn what memory it has, and who can do something?"""

from __future__ import annotations

from typing import Any

from omoide.core.action import Action, action
from omoide.core.scope import Scope
from omoide.integrations.mcp.calling import Call
from omoide.integrations.mcp.params import NO_LIMITS, ActionName, Limits, WantedTags
from omoide.service import agents
from omoide.stores.protocols import Counts
from omoide.tools.desk import QUERY, Setting, desk_of
from omoide.tools.params import labels, text
from omoide.verbs import offering

MOST_ACTION = 200


def status_tool(setting: Setting) -> Action:
    """The tool, set up as the program wants it."""

    @action(effectful=True, idempotent=True, tags=("memory",))
    async def memory_status(ctx: Call) -> dict[str, Any]:
        """Tell whose memory this is, how much it holds of which types, and whether it can be written to."""
        desk = desk_of(ctx, setting, "memory_status", QUERY)
        able: Counts = offering(desk.store, Counts, "count")
        figures = await able.stats(desk.seen)
        return {
            "scope": whose(desk.seen),
            "memories": figures.live,
            "forgotten": figures.superseded,
            "stale": figures.stale,
            "expired": figures.expired,
            "by_type": {str(name): count for name, count in figures.by_type.items() if name is not None},
            "searched_by": "words and meaning" if figures.embedder else "words",
            "writable": ctx.house.writable,
        }

    return memory_status


def who_can_tool(setting: Setting) -> Action:
    """The tool, set up as the program wants it."""

    @action(effectful=True, idempotent=True, tags=("memory",))
    async def who_can(
        ctx: Call, action: ActionName = "", tags: WantedTags = (), limits: Limits = NO_LIMITS
    ) -> dict[str, Any]:
        """Find the agents that can do something, the most experienced first, each with the reason."""
        desk = desk_of(ctx, setting, "who_can", QUERY)
        wanted = text(action, "action", MOST_ACTION) or None
        found = await agents.who_can(desk.store, wanted, labels(tags), limits, namespace=desk.seen.namespace)
        return {
            "agents": [
                {"id": one.id, "name": one.name, "reason": one.reason}
                | ({} if one.age is None else {"age": one.age})
                for one in found
            ],
            "count": len(found),
        }

    return who_can


def whose(scope: Scope) -> dict[str, str]:
    """A scope in plain words, without what it leaves open."""
    named = {
        "namespace": scope.namespace,
        "agent": scope.agent_id,
        "project": scope.project_id,
        "session": scope.session_id,
    }
    return {name: value for name, value in named.items() if value is not None}
