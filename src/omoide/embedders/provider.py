"""How do the embedding models of providers become embedders?

Through pydantic-ai, which knows the providers; a model is named as `provider:model`. Its clients belong to
the event loop in which they were first used, so all calls go to one loop in a thread of its own.

"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from threading import Lock, Thread
from typing import Any, TypeVar

from omoide.embedders.protocol import Embedding
from omoide.embedders.vectors import infer_dim, map_embedder_errors, to_unit_rows
from omoide.errors import Invalid, MissingExtra

try:
    from pydantic_ai.embeddings import EmbeddingModel, EmbeddingSettings, infer_embedding_model
except ImportError as error:
    raise MissingExtra("an embedder of a provider", "models,vector") from error

T = TypeVar("T")

BATCH_SIZE = 96  # texts in one request; no provider takes fewer


class ProviderEmbedder:
    """A provider's embedding model, for example `openai:text-embedding-3-small`."""

    def __init__(self, model: str | EmbeddingModel, dim: int | None = None) -> None:
        if isinstance(model, str):
            try:
                model = infer_embedding_model(model)
            except Exception as error:
                raise Invalid(
                    "embedder",
                    f"{model!r} is none that can be used ({error})",
                    "pass provider:model, with the provider's package installed and its key set",
                ) from error
        self.name = f"{model.system}:{model.model_name}" + (f":{dim}" if dim else "")
        self._model = model
        self._requested_dim = dim
        self._dim = dim

    @property
    def dim(self) -> int:
        """How many numbers a vector has; asks the model where nobody has said it yet."""
        return self._dim or infer_dim(self.embed)

    def embed(self, texts: Sequence[str], *, query: bool = False) -> list[Embedding]:
        """The texts as vectors, in order; providers may embed questions differently."""
        found: list[Embedding] = []
        for start in range(0, len(texts), BATCH_SIZE):
            some = texts[start : start + BATCH_SIZE]
            with map_embedder_errors(self.name, "check the key, the quota and the network"):
                given = _loop_thread.run(self._request_embeddings(list(some), query))
            vectors = to_unit_rows(self.name, given, len(some), self._dim)
            self._dim = vectors.shape[1]
            found.extend(map(Embedding, vectors))
        return found

    async def _request_embeddings(self, texts: list[str], query: bool) -> Any:
        settings = EmbeddingSettings(dimensions=self._requested_dim) if self._requested_dim else None
        answer = await self._model.embed(
            texts, input_type="query" if query else "document", settings=settings
        )
        return answer.embeddings


class _LoopThread:
    """An event loop in a thread of its own, started when it is first needed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._thread: Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._loop = asyncio.new_event_loop()
                self._thread = Thread(target=self._loop.run_forever, name="omoide-provider", daemon=True)
                self._thread.start()
            loop = self._loop
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()


_loop_thread = _LoopThread()
