"""Tests of tokenizing, stemming and features of text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide.retrieval import text as words
from omoide.retrieval.text import detect_language, stem


@pytest.mark.parametrize(
    "family",
    [
        "hike hikes hiked hiking hiker",
        "run runs ran running",
        "adopt adopted adopting adoption",
        "paint painted painting paintings",
        "happy happiness",
        "inspire inspired inspiring inspiration",
        "child children",
        "buy bought buys",
        "city cities",
        "organize organizing organization",
        "use used uses using",
        "need needed needs needing",
        "decide decided decides deciding decision",
        "try tried tries trying",
        "control controlled controlling controls",
        "write wrote written writes writing",
        "plan planned planning plans",
    ],
)
def test_forms_of_a_word_share_a_stem(family: str) -> None:
    """Inflected and derived forms are one term."""
    assert len({stem(form) for form in family.split()}) == 1


@pytest.mark.parametrize("pair", ["career care", "news new", "hop hope", "bus busy"])
def test_different_words_keep_apart(pair: str) -> None:
    """Endings that are no endings stay."""
    one, other = pair.split()
    assert stem(one) != stem(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Café", "cafe"),
        ("ＡＢＣ", "abc"),  # noqa: RUF001
        ("STRASSE", "straße"),
        ("naïve", "NAIVE"),
        ("O'Brien's", "o’brien’s"),
        ("Ελλάδα", "ΕΛΛΆΔΑ"),
    ],
)
def test_spelling_is_folded(one: str, other: str) -> None:
    """Case, width, accents and kinds of apostrophe make no other term."""
    assert words.terms(one) == words.terms(other) != []


def test_scripts_without_spaces_give_pairs() -> None:
    """A Japanese or Thai text is found by any two characters of it that stand together."""
    assert words.terms("東京に行く") == ["東京", "京に", "に行", "行く"]
    assert set(words.terms("東京")) <= set(words.terms("昨日は東京タワー"))
    assert len(words.terms("สวัสดีครับ")) > 3


def test_words_of_scripts_with_marks_stay_whole() -> None:
    """Vowel signs do not cut a word."""
    assert words.words("हिन्दी में") == ["हिन्दी", "में"]


def test_stop_words_are_no_terms() -> None:
    """What every text has says nothing."""
    assert words.terms("What did you do, and why is it so?") == []


@pytest.mark.parametrize(
    ("language", "text", "other"),
    [
        ("de", "Ich habe meine alten Häuser verkauft", "Wann hast du das alte Haus verkauft?"),
        ("fr", "J'ai acheté de nouvelles chaussures pour l'hôtel", "Quelle chaussure as-tu achetée ?"),
        ("es", "He comprado unas gafas nuevas para mi hermana", "¿Qué gafa compró tu hermana?"),
    ],
)
def test_words_are_stemmed_in_the_language_of_the_text(language: str, text: str, other: str) -> None:
    """Forms of German, French and Spanish words meet, although English rules would not lead them together."""
    assert detect_language(words.words(text)) == language
    assert len({*words.terms(text)} & {*words.query_terms(other)}) >= 2


@pytest.mark.parametrize(
    "text", ["C++ and C# code", "getUserName", "La Paz", "", "4.17.2", "hat", "Der Spiegel"]
)
def test_a_text_without_function_words_counts_as_english(text: str) -> None:
    """Names, code and single loan words do not make a text foreign."""
    assert detect_language(words.words(text)) == "en"


def test_a_query_finds_memories_too_short_to_tell_their_language() -> None:
    """A German question has the English stems of its words as well."""
    memory = words.terms("Zahnarzttermine verschoben")
    assert {*memory} & {*words.query_terms("Welche Zahnarzttermine wurden verschoben?")}


@pytest.mark.parametrize(
    ("memory", "query"),
    [
        ("getUserName returns None", "getUserName"),
        ("getUserName returns None", "get_user_name"),
        ("getUserName returns None", "getusername"),
        ("getUserName returns None", "user name"),
        ("set_user_name is deprecated", "setUserName"),
        ("we ship v4.17.2", "4.17.2"),
        ("we ship v4.17.2", "4.17"),
        ("we ship v4.17.2", "v4.17.2"),
        ("we ship v4.17.2", "version 4"),
        ("written in C++", "C++"),
        ("written in C#", "which C# code?"),
        ("see /etc/nginx/sites-enabled/shop.conf", "shop.conf"),
        ("see /etc/nginx/sites-enabled/shop.conf", "sites-enabled"),
        ("request req_8f3aB-22 failed", "req_8f3aB-22"),
        ("failed with ERR_CONN_RESET", "err_conn_reset"),
        ("call std::vector::push_back", "push_back"),
    ],
)
def test_identifiers_are_found_whole_and_in_parts(memory: str, query: str) -> None:
    """An identifier is found as it is, in another style, and by its parts."""
    assert {*words.terms(memory)} & {*words.query_terms(query)}


def test_identifiers_that_differ_in_a_sign_differ_in_a_term() -> None:
    """C, C++ and C# share the letter and nothing else, and versions their common prefix alone."""
    assert {*words.terms("C++")} != {*words.terms("C#")} != {*words.terms("C")}
    assert {*words.terms("v4.17.2")} & {*words.terms("v4.17.3")} >= {"=4.17"}
    assert "=4.17.2" not in words.terms("v4.17.3")


@given(st.text(max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    """Hostile Unicode gives terms that are not empty, the same every time, each a 64-bit number."""
    terms = words.terms(text)
    assert all(terms)
    assert terms == words.terms(text)
    assert all(-(2**63) <= words.term_id(term) < 2**63 for term in terms)


@given(st.text(max_size=400), st.integers(2, 30))
def test_chunks_keep_every_word(text: str, size: int) -> None:
    """Cutting a text loses nothing but the space between its pieces."""
    pieces = words.chunks(text, size)
    assert "".join("".join(pieces).split()) == "".join(text.split())


def test_a_long_text_is_cut_between_sentences() -> None:
    """Pieces have about the size asked for and end where sentences do."""
    pieces = words.chunks("One two three four five. " * 40, 20)
    assert len(pieces) == 10
    assert all(piece.endswith(".") and len(piece.split()) == 20 for piece in pieces)


def test_one_endless_word_is_cut_and_not_looked_at_whole() -> None:
    """A megabyte without a space is a short term and many pieces."""
    assert len(words.terms("x" * 2**20)[0]) <= 64
    assert max(map(len, words.chunks("x" * 2**16, 80))) < 2**11


def test_tokens_that_say_something_are_told_apart() -> None:
    """Stop words and marks are left out, unless there is nothing else."""
    assert words.content_token_indexes(("i", "moved", "to", "rome", ".")) == [1, 3]
    assert words.content_token_indexes(("to", "?")) == [0, 1]


def test_features_are_numbers_side_by_side() -> None:
    """The blob has the length and the flags in front, then one number for each term."""
    read = words.extract_features("Did you move to Rome? [image: a map]")
    assert read.length == 8
    assert read.flags & words.IS_QUESTION
    assert len(read.to_bytes()) == 8 * (1 + len(read.terms))


@pytest.mark.parametrize(
    ("text", "flag"),
    [
        ("We went two weeks ago.", words.MENTIONS_TIME),
        ("I have 3 cats", words.MENTIONS_NUMBER),
        ("we stayed in Porto", words.MENTIONS_PLACE),
        ("then Anna came", words.MENTIONS_NAME),
        ("because it rained", words.MENTIONS_REASON),
        ("I just moved", words.MENTIONS_RECENT),
        ("My dog", words.FIRST_PERSON),
    ],
)
def test_a_text_tells_kinds_of_things(text: str, flag: int) -> None:
    """Times, numbers, places, names, reasons and the first person are noticed; nothing else is."""
    assert words.extract_features(text).flags & flag
    assert not words.extract_features("the weather").flags
