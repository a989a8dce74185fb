"""Load, save and append documents, and claim their leases."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from omoide.core import codec
from omoide.core.entry import Scope
from omoide.errors import Conflict, IdTaken, NotFound
from omoide.stores.records import Document, Lease
from omoide.stores.sql.database import Database

DocumentRow = tuple[int, str | None, str | None, int]


def load(db: Database, kind: str, id: str, scope: Scope) -> Document | None:
    """Return a document with its log, or None."""
    row = _find(db, kind, id, scope)
    if row is None:
        return None
    no, agent, session, rev = row
    at, body = db.execute("SELECT at, body FROM documents WHERE no=?", (no,)).fetchone()
    log = db.execute("SELECT body FROM document_log WHERE document=? ORDER BY n", (no,)).fetchall()
    return _document(
        kind, scope, (id, agent, session, rev, at, body), tuple(_decode(item) for (item,) in log)
    )


def list_documents(db: Database, kind: str, scope: Scope, limit: int, after: str | None) -> list[Document]:
    """List documents of a kind after an id, without their logs."""
    condition, parameters = "namespace=? AND kind=? AND id > ?", [scope.namespace, kind, after or ""]
    for column, value in (("agent", scope.agent_id), ("session", scope.session_id)):
        if value is not None:
            condition += f" AND {column}=?"
            parameters.append(value)
    cursor = db.execute(
        f"SELECT id, agent, session, rev, at, body FROM documents WHERE {condition} ORDER BY id LIMIT ?",
        (*parameters, limit),
    )
    return [_document(kind, scope, row) for row in cursor]


def kinds(db: Database, namespace: str) -> list[str]:
    """List the kinds of documents in a namespace."""
    cursor = db.execute("SELECT DISTINCT kind FROM documents WHERE namespace=? ORDER BY kind", (namespace,))
    return [kind for (kind,) in cursor]


def _document(
    kind: str,
    scope: Scope,
    row: tuple[str, str | None, str | None, int, int, bytes],
    log: tuple[Any, ...] = (),
) -> Document:
    id, agent, session, rev, at, body = row
    return Document(
        kind=kind,
        id=id,
        namespace=scope.namespace,
        agent_id=agent,
        session_id=session,
        rev=rev,
        updated_at=at,
        body=_decode(body),
        log=log,
    )


def save(db: Database, document: Document, expected_rev: int | None, now: int) -> Document:
    """Replace a document and its log."""
    namespace_scope = Scope(namespace=document.namespace)
    row = _find(db, document.kind, document.id, namespace_scope)
    rev = 0 if row is None else row[3]
    if row is not None and row[1:3] != (document.agent_id, document.session_id):
        raise IdTaken(document.id)
    Conflict.check(_name(document.kind, document.id), expected_rev, rev)
    body = codec.encode(document.body)
    if row is None:
        ((no,),) = db.execute(
            "INSERT INTO documents (namespace, kind, id, agent, session, rev, at, body)"
            " VALUES (?,?,?,?,?,?,?,?) RETURNING no",
            (
                document.namespace,
                document.kind,
                document.id,
                document.agent_id,
                document.session_id,
                1,
                now,
                body,
            ),
        ).fetchall()
    else:
        no = row[0]
        db.execute("UPDATE documents SET rev=?, at=?, body=? WHERE no=?", (rev + 1, now, body, no))
        db.execute("DELETE FROM document_log WHERE document=?", (no,))
    db.executemany(
        "INSERT INTO document_log VALUES (?,?,?)",
        [(no, n, codec.encode(item)) for n, item in enumerate(document.log, 1)],
    )
    return document.replace(rev=rev + 1, updated_at=now)


def append(
    db: Database,
    kind: str,
    id: str,
    entries: Iterable[Any],
    scope: Scope,
    expected_rev: int | None,
    now: int,
) -> int:
    """Append to the log of a document; return the new revision."""
    row = _find(db, kind, id, scope)
    if row is None:
        raise NotFound(kind, id, "save the document first")
    no, rev = row[0], row[3]
    Conflict.check(_name(kind, id), expected_rev, rev)
    first = db.execute("SELECT coalesce(max(n), 0) + 1 FROM document_log WHERE document=?", (no,)).fetchone()[
        0
    ]
    db.executemany(
        "INSERT INTO document_log VALUES (?,?,?)",
        [(no, first + index, codec.encode(item)) for index, item in enumerate(entries)],
    )
    db.execute("UPDATE documents SET rev=?, at=? WHERE no=?", (rev + 1, now, no))
    return rev + 1


def claim(db: Database, kind: str, id: str, scope: Scope, owner: str, ttl_ms: int, now: int) -> Lease | None:
    """Acquire or renew the lease of a document; return None while another owner holds it."""
    _check_claimable(db, kind, id, scope)
    row = db.execute(
        "SELECT owner, until, token FROM leases WHERE namespace=? AND kind=? AND id=?",
        (scope.namespace, kind, id),
    ).fetchone()
    token = 0
    if row is not None:
        if row[0] != owner and row[1] > now:
            return None
        token = row[2]
    if row is None or row[0] != owner or row[1] <= now:
        token += 1
    db.execute(
        "INSERT INTO leases VALUES (?,?,?,?,?,?) ON CONFLICT (namespace, kind, id)"
        " DO UPDATE SET owner = excluded.owner, until = excluded.until, token = excluded.token",
        (scope.namespace, kind, id, owner, now + ttl_ms, token),
    )
    return Lease(owner=owner, until=now + ttl_ms, token=token)


def release(db: Database, kind: str, id: str, scope: Scope, owner: str, now: int) -> bool:
    """Release a lease; its token stays, so that the next owner gets a higher one."""
    _check_claimable(db, kind, id, scope)
    cursor = db.execute(
        "UPDATE leases SET until=0 WHERE namespace=? AND kind=? AND id=? AND owner=? AND until > ?",
        (scope.namespace, kind, id, owner, now),
    )
    return cursor.rowcount > 0


def _check_claimable(db: Database, kind: str, id: str, scope: Scope) -> None:
    """Allow claims of documents that do not exist yet, but not of those outside the scope."""
    if (
        _find(db, kind, id, scope) is None
        and _find(db, kind, id, Scope(namespace=scope.namespace)) is not None
    ):
        raise NotFound(kind, id, "check the id and the scope")


def _find(db: Database, kind: str, id: str, scope: Scope) -> DocumentRow | None:
    row: DocumentRow | None = db.execute(
        "SELECT no, agent, session, rev FROM documents WHERE namespace=? AND kind=? AND id=?",
        (scope.namespace, kind, id),
    ).fetchone()
    if row is None or scope.agent_id not in (None, row[1]) or scope.session_id not in (None, row[2]):
        return None
    return row


def _decode(body: bytes) -> Any:
    return codec.decode(body, codec.Frozen)


def _name(kind: str, id: str) -> str:
    return f"{kind} {id!r}"
