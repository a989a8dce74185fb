"""Tokenize and stem text, extract its features, parse queries, count tokens, score with BM25.

Only the standard library is needed.

Terms are normalized words: compatibility forms, case and Latin accents folded, English endings cut, stop
words left out. Scripts written without spaces give pairs of characters (bigrams) instead. Stores index terms,
so a change of the stemmer needs a new `FEATURES_VERSION`. The English stemmer is light: it cuts endings in
the reverse order of derivation. A stem is rarely a word, which does not matter as long as all forms of a word
share it. Words of other scripts stay as they are.

Features are what a store indexes of a text, one small blob per memory: its length, flags for what it
mentions, and its term ids. The blob is computed once, when the memory is written; windows and statistics are
computed from it at recall.

A query has terms, speakers that it names, times that it refers to, and a kind. Dates may be absolute ("8 May
2023", "2023-05", "summer 2022"), without a year ("in May"), relative to now ("yesterday", "two weeks ago",
"last Friday"), or relative to a date ("three days before 5 June"). They are English; ISO dates work in every
language. The text for the encoder is put into the first person: Ann states her memories as "I …", so her name
in the query would move its vector away from them.

`estimate_tokens` needs no model and is right within 15 % for English; `token_counter` counts exactly for one
family of models.
"""

from __future__ import annotations

import re
from array import array
from calendar import monthrange
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from hashlib import blake2b
from importlib import import_module
from math import ceil, log1p
from sys import byteorder
from typing import NamedTuple
from unicodedata import category, combining, normalize

from omoide.errors import MissingExtra, NotFound

TokenCounter = Callable[[str], int]
Span = tuple[int, int]

K1, B = 0.9, 0.4  # of `bm25`, the defaults of Anserini; `ranking.RankingWeights` has those of recall

ENCODINGS = ("o200k_base", "cl100k_base")
"""Encodings that `token_counter` supports."""

FEATURES_VERSION = 2
"""Version of the blob of a text; increase it when the blob would differ, so that stores compute it again."""

# Bits of `Features.flags`. They are stored: a new flag takes the next bit and a new version.

IS_QUESTION = 1
MENTIONS_TIME = 2
MENTIONS_NUMBER = 4
FIRST_PERSON = 8
MENTIONS_NAME = 16
MENTIONS_PLACE = 32
MENTIONS_REASON = 64
MENTIONS_RECENT = 128

_MIN_STEM_LENGTH = 3
"""Letters that must remain when an ending is cut; one more for short endings."""

_MAX_WORD_LENGTH = 64
"""Characters of a word that are used; longer runs are not words, and their cost must be bounded."""

_YEARS_BACK = 6
"""Number of years, up to the current one, that a date without a year may refer to."""

_MIN_SHORT_NAME = 3
"""Minimum length of a short form, such as Mel for Melanie."""


STOP_WORDS = frozenset(
    """
    a about after again all also am an and any are aren as at be because been before being both but by
    can cannot could couldn did didn do does doesn doing don down during each few for from further get
    gets getting got had hadn has hasn have haven having he her here hers herself him himself his how i
    if in into is isn it its itself just ll let lot me more most mustn my myself no nor not now of off
    on once only or other our ours ourselves out over own re really same shan she should shouldn so some
    such than that the their theirs them themselves then there these they this those through to too
    under until up us ve very was wasn we were weren what when where which while who whom whose why will
    with won would wouldn yeah yes you your yours yourself yourselves oh hey hi wow im ive id youre
    thats dont didnt doesnt isnt wasnt cant
    """.split()  # noqa: SIM905
)
_WORD_PATTERN = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


class _LetterTable(dict[int, int | None]):
    """A translation table: letters, marks and digits stay, Latin accents go, the rest becomes spaces."""

    def __missing__(self, code: int) -> int | None:
        char = chr(code)
        replacement: int | None
        if 0x300 <= code < 0x370:  # the combining accents, which NFKD separated from their letters
            replacement = None
        elif char in "'’":
            replacement = 0x27
        else:
            replacement = code if category(char)[0] in "LNM" or combining(char) else 0x20
        if len(self) < 20_000:  # the table is shared, and texts may use all of Unicode
            self[code] = replacement
        return replacement


_letter_table = _LetterTable()


def normalize_text(text: str) -> str:
    """Fold compatibility forms, case and Latin accents."""
    if text.isascii():
        return text.lower()
    # NFKC before folding, since some compatibility forms have a case; NFC at the end joins what has to stay
    # together, such as Hangul syllables and marks of other scripts.
    folded = normalize("NFKD", normalize("NFKC", text).casefold())
    return normalize("NFC", folded.translate(_letter_table))


def words(text: str) -> list[str]:
    """Return all words of a text, stop words included, folded but not stemmed, without `'s`."""
    folded = normalize_text(text)
    if folded.isascii():
        result = _WORD_PATTERN.findall(folded)
    else:
        result = [part for run in folded.split() for part in _split_run(run.strip("'"))]
    return [word.removesuffix("'s") for word in result]


def terms(text: str) -> list[str]:
    """Return the terms of a text in order, with repetitions."""
    return [term for word in words(text) if (term := term_of(word))]


@lru_cache(maxsize=65_536)
def term_of(word: str) -> str:
    """Return the term of a word from `words`; empty for a stop word."""
    word = word.replace("'", "")[:_MAX_WORD_LENGTH]
    return "" if word in STOP_WORDS else stem(word)


def content_token_indexes(token_words: Sequence[str]) -> list[int]:
    """Return the indexes of an encoder's tokens whose words are content words; all if there are none."""
    content = [at for at, word in enumerate(token_words) if word[:1].isalnum() and term_of(word.strip("'"))]
    return content or [*range(len(token_words))]


@lru_cache(maxsize=65_536)
def term_id(term: str) -> int:
    """Return the stored id of a term: a signed 64-bit hash, the same on every machine."""
    # Not `hash`, which differs between processes. Lone surrogates cannot be encoded, hence "replace".
    digest = blake2b(term.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def chunks(text: str, max_words: int = 80) -> list[str]:
    """Split a text into chunks of about `max_words` words, between sentences where possible."""
    # n words have at least 2n - 1 characters, so short texts need no count; some excess is not worth a cut.
    if len(text) <= max_words * 2 or _word_count(text) <= max_words * 1.5:
        return [text]
    pieces: list[str] = []
    pending: list[str] = []
    size = 0
    for sentence in _sentences(text, max_words):
        length = _word_count(sentence)
        if pending and size + length > max_words:
            pieces.append("".join(pending).strip())
            pending, size = [], 0
        pending.append(sentence)
        size += length
    pieces.append("".join(pending).strip())
    return [piece for piece in pieces if piece] or [text]


_SENTENCE = re.compile(r".+?(?:[.!?。！？]+[\"')\]]*\s+|\n+|(?<=[。！？])|$)", re.DOTALL)  # noqa: RUF001
_PIECE = re.compile(r"\S+\s*")


def _sentences(text: str, max_words: int) -> Iterator[str]:
    for match in _SENTENCE.finditer(text):
        sentence = match.group()
        if _word_count(sentence) <= max_words:
            yield sentence
            continue
        # A sentence that is too long is cut between words, and a run without spaces between characters.
        parts = _PIECE.findall(sentence)
        for start in range(0, len(parts), max_words):
            run = "".join(parts[start : start + max_words])
            yield from (run[at : at + max_words * 12] for at in range(0, len(run), max_words * 12))


def _word_count(text: str) -> int:
    """Estimate the number of words; a long run without spaces counts by its characters."""
    return max(len(text.split()), len(text) // 12)


def _split_run(run: str) -> Iterator[str]:
    """Yield the words of one run of letters: the run itself, or bigrams where its script has no spaces."""
    start = 0
    while start < len(run):
        dense = is_unspaced(run[start])
        end = start + 1
        while end < len(run) and is_unspaced(run[end]) == dense:
            end += 1
        part = run[start:end].strip("'")
        if dense and len(part) > 2:
            yield from (part[at : at + 2] for at in range(len(part) - 1))
        elif part:
            yield part
        start = end


def is_unspaced(char: str) -> bool:
    """Return True if the character belongs to a script that is written without spaces."""
    code = ord(char)
    return (
        0x2E80 <= code < 0xA4D0  # Han, kana, Bopomofo, Yi
        or 0xF900 <= code < 0xFB00  # compatibility ideographs
        or 0x20000 <= code < 0x33480  # ideographs beyond the basic plane
        or 0x0E00 <= code < 0x1000  # Thai, Lao, Tibetan
        or 0x1780 <= code < 0x1800  # Khmer
        or 0x1000 <= code < 0x10A0  # Myanmar
    )


_VOWELS = frozenset("aeiouy")

# Each line is a base with forms that the rules below would not lead to it, or would confuse with other words.
_IRREGULAR = {
    form: base
    for line in """
    be am is are was were been being; have has had having; do does did done doing; go goes went gone going
    say said; make made; get got gotten; know knew known; think thought; take took taken; see saw seen
    come came; find found; give gave given; tell told; feel felt; become became; leave left; put putting
    mean meant; keep kept; begin began begun; show shown; hear heard; run ran running; hold held
    bring brought; write wrote written writing; sit sat sitting; stand stood; lose lost losing; pay paid
    meet met; set setting; learn learnt; lead led; grow grew grown; win won winning; teach taught
    buy bought; send sent; build built; fall fell fallen; cut cutting; sell sold; speak spoke spoken
    read reading; spend spent; drive drove driven driving; draw drew drawn; break broke broken; wear wore worn
    choose chose chosen choosing; eat ate eaten; sing sang sung; swim swam swum swimming; fly flew flown
    ride rode ridden riding; catch caught; fight fought; sleep slept; throw threw thrown
    drink drank drunk; steal stole stolen; rise rose risen rising; wake woke woken; hide hid hidden
    forget forgot forgotten
    bite bit bitten; ring rang rung; shake shook shaken; shoot shot; feed fed; lie lay lain lying
    bake baked baking baker bakery; beat beaten; bend bent; blow blew blown; dig dug; freeze froze frozen
    hang hung; hurt hurting; seek sought
    child children; man men; woman women; person people; foot feet; tooth teeth; mouse mice; life lives
    wife wives; knife knives; half halves; leaf leaves; shelf shelves; good better best; bad worse worst
    marry married marriage marries; weigh weight; die died dying death; art artist artistic
    hike hiking hiker hiked hikes; dance dancing dancer danced dances; vacation vacations; gym gyms
    photo photograph photography photographer photos; health healthy; music musical musician
    decide decision; science scientific scientist; bus buses; news; university universities
    """.replace("\n", ";").split(";")
    if line.strip()
    for base, *forms in [line.split()]
    for form in [base, *forms]
}

# Derivational endings, the longest first, in the form that they have after the final y became i.
_SUFFIXES = (
    ("ational", "ate"), ("ization", "ize"), ("isation", "ize"), ("fulness", "ful"), ("ousness", "ous"),
    ("iveness", "ive"), ("biliti", "ble"), ("tional", "tion"), ("lessli", "less"), ("fulli", "ful"),
    ("ousli", "ous"), ("entli", "ent"), ("ation", "ate"), ("alism", "al"), ("aliti", "al"), ("iviti", "ive"),
    ("alli", "al"), ("ness", ""), ("ment", ""), ("ator", "ate"), ("izer", "ize"), ("ship", ""), ("ful", ""),
    ("less", "less"), ("able", ""), ("ible", ""), ("ance", ""), ("ence", ""), ("ion", ""), ("ist", ""),
    ("ism", ""), ("ive", ""), ("ous", ""), ("ize", ""), ("ise", ""), ("ate", ""), ("iti", ""), ("al", ""),
    ("er", ""), ("or", ""), ("ic", ""), ("li", ""),
)  # fmt: skip


@lru_cache(maxsize=65_536)
def stem(word: str) -> str:
    """Return the stem of a lower-case word."""
    if not (word.isascii() and word.isalpha()) or len(word) < _MIN_STEM_LENGTH:
        return word
    irregular = _IRREGULAR.get(word)
    if irregular is not None:
        return irregular
    word = _without_plural(word)
    irregular = _IRREGULAR.get(word)
    if irregular is not None:
        return irregular
    word = _without_tense(word)
    if len(word) > _MIN_STEM_LENGTH and word.endswith("y") and word[-2] not in _VOWELS:
        word = word[:-1] + "i"
    word = _without_derivation(_without_derivation(word))  # one may follow another: care-ful-ness
    if len(word) > _MIN_STEM_LENGTH + 1 and word.endswith("e"):
        word = word[:-1]
    return word


def _without_plural(word: str) -> str:
    if word.endswith(("sses", "shes", "ches", "xes", "zzes")):
        return word[:-2]
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if (
        word.endswith("s")
        and len(word) > _MIN_STEM_LENGTH
        and word[-2] not in "su"  # glass, bonus
        and not word.endswith("is")  # basis
    ):
        return word[:-1]
    return word


def _without_tense(word: str) -> str:
    # The conditions of step 1b of the Porter stemmer: a stem needs a vowel (not "sing" or "red"), doubled
    # consonants become one (stopped), and a final e comes back (created, hoping).
    for ending in ("ing", "ed"):
        root = word[: -len(ending)]
        if word.endswith(ending) and len(root) >= 2 and not _VOWELS.isdisjoint(root):
            if word.endswith("ied") and len(root) > 2:
                return root
            if len(root) > _MIN_STEM_LENGTH and root[-1] == root[-2] and root[-1] not in "lsz":
                return root[:-1]
            if root.endswith(("at", "bl", "iz")) or _is_short_stem(root):
                return root + "e"
            return root
    return word


def _is_short_stem(root: str) -> bool:
    """Return True if it ends in consonant, vowel, consonant and has no other vowel: hop(e), rid(e)."""
    if len(root) < 2 or root[-1] in "aeiouywx" or root[-2] not in _VOWELS:
        return False
    return _VOWELS.isdisjoint(root[:-2]) and len(root) >= _MIN_STEM_LENGTH


def _without_derivation(word: str) -> str:
    for ending, replacement in _SUFFIXES:
        if word.endswith(ending):
            root = word[: len(word) - len(ending)]
            min_length = _MIN_STEM_LENGTH + (len(ending) < 3 or ending == "ate")
            if len(root) >= min_length and not _VOWELS.isdisjoint(root):
                # "ion" follows s or t (action, not million), and "er" no e (career).
                if (ending == "ion" and root[-1] not in "st") or (ending == "er" and root[-1] == "e"):
                    return word
                return root + replacement
            return word
    return word


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
    """Number of words, stop words included."""
    flags: int
    terms: tuple[int, ...]

    def to_bytes(self) -> bytes:
        """Encode as 64-bit little-endian numbers, the first of which holds length and flags."""
        # The pool reads the blobs of all rows as one array of int64, so the head has the same type.
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
    # The end alone decides, without a note in brackets; the slice bounds the cost of long texts.
    flags = IS_QUESTION if _QUESTION_MARK.search(_TRAILING_BRACKETS.sub("", text[-400:])) else 0
    for flag, pattern in _FLAG_PATTERNS:
        if pattern.search(text):
            flags |= flag
    return flags


MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
    "november", "december",
)  # fmt: skip
_MONTH_NUMBERS = {short: at for at, name in enumerate(MONTHS, 1) for short in (name, name[:3])} | {"sept": 9}
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SEASONS = {"spring": (3, 5), "summer": (6, 8), "autumn": (9, 11), "fall": (9, 11), "winter": (12, 2)}
_HOLIDAYS = {
    "christmas": (12, 18, 31), "xmas": (12, 18, 31), "halloween": (10, 25, 31), "thanksgiving": (11, 20, 30),
    "valentine": (2, 10, 16), "new year's": (12, 30, 31), "new years": (12, 30, 31),
}  # fmt: skip
_COUNTS = {
    name: at
    for at, name in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905
    )
} | {"a": 1, "an": 1, "the": 1, "couple": 2, "few": 3, "several": 4}

_MONTH = r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?" + (
    r"|sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_DAY_NUMBER = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?\b"
_YEAR = r"(?P<year>(?:19|20)\d\d)\b"
_COUNT = r"(?P<count>\d{1,3}|an?|the|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve" + (
    r"|(?:a )?couple(?: of)?|(?:a )?few|several)"
)
_UNIT = r"(?P<unit>day|week|weekend|month|year)s?\b"
_PERIOD = r"(?P<period>week(?:end)?|month|year|monday|tuesday|wednesday|thursday|friday|saturday|sunday" + (
    r"|spring|summer|autumn|fall|winter|night)\b"
)

_PART = r"(?P<part>\b(?:early|mid|late|(?:the )?(?:beginning|start|middle|end) of)[ -])"

# The most specific first: characters that one pattern used are not available to the next ones, so the year of
# "5 May 2023" is not found again as a year.
_DATE_PATTERNS = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("iso", r"\b(?P<year>(?:19|20)\d\d)-(?P<month>[01]\d)(?:-(?P<day>[0-3]\d))?\b"),
        ("date", rf"\b{_DAY_NUMBER}(?: of)? {_MONTH},?(?: (?:of )?{_YEAR})?"),
        ("date", rf"\b{_MONTH} {_DAY_NUMBER}(?:,? {_YEAR})?"),
        ("date", rf"{_PART}?\b{_MONTH},?(?: of)? {_YEAR}"),
        ("season", rf"\b(?P<season>spring|summer|autumn|fall|winter)(?: of|,)? {_YEAR}"),
        ("holiday", rf"\b(?P<holiday>{'|'.join(_HOLIDAYS)})(?:'?s)?(?: (?:of |in )?{_YEAR})?"),
        ("past", rf"\b(?:(?:last|past|previous) {_COUNT} {_UNIT})"),
        ("ago", rf"\b{_COUNT} {_UNIT} ago\b"),
        ("relative", rf"\b(?P<which>last|this|next|previous|past) {_PERIOD}"),
        ("word", r"\b(?P<word>yesterday|today|tonight|tomorrow)\b"),
        ("date", rf"\b(?:in|during|since|until|by|early|mid|late|before|after|of|last|this)[ -]{_MONTH}"),
        ("season", r"\b(?:in|during|over|since|that|the)(?: the)? (?P<season>spring|summer|autumn|winter)\b"),
        ("year", rf"\b{_YEAR}"),
    )
)
_SHIFT = re.compile(
    rf"\b(?P<many>{_COUNT} {_UNIT} )?(?P<way>before|after|prior to|following|since|until|by) (?:the )?$"
)
_UNIT_DAYS = {"day": 1, "week": 7, "weekend": 7, "month": 30, "year": 365}


class Interval(NamedTuple):
    """A half-open interval of time, in milliseconds."""

    start: int
    end: int
    weight: float = 1.0


def intervals(text: str, now: int) -> tuple[Interval, ...]:
    """Return the times that a text refers to, as seen at the time `now`."""
    lowered = text.lower()
    is_used = [False] * len(lowered)
    result: list[Interval] = []
    # Limited to the year 3000, so that the arithmetic below stays in the range of datetime.
    at_now = datetime.fromtimestamp(min(max(now, 0), 32_503_680_000_000) / 1000, UTC)
    for kind, pattern in _DATE_PATTERNS:
        for match in pattern.finditer(lowered):
            start, end = match.span()
            if any(is_used[start:end]):
                continue
            parsed = _parse_match(kind, match.groupdict(), at_now)
            if parsed:
                is_used[start:end] = [True] * (end - start)
                shift = _SHIFT.search(lowered[:start])
                result.extend(_shift_intervals(parsed, shift) if shift else parsed)
    # An interval that lies before 1970 is empty.
    return tuple(interval for interval in result if interval.start < interval.end)


def _parse_match(kind: str, groups: dict[str, str | None], now: datetime) -> list[Interval]:
    try:
        if kind in ("iso", "date"):
            return _parse_date(groups, now)
        if kind in ("season", "holiday", "year"):
            return _parse_season_or_year(groups, now)
        if kind in ("past", "ago"):
            return _parse_duration(kind, groups, now)
        return _parse_relative(groups, now)
    except (ValueError, OverflowError):  # the 31st of June, the year 1900 before 1970
        return []


def _years(year: str | None, now: datetime) -> list[int]:
    return [int(year)] if year else list(range(now.year, now.year - _YEARS_BACK, -1))


def _parse_date(groups: dict[str, str | None], now: datetime) -> list[Interval]:
    month_text = (groups["month"] or "").rstrip(".")
    month = int(month_text) if month_text.isdigit() else _MONTH_NUMBERS[month_text]
    day_text = groups.get("day")
    day = int(day_text) if day_text else None
    result = []
    for year in _years(groups.get("year"), now):
        first, last = (day, day) if day else _month_part(groups.get("part"), monthrange(year, month)[1])
        if last <= monthrange(year, month)[1]:
            result.append(_days_interval(datetime(year, month, first, tzinfo=UTC), last - first + 1))
    return result


def _month_part(part: str | None, days: int) -> tuple[int, int]:
    if part is None:
        return 1, days
    # The parts overlap: such words are vague.
    if "early" in part or "beginning" in part or "start" in part:
        return 1, 12
    if "mid" in part:
        return 9, 22
    return 18, days


def _parse_season_or_year(groups: dict[str, str | None], now: datetime) -> list[Interval]:
    result = []
    for year in _years(groups.get("year"), now):
        if season := groups.get("season"):
            first, last = _SEASONS[season]
            start = datetime(year, first, 1, tzinfo=UTC)
            result.append(_interval(start, _month_start(year + (last < first), last + 1)))
        elif holiday := groups.get("holiday"):
            month, begin, end = _HOLIDAYS[holiday]
            result.append(_days_interval(datetime(year, month, begin, tzinfo=UTC), end - begin + 1))
        else:
            result.append(_interval(datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)))
    return result


def _parse_duration(kind: str, groups: dict[str, str | None], now: datetime) -> list[Interval]:
    days = _parse_count(groups["count"]) * _UNIT_DAYS[groups["unit"] or "day"]
    if kind == "past":
        return [_interval(now - timedelta(days=days), now + timedelta(days=1))]
    # "Three weeks ago" is seldom exact: a quarter of the distance either way.
    slack = days / 4 if days > 2 else 0.5
    return [_interval(now - timedelta(days=days + slack), now - timedelta(days=days - slack))]


def _parse_count(text: str | None) -> int:
    number = (text or "one").removeprefix("a ").removesuffix(" of") or "one"
    return int(number) if number.isdigit() else _COUNTS.get(number, 1)


def _parse_relative(groups: dict[str, str | None], now: datetime) -> list[Interval]:
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    word = groups.get("word")
    if word:
        return [_days_interval(today + timedelta(days={"yesterday": -1, "tomorrow": 1}.get(word, 0)), 1)]
    which, period = groups["which"], groups["period"] or "week"
    step = {"this": 0, "next": 1}.get(which or "last", -1)
    if period in _DAYS:
        # "Last Friday" said on a Friday is a week ago, and "next Friday" a week ahead.
        days = (_DAYS.index(period) - today.weekday()) % 7 or (7 if step else 0)
        return [
            _days_interval(today + timedelta(days=days if step >= 0 else days - 7 if days != 7 else -7), 1)
        ]
    if period in _SEASONS:
        return _relative_season(period, step, today)
    if period == "night":
        return [_days_interval(today + timedelta(days=step), 1)]
    if period == "month":
        month = today.year * 12 + today.month - 1 + step
        year, number = month // 12, month % 12 + 1
        return [_interval(_month_start(year, number), _month_start(year, number + 1))]
    if period == "year":
        return [_interval(_month_start(today.year + step, 1), _month_start(today.year + step + 1, 1))]
    monday = today + timedelta(days=7 * step - today.weekday())
    return [
        _days_interval(monday + timedelta(days=5), 2) if period == "weekend" else _days_interval(monday, 7)
    ]


def _relative_season(name: str, step: int, today: datetime) -> list[Interval]:
    first, last = _SEASONS[name]
    for year in (today.year, today.year - 1):  # "last summer" is over: in May it is that of the year before
        start, end = datetime(year, first, 1, tzinfo=UTC), _month_start(year + (last < first), last + 1)
        if step >= 0 or end <= today:
            return [_interval(start, end)]
    return []


def _shift_intervals(intervals: list[Interval], shift: re.Match[str]) -> list[Interval]:
    """Move intervals by the distance before or after them; without a distance, open them to that side."""
    earlier = shift["way"] in ("before", "prior to", "until", "by")
    if shift["many"]:
        distance = _parse_count(shift["count"]) * _UNIT_DAYS[shift["unit"]] * 86_400_000
        slack = max(distance // 4, 86_400_000)
        if shift["count"] == "the":  # "the week before" is the week itself
            return [
                Interval(start - distance, start) if earlier else Interval(end, end + distance)
                for start, end, _ in intervals
            ]
        if earlier:
            return [Interval(start - distance - slack, start - distance + slack) for start, _, _ in intervals]
        return [Interval(end + distance - slack, end + distance + slack) for _, end, _ in intervals]
    # An open interval is a weak hint, so it has half the weight. Without a year, only the latest date counts.
    if earlier:
        until = shift["way"] in ("until", "by")
        return [Interval(0, end if until else start, 0.5) for start, end, _ in intervals[:1]]
    return [Interval(end, 2**62, 0.5) for _, end, _ in intervals[:1]]


def _month_start(year: int, month: int) -> datetime:
    return datetime(year + (month - 1) // 12, (month - 1) % 12 + 1, 1, tzinfo=UTC)


def _days_interval(start: datetime, days: int) -> Interval:
    return _interval(start, start + timedelta(days=days))


def _interval(start: datetime, end: datetime) -> Interval:
    return Interval(int(start.timestamp() * 1000), int(end.timestamp() * 1000))


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
_WORD_START, _LOWER, _UPPER, _DIGIT, _PUNCTUATION, _NEWLINE, _PER_CHARACTER = (
    0.85,
    0.05,
    0.55,
    0.8,
    0.64,
    0.2,
    0.01,
)
_TWO_BYTES, _THREE_BYTES, _FOUR_BYTES = 0.75, 1.1, 3.0

_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
"""Bytes of UTF-8 that continue a character."""


def _byte_class(byte: int) -> str:
    """Return the class of a UTF-8 byte: letter, digit, punctuation, space, or start of 2, 3 or 4 bytes."""
    if byte < 0x80:
        char = chr(byte)
        if char.isalnum():
            return "0" if char.isdigit() else "A" if char.isupper() else "a"
        return " " if byte <= 0x20 else "."
    return "2" if byte < 0xE0 else "3" if byte < 0xF0 else "4"


_BYTE_CLASSES = "".join(map(_byte_class, range(256))).encode()


def estimate_tokens(text: str) -> int:
    """Estimate the number of tokens of a text for any model.

    Word starts, capitals, digits and punctuation are counted, each by one fast pass over the bytes.
    """
    classes = f" {text}".encode(errors="replace").translate(_BYTE_CLASSES, _CONTINUATION_BYTES)
    count = classes.count
    tokens = (
        _WORD_START * (count(b" a") + count(b".a"))
        + _LOWER * count(b"a")
        + _UPPER * count(b"A")
        + _DIGIT * count(b"0")
        + _PUNCTUATION * count(b".")
        + _NEWLINE * text.count("\n")
        + _PER_CHARACTER * (len(classes) - 1)
    )
    if not text.isascii():
        tokens += _TWO_BYTES * count(b"2") + _THREE_BYTES * count(b"3") + _FOUR_BYTES * count(b"4")
    return ceil(tokens)


@cache
def token_counter(encoding: str = ENCODINGS[0]) -> TokenCounter:
    """Return a function that counts tokens as models with this encoding do.

    Raises:
        NotFound: The encoding is not one of `ENCODINGS`.
        MissingExtra: The extra `tokens` is not installed.
    """
    if encoding not in ENCODINGS:
        raise NotFound("encoding", encoding, f"use one of {', '.join(ENCODINGS)}")
    try:
        encodings = import_module("rs_bpe.bpe").openai
    except ImportError as error:
        raise MissingExtra("counting tokens exactly", "tokens") from error
    count: TokenCounter = getattr(encodings, encoding)().count
    return count


def bm25(query_terms: Sequence[str], texts: Sequence[Sequence[str]]) -> list[float]:
    """Return the BM25 score of each text, given as its terms, for the terms of a query.

    For programs without NumPy; `pool.lexical_match` is the same over windows.
    """
    counts = [Counter(terms) for terms in texts]
    mean = sum(map(len, texts)) / len(texts) if texts else 0.0
    rarity = {}
    for term in dict.fromkeys(query_terms):
        frequency = sum(term in count for count in counts)
        rarity[term] = log1p((len(texts) - frequency + 0.5) / (frequency + 0.5))
    scores = []
    for terms, count in zip(texts, counts, strict=True):
        norm = K1 * (1 - B + B * len(terms) / (mean or 1.0))
        scores.append(sum(rarity[term] * count[term] * (K1 + 1) / (count[term] + norm) for term in rarity))
    return scores
