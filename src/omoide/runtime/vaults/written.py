"""How is a checkpoint read back, and what if it cannot be?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from omoide.core import codec
from omoide.core.checkpoint import VERSION, Checkpoint
from omoide.core.thread import ThreadEntry
from omoide.errors import RestoreFailed


def read_checkpoint(id: str, data: bytes | str) -> Checkpoint:
    """The checkpoint that was written as JSON; one from a newer Omoide is told from a damaged one."""
    try:
        plain = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise damaged(id, f"its checkpoint is not readable JSON ({error})") from error
    version = plain.get("version") if isinstance(plain, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise RestoreFailed(
            f"agent {id!r}",
            f"its checkpoint has version {version}, this reads 1 to {VERSION}; use a newer Omoide",
        )
    try:
        return codec.from_builtins(plain, Checkpoint)
    except ValueError as error:
        raise damaged(id, f"its checkpoint: {error}") from error


def read_entries(id: str, lines: Iterable[Any]) -> tuple[ThreadEntry, ...]:
    """The entries of a journal, each written as JSON; a number is how many of those before it count."""
    entries: list[ThreadEntry] = []
    for line in lines:
        try:
            plain = msgspec.json.decode(line)
            if isinstance(plain, int) and 0 <= plain <= len(entries):
                del entries[plain:]
                continue
            entry = codec.from_builtins(plain, ThreadEntry)
        except (TypeError, ValueError, RecursionError) as error:
            raise damaged(id, f"its journal, entry {len(entries)}: {error}") from error
        if entry.seq != len(entries):
            raise damaged(id, f"its journal has entry {entry.seq} where {len(entries)} belongs")
        entries.append(entry)
    return tuple(entries)


def damaged(id: str, told: str) -> RestoreFailed:
    """The error for what was kept and cannot be read."""
    return RestoreFailed(f"agent {id!r}", f"{told}; bring it back from a backup, or delete it")
