"""Text is split into sentences; code and quotations are skipped."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide.shortterm import sentences


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("  \n \n", []),
        ("Hello", ["Hello"]),
        ("One. Two! Three? Four…", ["One.", "Two!", "Three?", "Four…"]),
        ('He said "No." Then he left.', ['He said "No."', "Then he left."]),
        ("Version 1.7.2 of app.py is out. Good.", ["Version 1.7.2 of app.py is out.", "Good."]),
        ("Tools, e.g. ruff, i.e. it. Or Dr. Who.", ["Tools, e.g. ruff, i.e. it.", "Or Dr. Who."]),
        ("One line\nthat goes on.\n\nAnother", ["One line that goes on.", "Another"]),
        ("- one\n- two. More.\n3. three\n* [x] four", ["one", "two.", "More.", "three", "four"]),
        ("# Title\nText", ["Title", "Text"]),
        ("**Decision:** use it", ["Decision: use it"]),
        ("Before\n```python\nx = 1. if y else 2\n```\nAfter", ["Before", "After"]),
        ("~~~\n```\ncode\n~~~\nAfter", ["After"]),
        ("Before\n```\nnever closed. Really.", ["Before"]),
        ("> quoted words\nMine", ["Mine"]),
        ("| a | b |\n|---|---|\nText", ["Text"]),
        ("    indented code\n\nText", ["Text"]),
    ],
)
def test_sentences_are_found(text: str, found: list[str]) -> None:
    """Lists are parted, paragraphs joined, and code, quotations and tables left out."""
    assert sentences(text) == found


@given(st.text(max_size=200))
def test_sentences_are_parts_of_the_text(text: str) -> None:
    """On one line each, none of them empty, in no other letters than the text's."""
    for sentence in sentences(text):
        assert sentence == sentence.strip() != ""
        assert "\n" not in sentence
        assert {*sentence} <= {*text, " "}


@pytest.mark.parametrize(
    "piece", ["A. ", "a", " ", "\n", "`", "```\n", "- ", ".", "!? ", '."', "    x\n", "1. ", "*"]
)
def test_no_text_takes_long(piece: str) -> None:
    """Sixteen times the text takes about sixteen times as long, whatever it is made of."""

    def cost(length: int) -> float:
        text, tries = piece * (length // len(piece)), []
        for _ in range(3):
            start = time.process_time()
            sentences(text)
            tries.append(time.process_time() - start)
        return min(tries)

    assert cost(160_000) < 100 * cost(10_000) + 0.05
