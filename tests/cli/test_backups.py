"""Backups and their restoration."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from tests.support.store_process import start

from omoide.stores import Document, open_store
from omoide.stores.sqlite.store import SQLiteStore, abandoned_copies

Run = Callable[..., Result]
Answer = Callable[..., Any]


@pytest.mark.usefixtures("three")
def test_a_backup_is_a_store(omoide: Run, answer: Answer, home: Path) -> None:
    """A backup can be opened like the original, and replaces an older one only when told to."""
    assert omoide("backup", "copy.db").stdout.startswith("copy.db  ")
    assert len(answer("list", "--store", "copy.db")["entries"]) == 3
    omoide("remember", "One more.")
    assert "--force" in omoide("backup", "copy.db", code=2).stderr
    assert answer("backup", "copy.db", "--force")["size_bytes"] == (home / "copy.db").stat().st_size
    assert len(answer("list", "--store", "copy.db")["entries"]) == 4
    omoide("backup", "no/such/folder/copy.db", code=4)
    omoide("backup", "copy2.db", "--store", "memory://", code=2)


def own_names(store: Path) -> dict[str, Path]:
    """Ways of naming a file of the store, or one that a backup would use on its way."""
    (store.parent / "link.db").symlink_to(store)
    (store.parent / "hard.db").hardlink_to(store)
    return {
        "itself": store,
        "relative": Path(os.path.relpath(store)),
        "round about": store.parent / "x" / ".." / store.name,
        "symbolic link": store.parent / "link.db",
        "hard link": store.parent / "hard.db",
        "log": store.with_name(f"{store.name}-wal"),
        "index of the log": store.with_name(f"{store.name}-shm"),
    }


def test_a_backup_never_goes_where_the_store_is(omoide: Run, home: Path) -> None:
    """However its files are named, they are refused, also with `--force`, and stay as they are."""
    store = home / "s.db"
    omoide("remember", "One.", "--id", "m1", "--store", str(store))
    (home / "x").mkdir()
    with open_store(f"sqlite:///{store}", embedder="none") as held:
        before = store.stat().st_ino
        for path in own_names(store).values():
            for command in (["backup", str(path), "--force"], ["restore-backup", str(path), "--yes"]):
                refused = omoide(*command, "--store", str(store), code=2)
                assert "belongs to the store itself; choose another path" in refused.stderr
        assert store.stat().st_ino == before
        assert held.sync.check() == []


def test_a_store_that_is_named_like_an_abandoned_copy_is_kept(omoide: Run, home: Path) -> None:
    """Neither a backup nor a repair takes the store for one."""
    store = ("--store", "b.db.01234567.part")
    omoide("remember", "One.", "--id", "m1", *store)
    omoide("backup", "b.db", *store)
    assert "killed backup" not in omoide("doctor", "--repair", *store).stdout
    omoide("show", "m1", *store)


@pytest.mark.parametrize("name", ["b.db.new", "b.db.new.part"])
def test_a_store_that_is_named_like_an_unfinished_backup_is_safe(name: str, omoide: Run, home: Path) -> None:
    """What a backup removes on its way is never the store."""
    omoide("remember", "One.", "--id", "m1", "--store", name)
    assert "belongs to the store itself" in omoide("backup", "b.db", "--store", name, code=2).stderr
    omoide("show", "m1", "--store", name)


def kill_backup(store: Path, target: Path) -> Path:
    """What a backup leaves that is killed half way; while it lives, others leave its copy alone."""
    before = {*target.parent.glob("*.part")}
    process = start("back_up", store, target)
    assert process.stdout is not None
    assert process.stdout.readline() == b"True\n"
    (part,) = {*target.parent.glob("*.part")} - before
    assert abandoned_copies(store) == []
    process.kill()
    process.communicate()
    assert abandoned_copies(store) == [part]
    return part


@pytest.mark.parametrize("name", ["copy.db", "[c]*.db"])
def test_what_a_killed_backup_left_is_removed_by_the_next(
    name: str, omoide: Run, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is named; other files of such a name, and a copy that is being written, stay."""
    with open_store(f"sqlite:///{home}/memory.db", embedder="none") as store:
        store.sync.save(Document(kind="large", id="d", body="x" * 9_000_000))
    others = [home / f"{name}.12345678.part", home / f"{name}.01234567.part.txt", home / "x.01234567.part"]
    for other in others:
        other.write_text("Something else.")
    part = kill_backup(home / "memory.db", home / name)
    assert part.exists()
    omoide("backup", name, "--store", "memory.db")
    assert not part.exists()
    assert f"removed {part.name}, which a killed backup left" in caplog.text
    assert all(other.exists() for other in others)


def test_doctor_names_what_a_killed_backup_left(omoide: Run, answer: Answer, home: Path) -> None:
    """It is a note, and a repair removes it."""
    with open_store(f"sqlite:///{home}/memory.db", embedder="none") as store:
        store.sync.save(Document(kind="large", id="d", body="x" * 9_000_000))
    part = kill_backup(home / "memory.db", home / "copy.db")
    note = {
        "name": "backup",
        "state": "note",
        "detail": f"a killed backup left {part}; omoide doctor --repair removes it",
    }
    assert note in answer("doctor", "--store", "memory.db")["checks"]
    repaired = answer("doctor", "--repair", "--store", "memory.db")["checks"]
    assert {**note, "state": "ok", "detail": f"removed {part}, which a killed backup left"} in repaired
    assert [file.name for file in home.iterdir()] == ["memory.db"]


@pytest.mark.usefixtures("three")
def test_a_copy_that_is_in_use_is_not_replaced(omoide: Run, home: Path) -> None:
    """A backup that somebody has opened as a store keeps its changes."""
    omoide("backup", "copy.db")
    with open_store(f"sqlite:///{home}/copy.db", embedder="none") as held:
        assert held.sync.check() == []
        refused = omoide("backup", "copy.db", "--force", code=2)
    assert "is in use as a store: copy.db-" in refused.stderr
    omoide("backup", "copy.db", "--force")


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=repr)
def test_a_backup_that_fails_leaves_nothing_behind(
    error: BaseException, omoide: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither an unfinished copy stays, nor is an older one harmed."""
    omoide("backup", "copy.db")
    before = (home / "copy.db").read_bytes()
    (home / "copy.db.new").write_bytes(b"left by a run that was killed")
    backup = SQLiteStore.backup

    def broken(self: SQLiteStore, target: Path, **more: Any) -> None:
        backup(self, target, **more)
        raise error

    monkeypatch.setattr(SQLiteStore, "backup", broken)
    omoide("backup", "copy.db", "--force", code=130 if isinstance(error, KeyboardInterrupt) else 4)
    assert (home / "copy.db").read_bytes() == before
    assert [path.name for path in home.iterdir() if path.name.startswith("copy.db")] == ["copy.db"]


@pytest.mark.usefixtures("three")
def test_a_backup_takes_the_place_of_the_store(omoide: Run, answer: Answer, home: Path) -> None:
    """Everything is as it was when the backup was made, in every namespace."""
    omoide("remember", "Of another.", "--id", "o1", "--namespace", "n2")
    omoide("backup", "monday.db")
    omoide("erase", "m1", "--yes")
    omoide("remember", "Later.", "--id", "later")
    omoide("forget", "o1", "--namespace", "n2")
    file = home / "data" / "omoide" / "memory.db"
    assert omoide("restore-backup", "monday.db", "--yes").stdout == f"{file}  restored from monday.db\n"
    assert [entry["id"] for entry in answer("list")["entries"]] == ["m3", "m2", "m1"]
    assert [entry["id"] for entry in answer("list", "--namespace", "n2")["entries"]] == ["o1"]
    assert answer("doctor")["ok"]


@pytest.mark.usefixtures("three")
def test_restoring_asks_first(omoide: Run, answer: Answer, home: Path) -> None:
    """What would be replaced, and by what, is shown; anything but yes changes nothing."""
    omoide("backup", "monday.db")
    omoide("remember", "Later.", "--id", "later")
    declined = omoide("restore-backup", "monday.db", input="n\n", code=1).stderr
    assert f"Everything in {home}/data/omoide/memory.db (0." in declined
    assert "will be replaced by monday.db (0." in declined
    assert len(answer("list")["entries"]) == 4
    omoide("restore-backup", "monday.db", input="y\n")
    assert len(answer("list")["entries"]) == 3


@pytest.mark.usefixtures("three")
def test_a_store_comes_back_where_there_is_none(omoide: Run, answer: Answer) -> None:
    """A lost store is made anew from its backup, without a question."""
    omoide("backup", "monday.db")
    assert answer("restore-backup", "monday.db", "--store", "new/place.db")["path"] == "monday.db"
    assert len(answer("list", "--store", "new/place.db")["entries"]) == 3


@pytest.mark.usefixtures("three")
def test_what_is_no_backup_is_refused(omoide: Run, answer: Answer, home: Path) -> None:
    """A file that is absent or something else changes nothing; stores without a file have no backups."""
    (home / "notes.txt").write_text("no database at all" * 100)
    missing = omoide("restore-backup", "absent.db", "--yes", code=1)
    assert missing.stderr == (
        "omoide: backup 'absent.db' does not exist; name a file that `omoide backup` wrote\n"
    )
    assert omoide("restore-backup", "notes.txt", "--yes", code=4).stderr == (
        "omoide: store 'notes.txt' is no backup, or a damaged one (file is not a database); "
        "name a file that backup() wrote\n"
    )
    omoide("backup", "monday.db")
    omoide("restore-backup", "monday.db", "--yes", "--store", "memory://", code=2)
    assert len(answer("list")["entries"]) == 3


@pytest.mark.usefixtures("three")
def test_a_store_that_cannot_be_opened_can_still_be_brought_back(
    omoide: Run, answer: Answer, home: Path
) -> None:
    """The error says what to move away, and after that the backup is restored."""
    omoide("backup", "monday.db")
    file = home / "data" / "omoide" / "memory.db"
    file.write_bytes(b"nonsense" * 2000)
    refused = omoide("restore-backup", "monday.db", "--yes", code=4)
    assert "move it away, with any memory.db-wal and memory.db-shm, and restore again" in refused.stderr
    file.rename(home / "damaged.db")
    omoide("restore-backup", "monday.db")
    assert len(answer("list")["entries"]) == 3
