"""Sentences end where a reader would say so."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide.documents import read_document, split
from omoide.retrieval.sentences import sentence_ends
from omoide.retrieval.text import chunks
from omoide.shortterm import sentences

CASES = [
    ["He lives in the U.S. and works there."],
    ["He moved to the U.S.", "He likes it."],
    ["The U.S. Army called."],
    ["We meet at 5 p.m. tomorrow.", "Bring it."],
    ["We meet at 5 p.m.", "Bring it."],
    ["We meet at 5 p.m. Monday or 6 p.m. EST.", "Good."],
    ["It opened on Jan. 5 and closed on Sept. 9."],
    ["I left in Oct.", "She stayed."],
    ["J. R. R. Tolkien wrote it.", "I read it."],
    ["That was plan B.", "Then we left."],
    ["It costs 3.14 dollars.", "Cheap."],
    ["See https://example.com/a.b?c=1.", "It is new."],
    ["Use app.py v1.2.3.", "Then run it."],
    ["今日は晴れです。", "明日は雨です。"],
    ["「行く。」と言った。", "彼は来た。"],
    ["真的吗？", "是的！", "好。"],  # noqa: RUF001
    ["Mr. Smith met Prof. Lee on Main St. in Rome.", "They talked."],
    ["Wait... maybe not.", "Fine."],
    ['"Really?" she asked.', "He nodded."],
    ['He said "No." to it.', "Then he left."],
    ["Apples, pears, etc. are fine.", "Good."],
    ["Acme Inc. bought Foo Ltd. in May.", "It paid."],
    ["See fig. 3 and vol. 2.", "Then stop."],
    ["No.", "I will not.", "See No. 5."],
    ["He has a Ph.D. in physics.", "She has none."],
    ["Is it 5 p.m.?", "Yes."],
    ["i went home.", "then i slept."],
    ["I sat.", "He won 5.", "We lost!"],
]


@pytest.mark.parametrize("parts", CASES, ids=[case[0] for case in CASES])
def test_sentences_end_where_a_reader_would_say(parts: list[str]) -> None:
    """Abbreviations, initials, dates, numbers and addresses do not end one, and full-width marks do."""
    space = "" if parts[0].endswith(("。", "？", "！")) else " "  # noqa: RUF001
    text = space.join(parts)
    assert sentences(text) == parts
    places = [0, *sentence_ends(text + " ")]
    assert [text[a:b].strip() for a, b in pairwise(places)] == parts


def test_the_steps_of_a_list_keep_their_numbers() -> None:
    """A number at the beginning is no sentence of its own."""
    text = "1. Open it. 2. Close it. "
    assert [text[a:b] for a, b in [(0, 12), (12, 25)]] == ["1. Open it. ", "2. Close it. "]
    assert [*sentence_ends(text)] == [12, 25]


def test_a_line_ends_a_sentence() -> None:
    """Even behind an abbreviation."""
    assert [*sentence_ends("in the U.S.\nand\nso on")] == [12, 16]


def test_pieces_and_passages_are_not_cut_inside_of_abbreviations() -> None:
    """What is embedded, and what is found of a document, ends where sentences do."""
    text = "On Jan. 5 at 7 p.m. local time Mr. J. Smith of the U.S. met Dr. Lee of Acme Inc. again. " * 60
    for pieces in (chunks(text, 40), [one.text for one in split(read_document(text.encode(), name="a.txt"))]):
        assert len(pieces) > 3
        assert all(piece.startswith("On Jan. 5") and piece.endswith("again.") for piece in pieces)


@given(st.text(alphabet='aA1.?!… \n。」")U', max_size=80), st.integers(0, 20), st.integers(0, 80))
def test_ends_lie_between_the_places(text: str, start: int, stop: int) -> None:
    """They grow, and none is before the start or behind the stop."""
    ends = [*sentence_ends(text, start, stop)]
    assert ends == sorted(set(ends))
    assert all(start < end <= stop for end in ends)
