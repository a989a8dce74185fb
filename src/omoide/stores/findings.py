"""What does a store say about its own upkeep?"""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """One thing that was looked at."""

    name: str
    state: str
    """`ok`, `note` (can be lived with) or `problem`."""
    told: str
