"""Which entries fit, newest first, a page at a time?"""

from __future__ import annotations

from omoide.core.entry import Entry
from omoide.stores import cursors, rules
from omoide.stores.records import Page, Query
from omoide.stores.redis import packing
from omoide.stores.redis.keys import dimension
from omoide.stores.redis.units import Unit
from omoide.stores.reference_state import State

_PORTION = 200


def page(state: State, query: Query) -> Page:
    """The next entries that fit."""
    assert isinstance(state, Unit)
    place = (1 << 63, 1 << 63) if query.cursor is None else cursors.read(query.cursor)
    passes = rules.passing(query.filter, query.at)
    found: list[tuple[tuple[int, int], Entry]] = []
    portion = min(_PORTION, query.limit + 1)
    since = 0 if query.filter.since is None else query.filter.since
    offset = 0
    while len(found) <= query.limit:
        members = _portion(state, query, place[0], since, offset, portion)
        offset += len(members)
        ids = [member[packing.STAMP :].decode() for member in members]
        held = state.among(query.scope.namespace, ids)
        for id in ids:
            one = held.get(id)
            if one is not None and query.scope.holds(one.entry) and passes(one.entry):
                at = (rules.time_of(one.entry), one.no)
                if at < place:
                    found.append((at, one.entry))
        if len(members) < portion:
            break
        portion = _PORTION
    shown = found[: query.limit]
    cursor = cursors.write(*shown[-1][0]) if len(found) > len(shown) else None
    return Page(entries=tuple(entry for _, entry in shown), cursor=cursor)


def _portion(state: Unit, query: Query, until: int, since: int, offset: int, count: int) -> list[bytes]:
    part, name = state.part(query.scope.namespace), dimension(query.scope)
    until = until if query.filter.until is None else min(until, query.filter.until)
    asked = ["ZREVRANGEBYSCORE", part.keys("time", name), str(until), str(since)]
    members: list[bytes]
    members, stamp = state.ask(
        [[*asked, "LIMIT", str(offset), str(count)], ["HGET", part.keys("watch"), name]]
    )
    part.check("watch", name, stamp)
    return members
