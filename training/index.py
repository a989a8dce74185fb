"""Recall from conversations without a store.

Turns are indexed by the functions that stores use, and questions are answered by `omoide.stores.recall`, so
figures are those of the package. Vectors are cached under `.cache/embeddings`, in one file for each embedder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from omoide.core.entry import Entry, Filter, RecallRequest, RecallResult, Scope
from omoide.embedders import Embedder, Embedding, choose
from omoide.embedders.protocol import TOKEN_SIZE
from omoide.eval.datasets import DatasetConversation
from omoide.eval.runner import AGENT_ID, QUESTION_DELAY_MS, to_entries
from omoide.retrieval.pool import CandidatePool
from omoide.retrieval.queries import ParsedQuery, parse_query
from omoide.retrieval.ranking import Center
from omoide.retrieval.relevance import calibration_for
from omoide.stores import recall
from omoide.stores.pool import pool_of
from omoide.stores.records import IndexData, embed_texts, index_entries
from training.sets import HERE, Conversation

CACHE = HERE.parent / ".cache" / "embeddings"
EMBEDDED_AT_ONCE = 256

Readings = list[tuple[ParsedQuery, Embedding | None]]
"""The readings of a question, most often one, each with its embedding."""


class CachedEmbedder:
    """An embedder whose embeddings are kept in a file between runs, in one for each version of the model."""

    def __init__(self, inner: Embedder, folder: Path = CACHE) -> None:
        self.name, self.dim = inner.name, inner.dim
        self.calibration = getattr(inner, "calibration", None)
        self._inner = inner
        file_name = re.sub(r"[^\w.-]", "_", inner.name)
        self._path = folder / f"{file_name}-{_fingerprint(inner)}.npz"
        self._known: dict[tuple[bool, str], Embedding] = (
            _read_cache(self._path) if self._path.exists() else {}
        )
        self._saved = len(self._known)

    def embed(self, texts: Sequence[str], *, query: bool = False) -> list[Embedding]:
        """Return the embeddings of the texts, in order."""
        new = [text for text in dict.fromkeys(texts) if (query, text) not in self._known]
        for start in range(0, len(new), EMBEDDED_AT_ONCE):
            batch = new[start : start + EMBEDDED_AT_ONCE]
            embeddings = self._inner.embed(batch, query=query)
            self._known.update(zip([(query, text) for text in batch], embeddings, strict=True))
        return [self._known[query, text] for text in texts]

    def save(self) -> None:
        """Write the embeddings, if there are new ones."""
        if len(self._known) == self._saved:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        embeddings = [*self._known.values()]
        tokens = [_no_tokens() if one.tokens is None else one.tokens for one in embeddings]
        head = [(*key, one.words, one.tokens is None) for key, one in self._known.items()]
        new_path = self._path.with_suffix(".new.npz")
        np.savez(
            new_path,
            head=np.frombuffer(msgspec.json.encode(head), np.uint8),
            pooled=np.stack([one.pooled for one in embeddings]),
            counts=np.array([*map(len, tokens)]),
            tokens=np.concatenate(tokens),
        )
        new_path.replace(self._path)
        self._saved = len(self._known)


def _fingerprint(embedder: Embedder) -> str:
    """Return a digest of one vector: while a model is being trained, it changes and keeps its name."""
    pooled = embedder.embed(["fingerprint"])[0].pooled
    return sha256(np.round(pooled, 2).tobytes()).hexdigest()[:8]


def _no_tokens() -> Any:
    return np.zeros((0, TOKEN_SIZE), np.int8)


def _read_cache(path: Path) -> dict[tuple[bool, str], Embedding]:
    with np.load(path) as arrays:
        head = msgspec.json.decode(
            arrays["head"].tobytes(), type=list[tuple[bool, str, tuple[str, ...] | None, bool]]
        )
        pooled = arrays["pooled"]
        tokens = np.split(arrays["tokens"], np.cumsum(arrays["counts"])[:-1])
    return {
        (query, text): Embedding(pooled[at], None if has_no_tokens else tokens[at], words)
        for at, (query, text, words, has_no_tokens) in enumerate(head)
    }


@dataclass(frozen=True)
class IndexedConversation:
    """A conversation as the pool of a scope: a `CandidateSource` of recall."""

    conversation: Conversation
    entries: list[Entry]
    pool: CandidatePool
    embedder: CachedEmbedder | None

    @property
    def asked_at(self) -> int:
        """The time at which questions are asked: an hour after the last turn."""
        return max(turn.at or 0 for turn in self.conversation.turns) + QUESTION_DELAY_MS

    def answer(self, question: str, limit: int) -> RecallResult:
        """Answer a question as a store does."""
        scope = Scope(namespace=self.conversation.id, agent_id=AGENT_ID)
        request = RecallRequest.for_scope(scope, question, limit=limit, at=self.asked_at)
        return recall.recall(request, self, self.embedder)

    def readings(self, question: str) -> Readings:
        """Parse and embed a question, as recall does."""
        query = parse_query(question, now=self.asked_at, speakers=self.pool.speakers)
        readings = query.readings or (query,)
        if self.embedder is None:
            return [(one, None) for one in readings]
        embeddings = embed_texts([one.encoder_text for one in readings], self.embedder, query=True)
        return [*zip(readings, embeddings, strict=True)]

    @property
    def center(self) -> Center | None:
        """The mean vectors of the embedder, if the package knows them."""
        calibration = None if self.embedder is None else calibration_for(self.embedder.name)
        return None if calibration is None else Center.of(calibration.center)

    def rows_of(self, ids: Iterable[str]) -> list[int]:
        """Return the rows of the pool for these turns."""
        rows = {turn.id: row for row, turn in enumerate(self.conversation.turns)}
        return [rows[id] for id in ids]

    def speakers(self, scope: Scope) -> Sequence[str]:
        """Return the names of the speakers."""
        return self.pool.speakers

    @contextmanager
    def candidates(
        self, scope: Scope, filter: Filter, at: int, limit: int, encode_query: recall.QueryEncoder
    ) -> Iterator[recall.Candidates | None]:
        """Yield all turns as candidates."""
        query = encode_query(self.pool.speakers)
        order = range(self.pool.size)
        yield recall.Candidates(
            self.pool, query, None, order, lambda rows: [self.entries[row] for row in rows]
        )


class Index:
    """Indexes conversations; what is indexed of a text is computed once."""

    def __init__(self, embedder: CachedEmbedder | None) -> None:
        self.embedder = embedder
        self._data: dict[str, IndexData] = {}

    @classmethod
    def of(cls, name: str) -> Index:
        """Return an index with the embedder of this name."""
        embedder = choose(name)
        return cls(None if embedder is None else CachedEmbedder(embedder))

    @property
    def name(self) -> str | None:
        """The name of the embedder; None for words alone."""
        return None if self.embedder is None else self.embedder.name

    def add(self, conversation: Conversation) -> IndexedConversation:
        """Index one conversation."""
        entries = [
            *to_entries(DatasetConversation(id=conversation.id, turns=conversation.turns, questions=()))
        ]
        new = [*{entry.content: entry for entry in entries if entry.content not in self._data}.values()]
        for entry, data in zip(new, index_entries(new, self.embedder), strict=True):
            self._data[entry.content] = data
        pool, _ = pool_of(
            [(entry, self._data[entry.content]) for entry in entries],
            0 if self.embedder is None else self.embedder.dim,
            [True] * len(entries),
        )
        return IndexedConversation(conversation, entries, pool, self.embedder)

    def add_all(self, conversations: Iterable[Conversation]) -> Iterator[IndexedConversation]:
        """Index conversations one after the other, and save their vectors."""
        for conversation in conversations:
            yield self.add(conversation)
        if self.embedder is not None:
            self.embedder.save()
