"""Tests of the embedding models of providers."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from pydantic_ai.embeddings import EmbeddingResult, TestEmbeddingModel

from omoide.embedders import Embedder, ProviderEmbedder, choose
from omoide.embedders.provider import BATCH_SIZE
from omoide.errors import EmbedderFailed, Invalid


class Recording(TestEmbeddingModel):
    """Remembers what it was asked for, and in which event loop."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__("small", provider_name="acme", **kwargs)
        self.asked: list[tuple[int, str]] = []
        self.loops: set[int] = set()

    async def embed(self, inputs: str | Sequence[str], **rest: Any) -> EmbeddingResult:
        self.asked.append((len(inputs), rest["input_type"]))
        self.loops.add(id(asyncio.get_running_loop()))
        return await super().embed(inputs, **rest)


class Refusing(TestEmbeddingModel):
    """A provider that refuses the key."""

    async def embed(self, *args: Any, **kwargs: Any) -> EmbeddingResult:
        raise ConnectionError(f"401 for {args}")


def test_a_provider_is_an_embedder() -> None:
    """Its name is the provider's and the model's, its size that of the vectors, whose length is 1."""
    acme = ProviderEmbedder(Recording(dimensions=4))
    assert isinstance(acme, Embedder)
    assert (acme.name, acme.dim) == ("acme:small", 4)
    (found,) = acme.embed(["hello"])
    assert found.pooled.tolist() == [0.5, 0.5, 0.5, 0.5]
    assert found.pooled.dtype == np.float32


def test_questions_are_told_from_memories() -> None:
    """The provider learns whether a text is a query or a document."""
    model = Recording()
    acme = ProviderEmbedder(model)
    acme.embed(["hello"])
    acme.embed(["hello?"], query=True)
    assert model.asked == [(1, "document"), (1, "query")]


def test_many_texts_go_in_several_requests() -> None:
    """No request has more texts than every provider takes, and none is lost."""
    model = Recording()
    assert len(ProviderEmbedder(model).embed(["hello"] * (2 * BATCH_SIZE + 1))) == 2 * BATCH_SIZE + 1
    assert [count for count, _ in model.asked] == [BATCH_SIZE, BATCH_SIZE, 1]
    assert ProviderEmbedder(model).embed([]) == []


def test_a_size_can_be_asked_for_and_is_part_of_the_name() -> None:
    """Vectors of another size are other vectors."""
    model = Recording()
    acme = ProviderEmbedder(model, dim=3)
    assert acme.name == "acme:small:3"
    assert acme.embed(["hello"])[0].pooled.shape == (3,)


async def test_it_can_be_called_wherever_an_event_loop_runs() -> None:
    """From inside a loop, and from any other, all requests are made in one and the same loop."""
    model = Recording()
    acme = ProviderEmbedder(model)
    acme.embed(["hello"])
    await asyncio.to_thread(acme.embed, ["hello"])
    assert len(model.loops) == 1
    assert id(asyncio.get_running_loop()) not in model.loops


def test_what_a_provider_raises_is_reported_as_ours() -> None:
    """The error says what kind of thing happened, to whom, and leads to the cause, which may quote texts."""
    with pytest.raises(EmbedderFailed, match=r"'test:test' raised ConnectionError; check the key") as caught:
        ProviderEmbedder(Refusing()).embed(["hello"])
    assert "hello" not in str(caught.value)
    assert isinstance(caught.value.__cause__, ConnectionError)


@pytest.mark.parametrize("name", ["acme:small", ":", "openai:"], ids=repr)
def test_a_model_that_cannot_be_used_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A provider that is unknown, or not installed, or has no key is named when it is chosen."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(Invalid, match="embedder") as caught:
        choose(name)
    assert repr(name) in str(caught.value)
