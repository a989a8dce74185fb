"""Which transcripts may still hold what was erased?"""

from __future__ import annotations

from collections.abc import Iterable

from omoide.core.entry import Entry

KIND = "thread"
"""The kind of the documents that transcripts are kept in, each under the id of its thread."""


def threads(entry: Entry) -> list[str]:
    """The threads that an entry was said in, or that its evidence points into."""
    said = [] if entry.message is None else [entry.message.thread]
    return said + [_thread(one.ref) for one in entry.evidence if one.kind == "message"]


def _thread(ref: str) -> str:
    """The thread of a reference, which may end in a position: `thread:7`."""
    thread, _, place = ref.rpartition(":")
    return thread if thread and place.isdecimal() else ref


def named(versions: Iterable[Entry], documents: Iterable[tuple[str, str]]) -> list[str]:
    """The transcripts of erased entries, in words, but for the documents (kind, id) that went with them."""
    gone = {*documents}
    found = dict.fromkeys(thread for entry in versions for thread in threads(entry))
    return [f"transcript {thread}" for thread in found if (KIND, thread) not in gone]
