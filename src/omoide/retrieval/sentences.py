"""Find where sentences end.

A dot ends most sentences, and stands in abbreviations, initials, dates, numbers and addresses as well. What
follows it decides: a number after `No.`, a lower-case word after `p.m.`, a word that begins sentences after
`U.S.`; a title never ends one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# A run of signs is read from its first one only: from each of them would be quadratic.
_MARK = re.compile(
    r"(?<![.!?…])(?P<mark>[.!?…]++)(?P<closing>[\"'”’)\]»]{0,3})\s+"
    r"|[。！？｡]++(?P<quote>[」』）”’\"]{0,3})\s*|\n+"  # noqa: RUF001
)
_NEXT = re.compile(r"[\"'“‘(\[«]{0,2}(\w[\w']{0,20})")  # noqa: RUF001
_BEFORE = re.compile(r"[\w.&]+\Z")
_LONGEST_WORD = 16
_DOTTED = re.compile(r"[^\W\d_]{1,2}(?:\.[^\W\d_]{1,2})+")
"""U.S, p.m, Ph.D: abbreviations of several letters, without their last dot."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TITLES = _words(
    "mr mrs ms mx dr prof messrs gen sen rep gov capt cmdr col lt sgt maj rev hon e.g i.e vs cf"
    " approx resp viz"
)
"""Abbreviations that something always follows."""
_NUMBERED = _words("no nos fig figs vol vols p pp ch chap sec eq")
_DATES = _words(
    "jan feb mar apr jun jul aug sep sept oct nov dec mon tue tues wed thu thur thurs fri sat sun"
)
_ENDINGS = _words("inc ltd co corp llc bros jr sr st mt dept ave blvd rd al ca")
"""Abbreviations that may end a sentence."""
_TIMES = _words("a.m p.m etc")
_DAYS = _words("monday tuesday wednesday thursday friday saturday sunday")
_BEGINNINGS = _words(
    "a an the this that these those i you he she it we they my your his her its our their there here"
    " who what when where which why how is are was were do does did can could will would should in on"
    " at by for from to with after before since until if as and but or so then also however yet now"
    " today yesterday tomorrow later once no yes not please let maybe meanwhile all some many most"
    " each every both one"
)
"""Words that begin sentences, and seldom names."""


def sentence_ends(text: str, start: int = 0, stop: int | None = None) -> Iterator[int]:
    """Yield where sentences end between two places, behind the spaces after them; a line ends one as well."""
    stop = len(text) if stop is None else stop
    for found in _MARK.finditer(text, start, stop):
        if "\n" in found[0] or _is_end(text, found, start):
            yield found.end()
            start = found.end()


def _is_end(text: str, found: re.Match[str], start: int) -> bool:
    mark, closing, quote = found["mark"], found["closing"], found["quote"]
    following = text[found.end() : found.end() + 1]
    if mark is None:
        # Inside of a quotation that the sentence goes on after, as in 「…。」と言った。
        return not quote or found[0][-1].isspace() or following in ("", "「", "『")
    if set(mark) & {"!", "?"}:
        return not (closing.strip(")]") and following.islower())
    if mark != "." or closing:
        return not following.islower()
    return _ends_with_dot(text, found, start)


def _ends_with_dot(text: str, found: re.Match[str], start: int) -> bool:
    """Return whether a single dot ends a sentence, by the word before it and the one after."""
    at = found.start()
    before = _BEFORE.search(text, max(start, at - _LONGEST_WORD), at)
    after = _NEXT.match(text, found.end())
    word, following = before[0] if before else "", after[1] if after else ""
    plain = word.lower()
    if word.isdecimal() and len(word) <= 3 and not text[start : at - len(word)].strip():
        return False  # the number of a step
    if plain in _TITLES:
        return False
    if plain in _NUMBERED:
        return not following[:1].isdecimal()
    if plain in _DATES and word[0].isupper():
        return not following[:1].isdecimal() and not following[:1].islower()
    if plain in _TIMES:
        named = following.isupper() and len(following) > 1
        return following[:1].isupper() and not named and following.lower() not in _DAYS
    initial = len(word) == 1 and word.isupper()
    if initial or plain in _ENDINGS or _DOTTED.fullmatch(word):
        return not following or (following[0].isupper() and following.lower() in _BEGINNINGS)
    return True
