"""Embedders turn text into vectors; `choose` finds the one to use."""

from omoide.embedders.choose import choose
from omoide.embedders.protocol import Embedded, Embedder

__all__ = ["Embedded", "Embedder", "choose"]
