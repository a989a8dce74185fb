"""When does somebody mean?

Moments are written as ISO dates or times (`2026-05-08`, `2026-05-08T13:56`; UTC unless a zone is given), or
as durations from now (`7d`, `12h`, `1w2d`).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from omoide import clock
from omoide.errors import Invalid

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PART = re.compile(r"(\d{1,9})([smhdw])")
_DURATION = re.compile(r"(?:\d{1,9}[smhdw])+")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_REMEDY = "write a date like 2026-05-08, a time like 2026-05-08T13:56, or a duration like 7d, 12h or 30m"


def after(text: str, now: int, field: str) -> int:
    """A moment in milliseconds; a duration counts forward from now."""
    return _at(text, now, 1, field)


def before(text: str, now: int, field: str) -> int:
    """A moment in milliseconds; a duration counts back from now."""
    return _at(text, now, -1, field)


def until(text: str, now: int, field: str) -> int:
    """Like `before`, but a day is meant to its end."""
    start = _at(text, now, -1, field)
    return start + 86_400_000 - 1 if _DAY.fullmatch(text.strip()) else start


def _at(text: str, now: int, sign: int, field: str) -> int:
    given = text.strip()
    if _DURATION.fullmatch(given):
        seconds = sum(int(count) * _UNITS[unit] for count, unit in _PART.findall(given))
        found = now + sign * seconds * 1000
    else:
        try:
            read = datetime.fromisoformat(given)
        except ValueError:
            raise Invalid(field, f"is {text!r}", _REMEDY) from None
        found = int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp() * 1000)
    if found < 0:
        raise Invalid(field, f"is {text!r}, before 1970", _REMEDY)
    if found > clock.LATEST:
        raise Invalid(field, f"is {text!r}, after the year 9999", _REMEDY)
    return found


def shown(at: int | None) -> str:
    """A moment as people read it."""
    if at is None:
        return ""
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)).strftime("%Y-%m-%d %H:%M:%SZ")
    except OverflowError:
        return str(at)
