"""Query, relate, trace and maintain the memories of an agent.

Functions over a store and a scope:

- `queries`: memories by type and id, counts, links and use.
- `relations`: the relations of the ontology; relate memories and find related ones.
- `lineage`: provenance back to messages and documents, and the causes of staleness.
- `conflicts`: contradictions, and the completeness of memories.
- `upkeep`: review what needs attention, and prune unused memories.
"""

from __future__ import annotations

from omoide.longterm.conflicts import (
    Disagreement,
    check_complete,
    conflicts_of,
    find_conflicts,
    link_conflicts,
    missing_fields,
    refuse_conflicts,
)
from omoide.longterm.lineage import Chain, Provenance, TracedEvidence, provenance, why_stale
from omoide.longterm.queries import (
    count,
    get,
    iter_entries,
    query_all,
    query_by_type,
    record_access,
    supersede,
)
from omoide.longterm.relations import RELATIONS, Related, Relation, relate, related
from omoide.longterm.upkeep import PruneReport, ReviewReport, prune, review

__all__ = [
    "RELATIONS",
    "Chain",
    "Disagreement",
    "Provenance",
    "PruneReport",
    "Related",
    "Relation",
    "ReviewReport",
    "TracedEvidence",
    "check_complete",
    "conflicts_of",
    "count",
    "find_conflicts",
    "get",
    "iter_entries",
    "link_conflicts",
    "missing_fields",
    "provenance",
    "prune",
    "query_all",
    "query_by_type",
    "record_access",
    "refuse_conflicts",
    "relate",
    "related",
    "review",
    "supersede",
    "why_stale",
]
