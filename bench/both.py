"""How do the store and the bare script come to hold the same, and how are they asked the same?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter_ns

from bench import corpus
from bench.corpus import Item, Prepared
from bench.floor import Array, Floor
from omoide import Entry, Filter, RecallRequest, Scope, WriteRequest, open_store
from omoide.core import MessageRef
from omoide.embedders import HashEmbedder
from omoide.stores import Query

Given = dict[str, tuple[list[str], Array]]

AGENT = "bench"
BATCH = 1_000
ASKED = 500
FURTHER = 20_000


class Both:
    """The store and the bare script, with the same items in them and their vectors at hand."""

    def __init__(self, folder: Path, size: int, durability: str = "crash") -> None:
        self.size = size
        self.embedder = Prepared(HashEmbedder())
        url = f"sqlite:///{folder / 'ours.db'}"
        self.store = open_store(url, embedder=self.embedder, durability=durability)
        self.ours = self.store.sync
        self.bare = Floor(folder / "bare.db", self.embedder.dim, power_safe=durability == "power")
        self.sample = [*islice(corpus.items(size), 0, None, max(1, size // 1_000))]
        self._next = size

    def build(self) -> dict[str, float]:
        """Import everything, some at a time; nanoseconds per item."""
        ours = bare = 0
        source = corpus.items(self.size)
        while some := [*islice(source, BATCH)]:
            self.embedder.forget()
            pairs = [*zip(some, self.embedder.prepare([item.text for item in some]), strict=True)]
            start = perf_counter_ns()
            self.ours.write_many([request(item) for item in some])
            middle = perf_counter_ns()
            self.bare.add_many([(item, vector.pooled) for item, vector in pairs])
            ours, bare = ours + middle - start, bare + perf_counter_ns() - middle
        self.embedder.forget()
        return {"ours": ours / self.size, "bare script": bare / self.size}

    def further(self) -> tuple[Iterator[WriteRequest], Iterator[tuple[Item, Array]]]:
        """New items for the store, and the same ones for the bare script."""
        items = [*corpus.items(FURTHER, start=self._next)]
        self._next += FURTHER
        vectors = self.embedder.prepare([item.text for item in items])
        bare = ((item, vector.pooled) for item, vector in zip(items, vectors, strict=True))
        return (request(item) for item in items), bare

    def questions(self, about: Sequence[Item] = ()) -> tuple[Iterator[tuple[Item, str]], Given]:
        """Questions without end, and what the bare script is given of each: its words and its vector."""
        found = corpus.questions(about or self.sample, ASKED)
        vectors = self.embedder.prepare([text for _, text in found])
        given = {
            text: (corpus.meaningful(text), vector.pooled)
            for (_, text), vector in zip(found, vectors, strict=True)
        }
        return cycle(found), given

    def close(self) -> None:
        """Let go of the files."""
        self.ours.close()
        self.bare.close()


def request(item: Item, session: str | None = None) -> WriteRequest:
    """An item as a request to remember it."""
    session = session or item.session
    message = None
    if item.seq is not None:
        message = MessageRef(thread=session, seq=item.seq, role="user", speaker=item.speaker)
    entry = Entry(
        agent_id=AGENT,
        session_id=session,
        content=item.text,
        type=item.type,
        message=message,
        created_at=item.at,
    )
    return WriteRequest(entry=entry)


@cache
def newest(type_: str, session: str | None = None) -> Query:
    """The newest ten of a type; made once, as the bare script's statement is."""
    scope = Scope(agent_id=AGENT, session_id=session)
    return Query(scope=scope, filter=Filter(types=(type_,)), limit=10)


def within(session: str | None, text: str) -> RecallRequest:
    """Five memories of a session, or of all."""
    reach = "agent" if session is None else "session"
    return RecallRequest(agent_id=AGENT, session_id=session, scope=reach, query=text, limit=5)
