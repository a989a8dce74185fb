"""What does it mean to keep and to recall?

The store in memory answers, in the plainest way: every other store must do what this one does. It keeps
nothing when the process ends, which is what tests and short-lived programs want.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from omoide import clock
from omoide.core.entry import Entry
from omoide.core.recalling import Filter, RecallRequest, RecallResult
from omoide.core.scope import Scope
from omoide.core.writing import WriteRequest, WriteResult
from omoide.embedders import Embedder
from omoide.errors import Conflict, Erased, KeyReused
from omoide.stores import cursors, recalling, rules, standing
from omoide.stores.arguments import checked
from omoide.stores.findings import Finding
from omoide.stores.indexing import Indexed, index, with_vector
from omoide.stores.recalling import Candidates, Read
from omoide.stores.records import (
    Access,
    Page,
    Query,
    Stats,
    Version,
)
from omoide.stores.reference_erasing import MemoryErasing
from omoide.stores.reference_exchange import MemoryExchange
from omoide.stores.reference_links import MemoryLinks
from omoide.stores.reference_state import Kept, State
from omoide.stores.standing import LIVE


@checked
class MemoryStore(MemoryLinks, MemoryErasing, MemoryExchange):
    """Memories that last as long as the process."""

    # Writing

    def write(self, request: WriteRequest) -> WriteResult:
        """Keep an entry."""
        return self.write_many([request])[0]

    def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteResult]:
        """Keep all of these entries, or none."""
        asked = [self.settings.admitted(request) for request in requests]
        return self._write_all(asked, index([request.entry for request in asked], self.embedder))

    def write_with_vector(self, request: WriteRequest, vector: Sequence[float]) -> WriteResult:
        """Keep an entry that comes with its own vector."""
        asked = self.settings.admitted(request)
        found = with_vector(request.entry, asked.entry, vector, self.embedder)
        return self._write_all([asked], [found])[0]

    def _write_all(self, asked: Sequence[WriteRequest], found: Sequence[Indexed]) -> list[WriteResult]:
        now = clock.now()

        def work(state: State) -> list[WriteResult]:
            state.foresee(asked)
            told = [self._write(state, *pair, now) for pair in zip(asked, found, strict=True)]
            return [self._retold(state, result) for result in told]

        return self._do(work, undo=len(asked) > 1 or self._may_undo(asked))

    def _retold(self, state: State, result: WriteResult) -> WriteResult:
        """A receipt that says whether its entry is stale once all is written."""
        entry = result.entry
        kept = state.find(entry.namespace, entry.id)
        assert kept is not None
        stale = kept.stale
        if stale == entry.stale:
            return result
        return rules.receipt(result.request, rules.changed(entry, stale=stale), result.outcome)

    def _may_undo(self, asked: Sequence[WriteRequest]) -> bool:
        """Whether something can go wrong after a part of the work is done."""
        compound = any(request.supersedes is not None for request in asked)
        return compound or self.settings.session_limit is not None

    def _write(self, state: State, request: WriteRequest, found: Indexed, now: int) -> WriteResult:
        name = (request.entry.namespace, request.idempotency_key or "")
        if request.idempotency_key is None:
            return self._written(state, request, found, now)
        print_ = rules.fingerprint(request)
        known = state.receipt_of(name)
        if known is not None and known[2] >= now - rules.KEY_LIFETIME_MS:
            if known[0] != print_:
                raise KeyReused(request.idempotency_key)
            return rules.receipt(request, known[1].entry, known[1].outcome)
        result = self._written(state, request, found, now)
        state.keep_receipt(name, (print_, result, now))
        return result

    def _written(self, state: State, request: WriteRequest, found: Indexed, now: int) -> WriteResult:
        given = request.entry
        kept = state.find(given.namespace, given.id)
        if request.dedupe and kept is None and request.supersedes is None:
            for other in state.twins(given):
                twin = other.entry
                if rules.is_twin(twin, given, now):
                    return rules.receipt(request, twin, "duplicate_of")
        before = None if kept is None else kept.entry
        renewed = found.given and kept is not None and found[2:] != kept.found[2:]
        outcome, entry = rules.decide(request, before, renewed=renewed)
        if outcome == "stored":
            if kept is None or before is None:
                state.add(entry, found, now)
                was_out = given.id in state.erased(given.namespace, [given.id])
            else:
                if kept.found.given and not found.given and before.content == entry.content:
                    found = found._replace(pooled=kept.found.pooled, tokens=None, given=True)
                state.revise(kept, entry, "write", now, found)
                was_out = standing.of(before) != LIVE
            self._settle(state, entry.namespace, {entry.id: was_out}, now)
        if request.supersedes is not None:
            agent = Scope(namespace=entry.namespace, agent_id=entry.agent_id)
            self._supersede(state, request.supersedes, agent, entry.id, None, None, now)
            outcome = "superseded"
        self._check_session(state, entry)
        return rules.receipt(request, entry, outcome)

    def supersede(
        self,
        id: str,
        scope: Scope,
        *,
        by: str | None = None,
        reason: str | None = None,
        expected_rev: int | None = None,
    ) -> Entry:
        """Mark an entry as replaced by another, or by nothing."""
        reason = self.settings.admitted_reason(reason)
        now = clock.now()
        return self._do(lambda state: self._supersede(state, id, scope, by, reason, expected_rev, now))

    def _supersede(
        self,
        state: State,
        id: str,
        scope: Scope,
        by: str | None,
        reason: str | None,
        expected_rev: int | None,
        now: int,
    ) -> Entry:
        kept = self._get(state, id, scope)
        entry = kept.entry
        Conflict.check(f"entry {id!r}", expected_rev, entry.rev)
        owner = Scope(namespace=scope.namespace, agent_id=entry.agent_id)
        new = rules.superseded(entry, None if by is None else self._get(state, by, owner).entry, reason, now)
        if entry.superseded_by == new.superseded_by:
            return entry
        return self._changed(state, kept, new, "supersede", now)

    def restore(self, id: str, scope: Scope, *, expected_rev: int | None = None) -> Entry:
        """Bring a superseded entry back."""

        def work(state: State) -> Entry:
            kept = self._get(state, id, scope)
            Conflict.check(f"entry {id!r}", expected_rev, kept.entry.rev)
            if kept.entry.superseded_by is None:
                return kept.entry
            return self._changed(state, kept, rules.restored(kept.entry), "restore", clock.now())

        return self._do(work)

    def _changed(self, state: State, kept: Kept, new: Entry, op: str, now: int) -> Entry:
        was_out = kept.standing != LIVE
        state.revise(kept, new, op, now)
        self._settle(state, new.namespace, {new.id: was_out}, now)
        return kept.entry

    # Reading

    def recall(self, request: RecallRequest) -> RecallResult:
        """The entries that answer best."""
        if not recalling.is_able():
            return recalling.by_words(request, self, self.settings.count_tokens)
        return recalling.recall(request, self, self.embedder, self.settings.count_tokens)

    def speakers(self, scope: Scope) -> Sequence[str]:
        """Who speaks in a scope."""
        held = self._look(lambda state: state.inside(scope))
        messages = [one.entry.message for one in held]
        return [*dict.fromkeys(said.speaker for said in messages if said and said.speaker)]

    @contextmanager
    def candidates(
        self, scope: Scope, filter: Filter, at: int, limit: int, read: Read
    ) -> Iterator[Candidates | None]:
        """All entries of a scope that count."""
        from omoide.stores.pools import pool_of

        wanted = standing.wanted(superseded=filter.include_superseded, stale=filter.include_stale)

        def work(state: State) -> Candidates | None:
            held = [
                one
                for one in sorted(state.inside(scope), key=lambda one: one.written)
                if one.standing in wanted
                and (filter.include_expired or one.entry.expires_at is None or one.entry.expires_at > at)
            ]
            if not held:
                return None
            dim = 0 if self.embedder is None else self.embedder.dim
            entries = [one.entry for one in held]
            pool, allowed = pool_of(
                [(one.entry, one.found) for one in state.describe(held)],
                dim,
                [*map(rules.passing(filter, at), entries)],
            )
            written = [one.written for one in held]
            return Candidates(
                pool, read(pool.speakers), allowed, written, lambda places: [entries[at] for at in places]
            )

        yield self._look(work)

    def list_entries(self, scope: Scope) -> list[Entry]:
        """Everything in a scope, oldest first."""
        held = self._look(lambda state: state.inside(scope))
        return [one.entry for one in sorted(held, key=lambda one: one.written)]

    def get(self, id: str, scope: Scope, *, as_of: int | None = None) -> Entry:
        """An entry, as it is or as it was."""

        def work(state: State) -> Entry:
            kept = state.find(scope.namespace, id)
            if kept is not None and scope.holds(kept.entry):
                (kept,) = [kept] if as_of is None else state.complete([kept])
                entry = kept.at(as_of)
                if entry is not None:
                    return entry
            if as_of is not None:
                stones = state.buried(id, scope)
                if stones:
                    stone = next((stone for stone in stones if stone.at >= as_of), stones[-1])
                    raise Erased("entry", id, stone.at, stone.reason)
            raise rules.missing(id)

        return self._look(work)

    def query(self, query: Query) -> Page:
        """The entries that fit, newest first."""
        place = (1 << 63, 1 << 63) if query.cursor is None else cursors.read(query.cursor)
        passes = rules.passing(query.filter, query.at if query.as_of is None else query.as_of)

        def work(state: State) -> list[tuple[tuple[int, int], Entry]]:
            held = state.inside(query.scope)
            seen = [
                (one, one.at(query.as_of)) for one in (held if query.as_of is None else state.complete(held))
            ]
            return [
                ((rules.time_of(entry), one.no), entry)
                for one, entry in seen
                if entry is not None and passes(entry) and (rules.time_of(entry), one.no) < place
            ]

        found = self._look(work)
        found.sort(key=lambda pair: pair[0], reverse=True)
        shown = found[: query.limit]
        cursor = cursors.write(*shown[-1][0]) if len(found) > len(shown) else None
        return Page(entries=tuple(entry for _, entry in shown), cursor=cursor)

    def history(self, id: str, scope: Scope) -> list[Version]:
        """The versions of an entry, oldest first."""

        def work(state: State) -> list[Version]:
            kept = state.find(scope.namespace, id)
            held = state.complete([kept]) if kept is not None and scope.holds(kept.entry) else []
            found = [*state.buried(id, scope), *(version for one in held for version in one.history())]
            if not found:
                raise rules.missing(id)
            return found

        return self._look(work)

    def stats(self, scope: Scope) -> Stats:
        """Figures about a scope."""
        now = clock.now()
        return self._look(lambda state: self._stats(state, scope, now))

    def _stats(self, state: State, scope: Scope, now: int) -> Stats:
        held = state.inside(scope)
        entries = [one.entry for one in held]
        current = [entry for entry in entries if standing.of(entry) == LIVE]
        stale = sum(standing.of(entry) == standing.STALE for entry in entries)
        expired = sum(not entry.is_live(now) for entry in current)
        by_type: dict[str, int] = {}
        for entry in entries:
            by_type[rules.type_of(entry)] = by_type.get(rules.type_of(entry), 0) + 1
        return Stats(
            entries=len(entries),
            live=len(current) - expired,
            superseded=len(entries) - len(current) - stale,
            stale=stale,
            expired=expired,
            versions=sum(one.entry.rev - one.first + 1 for one in held),
            links=state.links_from(scope.namespace, {entry.id for entry in entries}),
            by_type=by_type,
            without_vectors=sum(
                self.embedder is not None and not one.embedded and one.standing == LIVE for one in held
            ),
            embedder=None if self.embedder is None else self.embedder.name,
            last_seq=len(state.log),
        )

    def record_access(self, ids: Iterable[str], scope: Scope) -> None:
        """Note that entries were used."""
        now = clock.now()
        named = [*ids]

        def work(state: State) -> None:
            held = state.among(scope.namespace, {*named})
            for id in named:
                if id in held and scope.holds(held[id].entry):
                    state.use(held[id], 1, now)

        self._do(work)

    def access(self, id: str, scope: Scope) -> Access:
        """How often an entry was used, and when last."""
        return self._look(lambda state: self._get(state, id, scope).access)

    # Upkeep

    def findings(self) -> list[Finding]:
        """What there is to know about upkeep; a store in memory needs none."""
        return [Finding("kept", "note", "in memory only: it is gone when the program ends")]

    def check(self) -> list[str]:
        """What is wrong; a store in memory has nothing that could disagree."""
        return []

    def reindex(
        self, embedder: Embedder | None = None, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Give all entries new terms and vectors."""

        def work(state: State) -> None:
            same = embedder is None or _model(embedder) == _model(self.embedder)
            self.embedder = embedder or self.embedder
            held = [one for one in state.kept.values() if not (same and one.found.given)]
            for one, found in zip(held, index([one.entry for one in held], self.embedder), strict=True):
                one.found = found
            if progress is not None:
                progress(len(held), len(held))

        self._do(work)


def _model(embedder: Embedder | None) -> tuple[str, int] | None:
    """What tells whose vectors can be compared."""
    return None if embedder is None else (embedder.name, embedder.dim)
