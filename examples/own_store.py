"""A store of your own, checked by the conformance suite.

This one keeps memories as lines of JSON in a file, for one process that does not crash. `Store` asks for
three methods. What a write means, which all stores decide alike, is in `omoide.stores.semantics`; how answers
are found is up to the store, and here it counts common words. The tests run `StoreSuite` over it.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import anyio

import omoide
from omoide import Entry, RecallRequest, RecallResult, Scope, Store, WriteRequest, WriteResult, clock
from omoide.core import Hit, Reason, Why
from omoide.errors import KeyReused
from omoide.retrieval import terms
from omoide.stores import SupportsErase, semantics


class JsonLinesStore:
    """Memories in a file that any editor can read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: dict[tuple[str, str], Entry] = {}
        self.receipts: dict[tuple[str, ...], tuple[bytes, WriteResult, int]] = {}
        if path.exists():
            for line in path.read_bytes().splitlines():
                self._hold(Entry.from_json(line))

    async def write(self, request: WriteRequest) -> WriteResult:
        """Keep an entry; one that comes with a key that is known gets the receipt it got before."""
        if request.idempotency_key is None:
            return self._write(request)
        entry, now = request.entry, clock.now()
        name = (entry.namespace, entry.agent_id, entry.user_id or "", request.idempotency_key)
        payload = semantics.request_fingerprint(request)
        before, receipt, at = self.receipts.get(name, (b"", None, 0))
        if receipt is None or at < now - semantics.KEY_LIFETIME_MS:
            receipt = self._write(request)
            self.receipts[name] = (payload, receipt, now)
        elif before != payload:
            raise KeyReused(request.idempotency_key)
        return receipt.replace(request=request)

    async def recall(self, request: RecallRequest) -> RecallResult:
        """What shares most words with the question; among equals the newest, which is held last."""
        scope, passes = request.effective_scope(), semantics.entry_predicate(request.filter, request.at)
        wanted = {*terms(request.query)}
        found = [
            (sorted(wanted & {*terms(entry.content)}), entry)
            for entry in reversed(self.entries.values())
            if scope is not None and scope.contains(entry) and passes(entry)
        ]
        found.sort(key=lambda pair: -len(pair[0]))
        hits = [hit(*pair, rank=rank) for rank, pair in enumerate(found[: request.limit], 1)]
        return RecallResult(request=request, hits=tuple(hits), weak=bool(hits) and not found[0][0])

    async def list_entries(self, scope: Scope) -> list[Entry]:
        """Everything in a scope, oldest first."""
        return [entry for entry in self.entries.values() if scope.contains(entry)]

    def _write(self, request: WriteRequest) -> WriteResult:
        given, now = request.entry, clock.now()
        semantics.check_size(given, semantics.MAX_CONTENT)
        kept = self.entries.get((given.namespace, given.id))
        if request.dedupe and kept is None:
            for other in self.entries.values():
                if semantics.is_duplicate(other, given, now):
                    return WriteResult(request=request, entry=other, outcome="duplicate_of")
        holder = next((other for other in self.entries.values() if fills_slot_of(other, given)), None)
        outcome, entry = semantics.decide_write(request, kept, holder=holder, now=now)
        changed = [entry] if outcome == "stored" else []
        replaced = semantics.replaced_value(entry, holder) if changed else None
        if replaced is not None:
            changed.append(semantics.as_replaced(replaced, entry, now))
        if request.supersedes is not None:
            agent = Scope(namespace=given.namespace, agent_id=given.agent_id)
            found = self.entries.get((given.namespace, request.supersedes))
            old = semantics.require_in_scope(found, agent, request.supersedes)
            if old != replaced:
                changed.append(semantics.as_superseded(old, entry, None, now))
        superseded = semantics.superseded_id(request, replaced)
        with self.path.open("ab") as file:
            file.write(b"".join(one.to_json() + b"\n" for one in changed))
        for one in changed:
            self._hold(one)
        if superseded is not None:
            return semantics.write_result(request, entry, "superseded", superseded)
        return WriteResult(request=request, entry=entry, outcome=outcome)

    def _hold(self, entry: Entry) -> None:
        key = (entry.namespace, entry.id)
        if entry.superseded_by is None:
            self.entries.pop(key, None)  # what was written last is the newest
        self.entries[key] = entry


def fills_slot_of(other: Entry, entry: Entry) -> bool:
    """Whether an entry is the current value of the key of another."""
    return other.fills_slot and other.shares_slot(entry)


def hit(common: list[str], entry: Entry, rank: int) -> Hit:
    """An answer, and why it is one."""
    reason = Reason(part="words", value=len(common), note=", ".join(common))
    return Hit(entry=entry, score=len(common), rank=rank, why=Why(reasons=(reason,) if common else ()))


class Kept(NamedTuple):
    """What the file held after the store was made anew."""

    is_store: bool
    entries: int
    answer: RecallResult
    can_erase: bool


async def use(path: Path) -> Kept:
    """Write with one store, and ask another one over the same file."""
    scope = Scope(agent_id="gardener")
    first = JsonLinesStore(path)
    await omoide.remember(first, "Tulips are planted in October.", scope, id="tulips", type="convention")
    await omoide.remember(first, "Slugs ate the lettuce.", scope, id="slugs", type="incident")
    await omoide.remember(first, "Tulips are planted in November.", scope, supersedes="tulips")

    second = JsonLinesStore(path)
    answer = await omoide.recall(second, "When are the tulips planted?", scope, limit=1)
    return Kept(isinstance(second, Store), len(second.entries), answer, isinstance(second, SupportsErase))


def main() -> Kept:
    """Make a store, use it, and make it anew."""
    with TemporaryDirectory() as folder:
        kept = anyio.run(use, Path(folder, "memory.jsonl"))
    print("is it a store?", kept.is_store)
    print("memories in the file:", kept.entries)
    for found in kept.answer.hits:
        print(f"{found.entry.content}\n  because {found.why}")
    print("can it erase?", kept.can_erase)
    return kept


if __name__ == "__main__":
    main()
