"""Is the file sound, and how is all of it copied?"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from omoide import ids
from omoide.errors import Corrupted, StoreFailed
from omoide.stores.sql import models, rows, truth
from omoide.stores.sql.upkeep import Progress
from omoide.stores.sqlite import schema
from omoide.stores.sqlite.connections import Connection, Connections, make_private
from omoide.stores.sqlite.failures import translating

_PATIENCE_MS = 300  # for readers; whoever reads longer leaves something for scrub()


def damage(db: sqlite3.Connection) -> list[str]:
    """What SQLite itself finds wrong with a file."""
    return [text for (text,) in db.execute("PRAGMA integrity_check(20)") if text != "ok"]


def size_bytes(db: sqlite3.Connection) -> int:
    """How large the file is."""
    pages, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    return int(pages * size)


def backup(connections: Connections, target: Path, progress: Progress | None) -> None:
    """Copy the whole store to another file while it is in use."""
    if target.exists():
        raise StoreFailed(str(target), "exists already", "choose another path, or remove it first")
    part = target.with_name(f"{target.name}.{ids.uuid7()[-8:]}.part")
    try:
        with connections.reading() as db, translating(str(part)):
            rows.last_seq(db)  # from now on one state is seen, whoever writes meanwhile
            _copy(db, part, progress)
        part.rename(target)
    except OSError as error:
        raise StoreFailed(str(target), f"cannot be written ({error})", "choose another path") from error
    finally:
        if part.is_file():
            part.unlink()


def _copy(db: sqlite3.Connection, target: Path, progress: Progress | None) -> None:
    make_private(target)
    with closing(sqlite3.connect(target)) as copy:
        db.backup(copy, pages=2_000, progress=_told(progress))
        copy.execute("PRAGMA journal_mode = DELETE")


def restore_backup(connections: Connections, source: Path, progress: Progress | None) -> None:
    """Put a backup in the place of everything that the store holds, at one stroke."""
    if not source.is_file():
        raise StoreFailed(str(source), "does not exist", "name a file that backup() wrote")
    if source.samefile(connections.path):
        raise StoreFailed(str(source), "is the store itself", "name a file that backup() wrote")
    fresh = connections.path.with_name(f"{connections.path.name}.{ids.uuid7()[-8:]}.restored")
    try:
        with translating(str(source)), closing(_opened(source)) as kept:
            _check_backup(kept, source)
            _copy(kept, fresh, None)
        # What others hold in memory must not outlive the copy: the copy is another life of the file.
        with translating(str(fresh)), closing(_alone(fresh)) as copy:
            copy.execute("BEGIN")
            truth.carry(copy, schema.migrate(copy, str(fresh)))
            models.renew(copy)
            copy.execute("COMMIT")
            with connections.alone() as db:
                copy.backup(db, pages=-1)
                db.execute("PRAGMA journal_mode = WAL")  # the copy's header said otherwise
    finally:
        fresh.unlink(missing_ok=True)
    if progress is not None:
        progress(1, 1)


def _check_backup(db: sqlite3.Connection, source: Path) -> None:
    schema.check_ours(db, str(source))
    damage = [text for (text,) in db.execute("PRAGMA integrity_check(5)") if text != "ok"]
    if damage or not schema.version(db):
        problem = "; ".join(damage) or "it is empty"
        raise Corrupted(str(source), f"is no sound backup ({problem})", "use another")


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)


def _told(progress: Progress | None) -> Callable[[int, int, int], None] | None:
    if progress is None:
        return None
    return lambda _status, remaining, total: progress(total - remaining, total)


def _alone(path: Path) -> Connection:
    return sqlite3.connect(path, isolation_level=None, factory=Connection)


def empty_log(db: sqlite3.Connection) -> bool:
    """Empty the write-ahead log, outside of a transaction; whether nobody stood in the way."""
    (patience,) = db.execute("PRAGMA busy_timeout").fetchone()
    db.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
    try:
        busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        db.execute(f"PRAGMA busy_timeout = {int(patience)}")
    return not busy
