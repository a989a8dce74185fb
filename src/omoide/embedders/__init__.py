"""Turn text into vectors.

`protocol` defines `Embedder` and `Embedding`, `registry` chooses an embedder by name. `vectors` validates
what an embedder returns, and has embedders that need NumPy only; `static` and `minilm` are local encoders,
`provider` wraps embedding models of providers. `models` downloads and caches model files, `quantization`
converts them to int8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omoide._lazy import attach

if TYPE_CHECKING:
    from omoide.embedders.minilm import MiniLMEmbedder
    from omoide.embedders.protocol import Embedder, Embedding
    from omoide.embedders.provider import ProviderEmbedder
    from omoide.embedders.registry import choose
    from omoide.embedders.static import StaticEmbedder
    from omoide.embedders.vectors import FunctionEmbedder, HashEmbedder, embed_and_validate

__all__ = [
    "Embedder",
    "Embedding",
    "FunctionEmbedder",
    "HashEmbedder",
    "MiniLMEmbedder",
    "ProviderEmbedder",
    "StaticEmbedder",
    "choose",
    "embed_and_validate",
]

__getattr__, __dir__ = attach(
    __name__,
    submodules=("models",),
    attributes={
        "minilm": ("MiniLMEmbedder",),
        "protocol": ("Embedder", "Embedding"),
        "provider": ("ProviderEmbedder",),
        "registry": ("choose",),
        "static": ("StaticEmbedder",),
        "vectors": ("FunctionEmbedder", "HashEmbedder", "embed_and_validate"),
    },
)
