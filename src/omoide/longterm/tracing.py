"""What does a memory rest on, what does it hang together with, and why does it no longer hold?"""

from __future__ import annotations

from omoide.longterm.places import Said
from omoide.longterm.provenance import Provenance, Succession, Traced, provenance
from omoide.longterm.relatives import Related, related
from omoide.longterm.staleness import Chain, why_stale

__all__ = [
    "Chain",
    "Provenance",
    "Related",
    "Said",
    "Succession",
    "Traced",
    "provenance",
    "related",
    "why_stale",
]
