"""How does content leave the file for good?

The file is opened with secure_delete, so what is deleted is overwritten; what the write-ahead log still holds
goes when it is emptied, which waits for readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from omoide.core.entry import Entry
from omoide.core.scope import Scope
from omoide.stores import bodies, rules, standing, transcripts
from omoide.stores.records import EraseReceipt
from omoide.stores.sql import rows, truth
from omoide.stores.sql.database import Database
from omoide.stores.sql.writing import terms_in

UNREACHABLE = (
    "backups made before",
    "exports and copies",
    "graphs that have not caught up",
    "what other programs read",
)


def erase(db: Database, scope: Scope, *, id: str | None, reason: str | None, now: int) -> EraseReceipt:
    """Remove an entry, or all that a scope holds."""
    documents: list[tuple[str, str]] = []
    if id is not None:
        numbers = [rows.get(db, id, scope)[0]]
    else:
        numbers = _numbers(db, scope)
        documents = _erase_documents(db, scope)
    said = transcripts.named(_versions(db, numbers), documents)
    erased = [_erase_one(db, no, scope.namespace, reason, now) for no in numbers]
    ids = tuple(one.id for one in erased)
    _settle(db, scope.namespace, erased, now)
    return EraseReceipt(
        ids=ids,
        versions=sum(one.versions for one in erased),
        links=sum(one.links for one in erased),
        documents=len(documents),
        at=now,
        reason=reason,
        unreachable=(*_quoting(db, scope, ids), *said, *UNREACHABLE),
    )


def _numbers(db: Database, scope: Scope) -> list[int]:
    inside = rows.where(db, scope)
    if inside is None:
        return []
    found = db.execute(f"SELECT no FROM entries WHERE {inside[0]} ORDER BY no", inside[1])
    return [no for (no,) in found.fetchall()]


def _versions(db: Database, numbers: Sequence[int]) -> Iterator[Entry]:
    """Entries as they are and as they were."""
    for no in numbers:
        found = db.execute(
            "SELECT rev, body FROM versions WHERE no=? UNION ALL SELECT rev, body FROM entries WHERE no=?"
            " ORDER BY rev",
            (no, no),
        )
        for _, body in found:
            with suppress(msgspec.DecodeError):  # a damaged old version does not stand in the way
                yield bodies.unpack(body)


def _quoting(db: Database, scope: Scope, ids: Sequence[str]) -> list[str]:
    """What is left in the store that may repeat what was erased."""
    found = []
    for id in ids:
        resting = db.execute(
            "SELECT e.id FROM supports s JOIN entries e ON e.no = s.no WHERE s.namespace=? AND s.id=?",
            (scope.namespace, id),
        )
        found += [rules.quoting(other, id) for (other,) in resting]
    whose = "" if scope.agent_id is None else " AND (agent IS NULL OR agent=?)"
    (documents,) = db.execute(
        f"SELECT count(*) FROM documents WHERE namespace=?{whose}",
        (scope.namespace, *([] if scope.agent_id is None else [scope.agent_id])),
    ).fetchone()
    return rules.named(found, documents)


class _Erased(NamedTuple):
    """An entry that is gone."""

    id: str
    versions: int
    links: int
    was_out: bool
    sources: list[tuple[str, str]]
    """The ids and relations of the links that led to it."""


def _erase_one(db: Database, no: int, namespace: str, reason: str | None, now: int) -> _Erased:
    owner, live, blob, body = db.execute(
        "SELECT owner, live, features, body FROM entries WHERE no=?", (no,)
    ).fetchone()
    entry = bodies.unpack(body)
    if not standing.is_superseded(live):
        rows.unpost(db, owner, no, terms_in(blob))
    rows.drop_vectors(db, no)
    versions = db.execute("DELETE FROM versions WHERE no=?", (no,)).rowcount + 1
    sources = db.execute(
        "SELECT source, relation FROM links WHERE namespace=? AND target=?", (namespace, entry.id)
    ).fetchall()
    links = db.execute(
        "DELETE FROM links WHERE namespace=? AND (source=? OR target=?)", (namespace, entry.id, entry.id)
    ).rowcount
    db.execute("DELETE FROM supports WHERE no=?", (no,))
    db.execute("DELETE FROM receipts WHERE namespace=? AND id=?", (namespace, entry.id))
    # The entry before its figures, as others do who note uses, so that no two wait for each other.
    db.execute("DELETE FROM entries WHERE no=?", (no,))
    db.execute("DELETE FROM access WHERE no=?", (no,))
    db.execute(
        rows.BURY,
        (namespace, entry.id, entry.agent_id, entry.session_id, entry.project_id, entry.rev, now, reason),
    )
    rows.log(db, entry, no, "erase", now)
    return _Erased(entry.id, versions, links, live != standing.LIVE, sources)


def _settle(db: Database, namespace: str, erased: Sequence[_Erased], now: int) -> None:
    """Note which entries lost a link, and which have lost what they rest on."""
    was_out = {one.id: one.was_out for one in erased}
    sources = sorted({pair for one in erased for pair in one.sources if pair[0] not in was_out})
    for source in sorted({id for id, _ in sources}):
        found = rows.find(db, namespace, source)
        if found is not None:
            rows.log(db, found[1], found[0], "unlink", now)
    # Whatever was invalidated was out.
    was_out.update((id, True) for id, relation in sources if relation == standing.INVALIDATED_BY)
    truth.settle(db, namespace, was_out, now)


def _erase_documents(db: Database, scope: Scope) -> list[tuple[str, str]]:
    """The kinds and ids of what is removed: documents belong to an agent and a session, not a project."""
    if scope.project_id is not None:
        return []
    condition, parameters = "namespace=?", [scope.namespace]
    for column, value in (("agent", scope.agent_id), ("session", scope.session_id)):
        if value is not None:
            condition += f" AND {column}=?"
            parameters.append(value)
    found = db.execute(f"SELECT no, kind, id FROM documents WHERE {condition}", parameters).fetchall()
    db.execute(
        f"DELETE FROM leases WHERE (namespace, kind, id) IN"
        f" (SELECT namespace, kind, id FROM documents WHERE {condition})",
        parameters,
    )
    if scope == Scope(namespace=scope.namespace):  # also of what was claimed and never saved
        db.execute("DELETE FROM leases WHERE namespace=?", (scope.namespace,))
    numbers = [(no,) for no, _, _ in found]
    db.executemany("DELETE FROM document_log WHERE document=?", numbers)
    db.executemany("DELETE FROM documents WHERE no=?", numbers)
    return [(kind, id) for _, kind, id in found]
