"""Translate the time expressions of other languages into English, so that one parser reads them all.

Each language is a table of words. The result is no sentence, and need not be one: only its times are read.
"""

from __future__ import annotations

import re
from typing import NamedTuple

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


def _inflected(stem: str) -> str:
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
            _inflected("letzt"): "last", _inflected("vergangen"): "last", _inflected("vorig"): "last",
            _inflected("dies"): "this", _inflected("nachst"): "next", _inflected("kommend"): "next",
            "woche|wochen": "week", "wochenende": "weekend", "tag|tage|tagen|tages": "day",
            "monat|monate|monaten|monats": "month", "jahr|jahre|jahren|jahres": "year", "quartal": "quarter",
            "stunde|stunden": "hour", "minuten": "minutes",
            "vor": "ago", "seit|ab": "since", "bis|bis zum": "until", "nach": "after", "im": "in",
            "zwischen": "between", "und": "and", "von|vom": "from", "der|dem|den": "the", "um": "at",
            "anfang": "early", "mitte": "mid", "ende": "late",
            _inflected("erst"): "first", _inflected("zweit"): "second", _inflected("dritt"): "third",
            _inflected("viert"): "fourth", "halfte": "half of",
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

_COUNT = r"(?:\d{1,3}|an?|few|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)"
_PERIOD = rf"week|weekend|month|year|quarter|night|spring|summer|autumn|winter|{'|'.join(WEEKDAYS)}"
_REORDERED = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (rf"\bago ({_COUNT}) (minutes?|hour|day|week|month|year)", r"\1 \2 ago"),
        (r"\blast on ", "last "),
        (rf"(?:\bon )?\b({_PERIOD}) (last|next)\b", r"\2 \1"),
        (rf"\b({_COUNT}) last (hour|day|week|month|year)\b", r"last \1 \2"),
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
