"""Answer recall requests, in the same way for every store.

The back end provides candidates, `omoide.retrieval` scores them, and each hit explains its score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from omoide.core.entry import (
    DEFAULT_MIN_RELEVANCE,
    Entry,
    Filter,
    Hit,
    Reason,
    RecallRequest,
    RecallResult,
    Scope,
    Why,
)
from omoide.embedders import Embedder, Embedding
from omoide.retrieval import text
from omoide.retrieval.queries import MAX_QUERY_LENGTH, ParsedQuery, SpeakerNames, parse_query
from omoide.retrieval.text import TokenCounter
from omoide.stores import semantics
from omoide.stores.records import REPAIR_REMEDY, embed_texts, text_of
from omoide.stores.reranker import rerank
from omoide.stores.semantics import StoreSettings

if TYPE_CHECKING:
    from omoide.retrieval.pool import Array, CandidatePool
    from omoide.retrieval.ranking import ScoreTable
    from omoide.retrieval.relevance import Calibration


MIN_COSINE = 0.35
"""Cosine similarity from which two texts count as related."""

_BOOSTS = ("recency", "confidence", "importance")


class EncodedQuery(NamedTuple):
    """A parsed query: its terms and, if there is an embedder, its vector."""

    query: ParsedQuery
    vector: Embedding | None
    readings: tuple[EncodedQuery, ...] = ()
    """The readings of a query that names several speakers, one for each."""

    def term_ids(self) -> list[int]:
        """Return the ids of the query terms in the index."""
        return [text.term_id(term) for term in self.query.terms]


QueryEncoder = Callable[[Sequence[str]], EncodedQuery]
"""Parses and embeds the query, given the names of the speakers in the scope."""


def words_only(encode_query: QueryEncoder) -> QueryEncoder:
    """Return the encoder without its vectors, for a store that has those of another embedder."""
    return lambda speakers: encode_query(speakers)._replace(vector=None)


class Candidates(NamedTuple):
    """Candidate entries as columns, and how to load them."""

    pool: CandidatePool
    query: EncodedQuery
    allowed: Array | None
    """Mask of the pool rows that pass the filter; None for all."""
    write_order: Sequence[int]
    """Increasing number per row: of two equal scores the newer entry comes first."""
    load_entries: Callable[[Sequence[int]], Sequence[Entry | None]]
    """Loads the entries of pool rows, in order; None for a damaged one."""
    notices: tuple[str, ...] = ()


class RankedHits(NamedTuple):
    """The best hits of a recall, before anything is cut."""

    hits: list[Hit]
    weak: bool
    notices: tuple[str, ...] = ()


_DEFAULTS = StoreSettings()


class CandidateSource(Protocol):
    """A back end that provides candidates."""

    def speakers(self, scope: Scope) -> Sequence[str]:
        """Return the known speakers of a scope; may be outdated."""

    def candidates(
        self, scope: Scope, filter: Filter, at: int, limit: int, encode_query: QueryEncoder
    ) -> AbstractContextManager[Candidates | None]:
        """Yield the candidates of a scope in one consistent snapshot; None if it is empty."""


class EntrySource(Protocol):
    """A back end that lists entries."""

    def list_entries(self, scope: Scope) -> list[Entry]:
        """List all entries of a scope, oldest first."""


def has_numpy() -> bool:
    """Return True if NumPy, which scoring needs, is installed."""
    try:
        import numpy  # noqa: F401
    except ImportError:
        return False
    return True


def recall_by_words(
    request: RecallRequest, source: EntrySource, settings: StoreSettings = _DEFAULTS
) -> RecallResult:
    """Answer a request with BM25 alone, for installations without NumPy."""
    scope = request.effective_scope()
    passes = semantics.entry_predicate(request.filter, request.at)
    entries = [] if scope is None else [entry for entry in source.list_entries(scope) if passes(entry)]
    terms = text.terms(text.ends(request.query, MAX_QUERY_LENGTH))
    scores = text.bm25(terms, [text.terms(text_of(entry)) for entry in entries])
    ranking = sorted(range(len(entries)), key=lambda at: (-scores[at], -at))
    hits = [
        Hit(
            entry=entries[at],
            score=scores[at],
            rank=rank,
            why=Why(reasons=(Reason(part="words", value=scores[at], rank=rank),) if scores[at] else ()),
        )
        for rank, at in enumerate(ranking[: _hit_limit(request, settings)], 1)
    ]
    notice = "only words were compared; pip install 'omoide[vector]' for meaning, time and context"
    weak = bool(hits) and not hits[0].score
    return _build_result(request, RankedHits(hits, weak, (notice,)), settings)


def recall(
    request: RecallRequest,
    source: CandidateSource,
    embedder: Embedder | None,
    settings: StoreSettings = _DEFAULTS,
) -> RecallResult:
    """Answer a request from the candidates of a back end."""
    scope = request.effective_scope()
    if scope is None:
        return RecallResult(request=request)

    vectors: dict[str, Embedding] = {}
    queries: dict[tuple[str, ...], ParsedQuery] = {}  # by the speakers that the query may name

    def encode_query(speakers: Sequence[str]) -> EncodedQuery:
        parsed = _parse(request, speakers, queries)
        readings = (parsed, *parsed.readings)
        texts = dict.fromkeys(reading.encoder_text for reading in readings)
        if embedder is not None and (new := [text for text in texts if text not in vectors]):
            vectors.update(zip(new, embed_texts(new, embedder, query=True), strict=True))
        main, *others = [EncodedQuery(reading, vectors.get(reading.encoder_text)) for reading in readings]
        return main._replace(readings=tuple(others))

    if embedder is not None:
        encode_query(source.speakers(scope))  # most often the vector is there before anything is held up
    limit = _hit_limit(request, settings)
    with source.candidates(scope, request.filter, request.at, limit, encode_query) as candidates:
        if candidates is None:
            return RecallResult(request=request)
        ranked = _rank(candidates, embedder, limit)
    return _build_result(request, ranked, settings)  # nothing is held up while a reranker works


def _hit_limit(request: RecallRequest, settings: StoreSettings) -> int:
    """Return the number of hits to rank: the reranker may lift some from beyond the limit of the request."""
    return request.limit if settings.reranker is None else max(request.limit, settings.rerank_depth)


def _parse(
    request: RecallRequest, speakers: Sequence[str], parsed: dict[tuple[str, ...], ParsedQuery]
) -> ParsedQuery:
    """Parse the query; of many speakers only those that it may name are compared with it."""
    numbers = speakers.named_in(request.query) if isinstance(speakers, SpeakerNames) else None
    names = tuple(speakers if numbers is None else (speakers[number] for number in numbers))
    if names not in parsed:
        parsed[names] = parse_query(request.query, now=request.at, speakers=names)
    return parsed[names] if numbers is None else _renumber(parsed[names], numbers)


def _renumber(query: ParsedQuery, numbers: Sequence[int]) -> ParsedQuery:
    """Number the speakers that a query names by the list of all."""
    return query._replace(
        named_speakers=frozenset(numbers[at] for at in query.named_speakers),
        readings=tuple(_renumber(reading, numbers) for reading in query.readings),
    )


def _calibration_of(embedder: Embedder | None) -> Calibration | None:
    """Return the calibration that an embedder brings, or that of the package for its vectors."""
    from omoide.retrieval.relevance import calibration_for

    brought: Calibration | None = getattr(embedder, "calibration", None)
    return brought or calibration_for(None if embedder is None else embedder.name)


def _rank(candidates: Candidates, embedder: Embedder | None, limit: int) -> RankedHits:
    """Score the candidates and build the hits with their explanations."""
    from omoide.retrieval import relevance
    from omoide.retrieval.ranking import ScoreTable, score

    query, pool = candidates.query, candidates.pool
    calibration = _calibration_of(embedder if len(pool.vectors) else None)
    readings = query.readings or (query,)
    scored = ScoreTable.best_of(
        [score(one.query, pool, vector=one.vector, mask=candidates.allowed) for one in readings]
    )
    compared = _top_rows(scored, candidates, max(limit, relevance.MAX_ROWS))
    likelihood = relevance.estimate(
        [(one.query, one.vector) for one in readings],
        pool,
        compared,
        calibration,
        floor=DEFAULT_MIN_RELEVANCE,
    )
    order, newer = relevance.arrange(
        query.query, pool, compared, scored.total[compared], likelihood, calibration
    )
    wanted = [*order[:limit], *(newer[at] for at in order[:limit] if at in newer)]
    loaded = dict(zip(wanted, candidates.load_entries([compared[at] for at in wanted]), strict=True))
    entries = {at: entry for at, entry in loaded.items() if entry is not None}
    chosen = [at for at in order[:limit] if at in entries]
    rows = [compared[at] for at in chosen]
    newer_entries = {at: entries[newer[at]] for at in chosen if newer.get(at) in entries}
    notices = candidates.notices
    if len(entries) < len(loaded):
        notices = (*notices, f"{len(loaded) - len(entries)} damaged entries were left out: {REPAIR_REMEDY}")
    hits = [
        Hit(
            entry=entries[at],
            score=float(scored.total[row]),
            rank=rank,
            why=_build_why(parts, entries[at], newer_entries.get(at)),
            relevance=None if likelihood is None else round(float(likelihood[at]), 4),
            newer=newer_entries[at].id if at in newer_entries else None,
        )
        for rank, (at, row, parts) in enumerate(zip(chosen, rows, scored.explain_rows(rows), strict=True), 1)
    ]
    # Words alone cannot tell a paraphrase from another subject: there a shared word or time decides.
    if likelihood is None or not len(pool.vectors):
        weak = bool(rows) and not any(
            _matches(candidates, row, hit) for row, hit in zip(rows, hits, strict=True)
        )
    else:
        weak = bool(rows) and all((hit.relevance or 0.0) < DEFAULT_MIN_RELEVANCE for hit in hits)
    return RankedHits(hits, weak, notices)


def _build_result(request: RecallRequest, ranked: RankedHits, settings: StoreSettings) -> RecallResult:
    """Build the result: rerank the hits, and cut them to the limit, relevance and tokens of the request."""
    hits, notices = ranked.hits, [*ranked.notices]
    if settings.reranker is not None:
        hits = rerank(request.query, hits, settings.reranker, settings.rerank_depth)
    hits, withheld = withhold(request, hits[: request.limit])
    if request.max_tokens is not None:
        hits, cut = fit_budget(hits, request.max_tokens, settings.count_tokens)
        if cut:
            notices.append(f"{cut} of {cut + len(hits)} entries did not fit into {request.max_tokens} tokens")
    return RecallResult(
        request=request,
        hits=tuple(hits),
        withheld=tuple(withheld),
        weak=ranked.weak,
        notices=tuple(notices),
    )


def withhold(request: RecallRequest, hits: Sequence[Hit]) -> tuple[list[Hit], list[Hit]]:
    """Split hits into those to show and those below the `min_relevance` of the request.

    A hit whose relevance is not known is shown.
    """
    shown: list[Hit] = []
    withheld: list[Hit] = []
    for hit in hits:
        below = (
            request.min_relevance is not None
            and hit.relevance is not None
            and hit.relevance < request.min_relevance
        )
        (withheld if below else shown).append(hit)
    return shown, withheld


def prompt_line(hit: Hit) -> str:
    """Render an entry as the line it takes in a prompt, to measure its length."""
    return f"- [0000-00-00] {hit.entry.content}\n"


def fit_budget(hits: Sequence[Hit], budget: int, count: TokenCounter) -> tuple[list[Hit], int]:
    """Return the best hits within a token budget, and how many were dropped.

    A hit that is too long is skipped in favour of shorter ones after it.
    """
    fitting, used = [], 0
    for hit in hits:
        size = count(prompt_line(hit))
        if used + size <= budget:
            used += size
            fitting.append(hit)
    return fitting, len(hits) - len(fitting)


def _matches(candidates: Candidates, row: int, hit: Hit) -> bool:
    """Return True if a hit shares a word with the query, lies in its time, or is close in meaning."""
    query, text_of_hit = candidates.query.query, text_of(hit.entry)
    if not {*query.terms}.isdisjoint(text.terms(text_of_hit)):
        return True
    if not query.terms and not {*text.words(query.text)}.isdisjoint(text.words(text_of_hit)):
        return True  # a question of nothing but small words
    if any(reason.part == "date" and reason.value > 0 for reason in hit.why.reasons):
        return True
    vector, pool = candidates.query.vector, candidates.pool
    own_vectors = pool.vectors[pool.vector_rows == row] if vector is not None and len(pool.vectors) else ()
    return any(float(one @ vector.pooled) >= MIN_COSINE for one in own_vectors if vector is not None)


def _top_rows(scored: ScoreTable, candidates: Candidates, limit: int) -> list[int]:
    """Return the best rows of the pool, newest first among equal scores."""
    import numpy as np

    allowed = candidates.allowed
    total = scored.total if allowed is None else np.where(allowed, scored.total, -np.inf)
    size = min(limit, int(np.isfinite(total).sum()))
    order = np.lexsort((-np.asarray(candidates.write_order), -total))[:size]
    return [int(row) for row in order]


def _build_why(parts: Mapping[str, Any], entry: Entry, newer: Entry | None) -> Why:
    """Explain a score: its parts by weight, and the evidence of the entry."""
    reasons = [
        Reason(part=name, value=part.score, rank=None if name in _BOOSTS else part.rank)
        for name, part in parts.items()
        if abs(part.score) >= 0.005
    ]
    reasons.sort(key=lambda reason: -abs(reason.value))
    if newer is not None:
        reasons.append(Reason(part="newer", value=0.0, note=f"{newer.id} says something else later"))
    chain = tuple(f"{evidence.kind} {evidence.ref}" for evidence in entry.evidence)
    if entry.message is not None:
        chain = tuple(dict.fromkeys((f"message {entry.message.thread}:{entry.message.seq}", *chain)))
    return Why(reasons=tuple(reasons), evidence=chain)
