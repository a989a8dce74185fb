"""Tests of the times that a query refers to."""

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omoide.retrieval import intervals

NOW = int(datetime(2023, 6, 14, 12, tzinfo=UTC).timestamp() * 1000)  # a Wednesday


LATER = int(datetime(2025, 6, 11, 15, 30, tzinfo=UTC).timestamp() * 1000)  # a Wednesday, too


def minutes(text: str) -> tuple[str, ...]:
    """The first interval, to the minute."""
    start, end, *_ = intervals(text, LATER)[0]
    return tuple(datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M") for at in (start, end))


def days(text: str) -> tuple[str, str]:
    """The first interval, as its first day and the day after it."""
    start, end, *_ = intervals(text, NOW)[0]
    first, last = (datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d") for at in (start, end))
    return first, last


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("on 8 May 2023", "2023-05-08", "2023-05-09"),
        ("on May 8th, 2023", "2023-05-08", "2023-05-09"),
        ("2023-05-08", "2023-05-08", "2023-05-09"),
        ("in 2023-05", "2023-05-01", "2023-06-01"),
        ("in May 2023", "2023-05-01", "2023-06-01"),
        ("in May", "2023-05-01", "2023-06-01"),
        ("late March 2023", "2023-03-18", "2023-04-01"),
        ("summer of 2022", "2022-06-01", "2022-09-01"),
        ("winter 2022", "2022-12-01", "2023-03-01"),
        ("Christmas 2022", "2022-12-18", "2023-01-01"),
        ("in 2022", "2022-01-01", "2023-01-01"),
        ("yesterday", "2023-06-13", "2023-06-14"),
        ("last week", "2023-06-05", "2023-06-12"),
        ("this weekend", "2023-06-17", "2023-06-19"),
        ("last Friday", "2023-06-09", "2023-06-10"),
        ("last Wednesday", "2023-06-07", "2023-06-08"),
        ("last month", "2023-05-01", "2023-06-01"),
        ("last year", "2022-01-01", "2023-01-01"),
        ("last summer", "2022-06-01", "2022-09-01"),
        ("two weeks ago", "2023-05-28", "2023-06-04"),
        ("a couple of months ago", "2023-03-31", "2023-04-30"),
        ("the past two weeks", "2023-05-31", "2023-06-15"),
        ("three days before 5 June 2023", "2023-06-02", "2023-06-03"),
        ("the week before 3 July, 2023", "2023-06-26", "2023-07-03"),
        ("two weeks after 1 May 2023", "2023-05-12", "2023-05-19"),
        ("by July 10, 2022", "1970-01-01", "2022-07-11"),
    ],
)
def test_times_are_understood(text: str, start: str, end: str) -> None:
    """Each way to name a time means the days one would expect."""
    assert days(f"What did she do {text}?") == (start, end)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("this morning", "2025-06-11 05:00", "2025-06-11 12:00"),
        ("this afternoon", "2025-06-11 12:00", "2025-06-11 18:00"),
        ("this evening", "2025-06-11 17:00", "2025-06-12 00:00"),
        ("last night", "2025-06-10 18:00", "2025-06-11 06:00"),
        ("yesterday evening", "2025-06-10 17:00", "2025-06-11 00:00"),
        ("on Monday morning", "2025-06-09 05:00", "2025-06-09 12:00"),
        ("an hour ago", "2025-06-11 14:00", "2025-06-11 15:00"),
        ("30 minutes ago", "2025-06-11 14:52", "2025-06-11 15:07"),
        ("in the last 24 hours", "2025-06-10 15:30", "2025-06-11 15:31"),
        ("at 3 pm yesterday", "2025-06-10 15:00", "2025-06-10 16:00"),
        ("yesterday at 15:00", "2025-06-10 15:00", "2025-06-10 16:00"),
        ("on 5 May 2025 at 9:30 am", "2025-05-05 09:30", "2025-05-05 10:30"),
        ("2025-05-08T15:00", "2025-05-08 15:00", "2025-05-08 16:00"),
        ("three days ago", "2025-06-08 00:00", "2025-06-09 00:00"),
        ("the day before yesterday", "2025-06-09 00:00", "2025-06-10 00:00"),
        ("on Tuesday", "2025-06-10 00:00", "2025-06-11 00:00"),
        ("from Monday to Wednesday", "2025-06-02 00:00", "2025-06-05 00:00"),
        ("in March", "2025-03-01 00:00", "2025-04-01 00:00"),
        ("in December", "2024-12-01 00:00", "2025-01-01 00:00"),
        ("early March 2025", "2025-03-01 00:00", "2025-03-13 00:00"),
        ("Q3 2025", "2025-07-01 00:00", "2025-10-01 00:00"),
        ("2024-Q2", "2024-04-01 00:00", "2024-07-01 00:00"),
        ("the third quarter", "2024-07-01 00:00", "2024-10-01 00:00"),
        ("last quarter", "2025-01-01 00:00", "2025-04-01 00:00"),
        ("the first half of 2024", "2024-01-01 00:00", "2024-07-01 00:00"),
        ("the first half of September 2022", "2022-09-01 00:00", "2022-09-16 00:00"),
        ("the first weekend of August 2023", "2023-08-05 00:00", "2023-08-07 00:00"),
        ("two days before 5 June", "2025-06-03 00:00", "2025-06-04 00:00"),
        ("on the Sunday before October 25, 2022", "2022-10-23 00:00", "2022-10-24 00:00"),
        ("last weekend before April 10, 2023", "2023-04-08 00:00", "2023-04-10 00:00"),
        ("the week of 5 May", "2025-05-05 00:00", "2025-05-12 00:00"),
        ("between 3 and 9 May 2025", "2025-05-03 00:00", "2025-05-10 00:00"),
        ("May 3-9, 2025", "2025-05-03 00:00", "2025-05-10 00:00"),
        ("from March to May 2024", "2024-03-01 00:00", "2024-06-01 00:00"),
        ("from November to February 2024", "2023-11-01 00:00", "2024-03-01 00:00"),
        ("between 28 December and 3 January 2024", "2023-12-28 00:00", "2024-01-04 00:00"),
        ("between 2024-01-05 and 2024-02-01", "2024-01-05 00:00", "2024-02-02 00:00"),
        ("in the nineties", "1990-01-01 00:00", "2000-01-01 00:00"),
        ("in the 1990s", "1990-01-01 00:00", "2000-01-01 00:00"),
        ("21.01.2024", "2024-01-21 00:00", "2024-01-22 00:00"),
        ("on 21.01.", "2025-01-21 00:00", "2025-01-22 00:00"),
        ("21/01/2024", "2024-01-21 00:00", "2024-01-22 00:00"),
        ("01/21/2024", "2024-01-21 00:00", "2024-01-22 00:00"),
        ("2024/01/21", "2024-01-21 00:00", "2024-01-22 00:00"),
    ],
)
def test_times_are_as_exact_as_their_words(text: str, start: str, end: str) -> None:
    """An hour, a part of a day and a range mean no more than they say."""
    assert minutes(f"What did she do {text}?") == (start, end)


def test_an_ambiguous_date_means_both() -> None:
    """Day and month of a date with slashes stand in either order; with dots the day comes first."""
    assert len(intervals("03/04/2024", LATER)) == 2
    assert len(intervals("03.04.2024", LATER)) == 1


def test_the_latest_year_is_the_likeliest() -> None:
    """A month without a year is that of the last twelve months; other years weigh less."""
    first, *others = intervals("in August", LATER)
    assert first.weight > max(other.weight for other in others)


@pytest.mark.parametrize(
    ("text", "is_exact"),
    [
        ("yesterday", True),
        ("in March 2024", True),
        ("a few weeks ago", False),
        ("early March 2024", False),
        ("last summer", False),
    ],
)
def test_vague_words_say_so(text: str, is_exact: bool) -> None:
    """An interval tells an estimate from a date."""
    assert intervals(text, LATER)[0].is_exact is is_exact


@pytest.mark.parametrize(
    ("english", "texts"),
    [
        ("yesterday", ["¿Qué hice ayer?", "昨日は何を?", "昨天我做了什么?"]),
        ("yesterday", ["Was habe ich gestern gemacht?", "Qu'est-ce que j'ai fait hier ?"]),
        ("today", ["Was mache ich heute?", "aujourd'hui", "hoy", "今日", "今天"]),
        ("last week", ["Was war letzte Woche los?", "la semaine dernière", "la semana pasada"]),
        ("last week", ["先週の会議", "上周"]),
        ("three days ago", ["vor drei Tagen", "il y a trois jours", "hace tres días", "3日前", "三天前"]),
        ("last Tuesday", ["letzten Dienstag", "mardi dernier", "el martes pasado"]),
        ("last year", ["letztes Jahr", "l'année dernière", "el año pasado", "去年"]),
        ("5 May 2023", ["am 5. Mai 2023", "le 5 mai 2023", "el 5 de mayo de 2023", "2023年5月5日"]),
        ("in March", ["im März", "en mars", "en marzo", "3月に"]),
        ("since March", ["seit März", "depuis mars", "desde marzo"]),
        ("yesterday evening", ["gestern Abend", "hier soir"]),
        ("this morning", ["heute Morgen", "ce matin", "esta mañana", "今朝"]),
        ("last night", ["letzte Nacht", "la nuit dernière", "anoche", "昨晚"]),
        ("two hours ago", ["vor zwei Stunden", "il y a deux heures", "hace dos horas", "2時間前"]),
        ("between 3 and 9 May 2025", ["zwischen dem 3. und 9. Mai 2025", "entre le 3 et le 9 mai 2025"]),
        ("from March to May 2024", ["von März bis Mai 2024", "de mars à mai 2024"]),
        ("from March to May 2024", ["de marzo a mayo de 2024"]),
        ("before 5 May 2024", ["vor dem 5. Mai 2024", "avant le 5 mai 2024", "antes del 5 de mayo de 2024"]),
        ("the third quarter of 2024", ["im dritten Quartal 2024", "le troisième trimestre 2024"]),
    ],
)  # fmt: skip
def test_languages_say_the_same(english: str, texts: list[str]) -> None:
    """German, French, Spanish, Japanese and Chinese mean what English does."""
    expected = intervals(english, LATER)
    assert expected
    for text in texts:
        assert intervals(text, LATER) == expected, text


@pytest.mark.parametrize(
    "text",
    [
        "version 4.17.2", "v1.2.2024", "release 1.2.2024", "192.168.20.24", "10.0.2024.1", "$2000", "2000 €",
        "2,000 dollars", "costs 2024.50", "ticket #2024", "PR-2024", "order 2024-1234", "Windows 2000",
        "python 3.11", "Ubuntu 22.04.", "in 1.2.3", "port 2024", "/2024/01/21/post", "req-2024-01-21-abc",
        "mem_2024", "may he go", "a march of time", "version 2", "31 June", "call 555 2000 1", "24/7",
        "fall down", "J'ai été malade.", "Wo wohne ich hier?", "Put mayo on it.", "the second day",
    ],
)  # fmt: skip
def test_what_is_no_time_is_none(text: str) -> None:
    """Versions, addresses, prices, ids and words that look like dates are left alone."""
    assert intervals(text, LATER) == ()


@given(st.text(max_size=80), st.integers(0, 2**53))
@example("by", 0)
def test_any_text_at_any_moment_can_be_read(text: str, now: int) -> None:
    """Whatever is asked whenever, intervals run forwards."""
    assert all(start < end for start, end, *_ in intervals(f"{text} last month, 3 years ago", now))


_PIECES = [
    "last",
    "this",
    "next",
    "early",
    "between",
    "and",
    "from",
    "to",
    "on",
    "at",
    "before",
    "after",
    "until",
    "since",
    "the",
    "of",
    "in",
    "week",
    "weekend",
    "quarter",
    "month",
    "year",
    "monday",
    "may",
    "june",
    "q3",
    "h1",
    "1st",
    "3",
    "31",
    "12",
    "2024",
    "1999",
    "21.01.",
    "21.01.2024",
    "31/12/2024",
    "2024-02-30",
    "15:00",
    "pm",
    "night",
    "ago",
    "two",
    "vor",
    "drei",
    "tagen",
    "gestern",
    "hier",
    "il",
    "y",
    "a",
    "hace",
    "días",
    "pasado",
    "昨日",
    "3日前",
    "2024年13月",
    "first",
    "half",
    "days",
    "hours",
]


@given(st.lists(st.sampled_from(_PIECES), max_size=12), st.integers(0, 2**45))
def test_any_words_of_time_can_be_read(pieces: list[str], now: int) -> None:
    """However words of time are put together, intervals run forwards."""
    assert all(start < end for start, end, *_ in intervals(" ".join(pieces), now))


@pytest.mark.parametrize("piece", ["5 may ", "between ", "昨日", "1", "21.01.2024 ", "a "])
def test_a_long_text_is_read_in_parts(piece: str) -> None:
    """A text of any length has few times, those at its beginning and its end."""
    text = f"yesterday {piece * 50_000} on 8 May 2023"
    assert len(intervals(text, LATER)) < 120
    assert intervals(text, LATER)
