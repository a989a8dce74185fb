"""Which file does a URL mean, and can it be one of ours?"""

from __future__ import annotations

import logging
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from omoide.errors import Invalid, StoreFailed
from omoide.ids import has_controls
from omoide.stores.addresses import REMEDY, Address, embedder_for, read
from omoide.stores.local import LocalStore
from omoide.stores.masking import masked
from omoide.stores.settings import Settings
from omoide.stores.sqlite.store import SQLiteStore

OPTIONS: tuple[str, ...] = ()
"""What a URL may say beside the settings that all stores have."""

_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs", "ncpfs")
_NAME_BYTES = 200  # of a file's name; SQLite puts others beside it

_log = logging.getLogger("omoide")


def open_at(address: Address, embedder: Any, settings: Settings) -> LocalStore:
    """The store in a file."""
    return LocalStore(_open_file(path_of(address.url), embedder, settings), address.url)


def path_of(url: str) -> Path:
    """The file that a `sqlite:` URL names."""
    parts = read(url).parts
    if parts.netloc:
        raise Invalid("url", f"{masked(url)!r} names a host", "use three slashes: sqlite:///file.db")
    try:
        name = unquote(parts.path.removeprefix("/"), errors="strict")
        path = Path(name).expanduser().absolute()
    except (UnicodeError, RuntimeError) as error:
        raise Invalid("url", f"{url!r} names no file ({error})", REMEDY) from error
    if not name or name.endswith("/") or has_controls(name):
        raise Invalid("url", f"{url!r} names no file", REMEDY)
    if len(os.fsencode(path.name)) > _NAME_BYTES:
        raise Invalid("url", f"names a file of {len(os.fsencode(path.name))} bytes", f"use {_NAME_BYTES}")
    return path


def _open_file(path: Path, embedder: Any, settings: Settings) -> SQLiteStore:
    if path.is_dir():
        raise StoreFailed(str(path), "is a folder", "name a file in it")
    if not settings.read_only:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreFailed(
                str(path), f"has no folder ({error})", "make it, or choose another path"
            ) from error
    elif not path.exists():
        raise StoreFailed(str(path), "does not exist", "open it once without mode=ro")
    kind = network_file_system(path)
    if kind is not None:
        _log.warning(
            "%s lies on a network file system (%s), where SQLite's locks may fail: "
            "keep it on a local disk, or let only one machine use it",
            path,
            kind,
        )
    kept = kept_in(path) if embedder == "auto" and path.exists() else None
    return SQLiteStore(path, embedder_for(str(path), embedder, kept), settings)


def kept_in(path: Path) -> str | None:
    """The name of the embedder whose vectors a file holds, if it is a file of ours and holds any."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=5)) as db:
            row = db.execute(
                "SELECT name FROM models WHERE serving = 1 AND EXISTS (SELECT 1 FROM vectors)"
            ).fetchone()
    except sqlite3.Error:
        return None  # opening it for good says what is wrong
    return None if row is None else str(row[0])


def network_file_system(path: Path) -> str | None:
    """The kind of network file system that a path lies on, if it does and the system tells."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    best, kind = "", ""
    where = os.path.realpath(path.parent)
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) > 2:
            mount = fields[1].replace("\\040", " ")
            inside = where == mount or where.startswith(mount.rstrip("/") + "/")
            if inside and len(mount) >= len(best):
                best, kind = mount, fields[2]
    return kind if kind in _NETWORK else None
