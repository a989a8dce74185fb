"""The `doctor`, `reindex` and `eval` commands."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tests.support.stores import redis_url

from omoide.cli import maintenance
from omoide.embedders import LOCAL_ENCODER, HashEmbedder
from omoide.stores import open_store

Run = Callable[..., Result]
Answer = Callable[..., Any]
TALKS = Path(__file__).parent.parent / "eval" / "talks.jsonl"


@pytest.mark.usefixtures("three")
def test_memories_are_listed_newest_first(omoide: Run, answer: Answer) -> None:
    """A list has one line a memory, in pages that a cursor continues."""
    lines = [line.split("\t") for line in omoide("list").stdout.splitlines()]
    assert [(line[0], line[1], line[3]) for line in lines] == [
        (f"m{number}", f"2024-01-0{number} 00:00:00Z", f"Memory number {number}.") for number in (3, 2, 1)
    ]
    first = answer("list", "--limit", "2")
    assert [entry["id"] for entry in first["entries"]] == ["m3", "m2"]
    assert [entry["id"] for entry in answer("list", "--cursor", first["cursor"])["entries"]] == ["m1"]
    assert f"--cursor {first['cursor']}" in omoide("list", "--limit", "2").stderr


@pytest.mark.usefixtures("three")
def test_a_list_leaves_out_what_no_longer_counts(omoide: Run, answer: Answer) -> None:
    """Forgotten and expired memories are listed only when asked for."""
    omoide("forget", "m2")
    omoide("remember", "Over.", "--id", "m4", "--expires", "2024-02-02")

    def ids(*options: str) -> list[str]:
        return [entry["id"] for entry in answer("list", *options)["entries"]]

    assert ids() == ["m3", "m1"]
    assert ids("--forgotten") == ["m3", "m2", "m1"]
    assert ids("--expired") == ["m4", "m3", "m1"]
    assert "(forgotten) Memory number 2." in omoide("list", "--forgotten").stdout
    assert omoide("list", "--type", "risk", code=1).stderr == "Nothing found.\n"


@pytest.mark.usefixtures("three")
def test_a_memory_is_shown_with_all_that_is_known(omoide: Run, answer: Answer) -> None:
    """What has a value is shown with its name, and JSON has the entry with its links and uses."""
    shown = dict(line.split(None, 1) for line in omoide("show", "m1").stdout.splitlines())
    assert shown["content"] == "Memory number 1."
    assert shown["occurred"] == "2024-01-01 00:00:00Z"
    assert "rationale" not in shown
    assert set(answer("show", "m1")) == {"entry", "links", "access"}


@pytest.mark.usefixtures("three")
def test_history_tells_how_it_came_to_be(omoide: Run, answer: Answer) -> None:
    """Every version is there, oldest first, and an erased memory ends in the reason."""
    omoide("remember", "Memory number one.", "--id", "m1")
    omoide("forget", "m1", "--reason", "wrong")
    lines = [line.split("\t") for line in omoide("history", "m1").stdout.splitlines()]
    assert [(line[0], line[2]) for line in lines] == [
        ("1", "Memory number 1."),
        ("2", "Memory number one."),
        ("3", "(forgotten: wrong) Memory number one."),
    ]
    omoide("erase", "m1", "--yes", "--reason", "asked")
    assert answer("history", "m1")["versions"][-1]["entry"] is None
    assert "erased: asked" in omoide("history", "m1").stdout
    assert "number" not in omoide("history", "m1").stdout


def test_an_interrupt_has_a_code_of_its_own(omoide: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever presses Ctrl-C sees one line, and a script sees code 130."""

    def interrupt(path: Path) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(maintenance, "free_bytes", interrupt)
    assert "stopped" in omoide("doctor", code=130).stderr


@pytest.mark.usefixtures("three")
def test_a_store_can_be_given_vectors(omoide: Run, answer: Answer) -> None:
    """Reindexing with an embedder gives every memory vectors, and later commands use them."""
    assert answer("doctor")["ok"]
    assert answer("reindex", "--embedder", "local")["embedder"] == LOCAL_ENCODER
    assert omoide("reindex", "--embedder", "local").stdout.startswith(f"vectors of {LOCAL_ENCODER}")
    recalled = answer("recall", "which memory is number two?", "--embedder", "auto")
    parts = {reason["part"] for reason in recalled["hits"][0]["why"]["reasons"]}
    assert not parts.isdisjoint({"vector", "cosine", "centered"})


@pytest.mark.usefixtures("three")
def test_reindexing_without_an_embedder_says_so(omoide: Run, answer: Answer) -> None:
    """Only terms are computed; where the setting comes from, and what computes vectors, is told."""
    told = "the embedder is 'none' [--embedder]; `omoide reindex --embedder local` computes them."
    assert told in omoide("reindex", "--embedder", "none").stderr
    assert "[OMOIDE_EMBEDDER]" in omoide("reindex").stderr
    assert "No vectors" not in omoide("reindex", "--embedder", "local").stderr
    assert answer("reindex", "--embedder", "none")["embedded"] == 0


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("removed", ["minilm", "static"])
@pytest.mark.parametrize("command", [["list"], ["recall", "what?"], ["reindex"]], ids=lambda parts: parts[0])
def test_embedders_of_earlier_versions_are_refused_by_every_command(
    removed: str, command: list[str], omoide: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the remedy, whether the name is an option or in the environment."""
    told = f"'{removed}' was removed; use 'local', then run: omoide reindex --store"
    assert told in omoide(*command, "--embedder", removed, code=2).stderr
    monkeypatch.setenv("OMOIDE_EMBEDDER", removed)
    assert told in omoide(*command, code=2).stderr


@pytest.mark.usefixtures("three")
def test_doctor_finds_another_embedder(answer: Answer, omoide: Run, home: Path) -> None:
    """Vectors of another encoder than the one in use are a problem, told with the command that solves it."""
    with open_store(f"sqlite:///{home / 'data/omoide/memory.db'}", embedder="none") as store:
        store.sync.reindex(HashEmbedder(8))
    checks = {check["name"]: check for check in answer("doctor", "--embedder", "local", code=1)["checks"]}
    assert checks["embedder"]["state"] == "problem"
    assert (
        "vectors of hash-8, not of omoide-encoder-2; omoide reindex --store" in checks["embedder"]["detail"]
    )
    recalled = answer("recall", "number two", "--embedder", "auto")
    assert "omoide reindex --store" in recalled["notices"][0]
    done = answer("reindex", "--embedder", "auto")
    assert (done["embedder"], done["embedded"]) == (LOCAL_ENCODER, 3)
    assert answer("doctor", "--embedder", "auto")["ok"]


def test_doctor_tells_where_settings_come_from(
    answer: Answer, omoide: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each setting has its value and its origin, and a store that is not there yet is no problem."""
    monkeypatch.setenv("OMOIDE_SESSION", "s1")
    told = answer("doctor", "--agent", "a1")
    assert told["ok"]
    assert told["settings"]["agent"] == {"value": "a1", "from": "--agent"}
    assert told["settings"]["session"] == {"value": "s1", "from": "OMOIDE_SESSION"}
    assert told["settings"]["store"]["from"] == "default"
    assert "does not exist yet" in omoide("doctor").stdout


@pytest.mark.usefixtures("three")
def test_doctor_checks_the_store(answer: Answer, omoide: Run) -> None:
    """A sound store passes every check."""
    checks = {check["name"]: check for check in answer("doctor")["checks"]}
    assert {"file", "file system", "space", "version", "embedder", "entries", "integrity"} <= set(checks)
    assert {check["state"] for check in checks.values()} <= {"ok", "note"}
    assert "3 in use" in checks["entries"]["detail"]
    assert "ok       integrity: everything agrees" in omoide("doctor").stdout


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize(
    ("name", "what", "told"),
    [("network_file_system", "nfs4", "over a network"), ("free_bytes", 5, "make room")],
    ids=["network", "space"],
)
def test_doctor_finds_problems_around_the_store(
    name: str, what: object, told: str, omoide: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network file system and a full disk are problems, and the code is 1."""
    monkeypatch.setattr(maintenance, name, lambda path: what)
    assert told in omoide("doctor", code=1).stdout


def test_doctor_finds_a_damaged_store(answer: Answer, home: Path) -> None:
    """A file that is no store is a problem with a remedy."""
    (home / "broken.db").write_bytes(b"nonsense" * 2000)
    told = answer("doctor", "--store", "broken.db", code=1)
    assert not told["ok"]
    assert [check["name"] for check in told["checks"] if check["state"] == "problem"] == ["store"]


def test_a_damaged_memory_is_set_aside(answer: Answer, omoide: Run, home: Path) -> None:
    """The others are listed and exported, doctor names the remedy, and a repair puts the memory in a file."""
    omoide("remember", "The kettle is on.", "--store", "m.db", "--id", "a")
    omoide("remember", "Tea is ready.", "--store", "m.db", "--id", "b")
    with closing(sqlite3.connect(home / "m.db")) as db:
        db.execute("UPDATE entries SET body = CAST('{' AS BLOB) WHERE id = 'a'")
        db.commit()
    assert [entry["id"] for entry in answer("list", "--store", "m.db")["entries"]] == ["b"]
    assert "a" in omoide("show", "a", "--store", "m.db", code=4).stderr
    told = answer("doctor", "--store", "m.db", code=1)
    assert any("doctor --repair" in check["detail"] for check in told["checks"])
    told = answer("doctor", "--repair", "--store", "m.db", code=1)
    states = {check["name"]: check for check in told["checks"]}
    assert states["repair"]["state"] == "problem"
    assert "1 rows of entries set aside" in states["repair"]["detail"]
    assert states["set aside"]["detail"].startswith(str(home / "m.db.damaged"))
    assert answer("doctor", "--store", "m.db")["ok"]
    assert answer("doctor", "--repair", "--store", "m.db")["ok"]


def test_a_repair_that_loses_rows_ends_with_code_1(answer: Answer, omoide: Run, home: Path) -> None:
    """A page that cannot be read takes its memories along, and a script learns it from the code."""
    for number in range(30):
        omoide("remember", f"Memory number {number}. {'x' * 900}", "--store", "m.db", "--id", f"m{number}")
    data = bytearray((home / "m.db").read_bytes())
    page = data.index(b"Memory number 17.") // 4_096 * 4_096
    data[page : page + 4_096] = bytes(4_096)
    (home / "m.db").write_bytes(data)
    told = answer("doctor", "--repair", "--store", "m.db", code=1)
    repair = next(check for check in told["checks"] if check["name"] == "repair")
    assert (told["ok"], repair["state"]) == (False, "problem")
    assert "rows of entries lost" in repair["detail"]
    assert answer("doctor", "--store", "m.db")["ok"]


def test_a_damaged_memory_can_be_erased(answer: Answer, omoide: Run, home: Path) -> None:
    """It cannot be shown before, and says so."""
    omoide("remember", "The kettle is on.", "--store", "m.db", "--id", "a")
    with closing(sqlite3.connect(home / "m.db")) as db:
        db.execute("UPDATE entries SET body = CAST('{' AS BLOB)")
        db.commit()
    assert "a is damaged" in omoide("erase", "a", "--yes", "--store", "m.db").stderr
    assert answer("doctor", "--store", "m.db")["ok"]


def test_a_file_without_a_header_is_repaired(answer: Answer, omoide: Run, home: Path) -> None:
    """Everything comes back, and the damaged file is kept."""
    omoide("remember", "The kettle is on.", "--store", "m.db", "--id", "a")
    data = bytearray((home / "m.db").read_bytes())
    data[:100] = bytes(100)
    (home / "m.db").write_bytes(data)
    assert "doctor --repair" in omoide("list", "--store", "m.db", code=4).stderr
    told = answer("doctor", "--repair", "--store", "m.db")
    assert told["ok"]
    assert [entry["id"] for entry in answer("list", "--store", "m.db")["entries"]] == ["a"]
    assert any(".damaged" in check["detail"] for check in told["checks"] if check["name"] == "set aside")


def test_recall_can_be_evaluated(answer: Answer, omoide: Run, home: Path) -> None:
    """The command gives the same report as the module, and does not touch the user's own store."""
    found = answer("eval", "jsonl", "--data", str(TALKS), "--limit-conversations", "1", "--questions", "3")
    assert found["settings"]["questions"] == 3
    assert found["settings"]["store"] == "a temporary file"
    assert not (home / "data").exists()
    printed = omoide("eval", "jsonl", "--data", str(TALKS), "--details", "d.jsonl", "--limit", "25").stdout
    assert "turn cat1-4" in printed
    assert len([json.loads(line) for line in Path("d.jsonl").read_text("utf-8").splitlines()]) == 10
    omoide("eval", "jsonl", "--data", "absent.jsonl", code=1)
    omoide("eval", "jsonl", "--data", str(TALKS), "--limit", "3", code=2)


def test_a_store_on_redis_is_repaired(answer: Answer, omoide: Run, home: Path) -> None:
    """The damaged memory goes to the file that is named, which doctor lists."""
    address = redis_url(home)
    omoide("remember", "The kettle is on.", "--store", address, "--id", "a")
    omoide("remember", "Tea is ready.", "--store", address, "--id", "b")
    core: Any = open_store(address, embedder="none").sync
    with closing(core) as store:
        store._server.execute("HSET", store._transactions.keys("default")("rows"), "a", "?")
    told = answer("doctor", "--store", address, code=1)
    assert any("doctor --repair" in check["detail"] for check in told["checks"])
    assert "--set-aside" in omoide("doctor", "--repair", "--store", address, code=2).stderr
    told = answer("doctor", "--repair", "--set-aside", str(home / "damaged"), "--store", address, code=1)
    states = {check["name"]: check for check in told["checks"]}
    assert "1 rows of entries set aside" in states["repair"]["detail"]
    assert states["set aside"]["detail"].startswith(str(home / "damaged"))
    assert [entry["id"] for entry in answer("list", "--store", address)["entries"]] == ["b"]
