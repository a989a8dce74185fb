"""Embedding models of providers, through pydantic-ai.

A model is named `provider:model`. A client of pydantic-ai belongs to the event loop in which it was first
used, so all calls go to one event loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from threading import Lock, Thread
from typing import Any, TypeVar

from omoide import forks
from omoide.embedders.protocol import Embedding
from omoide.embedders.vectors import infer_dim, map_embedder_errors, to_unit_rows
from omoide.errors import Invalid, MissingExtra
from omoide.forks import ForkListener

try:
    from pydantic_ai.embeddings import EmbeddingModel, EmbeddingSettings, infer_embedding_model
except ImportError as error:
    raise MissingExtra("an embedder of a provider", "models,vector") from error

T = TypeVar("T")

BATCH_SIZE = 96  # texts in one request, a number that every provider accepts


class ProviderEmbedder:
    """A provider's embedding model, for example `openai:text-embedding-3-small`.

    Args:
        model: The name as `provider:model`, or a model of pydantic-ai.
        dim: The dimension to request, for models that can shorten their vectors.

    Raises:
        Invalid: pydantic-ai does not know the model, or its package or key is missing.
    """

    def __init__(self, model: str | EmbeddingModel, dim: int | None = None) -> None:
        if isinstance(model, str):
            try:
                model = infer_embedding_model(model)
            except Exception as error:
                raise Invalid(
                    "embedder",
                    f"{model!r} cannot be used ({error})",
                    "pass provider:model, with the provider's package installed and its key set",
                ) from error
        self.name = f"{model.system}:{model.model_name}" + (f":{dim}" if dim else "")
        self._model = model
        self._requested_dim = dim
        self._dim = dim

    @property
    def dim(self) -> int:
        """The dimension of a vector; embeds one text to learn it if no vector was made yet."""
        return self._dim or infer_dim(self.embed)

    def embed(self, texts: Sequence[str], *, query: bool = False) -> list[Embedding]:
        """Return the embeddings of the texts, in order; providers may embed queries differently."""
        embeddings: list[Embedding] = []
        for start in range(0, len(texts), BATCH_SIZE):
            batch = texts[start : start + BATCH_SIZE]
            with map_embedder_errors(self.name, "check the key, the quota and the network"):
                output = _loop_thread.run(self._request_embeddings(list(batch), query))
            vectors = to_unit_rows(self.name, output, len(batch), self._dim)
            self._dim = vectors.shape[1]
            embeddings.extend(map(Embedding, vectors))
        return embeddings

    async def _request_embeddings(self, texts: list[str], query: bool) -> Any:
        settings = EmbeddingSettings(dimensions=self._requested_dim) if self._requested_dim else None
        result = await self._model.embed(
            texts, input_type="query" if query else "document", settings=settings
        )
        return result.embeddings


class _LoopThread(ForkListener):
    """An event loop in a daemon thread, started on first use."""

    def __init__(self) -> None:
        self.after_fork_in_child()
        forks.register(self)

    def after_fork_in_child(self) -> None:
        """Start another thread on the next use: that of the parent does not exist here."""
        self._lock = Lock()
        self._thread: Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        with self._lock:  # `embed` may be called from any thread; a fork leaves the thread behind
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._loop = asyncio.new_event_loop()
                self._thread = Thread(target=self._loop.run_forever, name="omoide-provider", daemon=True)
                self._thread.start()
            loop = self._loop
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result()


_loop_thread = _LoopThread()
