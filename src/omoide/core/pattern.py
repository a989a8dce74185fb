"""Which signals does a pattern speak of?

A signal type is dotted, as in `sensor.reading.raw`. In a pattern `*` stands for exactly one segment and `**`
for any number of them, none included. Where several patterns match, the more specific comes first.
"""

from __future__ import annotations

from functools import lru_cache

from omoide.core.texts import check_text
from omoide.errors import Invalid

ANY_ONE, ANY = "*", "**"


def check(pattern: object, field: str = "pattern") -> str:
    """The pattern itself, if its segments are names, `*` or `**`."""
    text = check_text(pattern, field, "use a dotted signal type, * or **")
    for segment in text.split("."):
        if not segment or (ANY_ONE in segment and segment not in (ANY_ONE, ANY)):
            raise Invalid(
                field, f"{text!r} has the segment {segment!r}", "use whole segments: a.b, a.*, a.**"
            )
    return text


def matches(pattern: str, signal_type: str) -> bool:
    """Whether a signal type fits a pattern."""
    return pattern == signal_type or _match(tuple(pattern.split(".")), tuple(signal_type.split(".")))


def specificity(pattern: str) -> tuple[int, int, int]:
    """Sorts more specific patterns higher: more literal segments, then fewer `**`, then more `*`."""
    segments = pattern.split(".")
    open_ended, single = segments.count(ANY), segments.count(ANY_ONE)
    return len(segments) - open_ended - single, -open_ended, single


@lru_cache(maxsize=4096)
def _match(pattern: tuple[str, ...], segments: tuple[str, ...]) -> bool:
    # Positions in the pattern reachable so far: backtracking over several ** would be exponential.
    reachable = _skip({0}, pattern)
    for segment in segments:
        onward = {at + 1 for at in reachable if at < len(pattern) and pattern[at] in (segment, ANY_ONE)}
        onward |= {at for at in reachable if at < len(pattern) and pattern[at] == ANY}
        reachable = _skip(onward, pattern)
    return len(pattern) in reachable


def _skip(places: set[int], pattern: tuple[str, ...]) -> set[int]:
    for at in sorted(places):
        while at < len(pattern) and pattern[at] == ANY:
            at += 1
            places.add(at)
    return places
