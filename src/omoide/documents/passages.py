"""Cut a document into passages: along headings, pages and paragraphs, each short enough to be found."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from omoide.documents.formats import Block, DocumentText
from omoide.retrieval.sentences import sentence_ends
from omoide.stores.records import CHUNK_WORDS

MAX_WORDS = CHUNK_WORDS
"""Words of a passage: as many as one vector covers."""
MAX_CHARS = 2_000
"""Characters of a passage, for text without spaces."""
SEPARATOR = " > "
"""Stands between the headings of a passage."""

_WORD = re.compile(r"\S+")


class DocumentPassage(NamedTuple):
    """A part of a document: its headings, outermost first, its place, and its page."""

    text: str
    headings: tuple[str, ...]
    start: int
    end: int
    page: int | None = None

    @property
    def content(self) -> str:
        """The text under its headings, which say what it is about."""
        return f"{SEPARATOR.join(self.headings)}\n{self.text}" if self.headings else self.text


def split(document: DocumentText) -> list[DocumentPassage]:
    """Return the passages of a document in order; a document of headings alone has them as passages."""
    passages = [*_passages(document)]
    if passages:
        return passages
    plain = (block._replace(level=0) for block in document.blocks)
    return [*_passages(document._replace(blocks=tuple(plain)))]


def _passages(document: DocumentText) -> Iterator[DocumentPassage]:
    headings: list[tuple[int, str]] = []
    group: list[Block] = []
    words = 0
    for block in document.blocks:
        size = _count_words(document.text, block) if block.level == 0 else 0
        if group and (block.level or block.page != group[0].page or words + size > MAX_WORDS):
            yield from _group_passages(document.text, group, headings)
            group, words = [], 0
        if block.level:
            headings = [one for one in headings if one[0] < block.level]
            headings.append((block.level, block.title))
        else:
            group.append(block)
            words += size
    yield from _group_passages(document.text, group, headings)


def _group_passages(
    text: str, group: list[Block], headings: list[tuple[int, str]]
) -> Iterator[DocumentPassage]:
    """Yield the passages of neighbouring paragraphs: one, unless a paragraph is too long."""
    if not group:
        return
    path = tuple(title for _, title in headings if title)
    for start, end in _pieces(text, group[0].start, group[-1].end):
        yield DocumentPassage(text[start:end], path, start, end, group[0].page)


def _pieces(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the places of pieces that are short enough: cut after sentences, else after words."""
    while start < end:
        stop = _longest(text, start, end)
        if stop < end:
            stop = max(sentence_ends(text, start + (stop - start) // 2, stop), default=stop)
        piece = text[start:stop]
        if piece.strip():
            yield start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
        start = stop


def _longest(text: str, start: int, end: int) -> int:
    """Return where a piece that begins at a place has to end at the latest."""
    stop, most = start, min(end, start + MAX_CHARS)
    for count, word in enumerate(_WORD.finditer(text, start, end)):
        if count == MAX_WORDS or word.end() > most:
            return stop if stop > start else most
        stop = word.end()
    return end


def _count_words(text: str, block: Block) -> int:
    """Return the words of a block; a long run of characters counts as several."""
    words = sum(1 for _ in _WORD.finditer(text, block.start, block.end))
    return max(words, (block.end - block.start) * MAX_WORDS // MAX_CHARS)
