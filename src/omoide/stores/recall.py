"""How does a store answer a request?

The same way in every store: the back end brings candidates, `retrieval` scores them, and each hit says why it
is there.

"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from omoide.core.entry import Entry, Filter, Hit, Reason, RecallRequest, RecallResult, Scope, Why
from omoide.embedders import Embedder, Embedding
from omoide.retrieval import query as reading
from omoide.retrieval import text
from omoide.retrieval.query import ParsedQuery
from omoide.retrieval.text import TokenCounter, estimate_tokens
from omoide.stores import semantics
from omoide.stores.codec import embed_texts, text_of

if TYPE_CHECKING:
    from omoide.retrieval.pool import Array, CandidatePool
    from omoide.retrieval.ranking import ScoreTable


MIN_COSINE = 0.35
"""The cosine from which on two texts are taken to speak of the same thing."""

_BOOSTS = ("recency", "confidence", "importance")


class EncodedQuery(NamedTuple):
    """A question that has been read: its terms, and its vector where there is an embedder."""

    query: ParsedQuery
    vector: Embedding | None

    def term_ids(self) -> list[int]:
        """The terms by number, as they are indexed."""
        return [text.term_id(term) for term in self.query.terms]


QueryEncoder = Callable[[Sequence[str]], EncodedQuery]
"""Reads the question, given the names of those who speak in the scope."""


class Candidates(NamedTuple):
    """The entries that may answer, as columns, and how to get them."""

    pool: CandidatePool
    query: EncodedQuery
    allowed: Array | None
    """Which rows of the pool the filter lets pass; None for all."""
    write_order: Sequence[int]
    """When each row was written, as a number that grows: among equals the newest goes first."""
    load_entries: Callable[[Sequence[int]], list[Entry]]
    """The entries of some rows of the pool, in their order."""
    notices: tuple[str, ...] = ()


class CandidateSource(Protocol):
    """A back end that can bring candidates."""

    def speakers(self, scope: Scope) -> Sequence[str]:
        """Who is known to speak in a scope; a guess from before is enough."""
        ...

    def candidates(
        self, scope: Scope, filter: Filter, at: int, limit: int, encode_query: QueryEncoder
    ) -> AbstractContextManager[Candidates | None]:
        """The candidates of a scope as it is at one moment; None where it holds nothing."""
        ...


class EntrySource(Protocol):
    """A back end that can list what it holds."""

    def list_entries(self, scope: Scope) -> list[Entry]:
        """Everything in a scope, oldest first."""
        ...


def has_numpy() -> bool:
    """Whether what scoring needs is installed."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        return False
    return True


def recall_by_words(
    request: RecallRequest, source: EntrySource, count: TokenCounter = estimate_tokens
) -> RecallResult:
    """Answer a request by words alone, where nothing more is installed."""
    scope = request.effective_scope()
    passes = semantics.entry_predicate(request.filter, request.at)
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
    return _build_result(request, hits, notices, weak=weak, count=count)


def recall(
    request: RecallRequest,
    source: CandidateSource,
    embedder: Embedder | None,
    count: TokenCounter = estimate_tokens,
) -> RecallResult:
    """Answer a request from the candidates of a back end."""
    scope = request.effective_scope()
    if scope is None:
        return RecallResult(request=request)

    vectors: dict[str, Embedding] = {}

    def read(speakers: Sequence[str]) -> EncodedQuery:
        asked = reading.parse_query(request.query, now=request.at, speakers=speakers)
        if embedder is None:
            return EncodedQuery(asked, None)
        if asked.encoder_text not in vectors:
            vectors[asked.encoder_text] = embed_texts([asked.encoder_text], embedder, query=True)[0]
        return EncodedQuery(asked, vectors[asked.encoder_text])

    if embedder is not None:
        read(source.speakers(scope))  # most often the vector is there before anything is held up
    with source.candidates(scope, request.filter, request.at, request.limit, read) as found:
        if found is None:
            return RecallResult(request=request)
        return _rank(request, found, count)


def _rank(request: RecallRequest, found: Candidates, count: TokenCounter) -> RecallResult:
    from omoide.retrieval.ranking import score

    scored = score(found.query.query, found.pool, vector=found.query.vector, mask=found.allowed)
    best = _top_rows(scored, found, request.limit)
    entries = found.load_entries(best)
    hits = [
        Hit(entry=entry, score=float(scored.total[row]), rank=rank, why=_build_why(parts, entry))
        for rank, (row, entry, parts) in enumerate(
            zip(best, entries, scored.explain_rows(best), strict=True), 1
        )
    ]
    weak = bool(best) and not any(_matches(found, row, hit) for row, hit in zip(best, hits, strict=True))
    return _build_result(request, hits, [*found.notices], weak=weak, count=count)


def _build_result(
    request: RecallRequest, hits: list[Hit], notices: list[str], *, weak: bool, count: TokenCounter
) -> RecallResult:
    """The result, cut to the room that there is."""
    if request.max_tokens is not None:
        hits, cut = fit_budget(hits, request.max_tokens, count)
        if cut:
            notices.append(f"{cut} of {cut + len(hits)} entries did not fit into {request.max_tokens} tokens")
    return RecallResult(request=request, hits=tuple(hits), weak=weak, notices=tuple(notices))


def prompt_line(hit: Hit) -> str:
    """An entry as it will stand in a prompt: on a line of its own, dated."""
    return f"- [0000-00-00] {hit.entry.content}\n"


def fit_budget(hits: Sequence[Hit], budget: int, count: TokenCounter) -> tuple[list[Hit], int]:
    """The best hits that fit, and how many do not; a long one is passed over for shorter ones after it."""
    kept, used = [], 0
    for hit in hits:
        size = count(prompt_line(hit))
        if used + size <= budget:
            used += size
            kept.append(hit)
    return kept, len(hits) - len(kept)


def _matches(found: Candidates, row: int, hit: Hit) -> bool:
    """Whether a hit has a word of the question in it, the time it asks for, or a meaning that is near."""
    asked, said = found.query.query, text_of(hit.entry)
    if not {*asked.terms}.isdisjoint(text.terms(said)):
        return True
    if not asked.terms and not {*text.words(asked.text)}.isdisjoint(text.words(said)):
        return True  # a question of nothing but small words
    if any(reason.part == "date" and reason.value > 0 for reason in hit.why.reasons):
        return True
    vector, pool = found.query.vector, found.pool
    mine = pool.vectors[pool.vector_rows == row] if vector is not None and len(pool.vectors) else ()
    return any(float(own @ vector.pooled) >= MIN_COSINE for own in mine if vector is not None)


def _top_rows(scored: ScoreTable, found: Candidates, limit: int) -> list[int]:
    import numpy as np

    total = scored.total if found.allowed is None else np.where(found.allowed, scored.total, -np.inf)
    size = min(limit, int(np.isfinite(total).sum()))
    order = np.lexsort((-np.asarray(found.write_order), -total))[:size]
    return [int(row) for row in order]


def _build_why(parts: Mapping[str, Any], entry: Entry) -> Why:
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
