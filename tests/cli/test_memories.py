"""Commands that write, find and forget memories."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support.stores import rate_hits

from omoide import clock
from omoide.cli.app import app

Run = Callable[..., Result]
Answer = Callable[..., Any]

DAY = 24 * 3_600_000


def test_what_is_remembered_is_recalled(omoide: Run) -> None:
    """A memory is stored with a receipt, and found by a question, from one command to the next."""
    stored = omoide("remember", "User prefers the name Alex.", "--type", "fact", "--id", "name")
    assert stored.stdout == "name  stored, rev 1\n"
    found = omoide("recall", "what name does the user prefer?")
    assert found.stdout.startswith("1. User prefers the name Alex.  [name, fact, ")


def test_every_field_can_be_given(answer: Answer) -> None:
    """Options fill the fields of the entry, durations counted from now."""
    before = clock.now()
    entry = answer(
        *("remember", "Use Postgres.", "--type", "decision", "--tag", "db", "--tag", "infra"),
        *("--confidence", "0.5", "--importance", "0.25", "--source", "user", "--rationale", "pgvector"),
        *("--at", "2d", "--expires", "7d", "--session", "s1", "--agent", "a1", "--project", "p1"),
    )["entry"]
    assert {name: entry[name] for name in ("type", "tags", "confidence", "importance", "source")} == {
        "type": "decision", "tags": ["db", "infra"], "confidence": 0.5, "importance": 0.25, "source": "user",
    }  # fmt: skip
    assert (entry["session_id"], entry["agent_id"], entry["project_id"]) == ("s1", "a1", "p1")
    assert entry["rationale"] == "pgvector"
    assert 0 <= entry["occurred_at"] - (before - 2 * DAY) < 60_000
    assert 0 <= entry["expires_at"] - (before + 7 * DAY) < 60_000


def test_text_may_come_from_standard_input(omoide: Run, answer: Answer) -> None:
    """A dash reads the memory from standard input, without the newline at its end."""
    omoide("remember", "-", "--id", "m1", input="Grüße,\nzwei Zeilen\n")
    assert answer("show", "m1")["entry"]["content"] == "Grüße,\nzwei Zeilen"
    refused = omoide("remember", "-", input=b"\xff\xfe", code=2)
    assert refused.stderr == "omoide: standard input is not UTF-8; convert it first\n"


def test_the_same_words_are_stored_once_unless_told_otherwise(answer: Answer) -> None:
    """A repeated memory is the older one; `--no-dedupe` stores it again."""
    first = answer("remember", "Twice.")
    assert answer("remember", "Twice.")["outcome"] == "duplicate_of"
    again = answer("remember", "Twice.", "--no-dedupe")
    assert (again["outcome"], again["entry"]["id"] != first["entry"]["id"]) == ("stored", True)


def test_a_newer_memory_can_replace_an_older_one(omoide: Run, answer: Answer) -> None:
    """`--supersedes` takes the older memory out of recall in the same step."""
    omoide("remember", "Alex lives in Rome.", "--id", "old")
    assert (
        answer("remember", "Alex lives in Oslo.", "--id", "new", "--supersedes", "old")["outcome"]
        == "superseded"
    )
    assert [hit["entry"]["id"] for hit in answer("recall", "where does Alex live?")["hits"]] == ["new"]
    assert answer("show", "old")["entry"]["superseded_by"] == "new"


def test_revisions_guard_against_others(omoide: Run) -> None:
    """A write that expects another revision than the stored one ends with code 3 and changes nothing."""
    omoide("remember", "One.", "--id", "m1", "--expected-rev", "0")
    refused = omoide("remember", "Two.", "--id", "m1", "--expected-rev", "5", code=3)
    assert refused.stderr.startswith("omoide: entry 'm1' is at revision 1, not 5; ")
    assert omoide("remember", "Two.", "--id", "m1", "--expected-rev", "1").stdout == "m1  stored, rev 2\n"
    omoide("forget", "m1", "--expected-rev", "1", code=3)


def test_a_repeated_command_with_a_key_changes_nothing(omoide: Run, answer: Answer) -> None:
    """The same idempotency key gives the first receipt; with another text it is a conflict."""
    first = answer("remember", "Once.", "--idempotency-key", "k1")
    assert answer("remember", "Once.", "--idempotency-key", "k1")["entry"] == first["entry"]
    omoide("remember", "Else.", "--idempotency-key", "k1", code=3)


def test_forgetting_can_be_undone(omoide: Run, answer: Answer) -> None:
    """What is forgotten is not recalled, still shown with the reason, and back after restore."""
    omoide("remember", "Lives in Rome.", "--id", "m1")
    assert omoide("forget", "m1", "--reason", "moved").stdout == "m1  forgotten, rev 2: Lives in Rome.\n"
    assert answer("recall", "Rome", code=1)["hits"] == []
    assert "forgotten: moved" in omoide("show", "m1").stdout
    assert omoide("restore", "m1").stdout == "m1  restored, rev 3: Lives in Rome.\n"
    assert len(answer("recall", "Rome")["hits"]) == 1


def test_a_replacement_can_be_named_when_forgetting(omoide: Run, answer: Answer) -> None:
    """Forgetting in favour of another memory tells which."""
    for id in ("old", "new"):
        omoide("remember", f"The {id} one.", "--id", id)
    assert answer("forget", "old", "--replacement", "new")["superseded_by"] == "new"


def test_recall_is_narrowed_by_filters(omoide: Run, answer: Answer) -> None:
    """Types, tags, time, confidence and limit leave out what does not fit."""
    omoide(
        "remember", "Postgres it is.", "--id", "a", "--type", "decision", "--tag", "db", "--at", "2024-05-01"
    )
    omoide("remember", "Postgres is fast.", "--id", "b", "--type", "fact", "--confidence", "0.3")

    def found(*options: str) -> list[str]:
        return sorted(hit["entry"]["id"] for hit in answer("recall", "postgres", *options)["hits"])

    assert found() == ["a", "b"]
    assert found("--type", "decision") == ["a"]
    assert found("--type", "decision", "--type", "fact") == ["a", "b"]
    assert found("--tag", "db") == ["a"]
    assert found("--until", "2024-05-01") == ["a"]
    assert found("--since", "1d") == ["b"]
    assert found("--min-confidence", "0.5") == ["a"]
    assert len(found("--limit", "1")) == 1
    assert len(found("--max-tokens", "20")) == 1


def test_recall_explains_itself(omoide: Run) -> None:
    """`--explain` says in words why each hit is there, each reason once and without a number."""
    omoide("remember", "The greyhound is called Pixel.", "--id", "dog")
    omoide("remember", "The canoe leaks.", "--id", "canoe")
    shown = omoide("recall", "what is the greyhound called?", "--explain").stdout
    assert shown.startswith("1. The greyhound is called Pixel.")
    assert "└── " in shown
    assert "dog, " in shown
    assert shown.count("├── has words of the question\n") == 1
    assert "(own" not in shown


def test_relevance_is_shown_and_can_be_required(
    omoide: Run, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each hit has its relevance and the newer one; what is below is counted on standard error."""
    rate_hits(monkeypatch, {"berlin": "paris"}, paris=0.912, berlin=0.4)
    omoide("remember", "I live in Berlin.", "--id", "berlin")
    omoide("remember", "I live in Paris.", "--id", "paris")
    shown = omoide("recall", "where do I live?").stdout
    assert "relevance 0.91" in shown
    assert "relevance 0.40, newer: paris" in shown
    assert "newer: paris" in omoide("recall", "where do I live?", "--explain").stdout
    strict = omoide("recall", "where do I live?", "--min-relevance", "0.5")
    assert "Berlin" not in strict.stdout
    assert strict.stderr == "1 left out, below relevance 0.5.\n"
    told = answer("recall", "where do I live?", "--min-relevance", "0.5")
    assert [(hit["entry"]["id"], hit["relevance"]) for hit in told["hits"]] == [("paris", 0.912)]
    assert [(hit["entry"]["id"], hit["newer"]) for hit in told["withheld"]] == [("berlin", "paris")]
    omoide("recall", "where do I live?", "--min-relevance", "0.95", code=1)
    omoide("recall", "where do I live?", "--min-relevance", "2", code=2)


def test_a_part_below_zero_is_said_in_words(omoide: Run) -> None:
    """Where a memory is behind the others by some part, it is not said to be ahead."""
    for at, text in enumerate(["The greyhound is called Pixel.", "The canoe leaks.", "Rome is hot."]):
        omoide("remember", text, "--id", f"m{at}")
    shown = omoide("recall", "what is the greyhound called?", "--numbers").stdout
    lines = [line for line in shown.splitlines() if "(window, " in line]
    assert len(lines) == 3
    for line in lines:
        assert ("fewer words of the question than most" in line) == ("── -" in line)


def test_recall_that_finds_nothing_ends_with_code_1(omoide: Run, answer: Answer) -> None:
    """A script can tell from the code that nothing was found; people are told on standard error."""
    omoide("remember", "Something.", "--session", "s1")
    nothing = omoide("recall", "anything", "--session", "s2", code=1)
    told = "Nothing found.\nnothing of session s2; 1 of others: --session ''\n"
    assert (nothing.stdout, nothing.stderr) == ("", told)
    assert answer("recall", "anything", "--session", "s2", code=1)["hits"] == []


def test_memories_of_others_are_not_seen(omoide: Run, answer: Answer) -> None:
    """Namespace, agent, project and session each hide what lies outside; an empty agent shows all."""
    omoide("remember", "Secret.", "--id", "m1", "--agent", "a1", "--namespace", "n1", "--project", "p1")
    inside = ("--agent", "a1", "--namespace", "n1", "--project", "p1")
    assert answer("show", "m1", *inside)["entry"]["content"] == "Secret."
    for other in (("--agent", "a2"), ("--namespace", "n2"), ("--project", "p2"), ("--session", "s1")):
        omoide("show", "m1", *inside, *other, code=1)
        omoide("recall", "Secret", *inside, *other, code=1)
        omoide("forget", "m1", *inside, *other, code=1)
    assert len(answer("recall", "Secret", "--namespace", "n1", "--agent", "")["hits"]) == 1


def test_the_project_is_the_repository(
    omoide: Run, answer: Answer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is remembered inside a repository belongs to it, and another one does not see it."""
    for name in ("one", "two"):
        (home / name / ".git").mkdir(parents=True)
    monkeypatch.chdir(home / "one")
    assert answer("remember", "Here.")["entry"]["project_id"] == str(home / "one")
    monkeypatch.chdir(home / "two")
    omoide("recall", "Here", code=1)
    assert len(answer("recall", "Here", "--project", "")["hits"]) == 1


def test_options_may_stand_before_the_command(omoide: Run, answer: Answer, home: Path) -> None:
    """What stands after the command wins over what stands before it, and both over the variable."""
    url = f"sqlite:///{home}/other.db"
    omoide("--store", url, "--agent", "a1", "remember", "Here.", "--id", "m1")
    assert (home / "other.db").exists()
    assert answer(
        "--store", "sqlite:///absent.db", "--agent", "x", "show", "m1", "--store", url, "--agent", "a1"
    )


HUGE = "9" * 20
WRONG = [
    (["remember", ""], "invalid memory entry: content is empty"),
    (["remember", "x", "--type", "gossip"], "--type is 'gossip'; use one of fact"),
    (["remember", "x", "--confidence", "2"], "confidence is 2.0; pass a number from 0 to 1"),
    (["remember", "x", "--confidence", "high"], "'high' is not a valid float"),
    (["remember", "x", "--expires", "soon"], "--expires is 'soon'"),
    (["remember", "x", "--agent", ""], "scope.agent_id is missing"),
    (["remember", "x", "--id", "a\x07"], "id"),
    (["remember"], "Missing argument 'TEXT'"),
    (["recall", ""], "query is empty"),
    (["recall", "x", "--limit", "0"], "limit is 0"),
    (["recall", "x", "--since", "2024-02-02", "--until", "2024-01-01"], "since is after until"),
    (["recall", "x", "--store", "ftp://x"], "ftp://x"),
    (["recall", "x", "--limit", HUGE], "--limit"),
    (["recall", "x", "--max-tokens", HUGE], "--max-tokens"),
    (["list", "--limit", HUGE], f"Invalid value for '--limit': {HUGE} is not in the range"),
    (["list", "--limit", str(2**63 - 1)], "--limit"),
    (["list", "--since", "9" * 9 + "w"], "--since"),
    (["remember", "x", "--expected-rev", HUGE], "--expected-rev"),
    (["remember", "x", "--expires", "9" * 9 + "w"], "--expires"),
    (["remember", "x", "--importance", HUGE], "importance"),
    (["forget", "x", "--expected-rev", HUGE], "--expected-rev"),
    (["list", "--cursor", "nonsense"], "cursor"),
    (["list", "--store", "sqlite:///a#b.db"], "#"),
    (["list", "--store", "sqlite:///~no-such-user/x.db"], "no-such-user"),
    (["list", "--store", "x" * 300], "300"),
    (["frobnicate"], "No such command 'frobnicate'"),
    (["recall", "x", "--frobnicate"], "No such option '--frobnicate'"),
]


@pytest.mark.parametrize(("arguments", "problem"), WRONG, ids=[" ".join(given[0]) or "-" for given in WRONG])
def test_wrong_input_is_one_line_and_code_2(arguments: list[str], problem: str, omoide: Run) -> None:
    """What is given wrongly is named on one line, with what to do, and nothing is printed besides."""
    omoide("remember", "Something.")
    refused = omoide(*arguments, code=2)
    assert refused.stdout == ""
    assert problem in refused.stderr
    assert refused.stderr.startswith("omoide: ")
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("verb", ["show", "history", "forget", "restore", "erase"])
def test_an_unknown_id_ends_with_code_1(verb: str, omoide: Run) -> None:
    """An id that is not there is an error of its own, which says where to look."""
    omoide("remember", "Something.")
    missing = omoide(verb, "mem_absent", code=1)
    assert missing.stderr.startswith(
        "omoide: entry 'mem_absent' does not exist; check the id, and the scope that was searched: namespace "
    )


@pytest.mark.parametrize(
    "arguments", [["recall", "x"], ["list"], ["show", "x"], ["backup", "b.db"], ["reindex"]]
)
def test_reading_makes_no_store(arguments: list[str], omoide: Run, home: Path) -> None:
    """A command that reads says that there is no store yet, and leaves none behind."""
    assert "remember something first" in omoide(*arguments, code=1).stderr
    assert not (home / "data").exists()


@pytest.mark.parametrize(
    "name", ["a#b.db", "p%41.db", "q?x.db", "a b+c&d.db", "~x.db", "思い出.db", "50%.db"]
)
def test_a_path_with_special_letters_is_that_path(name: str, omoide: Run, answer: Answer, home: Path) -> None:
    """A file is the one named, whatever its name would mean in a URL."""
    path = f"./{name}" if name.startswith("~") else name
    omoide("remember", "Here.", "--id", "m1", "--store", path)
    assert name in {file.name for file in home.iterdir()}
    assert answer("show", "m1", "--store", path)["entry"]["content"] == "Here."
    assert answer("doctor", "--store", path)["ok"]


@pytest.mark.parametrize("given", ["~/notes.db", "sqlite:///~/notes.db"])
def test_a_tilde_is_the_home_for_every_command(
    given: str, omoide: Run, answer: Answer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written below `~` is read there, by path and by URL, and no folder of that name is made."""
    (home / "elsewhere").mkdir()
    monkeypatch.chdir(home / "elsewhere")
    omoide("remember", "Here.", "--id", "m1", "--store", given)
    assert (home / "notes.db").exists()
    assert list((home / "elsewhere").iterdir()) == []
    assert answer("show", "m1", "--store", given)["entry"]["content"] == "Here."


def test_a_password_is_never_shown(omoide: Run, answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither `doctor` nor an error tells the password in the URL of a store."""
    url = "postgresql://alex:hunter2@127.0.0.1:1/memory"
    shown = "postgresql://alex:***@127.0.0.1:1/memory"
    assert answer("doctor", "--store", url, code=1)["settings"]["store"]["value"] == shown
    printed = [omoide("doctor", "--store", url, code=1).output, omoide("list", "--store", url, code=4).output]
    monkeypatch.setenv("OMOIDE_STORE", url)
    commands = (["recall", "x"], ["backup", "b.db"], ["restore-backup", "b.db"], ["remember", "x"])
    printed += [CliRunner().invoke(app, command).output for command in commands]
    assert [text for text in printed if "hunter2" in text] == []
    assert all(shown in text for text in printed[:2])


def test_a_store_that_fails_ends_with_code_4(omoide: Run, home: Path) -> None:
    """A damaged file is named, with what to do, and is not touched."""
    file = home / "broken.db"
    file.write_bytes(b"not a database, " * 1000)
    failed = omoide("recall", "x", "--store", str(file), code=4)
    assert failed.stderr.startswith("omoide: store ")
    assert failed.stderr.count("\n") == 1
    assert file.read_bytes() == b"not a database, " * 1000


def test_control_characters_are_written_out(omoide: Run) -> None:
    """A memory cannot move the cursor of whoever reads it."""
    omoide("remember", "red \x1b[31m alert", "--id", "m1")
    for arguments in (
        ["recall", "alert"],
        ["recall", "alert", "--explain"],
        ["list"],
        ["show", "m1"],
        ["history", "m1"],
    ):
        shown = omoide(*arguments).stdout
        assert "\x1b" not in shown
        assert "\\x1b[31m" in shown


def test_everyday_words_are_types(omoide: Run, answer: Any) -> None:
    """They are stored as the type that they stand for; an unknown one is answered with the known ones."""
    omoide("remember", "Alex prefers tea.", "--type", "preference")
    assert [entry["type"] for entry in answer("list", "--type", "profile")["entries"]] == ["fact"]
    assert answer("recall", "tea", "--type", "habit")["hits"][0]["entry"]["type"] == "fact"
    for command in (("remember", "x"), ("list",), ("prune",)):
        refused = omoide(*command, "--type", "rumour", code=2)
        assert "--type is 'rumour'; use one of fact, assumption" in refused.stderr


def test_memories_are_found_by_the_file_that_they_are_about(omoide: Run, answer: Answer) -> None:
    """`--about` names files, modules and artifacts, when remembering, recalling and listing."""
    omoide(
        "remember", "Requests are JSON.", "--id", "m1", "--about", "lib/web.ex", "--about", "module:Shop.Web"
    )
    omoide("remember", "Pages are cached.", "--id", "m2", "--about", "lib/cache.ex")
    assert answer("show", "m1")["entry"]["tags"] == ["file:lib/web.ex", "module:Shop.Web"]
    for question in (("list",), ("recall", "requests and pages")):
        found = answer(*question, "--about", "lib/web.ex")
        entries = found["entries"] if "entries" in found else [hit["entry"] for hit in found["hits"]]
        assert [entry["id"] for entry in entries] == ["m1"]
    assert "about is" in omoide("remember", "x", "--about", "module:", code=2).stderr
