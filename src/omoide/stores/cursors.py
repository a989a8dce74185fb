"""Where did the last page end?

A cursor is the place after the last entry of a page, in letters; it says nothing to anybody else.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode

from omoide.errors import Invalid


def write(*place: int) -> str:
    """The cursor for a place."""
    return urlsafe_b64encode(":".join(map(str, place)).encode()).decode().rstrip("=")


def read(cursor: str, parts: int = 2) -> tuple[int, ...]:
    """The place that a cursor means."""
    try:
        place = tuple(int(part) for part in urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).split(b":"))
    except (ValueError, UnicodeError):
        place = ()
    if len(place) != parts or any(abs(part) >= 1 << 63 for part in place):
        raise Invalid("cursor", f"is {cursor!r}", "pass the cursor of the page before, or none")
    return place
