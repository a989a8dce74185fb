"""A folder keeps checkpoints whole, whatever happens to its files."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.checkpoint_stores import CLERK, a_checkpoint_store, clerk, entry, messages_of, start

from omoide import memory, thread
from omoide.errors import Busy, Conflict, DiskFull, ReadOnly, RestoreFailed, StoreFailed
from omoide.runtime.checkpoints import FileCheckpointStore, load_agent, save_agent
from omoide.runtime.checkpoints.files import file_lock


@pytest.fixture
def checkpoints(tmp_path: Path) -> FileCheckpointStore:
    """A checkpoint store in an empty folder."""
    return FileCheckpointStore(tmp_path / "checkpoints")


def files(checkpoints: FileCheckpointStore) -> tuple[Path, Path]:
    """The checkpoint and the journal of the only agent there."""
    [folder] = [path for path in checkpoints._root.iterdir() if path.name != ".locks"]
    [journal] = folder.glob("thread-*.jsonl")
    return folder / "checkpoint.json", journal


def below(folder: Path) -> list[Path]:
    """All that lies in a folder, at any depth."""
    return [*folder.rglob("*")]


async def test_each_agent_has_a_folder_that_others_cannot_read(tmp_path: Path) -> None:
    """A checkpoint in JSON and a journal of lines, for their owner only; nothing lies beside them."""
    old = os.umask(0)
    try:
        checkpoints = FileCheckpointStore(tmp_path / "deep" / "checkpoints")
        await save_agent(clerk("Hello", "Bye", id="../up"), checkpoints)
    finally:
        os.umask(old)
    kept, journal = files(checkpoints)
    assert kept.parent.name == "%2e%2e%2fup"
    assert json.loads(kept.read_bytes())["checkpoint"]["id"] == "../up"
    assert [json.loads(line)["payload"]["text"] for line in journal.read_text().splitlines()[1:]] == [
        "Hello",
        "Bye",
    ]
    found = below(tmp_path)
    assert len(found) == 7
    assert [path for path in found if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


async def test_nothing_is_left_of_what_was_being_written(checkpoints: FileCheckpointStore) -> None:
    """Only the checkpoint and the journal, also after a crash left a half of one."""
    agent = clerk("a")
    await save_agent(agent, checkpoints)
    kept, journal = files(checkpoints)
    kept.with_name(".checkpoint.json.new").write_bytes(b'{"id": "me", "re')
    assert await load_agent("me", CLERK, checkpoints) == (agent, 1)
    await save_agent(memory.world_put(agent, "n", 1), checkpoints)
    assert sorted(path.name for path in kept.parent.iterdir()) == sorted([kept.name, journal.name])


async def test_a_line_that_a_crash_cut_off_is_neither_read_nor_in_the_way(
    checkpoints: FileCheckpointStore,
) -> None:
    """Wherever the last write stopped, the acknowledged entries are there, and those to come as well."""
    base = clerk("a", "b")
    await save_agent(base, checkpoints)
    kept, journal = files(checkpoints)
    checkpoint, size = kept.read_bytes(), journal.stat().st_size
    await save_agent(thread.append(base, [entry("lost ü"), entry("too")]), checkpoints)
    whole = journal.read_bytes()
    other = thread.append(base, entry("c"))
    for end in range(size, len(whole) + 1):
        kept.write_bytes(checkpoint)
        journal.write_bytes(whole[:end])
        again, rev = await load_agent("me", CLERK, checkpoints)
        assert again == base
        await save_agent(other, checkpoints, expected_rev=rev)
        assert (await load_agent("me", CLERK, checkpoints))[0] == other
        assert messages_of(other) == ["a", "b", "c"]


async def test_a_first_line_that_was_cut_off_is_written_again(checkpoints: FileCheckpointStore) -> None:
    """A journal that was only begun counts as none."""
    agent = clerk("a")
    await save_agent(agent, checkpoints)
    kept, journal = files(checkpoints)
    kept.unlink()
    for rest in (b"", b'{"agent":"m', b"\0\0\0\0", b"x" * 200_000):
        journal.write_bytes(rest)
        assert await save_agent(agent, checkpoints) == 1
        assert await load_agent("me", CLERK, checkpoints) == (agent, 1)
        assert journal.read_bytes().endswith(b"}\n")
        kept.unlink()


DAMAGES: dict[str, tuple[int, Callable[[bytes], bytes], str]] = {
    "no json": (0, lambda data: data[:-5], "not readable"),
    "nothing": (0, lambda data: b"", "not readable"),
    "no text": (0, lambda data: data.replace(b"clerk", b"cl\xffrk"), "not readable"),
    "another shape": (0, lambda data: b"[1, 2]", "not readable"),
    "another checkpoint": (0, lambda data: data.replace(b'"id":"me"', b'"id":"you"', 1), "is of 'you'"),
    "a field missing": (0, lambda data: data.replace(b'"name":', b'"nome":'), "nome"),
    "a wrong field": (0, lambda data: data.replace(b'"name":"clerk"', b'"name":7'), "name"),
    "a future version": (0, lambda data: data.replace(b'"version":2', b'"version":3'), "version 3"),
    "a line that is no json": (1, lambda data: data.replace(b'"kind"', b'"kind'), "its journal"),
    "a line that is no entry": (1, lambda data: data.replace(b'"kind"', b'"kond"'), "its journal"),
    "a line missing": (1, lambda data: data.replace(data.splitlines(True)[1], b""), "entry 1 where 0"),
    "a line twice": (1, lambda data: data + data.splitlines(True)[1], "entry 0 where 2"),
    "a cut too far": (1, lambda data: data + b"9\n", "its journal"),
    "another journal": (1, lambda data: data.replace(b'"agent":"me"', b'"agent":"us"'), "thread_mismatch"),
    "the end missing": (1, lambda data: b"".join(data.splitlines(True)[:2]), "thread_history_truncated"),
    "all missing": (1, lambda data: b"", "missing_thread"),
}


@pytest.mark.parametrize(("which", "damage", "told"), DAMAGES.values(), ids=DAMAGES)
async def test_damage_is_told_and_no_agent_comes_of_it(
    checkpoints: FileCheckpointStore, which: int, damage: Callable[[bytes], bytes], told: str
) -> None:
    """Neither a fresh one nor half of one; it is still listed, and can be deleted."""
    await save_agent(clerk("a", "b"), checkpoints)
    path = files(checkpoints)[which]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(RestoreFailed, match=told) as raised:
        await load_agent("me", CLERK, checkpoints)
    assert "'me'" in str(raised.value)
    assert len(await checkpoints.ids()) == 1
    assert await checkpoints.delete("me") is True
    assert await checkpoints.ids() == []


async def test_a_damaged_checkpoint_is_not_overwritten(checkpoints: FileCheckpointStore) -> None:
    """Somebody may still mend it."""
    await save_agent(clerk("a"), checkpoints)
    kept, _ = files(checkpoints)
    kept.write_bytes(b"{")
    with pytest.raises(RestoreFailed):
        await save_agent(clerk("b"), checkpoints)
    assert kept.read_bytes() == b"{"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("at", range(1, 12))  # all that it takes, after reading
async def test_whatever_write_fails_the_old_agent_stays(
    checkpoints: FileCheckpointStore, monkeypatch: pytest.MonkeyPatch, at: int, code: int
) -> None:
    """A typed error, nothing changed, and the same agent can be put aside when there is room again."""
    base = memory.world_put(clerk("a", "b"), "n", 1)
    await save_agent(base, checkpoints)
    before = [path.read_bytes() for path in files(checkpoints)]
    newer = memory.world_put(thread.append(base, [entry("c"), entry("d")]), "n", 2)
    left = at
    with monkeypatch.context() as patch:

        def failing(name: str) -> None:
            real = getattr(os, name)

            def call(*args: Any, **options: Any) -> Any:
                nonlocal left
                left -= 1
                if left == -1:
                    if name == "write":
                        real(args[0], args[1][:7])
                    raise OSError(code, os.strerror(code))
                return real(*args, **options)

            patch.setattr(os, name, call)

        for name in ("open", "write", "fsync", "replace"):
            failing(name)
        wanted = {errno.EIO: StoreFailed, errno.EROFS: ReadOnly}.get(code, DiskFull)
        with pytest.raises(wanted):
            await save_agent(newer, checkpoints, expected_rev=1)
    assert left < 0
    again, rev = await load_agent("me", CLERK, checkpoints)
    assert again == (newer if at > 9 else base)  # the last two only make sure of what is done
    after = [path.read_bytes() for path in files(checkpoints)]
    assert (after[0] == before[0]) is (at <= 9)
    assert (after[1] == before[1]) is (at <= 4)
    await save_agent(newer, checkpoints, expected_rev=rev)
    assert (await load_agent("me", CLERK, checkpoints))[0] == newer
    assert messages_of(newer) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("place", ["files", "sqlite"])
async def test_a_full_disk_is_a_typed_error_and_loses_nothing(place: str, tmp_path: Path) -> None:
    """The agent that was put aside last is there, and goes on when there is room again."""
    process = start("fill", place, tmp_path, 400_000)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    async with a_checkpoint_store(place, tmp_path) as checkpoints:
        agent, rev = await load_agent("me", CLERK, checkpoints)
        assert rev == int(said) > 3
        assert len(messages_of(agent)) == rev
        assert memory.world_get(agent, "n") == rev - 1
        agent = thread.append(agent, entry("room"))
        await save_agent(agent, checkpoints, expected_rev=rev)
        assert (await load_agent("me", CLERK, checkpoints))[0] == agent


async def test_a_file_in_the_place_of_the_folder_is_a_typed_error(tmp_path: Path) -> None:
    """It says what the system says."""
    (tmp_path / "checkpoints").write_text("mine")
    for attempt in (
        save_agent(clerk("a"), FileCheckpointStore(tmp_path / "checkpoints")),
        FileCheckpointStore(tmp_path / "checkpoints").load("me"),
    ):
        with pytest.raises(StoreFailed, match="checkpoints"):
            await attempt
    assert (tmp_path / "checkpoints").read_text() == "mine"


async def test_a_checkpoint_store_that_may_only_be_read_is_read(
    checkpoints: FileCheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a backup is; putting aside there says that it cannot be."""
    agent = clerk("a")
    await save_agent(agent, checkpoints)
    real = os.open

    def opened(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise OSError(errno.EROFS, "read-only")
        return real(path, flags, *args, **options)

    monkeypatch.setattr(os, "open", opened)
    assert await load_agent("me", CLERK, checkpoints) == (agent, 1)
    assert await checkpoints.ids() == ["me"]
    with pytest.raises(ReadOnly):
        await save_agent(memory.world_put(agent, "n", 1), checkpoints)


async def test_whoever_has_to_wait_too_long_is_told(tmp_path: Path) -> None:
    """A process that stands still in the middle of a step does not stop others for ever."""
    await save_agent(clerk("a"), FileCheckpointStore(tmp_path))
    [lock] = (tmp_path / ".locks").iterdir()
    with lock.open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Busy, match="in use"):
            await save_agent(clerk("b"), FileCheckpointStore(tmp_path, timeout=0.02))
    assert await save_agent(clerk("b"), FileCheckpointStore(tmp_path, timeout=0.02)) == 2


async def test_an_emptied_place_is_not_listed(checkpoints: FileCheckpointStore) -> None:
    """Nor is what is no agent's."""
    await save_agent(clerk("a"), checkpoints)
    await checkpoints.save("you", None, expected_rev=0)
    (checkpoints._root / "note.txt").write_text("mine")
    (checkpoints._root / "folder").mkdir()
    assert await checkpoints.ids() == ["me"]
    with pytest.raises(Conflict):
        await checkpoints.save("you", None, expected_rev=0)


async def test_there_is_nobody_where_there_is_no_folder(tmp_path: Path) -> None:
    """Listing makes none."""
    assert await FileCheckpointStore(tmp_path / "checkpoints").ids() == []
    assert not (tmp_path / "checkpoints").exists()
    assert repr(FileCheckpointStore("there")) == "FileCheckpointStore('there')"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("place", ["files", "sqlite"])
async def test_processes_take_turns_at_one_agent(place: str, tmp_path: Path) -> None:
    """Each says what it has to say to what the others left, and nothing is lost or said twice."""
    async with a_checkpoint_store(place, tmp_path) as checkpoints:
        await save_agent(clerk("begin"), checkpoints)
        workers = [start("count", place, tmp_path, name, 8) for name in "abc"]
        for worker in workers:
            worker.communicate(timeout=100)
            assert worker.returncode == 0
        agent, rev = await load_agent("me", CLERK, checkpoints)
        said = messages_of(agent)
        assert rev == 25
        assert sorted(said) == sorted(["begin", *(f"{name}{n}" for name in "abc" for n in range(8))])
        for name in "abc":
            assert [text for text in said if text[0] == name and text != "begin"] == [
                f"{name}{n}" for n in range(8)
            ]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_lock_ends_with_the_block_though_a_child_inherited_it(tmp_path: Path) -> None:
    """A child that was forked meanwhile does not hold it for its lifetime."""
    reader, writer = os.pipe()
    with file_lock(tmp_path, "a", 0.1, writing=True):
        child = os.fork()
        if child == 0:
            os.close(writer)
            os.read(reader, 1)  # until the parent is done
            os._exit(0)
    with file_lock(tmp_path, "a", 0.1, writing=True):
        pass
    os.close(writer)
    os.close(reader)
    os.waitpid(child, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_that_leaves_the_block_does_not_unlock_it(tmp_path: Path) -> None:
    """The lock is its parent's."""
    with suppress(ChildProcessError), file_lock(tmp_path, "a", 0.1, writing=True):
        child = os.fork()
        if child == 0:
            raise ChildProcessError
        os.waitpid(child, 0)
        with pytest.raises(Busy), file_lock(tmp_path, "a", 0.1, writing=True):
            pass
        return
    os._exit(0)


def test_without_file_locks_a_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has no `flock`: two processes could write one agent, so nothing is opened or made there."""
    monkeypatch.setattr("sys.platform", "win32")
    problem = "needs file locks that Windows does not have; use a DocumentCheckpointStore"
    with pytest.raises(StoreFailed, match=problem):
        FileCheckpointStore(tmp_path / "checkpoints")
    assert below(tmp_path) == []
