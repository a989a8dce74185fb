"""Which sentences does a message say?

Code, quotations and tables are left out: nobody says them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_FENCE = re.compile(r"^[ \t]{0,3}(```|~~~)")
_INDENT = re.compile(r"(?: {4}|\t)\s*\S")
_MARK = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?| {0,3}#{1,6}\s+")
_LABELLED = re.compile(r"\*\*|__")
_END = re.compile(r"[.!?…][\"'”’)\]]{0,3}\s+")
_SPACES = re.compile(r"\s+")
_NO_END = re.compile(r"(?:^|[\s(])(?:e\.g|i\.e|etc|vs|cf|approx|resp|Mr|Mrs|Ms|Dr|St|No|[A-Z])\.$")


def sentences(text: str) -> list[str]:
    """The sentences of a text in their order, each on one line and without list marks."""
    return [sentence for line in _said(text) for sentence in _parted(line)]


def _said(text: str) -> Iterator[str]:
    """The lines that are words; what a paragraph's lines say together is one line."""
    paragraph: list[str] = []
    fence = ""
    for line in text.splitlines():
        opened = _FENCE.match(line)
        if fence or opened:
            if opened and (not fence or opened[1] == fence):
                fence = "" if fence else opened[1]
            yield from _joined(paragraph)
            continue
        marked = _MARK.match(line)
        if marked or not _is_said(line):
            yield from _joined(paragraph)
        if marked:
            paragraph.append(line[marked.end() :])
            if line.lstrip().startswith("#"):
                yield from _joined(paragraph)
        elif _is_said(line) and (paragraph or not _INDENT.match(line)):
            paragraph.append(line)
    yield from _joined(paragraph)


def _is_said(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith((">", "|"))


def _joined(paragraph: list[str]) -> Iterator[str]:
    if paragraph:
        yield _SPACES.sub(" ", _LABELLED.sub("", " ".join(paragraph))).strip()
        paragraph.clear()


def _parted(line: str) -> Iterator[str]:
    start = 0
    for end in _END.finditer(line):
        if _NO_END.search(line[max(start, end.start() - 8) : end.start() + 1]):
            continue
        yield line[start : end.end()].rstrip()
        start = end.end()
    rest = line[start:].strip()
    if rest:
        yield rest
