"""Static word vectors: the mean of a text's token vectors, from a table.

The table is wordllama's: 32,000 tokens with 256 numbers each, shipped in the wheel of that package. Its two
files are read directly; the package itself is not imported.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from omoide.embedders.protocol import Embedding
from omoide.errors import MissingExtra, ModelUnavailable

if TYPE_CHECKING:
    from numpy.typing import NDArray


try:
    import numpy as np
    from tokenizers import Tokenizer
except ImportError as error:
    raise MissingExtra("the static embedder", "vector") from error

from omoide.embedders.vectors import normalize_vectors, truncate_text

TABLE_FILE = "weights/l2_supercat_256.safetensors"
TOKENIZER_FILE = "tokenizers/l2_supercat_tokenizer_config.json"
MAX_CHARACTERS = 65_536  # bounds the cost of one text


class StaticEmbedder:
    """The mean of a text's token vectors: far faster than an encoder, and blind to word order."""

    name = "wordllama-256"
    dim = 256

    def __init__(self, folder: Path | None = None) -> None:
        folder = folder or _package_dir()
        try:
            self._tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))
            self._table = read_table(folder / TABLE_FILE)
        except Exception as error:
            raise ModelUnavailable(
                "static",
                f"could not be read from {folder} ({error})",
                "pip install --force-reinstall wordllama",
            ) from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._tokenizer.encode_special_tokens = True  # "</s>" in a text is plain text

    def embed(self, texts: Sequence[str], *, query: bool = False) -> list[Embedding]:
        """Return the embeddings of the texts, in order; queries and memories are embedded alike."""
        return [self._embed_text(truncate_text(text, MAX_CHARACTERS)) for text in texts]

    def _embed_text(self, text: str) -> Embedding:
        ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        if not ids:
            return Embedding(np.zeros(self.dim, dtype=np.float32))
        return Embedding(normalize_vectors(self._table[ids].mean(axis=0, dtype=np.float32)))


def read_table(path: Path) -> NDArray[np.float16]:
    """Map the only tensor of a safetensors file into memory.

    The format is an 8-byte header length, a JSON header, and the numbers.
    """
    with path.open("rb") as file:
        header_size = int.from_bytes(file.read(8), "little")
        if header_size > 1 << 16:  # another format, whose first bytes are not a length
            raise ValueError("not a table of vectors")
        (tensor,) = (
            entry for name, entry in json.loads(file.read(header_size)).items() if name != "__metadata__"
        )
    if tensor["dtype"] != "F16":
        raise ValueError(f"the numbers are {tensor['dtype']}, not F16")
    offset = 8 + header_size + tensor["data_offsets"][0]
    return np.asarray(np.memmap(path, dtype="<f2", mode="r", offset=offset, shape=tuple(tensor["shape"])))


def _package_dir() -> Path:
    spec = find_spec("wordllama")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("the static embedder", "vector")
    return Path(spec.submodule_search_locations[0])
