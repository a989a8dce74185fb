"""Short-term memories, plans, and a store that refuses to write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from omoide import Entry, Evidence, Scope, WriteRequest, WriteResult
from omoide.errors import StoreFailed
from omoide.promotion import (
    PromotionCandidate,
    PromotionMark,
    PromotionPlan,
    PromotionPolicy,
    PromotionRun,
    build_plan,
)
from omoide.shortterm import PendingItem, ShortTerm
from omoide.stores import AsyncStore

NOW = 1_800_000_000_000
SCOPE = Scope(agent_id="ada", session_id="s1", project_id="shop")
SAID = Evidence(kind="message", ref="thread_1:0")
ContextValue = Mapping[str, Any]


def short_term(
    context: Mapping[str, ContextValue] | None = None,
    waiting: Iterable[PendingItem] = (),
    decided: Iterable[PendingItem] = (),
    session_id: str = "s1",
) -> ShortTerm:
    """Short-term memory with these values, what waits, and what the agent decided."""
    memory = ShortTerm.new(session_id, now=NOW)
    held, pending = memory.context, memory.pending
    for key, about in (context or {}).items():
        held, _ = held.put(key, **{"now": NOW, **about})
    for item in waiting:
        pending, _ = pending.add_implicit(item)
    for item in decided:
        pending, _ = pending.add_agent_decision(item)
    return memory.replace(context=held, pending=pending)


def fact(value: Any, **about: Any) -> ContextValue:
    """A value that is good enough to be promoted."""
    return {"value": value, "source": "tool", "confidence": 0.9, "memory_type": "fact", **about}


def item(id: str, importance: float = 0.8, **fields: Any) -> PendingItem:
    """Something that waits."""
    content = fields.pop("content", f"This is {id}.")
    return PendingItem.new(
        {
            "type": "fact",
            "confidence": 0.8,
            "source": "agent",
            "agent_id": "ada",
            "created_at": NOW,
            **fields,
        },
        id=id,
        content=content,
        importance=importance,
    )


def plan_of(memory: ShortTerm, policy: PromotionPolicy | None = None, **given: Any) -> PromotionPlan:
    """A plan for it, made now."""
    scope = given.pop("scope", SCOPE)
    return build_plan(memory, scope, policy or PromotionPolicy(), **{"now": NOW, **given})


def verdicts(plan: PromotionPlan) -> dict[str, str]:
    """The verdict on each key and id."""
    return {one.key or one.id: one.verdict for one in plan.candidates}


def only_candidate(plan: PromotionPlan) -> PromotionCandidate:
    """Return the one candidate of a plan."""
    (one,) = plan.candidates
    return one


def marks_after(
    run: PromotionRun | None, before: Mapping[str, PromotionMark] | None = None
) -> dict[str, PromotionMark]:
    """What the working context is marked with after a run."""
    marks = dict(before or {})
    for one in () if run is None else run.promoted:
        if one.key is not None and one.digest is not None:
            marks[one.key] = PromotionMark(key=one.key, id=one.id, digest=one.digest)
    return marks


async def all_entries(store: Any, scope: Scope | None = None) -> list[Entry]:
    """Return all that is kept, oldest first."""
    found: list[Entry] = await store.list_entries(scope or Scope())
    return found


async def live_contents(store: Any, scope: Scope | None = None) -> list[str]:
    """Return the contents of the entries that count now, in order."""
    return sorted(one.content for one in await all_entries(store, scope) if one.is_live(NOW))


class FailingStore(AsyncStore):
    """A store that cannot write what has one of these contents, nor do what is named."""

    def __init__(self, store: AsyncStore, *contents: str) -> None:
        super().__init__(store.sync, store.url)
        self.contents = set(contents)
        self.calls: set[str] = set()
        """Operations that fail, as `supersede` or `supersede mem_1`."""

    def _try(self, what: str, id: str = "") -> None:
        if {what, f"{what} {id}"} & self.calls:
            raise StoreFailed(self.url, f"{what} is out of order", "try again")

    async def write(self, request: WriteRequest) -> WriteResult:
        self._try("write")
        if request.entry.content in self.contents:
            raise StoreFailed(self.url, "the disk is full", "make room")
        return await super().write(request)

    async def supersede(self, id: str, scope: Scope, **given: Any) -> Entry:
        self._try("supersede", id)
        return await super().supersede(id, scope, **given)

    async def reinstate(self, id: str, scope: Scope, **given: Any) -> Entry:
        self._try("restore", id)
        return await super().reinstate(id, scope, **given)

    async def save(self, document: Any, **given: Any) -> Any:
        self._try(f"save {document.kind}")
        return await super().save(document, **given)
