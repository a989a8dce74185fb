"""The `erase` and `scrub` commands."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import Result

from omoide import AgentSpec, Session, open_store
from omoide.cli import shell
from omoide.errors import Busy
from omoide.stores.sql import writes

Run = Callable[..., Result]
Answer = Callable[..., Any]


@pytest.mark.usefixtures("three")
def test_erasing_asks_first(omoide: Run, answer: Answer) -> None:
    """Without `--yes` the memories are shown and a question is asked; anything but yes changes nothing."""
    declined = omoide("erase", "m1", input="n\n", code=1)
    assert "Memory number 1." in declined.stderr
    assert "Erase them permanently?" in declined.stderr
    omoide("erase", "m1", input="", code=1)
    assert len(answer("list")["entries"]) == 3
    assert omoide("erase", "m1", input="y\n").stdout == "m1  erased, in 1 version\n"
    assert [entry["id"] for entry in answer("list")["entries"]] == ["m3", "m2"]
    omoide("show", "m1", code=1)


@pytest.mark.usefixtures("three")
def test_a_dry_run_shows_what_would_go(omoide: Run, answer: Answer) -> None:
    """`--dry-run` lists the memories and keeps them."""
    shown = omoide("erase", "--all", "--dry-run").stdout
    assert shown.splitlines()[0] == "3 memories of namespace default, agent default:"
    assert len(answer("erase", "--all", "--dry-run")["entries"]) == 3
    assert len(answer("list")["entries"]) == 3


@pytest.mark.usefixtures("three")
def test_everything_in_a_scope_can_be_erased(omoide: Run, answer: Answer) -> None:
    """`--all` removes what the scope holds and nothing else; JSON has the receipts."""
    omoide("remember", "Of a session.", "--id", "s", "--session", "s1")
    receipt = answer("erase", "--all", "--session", "s1", "--yes")["receipts"][0]
    assert receipt["ids"] == ["s"]
    assert len(answer("list")["entries"]) == 3
    answer("erase", "--all", "--yes")
    omoide("list", code=1)


def test_erasing_needs_to_know_what(omoide: Run) -> None:
    """Neither ids nor `--all`, or both, is refused."""
    omoide("remember", "x", "--id", "m1")
    omoide("erase", code=2)
    omoide("erase", "m1", "--all", code=2)


@pytest.mark.usefixtures("three")
def test_an_id_that_is_given_twice_is_erased_once(omoide: Run, answer: Answer) -> None:
    """Repeating an id changes nothing, and the receipt is shown."""
    assert omoide("erase", "m1", "m1", "--yes").stdout == "m1  erased, in 1 version\n"
    assert [receipt["ids"] for receipt in answer("erase", "m2", "m2", "--yes")["receipts"]] == [["m2"]]
    assert [entry["id"] for entry in answer("list")["entries"]] == ["m3"]


@pytest.mark.usefixtures("three")
def test_several_ids_are_erased_at_once(omoide: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one receipt, and the file is rewritten once."""
    rewrites: list[object] = []
    monkeypatch.setattr("omoide.stores.sqlite.store.rewrite", rewrites.append)
    omoide("remember", "Memory number one.", "--id", "m1")
    erased = omoide("erase", "m1", "m3", "--yes")
    assert erased.stdout == "m1, m3  erased, in 3 versions\n"
    assert len(rewrites) == 1
    assert erased.stderr.count("not reached: backups made before") == 1


@pytest.mark.usefixtures("three")
def test_one_unknown_id_among_several_changes_nothing(omoide: Run, answer: Answer) -> None:
    """All ids are looked up before the first is erased."""
    assert "'absent'" in omoide("erase", "m1", "absent", "m2", "--yes", code=1).stderr
    assert len(answer("list")["entries"]) == 3


@pytest.mark.usefixtures("three")
def test_a_failure_half_way_erases_nothing(
    omoide: Run, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several ids go together: if one cannot be erased, all stay, and the line is that of the failure."""
    erase_one = writes._erase_one
    calls = iter(range(3))

    def fail_second(*given: Any) -> Any:
        if next(calls) == 1:
            raise Busy("x.db", "is busy", "try again")
        return erase_one(*given)

    monkeypatch.setattr(writes, "_erase_one", fail_second)
    failed = omoide("erase", "m1", "m2", "m3", "--yes", code=4)
    assert (failed.stdout, failed.stderr) == ("", "omoide: store 'x.db' is busy; try again\n")
    assert len(answer("list")["entries"]) == 3


def test_everything_means_everything_of_this_project(
    omoide: Run, answer: Answer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a repository, `--all` says that it is limited to it: asking, with `--yes` and in a dry run."""
    omoide("remember", "Elsewhere.", "--id", "out")
    (home / "repo" / ".git").mkdir(parents=True)
    monkeypatch.chdir(home / "repo")
    omoide("remember", "Here.", "--id", "in")
    scope = f"namespace default, agent default, project {home / 'repo'} [repository]"
    hint = "Only the repository you are in is meant; --project '' means all projects."

    dry = omoide("erase", "--all", "--dry-run")
    assert (dry.stdout.splitlines()[0], dry.stderr) == (f"1 memory of {scope}:", f"{hint}\n")
    asked = omoide("erase", "--all", input="n\n", code=1).stderr.splitlines()
    assert asked[:2] == [hint, f"1 memory of {scope}:"]
    assert answer("erase", "--all", "--dry-run")["scope"]["project_id"] == str(home / "repo")
    done = omoide("erase", "--all", "--yes")
    assert done.stdout == f"1 memory of {scope} erased, in 1 version\n"
    assert done.stderr.splitlines()[0] == hint

    assert [entry["id"] for entry in answer("list", "--project", "")["entries"]] == ["out"]
    assert hint not in omoide("erase", "--all", "--project", "", "--yes").stderr


@pytest.mark.usefixtures("three")
def test_the_scope_of_everything_is_told_outside_of_projects_too(omoide: Run) -> None:
    """Namespace, agent and session are named when all of theirs went."""
    omoide("remember", "Of a session.", "--session", "s1")
    assert omoide("erase", "--all", "--session", "s1", "--yes").stdout == (
        "1 memory of namespace default, agent default, session s1 erased, in 1 version\n"
    )


@pytest.mark.usefixtures("three")
def test_what_erasing_left_can_be_scrubbed(
    omoide: Run, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what is out of its reach; where somebody still reads, that is told with code 4."""
    done = omoide("scrub")
    assert done.stdout == "scrubbed\n"
    assert "not reached: backups made before\n" in done.stderr
    assert answer("scrub")["scrubbed"] is True
    monkeypatch.setattr("omoide.stores.sqlite.store.truncate_wal", lambda _: False)
    kept = omoide("scrub", code=4)
    assert kept.stdout == ""
    assert "not reached: the file and its write-ahead log, which another connection reads" in kept.stderr
    assert len(answer("list")["entries"]) == 3


@pytest.fixture
def users(omoide: Run, home: Path) -> None:
    """Memories and a session of two users with two agents, and what belongs to none."""
    for user in ("ann", "ben"):
        omoide("remember", f"{user} likes tea.", "--user", user, "--id", f"{user}-1")
        omoide("remember", f"{user} pays.", "--user", user, "--id", f"{user}-2", "--agent", "sales")
        omoide("remember", f"{user} is away.", "--user", user, "--id", f"{user}-3", "--project", "shop")
    omoide("remember", "The shop opens at nine.", "--id", "shared")

    async def talk() -> None:
        url = shell.resolve_settings({}, os.environ, home).store.value or ""
        async with open_store(url, embedder="none") as store:
            for user in ("ann", "ben"):
                spec = AgentSpec(id="support")
                session = Session.open(spec, f"s-{user}", store=store, user_id=user, model=lambda *_: "Yes.")
                async with session:
                    await session.chat(f"I am {user}.")

    anyio.run(talk)


@pytest.mark.usefixtures("users")
def test_a_user_is_erased_with_all_that_is_theirs(omoide: Run, answer: Answer) -> None:
    """Of every agent, project and session, with one receipt; others keep theirs."""
    dry = answer("erase", "--user", "ann", "--dry-run")
    assert sorted(entry["id"] for entry in dry["entries"]) == ["ann-1", "ann-2", "ann-3"]
    assert dry["documents"] >= 2
    asked = omoide("erase", "--user", "ann", input="n\n", code=1).stderr.splitlines()
    found = f"3 memories and {dry['documents']} documents of namespace default, user ann"
    assert asked[0] == f"{found}:"
    done = answer("erase", "--user", "ann", "--yes", "--reason", "account closed")
    (receipt,) = done["receipts"]
    assert sorted(receipt["ids"]) == ["ann-1", "ann-2", "ann-3"]
    assert (receipt["documents"], receipt["reason"]) == (dry["documents"], "account closed")
    left = answer("list", "--agent", "", "--project", "")["entries"]
    assert sorted(entry["id"] for entry in left) == ["ben-1", "ben-2", "ben-3", "shared"]
    assert [one["session_id"] for one in answer("sessions", "--agent", "")["sessions"]] == ["s-ben"]
    again = omoide("erase", "--user", "ann", "--yes")
    assert again.stdout == "0 memories of namespace default, user ann erased, in 0 versions\n"


@pytest.mark.usefixtures("users")
def test_a_user_from_the_environment_is_not_erased_by_accident(
    omoide: Run, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The option names the user; a part of what is theirs takes `--all`."""
    monkeypatch.setenv("OMOIDE_USER", "ann")
    omoide("erase", "--yes", code=2)
    monkeypatch.delenv("OMOIDE_USER")
    refused = omoide("erase", "--user", "ann", "--agent", "sales", "--yes", code=2).stderr
    assert "add --all to erase this part of what is theirs" in refused
    omoide("erase", "--user", "", "--yes", code=2)
    part = answer("erase", "--user", "ann", "--agent", "sales", "--all", "--yes")["receipts"]
    assert [receipt["ids"] for receipt in part] == [["ann-2"]]
    one = answer("erase", "ann-1", "--user", "ann", "--yes")["receipts"]
    assert [receipt["ids"] for receipt in one] == [["ann-1"]]
    omoide("erase", "ben-1", "--user", "ann", "--yes", code=1)
