"""Parse a query: its terms, the speakers it names, the times it refers to, its kind.

Dates may be absolute ("8 May 2023", "2023-05", "summer 2022"), without a year ("in May"), relative to now
("yesterday", "two weeks ago", "last Friday"), or relative to a date ("three days before 5 June"). They are
English; ISO dates work in every language.

The text for the encoder is put into the first person: Ann states her memories as "I …", so her name in the
query would lead its vector away from them.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from unicodedata import normalize

from omoide.retrieval.text import STOP_WORDS, is_unspaced, terms

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
"""The number of years, up to the current one, that a date without a year may refer to."""

_MONTH = r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?" + (
    r"|sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_DAY = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?\b"
_YEAR = r"(?P<year>(?:19|20)\d\d)\b"
_COUNT = r"(?P<count>\d{1,3}|an?|the|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve" + (
    r"|(?:a )?couple(?: of)?|(?:a )?few|several)"
)
_UNIT = r"(?P<unit>day|week|weekend|month|year)s?\b"
_PERIOD = r"(?P<period>week(?:end)?|month|year|monday|tuesday|wednesday|thursday|friday|saturday|sunday" + (
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
    at_now = datetime.fromtimestamp(min(max(now, 0), 32_503_680_000_000) / 1000, UTC)
    for kind, pattern in _PATTERNS:
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
    slack = days / 4 if days > 2 else 0.5
    return [_interval(now - timedelta(days=days + slack), now - timedelta(days=days - slack))]


_UNIT_DAYS = {"day": 1, "week": 7, "weekend": 7, "month": 30, "year": 365}


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
    for year in (today.year, today.year - 1):
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
_MIN_SHORT_NAME = 3
"""The minimum length of a short form, such as Mel for Melanie."""

Span = tuple[int, int]


class ParsedQuery(NamedTuple):
    """A query with what was understood of it."""

    text: str
    encoder_text: str
    """The query in the first person of the speaker it names; this text is embedded."""
    terms: tuple[str, ...]
    """The distinct terms, without the names of speakers in the scope."""
    named_speakers: frozenset[int]
    """The speakers it names, as indexes into the list of speakers."""
    times: tuple[Interval, ...]
    kind: str
    """when, count, where, who, why or what."""
    asks_assistant: bool
    """True if it asks for something that the assistant said."""


def parse_query(text: str, *, now: int, speakers: Sequence[str] = ()) -> ParsedQuery:
    """Parse a query as of the time `now`, in a scope with these speakers."""
    speaker_spans = _find_speakers(text, speakers)
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
    start, word = match.start(), match.group()
    cased = text[start].lower() != text[start].upper()
    if cased and not text[start].isupper():
        return False
    return word not in STOP_WORDS or text[:start].strip()[-1:] not in ("", ".", "?", "!")


def _is_short_name(word: str, first: str) -> bool:
    """Return whether a word is a short form of a first name."""
    if len(word) < _MIN_SHORT_NAME or word in _NOT_NAMES:
        return False
    return len(first) - len(word) > 1 and first.startswith(word)


@lru_cache(maxsize=4_096)
def _name_parts(name: str) -> tuple[str, ...]:
    """Return the folded words of a name."""
    return tuple(word for word in _NAME.findall(_fold(name)) if len(word) > 1 or is_unspaced(word))


def _fold(text: str) -> str:
    """Remove case and accents, keeping every character at its index."""
    if text.isascii():
        return text.lower()
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
