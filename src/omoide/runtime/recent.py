"""Was this signal here before?

`source` and `id` are unique together, so a short digest of both stands for a signal. The last so many are
remembered, and older ones forgotten: a signal that comes again later than that counts as new.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Iterable
from hashlib import blake2b

from omoide.core.signal import Signal

DIGEST_BYTES = 16


def mark(signal: Signal, *about: str) -> str:
    """A short text that stands for a signal, and for what else makes it another one.

    Neither a source nor an id holds a control character, so the parts cannot run into each other.
    """
    parts = "\0".join((*about, signal.source, signal.id))
    return urlsafe_b64encode(blake2b(parts.encode(), digest_size=DIGEST_BYTES).digest()).decode().rstrip("=")


class Recent:
    """The marks of the last signals, oldest first."""

    __slots__ = ("_marks", "size")

    def __init__(self, size: int, marks: Iterable[str] = ()) -> None:
        self.size = size
        self._marks = dict.fromkeys(marks)

    def __contains__(self, one: str) -> bool:
        return one in self._marks

    def __len__(self) -> int:
        return len(self._marks)

    def add(self, one: str) -> None:
        """Remember a mark, and forget the oldest where there are too many."""
        self._marks.pop(one, None)
        self._marks[one] = None
        while len(self._marks) > self.size:
            del self._marks[next(iter(self._marks))]

    def marks(self) -> tuple[str, ...]:
        """All of them, oldest first."""
        return tuple(self._marks)
