"""First steps of a new user."""

from __future__ import annotations

import io
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from omoide.cli import shell
from omoide.cli.app import app

Run = Callable[..., Result]
Answer = Callable[..., Any]

PYPROJECT = Path(__file__).parent.parent.parent / "pyproject.toml"
ID = "mem_0123456789abcdef0123456789abcdef"
OTHER = ID[::-1]


class Terminal(io.StringIO):
    """A stream that somebody looks at."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Lays out a table on a terminal of so many columns, and gives its lines."""

    def laid_out(columns: int, titles: tuple[str, ...], *rows: tuple[str, ...]) -> list[str]:
        stream = Terminal()
        with monkeypatch.context() as patch:
            patch.setenv("COLUMNS", str(columns))
            patch.setattr("sys.stdout", stream)
            shell.print_table(titles, rows)
        return re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).splitlines()

    return laid_out


@pytest.mark.parametrize("columns", [20, 60, 80, 200])
@pytest.mark.parametrize(
    ("titles", "row"),
    [
        (("id", "when", "type", "content"), (ID, "2024-01-01 10:00:00Z", "fact", "word " * 40)),
        (("about", "id", "says", "id", "says"), ("color", ID, "It is red. " * 9, OTHER, "blue" * 50)),
    ],
    ids=["list", "conflicts"],
)
def test_ids_are_whole_on_every_terminal(
    columns: int, titles: tuple[str, ...], row: tuple[str, ...], terminal: Callable[..., list[str]]
) -> None:
    """An id can be copied from the line it begins on; no other text is lost for it, either."""
    lines = terminal(columns, titles, row)
    ids = [cell for title, cell in zip(titles, row, strict=True) if title == "id"]
    assert [id for id in ids if id not in lines[1].split()] == []
    assert not any("…" in line for line in lines)


def test_a_table_fits_where_ids_leave_room(terminal: Callable[..., list[str]]) -> None:
    """On 80 columns a list of memories is laid out within them."""
    row = (ID, "2024-01-01 10:00:00Z", "fact", "word " * 40)
    lines = terminal(80, ("id", "when", "type", "content"), row)
    assert max(len(line.rstrip()) for line in lines) <= 80


def test_a_table_without_rows_has_no_titles(terminal: Callable[..., list[str]]) -> None:
    """Where nothing was found there is nothing to look at."""
    assert terminal(80, ("id", "content")) == []


@pytest.mark.parametrize("arguments", [[], ["token"]], ids=lambda given: " ".join(given) or "-")
def test_a_group_without_a_command_shows_its_help(arguments: list[str], omoide: Run) -> None:
    """The help is laid out as `--help` lays it out, and the code says that something is missing."""
    shown = omoide(*arguments, code=2)
    assert shown.stdout == ""
    assert shown.stderr == omoide(*arguments, "--help").stdout


@pytest.mark.parametrize(
    ("mistyped", "meant"), [("recal", "recall"), ("rember", "remember"), ("who_can", "who-can")]
)
def test_a_mistyped_command_is_guessed(mistyped: str, meant: str, omoide: Run) -> None:
    """The nearest command is named on the one line that is printed."""
    refused = omoide(mistyped, code=2)
    assert refused.stderr.startswith(f"omoide: No such command {mistyped!r} (did you mean {meant}")
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [["recall", "tea"], ["list"], ["conflicts"]], ids=" ".join)
def test_nothing_found_says_where_nobody_looked(
    arguments: list[str], omoide: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a repository, and with a project, a person learns what others have, and the option that shows it."""
    (home / "repo" / ".git").mkdir(parents=True)
    omoide("remember", "Alex drinks tea.", "--agent", "a1")
    monkeypatch.chdir(home / "repo")
    hint = f"nothing of project {home / 'repo'}; 1 of others: --project ''\n"
    assert omoide(*arguments, code=1).stderr == f"Nothing found.\n{hint}"
    hint = "nothing of project p1; 1 of others: --project ''\n"
    assert omoide(*arguments, "--project", "p1", code=1).stderr == f"Nothing found.\n{hint}"
    assert omoide(*arguments, "--json", code=1).stderr == ""


@pytest.mark.parametrize(
    ("arguments", "most"),
    [(["list"], 300), (["recall", "tea"], 600), (["recall", "tea", "--explain"], 1_500)],
    ids=["list", "recall", "explain"],
)
def test_long_memories_are_cut_short_for_people(
    arguments: list[str], most: int, omoide: Run, answer: Answer
) -> None:
    """A row shows how a memory begins; `show` and JSON have all of it."""
    content = "Alex drinks tea. " + "And more tea. " * 1_000 + "The end."
    omoide("remember", content, "--id", "m1")
    shown = omoide(*arguments).stdout
    assert "Alex drinks tea." in shown
    assert "…" in shown
    assert len(shown) < most
    assert "The end." in str(answer(*arguments))
    assert content in omoide("show", "m1").stdout


def test_doctor_tells_of_every_extra(answer: Answer) -> None:
    """All that can be installed besides the command line, which is there, is looked for."""
    extras = {*tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]["optional-dependencies"]}
    told = {check["name"] for check in answer("doctor")["checks"]}
    assert {f"extra {name}" for name in extras - {"all", "cli"}} == {
        name for name in told if name.startswith("extra ")
    }


@pytest.mark.parametrize("limit", ["-1", "0"])
@pytest.mark.parametrize("arguments", [["list"], ["recall", "x"]], ids=" ".join)
def test_a_limit_is_one_or_more(arguments: list[str], limit: str, omoide: Run) -> None:
    """Whatever is too small, what is named instead is taken."""
    omoide("remember", "Something.")
    refused = omoide(*arguments, "--limit", limit, code=2)
    assert f"limit is {limit}; pass 1 or more" in refused.stderr


def test_restoring_what_was_not_forgotten_says_so(omoide: Run) -> None:
    """It is no error, and nothing is changed."""
    omoide("remember", "Lives in Rome.", "--id", "m1")
    told = omoide("restore", "m1").stdout
    assert told == "m1  unchanged, it was not forgotten, rev 1: Lives in Rome.\n"


def test_completion_does_not_guess_at_commands(home: Path) -> None:
    """Behind a command that does not exist there is nothing to complete, and nothing fails."""
    environment = {"_OMOIDE_COMPLETE": "bash_complete", "COMP_WORDS": "omoide recal x", "COMP_CWORD": "2"}
    done = CliRunner().invoke(app, env=environment)
    assert (done.exit_code, done.stderr) == (0, "")
