"""How does a model say how two memories hang together?"""

from __future__ import annotations

from typing import Any

from omoide.core.action import Action, action
from omoide.longterm import relations
from omoide.longterm.relating import relate as relate_memories
from omoide.tools.desk import WRITE, Setting, desk_of
from omoide.tools.forgetting import held
from omoide.tools.params import MemoryId, RelationName


def make(setting: Setting) -> Action:
    """The tool, set up as the program wants it."""

    @action(effectful=True, idempotent=True, tags=("memory",))
    async def relate(
        ctx: Any, source_id: MemoryId, relation: RelationName, target_id: MemoryId
    ) -> dict[str, Any]:
        """Say how one memory relates to another: what it rests on, contradicts, refines or was caused by."""
        desk = desk_of(ctx, setting, "relate", WRITE)
        wanted = relations.check(relation)
        # Whether a memory still holds is for its owner to say; that two are related, for who sees both.
        scope = desk.own if wanted.name in relations.CONSEQUENT else desk.seen
        source, target = source_id.strip(), target_id.strip()
        for id in (source, target):
            await held(desk, id, scope)
        await relate_memories(desk.store, source, wanted.name, target, scope, strict=setting.strict)
        return {
            "related": True,
            "source_id": source,
            "relation": wanted.name,
            "target_id": target,
            "message": f"Now {source} {wanted.name} {target}.",
        }

    return relate
