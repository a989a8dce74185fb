"""Printed text is safe for a terminal, and failures are explained."""

import inspect
import io
import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide import Entry, errors
from omoide.cli import shell
from omoide.core import Hit, Reason, Why
from omoide.service import reasons


@given(st.text())
def test_nothing_remembered_can_act_on_a_terminal(text: str) -> None:
    """A text is shown on one line without control, format or surrogate characters."""
    shown = shell.sanitize(text)
    assert not any(unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for char in shown)


def test_ordinary_text_is_shown_as_it_is() -> None:
    """Letters of any script stay, runs of blanks become one, and escapes are written out."""
    assert shell.sanitize("Grüße,  思い出\n😀") == "Grüße, 思い出 😀"
    assert shell.sanitize("\x1b[31mred\u202e") == "\\x1b[31mred\\u202e"


@pytest.mark.parametrize(("text", "shown"), [("short", "short"), ("a" * 11, "aaaaaaaaa…"), ("", "")])
def test_long_texts_are_clipped(text: str, shown: str) -> None:
    """A clipped text is no longer than asked for."""
    assert shell.truncate(text, 10) == shown


def test_json_holds_our_values_as_they_are_always_written(capsys: pytest.CaptureFixture[str]) -> None:
    """An entry inside an answer is the JSON that it has anywhere else."""
    entry = Entry(id="m1", agent_id="a", content="x", created_at=5)
    shell.print_json({"entries": (entry,), "n": 1})
    assert json.loads(capsys.readouterr().out) == {"entries": [json.loads(entry.to_json())], "n": 1}


def test_tables_are_lines_with_tabs_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    """Into a pipe, a row is a line, and no cell can begin another."""
    shell.print_table(("a", "b"), [("1", "x\ty\nz"), ("2", "")])
    assert capsys.readouterr().out == "1\tx y z\n2\t\n"


def test_progress_is_silent_where_nobody_looks() -> None:
    """Without a terminal there is no bar."""
    with shell.progress_bar() as tell:
        assert tell is None


class Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


def test_tables_are_laid_out_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal a table has titles, and markup in a cell is shown, not obeyed."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    shell.print_table(("id", "content"), [("m1", "[bold]x[/bold]")])
    lines = re.sub(r"\x1b\[[0-9;]*m", "", terminal.getvalue()).splitlines()
    assert [line.split() for line in lines] == [["id", "content"], ["m1", "[bold]x[/bold]"]]


def test_progress_is_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal there is a bar with what is being done and how far it is."""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with shell.progress_bar() as tell:
        assert tell is not None
        tell("copying", 1, 4)
        tell("copying", 4, 4)
    assert "copying" in terminal.getvalue()
    assert "4/4" in terminal.getvalue()


def error_classes() -> list[type[errors.OmoideError]]:
    found = inspect.getmembers(errors, inspect.isclass)
    return [kind for _, kind in found if issubclass(kind, errors.OmoideError)]


@pytest.mark.parametrize("kind", error_classes(), ids=lambda kind: kind.__name__)
def test_every_error_has_a_code(kind: type[errors.OmoideError]) -> None:
    """Each of our errors ends a command with a code from 1 to 4."""
    assert shell.exit_code(kind.__new__(kind)) in {1, 2, 3, 4}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NotFound("entry", "x", "look"), 1),
        (errors.Erased("entry", "x", 1, None), 1),
        (errors.Invalid("a", "b", "c"), 2),
        (errors.MissingExtra("x", "cli"), 2),
        (errors.Conflict("x", 1, 2), 3),
        (errors.KeyReused("k"), 3),
        (errors.Busy("x", "y", "z"), 4),
        (errors.ModelUnavailable("x", "y", "z"), 4),
    ],
    ids=lambda part: type(part).__name__,
)
def test_codes_tell_errors_apart(error: errors.OmoideError, code: int) -> None:
    """Absence, wrong input, conflict and failure have codes of their own."""
    assert shell.exit_code(error) == code


def test_an_error_is_one_line() -> None:
    """Whatever an error quotes, it is told on one line."""
    assert shell.format_error(errors.Invalid("a\nb", "is\r\nwrong", "c")) == "a b is wrong; c"


def test_an_error_hides_passwords() -> None:
    """What stands between the user and the host of a URL is left out."""
    told = shell.format_error(errors.Invalid("store", "'redis://a:b@c/1' is away", "c"))
    assert told == "store 'redis://a:***@c/1' is away; c"


def test_parts_without_words_are_called_by_their_name() -> None:
    """A part that nobody has described yet is shown all the same, above zero and below."""
    assert reasons.describe_part("novelty", 0.5) == "novelty"
    assert reasons.describe_part("novelty", -0.5) == "novelty"


def test_what_is_less_is_said_to_be_less() -> None:
    """Below zero, a part that compares says so; one that states something states the same."""
    assert reasons.describe_part("vector", 1.0) == "close in meaning"
    assert reasons.describe_part("vector", -1.0) == "less close in meaning than most"
    assert reasons.describe_part("asks", -1.0) == "is a question itself"
    assert set(reasons.NEGATIVE_PART_DESCRIPTIONS) <= set(reasons.PART_DESCRIPTIONS)


def hit(relevance: float | None = None, newer: str | None = None, *parts: str) -> Hit:
    reasons = tuple(
        Reason(part=part, value=0.5, note="a note" if part == "reranker" else None) for part in parts
    )
    entry = Entry(id="m1", agent_id="a", content="Lives in Berlin.", created_at=0)
    return Hit(entry=entry, relevance=relevance, newer=newer, why=Why(reasons=reasons))


def test_a_hit_is_described_with_its_relevance_and_the_newer_memory() -> None:
    """Where neither is known, neither is said."""
    assert shell.describe_hit(hit(0.456, "mem_2")) == "m1, 1970-01-01, agent a, relevance 0.46, newer: mem_2"
    assert shell.describe_hit(hit()) == "m1, 1970-01-01, agent a"


def test_reasons_are_said_once_and_in_order() -> None:
    """Parts that mean the same are one phrase, notes are kept, and without reasons there is a sentence."""
    parts = ("own", "date", "words", "cosine", "vector", "newer", "reranker")
    assert reasons.describe_why(hit(None, None, *parts).why) == [
        "has words of the question",
        "from the time asked about",
        "close in meaning",
        "a newer hit says something else of the same subject",
        "placed by the reranker: a note",
    ]
    assert reasons.describe_why(hit().why) == ["nothing matched: among the newest"]
