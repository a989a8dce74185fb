"""Nothing that was acknowledged is lost around forks, second handles and replaced files."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.support.fork_process import acknowledged, start
from tests.support.stores import ADA, a_store, keep, list_ids, open_core

from omoide.errors import Replaced, StoreFailed
from omoide.stores.sqlite.connection import check_application

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def finish(process: subprocess.Popen[bytes]) -> bytes:
    """Return what a process printed; it has to end well."""
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return printed


def check_all_there(folder: Path, noted: Path) -> list[str]:
    """Every acknowledged write is in the store, and the file is sound; return what is there."""
    with closing(sqlite3.connect(folder / "memory.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with a_store("sqlite", folder) as store:
        assert store.check() == []
        there = list_ids(store, ADA)
    lost = set(acknowledged(noted)) - set(there)
    assert not lost, f"{len(lost)} of {len(acknowledged(noted))} acknowledged writes are lost"
    assert len(there) == len(set(there))
    return there


@pytest.mark.parametrize("way", ["exit", "return"])
@pytest.mark.parametrize("first", ["parent", "child"])
def test_both_sides_of_a_fork_keep_what_they_acknowledged(tmp_path: Path, first: str, way: str) -> None:
    """Whichever ends first, with or without its destructors, and while the other goes on."""
    noted = tmp_path / "noted"
    finish(start("both", tmp_path / "memory.db", noted, first, way))
    assert len(check_all_there(tmp_path, noted)) == 61


def test_a_daemon_keeps_what_it_writes_after_its_parents_ended(tmp_path: Path) -> None:
    """A process that forks twice after opening its store loses nothing."""
    noted = tmp_path / "noted"
    assert finish(start("daemon", tmp_path / "memory.db", noted)) == b"done"
    assert len(check_all_there(tmp_path, noted)) == 21


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_workers_of_a_process_pool_keep_what_they_write(tmp_path: Path, method: str) -> None:
    """However `multiprocessing` starts them, with a handle of the parent or one of their own."""
    noted = tmp_path / "noted"
    finish(start("pool", tmp_path / "memory.db", noted, method))
    assert len(check_all_there(tmp_path, noted)) == 91


@pytest.mark.parametrize(
    ("who", "fork", "said"),
    [
        ("other", "python", b"refused refused held 1"),
        ("self", "python", b"inside refused refused held 1"),
        ("other", "libc", b"refused refused held 1"),
        ("none", "libc", b"refused refused held 0"),
        ("none", "python", b"used used held 0"),
    ],
)
def test_a_child_refuses_a_file_that_was_in_use_at_the_fork(
    tmp_path: Path, who: str, fork: str, said: bytes
) -> None:
    """By the handle it inherited and by a new one; the parent's transaction is not touched."""
    noted = tmp_path / "noted"
    assert finish(start("busy", tmp_path / "memory.db", noted, who, fork)) == said
    assert {"before", "after"} <= {*check_all_there(tmp_path, noted)}


def test_a_handler_of_a_signal_may_fork(tmp_path: Path) -> None:
    """Wherever it interrupts the thread, which would wait for itself for ever."""
    noted = tmp_path / "noted"
    process = start("from_signals", tmp_path / "memory.db", noted)
    try:
        assert finish(process) == b"forked"
    finally:
        process.kill()
    assert len(check_all_there(tmp_path, noted)) == 60


@pytest.mark.parametrize("who", ["self", "other"])
def test_a_child_that_never_uses_the_store_leaves_it_alone(tmp_path: Path, who: str) -> None:
    """Also when C code forked it, so that Python knows of no child, and it ends with all destructors."""
    noted = tmp_path / "noted"
    assert finish(start("exit_unseen", tmp_path / "memory.db", noted, who)) == b"held 500"
    assert {"before", "after"} <= {*check_all_there(tmp_path, noted)}


def test_a_second_handle_does_not_drop_the_locks_of_the_first(tmp_path: Path) -> None:
    """A process that opened the file twice keeps what it writes after another one came and went."""
    noted = tmp_path / "noted"
    process = start("beside", tmp_path / "memory.db", noted)
    assert process.stdin is not None
    assert process.stdout is not None
    for _ in range(5):
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"ok\n"
        with a_store("sqlite", tmp_path) as store:
            keep(store, "Coffee.")
    finish(process)
    assert len(check_all_there(tmp_path, noted)) == 11


# Files


def test_two_handles_open_a_new_file_at_once(tmp_path: Path) -> None:
    """The file is created once, private to its owner, and the second handle finds it."""
    with a_store("sqlite", tmp_path) as one, a_store("sqlite", tmp_path) as other:
        keep(one, "Tea.", id="a")
        keep(other, "Tea.", id="b")
        assert sorted(list_ids(one)) == ["a", "b"]
    assert (tmp_path / "memory.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("moment", [1, 2, 3])
def test_a_file_that_another_process_makes_meanwhile_is_ours(tmp_path: Path, moment: int) -> None:
    """It was empty when this process looked at it first, and a store when it looked again."""
    statements: list[str] = []

    def make_before(statement: str) -> None:
        statements.append(statement)
        if len(statements) == moment:
            open_core("sqlite", tmp_path).close()

    with closing(sqlite3.connect(tmp_path / "memory.db")) as db:
        db.set_trace_callback(make_before)
        check_application(db, "memory.db")
    assert statements


def replace_file(path: Path, how: str) -> None:
    """Put another file in the place of a store's, or none."""
    match how:
        case "deleted":
            path.unlink()
        case "copied over":
            shutil.copy(path, path.with_name("copy"))
            path.with_name("copy").replace(path)
        case "moved away":
            path.rename(path.with_name("elsewhere.db"))
        case "log deleted":
            path.with_name(f"{path.name}-wal").unlink()
        case "locks deleted":
            path.with_name(f"{path.name}-shm").unlink()
        case _:
            path.rename(path.with_name("elsewhere.db"))
            path.with_name(f"{path.name}-wal").unlink()
            with closing(sqlite3.connect(path)) as db:
                db.execute("CREATE TABLE t (x)")


WAYS = ["deleted", "copied over", "moved away", "log deleted", "locks deleted", "another program's"]


@pytest.mark.parametrize("how", WAYS)
def test_a_file_that_was_replaced_is_noticed_by_the_next_write(tmp_path: Path, how: str) -> None:
    """Nothing is acknowledged into a file that is no longer at its path."""
    with a_store("sqlite", tmp_path) as store:
        keep(store, "Tea.", id="a")
        replace_file(tmp_path / "memory.db", how)
        for _ in range(2):
            with pytest.raises(Replaced, match="open it again"):
                keep(store, "Tea.", id="b")


def test_a_symbolic_link_names_the_file_that_it_points_to(tmp_path: Path) -> None:
    """Also a file that does not exist yet; both names are of one store, with one log."""
    (tmp_path / "real").mkdir()
    (tmp_path / "memory.db").symlink_to("real/memory.db")
    with a_store("sqlite", tmp_path) as one, a_store("sqlite", tmp_path / "real") as other:
        keep(one, "Tea.", id="a")
        keep(other, "Tea.", id="b")
        assert sorted(list_ids(one)) == sorted(list_ids(other)) == ["a", "b"]
        (tmp_path / "real" / "memory.db-wal").unlink()
        with pytest.raises(Replaced):
            keep(one, "Tea.", id="c")


def test_a_symbolic_link_that_points_elsewhere_is_noticed(tmp_path: Path) -> None:
    """Nothing is acknowledged into the file that it pointed to before."""
    (tmp_path / "memory.db").symlink_to("one.db")
    with a_store("sqlite", tmp_path) as store:
        keep(store, "Tea.", id="a")
        (tmp_path / "memory.db").unlink()
        (tmp_path / "memory.db").symlink_to("two.db")
        with pytest.raises(Replaced):
            keep(store, "Tea.", id="b")


def test_a_file_with_two_names_is_not_opened(tmp_path: Path) -> None:
    """By hard links it would have two logs, each overwriting what the other one acknowledged."""
    with a_store("sqlite", tmp_path) as store:
        keep(store, "Tea.", id="a")
        (tmp_path / "other").mkdir()
        (tmp_path / "other" / "memory.db").hardlink_to(tmp_path / "memory.db")
        for folder in (tmp_path, tmp_path / "other"):
            with pytest.raises(StoreFailed, match="has 2 names"):
                open_core("sqlite", folder)
        keep(store, "Tea.", id="b")
        (tmp_path / "other" / "memory.db").unlink()
    with a_store("sqlite", tmp_path) as store:
        assert list_ids(store) == ["a", "b"]


@pytest.mark.parametrize("how", WAYS)
def test_a_replaced_file_is_neither_restored_into_nor_scrubbed(tmp_path: Path, how: str) -> None:
    """Both would be acknowledged for a file that nobody opens any more."""
    with a_store("sqlite", tmp_path) as store:
        keep(store, "Tea.", id="a")
        store.backup(tmp_path / "backup.db")
        assert store.scrub().scrubbed
        keep(store, "Tea.", id="b")
        replace_file(tmp_path / "memory.db", how)
        receipt = store.scrub()
        assert not receipt.scrubbed
        assert "was replaced or deleted" in receipt.pending[0]
        with pytest.raises(Replaced):
            store.restore_backup(tmp_path / "backup.db")


def test_a_store_that_was_restored_goes_on(tmp_path: Path) -> None:
    """Its files are those of before."""
    with a_store("sqlite", tmp_path) as store, a_store("sqlite", tmp_path) as other:
        keep(store, "Tea.", id="a")
        store.backup(tmp_path / "backup.db")
        keep(other, "Tea.", id="b")
        store.restore_backup(tmp_path / "backup.db")
        for handle, id in ((store, "c"), (other, "d"), (store, "e")):
            keep(handle, "Tea.", id=id)
        assert sorted(list_ids(other)) == ["a", "c", "d", "e"]


def test_a_replaced_store_can_be_opened_again(tmp_path: Path) -> None:
    """A new handle uses the file that is there now."""
    with a_store("sqlite", tmp_path) as store:
        keep(store, "Tea.", id="a")
        (tmp_path / "memory.db").unlink()
        with pytest.raises(Replaced):
            keep(store, "Tea.", id="b")
    with a_store("sqlite", tmp_path) as store:
        keep(store, "Tea.", id="c")
        assert list_ids(store) == ["c"]


def test_a_fork_in_a_program_without_a_store_costs_nothing() -> None:
    """The hooks return at once where no store is open."""
    code = "import os, omoide.stores; pid = os.fork(); pid and os.waitpid(pid, 0)"
    assert subprocess.run([sys.executable, "-c", code], check=True, timeout=60).returncode == 0


def test_a_memory_store_goes_on_in_both_processes(tmp_path: Path) -> None:
    """Each has its own copy after a fork."""
    with a_store("memory", tmp_path) as store:
        keep(store, "Tea.", id="a")
        child = os.fork()
        if child == 0:
            keep(store, "Tea.", id="b")
            os._exit(0 if sorted(list_ids(store)) == ["a", "b"] else 1)
        _, status = os.waitpid(child, 0)
        assert status == 0
        assert list_ids(store) == ["a"]
