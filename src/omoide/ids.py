"""Id generation and validation.

An id is a prefix and a UUID of version 7, so ids sort by time. `override` replaces the source for a block of
code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from omoide import clock
from omoide.errors import Invalid

MAX_BYTES = 512

IdSource = Callable[[str], str]

_source: ContextVar[IdSource | None] = ContextVar("omoide_ids", default=None)


def uuid7() -> str:
    """Return a UUID of version 7 (RFC 9562) as 32 hexadecimal digits."""
    # 48 bits of time, 4 of version, 12 random, 2 of variant, 62 random. Of the 80 random bits drawn, six are
    # left unused. Within a millisecond the order is random.
    random = int.from_bytes(os.urandom(10), "big")
    rand_a, rand_b = random >> 68, random & ((1 << 62) - 1)
    return f"{(clock.now() & ((1 << 48) - 1)) << 80 | 7 << 76 | rand_a << 64 | 2 << 62 | rand_b:032x}"


def new(prefix: str) -> str:
    """Return a new id such as `mem_0192…`."""
    source = _source.get()
    return prefix + uuid7() if source is None else check(source(prefix), "generated id")


def check(value: object, field: str = "id") -> str:
    """Return an id, or raise `Invalid` unless it is 1 to 512 bytes of text without control characters."""
    if not isinstance(value, str) or not value:
        raise Invalid(field, f"must be a non-empty string, not {value!r}", "pass one")
    if has_control_characters(value):
        raise Invalid(field, "contains a control character", "use printable text")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise Invalid(field, "contains a lone surrogate", "pass valid Unicode text") from None
    if size > MAX_BYTES:
        raise Invalid(field, f"has {size} bytes", f"use at most {MAX_BYTES}")
    return str.__str__(value)  # a subclass of str, such as an enum, becomes plain text


def has_control_characters(text: str) -> bool:
    """Return True if text contains a control character."""
    # C0, DEL and C1. `isprintable` is fast and rules out most texts, but is False for some spaces, too.
    return not text.isprintable() and any(ord(c) < 32 or 127 <= ord(c) < 160 for c in text)


@contextmanager
def override(source: IdSource) -> Iterator[IdSource]:
    """Take ids from `source(prefix)` inside the block, in this thread and task only."""
    token = _source.set(source)
    try:
        yield source
    finally:
        _source.reset(token)
