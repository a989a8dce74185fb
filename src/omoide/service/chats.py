"""Import of chat logs.

A file holds messages with `role` and `content`, as a JSON list, under `messages`, or one a line; or a list of
such conversations. What is known about a message besides, such as calls of tools, is passed over.

Each message becomes an entry that knows its place, its role and its speaker, and whose id follows from what
it says and where: the same conversation is remembered once, and one that went on only where it went on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from omoide import clock, ids
from omoide.core.entry import Entry, MessageRef, Scope
from omoide.core.requests import WriteRequest
from omoide.core.value import check_instance
from omoide.errors import Invalid, WrongType
from omoide.service import transfer
from omoide.service.transfer import Imported, Progress, quiet
from omoide.stores.async_store import hop
from omoide.stores.protocols import Store, WritesMany
from omoide.stores.url import failing
from omoide.verbs import offering

# chats: What was said in conversations that another program kept?


_TIMES = ("timestamp", "created_at")
_NAMES = ("id", "conversation_id", "thread_id")
_SECONDS = 100_000_000_000
"""A number below this counts seconds since 1970, one above milliseconds."""


class Message(NamedTuple):
    """Something that was said."""

    place: str
    """Where in the file it stands, for people."""
    seq: int
    role: str
    speaker: str | None
    content: str
    at: int | None


class Conversation(NamedTuple):
    """Messages in their order, and what their thread is called."""

    thread: str
    messages: tuple[Message, ...]
    left_out: int = 0


def is_chat(path: Path) -> bool:
    """Whether a file with an object a line holds messages, and no memories."""
    first = next((value for _, value in transfer.each(path)), None)
    return isinstance(first, list) or (isinstance(first, dict) and bool({"role", "messages"} & {*first}))


def conversations(path: Path, thread: str | None = None) -> list[Conversation]:
    """The conversations of a file."""
    name = ids.check(path.stem if thread is None else thread, "thread")
    given = [*_given(path)]
    found: dict[str, Conversation] = {}
    for number, (place, value, places) in enumerate(given, 1):
        usual = name if len(given) == 1 else f"{name}#{number}"
        one = _conversation(value, usual, place, places, named=thread is not None)
        if one.thread in found:
            told = f"{one.thread!r} is that of another conversation"
            raise Invalid(f"{place}: id", told, "give each its own")
        found[one.thread] = one
    return [*found.values()]


def _given(path: Path) -> Iterator[tuple[str, Any, list[str] | None]]:
    """The conversations of a file, each with its place, and with those of its messages where they have some.

    Messages that stand in a row are one conversation.
    """
    value, places = _value(path)
    if isinstance(value, dict):
        yield path.name, value, None
        return
    if not isinstance(value, list):
        raise WrongType(path.name, "a list of messages or of conversations", value)
    if any(_holds_messages(item) for item in value):
        for at, item in enumerate(value):
            place = f"{path.name} conversation {at + 1}" if places is None else places[at]
            if not _holds_messages(item):
                raise Invalid(place, "is no conversation, and others here are", "put it under `messages`")
            yield place, item, None
    elif value:
        yield path.name, value, places


def _value(path: Path) -> tuple[Any, list[str] | None]:
    """What a file says: one JSON value, or else one a line, and then the names of the lines."""
    with failing(str(path), "read"):
        data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        return msgspec.json.decode(data), None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        first, _, rest = data.strip().partition(b"\n")
        if not rest or not first.strip().endswith((b"}", b"]")):
            return transfer.decoded(data, path.name), None
        rows = [*transfer.each(path)]
        return [value for _, value in rows], [place for place, _ in rows]


def _holds_messages(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, dict) and "messages" in value)


def _conversation(
    value: Any, usual: str, place: str, places: list[str] | None, *, named: bool
) -> Conversation:
    said, thread = value, usual
    if isinstance(value, dict):
        said = value.get("messages", [value])
        thread = usual if named or "messages" not in value else _thread(value, usual, place)
    if not isinstance(said, list):
        raise WrongType(f"{place}: messages", "a list", said)
    found = []
    for seq, item in enumerate(said):
        where = places[seq] if places is not None else f"{place} message {seq + 1}"
        found.append(_message(item, seq, where))
    kept = tuple(one for one in found if one.content.strip())
    return Conversation(thread, kept, len(found) - len(kept))


def _thread(value: Mapping[str, Any], usual: str, place: str) -> str:
    for field in _NAMES:
        given = value.get(field)
        if given is not None:
            text = str(given) if type(given) is int else given
            return ids.check(text, f"{place}: {field}")
    return usual


def _message(given: Any, seq: int, place: str) -> Message:
    if not isinstance(given, dict):
        raise WrongType(place, "an object with role and content", given)
    role, speaker = given.get("role"), given.get("name")
    if not isinstance(role, str) or not role.strip():
        problem = "is missing" if role is None else f"is {role!r}"[:200]
        raise Invalid(f"{place}: role", problem, "say who speaks: user, assistant, …")
    if speaker is not None and not isinstance(speaker, str):
        raise WrongType(f"{place}: name", "text", speaker)
    if "content" not in given:
        raise Invalid(f"{place}: content", "is missing", "add what was said; null where nothing was")
    content = _text(given["content"], f"{place}: content")
    return Message(place, seq, role, speaker or None, content, _moment(given, place))


def _text(given: Any, field: str) -> str:
    """What was said: a text, or the texts among the parts of it; pictures and the like say nothing here."""
    if given is None or isinstance(given, str):
        return given or ""
    if not isinstance(given, list):
        raise WrongType(field, "text or a list of parts", given)
    texts = []
    for at, part in enumerate(given):
        text = part.get("text") if isinstance(part, dict) else part
        if text is not None and not isinstance(text, str):
            raise WrongType(f"{field}[{at}]", "text or an object with text", text)
        texts.append(text or "")
    return "\n".join(text for text in texts if text)


def _moment(given: Mapping[str, Any], place: str) -> int | None:
    name = next((name for name in _TIMES if given.get(name) is not None), None)
    if name is None:
        return None
    value, field = given[name], f"{place}: {name}"
    remedy = "write a time like 2026-05-08T13:56:00Z, or seconds or milliseconds since 1970"
    try:
        if isinstance(value, str) and not value.strip().replace(".", "", 1).isdecimal():
            read = datetime.fromisoformat(value.strip())
            return clock.check(
                int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp() * 1000), field
            )
        number = float("nan" if isinstance(value, bool) else value)
        return clock.check(int(number if abs(number) >= _SECONDS else number * 1000), field)
    except (TypeError, ValueError, OverflowError) as error:
        raise Invalid(field, f"is {value!r}"[:200], remedy) from error


# hearing: How does a conversation that another program kept become memory?


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
                id=transfer.digest("msg_", [whose, said]),
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
            raise transfer.under(message.place, error) from error
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
