"""Find what has to be stale in the plainest way."""

from __future__ import annotations

from collections.abc import Iterable

from omoide import Entry
from omoide.stores import Link


def naively_stale(entries: Iterable[Entry], links: Iterable[Link], gone: Iterable[str]) -> set[str]:
    """The ids that must be marked: everything is looked at again and again until nothing more is found."""
    stale = {link.source for link in links if link.relation == "invalidated_by"}
    out = {*gone, *stale, *(entry.id for entry in entries if entry.superseded_by is not None)}
    before = -1
    while before != len(stale):
        before = len(stale)
        for entry in entries:
            if any(one.kind == "entry" and one.ref in out for one in entry.evidence):
                stale.add(entry.id)
                out.add(entry.id)
    return stale
