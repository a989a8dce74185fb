"""How does a model give up what no longer holds?"""

from __future__ import annotations

from typing import Any

from omoide import verbs
from omoide.core.action import Action, action
from omoide.core.entry import Entry
from omoide.core.scope import Scope
from omoide.errors import NotFound
from omoide.longterm import reading
from omoide.tools.desk import WRITE, Desk, Setting, desk_of
from omoide.tools.params import MemoryId, Reason, Replacement, text
from omoide.tools.showing import moment

MOST_REASON = 500


def make(setting: Setting) -> Action:
    """The tool, set up as the program wants it."""

    @action(effectful=True, idempotent=True, tags=("memory",))
    async def forget(
        ctx: Any, memory_id: MemoryId, reason: Reason = "", replacement_id: Replacement = ""
    ) -> dict[str, Any]:
        """Give up a memory that no longer holds, or replace it by another one.

        It is recalled no more, and what rests on it no longer holds either. It is kept with the reason, so
        that a person can bring it back.
        """
        desk = desk_of(ctx, setting, "forget", WRITE)
        why = text(reason, "reason", MOST_REASON) or None
        instead = replacement_id.strip() or None
        entry = await held(desk, memory_id.strip(), desk.own)
        if instead is None and entry.superseded_by is not None:
            return _receipt(entry, None)  # its first reason stays
        if instead is not None:
            await held(desk, instead, desk.own)
        gone = await verbs.forget(desk.store, entry.id, desk.own, reason=why, replacement=instead)
        return _receipt(gone, instead)

    return forget


async def held(desk: Desk, id: str, scope: Scope) -> Entry:
    """The memory of an id, in words that help a model where there is none."""
    entry = await reading.find(desk.store, id, scope) if id else None
    if entry is None:
        raise NotFound("memory", id, "use an id that recall or remember gave; others' memories stay theirs")
    return entry


def _receipt(gone: Entry, instead: str | None) -> dict[str, Any]:
    told = "It is recalled no more." if instead is None else f"{instead} has taken its place."
    receipt = {"forgotten": True, "memory_id": gone.id, "message": told}
    if gone.superseded_reason is not None:
        receipt["reason"] = gone.superseded_reason
    if instead is not None:
        receipt["replacement_id"] = instead
    if gone.superseded_at is not None:
        receipt["at"] = moment(gone.superseded_at)
    return receipt
