"""What was said at a place that evidence points at?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from omoide.core.scope import Scope
from omoide.longterm import rendering
from omoide.stores.protocols import Documents
from omoide.stores.records import Document
from omoide.stores.transcripts import KIND

SESSION = "session"


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a transcript: who said what, or which tool answered what."""

    thread: str
    seq: int
    kind: str
    role: str | None = None
    content: str = ""
    at: int | None = None

    def __str__(self) -> str:
        when = "" if self.at is None else f" ({rendering.moment(self.at)})"
        return f"{self.role or self.kind}{when}: {rendering.quoted(self.content)}"


class Places:
    """The transcripts that a reader may see; each is read once."""

    def __init__(self, store: Any, scope: Scope, documents_in: Scope | None = None) -> None:
        self._store = store if isinstance(store, Documents) else None
        self._scope = scope.replace(project_id=None) if documents_in is None else documents_in
        # A document belongs to an agent and a session; only its session knows the project.
        self._project = scope.project_id if documents_in is None else None
        self._known: dict[str, dict[int, Mapping[str, Any]]] = {}

    async def said(self, ref: str) -> Said | None:
        """What stands at `<thread>:<seq>`; None where nothing does, or the reader may not see it."""
        thread, _, place = ref.rpartition(":")
        if self._store is None or not thread or not (place.isascii() and place.isdecimal()):
            return None
        if thread not in self._known:
            self._known[thread] = await self._read(self._store, thread)
        entry = self._known[thread].get(int(place))
        return None if entry is None else _said(thread, int(place), entry)

    async def _read(self, store: Documents, thread: str) -> dict[int, Mapping[str, Any]]:
        document = await store.load(KIND, thread, self._scope)
        if document is None or not await self._of_project(store, document):
            return {}
        return {one["seq"]: one for one in document.log if isinstance(one, Mapping) and "seq" in one}

    async def _of_project(self, store: Documents, document: Document) -> bool:
        if self._project is None:
            return True
        if document.session_id is None:
            return False
        header = await store.load(SESSION, document.session_id, self._scope)
        body = None if header is None else header.body
        return isinstance(body, Mapping) and body.get("project_id") == self._project


def _said(thread: str, seq: int, entry: Mapping[str, Any]) -> Said:
    payload = entry.get("payload")
    told = payload if isinstance(payload, Mapping) else {}
    role, content, at = told.get("role") or told.get("name"), told.get("content"), entry.get("at")
    return Said(
        thread=thread,
        seq=seq,
        kind=str(entry.get("kind", "note")),
        role=role if isinstance(role, str) else None,
        content="" if content is None else content if isinstance(content, str) else str(content),
        at=at if isinstance(at, int) else None,
    )
