"""The smallest store that users can write, and stores with one mistake each."""

from __future__ import annotations

import msgspec

from omoide import Entry, RecallRequest, RecallResult, Scope, WriteRequest, WriteResult, clock
from omoide.errors import KeyReused
from omoide.stores import semantics
from omoide.stores.recall import withhold


class ListStore:
    """Keeps entries in a list, the newest last, and finds those that share most words with the question."""

    def __init__(self) -> None:
        self.kept: list[Entry] = []
        self.receipts: dict[tuple[str, ...], tuple[bytes, WriteResult, int]] = {}

    async def write(self, request: WriteRequest) -> WriteResult:
        now, key = clock.now(), (request.entry.namespace, *semantics.receipt_keys(request)[:1])
        if request.idempotency_key is not None and key in self.receipts:
            said, receipt, at = self.receipts[key]
            if at >= now - semantics.KEY_LIFETIME_MS:
                if said != semantics.request_fingerprint(request):
                    raise KeyReused(request.idempotency_key)
                return receipt
        receipt = self._store(request, now)
        if request.idempotency_key is not None:
            self.receipts[key] = (semantics.request_fingerprint(request), receipt, now)
        return receipt

    def _store(self, request: WriteRequest, now: int) -> WriteResult:
        given = request.entry
        kept = self.find(given.namespace, given.id)
        if request.dedupe and kept is None:
            for twin in self.kept:
                same = (twin.scope, twin.key) == (given.scope, given.key)
                same = same and (twin.content, twin.type) == (given.content, given.type)
                if same and twin.is_live(now):
                    return WriteResult(request=request, entry=twin, outcome="duplicate_of")
        slots = (other for other in self.kept if other.fills_slot and other.shares_slot(given))
        holder = next(slots, None)
        outcome, entry = semantics.decide_write(request, kept, holder=holder, now=now)
        if outcome == "duplicate_of":
            return WriteResult(request=request, entry=entry, outcome=outcome)
        old = after = None
        if request.supersedes is not None:
            found = self.find(entry.namespace, request.supersedes)
            old = semantics.require_in_scope(found, semantics.owner_scope(entry), request.supersedes)
            after = semantics.as_superseded(old, entry, None, now)
        if outcome == "stored":
            self.kept = [other for other in self.kept if other != kept] + [entry]
        if old is not None and after is not None:
            self._replace(old, after)
        replaced = semantics.replaced_value(entry, holder) if outcome == "stored" else None
        if replaced is not None and replaced != old:
            self._replace(replaced, semantics.as_replaced(replaced, entry, now))
        superseded = semantics.superseded_id(request, replaced)
        if superseded is not None:
            return semantics.write_result(request, entry, "superseded", superseded)
        return WriteResult(request=request, entry=entry, outcome=outcome)

    def _replace(self, old: Entry, new: Entry) -> None:
        self.kept[self.kept.index(old)] = new

    async def recall(self, request: RecallRequest) -> RecallResult:
        scope = request.effective_scope()
        found = [] if scope is None else await self.list_entries(scope)
        found = [*filter(semantics.entry_predicate(request.filter, request.at), found)][::-1]
        found.sort(key=lambda entry: self.likeness(entry, request.query), reverse=True)
        return RecallResult(request=request, entries=tuple(found[: request.limit]))

    async def list_entries(self, scope: Scope) -> list[Entry]:
        return [entry for entry in self.kept if scope.contains(entry)]

    def find(self, namespace: str, id: str) -> Entry | None:
        return next((entry for entry in self.kept if (entry.namespace, entry.id) == (namespace, id)), None)

    def likeness(self, entry: Entry, query: str) -> float:
        asked, said = (set(text.lower().strip(".?").split()) for text in (query, entry.content))
        return len(asked & said) / len(asked | said)


class RatedStore(ListStore):
    """A list whose hits have the relevance, and the newer memory, that a test gives them by their ids."""

    def __init__(self, **relevance: float | None) -> None:
        super().__init__()
        self.relevance = relevance
        self.newer: dict[str, str] = {}

    async def recall(self, request: RecallRequest) -> RecallResult:
        found = (await super().recall(request)).hits
        rated = [
            msgspec.structs.replace(
                hit, relevance=self.relevance.get(hit.entry.id), newer=self.newer.get(hit.entry.id)
            )
            for hit in found
        ]
        hits, withheld = withhold(request, rated)
        return RecallResult(request=request, hits=tuple(hits), withheld=tuple(withheld))


class Forgetful(ListStore):
    """Says that it kept an entry, and does not."""

    def _store(self, request: WriteRequest, now: int) -> WriteResult:
        return WriteResult(request=request, entry=request.entry.replace(rev=1))


class Prepending(ListStore):
    """Keeps every write as another entry."""

    def _store(self, request: WriteRequest, now: int) -> WriteResult:
        entry = request.entry.replace(rev=1)
        self.kept.append(entry)
        return WriteResult(request=request, entry=entry)


class Careless(ListStore):
    """Gives everybody's entries to everybody."""

    async def list_entries(self, scope: Scope) -> list[Entry]:
        return self.kept


class Tenantless(ListStore):
    """Does not look at the namespace."""

    async def list_entries(self, scope: Scope) -> list[Entry]:
        return [entry for entry in self.kept if scope.replace(namespace=entry.namespace).contains(entry)]


class Userless(ListStore):
    """Does not look at the user of a duplicate."""

    def _store(self, request: WriteRequest, now: int) -> WriteResult:
        for twin in self.kept if request.dedupe else ():
            alike = request.entry.replace(user_id=twin.user_id)
            if (twin.scope, twin.content, twin.type) == (alike.scope, alike.content, alike.type):
                return WriteResult(request=request, entry=twin, outcome="duplicate_of")
        return super()._store(request, now)


class Sharing(ListStore):
    """Shows what belongs to no user to every user."""

    async def list_entries(self, scope: Scope) -> list[Entry]:
        wide = scope.replace(user_id=None)
        return [
            entry for entry in self.kept if wide.contains(entry) and entry.user_id in (None, scope.user_id)
        ]


class Folding(ListStore):
    """Takes names that differ in case for one."""

    async def list_entries(self, scope: Scope) -> list[Entry]:
        agent = (scope.agent_id or "").lower()
        wide = scope.replace(agent_id=None)
        return [e for e in self.kept if wide.contains(e) and agent in ("", e.agent_id.lower())]


class Reversed(ListStore):
    """Lists the newest first."""

    async def list_entries(self, scope: Scope) -> list[Entry]:
        return (await super().list_entries(scope))[::-1]


class Generous(ListStore):
    """Does not look at the limit."""

    async def recall(self, request: RecallRequest) -> RecallResult:
        return await super().recall(request.replace(limit=1_000))


class Hasty(ListStore):
    """Cuts to the limit before it filters."""

    async def recall(self, request: RecallRequest) -> RecallResult:
        kept, self.kept = self.kept, self.kept[-request.limit :]
        try:
            return await super().recall(request)
        finally:
            self.kept = kept


class Deaf(ListStore):
    """Does not look at the question."""

    def likeness(self, entry: Entry, query: str) -> float:
        return 0.0


class Literal(ListStore):
    """Only finds what has a word of the question in it."""

    async def recall(self, request: RecallRequest) -> RecallResult:
        result = await super().recall(request)
        hits = tuple(entry for entry in result.entries if self.likeness(entry, request.query) > 0)
        return RecallResult(request=result.request, entries=hits)


class Unforgetting(ListStore):
    """Recalls what was superseded and what has expired."""

    async def recall(self, request: RecallRequest) -> RecallResult:
        everything = request.filter.replace(include_superseded=True, include_expired=True)
        return await super().recall(request.replace(filter=everything))


class Sessionless(ListStore):
    """Takes a request for a session without a name for one about everything."""

    async def recall(self, request: RecallRequest) -> RecallResult:
        wide = request.effective_scope() is None
        return await super().recall(request.replace(scope="agent") if wide else request)


class Rounding(ListStore):
    """Keeps confidence in three steps."""

    def _store(self, request: WriteRequest, now: int) -> WriteResult:
        steps = {True: 0.9, False: 0.3}
        entry = request.entry.replace(confidence=steps[request.entry.confidence >= 0.5])
        return super()._store(request.replace(entry=entry), now)


class Trusting(ListStore):
    """Does not check the expected revision."""

    def _store(self, request: WriteRequest, now: int) -> WriteResult:
        return super()._store(request.replace(expected_rev=None), now)


class Repeating(ListStore):
    """Does not know idempotency keys."""

    async def write(self, request: WriteRequest) -> WriteResult:
        return self._store(request, clock.now())


WRONG: list[type[ListStore]] = [
    Forgetful,
    Prepending,
    Careless,
    Tenantless,
    Userless,
    Sharing,
    Folding,
    Reversed,
    Generous,
    Hasty,
    Deaf,
    Literal,
    Unforgetting,
    Sessionless,
    Rounding,
    Trusting,
    Repeating,
]
