"""How do the embedding models of providers become embedders?

Through pydantic-ai, which knows the providers; a model is named as `provider:model`. Its clients belong to
the event loop in which they were first used, so all calls go to one loop in a thread of its own.

"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from threading import Lock, Thread
from typing import Any, TypeVar

from omoide.embedders.protocol import Embedded
from omoide.embedders.vectors import learned, reporting, rows
from omoide.errors import Invalid, MissingExtra

try:
    from pydantic_ai.embeddings import EmbeddingModel, EmbeddingSettings, infer_embedding_model
except ImportError as error:
    raise MissingExtra("an embedder of a provider", "models,vector") from error

T = TypeVar("T")

AT_ONCE = 96  # texts in one request; no provider takes fewer


class Provider:
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
        self._asked = dim
        self._dim = dim

    @property
    def dim(self) -> int:
        """How many numbers a vector has; asks the model where nobody has said it yet."""
        return self._dim or learned(self.embed)

    def embed(self, texts: Sequence[str], *, query: bool = False) -> list[Embedded]:
        """The texts as vectors, in order; providers may embed questions differently."""
        found: list[Embedded] = []
        for start in range(0, len(texts), AT_ONCE):
            some = texts[start : start + AT_ONCE]
            with reporting(self.name, "check the key, the quota and the network"):
                given = _loop.run(self._ask(list(some), query))
            vectors = rows(self.name, given, len(some), self._dim)
            self._dim = vectors.shape[1]
            found.extend(map(Embedded, vectors))
        return found

    async def _ask(self, texts: list[str], query: bool) -> Any:
        settings = EmbeddingSettings(dimensions=self._asked) if self._asked else None
        answer = await self._model.embed(
            texts, input_type="query" if query else "document", settings=settings
        )
        return answer.embeddings


class _Loop:
    """An event loop in a thread of its own, started when it is first needed."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._thread: Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self._loop is None or self._thread is None or not self._thread.is_alive():
                self._loop = asyncio.new_event_loop()
                self._thread = Thread(target=self._loop.run_forever, name="omoide-provider", daemon=True)
                self._thread.start()
            loop = self._loop
        return asyncio.run_coroutine_threadsafe(work, loop).result()


_loop = _Loop()
