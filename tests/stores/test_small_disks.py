"""A SQLite file on a disk that its write-ahead log fills."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.support.store_process import OPTIONS
from tests.support.stores import ADA, a_store, keep, list_ids

from omoide.errors import DiskFull


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if not shutil.which("mount") or subprocess.call(command, stderr=subprocess.DEVNULL):
        pytest.skip("this user may not mount a file system")
    yield folder
    subprocess.check_call(["umount", str(folder)])


def test_erasing_says_how_much_room_is_missing(small_disk: Path) -> None:
    """With less it asks for the rest, and with so much it succeeds and leaves no trace; nothing is lost."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(100 * 4_096))

    def free(size: int) -> None:
        os.truncate(ballast, ballast.stat().st_size - size)

    with a_store("sqlite", small_disk, **OPTIONS) as store:
        ids: list[str] = []
        with pytest.raises(DiskFull):
            ids.extend(keep(store, f"Number {n} " + "tea " * 500, id=f"n{n}").id for n in count())
        with pytest.raises(DiskFull, match="move the file with its -wal to a larger disk") as caught:
            store.erase(ADA)
        missing = int(re.findall(r"its log takes (\d+) bytes more", str(caught.value))[0])
        free(4_096)
        with pytest.raises(DiskFull, match=f"its log takes {missing - 4_096} bytes more"):
            store.erase(ADA)
        assert list_ids(store) == ids
        free(missing - 4_096)
        receipt = store.erase(ADA)
        assert ([*receipt.ids], receipt.scrubbed) == (ids, True)
        assert keep(store, "There is room again.", id="after").rev == 1
