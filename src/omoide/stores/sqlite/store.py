"""Store entries in a SQLite file: open, back up, check and scrub it."""

from __future__ import annotations

import glob
import logging
import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from omoide import ids
from omoide.core.entry import Scope
from omoide.embedders import Embedder
from omoide.errors import Corrupted, DiskFull, Invalid, StoreFailed
from omoide.ids import has_control_characters
from omoide.stores.async_store import AsyncStore
from omoide.stores.factory import URL_REMEDY, StoreURL, embedder_for, parse_url
from omoide.stores.records import EraseReceipt, Finding, RepairResult
from omoide.stores.redaction import mask_url
from omoide.stores.reindex import ProgressCallback
from omoide.stores.semantics import StoreSettings
from omoide.stores.sql import rows
from omoide.stores.sql.store import SQLStore
from omoide.stores.sqlite import connection
from omoide.stores.sqlite.connection import (
    DAMAGE,
    FileId,
    SQLiteConnection,
    SQLiteConnections,
    create_private_file,
    map_error,
    map_errors,
)

if sys.platform != "win32":
    import fcntl

_PART_SUFFIX = re.compile(r"\.[0-9a-f]{8}\.part\Z")
_MAGIC = b"SQLite format 3\0"
_log = logging.getLogger("omoide")
_CHECKPOINT_TIMEOUT_MS = 300  # for readers; one that reads longer leaves something for scrub()
_REWRITE_LIMIT = 64_000_000  # bytes of a file that an erasure rewrites itself, in under half a second
_BACKUP_REMEDY = "name a file that backup() wrote"
_PENDING_WAL = "the file and its write-ahead log, which another connection reads: call scrub() later"
_PENDING_FILE = "unused space in the pages of the file, which is large: call scrub() to have it rewritten"


def integrity_errors(db: sqlite3.Connection, limit: int = 20) -> list[str]:
    """Return the errors that SQLite's integrity check finds."""
    return [text for (text,) in db.execute(f"PRAGMA integrity_check({limit})") if text != "ok"]


def size_bytes(db: sqlite3.Connection) -> int:
    """Return the size of the file."""
    pages, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    return int(pages * size)


def abandoned_copies(store: Path, target: Path | None = None) -> list[Path]:
    """Return the unfinished copies that killed backups left: those of a target, or beside a store."""
    folder, name = (store.parent, "*") if target is None else (target.parent, glob.escape(target.name))
    own = FileId.of(str(store))  # a store may have such a name; it is neither opened here nor removed
    found = [path for path in sorted(folder.glob(f"{name}.*.part")) if _PART_SUFFIX.search(path.name)]
    return [path for path in found if path.is_file() and FileId.of(str(path)) != own and _is_abandoned(path)]


def remove_copy(part: Path) -> None:
    """Remove an unfinished copy, with what SQLite put beside it."""
    part.with_name(f"{part.name}-journal").unlink(missing_ok=True)
    part.unlink(missing_ok=True)


def _is_abandoned(part: Path) -> bool:
    try:
        with _locked(part) as descriptor:
            head = os.read(descriptor, len(_MAGIC))
    except OSError:  # a living process has it, or another user
        return False
    return head == _MAGIC or not any(head)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Open a file, locked until the block ends or the process dies; raise `OSError` if another has it."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        if sys.platform != "win32":  # which does not remove a file that is open
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    finally:
        os.close(descriptor)


def allocated_bytes(path: Path) -> int:
    """Return the room that a file takes on its disk; it may be less than its size."""
    status = os.stat(path)
    return status.st_size if sys.platform == "win32" else status.st_blocks * 512


def backup(connections: SQLiteConnections, target: Path, progress: ProgressCallback | None) -> None:
    """Copy the store to another file while it is in use."""
    if target.exists():
        raise StoreFailed(str(target), "exists already", "choose another path, or remove it first")
    part = target.with_name(f"{target.name}.{ids.uuid7()[-8:]}.part")
    try:
        with connections.read_transaction() as db, map_errors(str(target)):
            rows.last_seq(db)  # from now on one state is seen, whatever is written meanwhile
            for left in abandoned_copies(connections.path, target):
                remove_copy(left)
                _log.warning("removed %s, which a killed backup left", left)
            create_private_file(part, target)
            with _locked(part):
                _copy(db, part, progress)
                part.rename(target)
    except OSError as error:
        raise StoreFailed(
            str(target), f"cannot be written ({error.strerror})", "choose another path"
        ) from error
    finally:
        remove_copy(part)


def _copy(db: sqlite3.Connection, target: Path, progress: ProgressCallback | None) -> None:
    with closing(sqlite3.connect(f"file:{quote(str(target))}?mode=rw", uri=True)) as copy:
        db.backup(copy, pages=2_000, progress=_backup_progress(progress))
        copy.execute("PRAGMA journal_mode = DELETE")


def restore_backup(connections: SQLiteConnections, source: Path, progress: ProgressCallback | None) -> None:
    """Replace the content of the store by a backup, atomically."""
    if not source.is_file():
        raise StoreFailed(str(source), "does not exist", _BACKUP_REMEDY)
    if FileId.of(str(source)) == FileId.of(connections.name):
        raise StoreFailed(str(source), "is the store itself", _BACKUP_REMEDY)
    # A temporary database has no name, so a process that is killed here leaves no copy behind.
    with closing(sqlite3.connect("", isolation_level=None, factory=SQLiteConnection)) as copy:
        try:
            with closing(_open_read_only(source)) as backup_file:
                _check_backup(backup_file, source)
                backup_file.backup(copy, pages=2_000)
        except DAMAGE as error:
            failed = map_error(error, str(source))
            if isinstance(failed, Corrupted):  # the store itself is sound: there is nothing to repair
                problem = f"is no backup, or a damaged one ({error})"
                failed = Corrupted(str(source), problem, _BACKUP_REMEDY)
            raise failed from error
        with map_errors(str(source)):
            copy.execute("BEGIN")
            rows.migrate_staleness(copy, connection.migrate(copy, str(source)))
            # What others hold in memory must not outlive the copy: the copy is another life of the file.
            rows.renew_generation(copy)
            copy.execute("COMMIT")
            with connections.exclusive_writer() as db:
                copy.backup(db, pages=-1)
                db.execute("PRAGMA journal_mode = WAL")  # the copy's header said otherwise
    if progress is not None:
        progress(1, 1)


def _check_backup(db: sqlite3.Connection, source: Path) -> None:
    connection.check_application(db, str(source))
    errors = integrity_errors(db, limit=5)
    if errors or not connection.schema_version(db):
        problem = "; ".join(errors) or "it is empty"
        raise Corrupted(str(source), f"is no backup, or a damaged one ({problem})", _BACKUP_REMEDY)


def _open_read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)


def _backup_progress(progress: ProgressCallback | None) -> Callable[[int, int, int], None] | None:
    if progress is None:
        return None
    return lambda _status, remaining, total: progress(total - remaining, total)


def rewrite(db: sqlite3.Connection) -> None:
    """Write the whole file anew, outside a transaction, so that its pages contain only what is stored.

    `secure_delete` overwrites a deleted cell, but not the copies of it that stayed in the unused part of a
    page when its cells were moved to another page.
    """
    db.execute("PRAGMA temp_store = FILE")  # a large store may not fit into memory
    try:
        db.execute("VACUUM")
    finally:
        db.execute("PRAGMA temp_store = MEMORY")


def truncate_wal(db: sqlite3.Connection) -> bool:
    """Truncate the write-ahead log, outside a transaction; return False if a reader prevented it."""
    (timeout,) = db.execute("PRAGMA busy_timeout").fetchone()
    db.execute(f"PRAGMA busy_timeout = {_CHECKPOINT_TIMEOUT_MS}")
    try:
        busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        db.execute(f"PRAGMA busy_timeout = {int(timeout)}")
    return not busy


class SQLiteStore(SQLStore):
    """A store in one SQLite file, safe for several threads and processes at once."""

    _db: SQLiteConnections

    def __init__(
        self, connections: SQLiteConnections, embedder: Embedder | None, settings: StoreSettings
    ) -> None:
        self.path = connections.path
        super().__init__(connections, embedder, settings)

    def findings(self) -> list[Finding]:
        """Return findings about the file."""
        return [Finding("version", "ok", f"schema {connection.VERSION}, the newest known")]

    def check(self) -> list[str]:
        """Return the inconsistencies of the file; empty if it is sound."""
        with self._db.read_transaction() as db:
            errors = integrity_errors(db)
        return errors or super().check()

    def repair(self, path: Path | None = None) -> RepairResult:
        """Set damaged rows aside in a file, by default beside the store's, and rebuild what is derived."""
        with self._db.read_transaction() as db:
            errors = integrity_errors(db, limit=1)
        if errors:
            raise Corrupted(
                self._db.name, f"has damaged pages ({errors[0]})",
                "close it everywhere, and run `omoide doctor --repair`",
            )  # fmt: skip
        return super().repair(path or set_aside_path(self.path))

    def _set_aside_files(self, db: Any) -> list[str]:
        """Return the files that are still there."""
        return [name for name in super()._set_aside_files(db) if Path(name).exists()]

    def backup(self, target: Path | str, progress: ProgressCallback | None = None) -> None:
        """Copy the store to another file while it is in use."""
        backup(self._db, Path(target), progress)

    def restore_backup(self, source: Path | str, progress: ProgressCallback | None = None) -> None:
        """Replace the content of the store by a backup."""
        restore_backup(self._db, Path(source), progress)

    def erase(
        self, scope: Scope, *, id: str | Sequence[str] | None = None, reason: str | None = None
    ) -> EraseReceipt:
        """Erase one entry or several, or everything in a scope, permanently."""
        log = self.path.with_name(f"{self.path.name}-wal")
        if log.exists() and log.stat().st_size > self._free_disk_bytes():
            with suppress(DiskFull):  # first, as the erasure would take the room that emptying the log needs
                self._empty_log()
        try:
            return super().erase(scope, id=id, reason=reason)
        except DiskFull:
            self._empty_log()
            return super().erase(scope, id=id, reason=reason)

    def _empty_log(self) -> None:
        """Bring the log into the file, which makes room; `DiskFull` says how much that takes."""
        try:
            with self._db.exclusive_writer() as db:
                truncate_wal(db)
        except DiskFull as error:
            missing = self._db.read_once(size_bytes) - allocated_bytes(self.path) - self._free_disk_bytes()
            if missing <= 0:  # it is not the disk that allows no more
                raise
            problem = f"has no room left: its log takes {missing} bytes more to be brought into the file"
            remedy = "free so much, or move the file with its -wal to a larger disk, and try again"
            raise DiskFull(self._db.name, problem, f"{remedy}; nothing was lost") from error

    def _scrub_files(self, receipt: EraseReceipt, *, thorough: bool) -> EraseReceipt:
        try:
            with self._db.exclusive_writer() as db:
                pending = self._rewrite(db, limit=None if thorough else _REWRITE_LIMIT)
        except StoreFailed as error:  # what was erased stays erased
            pending = f"the file and its write-ahead log ({error}): call scrub() later"
        return receipt.replace(scrubbed=pending is None, pending=() if pending is None else (pending,))

    def _rewrite(self, db: SQLiteConnection, limit: int | None) -> str | None:
        """Rewrite the file unless it is larger than a limit, and truncate its log; return what is left."""
        # First, as a log that cannot be truncated would grow by the size of the file each time.
        if not truncate_wal(db):
            return _PENDING_WAL
        if limit is not None and size_bytes(db) > limit:
            return _PENDING_FILE
        try:
            rewrite(db)
        finally:
            truncated = truncate_wal(db)
        return None if truncated else _PENDING_WAL

    def _size_bytes(self, db: Any) -> int:
        return size_bytes(db)

    def _free_bytes(self, db: Any) -> int:
        (unused,) = db.execute("PRAGMA freelist_count").fetchone()
        (page,) = db.execute("PRAGMA page_size").fetchone()
        return self._free_disk_bytes() + int(unused) * int(page)

    def _free_disk_bytes(self) -> int:
        return shutil.disk_usage(self.path.parent).free


def set_aside_path(path: Path) -> Path:
    """Return the file for damaged rows of a store."""
    return path.with_name(f"{path.name}.damaged")


OPTIONS: tuple[str, ...] = ()
"""URL options beside the settings that all stores have."""

_NETWORK_FILE_SYSTEMS = (
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "afs",
    "ceph",
    "glusterfs",
    "fuse.sshfs",
    "ncpfs",
)
_MAX_NAME_BYTES = 200  # of a file's name; SQLite puts others beside it


def open_at(address: StoreURL, embedder: Any, settings: StoreSettings) -> AsyncStore:
    """Open the store in the file that a URL names."""
    return AsyncStore(_open_file(path_of(address.url), embedder, settings), address.url)


def path_of(url: str) -> Path:
    """Return the file that a `sqlite:` URL names."""
    parts = parse_url(url).parts
    if parts.netloc:
        raise Invalid("url", f"{mask_url(url)!r} names a host", "use three slashes: sqlite:///file.db")
    try:
        name = unquote(parts.path.removeprefix("/"), errors="strict")
        path = Path(name).expanduser().absolute()
    except (UnicodeError, RuntimeError) as error:
        raise Invalid("url", f"{url!r} names no file ({error})", URL_REMEDY) from error
    if not name or name.endswith("/") or has_control_characters(name):
        raise Invalid("url", f"{url!r} names no file", URL_REMEDY)
    if len(os.fsencode(path.name)) > _MAX_NAME_BYTES:
        raise Invalid("url", f"names a file of {len(os.fsencode(path.name))} bytes", f"use {_MAX_NAME_BYTES}")
    return path


def _open_file(path: Path, embedder: Any, settings: StoreSettings) -> SQLiteStore:
    if path.is_dir():
        raise StoreFailed(str(path), "is a folder", "name a file in it")
    if not settings.read_only:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreFailed(
                str(path), f"has no folder ({error.strerror})", "make it, or choose another path"
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
    if embedder != "auto":  # a wrong one is refused before a file is created
        embedder = embedder_for(embedder, None)
    connections = SQLiteConnections(
        path,
        power_safe=settings.durability == "power",
        read_only=settings.read_only,
        max_pages=settings.max_pages,
        timeout=settings.timeout,
    )
    try:
        if embedder == "auto":
            embedder = embedder_for(embedder, connections.read_once(stored_embedder))
        return SQLiteStore(connections, embedder, settings)
    except BaseException:
        connections.close()
        raise


def stored_embedder(db: SQLiteConnection) -> str | None:
    """Return the name of the embedder whose vectors a store contains, or None."""
    row = db.execute(
        "SELECT name FROM models WHERE serving = 1 AND EXISTS (SELECT 1 FROM vectors)"
    ).fetchone()
    return None if row is None else str(row[0])


def network_file_system(path: Path) -> str | None:
    """Return the kind of network file system that a path is on, or None if it is local or unknown."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    best, kind = "", ""
    folder = os.path.dirname(os.path.realpath(path))
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) > 2:
            mount = fields[1].replace("\\040", " ")
            inside = folder == mount or folder.startswith(mount.rstrip("/") + "/")
            if inside and len(mount) >= len(best):
                best, kind = mount, fields[2]
    return kind if kind in _NETWORK_FILE_SYSTEMS else None
