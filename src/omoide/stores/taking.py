"""May entries of another store be taken over, and which of them are new?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from omoide import ids
from omoide.core.entry import Entry
from omoide.core.writing import WriteRequest
from omoide.errors import IdTaken, Invalid
from omoide.stores import rules, standing
from omoide.stores.records import Access, Link
from omoide.stores.settings import Settings


def admitted(
    entries: Sequence[Entry], links: Sequence[Link], access: Mapping[str, Access], settings: Settings
) -> list[Entry]:
    """The entries as they may be kept, if they may; all of one namespace, which is then that of the links."""
    if not entries and (links or access):
        raise Invalid("entries", "is empty", "pass the entries that the links and the figures are about")
    namespaces = sorted({entry.namespace for entry in entries})
    if len(namespaces) > 1:
        raise Invalid("entries", f"lie in {len(namespaces)} namespaces", "take over one namespace at a time")
    return [_taken(settings.admitted(WriteRequest(entry=entry)).entry) for entry in entries]


LEFT_BEHIND = "left behind where what rests on it comes from"


def left_behind(given: Sequence[Entry]) -> dict[str, Entry]:
    """The ids that stale entries rest on and that do not come with them, each with one that does.

    Where they are not here either they count as erased, so that nothing comes back to life by moving.
    """
    there = {entry.id for entry in given}
    stale = [entry for entry in given if entry.stale]
    # What something rests on that counts did not stand in its way.
    fine = {ref for entry in given if not entry.stale for ref in standing.premises(entry)}
    known = there | fine
    found = {ref: one for one in stale for ref in standing.premises(one) if ref not in known}
    return {ref: one for ref, one in found.items() if _can_be_an_id(ref)}


def _can_be_an_id(ref: str) -> bool:
    """Whether an entry could be called so: evidence may be anything that somebody wrote down."""
    try:
        ids.check(ref, "ref")
    except Invalid:
        return False
    return True


def _taken(entry: Entry) -> Entry:
    """What is kept of it: a store counts revisions from one, and says itself what is stale."""
    return rules.changed(entry, rev=max(1, entry.rev), stale=False)


def is_new(given: Entry, kept: Entry | None) -> bool:
    """Whether an entry has to be kept; one that is here and says something else stands in the way."""
    if kept is None:
        return True
    if not is_same(given, kept):
        raise IdTaken(given.id)
    return False


def is_same(given: Entry, kept: Entry) -> bool:
    """Whether an entry is kept as it is."""
    return rules.changed(kept, stale=False) == given
