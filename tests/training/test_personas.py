"""Tests of the form in which personas are written."""

import pytest
from training.personas import read_personas

PERSONA = """
## baker
F: I bake rye bread.
Q: What do I make?
N: I bake wheat bread now.
Q: What do I make at present?
A: Try a longer rest.
Q: What was I advised?
M: 1,2 | Which breads did I bake?
U: What does a loaf cost?
"""


def test_a_persona_is_read_line_by_line() -> None:
    """A question belongs to the statement above it, and names the one that this replaced."""
    (one,) = read_personas(PERSONA.splitlines())
    assert one["facts"] == ["I bake rye bread.", "I bake wheat bread now.", "Try a longer rest."]
    assert [(q["gold"], q.get("old"), q["type"]) for q in one["questions"]] == [
        ([1], None, "single"),
        ([2], [1], "update"),
        ([3], None, "single"),
        ([1, 2], None, "multi"),
        ([], None, "unanswerable"),
    ]


@pytest.mark.parametrize("line", ["I bake.", "X: I bake.", "Q: What?", "M: 1,9 | What?"])
def test_a_line_that_means_nothing_is_refused(line: str) -> None:
    """It has no known mark, or stands where nothing is asked about."""
    with pytest.raises(ValueError, match="line 2"):
        list(read_personas(["## baker", line]))
