"""How does a store answer a request?

The same way in every store: the back end brings candidates, `retrieval` scores them, and each hit says why it
is there.

"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from omoide.core.entry import Entry, Scope
from omoide.core.requests import Filter, Hit, Reason, RecallRequest, RecallResult, Why
from omoide.embedders import Embedded, Embedder
from omoide.retrieval import query as reading
from omoide.retrieval import text
from omoide.retrieval.query import Query
from omoide.retrieval.text import TokenCounter, estimate
from omoide.stores import config, semantics
from omoide.stores.codec import embedded, text_of

if TYPE_CHECKING:
    from omoide.retrieval.pool import Array, Pool
    from omoide.retrieval.ranking import Scored


NEAR = 0.35
"""The cosine from which on two texts are taken to speak of the same thing."""

_BOOSTS = ("recency", "confidence", "importance")


class Asked(NamedTuple):
    """A question that has been read: its terms, and its vector where there is an embedder."""

    query: Query
    vector: Embedded | None

    def terms(self) -> list[int]:
        """The terms by number, as they are indexed."""
        return [text.term_id(term) for term in self.query.terms]


Read = Callable[[Sequence[str]], Asked]
"""Reads the question, given the names of those who speak in the scope."""


class Candidates(NamedTuple):
    """The entries that may answer, as columns, and how to get them."""

    pool: Pool
    asked: Asked
    allowed: Array | None
    """Which rows of the pool the filter lets pass; None for all."""
    written: Sequence[int]
    """When each row was written, as a number that grows: among equals the newest goes first."""
    entries: Callable[[Sequence[int]], list[Entry]]
    """The entries of some rows of the pool, in their order."""
    notices: tuple[str, ...] = ()


class Source(Protocol):
    """A back end that can bring candidates."""

    def speakers(self, scope: Scope) -> Sequence[str]:
        """Who is known to speak in a scope; a guess from before is enough."""
        ...

    def candidates(
        self, scope: Scope, filter: Filter, at: int, limit: int, read: Read
    ) -> AbstractContextManager[Candidates | None]:
        """The candidates of a scope as it is at one moment; None where it holds nothing."""
        ...


class Lists(Protocol):
    """A back end that can list what it holds."""

    def list_entries(self, scope: Scope) -> list[Entry]:
        """Everything in a scope, oldest first."""
        ...


def is_able() -> bool:
    """Whether what scoring needs is installed."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        return False
    return True


def by_words(request: RecallRequest, source: Lists, count: TokenCounter = estimate) -> RecallResult:
    """Answer a request by words alone, where nothing more is installed."""
    scope = request.reach()
    passes = semantics.passing(request.filter, request.at)
    held = [] if scope is None else [entry for entry in source.list_entries(scope) if passes(entry)]
    asked = text.terms(request.query)
    scores = text.bm25(asked, [text.terms(text_of(entry)) for entry in held])
    best = sorted(range(len(held)), key=lambda at: (-scores[at], -at))[: request.limit]
    hits = [
        Hit(
            entry=held[at],
            score=scores[at],
            rank=rank,
            why=Why(reasons=(Reason(part="words", value=scores[at], rank=rank),) if scores[at] else ()),
        )
        for rank, at in enumerate(best, 1)
    ]
    notices = ["only words were compared; pip install 'omoide[vector]' for meaning, time and context"]
    weak = bool(hits) and not hits[0].score
    return _cut(request, hits, notices, weak=weak, count=count)


def recall(
    request: RecallRequest, source: Source, embedder: Embedder | None, count: TokenCounter = estimate
) -> RecallResult:
    """Answer a request from the candidates of a back end."""
    scope = request.reach()
    if scope is None:
        return RecallResult(request=request)

    vectors: dict[str, Embedded] = {}

    def read(speakers: Sequence[str]) -> Asked:
        asked = reading.read(request.query, now=request.at, speakers=speakers)
        if embedder is None:
            return Asked(asked, None)
        if asked.spoken not in vectors:
            vectors[asked.spoken] = embedded([asked.spoken], embedder, query=True)[0]
        return Asked(asked, vectors[asked.spoken])

    if embedder is not None:
        read(source.speakers(scope))  # most often the vector is there before anything is held up
    with source.candidates(scope, request.filter, request.at, request.limit, read) as found:
        if found is None:
            return RecallResult(request=request)
        return _ranked(request, found, count)


def _ranked(request: RecallRequest, found: Candidates, count: TokenCounter) -> RecallResult:
    from omoide.retrieval.ranking import score

    scored = score(found.asked.query, found.pool, vector=found.asked.vector, among=found.allowed)
    best = _best(scored, found, request.limit)
    entries = found.entries(best)
    hits = [
        Hit(entry=entry, score=float(scored.total[row]), rank=rank, why=_why(parts, entry))
        for rank, (row, entry, parts) in enumerate(zip(best, entries, scored.whys(best), strict=True), 1)
    ]
    weak = bool(best) and not any(_matches(found, row, hit) for row, hit in zip(best, hits, strict=True))
    return _cut(request, hits, [*found.notices], weak=weak, count=count)


def _cut(
    request: RecallRequest, hits: list[Hit], notices: list[str], *, weak: bool, count: TokenCounter
) -> RecallResult:
    """The result, cut to the room that there is."""
    if request.max_tokens is not None:
        hits, cut = config.fitting(hits, request.max_tokens, count)
        if cut:
            notices.append(f"{cut} of {cut + len(hits)} entries did not fit into {request.max_tokens} tokens")
    return RecallResult(request=request, hits=tuple(hits), weak=weak, notices=tuple(notices))


def _matches(found: Candidates, row: int, hit: Hit) -> bool:
    """Whether a hit has a word of the question in it, the time it asks for, or a meaning that is near."""
    asked, said = found.asked.query, text_of(hit.entry)
    if not {*asked.terms}.isdisjoint(text.terms(said)):
        return True
    if not asked.terms and not {*text.words(asked.text)}.isdisjoint(text.words(said)):
        return True  # a question of nothing but small words
    if any(reason.part == "date" and reason.value > 0 for reason in hit.why.reasons):
        return True
    vector, pool = found.asked.vector, found.pool
    mine = pool.vectors[pool.vector_rows == row] if vector is not None and len(pool.vectors) else ()
    return any(float(own @ vector.pooled) >= NEAR for own in mine if vector is not None)


def _best(scored: Scored, found: Candidates, limit: int) -> list[int]:
    import numpy as np

    total = scored.total if found.allowed is None else np.where(found.allowed, scored.total, -np.inf)
    size = min(limit, int(np.isfinite(total).sum()))
    order = np.lexsort((-np.asarray(found.written), -total))[:size]
    return [int(row) for row in order]


def _why(parts: Mapping[str, Any], entry: Entry) -> Why:
    reasons = [
        Reason(part=name, value=part.score, rank=None if name in _BOOSTS else part.rank)
        for name, part in parts.items()
        if abs(part.score) >= 0.005
    ]
    reasons.sort(key=lambda reason: -abs(reason.value))
    chain = tuple(f"{evidence.kind} {evidence.ref}" for evidence in entry.evidence)
    if entry.message is not None:
        chain = tuple(dict.fromkeys((f"message {entry.message.thread}:{entry.message.seq}", *chain)))
    return Why(reasons=tuple(reasons), evidence=chain)
