"""Extractive summary of a conversation.

Sentences are taken as they were said: late ones, those of the user, and those that decide, ask or report
something. Code, quotations and tables are skipped. No model is called, and the same messages always have the
same summary.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from omoide.core.value import check_count, check_tuple
from omoide.retrieval.sentences import sentence_ends
from omoide.retrieval.text import TokenCounter, estimate_tokens
from omoide.shortterm.memory import BufferMessage

_FENCE = re.compile(r"^[ \t]{0,3}(```|~~~)")
_INDENTED = re.compile(r"(?: {4}|\t)\s*\S")
_LIST_MARKER = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+(?:\[[ xX]\]\s+)?| {0,3}#{1,6}\s+")
_EMPHASIS = re.compile(r"\*\*|__")
_SPACES = re.compile(r"\s+")


def sentences(text: str) -> list[str]:
    """Return the sentences of a text in order, each on one line and without list markers."""
    return [sentence for paragraph in _paragraphs(text) for sentence in _split_sentences(paragraph)]


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of prose, each as one line; code blocks, quotations and tables are skipped."""
    paragraph: list[str] = []
    fence = ""
    for line in text.splitlines():
        fence_match = _FENCE.match(line)
        if fence or fence_match:
            # Only the marker that opened a block closes it; the other one is part of the code.
            if fence_match and (not fence or fence_match[1] == fence):
                fence = "" if fence else fence_match[1]
            yield from _flush_paragraph(paragraph)
            continue
        marker = _LIST_MARKER.match(line)
        if marker or not _is_prose(line):
            yield from _flush_paragraph(paragraph)
        if marker:
            paragraph.append(line[marker.end() :])
            # A heading is a paragraph of its own, even without a blank line after it.
            if line.lstrip().startswith("#"):
                yield from _flush_paragraph(paragraph)
        # Inside of a paragraph Markdown reads an indented line as its continuation, elsewhere as code.
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
    for end in sentence_ends(line):
        yield line[start:end].rstrip()
        start = end
    rest = line[start:].strip()
    if rest:
        yield rest


QuoteFunction = Callable[[str], str]

SUMMARY_HEADING = "[Summary of the conversation so far]"
"""First line of a summary; it counts toward the token limit."""

# The weights of the conversation summarizer in JidoCode.
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
"""Patterns of sentences that decide, demand, report, name or ask something."""
_MAX_KEY_PATTERNS = 3
"""Number of matching patterns from which on the content score is 1."""
# Selection counts one line per sentence, while sentences of one message share a line: each further round
# spends the tokens that this saved.
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
    """Return a summary of messages in their order, within a token limit; empty if nothing fits.

    Args:
        messages: messages, oldest first.
        max_tokens: token limit, heading included.
        count: token counter.
        quote: renders the text taken from one message, for example to escape it.
    """
    checked = check_tuple([*messages], "messages", BufferMessage)
    budget = check_count(max_tokens, "max_tokens")
    ranked = sorted(
        _score_sentences(checked),
        # Of equal weights the later message wins, and within a message the earlier sentence.
        key=lambda sentence: (-sentence.weight, -sentence.message, sentence.sentence),
    )
    chosen: list[_ScoredSentence] = []
    for _ in range(_ROUNDS):
        added = _select_sentences(ranked, budget - count(_render(chosen, quote)), count, quote)
        if not added:
            break
        used = {*added}
        chosen += added
        ranked = [sentence for sentence in ranked if sentence not in used]
    # The tokens of a text may be more than those of its parts.
    while chosen and count(_render(chosen, quote)) > budget:
        chosen.pop()
    return _render(chosen, quote) if chosen else ""


def _score_sentences(messages: Sequence[BufferMessage]) -> list[_ScoredSentence]:
    scored = []
    for at, message in enumerate(messages):
        base = ROLE_WEIGHT * _ROLE_SCORES[message.role] + RECENCY_WEIGHT * (at + 1) / len(messages)
        for number, text in enumerate(sentences(message.content)):
            weight = base + CONTENT_WEIGHT * _content_score(text)
            scored.append(_ScoredSentence(at, number, message.role, text, weight))
    return scored


def _content_score(text: str) -> float:
    return min(sum(1 for pattern in _KEY_PATTERNS if pattern.search(text)) / _MAX_KEY_PATTERNS, 1.0)


def _select_sentences(
    ranked: Sequence[_ScoredSentence], budget: int, count: TokenCounter, quote: QuoteFunction
) -> list[_ScoredSentence]:
    """Return the best sentences that fit into the budget; longer ones are skipped for others."""
    selected = []
    for sentence in ranked:
        size = count(f"\n- {sentence.role}: {quote(sentence.text)}")
        if size <= budget:
            budget -= size
            selected.append(sentence)
        if budget <= 0:
            break
    return selected


def _render(chosen: Iterable[_ScoredSentence], quote: QuoteFunction) -> str:
    """Render sentences under the heading in the order they were said, one line per message."""
    lines = [SUMMARY_HEADING]
    for _, group in groupby(sorted(chosen), key=lambda sentence: sentence.message):
        line = [*group]
        lines.append(f"- {line[0].role}: {quote(' '.join(sentence.text for sentence in line))}")
    return "\n".join(lines)
