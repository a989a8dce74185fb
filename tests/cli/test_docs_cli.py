"""The command line page shows what the commands print.

Every command in its console blocks runs, in order, and prints what is shown; `echo` writes what it says to
the command or to a file. `…` in a shown line stands for anything on that line, and a line of nothing but `…`
for any lines.
"""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from omoide import Entry
from omoide.cli import COMMANDS
from omoide.cli.app import app
from omoide.cli.shell import SETTING_NAMES, environment_variable
from omoide.eval.__main__ import build_parser
from omoide.longterm import RELATIONS
from omoide.retrieval.ranking import FeatureWeights
from omoide.service.reasons import PART_DESCRIPTIONS
from omoide.stores.reranker import RERANKER_PART

DOCS = Path(__file__).parent.parent.parent / "docs"
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGE = (DOCS / "cli.md").read_text("utf-8")


def sessions(page: str) -> list[tuple[str, str]]:
    """The commands of a page, each with what it is shown to print."""
    found = []
    for block in BLOCK.findall(page):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            line, _, shown = part.partition("\n")
            found.append((line, shown))
    return found


def pattern(shown: str) -> str:
    """What printed text has to match."""
    lines = []
    for line in shown.splitlines():
        if line == "…":
            lines.append(r"(?:.*\n)*")
        else:
            lines.append(".*".join(map(re.escape, line.split("…"))) + r"\n")
    return "".join(lines)


def commands() -> dict[str, click.Command]:
    """Every command by its full name."""
    found: dict[str, click.Command] = {}
    for name in COMMANDS:
        command = app.get_command(click.Context(app), name)
        assert command is not None
        inner = command.commands if isinstance(command, click.Group) else None
        found |= {name: command} if inner is None else {f"{name} {sub}": inner[sub] for sub in inner}
    return found


def test_the_commands_on_the_page_print_what_it_shows(omoide: Callable[..., Result]) -> None:
    """The whole page runs from top to bottom, in an empty home."""
    wrong = []
    for line, shown in sessions(PAGE):
        before, _, command = line.rpartition(" | ")
        words = shlex.split(command)
        if words[0] == "echo" and words[-2] == ">":
            Path(words[-1]).write_text(" ".join(words[1:-2]) + "\n", "utf-8")
            continue
        assert words[0] == "omoide"
        given = " ".join(shlex.split(before)[1:]) + "\n" if before.startswith("echo ") else None
        printed = CliRunner().invoke(app, words[1:], input=given).output
        if not re.fullmatch(pattern(shown), printed):
            wrong.append(f"$ {line}\nshows\n{shown}\nbut prints\n{printed}")
    assert wrong == [], "\n".join(wrong)


def test_a_wrong_line_is_noticed() -> None:
    """The pattern of a shown text takes only what fits it."""
    assert re.fullmatch(pattern("a … b\n…\nend\n"), "a (1) b\nx\ny\nend\n")
    assert not re.fullmatch(pattern("a … b\n"), "a b\n")
    assert not re.fullmatch(pattern("a\n"), "a\nb\n")


@pytest.mark.parametrize("name", commands())
def test_every_command_and_option_is_documented(name: str) -> None:
    """The page names each command and each of its options, and its help has an example."""
    command = commands()[name]
    assert f"`omoide {name}" in PAGE
    options = [text for option in command.params for text in (*option.opts, *option.secondary_opts)]
    missing = [text for text in options if text.startswith("--") and f"`{text}" not in PAGE]
    allowed = {"--data", "--limit-conversations", "--questions", "--details", "--help"}
    assert set(missing) <= allowed
    assert "$ " in (command.epilog or "")


def test_every_option_of_an_evaluation_is_documented() -> None:
    """The page of evaluation names each option of the module."""
    page = (DOCS / "evaluation.md").read_text("utf-8")
    options = {text for action in build_parser()._actions for text in action.option_strings}
    assert [text for text in options - {"-h", "--help"} if f"`{text}`" not in page] == []


JSON_ROWS = dict(
    re.findall(r"^\| `([\w-]+)` \| (`.*|those .*) \|$", PAGE.partition("## JSON")[2], re.MULTILINE)
)
JSON_RUNS = {
    "remember": ["remember", "x", "--id", "m2"],
    "recall": ["recall", "x"],
    "forget": ["forget", "m1"],
    "restore": ["restore", "m1"],
    "pin": ["pin", "m1"],
    "unpin": ["unpin", "m1"],
    "list": ["list"],
    "show": ["show", "m1"],
    "history": ["history", "m1"],
    "erase": ["erase", "m1", "--yes"],
    "scrub": ["scrub"],
    "relate": ["relate", "m1", "refines", "m3"],
    "related": ["related", "m1"],
    "provenance": ["provenance", "m1"],
    "review": ["review"],
    "conflicts": ["conflicts"],
    "prune": ["prune", "--max-access", "0"],
    "sparql": ["sparql", "SELECT * { ?m jido:summary ?text }"],
    "validate": ["validate"],
    "add": ["add", "kept.ttl"],
    "export": ["export", "new.ttl"],
    "import": ["import", "kept.ttl"],
    "copy": ["copy", "--to", "copy.db"],
    "chat": ["chat", "x"],
    "preflight": ["preflight", "x"],
    "sessions": ["sessions"],
    "context": ["context", "s1"],
    "promote": ["promote", "s1"],
    "undo-promotion": ["undo-promotion", "s1"],
    "agents": ["agents"],
    "spaces": ["spaces", "ada"],
    "identity": ["identity", "ada"],
    "who-can": ["who-can"],
    "owners": ["owners"],
    "token": ["token", "list"],
    "mcp": ["mcp", "--print-config"],
    "backup": ["backup", "copy.db"],
    "restore-backup": ["restore-backup", "kept.db", "--yes"],
    "reindex": ["reindex"],
    "doctor": ["doctor"],
    "models": ["models", "status"],
    "eval": ["eval", "jsonl", "--data", str(Path(__file__).parent.parent / "eval" / "talks.jsonl")],
    "completion": ["completion", "bash"],
}


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "serve"])  # which does not end
@pytest.mark.usefixtures("learnt", "resting")
def test_json_has_the_fields_that_the_page_tells(name: str, omoide: Callable[..., Result]) -> None:
    """What a program reads from a command is what is promised to it."""
    omoide("remember", "Something.", "--id", "m1")
    omoide("remember", "Something else.", "--id", "m3")
    omoide("export", "kept.ttl")
    omoide("backup", "kept.db")
    printed = json.loads(CliRunner().invoke(app, [*JSON_RUNS[name], "--json"]).stdout)
    told = re.findall(r"`(\w+)`", JSON_ROWS[name].partition(";")[0])
    assert set(printed) == (set(told) or set(Entry.__struct_fields__))


def test_every_relation_is_documented() -> None:
    """The page says what each relation means, in the words of the library."""
    wanted = [f"| `{one.name}` | {one.meaning} |" for one in RELATIONS.values()]
    assert [row for row in wanted if row not in PAGE] == []


def test_every_variable_is_documented() -> None:
    """Each setting has a row with its option and its variable."""
    assert [
        name for name in SETTING_NAMES if f"| `--{name}` | `{environment_variable(name)}` |" not in PAGE
    ] == []


def test_every_part_of_a_score_is_said_in_words() -> None:
    """Every feature has a phrase, and so have the parts that are none.

    Those are recall by words alone, newest first, and the reranker.
    """
    others = {"words", "newer", RERANKER_PART}
    assert set(PART_DESCRIPTIONS) == {*FeatureWeights.__struct_fields__, *others}
