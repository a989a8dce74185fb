"""How does a conversation that another program kept become memory?

Each message becomes an entry that knows its place, its role and its speaker, and whose id follows from what
it says and where: the same conversation is remembered once, and one that went on only where it went on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from omoide.core.entry import Entry, MessageRef
from omoide.core.scope import Scope
from omoide.core.value import check_instance
from omoide.core.writing import WriteRequest
from omoide.errors import Invalid
from omoide.service import lines
from omoide.service.chats import Conversation, Message, conversations
from omoide.service.holdings import Progress, quiet
from omoide.service.lines import Imported
from omoide.stores.local import hop
from omoide.stores.protocols import Store, WritesMany
from omoide.verbs import offering

_SOURCES = {"user": "user", "human": "user", "assistant": "agent", "tool": "tool", "function": "tool"}


async def read(
    store: Any,
    path: Path,
    scope: Scope,
    *,
    thread: str | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Remember what a file of conversations says, all of it or nothing; what is known already is passed over.

    A conversation is called what `thread` says, or else what the file says, or else like the file.
    """
    check_instance(scope, "scope", kind=Scope)
    scope.owner()
    offering(store, Store, "list its memories")
    able: WritesMany = offering(store, WritesMany, "keep many memories at once")
    found = await hop(conversations, path, thread)
    given = {entry.id: (message, entry) for one in found for message, entry in _entries(one, scope)}
    kept = [entry for entry in await store.list_entries(scope) if entry.scope == scope]
    known = {entry.id for entry in kept}
    _refuse_others(given.values(), kept)
    new = [entry for id, (_, entry) in given.items() if id not in known]
    told = progress or quiet
    told("remembering", 0, len(new))
    await able.write_many([WriteRequest(entry=entry, expected_rev=0) for entry in new])
    told("remembering", len(new), len(new))
    return Imported(len(given), len(new), sum(one.left_out for one in found))


def _entries(one: Conversation, scope: Scope) -> Iterator[tuple[Message, Entry]]:
    whose = [getattr(scope, name) for name in Scope.__struct_fields__]
    for message in one.messages:
        said = [one.thread, message.seq, message.role, message.speaker, message.content]
        try:
            entry = Entry(
                id=lines.digest("msg_", [whose, said]),
                agent_id=scope.owner(),
                session_id=scope.session_id,
                project_id=scope.project_id,
                namespace=scope.namespace,
                content=message.content,
                source=_SOURCES.get(message.role),
                occurred_at=message.at,
                message=MessageRef(
                    thread=one.thread, seq=message.seq, role=message.role, speaker=message.speaker
                ),
            )
        except Invalid as error:
            raise lines.under(message.place, error) from error
        yield message, entry


def _refuse_others(given: Iterable[tuple[Message, Entry]], kept: Iterable[Entry]) -> None:
    """Raise where a thread has something else in the place of a message."""
    places = {
        (entry.message.thread, entry.message.seq): entry.id for entry in kept if entry.message is not None
    }
    for message, entry in given:
        assert entry.message is not None
        there = places.get((entry.message.thread, message.seq), entry.id)
        if there != entry.id:
            problem = f"is not the one that thread {entry.message.thread!r} has there ({there})"
            raise Invalid(message.place, problem, "name another thread")
