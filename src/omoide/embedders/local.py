"""The sentence encoder that is shipped with the package, as an int8 ONNX model.

One text is encoded at a time, on one thread; many texts are spread over several threads. The int8 model
takes the scale of its activations from the whole batch, so in a batch the vectors of a text would depend on
the other texts in it, and a larger batch is hardly faster.

The files are verified when they are loaded: a damaged model would give vectors that look sound, and recall
would go wrong in silence. `manifest.json` has the size and SHA-256 digest of each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import file_digest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from omoide.embedders.protocol import LOCAL_ENCODER, Embedding
from omoide.errors import MissingExtra, ModelUnavailable

if TYPE_CHECKING:
    from tokenizers import Encoding


# Unless told otherwise before it is imported, ONNX Runtime reports to its maker, and stores a device id.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

try:
    import numpy as np
    import onnxruntime
    from tokenizers import Tokenizer
except ImportError as error:
    raise MissingExtra("the local encoder", "vector") from error

from omoide.embedders.vectors import truncate_text

FOLDER = Path(__file__).with_name("model")
MANIFEST_FILE = "manifest.json"
ENCODER_FILE = "encoder.onnx"
TOKENIZER_FILE = "tokenizer.json"

MAX_TOKENS = 256  # the maximum sequence length of the encoder
MAX_CHARACTERS = 8_192  # more than 256 tokens have; the tokenizer need not read the rest
THREADS = min(8, os.cpu_count() or 1)
MIN_THREADED_TEXTS = 4  # below that, starting threads takes longer than they save

_REMEDY = "pip install --force-reinstall 'omoide[vector]'"


class FileRecord(msgspec.Struct, frozen=True):
    """The size of a file in bytes, and its SHA-256 digest."""

    size: int
    sha256: str


class LocalEmbedder:
    """The shipped encoder: pooled vectors of 384 numbers, token vectors of 64 bytes.

    Args:
        folder: The folder of another model of the same form, for example one that was just trained.

    Raises:
        ModelUnavailable: The files are missing or damaged.
    """

    name = LOCAL_ENCODER
    dim = 384

    def __init__(self, folder: Path = FOLDER) -> None:
        _verify_files(folder)
        try:
            self._tokenizer = _load_tokenizer(folder / TOKENIZER_FILE)
            self._session = _load_session(folder / ENCODER_FILE)
        except Exception as error:
            raise ModelUnavailable(
                self.name, f"could not be loaded from {folder} ({error})", _REMEDY
            ) from error

    def embed(self, texts: Sequence[str], *, query: bool = False) -> list[Embedding]:
        """Return the embeddings of the texts, in order; queries and memories are embedded alike."""
        if len(texts) < MIN_THREADED_TEXTS or THREADS == 1:
            return [self._embed_text(text) for text in texts]
        with ThreadPoolExecutor(THREADS, "omoide-encoder") as pool:
            return list(pool.map(self._embed_text, texts))

    def _embed_text(self, text: str) -> Embedding:
        text = truncate_text(text, MAX_CHARACTERS)
        encoding = self._tokenizer.encode(text)
        ids = np.array([encoding.ids], dtype=np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        pooled, tokens = self._session.run(["pooled", "tokens"], inputs)
        # Without the start and end tokens, which are not words.
        return Embedding(pooled[0], tokens[0, 1:-1], tuple(_token_words(text, encoding)))


def _verify_files(folder: Path) -> None:
    """Raise `ModelUnavailable` unless the files are those of the manifest."""
    try:
        manifest = msgspec.json.decode((folder / MANIFEST_FILE).read_bytes(), type=dict[str, FileRecord])
        for name in (ENCODER_FILE, TOKENIZER_FILE):
            expected = manifest[name]
            with (folder / name).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                digest = file_digest(file, "sha256").hexdigest()
            if (size, digest) != (expected.size, expected.sha256):
                problem = f"is damaged: {name} in {folder} has {size:,} bytes and SHA-256 {digest[:12]}…"
                raise ModelUnavailable(LOCAL_ENCODER, problem, _REMEDY)
    except OSError as error:
        raise ModelUnavailable(
            LOCAL_ENCODER, f"is incomplete: {error.filename} cannot be read ({error.strerror})", _REMEDY
        ) from error
    except (ValueError, KeyError) as error:
        raise ModelUnavailable(
            LOCAL_ENCODER, f"is damaged: {MANIFEST_FILE} in {folder} is not valid ({error})", _REMEDY
        ) from error


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
