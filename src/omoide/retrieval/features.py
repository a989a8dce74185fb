"""Extract the features that a store indexes of a text.

They are one small blob per memory: its length, flags for what it mentions, and its term ids. It is computed
once, when the memory is written; windows and statistics are computed from it at recall.
"""

from __future__ import annotations

import re
from array import array
from sys import byteorder
from typing import NamedTuple

from omoide.retrieval.text import term_id, term_of, words

VERSION = 2
"""Increased whenever the blob of the same text would differ, so that stores compute it again."""

IS_QUESTION = 1
MENTIONS_TIME = 2
MENTIONS_NUMBER = 4
FIRST_PERSON = 8
MENTIONS_NAME = 16
MENTIONS_PLACE = 32
MENTIONS_REASON = 64
MENTIONS_RECENT = 128

_QUESTION_MARK = re.compile(r"[?？؟\u037e][\"')\]\s]*$")  # noqa: RUF001
_TRAILING_BRACKETS = re.compile(r"\s*\[[^\[\]]*\]\s*$")
_DAY = "(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_FLAG_PATTERNS = (
    (
        MENTIONS_TIME,
        re.compile(
            r"\b(?:yesterday|tonight|tomorrow|ago|the other day|this morning|since (?:i|we)"
            r"|(?:last|next|this|past) (?:week(?:end)?|month|year|night|summer|winter|spring|fall|autumn|few)"
            rf"|{_DAY}|january|february|march|april|june|july|august|september|october|november|december"
            r"|(?:19|20)\d\d|\w+ (?:days|weeks|months|years))\b",
            re.IGNORECASE,
        ),
    ),
    (
        MENTIONS_RECENT,
        re.compile(r"\b(?:today|just|recently|lately|soon|now|finally|earlier|later)\b", re.IGNORECASE),
    ),
    (
        MENTIONS_NUMBER,
        re.compile(
            r"\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|couple|hundred|thousand"
            r"|once|twice|several)\b",
            re.IGNORECASE,
        ),
    ),
    (FIRST_PERSON, re.compile(r"\b(?:i|my|me|we|our|us|mine)\b", re.IGNORECASE)),
    (MENTIONS_NAME, re.compile(r"(?<=[a-z,] )[A-Z][a-z]+")),
    (MENTIONS_PLACE, re.compile(r"\b(?:in|at|to|from|near|visited|around) (?:the )?[A-Z]\w+")),
    (
        MENTIONS_REASON,
        re.compile(
            r"\b(?:because|since|so that|in order|reason|inspired|motivat\w*|helps?|makes? me|made me"
            r"|feel|felt)\b",
            re.IGNORECASE,
        ),
    ),
)


class Features(NamedTuple):
    """The indexed features of a text."""

    length: int
    """The number of words, stop words included."""
    flags: int
    terms: tuple[int, ...]

    def to_bytes(self) -> bytes:
        """Encode as 64-bit little-endian numbers, the first of which holds length and flags."""
        numbers = array("q", [min(self.length, 2**31 - 1) | self.flags << 32, *self.terms])
        if byteorder == "big":
            numbers.byteswap()
        return numbers.tobytes()


def extract_features(text: str) -> Features:
    """Return the features of a text."""
    text_words = words(text)
    ids = tuple(term_id(term) for word in text_words if (term := term_of(word)))
    return Features(length=len(text_words), flags=_flags(text), terms=ids)


def _flags(text: str) -> int:
    flags = IS_QUESTION if _QUESTION_MARK.search(_TRAILING_BRACKETS.sub("", text[-400:])) else 0
    for flag, pattern in _FLAG_PATTERNS:
        if pattern.search(text):
            flags |= flag
    return flags
