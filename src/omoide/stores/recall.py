"""Answer recall requests, in the same way for every store.

The back end provides candidates, `omoide.retrieval` scores them, and each hit explains its score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from omoide.core.entry import (
    DEFAULT_MIN_RELEVANCE,
    Entry,
    Filter,
    Hit,
    Passage,
    Reason,
    RecallRequest,
    RecallResult,
    Scope,
    Why,
    passages_of,
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

MAX_REPETITIONS = 500
"""Rows that may be passed over because better ones say the same."""
_KEY_BATCH = 64
_FILLERS = frozenset({"please", "pls", "so", "well", "ok", "okay", "hey", "hi", "again", "and", "um", "oh"})

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
        parsed[names] = parse_query(request.query, now=request.at, speakers=names, plain=parsed.get(()))
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
    from omoide.retrieval.pool import distinct_rows
    from omoide.retrieval.ranking import Center, ScoreTable, score

    query, (pool, asked) = candidates.query, distinct_rows(candidates.pool)
    candidates = candidates._replace(pool=pool)
    calibration = _calibration_of(embedder if len(pool.vectors) else None)
    readings = query.readings or (query,)
    center = None if calibration is None else Center.of(calibration.center)
    scored = ScoreTable.best_of(
        [
            score(one.query, pool, vector=one.vector, mask=candidates.allowed, center=center)
            for one in readings
        ]
    )
    compared, repeated = _distinct_rows(scored, candidates, max(limit, relevance.MAX_ROWS), asked)
    likelihood = relevance.estimate(
        [(one.query, one.vector) for one in readings],
        pool,
        compared,
        calibration,
        floor=DEFAULT_MIN_RELEVANCE,
    )
    order, newer = _arrange(query, pool, compared, scored.total[compared], likelihood, calibration)
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
            passage=_passage(pool, row, entries[at]),
            said_at=repeated.get(row, ()),
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
    from omoide.retrieval.pool import row_terms

    query, text_of_hit = candidates.query.query, text_of(hit.entry)
    # A row may be a part of the entry, so its own terms say yes at once, but not no.
    if not {*candidates.query.term_ids()}.isdisjoint(row_terms(candidates.pool, row).tolist()):
        return True
    if not {*query.terms}.isdisjoint(text.terms(text_of_hit)):
        return True
    if not query.terms and not {*text.words(query.text)}.isdisjoint(text.words(text_of_hit)):
        return True  # a question of nothing but small words
    if any(reason.part == "date" and reason.value > 0 for reason in hit.why.reasons):
        return True
    vector, pool = candidates.query.vector, candidates.pool
    own_vectors = pool.vectors[pool.vector_rows == row] if vector is not None and len(pool.vectors) else ()
    return any(float(one @ vector.pooled) >= MIN_COSINE for one in own_vectors if vector is not None)


def _top_rows(scored: ScoreTable, candidates: Candidates) -> list[int]:
    """Return the rows of the pool, best first, and newest first among equal scores."""
    import numpy as np

    allowed = candidates.allowed
    total = scored.total if allowed is None else np.where(allowed, scored.total, -np.inf)
    size = int(np.isfinite(total).sum())
    order: list[int] = np.lexsort((-np.asarray(candidates.write_order), -total))[:size].tolist()
    return order


def _distinct_rows(
    scored: ScoreTable, candidates: Candidates, limit: int, asked: Mapping[int, Array]
) -> tuple[list[int], dict[int, tuple[int, ...]]]:
    """Return the best rows, of which no two say the same, and when those were said that were said again.

    Of messages that say the same, the newest stands for all.
    """
    import numpy as np

    pool = candidates.pool
    best = np.array(_top_rows(scored, candidates)[: limit + MAX_REPETITIONS], np.int64)
    groups, entries = dict[tuple[int, int], list[int]](), set[int]()
    for row, said_as, entry, message, takes_place in _row_keys(pool, best):
        key = (said_as, -1 if message else row)
        if key not in groups and len(entries) == limit and entry not in entries:
            break
        groups.setdefault(key, []).append(row)
        if takes_place:
            entries.add(entry)
    alike = [row for rows in groups.values() if len(rows) > 1 for row in rows]
    texts = dict(zip(alike, candidates.load_entries(alike), strict=True)) if alike else {}
    said: dict[object, list[int]] = {}
    for alike_as, rows in groups.items():
        for row in rows:
            found = texts.get(row)
            own = () if found is None else _spoken_words(_text_of_row(pool, row, found))
            said.setdefault((alike_as, own), []).append(row)
    time, written = pool.column("time"), candidates.write_order
    newest = {
        rows[0] if len(rows) == 1 else max(rows, key=lambda row: (time[row], written[row])): rows
        for rows in said.values()
    }
    repeated = {}
    for row, rows in newest.items():
        if len(rows) == 1 and rows[0] not in asked:
            continue
        every = [int(other) for one in rows for other in asked.get(one, (one,))]
        if len(every) > 1:
            repeated[row] = tuple(sorted((int(time[one]) for one in every), reverse=True))
    return [*newest], repeated


def _row_keys(pool: CandidatePool, rows: Array) -> Iterator[tuple[int, int, int, bool, bool]]:
    """Yield rows with their hash and entry, whether they are messages, and whether they take a place."""
    from omoide.retrieval.pool import OTHER, repetition_keys
    from omoide.retrieval.text import STATES_NOTHING

    for start in range(0, len(rows), _KEY_BATCH):  # few are needed where nothing was said twice
        some = rows[start : start + _KEY_BATCH]
        is_message = pool.column("role")[some] != OTHER
        # Questions take no place of statements.
        counts = ~is_message | (pool.column("flags")[some] & STATES_NOTHING == 0)
        columns = some, repetition_keys(pool, some), pool.column("entry")[some], is_message, counts
        yield from zip(*(column.tolist() for column in columns), strict=True)


def _spoken_words(content: str) -> tuple[str, ...]:
    """Return the words of a message without those that only soften it."""
    return tuple(word for word in text.words(content) if word not in _FILLERS)


def _passage(pool: CandidatePool, row: int, entry: Entry) -> Passage | None:
    """Return the part of an entry that a row stands for; None if it is the whole entry."""
    part = int(pool.column("part")[row])
    passages = passages_of(entry) if part >= 0 else ()
    return passages[part] if passages else None


def _text_of_row(pool: CandidatePool, row: int, entry: Entry) -> str:
    passage = _passage(pool, row, entry)
    return entry.content if passage is None else passage.text


def _arrange(
    asked: EncodedQuery,
    pool: CandidatePool,
    rows: Sequence[int],
    scores: Array,
    likelihood: Array | None,
    calibration: Calibration | None,
) -> tuple[list[int], dict[int, int]]:
    """Return the order of ranked rows, and for outdated ones the newer row, both as indexes into `rows`."""
    from omoide.retrieval import relevance

    query, vector = asked.query, (asked.readings or (asked,))[0].vector
    echoes = relevance.find_echoes(query, pool, rows)
    stated = [at for at, is_echo in enumerate(echoes) if not is_echo]
    known = None if likelihood is None else likelihood[stated]
    arranged, newer = relevance.arrange(
        query, pool, [rows[at] for at in stated], scores[stated], known, calibration, vector
    )
    order = _insert_echoes([stated[at] for at in arranged], echoes, likelihood)
    order = _one_part_each(pool, rows, order, echoes, likelihood)
    return order, {stated[older]: stated[one] for older, one in newer.items()}


def _one_part_each(
    pool: CandidatePool,
    rows: Sequence[int],
    order: Sequence[int],
    echoes: Sequence[bool],
    relevance: Array | None,
) -> list[int]:
    """Return the order with one row of each entry: of parts that state something the most relevant."""
    entry = pool.column("entry")
    chosen: dict[int, int] = {}
    for at in order:
        first = chosen.setdefault(int(entry[rows[at]]), at)
        if relevance is not None and echoes[first] == echoes[at] and relevance[at] > relevance[first]:
            chosen[int(entry[rows[at]])] = at
    return [*chosen.values()]


def _insert_echoes(stated: Sequence[int], echoes: Sequence[bool], relevance: Array | None) -> list[int]:
    """Return the order of all rows: echoes stand behind the last statement that is relevant."""
    floor = DEFAULT_MIN_RELEVANCE
    relevant = [at for at, row in enumerate(stated) if relevance is None or relevance[row] >= floor]
    end = max(relevant, default=-1) + 1
    return [*stated[:end], *(row for row, is_echo in enumerate(echoes) if is_echo), *stated[end:]]


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
