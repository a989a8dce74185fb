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
from omoide.core.entry import Entry, MessageRef, Scope, WriteRequest
from omoide.core.value import check_instance
from omoide.errors import Invalid, WrongType
from omoide.service import transfer
from omoide.service.transfer import ImportReport, ProgressCallback, ignore_progress
from omoide.stores.async_store import run_in_thread
from omoide.stores.protocols import Store, SupportsBatchWrite
from omoide.stores.url import map_file_errors
from omoide.verbs import require

# chats: What was said in conversations that another program kept?


_TIME_FIELDS = ("timestamp", "created_at")
_ID_FIELDS = ("id", "conversation_id", "thread_id")
_MAX_SECONDS = 100_000_000_000
"""A number below this counts seconds since 1970, one above milliseconds."""


class ChatMessage(NamedTuple):
    """Something that was said."""

    location: str
    """Where in the file it stands, for people."""
    seq: int
    role: str
    speaker: str | None
    content: str
    at: int | None


class ChatLog(NamedTuple):
    """Messages in their order, and what their thread is called."""

    thread: str
    messages: tuple[ChatMessage, ...]
    left_out: int = 0


def is_chat(path: Path) -> bool:
    """Whether a file with an object a line holds messages, and no memories."""
    first = next((value for _, value in transfer.iter_jsonl(path)), None)
    return isinstance(first, list) or (isinstance(first, dict) and bool({"role", "messages"} & {*first}))


def read_chat_logs(path: Path, thread: str | None = None) -> list[ChatLog]:
    """The conversations of a file."""
    name = ids.check(path.stem if thread is None else thread, "thread")
    given = [*_split_chat_logs(path)]
    found: dict[str, ChatLog] = {}
    for number, (place, value, places) in enumerate(given, 1):
        usual = name if len(given) == 1 else f"{name}#{number}"
        one = _parse_chat_log(value, usual, place, places, is_named=thread is not None)
        if one.thread in found:
            told = f"{one.thread!r} is that of another conversation"
            raise Invalid(f"{place}: id", told, "give each its own")
        found[one.thread] = one
    return [*found.values()]


def _split_chat_logs(path: Path) -> Iterator[tuple[str, Any, list[str] | None]]:
    """The conversations of a file, each with its place, and with those of its messages where they have some.

    Messages that stand in a row are one conversation.
    """
    value, places = _decode_file(path)
    if isinstance(value, dict):
        yield path.name, value, None
        return
    if not isinstance(value, list):
        raise WrongType(path.name, "a list of messages or of conversations", value)
    if any(_has_messages(item) for item in value):
        for at, item in enumerate(value):
            place = f"{path.name} conversation {at + 1}" if places is None else places[at]
            if not _has_messages(item):
                raise Invalid(place, "is no conversation, and others here are", "put it under `messages`")
            yield place, item, None
    elif value:
        yield path.name, value, places


def _decode_file(path: Path) -> tuple[Any, list[str] | None]:
    """What a file says: one JSON value, or else one a line, and then the names of the lines."""
    with map_file_errors(str(path), "read"):
        data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        return msgspec.json.decode(data), None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        first, _, rest = data.strip().partition(b"\n")
        if not rest or not first.strip().endswith((b"}", b"]")):
            return transfer.decode_json(data, path.name), None
        rows = [*transfer.iter_jsonl(path)]
        return [value for _, value in rows], [place for place, _ in rows]


def _has_messages(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, dict) and "messages" in value)


def _parse_chat_log(
    value: Any, default_thread: str, location: str, locations: list[str] | None, *, is_named: bool
) -> ChatLog:
    said, thread = value, default_thread
    if isinstance(value, dict):
        said = value.get("messages", [value])
        thread = (
            default_thread
            if is_named or "messages" not in value
            else _thread_name(value, default_thread, location)
        )
    if not isinstance(said, list):
        raise WrongType(f"{location}: messages", "a list", said)
    found = []
    for seq, item in enumerate(said):
        where = locations[seq] if locations is not None else f"{location} message {seq + 1}"
        found.append(_parse_message(item, seq, where))
    kept = tuple(one for one in found if one.content.strip())
    return ChatLog(thread, kept, len(found) - len(kept))


def _thread_name(value: Mapping[str, Any], default: str, location: str) -> str:
    for field in _ID_FIELDS:
        given = value.get(field)
        if given is not None:
            text = str(given) if type(given) is int else given
            return ids.check(text, f"{location}: {field}")
    return default


def _parse_message(value: Any, seq: int, location: str) -> ChatMessage:
    if not isinstance(value, dict):
        raise WrongType(location, "an object with role and content", value)
    role, speaker = value.get("role"), value.get("name")
    if not isinstance(role, str) or not role.strip():
        problem = "is missing" if role is None else f"is {role!r}"[:200]
        raise Invalid(f"{location}: role", problem, "say who speaks: user, assistant, …")
    if speaker is not None and not isinstance(speaker, str):
        raise WrongType(f"{location}: name", "text", speaker)
    if "content" not in value:
        raise Invalid(f"{location}: content", "is missing", "add what was said; null where nothing was")
    content = _message_text(value["content"], f"{location}: content")
    return ChatMessage(location, seq, role, speaker or None, content, _parse_time(value, location))


def _message_text(value: Any, field: str) -> str:
    """What was said: a text, or the texts among the parts of it; pictures and the like say nothing here."""
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        raise WrongType(field, "text or a list of parts", value)
    texts = []
    for at, part in enumerate(value):
        text = part.get("text") if isinstance(part, dict) else part
        if text is not None and not isinstance(text, str):
            raise WrongType(f"{field}[{at}]", "text or an object with text", text)
        texts.append(text or "")
    return "\n".join(text for text in texts if text)


def _parse_time(fields: Mapping[str, Any], location: str) -> int | None:
    name = next((name for name in _TIME_FIELDS if fields.get(name) is not None), None)
    if name is None:
        return None
    value, field = fields[name], f"{location}: {name}"
    remedy = "write a time like 2026-05-08T13:56:00Z, or seconds or milliseconds since 1970"
    try:
        if isinstance(value, str) and not value.strip().replace(".", "", 1).isdecimal():
            read = datetime.fromisoformat(value.strip())
            return clock.check(
                int((read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp() * 1000), field
            )
        number = float("nan" if isinstance(value, bool) else value)
        return clock.check(int(number if abs(number) >= _MAX_SECONDS else number * 1000), field)
    except (TypeError, ValueError, OverflowError) as error:
        raise Invalid(field, f"is {value!r}"[:200], remedy) from error


# hearing: How does a conversation that another program kept become memory?


_SOURCES = {"user": "user", "human": "user", "assistant": "agent", "tool": "tool", "function": "tool"}


async def import_chat(
    store: Any,
    path: Path,
    scope: Scope,
    *,
    thread: str | None = None,
    progress: ProgressCallback | None = None,
) -> ImportReport:
    """Remember what a file of conversations says, all of it or nothing; what is known already is passed over.

    A conversation is called what `thread` says, or else what the file says, or else like the file.
    """
    check_instance(scope, "scope", kind=Scope)
    scope.require_agent_id()
    require(store, Store, "list its memories")
    able: SupportsBatchWrite = require(store, SupportsBatchWrite, "keep many memories at once")
    found = await run_in_thread(read_chat_logs, path, thread)
    given = {entry.id: (message, entry) for one in found for message, entry in _to_entries(one, scope)}
    kept = [entry for entry in await store.list_entries(scope) if entry.scope == scope]
    known = {entry.id for entry in kept}
    _refuse_changed_messages(given.values(), kept)
    new = [entry for id, (_, entry) in given.items() if id not in known]
    told = progress or ignore_progress
    told("remembering", 0, len(new))
    await able.write_many([WriteRequest(entry=entry, expected_rev=0) for entry in new])
    told("remembering", len(new), len(new))
    return ImportReport(len(given), len(new), sum(one.left_out for one in found))


def _to_entries(chat: ChatLog, scope: Scope) -> Iterator[tuple[ChatMessage, Entry]]:
    whose = [getattr(scope, name) for name in Scope.__struct_fields__]
    for message in chat.messages:
        said = [chat.thread, message.seq, message.role, message.speaker, message.content]
        try:
            entry = Entry(
                id=transfer.content_id("msg_", [whose, said]),
                agent_id=scope.require_agent_id(),
                session_id=scope.session_id,
                project_id=scope.project_id,
                namespace=scope.namespace,
                content=message.content,
                source=_SOURCES.get(message.role),
                occurred_at=message.at,
                message=MessageRef(
                    thread=chat.thread, seq=message.seq, role=message.role, speaker=message.speaker
                ),
            )
        except Invalid as error:
            raise transfer.error_at(message.location, error) from error
        yield message, entry


def _refuse_changed_messages(messages: Iterable[tuple[ChatMessage, Entry]], stored: Iterable[Entry]) -> None:
    """Raise where a thread has something else in the place of a message."""
    places = {
        (entry.message.thread, entry.message.seq): entry.id for entry in stored if entry.message is not None
    }
    for message, entry in messages:
        assert entry.message is not None
        there = places.get((entry.message.thread, message.seq), entry.id)
        if there != entry.id:
            problem = f"is not the one that thread {entry.message.thread!r} has there ({there})"
            raise Invalid(message.location, problem, "name another thread")
