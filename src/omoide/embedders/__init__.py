"""Turn text into vectors.

`protocol` defines `Embedder` and `Embedding`, `registry` chooses an embedder by name. `local` is the encoder
that is shipped with the package, `provider` wraps embedding models of providers. `vectors` validates what an
embedder returns, and has embedders that need NumPy only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omoide._lazy import attach

if TYPE_CHECKING:
    from omoide.embedders.local import LocalEmbedder
    from omoide.embedders.protocol import LOCAL_ENCODER, Embedder, Embedding
    from omoide.embedders.provider import ProviderEmbedder
    from omoide.embedders.registry import choose
    from omoide.embedders.vectors import FunctionEmbedder, HashEmbedder, embed_and_validate

__all__ = [
    "LOCAL_ENCODER",
    "Embedder",
    "Embedding",
    "FunctionEmbedder",
    "HashEmbedder",
    "LocalEmbedder",
    "ProviderEmbedder",
    "choose",
    "embed_and_validate",
]

__getattr__, __dir__ = attach(
    __name__,
    attributes={
        "local": ("LocalEmbedder",),
        "protocol": ("LOCAL_ENCODER", "Embedder", "Embedding"),
        "provider": ("ProviderEmbedder",),
        "registry": ("choose",),
        "vectors": ("FunctionEmbedder", "HashEmbedder", "embed_and_validate"),
    },
)
