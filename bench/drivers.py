"""How does each of the others keep a memory and find it again?

This file runs in the peer's own virtual environment: `python drivers.py NAME FOLDER ADDS`, with the texts and
their vectors in the folder, and the address of a database of its own for those that need a server. It prints
one line of JSON. Each driver returns two functions: one keeps a text, one finds five.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module as load
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

Add = Callable[[int, str], object]
Recall = Callable[[str], object]

LAST = 1_000
"""Texts that count, where many more are kept before them."""


class Vectors:
    """The vectors of all texts, made beforehand."""

    def __init__(self, folder: Path) -> None:
        self.texts, self.questions = json.loads((folder / "texts.json").read_text(encoding="utf-8"))
        self.matrix = np.load(folder / "vectors.npy")
        self.dim: int = self.matrix.shape[1]
        self._of = dict(zip([*self.texts, *self.questions], self.matrix, strict=True))

    def array(self, text: str) -> Any:
        """One vector."""
        return self._of[text]

    def list(self, text: str) -> list[float]:
        """One vector, as many want it."""
        return [float(value) for value in self._of[text]]


def omoide(folder: Path, vectors: Vectors, durability: str = "crash", url: str = "") -> tuple[Add, Recall]:
    """Ours."""
    top, embedded = load("omoide"), load("omoide.embedders").Embedded

    class Prepared:
        name, dim = "prepared", vectors.dim

        def embed(self, texts: Sequence[str], *, query: bool = False) -> list[Any]:
            return [embedded(vectors.array(text)) for text in texts]

    url = url or f"sqlite:///{folder}/ours.db"
    store = top.open_store(url, embedder=Prepared(), durability=durability).sync

    def add(n: int, text: str) -> object:
        return store.write(top.WriteRequest(entry=top.Entry(agent_id="bench", content=text)))

    return add, lambda text: store.recall(top.RecallRequest(agent_id="bench", query=text, limit=5)).entries


def omoide_power(folder: Path, vectors: Vectors) -> tuple[Add, Recall]:
    """Ours, safe from power failures."""
    return omoide(folder, vectors, "power")


def omoide_postgres(folder: Path, vectors: Vectors) -> tuple[Add, Recall]:
    """Ours, on a server."""
    return omoide(folder, vectors, url=_server(folder))


def _server(folder: Path) -> str:
    return (folder / "server").read_text(encoding="utf-8")


def langgraph_memory(folder: Path, vectors: Vectors) -> tuple[Add, Recall]:
    """LangGraph's store that keeps nothing."""
    return _langgraph(load("langgraph.store.memory").InMemoryStore(index=_index(vectors)))


def langgraph_sqlite(folder: Path, vectors: Vectors) -> tuple[Add, Recall]:
    """LangGraph's store in a SQLite file; it needs a SQLite that loads extensions."""
    sys.modules["sqlite3"] = load("pysqlite3")
    opened = load("langgraph.store.sqlite").SqliteStore.from_conn_string(
        f"{folder}/peer.db", index=_index(vectors)
    )
    store = opened.__enter__()
    store.kept = opened  # it closes when this goes
    store.setup()
    return _langgraph(store)


def langgraph_postgres(folder: Path, vectors: Vectors) -> tuple[Add, Recall]:
    """LangGraph's store on a server, with pgvector."""
    index = {**_index(vectors), "embed": lambda texts: [vectors.list(text) for text in texts]}
    opened = load("langgraph.store.postgres").PostgresStore.from_conn_string(_server(folder), index=index)
    store = opened.__enter__()
    store.kept = opened  # it closes when this goes
    store.setup()
    return _langgraph(store)


def _index(vectors: Vectors) -> dict[str, Any]:
    def embed(texts: Sequence[str]) -> list[Any]:
        return [vectors.array(text) for text in texts]

    return {"dims": vectors.dim, "embed": embed, "fields": ["text"], "text_fields": ["text"]}


def _langgraph(store: Any) -> tuple[Add, Recall]:
    def add(n: int, text: str) -> object:
        return store.put(("bench",), str(n), {"text": text})

    return add, lambda text: store.search(("bench",), query=text, limit=5)


def txtai(folder: Path, vectors: Vectors) -> tuple[Add, Recall]:
    """Its index and database in memory; a file is written only when asked for."""
    found = load("txtai").Embeddings(
        method="external",
        transform=lambda texts: np.stack([vectors.array(text) for text in texts]),
        content=True,
        hybrid=True,
    )
    return lambda n, text: found.upsert([(n, text, None)]), lambda text: found.search(text, 5)


def mem0_qdrant(folder: Path, vectors: Vectors, kind: str = "qdrant") -> tuple[Add, Recall]:
    """Without a language model, vectors in Qdrant's embedded form."""
    os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=str(folder))
    nobody = {"provider": "openai", "config": {"api_key": "none"}}
    config: dict[str, Any] = {"embedding_model_dims": vectors.dim, "collection_name": "bench"}
    if kind == "pgvector":
        config["connection_string"] = _server(folder)
    else:
        config["path"] = str(folder / kind)
    if kind == "qdrant":
        config["on_disk"] = True
    found = load("mem0").Memory.from_config(
        {
            "embedder": nobody,
            "model": nobody,
            "vector_store": {"provider": kind, "config": config},
            "history_db_path": str(folder / "history.db"),
        }
    )
    found.embedding_model.embed = lambda text, *_, **__: vectors.list(text)
    found.embedding_model.embed_batch = lambda texts, *_, **__: [vectors.list(text) for text in texts]

    def add(n: int, text: str) -> object:
        return found.add(text, user_id="bench", infer=False)

    return add, lambda text: found.search(text, filters={"user_id": "bench"}, top_k=5)["results"]


def mem0_faiss(folder: Path, vectors: Vectors) -> tuple[Add, Recall]:
    """Without a language model, vectors in faiss."""
    return mem0_qdrant(folder, vectors, "faiss")


def mem0_pgvector(folder: Path, vectors: Vectors) -> tuple[Add, Recall]:
    """Without a language model, vectors on a server with pgvector."""
    return mem0_qdrant(folder, vectors, "pgvector")


def chroma(folder: Path, vectors: Vectors) -> tuple[Add, Recall]:
    """A collection on disk."""
    settings = load("chromadb.config").Settings(anonymized_telemetry=False)
    client = load("chromadb").PersistentClient(path=str(folder / "chroma"), settings=settings)
    kept = client.create_collection("bench", embedding_function=None)

    def add(n: int, text: str) -> object:
        return kept.add(ids=[str(n)], documents=[text], embeddings=[vectors.array(text)])

    return add, lambda text: kept.query(query_embeddings=[vectors.array(text)], n_results=5)["ids"][0]


def llama_index(folder: Path, vectors: Vectors) -> tuple[Add, Recall]:
    """Its own vector store and documents in memory; a file is written only when asked for."""
    core, nodes = load("llama_index.core"), load("llama_index.core.schema")
    nobody = load("llama_index.core.embeddings").MockEmbedding(embed_dim=vectors.dim)
    index = core.VectorStoreIndex([], embed_model=nobody)

    def add(n: int, text: str) -> object:
        return index.insert_nodes([nodes.TextNode(id_=str(n), text=text, embedding=vectors.list(text))])

    def recall(text: str) -> object:
        return index.as_retriever(similarity_top_k=5).retrieve(
            nodes.QueryBundle(text, embedding=vectors.list(text))
        )

    return add, recall


def graphiti(folder: Path, vectors: Vectors) -> tuple[Add, Recall]:
    """Texts as nodes in Kuzu, without a language model."""
    os.environ.update(OPENAI_API_KEY="none", GRAPHITI_TELEMETRY_ENABLED="false")
    driver = load("graphiti_core.driver.kuzu_driver").KuzuDriver(db=str(folder / "peer.kuzu"))
    found = load("graphiti_core").Graphiti(graph_driver=driver)
    node = load("graphiti_core.nodes").EntityNode
    search = load("graphiti_core.search.search").search
    either = load("graphiti_core.search.search_filters").SearchFilters()
    config = load("graphiti_core.search.search_config_recipes").NODE_HYBRID_SEARCH_RRF
    config = config.model_copy(update={"limit": 5})
    done = asyncio.new_event_loop().run_until_complete
    done(driver.graph_ops.build_indices_and_constraints(driver))

    def add(n: int, text: str) -> object:
        kept = node(name=str(n), summary=text, group_id="bench", name_embedding=vectors.list(text))
        return done(kept.save(driver))

    def recall(text: str) -> object:
        wanted = vectors.list(text)
        return done(search(found.clients, text, ["bench"], config, either, query_vector=wanted)).nodes

    return add, recall


def bare(folder: Path, vectors: Vectors, *, power_safe: bool = False) -> tuple[Add, Recall]:
    """The bare script that our goals are set by."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    item, common = load("bench.corpus").Item, load("bench.corpus").meaningful
    found = load("bench.floor").Floor(folder / "bare.db", vectors.dim, power_safe=power_safe)

    def add(n: int, text: str) -> object:
        return found.add(item(text, "session", "fact", n, None, None), vectors.array(text))

    return add, lambda text: found.recall_in("session", common(text), vectors.array(text))


def bare_power(folder: Path, vectors: Vectors) -> tuple[Add, Recall]:
    """The bare script, safe from power failures."""
    return bare(folder, vectors, power_safe=True)


DRIVERS = {
    driver.__name__: driver
    for driver in (
        bare,
        bare_power,
        omoide,
        omoide_power,
        omoide_postgres,
        langgraph_memory,
        langgraph_sqlite,
        langgraph_postgres,
        txtai,
        mem0_qdrant,
        mem0_faiss,
        mem0_pgvector,
        graphiti,
        chroma,
        llama_index,
    )
}


def resident() -> float:
    """Megabytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def _timed(work: Callable[..., object], *arguments: object) -> int:
    start = time.perf_counter_ns()
    work(*arguments)
    return time.perf_counter_ns() - start


def main(name: str, folder: Path, adds: int) -> None:
    """Run one driver and print what it took, in nanoseconds and megabytes."""
    vectors = Vectors(folder)
    empty, start = resident(), time.perf_counter_ns()
    add, recall = DRIVERS[name](folder, vectors)
    opened = time.perf_counter_ns() - start

    kept = [_timed(add, n, text) for n, text in enumerate(vectors.texts[:adds])]
    found = [_timed(recall, text) for text in vectors.questions]
    answer: Any = recall(vectors.questions[0])
    print(
        json.dumps(
            {
                "add": median(kept[-LAST:]),
                "recall": median(found),
                "open": opened,
                "resident": resident() - empty,
                "found": len(answer),
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
