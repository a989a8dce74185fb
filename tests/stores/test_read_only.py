"""Reading a SQLite file that the user may not write, from other processes and as another user."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.store_process import OPTIONS, start
from tests.support.stores import a_store, keep, list_ids

READING = (
    "list",
    "show e1",
    "history e1",
    "recall tea",
    "related e1",
    "doctor",
    "export {folder}/out/all.jsonl",
)
WRITING = ("remember Coffee.", "forget e1", "erase e1 --yes", "reindex", "doctor --repair")
REMEDY = "get write permission for the file and its folder, or name another store"


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that any user may look into."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755)
    shutil.rmtree(folder)


@pytest.fixture
def path(public: Path) -> Path:
    """A store with two memories that nobody has open."""
    (public / "out").mkdir(mode=0o777)
    (public / "out").chmod(0o777)
    with a_store("sqlite", public, **OPTIONS) as store:
        keep(store, "Tea is ready.", id="e1")
        keep(store, "The kettle is on.", id="e2")
    return public / "memory.db"


def protect(public: Path, *, folder: int = 0o555) -> None:
    """Take the permission to write from all files of a folder."""
    for file in public.glob("memory.db*"):
        file.chmod(0o444)
    public.chmod(folder)


def run_protected(path: Path, *commands: str) -> list[tuple[int, str, str]]:
    """Exit code, output and errors of commands of a user who may not write."""
    said, _ = start("read_protected", path, *commands).communicate(timeout=120)
    return [(code, output, errors) for code, output, errors in json.loads(said)]


def test_a_protected_file_says_so(path: Path, public: Path) -> None:
    """A user who may read the file and not write it gets `ReadOnly`, and nothing is lost."""
    protect(public)
    said, _ = start("protected", path).communicate(timeout=60)
    assert said.split() == [b"ReadOnly"]
    public.chmod(0o755)
    path.chmod(0o644)
    with a_store("sqlite", public, **OPTIONS) as store:
        assert (store.check(), list_ids(store)) == ([], ["e1", "e2"])


@pytest.mark.parametrize("folder", [0o555, 0o777], ids=["closed folder", "open folder"])
def test_commands_that_read_need_no_permission_to_write(path: Path, public: Path, folder: int) -> None:
    """They answer as always, and leave nothing beside the file; those that write name the remedy."""
    protect(public, folder=folder)
    read = dict(zip(READING, run_protected(path, *READING), strict=True))
    assert [command for command, (code, *_) in read.items() if code] == ["related e1"]  # it has none
    assert "Tea is ready." in read["show e1"][1]
    assert "1. Tea is ready." in read["recall tea"][1]
    assert "access: you may read it, and not write it or its folder" in read["doctor"][1]
    assert len((public / "out" / "all.jsonl").read_text().splitlines()) >= 2
    for code, output, errors in run_protected(path, *WRITING):
        assert (code, output) == (4, "")
        assert f"may only be read by this user; {REMEDY}" in errors
    assert sorted(file.name for file in public.iterdir()) == ["memory.db", "out"]


def test_a_store_that_others_write_can_be_read_meanwhile(path: Path, public: Path) -> None:
    """What they wrote a moment ago is there, though it is in the log alone."""
    with a_store("sqlite", public, **OPTIONS) as store:
        keep(store, "Coffee is ready.", id="e3")
        protect(public)
        ((code, output, _),) = run_protected(path, "list")
        assert (code, len(output.splitlines())) == (0, 3)


def test_a_log_that_a_killed_writer_left_is_read_where_it_can_be(path: Path, public: Path) -> None:
    """With the file of its locks it is; without, the error says who can bring it into the file."""
    left = public / "left"
    with a_store("sqlite", public, **OPTIONS) as store:
        keep(store, "Coffee is ready.", id="e3")
        shutil.copytree(public, left, ignore=shutil.ignore_patterns("out", "left"))
    (left / "out").mkdir()
    protect(left)
    ((code, output, errors),) = run_protected(left / "memory.db", "list")
    assert (code, len(output.splitlines()), errors) == (0, 3, "")
    left.chmod(0o755)
    (left / "memory.db-shm").unlink()
    protect(left)
    ((code, output, errors),) = run_protected(left / "memory.db", "list")
    assert (code, output) == (4, "")
    assert "has changes in its log, which this user may not bring into the file; have a user who" in errors


def test_a_read_without_locks_notices_a_change(path: Path, public: Path) -> None:
    """What was written before it is seen, and a change during it is an error, never a mixture."""
    protect(public)
    process = start("hold_protected", path)
    assert process.stdin is not None
    assert process.stdout is not None

    def read() -> str:
        assert process.stdout is not None
        return process.stdout.readline().decode().strip()

    def go_on() -> None:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()

    def write(id: str) -> None:
        public.chmod(0o755)
        path.chmod(0o644)
        with a_store("sqlite", public, **OPTIONS) as store:
            keep(store, f"Cup {id}.", id=id)
        protect(public)

    assert read() == "e1 e2"
    write("e3")
    go_on()
    assert read() == "e1 e2 e3"
    go_on()
    assert read() == "3"
    write("e4")
    go_on()
    assert "was changed while it was read; try again" in read()
    go_on()
    assert read() == "e1 e2 e3 e4"
    process.communicate(b"\n", timeout=60)
    assert process.returncode == 0
