"""Functions on the thread of an agent.

`append` creates the thread if it is missing, reads never do.
"""

from __future__ import annotations

from collections.abc import Iterable

from omoide.core.agent import Agent
from omoide.core.state import THREAD
from omoide.core.thread import ThreadEntry, ThreadEntryLike

get = THREAD.get
of = THREAD.get_or_new
put = THREAD.put
update = THREAD.update
ensure = THREAD.ensure
has_thread = THREAD.has


def key() -> str:
    """Return the key of the state that holds the thread."""
    return THREAD.key


def append(
    agent: Agent,
    entries: ThreadEntryLike | Iterable[ThreadEntryLike],
    *,
    expected_rev: int | None = None,
    now: int | None = None,
) -> Agent:
    """Return the agent with one or more entries appended to its thread."""
    return put(agent, THREAD.get_or_new(agent).append(entries, expected_rev=expected_rev, now=now))


def entries(agent: Agent) -> list[ThreadEntry]:
    """Return all entries, oldest first."""
    thread = get(agent)
    return [] if thread is None else [*thread.entries]


def get_entry(agent: Agent, seq: int) -> ThreadEntry | None:
    """Return the entry at a position, or None."""
    thread = get(agent)
    return None if thread is None else thread.get_entry(seq)


def last(agent: Agent) -> ThreadEntry | None:
    """Return the newest entry, or None."""
    thread = get(agent)
    return None if thread is None else thread.last()


def slice(agent: Agent, first: int, last: int) -> list[ThreadEntry]:
    """Return the entries from `first` to `last`, both included."""
    thread = get(agent)
    return [] if thread is None else thread.slice(first, last)


def filter_by_kind(agent: Agent, kinds: str | Iterable[str]) -> list[ThreadEntry]:
    """Return the entries of one kind, or of several."""
    thread = get(agent)
    return [] if thread is None else thread.filter_by_kind(kinds)


__all__ = [
    "append",
    "ensure",
    "entries",
    "filter_by_kind",
    "get",
    "get_entry",
    "has_thread",
    "key",
    "last",
    "of",
    "put",
    "slice",
    "update",
]
