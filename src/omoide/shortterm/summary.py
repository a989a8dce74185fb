"""Extractive summary.

Code, quotations and tables are left out: nobody says them.

A summary takes sentences as they were said: the later ones, the user's, and those that decide, ask or report
something. It needs no model, and the same messages always have the same summary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from omoide.core.value import check_count, check_tuple
from omoide.retrieval.text import TokenCounter, estimate_tokens
from omoide.shortterm.memory import BufferMessage

# sentences: Which sentences does a message say?


_FENCE = re.compile(r"^[ \t]{0,3}(```|~~~)")
_INDENTED = re.compile(r"(?: {4}|\t)\s*\S")
_LIST_MARKER = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?| {0,3}#{1,6}\s+")
_EMPHASIS = re.compile(r"\*\*|__")
_SENTENCE_END = re.compile(r"[.!?…][\"'”’)\]]{0,3}\s+")
_SPACES = re.compile(r"\s+")
_ABBREVIATION = re.compile(r"(?:^|[\s(])(?:e\.g|i\.e|etc|vs|cf|approx|resp|Mr|Mrs|Ms|Dr|St|No|[A-Z])\.$")


def sentences(text: str) -> list[str]:
    """The sentences of a text in their order, each on one line and without list marks."""
    return [sentence for line in _paragraphs(text) for sentence in _split_sentences(line)]


def _paragraphs(text: str) -> Iterator[str]:
    """The lines that are words; what a paragraph's lines say together is one line."""
    paragraph: list[str] = []
    fence = ""
    for line in text.splitlines():
        opened = _FENCE.match(line)
        if fence or opened:
            if opened and (not fence or opened[1] == fence):
                fence = "" if fence else opened[1]
            yield from _flush_paragraph(paragraph)
            continue
        marked = _LIST_MARKER.match(line)
        if marked or not _is_prose(line):
            yield from _flush_paragraph(paragraph)
        if marked:
            paragraph.append(line[marked.end() :])
            if line.lstrip().startswith("#"):
                yield from _flush_paragraph(paragraph)
        elif _is_prose(line) and (paragraph or not _INDENTED.match(line)):
            paragraph.append(line)
    yield from _flush_paragraph(paragraph)


def _is_prose(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith((">", "|"))


def _flush_paragraph(paragraph: list[str]) -> Iterator[str]:
    if paragraph:
        yield _SPACES.sub(" ", _EMPHASIS.sub("", " ".join(paragraph))).strip()
        paragraph.clear()


def _split_sentences(line: str) -> Iterator[str]:
    start = 0
    for end in _SENTENCE_END.finditer(line):
        if _ABBREVIATION.search(line[max(start, end.start() - 8) : end.start() + 1]):
            continue
        yield line[start : end.end()].rstrip()
        start = end.end()
    rest = line[start:].strip()
    if rest:
        yield rest


# summarising: What was said, in few words?


QuoteFunction = Callable[[str], str]

SUMMARY_HEADING = "[Summary of the conversation so far]"
"""How a summary begins; it counts like any other word."""

ROLE_WEIGHT, RECENCY_WEIGHT, CONTENT_WEIGHT = 0.3, 0.4, 0.3
_ROLE_SCORES = {"user": 1.0, "assistant": 0.7, "system": 0.5, "tool": 0.3}
_KEY_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?:decided?|decision|chose|choose|agreed?|settled|going with|prefers?|because)\b",
        r"\b(?:must|always|never|should|need(?:s|ed)? to|required?|important|remember)\b",
        r"\b(?:errors?|fail(?:s|ed|ure)?|bugs?|broken|crash(?:es|ed)?|fixed|found|turns out)\b",
        r"\d|\w[/_.]\w|`",
        r"\?",
    )
)
"""Words and signs of sentences that decide, demand, report, name or ask something."""
_MAX_KEY_PATTERNS = 3
"""How many kinds of telling words make a sentence as telling as can be."""
_ROUNDS = 4


class _ScoredSentence(NamedTuple):
    message: int
    sentence: int
    role: str
    text: str
    weight: float


def summarize_messages(
    messages: Iterable[BufferMessage],
    max_tokens: int,
    *,
    count: TokenCounter = estimate_tokens,
    quote: QuoteFunction = str,
) -> str:
    """The gist of messages in their order, in no more tokens than given; empty when nothing fits.

    Each line holds what was taken from one message, as `quote` shows it.
    """
    given = check_tuple([*messages], "messages", BufferMessage)
    room = check_count(max_tokens, "max_tokens")
    found = sorted(_score_sentences(given), key=lambda one: (-one.weight, -one.message, one.sentence))
    chosen: list[_ScoredSentence] = []
    for _ in range(_ROUNDS):
        more = _select_fitting(found, room - count(_render(chosen, quote)), count, quote)
        if not more:
            break
        taken = {*more}
        chosen += more
        found = [one for one in found if one not in taken]
    while chosen and count(_render(chosen, quote)) > room:
        chosen.pop()
    return _render(chosen, quote) if chosen else ""


def _score_sentences(messages: Sequence[BufferMessage]) -> list[_ScoredSentence]:
    found = []
    for at, message in enumerate(messages):
        by_place = ROLE_WEIGHT * _ROLE_SCORES[message.role] + RECENCY_WEIGHT * (at + 1) / len(messages)
        for number, text in enumerate(sentences(message.content)):
            weight = by_place + CONTENT_WEIGHT * _content_score(text)
            found.append(_ScoredSentence(at, number, message.role, text, weight))
    return found


def _content_score(text: str) -> float:
    return min(sum(1 for sign in _KEY_PATTERNS if sign.search(text)) / _MAX_KEY_PATTERNS, 1.0)


def _select_fitting(
    found: Sequence[_ScoredSentence], budget: int, count: TokenCounter, quote: QuoteFunction
) -> list[_ScoredSentence]:
    """The weightiest sentences that fit; one that does not is passed over for others."""
    kept = []
    for one in found:
        size = count(f"\n- {one.role}: {quote(one.text)}")
        if size <= budget:
            budget -= size
            kept.append(one)
        if budget <= 0:
            break
    return kept


def _render(chosen: Iterable[_ScoredSentence], quote: QuoteFunction) -> str:
    """The sentences under the marker in the order they were said, those of one message on one line."""
    lines = [SUMMARY_HEADING]
    for _, said in groupby(sorted(chosen), key=lambda one: one.message):
        together = [*said]
        lines.append(f"- {together[0].role}: {quote(' '.join(one.text for one in together))}")
    return "\n".join(lines)
