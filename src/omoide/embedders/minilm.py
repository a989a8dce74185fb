"""The sentence encoder all-MiniLM-L6-v2.

One text is encoded at a time, on one thread; many texts are spread over several threads. The int8 model
takes the scale of its activations from the whole batch, so in a batch the vectors of a text would depend on
the other texts in it, and a larger batch is hardly faster.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omoide.embedders import models
from omoide.embedders.protocol import Embedding
from omoide.errors import MissingExtra, ModelUnavailable

if TYPE_CHECKING:
    from tokenizers import Encoding


try:
    import numpy as np
    import onnxruntime
    from tokenizers import Tokenizer
except ImportError as error:
    raise MissingExtra("the MiniLM embedder", "vector") from error

from omoide.embedders.vectors import truncate_text

MAX_TOKENS = 256  # the maximum sequence length of the published model
MAX_CHARACTERS = 8_192  # more than 256 tokens have; the tokenizer need not read the rest
THREADS = min(8, os.cpu_count() or 1)
MIN_THREADED_TEXTS = 4  # below that, starting threads takes longer than they save


class MiniLMEmbedder:
    """all-MiniLM-L6-v2 as an int8 ONNX model: pooled vectors of 384 numbers, token vectors of 64 bytes.

    Raises:
        ModelUnavailable: The model has not been pulled, or its files are damaged.
    """

    name = models.MINILM
    dim = 384

    def __init__(self, folder: Path | None = None) -> None:
        folder = folder or models.model_dir(models.MINILM)
        if not models.is_ready(folder):
            raise ModelUnavailable("minilm", f"is not in {folder}", "run: omoide models pull")
        try:
            self._tokenizer = _load_tokenizer(folder / "tokenizer.json")
            self._session = _load_session(folder / "model.onnx")
        except Exception as error:
            raise ModelUnavailable(
                "minilm",
                f"could not be loaded from {folder} ({error})",
                "remove the folder and pull it again",
            ) from error

    def embed(self, texts: Sequence[str], *, query: bool = False) -> list[Embedding]:
        """Return the embeddings of the texts, in order; queries and memories are embedded alike."""
        if len(texts) < MIN_THREADED_TEXTS or THREADS == 1:
            return [self._embed_text(text) for text in texts]
        with ThreadPoolExecutor(THREADS, "omoide-minilm") as pool:
            return list(pool.map(self._embed_text, texts))

    def _embed_text(self, text: str) -> Embedding:
        text = truncate_text(text, MAX_CHARACTERS)
        encoding = self._tokenizer.encode(text)
        ids = np.array([encoding.ids], dtype=np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        pooled, tokens = self._session.run(["pooled", "tokens"], inputs)
        # Without the start and end tokens, which are not words.
        return Embedding(pooled[0], tokens[0, 1:-1], tuple(_token_words(text, encoding)))


def _load_tokenizer(path: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.encode_special_tokens = True  # "[SEP]" in a text is text
    return tokenizer


def _load_session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # `embed` spreads texts over threads itself
    options.log_severity_level = 3  # errors only
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _token_words(text: str, encoding: Encoding) -> Iterator[str]:
    """Yield the lower-cased word of each token, without the start and end tokens."""
    spans: dict[int | None, tuple[int, int]] = {}
    inside = list(zip(encoding.word_ids, encoding.offsets, strict=True))[1:-1]
    for word, (start, end) in inside:
        spans[word] = (spans.get(word, (start, end))[0], end)
    for word, _ in inside:
        start, end = spans[word]
        yield text[start:end].lower()
