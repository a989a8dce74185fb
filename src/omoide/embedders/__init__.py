"""Embedders turn text into vectors; `choose` finds the one to use."""

from __future__ import annotations

from omoide.embedders.protocol import Embedder, Embedding
from omoide.embedders.registry import choose

__all__ = ["Embedding", "Embedder", "choose"]
