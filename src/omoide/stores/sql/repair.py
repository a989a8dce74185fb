"""Repair a store: set damaged rows aside, and rebuild from the sound ones what is derived from them.

A row whose columns are damaged is restored from its body where the checksum proves the result. Any other
damaged row is written to a file, as lines of JSON, and deleted. Terms, dependencies, owners and statuses are
rebuilt from bodies; vectors of wrong size are deleted, and a reindex computes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omoide import clock
from omoide.core.entry import Entry
from omoide.errors import Corrupted
from omoide.retrieval.text import FEATURES_VERSION
from omoide.stores import damage, records, semantics
from omoide.stores.damage import DamagedValues
from omoide.stores.records import IndexData, RepairResult
from omoide.stores.semantics import LIVE, STALE, SUPERSEDED, SUPERSEDED_AND_STALE
from omoide.stores.sql import rows
from omoide.stores.sql.database import SLOTS, Database

_BATCH = 256
_OTHER_STATUS = {
    SUPERSEDED: SUPERSEDED_AND_STALE, LIVE: STALE, STALE: LIVE, SUPERSEDED_AND_STALE: SUPERSEDED
}  # fmt: skip


def files(db: Database) -> list[str]:
    """Return the files with rows that earlier repairs set aside."""
    row = db.execute("SELECT value FROM settings WHERE name=?", (damage.FILES_SETTING,)).fetchone()
    return damage.decode_files(None if row is None else row[0])


def add_file(db: Database, path: Path) -> None:
    """Add to the files that later erasures name, and drop those that are gone."""
    rows.put_setting(db, damage.FILES_SETTING, damage.encode_files(files(db), path))


def repair(db: Database, path: Path | None, aside: DamagedValues | None = None) -> RepairResult:
    """Repair a store inside the caller's transaction; damaged rows go to the file at `path`."""
    aside = DamagedValues() if aside is None else aside
    counts: Counter[str] = Counter()
    _repair_settings(db)
    db.execute("DELETE FROM postings")
    _repair_entries(db, aside, counts)
    _repair_versions(db, aside, counts)
    _repair_documents(db, aside, counts)
    _close_gaps(db)
    counts["links"] = _delete_dangling(db)
    _repair_log(db)
    _repair_staleness(db)
    if aside.write(path) and path is not None:
        add_file(db, path)
    rows.renew_generation(db)
    return RepairResult(
        entries=counts["entries"],
        corrected=counts["corrected"],
        checked=counts["checked"],
        set_aside=aside.counts,
        links=counts["links"],
        file=str(path.absolute()) if aside and path is not None else None,
    )


def _repair_settings(db: Database) -> None:
    rows.put_setting(db, "features", str(FEATURES_VERSION))


def _repair_entries(db: Database, aside: DamagedValues, counts: Counter[str]) -> None:
    """Set damaged entries aside; restore columns, terms and dependencies of all others from their bodies."""
    last = -(1 << 62)
    while True:
        batch = db.execute(
            f"SELECT no, {rows.ALL_COLUMNS} FROM entries WHERE no > ? ORDER BY no LIMIT ?", (last, _BATCH)
        ).fetchall()
        if not batch:
            return
        postings: list[tuple[int, int, int, int]] = []
        for no, *columns in batch:
            last = no
            restored = _restore(db, columns)
            if restored is not None and restored[1] != tuple(columns):
                # Another entry may have been written in its place while its columns were damaged.
                restored = None if rows.is_place_taken(db, no, restored[0]) else restored
            if restored is None:
                _set_aside(aside, "entries", f"no, {rows.ALL_COLUMNS}", [no, *columns])
                _set_versions_aside(db, no, aside)
                _delete_entry(db, no)
                continue
            entry, row, found = restored
            counts["entries"] += 1
            if columns[-1] is None:
                counts["checked"] += 1
            if row != tuple(columns):
                counts["corrected"] += columns[-1] is not None
                rows.update(db, no, row)
            if entry.superseded_by is None:
                postings += found.postings(row[rows.UNDERIVED[0]], no)
            db.execute("UPDATE supports SET present = 0 WHERE no=?", (no,))
            rows.update_premises(db, entry, no)
        rows.insert_postings(db, postings)


def _restore(db: Database, columns: Sequence[Any]) -> tuple[Entry, tuple[Any, ...], IndexData] | None:
    """Return an entry, its row as it has to be and its terms; None if it is damaged beyond its columns."""
    named = dict(zip(rows.ALL_COLUMNS.replace(",", " ").split(), columns, strict=True))
    row = [named[name] for name in rows.ENTRY_COLUMNS.replace(",", " ").split()]
    try:
        try:
            entry = rows.decode_row(db, row)
            live = named["live"]
            if named["checksum"] is None:
                records.check_decoded(entry)
        except Corrupted:
            if named["checksum"] is None:
                return None
            entry, live = records.decode_entry(named["body"]), None
        owner, found = named["owner"], records.index_entry(entry)
        for status in _OTHER_STATUS if live is None else (live,):
            candidate = semantics.replace_unchecked(entry, stale=status >= STALE)
            made = rows.entry_columns(candidate, owner, named["changed"], named["written"], found)
            if live is not None or (
                made[-1] == named["checksum"] and semantics.status_of(candidate) == status
            ):
                break
        else:
            return None
        own = rows.make_owner(db, entry.namespace, entry.agent_id)
        if own != owner:
            made = rows.entry_columns(candidate, own, named["changed"], named["written"], found)
    except records.DECODE_ERRORS:
        return None
    return candidate, made, found


def _delete_row(db: Database, table: str, key: Mapping[str, Any]) -> None:
    """Delete the row with a key, which may be damaged text."""
    parameters, conditions = [], []
    for name, value in key.items():
        is_text = isinstance(value, str)
        parameters.append(value.encode(errors="surrogateescape") if is_text else value)
        conditions.append(f"{name}={'CAST(? AS TEXT)' if is_text else '?'}")
    db.execute(f"DELETE FROM {table} WHERE {' AND '.join(conditions)}", parameters)


def _set_aside(aside: DamagedValues, table: str, columns: str, row: Sequence[Any]) -> None:
    aside.add(table, dict(zip(columns.replace(",", " ").split(), row, strict=True)))


def _delete_entry(db: Database, no: int) -> None:
    rows.delete_vectors(db, no)
    for table in ("versions", "supports", "entries", "access"):
        db.execute(f"DELETE FROM {table} WHERE no=?", (no,))


def _set_versions_aside(db: Database, no: int, aside: DamagedValues) -> None:
    for row in db.execute(f"{rows.SELECT_VERSIONS} WHERE no=? ORDER BY rev", (no,)).fetchall():
        _set_aside(aside, "versions", "no, rev, changed, body, checksum", row)


def _repair_versions(db: Database, aside: DamagedValues, counts: Counter[str]) -> None:
    """Set damaged versions aside, and those without an entry."""
    found = db.execute(
        "SELECT v.no, v.rev, v.changed, v.body, v.checksum, e.id, e.rev FROM versions v"
        " LEFT JOIN entries e ON e.no = v.no"
    )
    for *row, id, current in found.fetchall():
        no, rev, changed, body, checksum = row
        try:
            if id is None or rev >= current:
                raise records.damaged(db.name, "version", rev)
            version = rows.decode_version(db, id, row)
            if checksum is None:
                records.check_decoded(version)
        except (Corrupted, *records.DECODE_ERRORS):
            _set_aside(aside, "versions", "no, rev, changed, body, checksum", row)
            _delete_row(db, "versions", {"no": no, "rev": rev})
            continue
        if checksum is None:
            counts["checked"] += 1
            checksum = rows.version_checksum(no, rev, changed, body)
            db.execute("UPDATE versions SET checksum=? WHERE no=? AND rev=?", (checksum, no, rev))
    # What is missing counts as from before this store, so that the rest has no gaps.
    number_of_versions = "(SELECT count(*) FROM versions v WHERE v.no = entries.no)"
    db.execute(
        f"UPDATE entries SET first = rev - {number_of_versions} WHERE first != rev - {number_of_versions}"
    )


def _repair_documents(db: Database, aside: DamagedValues, counts: Counter[str]) -> None:
    """Set damaged documents aside with their logs, and damaged items of the logs of others."""
    known: dict[int, tuple[str, str]] = {}
    for no, *row in db.execute(f"SELECT no, {rows.DOCUMENT_COLUMNS} FROM documents").fetchall():
        try:
            document = rows.decode_document(db, [*row, _logged(row)])
        except (Corrupted, *records.DECODE_ERRORS):
            _set_aside(aside, "documents", f"no, {rows.DOCUMENT_COLUMNS}", [no, *row])
            db.execute("DELETE FROM documents WHERE no=?", (no,))
            continue
        known[no] = document.kind, document.id
        counts["checked"] += row[-1] is None
    for row in db.execute("SELECT document, n, body, checksum FROM document_log").fetchall():
        document_no, n, body, checksum = row
        try:
            if document_no not in known:
                raise records.damaged(db.name, "log", n)
            rows.decode_log_item(db, *known[document_no], row)
        except Corrupted:
            _set_aside(aside, "document_log", "document, n, body, checksum", row)
            _delete_row(db, "document_log", {"document": document_no, "n": n})
            continue
        if checksum is None:
            counts["checked"] += 1
            checksum = rows.log_checksum(document_no, n, body)
            db.execute(
                "UPDATE document_log SET checksum=? WHERE document=? AND n=?", (checksum, document_no, n)
            )


def _logged(row: Sequence[Any]) -> int:
    """Return how many items the checksum of a document says that its log had."""
    items, rest = divmod(
        (row[9] or 0) - rows.document_checksum(row[:6], row[6], row[7], row[8], 0), rows.LOG_FACTOR
    )
    return items if not rest and items >= 0 else -1


def _close_gaps(db: Database) -> None:
    """Number the items of logs anew from which some are gone, and renew the checksums of documents."""
    with_gaps = "SELECT document FROM document_log GROUP BY document HAVING min(n) != 1 OR max(n) != count(*)"
    for (no,) in db.execute(with_gaps).fetchall():
        found = db.execute("SELECT n, body FROM document_log WHERE document=? ORDER BY n", (no,)).fetchall()
        for n, (old, body) in enumerate(found, 1):
            db.execute(
                "UPDATE document_log SET n=?, checksum=? WHERE document=? AND n=?",
                (n, rows.log_checksum(no, n, body), no, old),
            )
    for no, *row in db.execute(rows.SELECT_DOCUMENTS.replace("SELECT", "SELECT no,", 1)).fetchall():
        checksum = rows.document_checksum(row[:6], row[6], row[7], row[8], row[-1])
        if checksum != row[-2]:
            db.execute("UPDATE documents SET checksum=? WHERE no=?", (checksum, no))


def _delete_dangling(db: Database) -> int:
    """Delete what belongs to rows that are no longer there; return how many links were among it."""
    for table in ("supports", "access"):
        db.execute(f"DELETE FROM {table} WHERE no NOT IN (SELECT no FROM entries)")
    db.execute(
        "DELETE FROM supports WHERE NOT EXISTS"
        " (SELECT 1 FROM entries e WHERE e.no = supports.no AND e.namespace = supports.namespace)"
    )
    sizes = {model.slot: 4 * model.dim for model in rows.list_models(db)}
    wrong = [
        (key,)
        for key, size in db.execute("SELECT key, length(pooled) FROM vectors").fetchall()
        if not size or size % sizes.get(key % SLOTS, size + 1)
    ]
    db.executemany("DELETE FROM vectors WHERE key=?", wrong)
    db.execute(f"DELETE FROM vectors WHERE key / {SLOTS} NOT IN (SELECT no FROM entries)")
    db.execute("DELETE FROM tokens WHERE key NOT IN (SELECT key FROM vectors)")
    # Agents without memories keep their numbers, which other handles of the store remember.
    end = "SELECT 1 FROM entries e WHERE e.namespace = links.namespace AND e.id = links."
    cursor = db.execute(f"DELETE FROM links WHERE NOT EXISTS ({end}source) OR NOT EXISTS ({end}target)")
    return cursor.rowcount


def _repair_log(db: Database) -> None:
    """Log the last change of entries whose record is gone."""
    missing = db.execute(
        "SELECT e.namespace, e.id, e.no, e.rev, e.changed FROM entries e WHERE NOT EXISTS"
        " (SELECT 1 FROM log l WHERE l.no = e.no AND l.id = e.id AND l.rev = e.rev)"
    ).fetchall()
    db.executemany(
        "INSERT INTO log (namespace, id, no, op, rev, at) VALUES (?,?,?,'write',?,?)",
        [(namespace, id, no, rev, at) for namespace, id, no, rev, at in missing],
    )


def _repair_staleness(db: Database) -> None:
    """Compute which entries are stale."""
    now = clock.now()
    for (namespace,) in db.execute("SELECT DISTINCT namespace FROM owners").fetchall():
        stale = rows.stale_ids(db, namespace)
        found = db.execute("SELECT id, live FROM entries WHERE namespace=?", (namespace,)).fetchall()
        changed = {id: _OTHER_STATUS[live] for id, live in found if (live >= STALE) != (id in stale)}
        index = rows.SQLDependencyIndex(db, namespace)
        index.statuses([*changed])
        index.save_statuses(changed, now)
