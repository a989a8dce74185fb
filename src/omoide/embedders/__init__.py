"""Embedders turn text into vectors; `choose` finds the one to use."""

from __future__ import annotations

from omoide.embedders.protocol import Embedded, Embedder
from omoide.embedders.registry import choose

__all__ = ["Embedded", "Embedder", "choose"]
