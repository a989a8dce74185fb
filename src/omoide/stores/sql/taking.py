"""How are entries taken over from another store?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omoide.core.entry import Entry
from omoide.stores import rules, standing, taking
from omoide.stores.indexing import Indexed
from omoide.stores.records import Access, Link
from omoide.stores.sql import linking, rows, truth
from omoide.stores.sql.database import Database
from omoide.stores.sql.writing import Batch


def unknown(db: Database, entries: Sequence[Entry]) -> list[Entry]:
    """Those of the entries that are not here as they are."""
    found = ((entry, _kept(db, entry)) for entry in entries)
    return [entry for entry, kept in found if kept is None or not taking.is_same(entry, kept)]


def _kept(db: Database, entry: Entry) -> Entry | None:
    found = rows.find(db, entry.namespace, entry.id)
    return None if found is None else found[1]


def take(
    db: Database,
    batch: Batch,
    fresh: Sequence[tuple[Entry, Indexed]],
    access: Mapping[str, Access],
) -> list[Entry]:
    """Keep entries exactly as they are, with their figures; those that were still new."""
    new = []
    for entry, found in fresh:
        if not taking.is_new(entry, _kept(db, entry)):
            continue
        no = batch.take(entry, found)
        new.append(entry)
        used = access.get(entry.id)
        if used is not None and used.count:
            last = -1 if used.last is None else used.last
            db.execute("INSERT INTO access (no, count, last) VALUES (?,?,?)", (no, used.count, last))
    batch.finish()
    return new


def leave(db: Database, namespace: str, left: Mapping[str, Entry], now: int) -> list[str]:
    """Count what was left behind as erased, where it is not here; the ids of it."""
    gone = []
    for id, entry in left.items():
        if rows.find(db, namespace, id) is None and not truth.is_erased(db, namespace, id):
            whose = (entry.agent_id, entry.session_id, entry.project_id)
            db.execute(
                rows.BURY,
                (namespace, id, *whose, 0, now, taking.LEFT_BEHIND),
            )
            gone.append(id)
    return gone


def settle(
    db: Database,
    namespace: str,
    new: Sequence[Entry],
    links: Sequence[Link],
    left: Sequence[str],
    now: int,
) -> None:
    """Find out what is stale, now that all is here."""
    linked = [link.source for link in links if link.relation == standing.INVALIDATED_BY]
    was_out = {id: live != standing.LIVE for id, live in truth.Ledger(db, namespace).standing(linked).items()}
    was_out.update((entry.id, truth.is_erased(db, namespace, entry.id)) for entry in new)
    was_out.update((id, False) for id in left)
    truth.settle(db, namespace, was_out, now)


def take_links(db: Database, namespace: str, links: Sequence[Link], now: int) -> None:
    """Keep links as they are; both ends must be here by now."""
    for link in links:
        source = rows.find(db, namespace, link.source)
        if source is None or rows.find(db, namespace, link.target) is None:
            raise rules.missing(link.source if source is None else link.target)
        linking.add(db, link, namespace, source, now)
