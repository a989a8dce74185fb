"""What does a question ask for?

Its terms, the people it names, the times it speaks of, and the words in which a memory would say it: a memory
of Ann's is told by Ann, in the first person, so her name in the question leads a vector astray.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple
from unicodedata import normalize

from omoide.retrieval import words
from omoide.retrieval.dates import MONTHS, Interval, intervals

_KINDS = (
    ("when", re.compile(r"\b(?:when|how long|(?:what|which) (?:date|day|month|year|time))\b", re.IGNORECASE)),
    ("count", re.compile(r"\bhow (?:many|much|often|old)\b|\bnumber of\b", re.IGNORECASE)),
    ("where", re.compile(r"\bwhere\b|\b(?:what|which) (?:city|country|place|state|town)\b", re.IGNORECASE)),
    ("who", re.compile(r"\bwho(?:m|se)?\b", re.IGNORECASE)),
    ("why", re.compile(r"\bwhy\b|\bwhat (?:made|motivated|inspired)\b|\breason\b", re.IGNORECASE)),
)
_ADDRESSED = re.compile(
    r"\byou(?:'ve| have| had)? (?:\w+ )?(?:recommended|suggested|told|said|mentioned|gave|given|provided"
    r"|listed|explained|advised|wrote|written|showed|shared|described|created|made|proposed|drafted|generated)\b"
    r"|\b(?:did|have|had) you (?!know)\w+"
    r"|\byour (?:\w+ )?(?:recommendations?|suggestions?|advice|answers?|reply|list|explanation|response)\b"
    r"|\bour (?:\w+ ){0,2}(?:chats?|conversations?|discussions?)\b|\b(?:assistant|chatbot)\b",
    re.IGNORECASE,
)
_PRONOUNS = {
    "she": "I", "he": "I", "her": "my", "his": "my", "him": "me", "herself": "myself", "himself": "myself",
}  # fmt: skip
_PRONOUN = re.compile(r"\b(?:she|he|her|his|him|herself|himself)\b")
_OWNER = re.compile(r"['’]s\b|['’](?=\s|$)")
_NAME = re.compile(r"[^\W\d_]+")
_NO_NAME = words.STOP | {*MONTHS, *(month[:3] for month in MONTHS)}
_SHORTEST = 3
"""Letters of a short form: Mel for Melanie."""

Span = tuple[int, int]


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
    """when, count, where, who, why or what."""
    addressed: bool
    """Whether it asks for what the assistant said."""


def read(text: str, *, now: int, speakers: Sequence[str] = ()) -> Query:
    """The question, understood at the moment `now` among these speakers."""
    found = _named(text, speakers)
    spans = sorted({span for spans in found.values() for span in spans}, reverse=True)
    return Query(
        text=text,
        spoken=_spoken(text, spans),
        terms=tuple(dict.fromkeys(words.terms(_without(text, spans)))),
        named=frozenset(found),
        times=intervals(text, now),
        kind=next((kind for kind, pattern in _KINDS if pattern.search(text)), "what"),
        addressed=_ADDRESSED.search(text) is not None,
    )


def _named(text: str, speakers: Sequence[str]) -> dict[int, list[Span]]:
    """Which speakers the text names, and where."""
    folded = _folded(text)
    plain = text == text.lower()  # nobody's name has its capital, so every word may be one
    said = [
        (match.group(), match.span())
        for match in _NAME.finditer(folded)
        if (match.group() not in _NO_NAME if plain else _may_be_name(text, match))
    ]
    found: dict[int, list[Span]] = {}
    for at, name in enumerate(speakers):
        parts = _parts(name)
        if not parts:
            continue
        spans = [span for word, span in said if word in parts or (not plain and _is_short(word, parts[0]))]
        if words.is_dense(parts[0][0]):  # names stand inside of a run of letters
            spans = [match.span() for match in re.finditer(re.escape(parts[0]), folded)]
        if spans:
            found[at] = spans
    return found


def _may_be_name(text: str, match: re.Match[str]) -> bool:
    start, word = match.start(), match.group()
    cased = text[start].lower() != text[start].upper()
    if cased and not text[start].isupper():
        return False
    return word not in words.STOP or text[:start].strip()[-1:] not in ("", ".", "?", "!")


def _is_short(word: str, first: str) -> bool:
    """Whether it is a short form of a first name."""
    if len(word) < _SHORTEST or word in _NO_NAME:
        return False
    return len(first) - len(word) > 1 and first.startswith(word)


@lru_cache(maxsize=4_096)
def _parts(name: str) -> tuple[str, ...]:
    """The words of a name, folded."""
    return tuple(word for word in _NAME.findall(_folded(name)) if len(word) > 1 or words.is_dense(word))


def _folded(text: str) -> str:
    """The text without case and accents, every character in its place."""
    if text.isascii():
        return text.lower()
    return "".join((normalize("NFKD", char.casefold()) or char)[0] for char in text)


def _spoken(text: str, spans: list[Span]) -> str:
    """The text with the people named speaking for themselves."""
    if not spans:
        return text
    for start, end in _joined(spans, text):
        owner = _OWNER.match(text, end)
        if owner:
            text = f"{text[:start]}my{text[owner.end() :]}"
        else:
            text = f"{text[:start]}{'' if words.is_dense(text[start]) else 'I'}{text[end:]}"
    return _PRONOUN.sub(lambda match: _PRONOUNS[match.group()], text)


def _joined(spans: list[Span], text: str) -> list[Span]:
    """The spans from the last to the first, those of one name as one."""
    joined: list[Span] = []
    for start, end in spans:
        if joined and end <= joined[-1][0] and not text[end : joined[-1][0]].strip(" -"):
            joined[-1] = (start, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def _without(text: str, spans: list[Span]) -> str:
    for start, end in spans:
        owner = _OWNER.match(text, end)
        text = f"{text[:start]} {text[owner.end() if owner else end :]}"
    return text
