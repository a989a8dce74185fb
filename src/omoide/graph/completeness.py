"""What does a memory lack that the shapes of the ontology ask for?

The same as they find in strict mode, from the memory itself and the links that lead to it, and without any
package for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from omoide.core.entry import Entry
from omoide.graph.vocabulary import ASSIGNED_TO, FACETS, OPEN_STATUSES, assigned
from omoide.longterm import completeness
from omoide.stores.records import Link

(_STATUS,) = FACETS["task"]


def missing_for(entry: Entry, links: Iterable[Link] = ()) -> tuple[str, ...]:
    """The fields that would have to be given, or changed, for the memory to be complete."""
    found = dict.fromkeys(completeness.missing(entry))
    if entry.type == "task":
        if not assigned(entry.metadata):
            found[f"metadata.{ASSIGNED_TO}"] = None
        if entry.superseded_by is not None and _STATUS.value(entry.metadata) in OPEN_STATUSES:
            found[f"metadata.{_STATUS.key}"] = None
    if entry.type == "root_cause" and not any(
        link.relation == "has_root_cause" and link.target == entry.id for link in links
    ):
        found["has_root_cause"] = None
    return tuple(found)
