"""The `export`, `import` and `validate` commands."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tests.cli.test_output import Terminal
from tests.cli.test_process import without

Run = Callable[..., Result]
Answer = Callable[..., Any]


def list_memories(answer: Answer, *options: str) -> Any:
    """All memories as they are."""
    return answer("list", "--forgotten", "--expired", "--stale", *options)["entries"]


@pytest.fixture
def linked_memories(omoide: Run, three: None) -> None:
    """Memories with relations, one of them forgotten, one stale."""
    omoide("remember", "A choice — “so” \\ it is.", "--id", "m4", "--type", "decision", "--tag", "a b")
    omoide("relate", "m2", "derived_from", "m1")
    omoide("relate", "m4", "justified_by", "m3")
    omoide("forget", "m1", "--reason", "over")


@pytest.mark.parametrize("ending", ["ttl", "trig", "jsonld", "nq", "jsonl"])
@pytest.mark.usefixtures("linked_memories")
def test_a_file_brings_everything_to_another_store(ending: str, omoide: Run, answer: Answer) -> None:
    """Memories and relations are the same there, also of what was forgotten; twice changes nothing."""
    file = f"all.{ending}"
    assert omoide("export", file).stdout == f"{file}  4 memories\n"
    other = ("--store", "other.db")
    assert answer("import", file, *other) == {"path": file, "memories": 4, "new": 4}
    assert list_memories(answer, *other) == list_memories(answer)
    assert answer("show", "m4", *other)["links"] == answer("show", "m4")["links"]
    assert omoide("import", file, *other).stdout == f"{file}  4 memories, 0 new\n"
    assert list_memories(answer, *other) == list_memories(answer)


@pytest.mark.usefixtures("linked_memories")
def test_the_format_can_be_named(omoide: Run, answer: Answer) -> None:
    """Where the name of a file says nothing, the option does."""
    assert "format cannot be derived" in omoide("export", "all.txt", code=2).stderr
    omoide("export", "all.txt", "--format", "nquads")
    omoide("import", "all.txt", code=2)
    assert answer("import", "all.txt", "--format", "nquads", "--store", "other.db")["new"] == 4


@pytest.mark.usefixtures("linked_memories")
def test_only_what_is_meant_is_written(omoide: Run, answer: Answer) -> None:
    """An export holds the memories of the scope and no others."""
    omoide("remember", "Of another.", "--agent", "other", "--id", "o1")
    assert answer("export", "own.nq", "--agent", "default") == {"path": "own.nq", "memories": 4}
    assert answer("export", "all.nq")["memories"] == 5
    assert "o1" not in Path("own.nq").read_text()


@pytest.mark.usefixtures("linked_memories")
def test_a_file_is_not_lost_by_mistake(omoide: Run, home: Path) -> None:
    """What is there is replaced only when that is said, and the store itself never."""
    omoide("export", "all.nq")
    before = Path("all.nq").read_bytes()
    omoide("remember", "One more.")
    assert "exists; choose another, or replace it with --force" in omoide("export", "all.nq", code=2).stderr
    assert Path("all.nq").read_bytes() == before
    omoide("export", "all.nq", "--force")
    assert Path("all.nq").read_bytes() != before
    own = str(home / "data" / "omoide" / "memory.db")
    assert "belongs to the store" in omoide("export", own, "--format", "nquads", "--force", code=2).stderr
    omoide("list")


@pytest.mark.usefixtures("linked_memories")
def test_an_import_takes_all_or_nothing(omoide: Run, answer: Answer) -> None:
    """A file that ends in nonsense, or holds a memory of somebody else, leaves the store as it was."""
    omoide("remember", "Of another.", "--agent", "other", "--id", "o1")
    omoide("export", "all.nq", "--agent", "")
    other = ("--store", "other.db")
    omoide("remember", "Here already.", "--id", "h1", *other)
    before = list_memories(answer, "--agent", "", *other)
    assert (
        "'o1' lies outside the scope"
        in omoide("import", "all.nq", "--agent", "default", *other, code=2).stderr
    )
    broken = Path("all.nq").read_text() + "nonsense\n"
    Path("broken.nq").write_text(broken)
    refused = omoide("import", "broken.nq", "--agent", "default", *other, code=2)
    assert "broken.nq line " in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert omoide("import", "absent.nq", *other, code=1).stderr.startswith("omoide: file 'absent.nq'")
    assert list_memories(answer, "--agent", "", *other) == before


@pytest.mark.usefixtures("linked_memories")
def test_progress_of_files_is_shown_on_a_terminal(omoide: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways have a bar."""
    from omoide.cli import shell
    from omoide.cli import transfer as exchanging

    for command, shown in (
        (["export", "all.nq"], "writing"),
        (["import", "all.nq"], "reading"),
        (["export", "all.jsonl"], "writing"),
        (["import", "all.jsonl"], "reading"),
    ):
        terminal = Terminal()
        with monkeypatch.context() as patched:
            bars = shell.progress_bar

            def on_terminal(terminal: Terminal = terminal, bars: Any = bars) -> Any:
                patched.setattr("sys.stderr", terminal)
                return bars()

            patched.setattr(exchanging, "progress_bar", on_terminal)
            omoide(*command)
        assert shown in terminal.getvalue()
        assert "4/" in terminal.getvalue()


def test_shapes_are_checked(omoide: Run, answer: Answer) -> None:
    """What is incomplete is a warning, and with `--strict` wrong; a script can go by the code."""
    omoide("remember", "Whole.", "--id", "w1", "--type", "fact", "--session", "s1", "--project", "p1")
    assert omoide("validate").stdout == "conforms\n"
    omoide("remember", "Half.", "--id", "h1", "--type", "fact")
    lenient = omoide("validate").stdout.splitlines()
    assert lenient[0] == "conforms"
    assert {line.split("\t")[0] for line in lenient[1:]} == {"warning"}
    strict = omoide("validate", "--strict", code=1).stdout.splitlines()
    assert strict[0] == "does not conform"
    report = answer("validate", "--strict", code=1)
    assert report["conforms"] is False
    assert {problem["id"] for problem in report["problems"]} >= {"h1"}
    assert all(problem["id"] != "w1" for problem in report["problems"])


@pytest.mark.usefixtures("three")
def test_the_extra_for_shapes_is_named() -> None:
    """Without pyshacl there is one line that says what to install."""
    done = without(["pyshacl"], "validate")
    assert done.returncode == 2
    assert done.stderr.endswith("pip install 'omoide[shacl]'\n")


@pytest.mark.usefixtures("linked_memories")
def test_lines_need_no_graph(omoide: Run) -> None:
    """Memories go to lines of JSON and come back without the extra for graphs."""
    done = without(["pyoxigraph"], "export", "all.jsonl")
    assert (done.returncode, done.stdout) == (0, "all.jsonl  4 memories\n")
    done = without(["pyoxigraph"], "import", "all.jsonl", "--store", "other.db")
    assert (done.returncode, done.stdout) == (0, "all.jsonl  4 memories, 4 new\n")
    assert without(["pyoxigraph"], "export", "all.nq").returncode == 2
    assert not Path("all.nq").exists()


TALK = (
    '{"role": "user", "name": "Maria", "content": "The piano is at my sister\'s."}\n'
    '{"role": "assistant", "content": null}\n'
)


@pytest.mark.parametrize("name", ["talk.json", "talk.jsonl"])
def test_a_chat_is_remembered(name: str, omoide: Run, answer: Answer) -> None:
    """Message by message, once; what was left out is told."""
    Path(name).write_text(TALK)
    done = omoide("import", name)
    assert done.stdout == f"{name}  1 memory, 1 new\n"
    assert done.stderr == "1 message without text left out\n"
    assert answer("import", name) == {"path": name, "memories": 1, "new": 0, "left_out": 1}
    [hit] = answer("recall", "where is Maria's piano?")["hits"]
    assert hit["entry"]["message"] == {"thread": "talk", "seq": 0, "role": "user", "speaker": "Maria"}
    assert answer("import", name, "--thread", "second")["new"] == 1


def test_a_file_that_is_no_chat_has_no_thread(omoide: Run) -> None:
    """What a file holds can be said, and what does not fit is refused in one line, with its place."""
    Path("some.jsonl").write_text('{"content": "Tea."}\n')
    assert "the file is no chat" in omoide("import", "some.jsonl", "--thread", "t", code=2).stderr
    refused = omoide("import", "some.jsonl", "--format", "chat", code=2).stderr
    assert refused.startswith("omoide: some.jsonl message 1: role is missing; ")
    Path("talk.jsonl").write_text(TALK)
    refused = omoide("import", "talk.jsonl", "--format", "jsonl", code=2).stderr
    assert refused.startswith("omoide: talk.jsonl line 1: role is an unknown field; ")
    assert "cannot be derived from 'x.json'" in omoide("export", "x.json", code=2).stderr
    omoide("list", code=1)


@pytest.mark.usefixtures("three")
def test_memories_of_no_user_can_be_given_to_one(omoide: Run, answer: Answer) -> None:
    """Lines that name no user become those of the user; RDF says that there is none, and is refused."""
    omoide("export", "all.jsonl")
    target = ("--store", "users.db")
    assert answer("import", "all.jsonl", *target, "--user", "ann")["new"] == 3
    assert [entry["user_id"] for entry in list_memories(answer, *target)] == ["ann"] * 3
    omoide("export", "all.ttl")
    assert "outside the scope" in omoide("import", "all.ttl", *target, "--user", "ann", code=2).stderr


@pytest.mark.parametrize("ending", ["ttl", "jsonl"])
def test_memories_of_a_user_stay_with_the_user(ending: str, omoide: Run, answer: Answer) -> None:
    """A file of one user holds nothing of others, and is refused to another."""
    for user in ("ann", "ben"):
        omoide("remember", f"Of {user}.", "--user", user, "--id", user)
    file = f"mine.{ending}"
    assert omoide("export", file, "--user", "ben").stdout == f"{file}  1 memory\n"
    assert "outside the scope" in omoide("import", file, "--store", "2.db", "--user", "ann", code=2).stderr
    assert answer("import", file, "--store", "2.db")["new"] == 1
    assert list_memories(answer, "--store", "2.db") == list_memories(answer, "--user", "ben")


def test_what_an_import_passed_over_is_said(omoide: Run, answer: Answer) -> None:
    """Statements of an RDF file that could not be kept are named, and only then."""
    Path("foreign.ttl").write_text(
        "@prefix jido: <https://jido.ai/ontology#> . @prefix ex: <https://example.org/> ."
        " jido:memory_m a jido:Fact ; jido:summary 's' ; ex:colour 'red' ; ex:near [ ex:far 1 ] ."
        " ex:n a ex:Note ."
    )
    said = omoide("import", "foreign.ttl")
    assert said.stdout == "foreign.ttl  1 memory, 1 new\n"
    assert "passed over: 1 of class https://example.org/Note: no memory" in said.stderr
    assert "near" in said.stderr
    assert "colour" not in said.stderr
    assert len(answer("import", "foreign.ttl", "--store", "other.db")["passed_over"]) == 3
