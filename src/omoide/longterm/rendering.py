"""How are memories and what they rest on shown to people?"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from omoide.core.entry import Entry

LONGEST = 160
"""How many characters of a text are shown."""

Branch = tuple[str, "Sequence[Branch]"]
"""A line, and the branches below it."""


def tree(root: Branch) -> str:
    """A branch with everything below it, as lines with their stems."""
    lines: list[str] = []
    left: list[tuple[Branch, str, str]] = [(root, "", "")]
    while left:
        (line, below), stem, indent = left.pop()
        lines.append(stem + plain(line))
        shown = [
            (branch, f"{indent}└── ", f"{indent}    ")
            if at == len(below) - 1
            else (branch, f"{indent}├── ", f"{indent}│   ")
            for at, branch in enumerate(below)
        ]
        left += reversed(shown)
    return "\n".join(lines)


def memory(entry: Entry) -> str:
    """A memory in one line."""
    marks = [entry.type or "memory", entry.id, f"confidence {entry.confidence:g}", moment(entry.created_at)]
    if entry.source is not None:
        marks.insert(2, f"from {entry.source}")
    if entry.superseded_by is not None:
        marks.append("superseded")
    if entry.stale:
        marks.append("stale")
    return f"{quoted(entry.content)} ({', '.join(marks)})"


def line(said: str, entry: Entry | None, reason: str | None, at: int | None) -> str:
    """What happened to which memory, why and when, as far as it is known."""
    words = "" if entry is None else f" {quoted(entry.content)}"
    marks = ", ".join(part for part in (reason, None if at is None else moment(at)) if part)
    return f"{said}{words}" + (f" ({marks})" if marks else "")


def plain(text: str) -> str:
    """A text in which what would begin another line or steer a terminal is spelled out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def quoted(text: str) -> str:
    """A text in one line and in quotes, cut where it is long."""
    words = " ".join(text.split())
    return f"“{words if len(words) <= LONGEST else words[: LONGEST - 1] + '…'}”"


def moment(at: int) -> str:
    """A moment as people write it, in UTC."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M")
