"""Damaged values that a repair sets aside, and the files that hold them."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from omoide.errors import Invalid, StoreFailed

FILES_SETTING = "set_aside"
"""The setting of a store that lists the files with damaged values."""


class DamagedValues:
    """Damaged values of one repair; they are written to a file before their deletion is committed."""

    def __init__(self) -> None:
        self._lines: dict[str, str] = {}
        self._written: set[str] = set()

    def add(self, table: str, row: Mapping[str, Any]) -> None:
        """Add a row of a table, once: a transaction that loses a race adds it again."""
        line = {"table": table, "row": {name: _to_json(value) for name, value in row.items()}}
        self._lines[json.dumps(line, ensure_ascii=True)] = table

    @property
    def counts(self) -> dict[str, int]:
        """Number of rows by table."""
        return dict(Counter(self._lines.values()))

    def __bool__(self) -> bool:
        return bool(self._lines)

    def write(self, path: Path | None) -> bool:
        """Append the new rows to a file that only its owner can read; return False if there are none.

        Raises:
            Invalid: There are rows and no path for them.
        """
        new = [line for line in self._lines if line not in self._written]
        if not new:
            return False
        if path is None:
            raise Invalid("path", "is missing", "name a file for the damaged rows: --set-aside PATH")
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(descriptor, 0o600)
                file.write("".join(f"{line}\n" for line in new))
                file.flush()
                os.fsync(descriptor)
        except OSError as error:
            raise StoreFailed(
                str(path), f"cannot be written ({error})", "choose another path; nothing was changed"
            ) from error
        self._written.update(new)
        return True


def _to_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode()}
    return value


def decode_files(raw: str | bytes | None) -> list[str]:
    """Decode the list of files with damaged values."""
    try:
        found = [] if raw is None else msgspec.json.decode(raw, type=list[str])
    except msgspec.MsgspecError:
        return []
    return found


def encode_files(known: Sequence[str], added: Path) -> str:
    """Encode the list with one more file, and without those that are gone."""
    files = [name for name in known if Path(name).exists()]
    return json.dumps([*dict.fromkeys([*files, str(added.absolute())])])


def file_notices(files: Sequence[str]) -> tuple[str, ...]:
    """Describe these files in the receipt of an erasure, which does not reach into them."""
    # Without their folder, because those who may erase need not know where the store lies.
    return tuple(f"what a repair set aside in {Path(name).name!r}: see `omoide doctor`" for name in files)
