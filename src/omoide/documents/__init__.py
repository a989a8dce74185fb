"""Documents as memories: files are read, cut into passages along headings and paragraphs, and stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omoide._lazy import attach

if TYPE_CHECKING:
    from omoide.documents.formats import Block, DocumentText, read_document
    from omoide.documents.passages import DocumentPassage, split
    from omoide.documents.writer import DocumentResult, add_document, store_document


__all__ = [
    "Block",
    "DocumentResult",
    "DocumentText",
    "DocumentPassage",
    "add_document",
    "read_document",
    "split",
    "store_document",
]

__getattr__, __dir__ = attach(
    __name__,
    attributes={
        "formats": ("Block", "DocumentText", "read_document"),
        "passages": ("DocumentPassage", "split"),
        "writer": ("DocumentResult", "add_document", "store_document"),
    },
)
