"""Parse queries.

A query has terms, speakers that it names, times that it refers to, and a kind. The text for the encoder is
put into the first person: Ann states her memories as "I …", so her name in the query would move its vector
away from them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple
from unicodedata import normalize

from omoide.retrieval.languages import MONTHS
from omoide.retrieval.tenses import tense_of
from omoide.retrieval.text import STOP_WORDS, is_unspaced, terms
from omoide.retrieval.times import Interval, intervals

Span = tuple[int, int]

_MIN_SHORT_NAME = 3
"""Minimum length of a short form, such as Mel for Melanie."""

_QUESTION_KINDS = (
    ("when", re.compile(r"\b(?:when|how long|(?:what|which) (?:date|day|month|year|time))\b", re.IGNORECASE)),
    ("count", re.compile(r"\bhow (?:many|much|often|old)\b|\bnumber of\b", re.IGNORECASE)),
    ("where", re.compile(r"\bwhere\b|\b(?:what|which) (?:city|country|place|state|town)\b", re.IGNORECASE)),
    ("who", re.compile(r"\bwho(?:m|se)?\b", re.IGNORECASE)),
    ("why", re.compile(r"\bwhy\b|\bwhat (?:made|motivated|inspired)\b|\breason\b", re.IGNORECASE)),
)
_ASSISTANT_REFERENCE = re.compile(
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
_POSSESSIVE = re.compile(r"['’]s\b|['’](?=\s|$)")
_NAME = re.compile(r"[^\W\d_]+")
_NOT_NAMES = STOP_WORDS | {*MONTHS, *(month[:3] for month in MONTHS)}


class ParsedQuery(NamedTuple):
    """A query with the parts that were parsed from it."""

    text: str
    encoder_text: str
    """Query in the first person of the speaker that it names; this text is embedded."""
    terms: tuple[str, ...]
    """Distinct terms, without the names of speakers in the scope."""
    named_speakers: frozenset[int]
    """Speakers that it names, as indexes into the list of speakers."""
    times: tuple[Interval, ...]
    kind: str
    """Kind of the question: when, count, where, who, why or what."""
    asks_assistant: bool
    """True if it asks for something that the assistant said."""
    tense: str = ""
    """`current` if it asks for what is so now, `past` for what was so at first or before; else empty."""


def parse_query(text: str, *, now: int, speakers: Sequence[str] = ()) -> ParsedQuery:
    """Parse a query as of the time `now`, in a scope with these speakers."""
    speaker_spans = _find_speakers(text, speakers)
    # From the last to the first: replacing one leaves the positions of those before it valid.
    spans = sorted({span for spans in speaker_spans.values() for span in spans}, reverse=True)
    return ParsedQuery(
        text=text,
        encoder_text=_to_first_person(text, spans),
        terms=tuple(dict.fromkeys(terms(_remove_spans(text, spans)))),
        named_speakers=frozenset(speaker_spans),
        times=intervals(text, now),
        kind=next((kind for kind, pattern in _QUESTION_KINDS if pattern.search(text)), "what"),
        asks_assistant=_ASSISTANT_REFERENCE.search(text) is not None,
        tense=tense_of(text),
    )


def _find_speakers(text: str, speakers: Sequence[str]) -> dict[int, list[Span]]:
    """Return the spans of each speaker that the text names, by index of the speaker."""
    folded = _fold(text)
    is_lower = text == text.lower()  # an all-lower-case text has no capitals to tell names by
    names = [
        (match.group(), match.span())
        for match in _NAME.finditer(folded)
        if (match.group() not in _NOT_NAMES if is_lower else _may_be_name(text, match))
    ]
    spans_by_speaker: dict[int, list[Span]] = {}
    for at, name in enumerate(speakers):
        parts = _name_parts(name)
        if not parts:
            continue
        spans = [
            span for word, span in names if word in parts or (not is_lower and _is_short_name(word, parts[0]))
        ]
        if is_unspaced(parts[0][0]):  # the name may stand inside a run of letters
            spans = [match.span() for match in re.finditer(re.escape(parts[0]), folded)]
        if spans:
            spans_by_speaker[at] = spans
    return spans_by_speaker


def _may_be_name(text: str, match: re.Match[str]) -> bool:
    # Capitals mark names, but a stop word is capitalized at the start of a sentence anyway ("Will you …").
    start, word = match.start(), match.group()
    cased = text[start].lower() != text[start].upper()
    if cased and not text[start].isupper():
        return False
    return word not in STOP_WORDS or text[:start].strip()[-1:] not in ("", ".", "?", "!")


def _is_short_name(word: str, first: str) -> bool:
    """Return True if a word is a short form of a first name."""
    if len(word) < _MIN_SHORT_NAME or word in _NOT_NAMES:
        return False
    # One letter less is another name more often than a short form: Ann and Anna.
    return len(first) - len(word) > 1 and first.startswith(word)


@lru_cache(maxsize=4_096)
def _name_parts(name: str) -> tuple[str, ...]:
    """Return the folded words of a name."""
    return tuple(word for word in _NAME.findall(_fold(name)) if len(word) > 1 or is_unspaced(word))


def _fold(text: str) -> str:
    """Remove case and accents, keeping every character at its index."""
    if text.isascii():
        return text.lower()
    # One character for each, so that spans found in the folded text are spans of the text.
    return "".join((normalize("NFKD", char.casefold()) or char)[0] for char in text)


def _to_first_person(text: str, spans: list[Span]) -> str:
    """Replace the named speakers, and pronouns for them, by the first person."""
    if not spans:
        return text
    for start, end in _merge_spans(spans, text):
        possessive = _POSSESSIVE.match(text, end)
        if possessive:
            text = f"{text[:start]}my{text[possessive.end() :]}"
        else:
            text = f"{text[:start]}{'' if is_unspaced(text[start]) else 'I'}{text[end:]}"
    return _PRONOUN.sub(lambda match: _PRONOUNS[match.group()], text)


def _merge_spans(spans: list[Span], text: str) -> list[Span]:
    """Join adjacent spans, those of one name, given from the last to the first."""
    joined: list[Span] = []
    for start, end in spans:
        if joined and end <= joined[-1][0] and not text[end : joined[-1][0]].strip(" -"):
            joined[-1] = (start, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def _remove_spans(text: str, spans: list[Span]) -> str:
    for start, end in spans:
        possessive = _POSSESSIVE.match(text, end)
        text = f"{text[:start]} {text[possessive.end() if possessive else end :]}"
    return text


# Fitted to what both encodings make of prose, chats, documentation and code. Beyond ASCII they differ by
# factors; there the numbers lie between the two.
