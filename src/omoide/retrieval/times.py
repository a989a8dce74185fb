"""Parse the times that a text refers to.

Dates may be absolute ("8 May 2023", "21.01.2024", "Q3 2025"), without a year ("in May"), relative to now
("yesterday", "an hour ago", "last Friday"), or relative to a date ("three days before 5 June"). They are
English; a table puts those of German, French, Spanish, Japanese and Chinese into English first.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import NamedTuple
from unicodedata import normalize

from omoide.retrieval.text import ends

MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
    "november", "december",
)  # fmt: skip
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_GERMAN_ENDINGS = ("e", "em", "en", "er", "es")


class _Language(NamedTuple):
    """The words of a language, without accents."""

    marks: frozenset[str]
    """Common words that tell the language of a text."""
    words: dict[str, str]
    """English for each word or phrase; the longest that fits is used."""
    pattern: re.Pattern[str]

    def translate(self, text: str) -> str:
        """Return a text with the words of this language in English."""
        return self.pattern.sub(lambda match: self.words[match.group()], text)


def _language(
    marks: str, months: str, weekdays: str, words: dict[str, str], day_prefix: str = ""
) -> _Language:
    table = {
        **dict(zip(months.split(), MONTHS, strict=True)),
        **{name: day_prefix + day for name, day in zip(weekdays.split(), WEEKDAYS, strict=True)},
        **{name: english for names, english in words.items() for name in names.split("|")},
    }
    longest_first = "|".join(map(re.escape, sorted(table, key=lambda name: -len(name))))
    return _Language(frozenset(marks.split()), table, re.compile(rf"(?<!\w)(?:{longest_first})(?!\w)"))


def _inflect(stem: str) -> str:
    return "|".join(f"{stem}{ending}" for ending in _GERMAN_ENDINGS)


_ENGLISH_MARKS = frozenset(
    """
    the what did is my when where how of and which who do does you with for this that i we they she it are
    were
    had have last week month year ago yesterday today tomorrow before after between from since until
    """.split()  # noqa: SIM905
)

_LANGUAGES = (
    _language(
        """
        ich du wir mein meine meinen mir mich uns und der das ist habe hast hat haben hatte hatten nicht
        wann wo wie
        wer welche welcher welches gemacht ein eine einen im bei zum zur wurde sind mit auf den dem es los
        sich
        """,
        "januar februar marz april mai juni juli august september oktober november dezember",
        "montag dienstag mittwoch donnerstag freitag samstag sonntag",
        {
            "janner": "january", "maerz": "march", "sonnabend": "saturday",
            "gestern": "yesterday", "heute": "today", "morgen": "tomorrow",
            "vorgestern": "two days before today", "ubermorgen": "two days after today",
            "heute morgen|heute fruh|heute vormittag": "this morning", "heute nachmittag": "this afternoon",
            "heute abend": "this evening", "heute nacht": "tonight",
            "gestern morgen|gestern fruh|gestern vormittag": "yesterday morning", "am morgen": "morning",
            "nachmittag|am nachmittag": "afternoon", "abend|am abend": "evening",
            "nacht|in der nacht": "night",
            _inflect("letzt"): "last", _inflect("vergangen"): "last", _inflect("vorig"): "last",
            _inflect("dies"): "this", _inflect("nachst"): "next", _inflect("kommend"): "next",
            "woche|wochen": "week", "wochenende": "weekend", "tag|tage|tagen|tages": "day",
            "monat|monate|monaten|monats": "month", "jahr|jahre|jahren|jahres": "year", "quartal": "quarter",
            "stunde|stunden": "hour", "minuten": "minutes",
            "vor": "ago", "seit|ab": "since", "bis|bis zum": "until", "nach": "after", "im": "in",
            "zwischen": "between", "und": "and", "von|vom": "from", "der|dem|den": "the", "um": "at",
            "anfang": "early", "mitte": "mid", "ende": "late",
            _inflect("erst"): "first", _inflect("zweit"): "second", _inflect("dritt"): "third",
            _inflect("viert"): "fourth", "halfte": "half of",
            "ein|einem|einer|eine|einen": "a", "zwei": "two", "drei": "three", "vier": "four", "funf": "five",
            "sechs": "six", "sieben": "seven", "acht": "eight", "neun": "nine", "zehn": "ten",
            "elf": "eleven",
            "zwolf": "twelve", "paar|ein paar|einigen": "few",
            "fruhling|fruhjahr": "spring", "sommer": "summer", "herbst": "autumn",
            "weihnachten": "christmas", "silvester": "new year's",
        },
    ),
    _language(
        """
        je j ai est que qu quoi ou quand nous avons fait les des une dans mon ma mes qui le la du au vous tu
        as sur
        en se un pour avec comment pas cette c etait s passe elle il
        """,
        "janvier fevrier mars avril mai juin juillet aout septembre octobre novembre decembre",
        "lundi mardi mercredi jeudi vendredi samedi dimanche",
        {
            "hier": "yesterday", "aujourd'hui": "today", "demain": "tomorrow",
            "hier soir": "yesterday evening",
            "avant-hier": "two days before today", "apres-demain": "two days after today",
            "matin|au matin": "morning", "apres-midi": "afternoon", "soir|au soir": "evening",
            "nuit": "night",
            "dernier|derniere|derniers|dernieres|passe|passee": "last", "prochain|prochaine": "next",
            "ce|cet|cette": "this", "cette nuit": "tonight",
            "semaine|semaines": "week", "week-end": "weekend", "jour|jours": "day", "mois": "month",
            "an|ans|annee|annees": "year", "trimestre": "quarter", "heure|heures": "hour",
            "il y a": "ago", "depuis": "since", "jusqu'au|jusqu'en|jusqu'a": "until", "avant": "before",
            "apres": "after", "en|au mois de|au": "in", "entre": "between", "et": "and", "le": "the",
            "de|du": "of",
            "a": "to", "debut": "early", "mi": "mid", "fin": "late",
            "premier": "first", "deuxieme": "second", "troisieme": "third", "quatrieme": "fourth",
            "un|une": "a", "deux": "two", "trois": "three", "quatre": "four", "cinq": "five", "sept": "seven",
            "huit": "eight", "neuf": "nine", "dix": "ten", "onze": "eleven", "douze": "twelve",
            "quelques": "few", "printemps": "spring", "l'ete|cet ete": "summer", "automne": "autumn",
            "hiver": "winter", "noel": "christmas",
        },
        "on ",
    ),
    _language(
        """
        que el la los las mi mis donde cuando en es una un hice hicimos fue con por mas como quien yo
        nosotros paso
        se lo tu del al y hizo para he ha
        """,
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
        "lunes martes miercoles jueves viernes sabado domingo",
        {
            "setiembre": "september", "ayer": "yesterday", "hoy": "today", "manana": "tomorrow",
            "anteayer|antes de ayer": "two days before today", "pasado manana": "two days after today",
            "esta manana": "this morning", "esta tarde": "this afternoon", "esta noche": "tonight",
            "anoche|ayer por la noche": "last night", "por la manana|de la manana": "morning",
            "por la tarde|de la tarde": "afternoon", "por la noche|de la noche": "night",
            "pasado|pasada|pasados|pasadas|ultimo|ultima": "last", "proximo|proxima": "next",
            "este|esta": "this",
            "semana|semanas": "week", "fin de semana": "weekend", "dia|dias": "day", "mes|meses": "month",
            "ano|anos": "year", "trimestre": "quarter", "hora|horas": "hour", "minuto|minutos": "minute",
            "hace": "ago", "desde": "since", "hasta": "until", "antes de|antes del": "before",
            "despues de|despues del": "after", "en|durante": "in", "entre": "between", "y": "and",
            "el": "the",
            "de|del": "of", "a|al": "to", "a las|a la": "at",
            "principios de": "early", "mediados de": "mid", "finales de": "late",
            "primer|primero": "first", "segundo": "second", "tercer|tercero": "third", "cuarto": "fourth",
            "un|una|uno": "a", "dos": "two", "tres": "three", "cuatro": "four", "cinco": "five",
            "seis": "six",
            "siete": "seven", "ocho": "eight", "nueve": "nine", "diez": "ten", "once": "eleven",
            "doce": "twelve",
            "unos|unas|algunos|algunas": "few", "primavera": "spring", "verano": "summer", "otono": "autumn",
            "invierno": "winter", "navidad": "christmas",
        },
        "on ",
    ),
)  # fmt: skip

_IDEOGRAPH = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_IDEOGRAPHIC_WORDS = {
    name: english
    for names, english in {
        "昨日 昨天 きのう": "yesterday",
        "今日 今天": "today",
        "明日 明天": "tomorrow",
        "一昨日 おととい 前天": "two days before today",
        "明後日 后天 後天": "two days after today",
        "今朝 今早 今天早上 今天上午": "this morning",
        "昨夜 昨晩 昨晚": "last night",
        "今夜 今晩 今晚": "tonight",
        "先週 上周 上週 上星期 上个星期 上個星期": "last week",
        "今週 本周 本週 这周 這週 这个星期": "this week",
        "来週 下周 下週": "next week",
        "先月 上个月 上個月 上月": "last month",
        "今月 本月 这个月 這個月": "this month",
        "来月 下个月 下個月": "next month",
        "去年 昨年": "last year",
        "今年": "this year",
        "来年 明年": "next year",
    }.items()
    for name in names.split()
}
_IDEOGRAPHIC_WORD = re.compile("|".join(sorted(_IDEOGRAPHIC_WORDS, key=lambda name: -len(name))))
_IDEOGRAPHIC_UNITS = {"分": "minute", "时": "hour", "時": "hour", "小": "hour", "日": "day", "天": "day",
"週": "week"} | {
    "周": "week", "星": "week", "月": "month", "年": "year",
}  # fmt: skip
_IDEOGRAPHIC_AGO = re.compile(
    r"([\d一二三四五六七八九十两兩]{1,3})\s*[个個か箇カヶケ]?\s*"
    r"(分|時|时|小|日|天|週|周|星|月|年)(?:钟|鐘|間|间|时|時|期)?(?:以|之)?前"
)
_IDEOGRAPHIC_DATE = re.compile(r"(?:(\d{4})\s*年\s*)?(?<!\d)(\d{1,2})\s*月(?:\s*(\d{1,2})\s*[日号號])?")
_IDEOGRAPHIC_YEAR = re.compile(r"(?<!\d)(\d{4})\s*年")
_IDEOGRAPHIC_DIGITS = {digit: at for at, digit in enumerate("一二三四五六七八九", 1)} | {"两": 2, "兩": 2}

_COUNT_WORD = r"(?:\d{1,3}|an?|few|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
_PERIOD_WORD = rf"week|weekend|month|year|quarter|night|spring|summer|autumn|winter|{'|'.join(WEEKDAYS)}"
_REORDERED = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (rf"\bago ({_COUNT_WORD}) (minutes?|hour|day|week|month|year)", r"\1 \2 ago"),
        (r"\blast on ", "last "),
        (rf"(?:\bon )?\b({_PERIOD_WORD}) (last|next)\b", r"\2 \1"),
        (rf"\b({_COUNT_WORD}) last (hour|day|week|month|year)\b", r"last \1 \2"),
        (r"\bago (?=the |\d|christmas)", "before "),
    )
)  # fmt: skip


def translate(text: str) -> str:
    """Return a folded text with the time expressions of other languages in English."""
    if _IDEOGRAPH.search(text):
        return _translate_ideographs(text)
    words = {*re.findall(r"[^\W\d_]+", text)}
    scores = [len(words & language.marks) for language in _LANGUAGES]
    best = max(scores)
    if len(words & _ENGLISH_MARKS) > best:
        return text
    translated = text
    for language, score in zip(_LANGUAGES, scores, strict=True):
        if score == best:  # all of them where no word tells: "gestern" alone is clear enough
            translated = language.translate(translated)
    if translated != text:
        for pattern, replacement in _REORDERED:
            translated = pattern.sub(replacement, translated)
    return translated


def _translate_ideographs(text: str) -> str:
    text = _IDEOGRAPHIC_AGO.sub(
        lambda match: f" {_number(match[1])} {_IDEOGRAPHIC_UNITS[match[2]]} ago ", text
    )
    text = _IDEOGRAPHIC_DATE.sub(_english_date, text)
    text = _IDEOGRAPHIC_YEAR.sub(r" \1 ", text)
    return _IDEOGRAPHIC_WORD.sub(lambda match: f" {_IDEOGRAPHIC_WORDS[match.group()]} ", text)


def _english_date(match: re.Match[str]) -> str:
    year, month, day = match.groups()
    if not 1 <= int(month) <= 12:
        return match.group()
    parts = (day or ("" if year else "in"), MONTHS[int(month) - 1], year or "")
    return f" {' '.join(part for part in parts if part)} "


def _number(text: str) -> int:
    if text.isdecimal():
        return int(text)
    tens, has_tens, ones = text.partition("十")
    if not has_tens:
        return _IDEOGRAPHIC_DIGITS.get(text[-1], 1)
    return 10 * _IDEOGRAPHIC_DIGITS.get(tens, 1) + _IDEOGRAPHIC_DIGITS.get(ones, 0)


_YEARS_BACK = 6
"""Number of years, up to the current one, that a date without a year may refer to."""
_OTHER_WEIGHT = 0.5
"""Weight of what a text may also mean: another year than the latest, a time without a beginning or end."""
_MAX_LENGTH = 2_000
"""Characters of a text that are read, half of them at its end; parsing takes time in proportion."""
_MAX_TIMES = 12
"""Time expressions of a text that are used; each is compared with the time of every candidate."""
_MAX_PREFIX = 60
"""Characters before a date in which the words that change it stand."""
_LAST_YEAR_3000 = 32_503_680_000_000
_FOREVER = 2**62
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)

_MONTH_NUMBERS = {short: at for at, name in enumerate(MONTHS, 1) for short in (name, name[:3])} | {"sept": 9}
_SEASONS = {"spring": (3, 5), "summer": (6, 8), "autumn": (9, 11), "fall": (9, 11), "winter": (12, 2)}
_HOLIDAYS = {
    "christmas": (12, 18, 31), "xmas": (12, 18, 31), "halloween": (10, 25, 31), "thanksgiving": (11, 20, 30),
    "valentine": (2, 10, 16), "new year's": (12, 30, 31), "new years": (12, 30, 31),
}  # fmt: skip
_DAY_PARTS = {"morning": (5, 12), "afternoon": (12, 18), "evening": (17, 24), "night": (18, 30)}
"""First hour of a part of a day, and the hour after it; a night ends in the next morning."""
_COUNTS = {
    name: float(at)
    for at, name in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905
    )
} | {"a": 1.0, "an": 1.0, "the": 1.0, "last": 1.0, "couple": 2.0, "few": 3.0, "several": 4.0, "half an": 0.5}
_ORDINALS = {
    name: at
    for at, names in enumerate(("first 1st", "second 2nd", "third 3rd", "fourth 4th"), 1)
    for name in names.split()
}
_DECADES = {"sixties": 1960, "seventies": 1970, "eighties": 1980, "nineties": 1990}
_UNITS = {
    "minute": timedelta(minutes=1), "min": timedelta(minutes=1), "hour": _HOUR, "hr": _HOUR, "day": _DAY,
    "week": timedelta(days=7), "weekend": timedelta(days=7), "month": timedelta(days=30),
    "quarter": timedelta(days=91), "year": timedelta(days=365),
}  # fmt: skip

_MONTH_NAME = r"jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?" + (
    r"|sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?"
)
_MONTH = rf"(?P<month>{_MONTH_NAME})\b\.?"
_DAY_NUMBER = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th|er)?\b\.?"
_LAST_DAY = r"(?P<last_day>[0-3]?\d)(?:st|nd|rd|th)?\b\.?"
_YEAR_DIGITS = r"(?:19|20)\d\d"
_YEAR_NUMBER = rf"(?P<year>{_YEAR_DIGITS})"
_YEAR = rf"{_YEAR_NUMBER}\b"
_MONTH_NUMBER = r"(?P<month>[01]?\d)"
_COUNT = (
    r"(?P<count>\d{1,3}|half an|an?|the|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
    r"|(?:a )?couple(?: of)?|(?:a )?few|several)"
)
_UNIT = rf"(?P<unit>{'|'.join(sorted(_UNITS, key=len, reverse=True))})s?\b"
_WEEKDAY = rf"(?:{'|'.join(WEEKDAYS)})"
_DAY_PART = rf"(?P<day_part>{'|'.join(_DAY_PARTS)})\b"
_PERIOD = (
    rf"(?P<period>weekend|week|month|quarter|year|{'|'.join(_SEASONS)}|{'|'.join(_DAY_PARTS)}|{_WEEKDAY})\b"
)
_ORDINAL = rf"(?P<ordinal>{'|'.join(_ORDINALS)}|last)"
_MONTH_PART = (
    r"(?P<part>\b(?:early|mid|late|(?:the )?(?:beginning|start|middle|end|first half|second half)"
    r" (?:of|in))[ -])"
)
_TO = r"(?: ?[-–—] ?| (?:and|to|until|till|through) (?:the )?)"
# Before and after the digits of a date: no part of a longer number, a version, a path or an id.
_APART = r"(?<![\w./:#$€£-])(?<!\d,)"
_ENDS = r"(?![\w/]|[.,:-]\d)"

# The most specific first: characters that one pattern used are not available to the next ones, so the year of
# "5 May 2023" is not found again as a year.
_PATTERNS = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("date", rf"{_APART}{_YEAR_NUMBER}-{_MONTH_NUMBER}(?:-(?P<day>[0-3]\d))?(?:{_ENDS}|(?=t\d\d:))"),
        ("date", rf"{_APART}{_YEAR_NUMBER}(?P<sign>[/.]){_MONTH_NUMBER}(?P=sign)(?P<day>[0-3]?\d){_ENDS}"),
        ("numeric", rf"{_APART}(?P<one>[0-3]?\d)(?P<sign>[/.-])(?P<two>[0-3]?\d)(?P=sign)"
                    rf"{_YEAR_NUMBER}{_ENDS}"),
        ("date", r"(?:^|\b(?:on|am|from|since|until|by|before|after|between|and|to|the|of) )"
                 r"(?P<day>[0-3]?\d)\.(?P<month>[01]?\d)\.(?!\w)"),
        ("days", rf"\b{_DAY_NUMBER}{_TO}{_LAST_DAY}(?: of)? {_MONTH},?(?: (?:of )?{_YEAR})?"),
        ("days", rf"\b{_MONTH} {_DAY_NUMBER}{_TO}{_LAST_DAY}(?:,? {_YEAR})?(?! (?:{_MONTH_NAME})\b)"),
        ("months", rf"\b(?:between|from|of) {_MONTH}{_TO}(?P<last_month>{_MONTH_NAME})\b\.?,?"
                   rf"(?: (?:of )?{_YEAR})?"),
        ("nth", rf"\b{_ORDINAL} (?P<unit>week|weekend) (?:of|in) {_MONTH},?(?: (?:of )?{_YEAR})?"),
        ("date", rf"\b{_DAY_NUMBER}(?: of)? {_MONTH},?(?: (?:of )?{_YEAR})?"),
        ("date", rf"\b{_MONTH} {_DAY_NUMBER}(?:,? {_YEAR})?"),
        ("date", rf"{_MONTH_PART}?\b{_MONTH},?(?: of)? {_YEAR}"),
        ("quarter", rf"\b{_YEAR}[ -]?q(?P<number>[1-4])\b"),
        ("quarter", rf"\bq(?P<number>[1-4])\b(?:,? (?:of |in )?{_YEAR})?"),
        ("quarter", rf"\b(?P<ordinal>{'|'.join(_ORDINALS)}) quarter\b(?:,? (?:of |in )?{_YEAR})?"),
        ("half", rf"\b(?:h(?P<number>[12])|(?P<ordinal>first|second) half(?: of)?)(?: of)? {_YEAR}"),
        ("decade", r"\b(?P<decade>(?:19|20)\d0)'?s\b"),
        ("decade", rf"\bthe (?P<decade>{'|'.join(_DECADES)})\b"),
        ("season", rf"\b(?P<season>{'|'.join(_SEASONS)})(?: of|,)? {_YEAR}"),
        ("holiday", rf"\b(?P<holiday>{'|'.join(_HOLIDAYS)})(?:'?s)?(?: (?:of |in )?{_YEAR})?"),
        ("past", rf"\b(?:last|past|previous) {_COUNT} {_UNIT}"),
        ("ago", rf"\b{_COUNT} {_UNIT} ago\b"),
        ("relative", rf"\b(?P<which>last|this|next|previous|past|current|coming) {_PERIOD}"),
        ("word", r"\b(?P<word>yesterday|today|tonight|tomorrow)\b"),
        ("date", rf"{_MONTH_PART}{_MONTH}(?! \d)"),
        ("date", r"\b(?:in|during|since|until|by|before|after|of|last|this|from|between)[ -]"
                 rf"{_MONTH}(?! \d)"),
        ("weekday", r"\b(?:on|am|since|until|by|before|after|from|between|and|to) "
                    rf"(?P<weekday>{_WEEKDAY})\b"),
        ("season", r"\b(?:in|during|over|since|that|the)(?: the)? (?P<season>spring|summer|autumn|winter)\b"),
        ("year", rf"{_APART}{_YEAR_NUMBER}{_ENDS}"),
    )
)  # fmt: skip
_SHIFTABLE_KINDS = ("date", "days", "weekday", "year")
_FIRST_GROUPS = ("weekday", "month", "day", "year")
"""Groups that a match begins with: a preposition before them may shift the time."""

# Around a number: what tells that it is a version, a price or a name, not a date.
_NOT_DATE_BEFORE = re.compile(
    r"(?:\b(?:version|release|v|ver|build|port|room|error|code|id|number|no\.?|nr\.?|ticket|issue|order|invoice|page"
    r"|line|windows|office|server|iso|rfc|usd|eur|ip|address)[ :]*|[#$€£¥] ?|\d{3} )$"
)
_NOT_YEAR_AFTER = re.compile(
    r" ?(?:[$€£¥%]|(?:usd|eur|euros?|dollars?|pounds?|bytes|kb|mb|gb|ms|km|kg|meters|metres|miles|people"
    r"|users|words|tokens|lines|times|rows|points|calories|steps)\b)"
)
_SHIFT = re.compile(
    rf"\b(?:(?P<many>(?:{_COUNT}|(?P<which>last)) {_UNIT} )|(?:the |last )?(?P<named>{_WEEKDAY}|weekend) )?"
    r"(?P<way>before|after|prior to|following|since|until|by) (?:the )?$"
)
_WEEK_OF = re.compile(r"\b(?P<unit>week|weekend) of (?:the )?$")
_RANGE_BEFORE = re.compile(r"\b(?:between|from|of) (?:the |on )?$")
_RANGE_TO = re.compile(rf"{_TO}(?:on )?")
_CLOCK = r"(?P<hour>[012]?\d)(?:[:h](?P<minute>[0-5]\d))? ?(?P<clock>[ap]m\b|[ap]\.m\.|uhr\b|o'clock\b|h\b)?"
_CLOCK_BEFORE = re.compile(rf"(?:(?P<at>\b(?:at|around|about)) |(?<![\w.:])){_CLOCK},? ?(?:on )?(?:the )?$")
_CLOCK_AFTER = re.compile(rf",? ?(?:(?P<at>t|at|around|about|to) ?)?{_CLOCK}(?![\w:])")
_DAY_PART_BEFORE = re.compile(rf"\b{_DAY_PART}(?: of)?(?: on)?(?: the)? $")
_DAY_PART_AFTER = re.compile(rf",?(?: in the| at)? {_DAY_PART}")


class Interval(NamedTuple):
    """A half-open interval of time, in milliseconds."""

    start: int
    end: int
    weight: float = 1.0
    is_exact: bool = True
    """False for vague words, whose limits are estimates: "a few weeks ago", "early March", "last summer"."""


Groups = dict[str, str | None]


class _Found(NamedTuple):
    """A time expression and its place in the text."""

    start: int
    end: int
    kind: str
    groups: Groups
    intervals: list[Interval]


def intervals(text: str, now: int) -> tuple[Interval, ...]:
    """Return the times that a text refers to, as seen at the time `now`; the likeliest of several first.

    A date without a year, a weekday, and a numeric date that may be read in two ways give several intervals.
    """
    readable = translate(_fold(text))
    # Limited to the year 3000, so that the arithmetic below stays in the range of datetime.
    at_now = datetime.fromtimestamp(min(max(now, 0), _LAST_YEAR_3000) / 1000, UTC)
    found = _find(readable, at_now)
    shifts = {one.start: shift for one in found if (shift := _SHIFT.search(_before(readable, one)))}
    # "The Sunday before 5 June" names one time; its weekday alone is none.
    taken = [(start - len(shift.group()), start) for start, shift in shifts.items() if shift["way"]]
    found = [one for one in found if not any(first <= one.start < end for first, end in taken)]
    result: list[Interval] = []
    skipped = None
    for one, following in pairwise((*found, None)):
        if one is None or one is skipped:
            continue
        if following is not None and (joined := _join_range(readable, one, following, at_now)):
            skipped = following
            result.extend(joined)
            continue
        parsed = _narrow(one, readable)
        shift = shifts.get(one.start)
        result.extend(_shift(parsed, shift) if shift else parsed)
    # An interval that lies before 1970 is empty.
    return tuple(interval for interval in result if interval.start < interval.end)


def _fold(text: str) -> str:
    """Remove case and accents, and cut a long text to its beginning and end."""
    text = ends(text, _MAX_LENGTH)
    if not text.isascii():
        text = re.sub("[\u0300-\u036f]", "", normalize("NFKD", text)).replace("’", "'")
    return text.casefold()


def _find(text: str, now: datetime) -> list[_Found]:
    """Return the time expressions of a text, in order."""
    is_used = [False] * len(text)
    found: list[_Found] = []
    for kind, pattern in _PATTERNS:
        for match in pattern.finditer(text):
            groups = match.groupdict()
            # Without its preposition, which may shift it: "since May".
            start = min((match.start(name) for name in _FIRST_GROUPS if groups.get(name)), default=-1)
            if start < 0 or groups.get("part") or kind not in _SHIFTABLE_KINDS:
                start = match.start()
            end = match.end()
            if any(is_used[start:end]) or _is_other_number(kind, text, start, end):
                continue
            parsed = _parse(kind, groups, now)
            if parsed and len(found) < _MAX_TIMES:
                is_used[start:end] = [True] * (end - start)
                found.append(_Found(start, end, kind, groups, parsed))
    return sorted(found, key=lambda one: one.start)


def _is_other_number(kind: str, text: str, start: int, end: int) -> bool:
    """Return True for the digits of a version, a price or a name."""
    if not text[start].isdigit() or kind not in ("date", "numeric", "year"):
        return False
    if kind == "year" and _NOT_YEAR_AFTER.match(text, end):
        return True
    return _NOT_DATE_BEFORE.search(text[max(start - 20, 0) : start]) is not None


def _before(text: str, one: _Found) -> str:
    return text[max(one.start - _MAX_PREFIX, 0) : one.start]


def _parse(kind: str, groups: Groups, now: datetime) -> list[Interval]:
    try:
        return _PARSERS[kind](groups, now)
    except (ValueError, OverflowError):  # the 31st of June, a year before 1
        return []


def _in_years(groups: Groups, now: datetime, make: Callable[[int], Interval | None]) -> list[Interval]:
    """Return the interval of the year, or else of each year that may be meant, the latest past one first."""
    if year := groups.get("year"):
        made = make(int(year))
        return [] if made is None else [made]
    past: list[Interval] = []
    coming: list[Interval] = []
    for number in range(now.year + 1, now.year - _YEARS_BACK, -1):
        one = make(number)
        if one is not None:
            (past if one.start <= now.timestamp() * 1000 else coming).append(one)
    return _rank_alternatives([*past, *coming[-1:]])


def _rank_alternatives(alternatives: Sequence[Interval]) -> list[Interval]:
    """Return alternatives, the first of which is the likeliest."""
    return [one._replace(weight=_OTHER_WEIGHT) if at else one for at, one in enumerate(alternatives)]


def _month_number(text: str | None) -> int:
    name = (text or "").rstrip(".")
    return int(name) if name.isdigit() else _MONTH_NUMBERS[name]


def _parse_date(groups: Groups, now: datetime) -> list[Interval]:
    month, day, part = _month_number(groups["month"]), groups.get("day"), groups.get("part")

    def make(year: int) -> Interval | None:
        days = monthrange(year, month)[1]
        if day:
            return _days(datetime(year, month, int(day), tzinfo=UTC), 1) if int(day) <= days else None
        first, last = _month_part(part, days)
        is_exact = part is None or "half" in part
        return _days(datetime(year, month, first, tzinfo=UTC), last - first + 1, is_exact=is_exact)

    return _in_years(groups, now, make)


def _month_part(part: str | None, days: int) -> tuple[int, int]:
    if part is None:
        return 1, days
    if "half" in part:
        return (1, 15) if "first" in part else (16, days)
    # The parts overlap: such words are vague.
    if "early" in part or "beginning" in part or "start" in part:
        return 1, 12
    if "mid" in part:
        return 9, 22
    return 18, days


def _parse_numeric(groups: Groups, now: datetime) -> list[Interval]:
    """Parse day.month.year, and with other signs month/day/year too."""
    one, two = groups["one"] or "", groups["two"] or ""
    orders = {(one, two): None} if groups["sign"] == "." else {(one, two): None, (two, one): None}
    parsed = [
        interval
        for day, month in orders
        for interval in _parse("date", {**groups, "day": day, "month": month}, now)
    ]
    return [*dict.fromkeys(parsed)]


def _parse_days(groups: Groups, now: datetime) -> list[Interval]:
    first, last, month = int(groups["day"] or 1), int(groups["last_day"] or 1), _month_number(groups["month"])

    def make(year: int) -> Interval | None:
        if not first <= last <= monthrange(year, month)[1]:
            return None
        return _days(datetime(year, month, first, tzinfo=UTC), last - first + 1)

    return _in_years(groups, now, make)


def _parse_months(groups: Groups, now: datetime) -> list[Interval]:
    first, last = _month_number(groups["month"]), _month_number(groups["last_month"])
    # The year stands at the end: "from November to February 2024" begins in 2023.
    return _in_years(
        groups,
        now,
        lambda year: _interval(_month_start(year - (last < first), first), _month_start(year, last + 1)),
    )


def _parse_nth(groups: Groups, now: datetime) -> list[Interval]:
    """Parse the n-th week or weekend of a month."""
    month, number = _month_number(groups["month"]), _ORDINALS.get(groups["ordinal"] or "")

    def make(year: int) -> Interval:
        days = monthrange(year, month)[1]
        if groups["unit"] == "weekend":
            saturday = 1 + (5 - datetime(year, month, 1, tzinfo=UTC).weekday()) % 7
            day = saturday + 7 * (number - 1) if number else saturday + 7 * ((days - saturday) // 7)
            return _interval(
                _month_start(year, month) + (day - 1) * _DAY, _month_start(year, month) + (day + 1) * _DAY
            )
        day = 7 * (number - 1) + 1 if number else days - 6
        return _days(datetime(year, month, day, tzinfo=UTC), 7)

    return _in_years(groups, now, make)


def _parse_part_of_year(months: int) -> Callable[[Groups, datetime], list[Interval]]:
    def parse(groups: Groups, now: datetime) -> list[Interval]:
        number = int(groups.get("number") or 0) or _ORDINALS[groups["ordinal"] or ""]
        first = months * (number - 1) + 1
        return _in_years(
            groups, now, lambda year: _interval(_month_start(year, first), _month_start(year, first + months))
        )

    return parse


def _parse_decade(groups: Groups, now: datetime) -> list[Interval]:
    decade = groups["decade"] or ""
    year = _DECADES.get(decade) or int(decade)
    return [_interval(_month_start(year, 1), _month_start(year + 10, 1))]


def _parse_season(groups: Groups, now: datetime) -> list[Interval]:
    return _in_years(groups, now, lambda year: _season(groups["season"] or "", year))


def _season(name: str, year: int) -> Interval:
    first, last = _SEASONS[name]
    return _interval(_month_start(year, first), _month_start(year + (last < first), last + 1), is_exact=False)


def _parse_holiday(groups: Groups, now: datetime) -> list[Interval]:
    month, first, last = _HOLIDAYS[groups["holiday"] or ""]
    return _in_years(
        groups,
        now,
        lambda year: _days(datetime(year, month, first, tzinfo=UTC), last - first + 1, is_exact=False),
    )


def _parse_year(groups: Groups, now: datetime) -> list[Interval]:
    return _in_years(groups, now, lambda year: _interval(_month_start(year, 1), _month_start(year + 1, 1)))


def _parse_past(groups: Groups, now: datetime) -> list[Interval]:
    unit = _UNITS[groups["unit"] or "day"]
    end = now + (_DAY if unit >= _DAY else timedelta(minutes=1))
    return [_interval(now - _parse_count(groups["count"]) * unit, end)]


def _parse_ago(groups: Groups, now: datetime) -> list[Interval]:
    count, name = _parse_count(groups["count"]), groups["unit"] or "day"
    if name == "day" and count < 4:
        return [_days(_midnight(now) - int(count) * _DAY, 1)]
    distance = count * _UNITS[name]
    # "Three weeks ago" is seldom exact: a quarter of the distance either way, and half a unit at least.
    slack = max(distance / 4, _UNITS[name] / 2) if _UNITS[name] < _DAY else distance / 4
    return [_interval(now - distance - slack, now - distance + slack, is_exact=False)]


def _parse_count(text: str | None) -> float:
    number = (text or "one").removeprefix("a ").removesuffix(" of") or "one"
    return float(number) if number.isdecimal() else _COUNTS.get(number, 1.0)


def _parse_word(groups: Groups, now: datetime) -> list[Interval]:
    word = groups["word"] or ""
    today = _midnight(now)
    if word == "tonight":
        return [_hours(today, *_DAY_PARTS["night"])]
    return [_days(today + timedelta(days={"yesterday": -1, "tomorrow": 1}.get(word, 0)), 1)]


def _parse_weekday(groups: Groups, now: datetime) -> list[Interval]:
    today = _midnight(now)
    # The one before today, or else the coming one.
    back = (today.weekday() - WEEKDAYS.index(groups["weekday"] or "")) % 7 or 7
    return _rank_alternatives([_days(today - back * _DAY, 1), _days(today + (7 - back) * _DAY, 1)])


def _parse_relative(groups: Groups, now: datetime) -> list[Interval]:
    today, period = _midnight(now), groups["period"] or "week"
    step = {"this": 0, "current": 0, "next": 1, "coming": 1}.get(groups["which"] or "last", -1)
    if period in WEEKDAYS:
        # "Last Friday" said on a Friday is a week ago, and "next Friday" a week ahead.
        days = (WEEKDAYS.index(period) - today.weekday()) % 7 or (7 if step else 0)
        return [_days(today + timedelta(days=days if step >= 0 else days - 7 if days != 7 else -7), 1)]
    if period in _SEASONS:
        # "Last summer" is over: in May it is that of the year before.
        seasons = [_season(period, year) for year in range(today.year + 1, today.year - 3, -1)]
        if step < 0:
            return [one for one in seasons if one.end <= today.timestamp() * 1000][:1]
        return (
            [_season(period, today.year)]
            if not step
            else [one for one in reversed(seasons) if one.start > today.timestamp() * 1000][:1]
        )
    if period in _DAY_PARTS:
        return [_hours(today + step * _DAY, *_DAY_PARTS[period])]
    months = {"month": 1, "quarter": 3, "year": 12}.get(period)
    if months:
        first = (today.month - 1) // months * months + 1 + step * months
        return [_interval(_month_start(today.year, first), _month_start(today.year, first + months))]
    monday = today + timedelta(days=7 * step - today.weekday())
    return [_days(monday + 5 * _DAY, 2) if period == "weekend" else _days(monday, 7)]


_PARSERS: dict[str, Callable[[Groups, datetime], list[Interval]]] = {
    "date": _parse_date,
    "numeric": _parse_numeric,
    "days": _parse_days,
    "months": _parse_months,
    "nth": _parse_nth,
    "quarter": _parse_part_of_year(3),
    "half": _parse_part_of_year(6),
    "decade": _parse_decade,
    "season": _parse_season,
    "holiday": _parse_holiday,
    "past": _parse_past,
    "ago": _parse_ago,
    "relative": _parse_relative,
    "word": _parse_word,
    "weekday": _parse_weekday,
    "year": _parse_year,
}


def _join_range(text: str, first: _Found, last: _Found, now: datetime) -> list[Interval]:
    """Return the interval of "between … and …", or nothing if two times are not such a range."""
    if not _RANGE_TO.fullmatch(text, first.end, last.start) or not _RANGE_BEFORE.search(_before(text, first)):
        return []
    end, begins = last.intervals[0], first.intervals
    if (year := last.groups.get("year")) and "year" in first.groups and not first.groups["year"]:
        # The year stands at the end: "from 28 December to 3 January 2024".
        begins = [
            one
            for number in (int(year), int(year) - 1)
            for one in _parse(first.kind, {**first.groups, "year": str(number)}, now)
        ]
    starts = [one.start for one in begins]
    if first.kind == "weekday":
        starts += [start - 7 * 86_400_000 for start in starts]
    start = max((start for start in starts if start <= end.start), default=None)
    return [] if start is None else [Interval(start, end.end)]


def _narrow(one: _Found, text: str) -> list[Interval]:
    """Widen a day to the week that is asked for, or narrow it to the part of the day or the hour."""
    before = _before(text, one)
    if not all(interval.end - interval.start == 86_400_000 for interval in one.intervals):
        return one.intervals
    if week := _WEEK_OF.search(before):
        return [_week_of(interval, week["unit"]) for interval in one.intervals]
    part = _DAY_PART_AFTER.match(text, one.end) or _DAY_PART_BEFORE.search(before)
    if part:
        first, end = _DAY_PARTS[part["day_part"]]
        return [_within(interval, first * 60, end * 60) for interval in one.intervals]
    for clock in (_CLOCK_AFTER.match(text, one.end), _CLOCK_BEFORE.search(before)):
        minutes = _minutes_of_day(clock) if clock else ()
        if minutes:
            return [_within(interval, at, at + 60) for interval in one.intervals for at in minutes]
    return one.intervals


def _week_of(day: Interval, unit: str) -> Interval:
    date = datetime.fromtimestamp(day.start / 1000, UTC)
    monday = date - date.weekday() * _DAY
    week = _days(monday + 5 * _DAY, 2) if unit == "weekend" else _days(monday, 7)
    return week._replace(weight=day.weight)


def _minutes_of_day(clock: re.Match[str]) -> tuple[int, ...]:
    """Return the minutes of the day that a clock time may mean; none for a number that is no time."""
    hour, minute, sign = clock["hour"], int(clock["minute"] or 0), (clock["clock"] or "").replace(".", "")
    if not (clock["at"] or clock["minute"] or sign) or int(hour) > 23:
        return ()
    at = 60 * int(hour) + minute
    if sign in ("am", "pm"):
        at = at % 720 + (720 if sign == "pm" else 0)
        return (at,) if 1 <= int(hour) <= 12 else ()
    # "At 3" is in the morning or in the afternoon; "03:00" and "3 Uhr" are of a clock with 24 hours.
    return (at, at + 720) if not sign and hour[0] != "0" and int(hour) < 12 else (at,)


def _within(day: Interval, first: int, end: int) -> Interval:
    """Return a part of a day, in minutes."""
    return day._replace(start=day.start + first * 60_000, end=day.start + end * 60_000)


def _shift(intervals: list[Interval], shift: re.Match[str]) -> list[Interval]:
    """Move intervals by the distance before or after them; without a distance, open them to that side."""
    earlier = shift["way"] in ("before", "prior to", "until", "by")
    the_one = bool(shift["which"]) or shift["count"] == "the"
    if named := shift["named"] or ("weekend" if the_one and shift["unit"] == "weekend" else None):
        return [_named_near(one, named, earlier=earlier) for one in intervals]
    if shift["many"]:
        return [_shift_interval(one, shift, earlier=earlier) for one in intervals]
    # An open interval is a weak hint. Without a year, only the latest date counts.
    if earlier:
        until = shift["way"] in ("until", "by")
        return [Interval(0, end if until else start, _OTHER_WEIGHT) for start, end, *_ in intervals[:1]]
    since = shift["way"] == "since"
    return [Interval(start if since else end, _FOREVER, _OTHER_WEIGHT) for start, end, *_ in intervals[:1]]


def _shift_interval(one: Interval, shift: re.Match[str], *, earlier: bool) -> Interval:
    """Return the interval that lies some units before or after another."""
    count, name = _parse_count(shift["count"]), shift["unit"]
    distance = int(count * _UNITS[name].total_seconds() * 1000)
    if shift["which"] or shift["count"] == "the":  # "the week before" is the week itself
        return (
            one._replace(start=one.start - distance, end=one.start)
            if earlier
            else one._replace(start=one.end, end=one.end + distance)
        )
    if name == "day" and count < 4:
        way = -1 if earlier else 1
        return one._replace(start=one.start + way * distance, end=one.end + way * distance)
    slack = max(distance // 4, 86_400_000 if _UNITS[name] >= _DAY else 0, 60_000)
    middle = one.start - distance if earlier else one.end + distance
    return Interval(middle - slack, middle + slack, one.weight, is_exact=False)


def _named_near(one: Interval, name: str, *, earlier: bool) -> Interval:
    """Return the weekday or weekend right before or after a time."""
    first = WEEKDAYS.index("saturday" if name == "weekend" else name)
    days = 2 if name == "weekend" else 1
    if earlier:
        start = _midnight(datetime.fromtimestamp(one.start / 1000, UTC)) - days * _DAY
        start -= (start.weekday() - first) % 7 * _DAY
    else:
        start = _midnight(datetime.fromtimestamp((one.end - 1) / 1000, UTC)) + _DAY
        start += (first - start.weekday()) % 7 * _DAY
    return _days(start, days)._replace(weight=one.weight)


def _midnight(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)


def _month_start(year: int, month: int) -> datetime:
    return datetime(year + (month - 1) // 12, (month - 1) % 12 + 1, 1, tzinfo=UTC)


def _hours(day: datetime, first: int, end: int) -> Interval:
    return _interval(day + first * _HOUR, day + end * _HOUR)


def _days(start: datetime, days: int, *, is_exact: bool = True) -> Interval:
    return _interval(start, start + days * _DAY, is_exact=is_exact)


def _interval(start: datetime, end: datetime, *, is_exact: bool = True) -> Interval:
    return Interval(int(start.timestamp() * 1000), int(end.timestamp() * 1000), is_exact=is_exact)
