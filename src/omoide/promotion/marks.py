"""What was promoted already?

Each key of the working context leaves a mark when its value is promoted. An unchanged value is known by it;
a changed one finds the memory that it supersedes.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from omoide.core import codec
from omoide.core.entry import Entry
from omoide.core.value import Id, Millis, Name, Value


class Mark(Value, frozen=True, kw_only=True):
    """The memory that a key of the working context has become."""

    key: Name
    id: Id
    digest: Name
    """What the value was."""


class Promoted(Value, frozen=True, kw_only=True):
    """One memory that a run made."""

    id: Id
    item: Id
    """What it was called while it waited; the same, unless it turned out to be known already."""
    key: Name | None = None
    """The key of the working context that it was."""
    digest: str | None = None
    """What the value under that key was."""
    supersedes: Id | None = None
    before: Mark | None = None
    """The mark that stood there until then."""
    print: str = ""
    """What tells whether somebody rewrote it since."""
    made: bool = True
    """Whether it is new: what was there already is not taken back with the run."""


class Failure(Value, frozen=True, kw_only=True):
    """One item that could not be kept; it stays where it was."""

    id: Id
    kind: Name
    problem: str


class Run(Value, frozen=True, kw_only=True):
    """One promotion: what it made, and what it could not make."""

    id: Id
    at: Millis
    trigger: Name
    promoted: tuple[Promoted, ...] = ()
    failed: tuple[Failure, ...] = ()
    undone_at: Millis | None = None


def digest(value: Any) -> str:
    """What tells one value of the working context from another."""
    return sha256(codec.encode({"value": value})).hexdigest()


def print_of(entry: Entry) -> str:
    """What a memory says, as one word; being superseded and restored does not change it."""
    said = entry.replace(superseded_by=None, superseded_at=None, superseded_reason=None, stale=False, rev=0)
    return sha256(said.to_json()).hexdigest()


def context_id(session_id: str, key: str, value: Any, before: Mark | None) -> str:
    """The id of the memory that a value becomes: the same, however often its promotion is tried.

    It depends on the memory before it, so that a value which comes back is a new memory.
    """
    return identity(session_id, key, digest(value), before)


def identity(session_id: str, key: str, digest: str, before: Mark | None) -> str:
    """The same, of a value that is known by its digest."""
    parts = (session_id, key, digest, "" if before is None else before.id)
    return "mem_" + sha256("\0".join(parts).encode()).hexdigest()[:32]
