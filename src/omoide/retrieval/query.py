"""What does a question ask for?

Its terms, the people it names, the times it speaks of, and the words in which a memory would say it: a memory
of Ann's is told by Ann, in the first person, so her name in the question leads a vector astray.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from omoide.retrieval import words
from omoide.retrieval.dates import Interval, intervals

_KINDS = (
    ("when", re.compile(r"\b(?:when|what (?:date|day|month|year|time)|which (?:date|day|month|year)|how long)\b", re.I)),
    ("count", re.compile(r"\bhow (?:many|much|often|old)\b|\bnumber of\b", re.I)),
    ("where", re.compile(r"\bwhere\b|\b(?:what|which) (?:city|country|place|state|town)\b", re.I)),
    ("who", re.compile(r"\bwho(?:m|se)?\b", re.I)),
    ("why", re.compile(r"\bwhy\b|\bwhat (?:made|motivated|inspired)\b|\breason\b", re.I)),
    ("judge", re.compile(r"^\s*(?:would|might|could|is|are|does|do|did|was|were|has|have|can)\b|\blikely\b", re.I)),
)
_FIRST = re.compile(r"\b(?:i|me|my|mine|myself)\b", re.I)
_ADDRESSED = re.compile(r"\b(?:you|your|yours|assistant|chatbot)\b|\bour (?:\w+ )?(?:chat|conversation|discussion)", re.I)
_TOLD = re.compile(
    r"\b(?:remind|told|said|mentioned|recommend|suggest|advi[cs]e|gave|give|provided|listed|explained|"
    r"previous|earlier|last time|discussed|talked)",
    re.I,
)


class Query(NamedTuple):
    """A question, read."""

    text: str
    spoken: str
    """The question as the person named in it would put it: this goes to the encoder."""
    terms: tuple[str, ...]
    """The distinct terms, names of the people in the scope left out."""
    named: frozenset[int]
    """Which of the scope's speakers it names, by their place in the list."""
    times: tuple[Interval, ...]
    kind: str
    """when, count, where, who, why, judge or what."""
    addressed: bool
    """Whether it asks for what the assistant said."""


def read(text: str, *, now: int, speakers: Iterable[str] = ()) -> Query:
    """The question, understood at the moment `now` among these speakers."""
    found = [(at, span) for at, name in enumerate(speakers) if name for span in _spans(name, text)]
    spoken = _spoken(text, [span for _, span in found])
    rest = _without(text, [span for _, span in found])
    return Query(
        text=text,
        spoken=spoken,
        terms=tuple(dict.fromkeys(words.terms(rest))),
        named=frozenset(at for at, _ in found),
        times=intervals(text, now),
        kind=next((kind for kind, pattern in _KINDS if pattern.search(text)), "what"),
        addressed=bool(_ADDRESSED.search(text) and _TOLD.search(text)),
    )


def _spans(name: str, text: str) -> list[tuple[int, int]]:
    """Where the text names this person: the whole name, its first word, or a short form of that."""
    lowered = text.casefold()
    if len(lowered) != len(text):
        lowered = text.lower()
    whole = name.strip().casefold()
    first = whole.split()[0] if whole.split() else ""
    found = []
    for match in re.finditer(r"[^\W\d_]+", lowered):
        word = match.group()
        start, end = match.span()
        if start < len(text) and not text[start].isupper() and text[start].lower() != text[start].upper():
            continue
        if lowered.startswith(whole, start) and whole:
            found.append((start, start + len(whole)))
        elif word == first and len(first) > 1:
            found.append((start, end))
        elif len(word) >= 3 and len(first) - len(word) >= 2 and first.startswith(word):
            found.append((start, end))
    return [span for span in found if span[1] <= len(text)]


_PRONOUNS = {
    "she": "I", "he": "I", "her": "my", "his": "my", "him": "me", "herself": "myself", "himself": "myself",
}  # fmt: skip
_PRONOUN = re.compile(r"\b(?:she|he|her|his|him|herself|himself)\b")


def _spoken(text: str, spans: list[tuple[int, int]]) -> str:
    """The text with the people named speaking for themselves."""
    if not spans:
        return text
    for start, end in sorted(set(spans), reverse=True):
        owner = re.match(r"['’]s\b|['’](?=\s)", text[end:])
        if owner:
            text = f"{text[:start]}my{text[end + owner.end() :]}"
        else:
            text = f"{text[:start]}I{text[end:]}"
    return _PRONOUN.sub(lambda match: _PRONOUNS[match.group()], text)


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    for start, end in sorted(set(spans), reverse=True):
        text = f"{text[:start]} {text[end:]}"
    return text
