"""How does a model keep something for later conversations?"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from omoide.core import memory_types
from omoide.core.action import Action, action
from omoide.core.entry import Entry
from omoide.core.memory_types import ROOT
from omoide.core.writing import WriteRequest
from omoide.errors import Invalid
from omoide.longterm import conflicts, reading
from omoide.longterm.completeness import ASSIGNED_TO
from omoide.stores.protocols import Gets, Links, Queries, Store
from omoide.tools.desk import WRITE, Desk, Setting, desk_of
from omoide.tools.params import Confidence, Content, Key, Kind, Rationale, Tags, labels, sureness, text
from omoide.verbs import offering, remembering

MOST_CONTENT = 2_000
MOST_KEY = 200


def make(setting: Setting) -> Action:
    """The tool, set up as the program wants it."""

    @action(effectful=True, idempotent=True, tags=("memory",))
    async def remember(
        ctx: Any,
        content: Content,
        type: Kind = "fact",
        confidence: Confidence = 0.8,
        rationale: Rationale = "",
        key: Key = "",
        tags: Tags = (),
    ) -> dict[str, Any]:
        """Keep something worth knowing in later conversations.

        Use it for facts, decisions, conventions, lessons, risks and open questions that will matter again,
        not for what only matters now. It is kept before this returns.
        """
        desk = desk_of(ctx, setting, "remember", WRITE)
        said = text(content, "content", MOST_CONTENT)
        if not said:
            raise Invalid("content", "is empty", "say what is to be remembered")
        fields = {
            "id": _id(desk, type, said),
            "type": _kind(type),
            "confidence": sureness(confidence),
            "rationale": text(rationale, "rationale", MOST_CONTENT) or None,
            "metadata": _about(desk, type, text(key, "key", MOST_KEY)),
            "tags": labels(tags),
            "source": "agent",
            "evidence": desk.evidence,
            "dedupe": True,
        }
        return await _keep(desk, said, fields, setting)

    return remember


async def _keep(desk: Desk, said: str, fields: dict[str, Any], setting: Setting) -> dict[str, Any]:
    store: Store = offering(desk.store, Store, "remember")
    request = remembering(said, desk.home, fields)
    if setting.strict:
        conflicts.check_strict(request.entry)
        await conflicts.refuse(store, request.entry)
    entry, told = await _once(store, request)
    answer: dict[str, Any] = {
        "remembered": True,
        "memory_id": entry.id,
        "memory_type": entry.type,
        "message": told,
    }
    if isinstance(store, Links) and isinstance(store, Queries) and entry.metadata.get(conflicts.KEY):
        found = await conflicts.note(store, entry, desk.home.replace(session_id=None))
        others = [id for one in found for id in one.ids if id != entry.id]
        if others:
            answer["contradicts"] = others
            answer["message"] += " It contradicts others: forget what no longer holds."
    return answer


async def _once(store: Store, request: WriteRequest) -> tuple[Entry, str]:
    """The memory as it is kept, and what is told about it; a repeated call changes nothing any more."""
    if isinstance(store, Gets):
        known = await reading.find(store, request.entry.id, request.entry.scope)
        if known is not None:
            return known, f"This was kept already, as {known.id}."
    receipt = await store.write(request)
    entry = receipt.entry
    known_already = receipt.outcome == "duplicate_of"
    told = f"This was known already, as {entry.id}." if known_already else f"Kept as {entry.type}."
    return entry, " ".join((told, *receipt.notices))


def _about(desk: Desk, type: str, key: str) -> dict[str, Any]:
    """What is noted beside the words: their key, and that whoever keeps a task has it."""
    task = {ASSIGNED_TO: desk.home.agent_id} if type == "task" else {}
    return {conflicts.KEY: key, **task} if key else task


def _kind(type: str) -> str:
    if type == ROOT:
        raise Invalid("type", f"is {type!r}", f"use one of {', '.join(memory_types.MEMORY_TYPES)}")
    return memory_types.check(type)


def _id(desk: Desk, type: str, said: str) -> str:
    """The same id for the same call, however often it is repeated; another one for other words."""
    home = desk.home
    parts = (home.agent_id, home.session_id, home.project_id, desk.key, type, said)
    return "mem_" + sha256(msgspec.json.encode(parts)).hexdigest()[:32]
