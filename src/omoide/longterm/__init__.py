"""What does an agent know for good, how does it hang together, and does it still hold?

Functions over a store and a scope: `by_type` and `everything` list, `relate` and `related` follow links,
`provenance` leads back to what was said, `why_stale` says what no longer holds, `review` shows what needs
somebody's eyes, and `prune` forgets what nobody needs.

"""

from __future__ import annotations

from omoide.longterm.lineage import Chain, Provenance, provenance, why_stale
from omoide.longterm.queries import count, query_all, query_by_type
from omoide.longterm.relations import RELATIONS, Related, relate, related
from omoide.longterm.upkeep import PruneReport, ReviewReport, prune, review

__all__ = [
    "RELATIONS",
    "Chain",
    "Provenance",
    "PruneReport",
    "Related",
    "ReviewReport",
    "count",
    "provenance",
    "prune",
    "query_all",
    "query_by_type",
    "relate",
    "related",
    "review",
    "why_stale",
]
