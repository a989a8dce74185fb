"""Query understanding: terms, people, dates.

Absolute dates ("8 May 2023", "2023-05", "summer 2022"), dates without a year ("in May"), times relative to
the moment of asking ("yesterday", "two weeks ago", "last Friday"), and times relative to a date ("three days
before 5 June"). English; numbers in ISO form work in every language.

Its terms, the people it names, the times it speaks of, and the words in which a memory would say it: a memory
of Ann's is told by Ann, in the first person, so her name in the question leads a vector astray.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from unicodedata import normalize

from omoide.retrieval import text as words

# dates: Which times does a question speak of?


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
_YEARS_BACK = 6
"""A date without a year is looked for in this many years before the moment of asking."""

_MONTH = r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?" + (
    r"|sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_DAY = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?\b"
_YEAR = r"(?P<year>(?:19|20)\d\d)\b"
_COUNT = r"(?P<count>\d{1,3}|an?|the|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve" + (
    r"|(?:a )?couple(?: of)?|(?:a )?few|several)"
)
_UNIT = r"(?P<unit>day|week|weekend|month|year)s?\b"
_PERIOD = r"(?P<named>week(?:end)?|month|year|monday|tuesday|wednesday|thursday|friday|saturday|sunday" + (
    r"|spring|summer|autumn|fall|winter|night)\b"
)

_PART = r"(?P<part>\b(?:early|mid|late|(?:the )?(?:beginning|start|middle|end) of)[ -])"

_PATTERNS = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("iso", r"\b(?P<year>(?:19|20)\d\d)-(?P<month>[01]\d)(?:-(?P<day>[0-3]\d))?\b"),
        ("date", rf"\b{_DAY}(?: of)? {_MONTH},?(?: (?:of )?{_YEAR})?"),
        ("date", rf"\b{_MONTH} {_DAY}(?:,? {_YEAR})?"),
        ("date", rf"{_PART}?\b{_MONTH},?(?: of)? {_YEAR}"),
        ("season", rf"\b(?P<season>spring|summer|autumn|fall|winter)(?: of|,)? {_YEAR}"),
        ("feast", rf"\b(?P<feast>{'|'.join(_HOLIDAYS)})(?:'?s)?(?: (?:of |in )?{_YEAR})?"),
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


class Interval(NamedTuple):
    """A stretch of time, in milliseconds; the end is not part of it."""

    start: int
    end: int
    weight: float = 1.0


def intervals(text: str, now: int) -> tuple[Interval, ...]:
    """The times that the text names, understood at the moment `now`."""
    lowered = text.lower()
    taken = [False] * len(lowered)
    found: list[Interval] = []
    at_now = datetime.fromtimestamp(min(max(now, 0), 32_503_680_000_000) / 1000, UTC)
    for kind, pattern in _PATTERNS:
        for match in pattern.finditer(lowered):
            start, end = match.span()
            if any(taken[start:end]):
                continue
            read = _parse_match(kind, match.groupdict(), at_now)
            if read:
                taken[start:end] = [True] * (end - start)
                before = _SHIFT.search(lowered[:start])
                found.extend(_shift_intervals(read, before) if before else read)
    return tuple(one for one in found if one.start < one.end)  # what ends before 1970 began is no time at all


def _parse_match(kind: str, groups: dict[str, str | None], now: datetime) -> list[Interval]:
    try:
        if kind in ("iso", "date"):
            return _parse_date(groups, now)
        if kind in ("season", "feast", "year"):
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
    found = []
    for year in _years(groups.get("year"), now):
        first, last = (day, day) if day else _month_part(groups.get("part"), monthrange(year, month)[1])
        if last <= monthrange(year, month)[1]:
            found.append(_days_interval(datetime(year, month, first, tzinfo=UTC), last - first + 1))
    return found


def _month_part(part: str | None, days: int) -> tuple[int, int]:
    if part is None:
        return 1, days
    if "early" in part or "beginning" in part or "start" in part:
        return 1, 12
    if "mid" in part:
        return 9, 22
    return 18, days


def _parse_season_or_year(groups: dict[str, str | None], now: datetime) -> list[Interval]:
    found = []
    for year in _years(groups.get("year"), now):
        if season := groups.get("season"):
            first, last = _SEASONS[season]
            start = datetime(year, first, 1, tzinfo=UTC)
            found.append(_interval(start, _month_start(year + (last < first), last + 1)))
        elif feast := groups.get("feast"):
            month, begin, end = _HOLIDAYS[feast]
            found.append(_days_interval(datetime(year, month, begin, tzinfo=UTC), end - begin + 1))
        else:
            found.append(_interval(datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)))
    return found


def _parse_duration(kind: str, groups: dict[str, str | None], now: datetime) -> list[Interval]:
    days = _parse_count(groups["count"]) * _UNIT_DAYS[groups["unit"] or "day"]
    if kind == "past":
        return [_interval(now - timedelta(days=days), now + timedelta(days=1))]
    slack = days / 4 if days > 2 else 0.5
    return [_interval(now - timedelta(days=days + slack), now - timedelta(days=days - slack))]


_UNIT_DAYS = {"day": 1, "week": 7, "weekend": 7, "month": 30, "year": 365}


def _parse_count(text: str | None) -> int:
    words = (text or "one").removeprefix("a ").removesuffix(" of") or "one"
    return int(words) if words.isdigit() else _COUNTS.get(words, 1)


def _parse_relative(groups: dict[str, str | None], now: datetime) -> list[Interval]:
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    word = groups.get("word")
    if word:
        return [_days_interval(today + timedelta(days={"yesterday": -1, "tomorrow": 1}.get(word, 0)), 1)]
    which, named = groups["which"], groups["named"] or "week"
    step = {"this": 0, "next": 1}.get(which or "last", -1)
    if named in _DAYS:
        away = (_DAYS.index(named) - today.weekday()) % 7 or (7 if step else 0)
        return [
            _days_interval(today + timedelta(days=away if step >= 0 else away - 7 if away != 7 else -7), 1)
        ]
    if named in _SEASONS:
        return _relative_season(named, step, today)
    if named == "night":
        return [_days_interval(today + timedelta(days=step), 1)]
    if named == "month":
        month = today.year * 12 + today.month - 1 + step
        year, number = month // 12, month % 12 + 1
        return [_interval(_month_start(year, number), _month_start(year, number + 1))]
    if named == "year":
        return [_interval(_month_start(today.year + step, 1), _month_start(today.year + step + 1, 1))]
    monday = today + timedelta(days=7 * step - today.weekday())
    return [
        _days_interval(monday + timedelta(days=5), 2) if named == "weekend" else _days_interval(monday, 7)
    ]


def _relative_season(name: str, step: int, today: datetime) -> list[Interval]:
    first, last = _SEASONS[name]
    for year in (today.year, today.year - 1):
        start, end = datetime(year, first, 1, tzinfo=UTC), _month_start(year + (last < first), last + 1)
        if step >= 0 or end <= today:
            return [_interval(start, end)]
    return []


def _shift_intervals(found: list[Interval], before: re.Match[str]) -> list[Interval]:
    """The intervals that lie so far before or after the ones found; open-ended without a distance."""
    earlier = before["way"] in ("before", "prior to", "until", "by")
    if before["many"]:
        away = _parse_count(before["count"]) * _UNIT_DAYS[before["unit"]] * 86_400_000
        slack = max(away // 4, 86_400_000)
        if before["count"] == "the":  # "the week before" is the week itself
            return [
                Interval(start - away, start) if earlier else Interval(end, end + away)
                for start, end, _ in found
            ]
        if earlier:
            return [Interval(start - away - slack, start - away + slack) for start, _, _ in found]
        return [Interval(end + away - slack, end + away + slack) for _, end, _ in found]
    if earlier:
        until = before["way"] in ("until", "by")
        return [Interval(0, end if until else start, 0.5) for start, end, _ in found[:1]]
    return [Interval(end, 2**62, 0.5) for _, end, _ in found[:1]]


def _month_start(year: int, month: int) -> datetime:
    return datetime(year + (month - 1) // 12, (month - 1) % 12 + 1, 1, tzinfo=UTC)


def _days_interval(start: datetime, days: int) -> Interval:
    return _interval(start, start + timedelta(days=days))


def _interval(start: datetime, end: datetime) -> Interval:
    return Interval(int(start.timestamp() * 1000), int(end.timestamp() * 1000))


# query: What does a question ask for?


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
_NOT_NAMES = words.STOP_WORDS | {*MONTHS, *(month[:3] for month in MONTHS)}
_MIN_SHORT_NAME = 3
"""Letters of a short form: Mel for Melanie."""

Span = tuple[int, int]


class ParsedQuery(NamedTuple):
    """A question, read."""

    text: str
    encoder_text: str
    """The question as the person named in it would put it: this goes to the encoder."""
    terms: tuple[str, ...]
    """The distinct terms, names of the people in the scope left out."""
    named_speakers: frozenset[int]
    """Which of the scope's speakers it names, by their place in the list."""
    times: tuple[Interval, ...]
    kind: str
    """when, count, where, who, why or what."""
    asks_assistant: bool
    """Whether it asks for what the assistant said."""


def parse_query(text: str, *, now: int, speakers: Sequence[str] = ()) -> ParsedQuery:
    """The question, understood at the moment `now` among these speakers."""
    found = _find_speakers(text, speakers)
    spans = sorted({span for spans in found.values() for span in spans}, reverse=True)
    return ParsedQuery(
        text=text,
        encoder_text=_to_first_person(text, spans),
        terms=tuple(dict.fromkeys(words.terms(_remove_spans(text, spans)))),
        named_speakers=frozenset(found),
        times=intervals(text, now),
        kind=next((kind for kind, pattern in _QUESTION_KINDS if pattern.search(text)), "what"),
        asks_assistant=_ASSISTANT_REFERENCE.search(text) is not None,
    )


def _find_speakers(text: str, speakers: Sequence[str]) -> dict[int, list[Span]]:
    """Which speakers the text names, and where."""
    folded = _fold(text)
    plain = text == text.lower()  # nobody's name has its capital, so every word may be one
    said = [
        (match.group(), match.span())
        for match in _NAME.finditer(folded)
        if (match.group() not in _NOT_NAMES if plain else _may_be_name(text, match))
    ]
    found: dict[int, list[Span]] = {}
    for at, name in enumerate(speakers):
        parts = _name_parts(name)
        if not parts:
            continue
        spans = [
            span for word, span in said if word in parts or (not plain and _is_short_name(word, parts[0]))
        ]
        if words.is_unspaced(parts[0][0]):  # names stand inside of a run of letters
            spans = [match.span() for match in re.finditer(re.escape(parts[0]), folded)]
        if spans:
            found[at] = spans
    return found


def _may_be_name(text: str, match: re.Match[str]) -> bool:
    start, word = match.start(), match.group()
    cased = text[start].lower() != text[start].upper()
    if cased and not text[start].isupper():
        return False
    return word not in words.STOP_WORDS or text[:start].strip()[-1:] not in ("", ".", "?", "!")


def _is_short_name(word: str, first: str) -> bool:
    """Whether it is a short form of a first name."""
    if len(word) < _MIN_SHORT_NAME or word in _NOT_NAMES:
        return False
    return len(first) - len(word) > 1 and first.startswith(word)


@lru_cache(maxsize=4_096)
def _name_parts(name: str) -> tuple[str, ...]:
    """The words of a name, folded."""
    return tuple(word for word in _NAME.findall(_fold(name)) if len(word) > 1 or words.is_unspaced(word))


def _fold(text: str) -> str:
    """The text without case and accents, every character in its place."""
    if text.isascii():
        return text.lower()
    return "".join((normalize("NFKD", char.casefold()) or char)[0] for char in text)


def _to_first_person(text: str, spans: list[Span]) -> str:
    """The text with the people named speaking for themselves."""
    if not spans:
        return text
    for start, end in _merge_spans(spans, text):
        owner = _POSSESSIVE.match(text, end)
        if owner:
            text = f"{text[:start]}my{text[owner.end() :]}"
        else:
            text = f"{text[:start]}{'' if words.is_unspaced(text[start]) else 'I'}{text[end:]}"
    return _PRONOUN.sub(lambda match: _PRONOUNS[match.group()], text)


def _merge_spans(spans: list[Span], text: str) -> list[Span]:
    """The spans from the last to the first, those of one name as one."""
    joined: list[Span] = []
    for start, end in spans:
        if joined and end <= joined[-1][0] and not text[end : joined[-1][0]].strip(" -"):
            joined[-1] = (start, joined[-1][1])
        else:
            joined.append((start, end))
    return joined


def _remove_spans(text: str, spans: list[Span]) -> str:
    for start, end in spans:
        owner = _POSSESSIVE.match(text, end)
        text = f"{text[:start]} {text[owner.end() if owner else end :]}"
    return text
