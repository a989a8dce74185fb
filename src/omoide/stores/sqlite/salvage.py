"""Salvage a SQLite file with damaged pages: copy what any index still reaches to a new file.

The rows of entries, versions, links, documents and the log are read one by one around damaged pages; terms,
dependencies and statuses are computed from them, and vectors by a reindex. The damaged file is kept beside
the store, for its owner alone.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import quote

from omoide import ids
from omoide.errors import Busy, Corrupted, StoreFailed
from omoide.stores.damage import DamagedValues
from omoide.stores.records import RepairResult
from omoide.stores.sql import repair as repairing
from omoide.stores.sql import rows
from omoide.stores.sqlite import connection
from omoide.stores.sqlite.connection import DAMAGE, SQLiteConnection, create_private_file, map_errors

_COPIED = {
    "owners": None,
    "models": None,
    "settings": None,
    "entries": None,
    "documents": None,
    "log": None,
    "tombstones": None,
    "access": None,
    "vectors": "given = 1",
    "versions": None,
    "document_log": None,
    "links": None,
    "receipts": None,
    "leases": None,
}
"""The tables that are not derived, and which of their rows."""
_PARENTS = {"versions": ("no", "entries"), "document_log": ("document", "documents")}
"""Tables without row numbers of their own, whose rows can be looked up by those of another."""
_MAX_PROBES = 2_000_000  # numbers that are looked up one by one in a gap
_PAGE_SIZES = [1 << power for power in range(9, 17)]
_INDEX_INTERIOR, _TABLE_INTERIOR, _INDEX_LEAF, _TABLE_LEAF = 2, 5, 10, 13
_MAGIC = b"SQLite format 3\0"


def salvage(path: Path) -> RepairResult:
    """Replace a damaged file by a new one with all that can be read of it.

    Nothing else in this process may have the file open.

    Raises:
        Busy: Another process has the store open.
        Corrupted: Neither a memory nor a document can be read.
    """
    suffix = ids.uuid7()[-8:]
    fresh = path.with_name(f"{path.name}.{suffix}.repaired")
    kept = path.with_name(f"{path.name}.{suffix}.damaged")
    try:
        with map_errors(str(path)), _open_damaged(path) as damaged:
            result = _copy_rows(damaged, path, fresh, kept)
            _swap(path, fresh, kept)
    finally:
        for name in (fresh, *(fresh.with_name(f"{fresh.name}{end}") for end in ("-wal", "-shm", "-journal"))):
            name.unlink(missing_ok=True)
    return result


def _swap(path: Path, fresh: Path, kept: Path) -> None:
    """Put the new file in the place of the damaged one, which is kept with what SQLite put beside it."""
    path.rename(kept)
    kept.chmod(0o600)
    for end in ("-wal", "-shm", "-journal"):
        with suppress(FileNotFoundError):
            path.with_name(f"{path.name}{end}").rename(kept.with_name(f"{kept.name}{end}"))
    fresh.rename(path)


@contextmanager
def _open_damaged(path: Path) -> Iterator[SQLiteConnection]:
    """Yield a connection to the file, which others cannot use meanwhile, or to a mended copy."""
    db = _connect(path)
    try:
        try:
            _lock(db, path)
            _check_schema(db)
        except DAMAGE as error:
            if connection.is_busy(error):
                raise
            db.close()
            with _patched_copy(path) as copy:
                yield copy
            return
        yield db
    finally:
        db.close()


def _connect(path: Path) -> SQLiteConnection:
    db = sqlite3.connect(
        f"file:{quote(str(path))}?mode=rw", uri=True, isolation_level=None, factory=SQLiteConnection
    )
    db.name = str(path)
    return db


def _lock(db: SQLiteConnection, path: Path) -> None:
    """Keep all others out: the log of a file can only be closed by its single user."""
    try:
        db.execute("PRAGMA journal_mode = DELETE").fetchone()
        db.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        if connection.is_busy(error):
            raise Busy(
                str(path), "is open in another process", "stop all that use it, and repair it again"
            ) from error
        raise


def _check_schema(db: SQLiteConnection) -> None:
    """Raise unless every table has the columns of this version."""
    for table, columns in _expected_columns().items():
        db.execute(f"SELECT {', '.join(columns)} FROM {table} LIMIT 0")


def _expected_columns(version: int = connection.VERSION) -> dict[str, list[str]]:
    with closing(_new_schema(version=version)) as db:
        return {table: _columns(db, table) for table in _COPIED}


def _new_schema(path: str = ":memory:", version: int = connection.VERSION) -> SQLiteConnection:
    db = sqlite3.connect(path, isolation_level=None, factory=SQLiteConnection)
    db.execute("BEGIN")
    connection.migrate(db, path, version)
    db.execute("COMMIT")
    return db


def _columns(db: SQLiteConnection, table: str) -> list[str]:
    return [row[1] for row in db.execute(f"PRAGMA table_info({table})")]


# A copy with a new header and schema


@contextmanager
def _patched_copy(path: Path) -> Iterator[SQLiteConnection]:
    """Yield a connection to a copy whose header and schema are those of this version."""
    copy = path.with_name(f"{path.name}.{ids.uuid7()[-8:]}.salvage")
    create_private_file(copy, path)
    try:
        shutil.copyfile(path, copy)
        with suppress(FileNotFoundError):
            shutil.copyfile(path.with_name(f"{path.name}-wal"), copy.with_name(f"{copy.name}-wal"))
        _patch_header(copy)
        _patch_schema(copy)
        with closing(_connect(copy)) as db:
            db.execute("PRAGMA writable_schema = ON")
            yield db
    finally:
        for end in ("", "-wal", "-shm", "-journal"):
            copy.with_name(f"{copy.name}{end}").unlink(missing_ok=True)


def _patch_header(copy: Path) -> None:
    """Write the header that a file of ours has; only size and versions differ between files."""
    data = copy.read_bytes()[:100].ljust(100, b"\0")
    size = max(copy.stat().st_size, 4_096)
    (page,) = struct.unpack(">H", data[16:18])
    page = 65_536 if page == 1 else page
    if page not in _PAGE_SIZES or size % page:
        page = 4_096
    version = struct.unpack(">I", data[60:64])[0]
    header = (
        _MAGIC
        + struct.pack(">HBBBBBB", page if page < 65_536 else 1, 2, 2, 0, 64, 32, 32)
        + data[24:28]
        + struct.pack(">III", size // page, 0, 0)
        + data[40:44]
        + struct.pack(
            ">IIIII", 4, 0, 0, 1, version if 0 < version <= connection.VERSION else connection.VERSION
        )
        + struct.pack(">II", 0, connection.APPLICATION_ID)
        + bytes(20)
        + data[24:28]
        + data[96:100]
    )
    with copy.open("r+b") as file:
        file.truncate(size)  # the end of a first page that was cut off is empty
        file.write(header)


def _patch_schema(copy: Path) -> None:
    """Correct the definitions of tables, and look for the pages of those that are gone."""
    with closing(_connect(copy)) as db:
        try:
            _correct_definitions(db)
            _check_schema(db)
        except DAMAGE:
            pass
        else:
            return
    data = copy.read_bytes()
    page_size = _page_size(data)
    with copy.open("r+b") as file:  # no definition is left, and each table is looked for
        file.seek(100)
        file.write(struct.pack(">BHHHB", _TABLE_LEAF, 0, 0, page_size % 65_536, 0))
    _find_tables(copy, _roots(data, page_size))


def _page_size(data: bytes) -> int:
    size: int = struct.unpack(">H", data[16:18])[0]
    return 65_536 if size == 1 else size


def _children(data: bytes, page: int, size: int) -> list[int]:
    """Return the pages below an interior page."""
    start = (page - 1) * size
    begin = start + (100 if page == 1 else 0)
    (cells,) = struct.unpack(">H", data[begin + 3 : begin + 5])
    (last,) = struct.unpack(">I", data[begin + 8 : begin + 12])
    pointers = data[begin + 12 : begin + 12 + 2 * min(cells, size // 2)]
    children = [last]
    for (at,) in struct.iter_unpack(">H", pointers[: len(pointers) // 2 * 2]):
        if at + 4 <= size:
            children += struct.unpack(">I", data[start + at : start + at + 4])
    return children


def _roots(data: bytes, size: int) -> list[int]:
    """Return the pages that may be the root of a table: those that no other page names as its child."""
    kinds = {page: data[(page - 1) * size] for page in range(2, len(data) // size + 1)}
    below = {
        child
        for page, kind in [(1, data[100]), *kinds.items()]
        if kind in (_TABLE_INTERIOR, _INDEX_INTERIOR)
        for child in _children(data, page, size)
    }
    trees = (_TABLE_INTERIOR, _INDEX_INTERIOR, _TABLE_LEAF, _INDEX_LEAF)
    return [page for page, kind in kinds.items() if kind in trees and page not in below]


def _find_tables(copy: Path, roots: list[int]) -> None:
    """Define the tables that are gone again, each with the root whose rows are of its kind."""
    # Those with the most columns first: a table with few of them fits the rows of others, too.
    for table, columns in sorted(_expected_columns().items(), key=lambda item: -len(item[1])):
        with closing(_connect(copy)) as db:
            db.execute("PRAGMA writable_schema = ON")
            if db.execute("SELECT 1 FROM sqlite_schema WHERE name=?", (table,)).fetchone():
                continue
        with closing(_new_schema()) as good:
            (sql,) = good.execute("SELECT sql FROM sqlite_schema WHERE name=?", (table,)).fetchone()
            info = good.execute(f"PRAGMA table_info({table})").fetchall()
        _define(copy, table, sql, 0)
        scores = {root: _score(copy, table, columns, info, root) for root in roots}
        best = max(scores, key=scores.__getitem__, default=0)
        if scores.get(best):
            _define(copy, table, sql, best)
            roots.remove(best)
        else:
            _define(copy, table, sql, None)


def _define(copy: Path, table: str, sql: str, root: int | None) -> None:
    with closing(_connect(copy)) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("DELETE FROM sqlite_schema WHERE name=?", (table,))
        if root is not None:
            db.execute("INSERT INTO sqlite_schema VALUES ('table', ?, ?, ?, ?)", (table, table, root, sql))


def _score(copy: Path, table: str, columns: Sequence[str], info: Sequence[Any], root: int) -> int:
    """Return the number of rows that a page has as the root of a table; 0 if one is not of its kind."""
    with closing(_connect(copy)) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_schema SET rootpage=? WHERE name=?", (root, table))
    types = {"INTEGER": int, "TEXT": str, "BLOB": bytes, "REAL": float}
    wanted = [(types[kind], bool(required)) for _, _, kind, required, *_ in info]
    count = 0
    with closing(_connect(copy)) as db:
        db.execute("PRAGMA writable_schema = ON")
        with suppress(*DAMAGE):
            for row in db.execute(f"SELECT {', '.join(columns)} FROM {table} NOT INDEXED LIMIT 1000"):
                for value, (type_, required) in zip(row, wanted, strict=True):
                    if not isinstance(value, type_) and (required or value is not None):
                        return 0
                count += 1
    return count


def _correct_definitions(db: SQLiteConnection) -> None:
    """Correct the definitions of tables and indexes that differ from those of this version."""
    with closing(_new_schema()) as good:
        wanted = {
            name: (type, name, table, sql)
            for type, name, table, sql in good.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema")
        }
    db.execute("PRAGMA writable_schema = ON")
    found = db.execute("SELECT rowid, type, name, tbl_name, sql FROM sqlite_schema").fetchall()
    missing = {name: str(wanted[name][3]) for name in wanted.keys() - {row[2] for row in found}}
    for rowid, *row in found:
        name = row[1]
        if name not in wanted:
            close = get_close_matches(str(row[3]), missing.values(), 1, 0.5)
            name = next((one for one, sql in missing.items() if close and sql == close[0]), name)
        if name in wanted and (tuple(row[:3]) != wanted[name][:3] or row[3] != wanted[name][3]):
            db.execute(
                "UPDATE sqlite_schema SET type=?, name=?, tbl_name=?, sql=? WHERE rowid=?",
                (*wanted[name], rowid),
            )


# Rows


def _copy_rows(damaged: SQLiteConnection, path: Path, fresh: Path, kept: Path) -> RepairResult:
    create_private_file(fresh, path)
    aside, lost = DamagedValues(), Counter[str]()
    columns = _expected_columns()
    found: dict[str, dict[Any, tuple[Any, ...]]] = {}
    for table, condition in _COPIED.items():
        key = _key(table)
        found[table], lost[table] = _read(damaged, table, columns[table], key, found)
        if condition is not None:
            at = columns[table].index("given")
            found[table] = {key: row for key, row in found[table].items() if row[at] == 1}
    if not (found["entries"] or found["documents"]):  # an empty store would look sound
        raise Corrupted(str(path), "has no memory that can be read", "restore a backup; nothing was changed")
    with closing(_new_schema(str(fresh))) as db:
        db.execute("BEGIN")
        for table, some in found.items():
            names = ["rowid", *columns[table]] if table == "tombstones" else columns[table]
            marks = ",".join("?" * len(names))
            conflict = "REPLACE" if table == "settings" else "ABORT"  # the new file has some already
            statement = f"INSERT OR {conflict} INTO {table} ({', '.join(names)}) VALUES ({marks})"
            for row in some.values():
                try:
                    db.execute(statement, row)
                except (*DAMAGE, UnicodeEncodeError, OverflowError):
                    aside.add(table, dict(zip(names, row, strict=True)))
        result = repairing.repair(db, kept.with_name(f"{kept.name}.jsonl"), aside)
        repairing.add_file(db, kept)
        db.execute("COMMIT")
        (without,) = db.execute("SELECT count(*) FROM entries WHERE live = 1").fetchone()
        has_model = rows.serving_model(db) is not None
    return result.replace(
        lost={table: count for table, count in lost.items() if count},
        without_vectors=without if has_model else 0,
        file=result.file or str(kept),
    )


def _key(table: str) -> list[str]:
    """Return the columns of the primary key, or the row number."""
    with closing(_new_schema()) as db:
        (sql,) = db.execute("SELECT sql FROM sqlite_schema WHERE name=?", (table,)).fetchone()
        if "WITHOUT ROWID" not in sql:
            return ["rowid"]
        keys = sorted((row[5], row[1]) for row in db.execute(f"PRAGMA table_info({table})") if row[5])
        return [name for _, name in keys]


def _read(
    db: SQLiteConnection,
    table: str,
    columns: Sequence[str],
    key: Sequence[str],
    others: dict[str, dict[Any, tuple[Any, ...]]],
) -> tuple[dict[Any, tuple[Any, ...]], int]:
    """Return the rows of a table by key, and the number of keys whose rows cannot be read."""
    found: dict[Any, tuple[Any, ...]] = {}
    names = ", ".join(["rowid", *columns] if table == "tombstones" else columns)
    keys, select = ", ".join(key), f"SELECT {', '.join(key)}, {names} FROM {table}"

    def take(statement: str, parameters: Sequence[Any] = ()) -> bool:
        """Read rows until one is damaged; return False if one is."""
        try:
            for row in db.execute(statement, parameters):
                found.setdefault(row[: len(key)], row[len(key) :])
        except DAMAGE:
            return False
        return True

    descending = ", ".join(f"{name} DESC" for name in key)
    known = _known_keys(db, table, keys)
    if take(f"{select} NOT INDEXED ORDER BY {keys}") and known <= found.keys():
        return found, 0
    named = {*known}
    before = {*found}
    take(f"{select} NOT INDEXED ORDER BY {descending}")
    if key == ["rowid"]:
        after = {one for one in found if one not in before}
        low = max(before)[0] if before else min((one[0] for one in known), default=1) - 1
        high = min(after, default=max(known, default=(low,)))[0]
        known.update((no,) for no in range(low + 1, min(high, low + _MAX_PROBES)))
    elif table in _PARENTS:
        column, parent = _PARENTS[table]
        for (number,) in others[parent]:
            if not take(f"{select} WHERE {column}=? ORDER BY {keys}", (number,)):
                take(f"{select} WHERE {column}=? ORDER BY {descending}", (number,))
    condition = " AND ".join(f"{name}=?" for name in key)
    for one in sorted(known - found.keys(), key=repr):  # damaged keys may be of several types
        take(f"{select} WHERE {condition}", one)
    return found, len(named - found.keys())


def _known_keys(db: SQLiteConnection, table: str, keys: str) -> set[Any]:
    """Return the keys of a table that its indexes name."""
    known: set[Any] = set()
    with closing(_new_schema()) as good:
        names = [
            row[1] for row in good.execute(f"PRAGMA index_list({table})") if row[3] != "pk" and not row[4]
        ]
        indexes = {name: good.execute(f"PRAGMA index_info({name})").fetchone()[2] for name in names}
    for index, first in indexes.items():
        for direction in ("ASC", "DESC"):
            with suppress(*DAMAGE):
                known.update(
                    db.execute(f"SELECT {keys} FROM {table} INDEXED BY {index} ORDER BY {first} {direction}")
                )
    return known


def repair_file(path: Path) -> RepairResult | None:
    """Repair a file whose pages are damaged; return None if they are not, so that only rows may be.

    Raises:
        ReadOnly: This user may not write it.
    """
    if not connection.may_write(path):
        raise connection.not_writable(str(path))
    try:
        with closing(_connect(path)) as db:
            connection.check_application(db, str(path))
            if [text for (text,) in db.execute("PRAGMA integrity_check(1)")] == ["ok"]:
                # Without tables it is a new store; an older file that is sound is migrated when it is opened.
                expected = _expected_columns(connection.schema_version(db) or connection.VERSION)
                is_new = db.execute("SELECT 1 FROM sqlite_schema").fetchone() is None
                if is_new or {table: _columns(db, table) for table in expected} == expected:
                    return None
    except DAMAGE as error:
        if connection.is_busy(error):
            raise connection.map_error(error, str(path)) from error
    except StoreFailed:
        if not _looks_like_ours(path):
            raise
    return salvage(path)


def _looks_like_ours(path: Path) -> bool:
    """Return True if a file has traces of our schema, although its header says otherwise."""
    with path.open("rb") as file:
        return b"CREATE TABLE entries" in file.read(1 << 20) or os.path.getsize(path) == 0
