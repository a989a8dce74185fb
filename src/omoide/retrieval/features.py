"""What does a store keep of a text, so that it can be found?

One small blob a memory: its length, what kind of sentence it is, and its terms as numbers. It is computed once,
when the memory is written; windows and statistics are made from it when a question is asked.
"""

from __future__ import annotations

import re
from array import array
from sys import byteorder
from typing import NamedTuple

from omoide.retrieval import words

VERSION = 1
"""Raised whenever the blob of the same text would differ, so that stores know to compute it again."""

ASKS = 1
TELLS_TIME = 2
TELLS_NUMBER = 4
FIRST_PERSON = 8

_ASKS = re.compile(r"[?？؟\u037e][\"')\]\s]*$")  # noqa: RUF001
_ENDING = re.compile(r"\s*\[[^\[\]]*\]\s*$")
_NUMBER = re.compile(
    r"\d|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|couple|hundred|thousand)\b", re.IGNORECASE
)
_TIME = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|ago|last|next|this (?:week|month|year|morning|weekend|summer|winter)"
    r"|week(?:end)?s?|months?|years?|since|(?:mon|tues|wednes|thurs|fri|satur|sun)day"
    r"|january|february|march|april|june|july|august|september|october|november|december"
    r"|recently|just|(?:19|20)\d\d)\b",
    re.IGNORECASE,
)
_FIRST = re.compile(r"\b(?:i|my|me|we|our|us|mine|i'm|i've)\b", re.IGNORECASE)


class Features(NamedTuple):
    """What is kept of a text."""

    length: int
    """Words, stop words included."""
    flags: int
    terms: tuple[int, ...]

    def to_bytes(self) -> bytes:
        """The blob: 64-bit little-endian numbers, the first of which holds length and flags."""
        numbers = array("q", [min(self.length, 2**31 - 1) | self.flags << 32, *self.terms])
        if byteorder == "big":
            numbers.byteswap()
        return numbers.tobytes()


def read(text: str) -> Features:
    """The features of a text."""
    found = words.words(text)
    ids = tuple(words.term_id(term) for word in found if (term := words.term_of(word)))
    return Features(length=len(found), flags=_flags(text), terms=ids)


def _flags(text: str) -> int:
    ending = _ENDING.sub("", text[-400:])
    flags = ASKS if _ASKS.search(ending) else 0
    if _TIME.search(text):
        flags |= TELLS_TIME
    if _NUMBER.search(text):
        flags |= TELLS_NUMBER
    if _FIRST.search(text):
        flags |= FIRST_PERSON
    return flags
