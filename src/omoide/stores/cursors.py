"""Where did the last page end?

A cursor is the place after the last entry of a page, in letters; it says nothing to anybody else.
"""

from __future__ import annotations

from omoide.errors import Invalid


def write(*place: int) -> str:
    """The cursor for a place."""
    return "-".join([f"{part:x}" for part in place])


def read(cursor: str, parts: int = 2) -> tuple[int, ...]:
    """The place that a cursor means."""
    try:
        place = tuple(int(part, 16) for part in cursor.split("-"))
    except ValueError:
        place = ()
    if len(place) != parts or any(abs(part) >= 1 << 63 for part in place):
        raise Invalid("cursor", f"is {cursor!r}", "pass the cursor of the page before, or none")
    return place
