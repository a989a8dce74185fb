"""Import chat logs.

A file holds messages with `role` and `content`, as a JSON list, under `messages`, or one per line; or a list
of such conversations. Other fields of a message, such as tool calls, are ignored.

Each message becomes an entry with its thread, position, role and speaker. Its id is a digest of these and of
the content, so importing a chat log again writes only the messages that are new.
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
from omoide.stores.factory import map_file_errors
from omoide.stores.protocols import Store, SupportsBatchWrite
from omoide.verbs import require

_TIME_FIELDS = ("timestamp", "created_at")
_ID_FIELDS = ("id", "conversation_id", "thread_id")
_MAX_SECONDS = 100_000_000_000
"""Numbers below this are seconds since 1970, numbers above are milliseconds."""


class ChatMessage(NamedTuple):
    """One message of a chat log."""

    location: str
    """Position in the file, for error messages."""
    seq: int
    role: str
    speaker: str | None
    content: str
    at: int | None


class ChatLog(NamedTuple):
    """Messages of one thread, in order."""

    thread: str
    messages: tuple[ChatMessage, ...]
    left_out: int = 0


def is_chat(path: Path) -> bool:
    """Return True if a JSON Lines file holds messages, and not memories."""
    first = next((value for _, value in transfer.iter_jsonl(path)), None)
    return isinstance(first, list) or (isinstance(first, dict) and bool({"role", "messages"} & {*first}))


def read_chat_logs(path: Path, thread: str | None = None) -> list[ChatLog]:
    """Read the chat logs of a file.

    Args:
        path: the file.
        thread: name of the thread; by default the id in the file, or else the file's name.
    """
    name = ids.check(path.stem if thread is None else thread, "thread")
    parts = [*_split_chat_logs(path)]
    logs: dict[str, ChatLog] = {}
    for number, (location, data, locations) in enumerate(parts, 1):
        default = name if len(parts) == 1 else f"{name}#{number}"
        log = _parse_chat_log(data, default, location, locations, is_named=thread is not None)
        if log.thread in logs:
            problem = f"{log.thread!r} is that of another conversation"
            raise Invalid(f"{location}: id", problem, "give each its own")
        logs[log.thread] = log
    return [*logs.values()]


def _split_chat_logs(path: Path) -> Iterator[tuple[str, Any, list[str] | None]]:
    """Yield each chat log of a file as (location, JSON value, locations of its messages if they are lines).

    Messages that follow one another without a `messages` list are one chat log.
    """
    value, locations = _decode_file(path)
    if isinstance(value, dict):
        yield path.name, value, None
        return
    if not isinstance(value, list):
        raise WrongType(path.name, "a list of messages or of conversations", value)
    if any(_has_messages(item) for item in value):
        for index, item in enumerate(value):
            location = f"{path.name} conversation {index + 1}" if locations is None else locations[index]
            if not _has_messages(item):
                raise Invalid(location, "is no conversation, and others here are", "put it under `messages`")
            yield location, item, None
    elif value:
        yield path.name, value, locations


def _decode_file(path: Path) -> tuple[Any, list[str] | None]:
    """Decode a file as one JSON value, or as JSON Lines together with the location of each line."""
    with map_file_errors(str(path), "read"):
        data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        return msgspec.json.decode(data), None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        first, _, rest = data.strip().partition(b"\n")
        if not rest or not first.strip().endswith((b"}", b"]")):
            return transfer.decode_json(data, path.name), None
        rows = [*transfer.iter_jsonl(path)]
        return [value for _, value in rows], [location for location, _ in rows]


def _has_messages(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, dict) and "messages" in value)


def _parse_chat_log(
    value: Any, default_thread: str, location: str, locations: list[str] | None, *, is_named: bool
) -> ChatLog:
    messages, thread = value, default_thread
    if isinstance(value, dict):
        messages = value.get("messages", [value])
        thread = (
            default_thread
            if is_named or "messages" not in value
            else _thread_name(value, default_thread, location)
        )
    if not isinstance(messages, list):
        raise WrongType(f"{location}: messages", "a list", messages)
    parsed = []
    for seq, item in enumerate(messages):
        position = locations[seq] if locations is not None else f"{location} message {seq + 1}"
        parsed.append(_parse_message(item, seq, position))
    with_text = tuple(message for message in parsed if message.content.strip())
    return ChatLog(thread, with_text, len(parsed) - len(with_text))


def _thread_name(value: Mapping[str, Any], default: str, location: str) -> str:
    for field in _ID_FIELDS:
        id = value.get(field)
        if id is not None:
            text = str(id) if type(id) is int else id
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
    """Return the text of a content field; parts of a list that are not text, such as images, are skipped."""
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        raise WrongType(field, "text or a list of parts", value)
    texts = []
    for index, part in enumerate(value):
        text = part.get("text") if isinstance(part, dict) else part
        if text is not None and not isinstance(text, str):
            raise WrongType(f"{field}[{index}]", "text or an object with text", text)
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
            parsed = datetime.fromisoformat(value.strip())
            return clock.check(
                int((parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp() * 1000), field
            )
        number = float("nan" if isinstance(value, bool) else value)
        return clock.check(int(number if abs(number) >= _MAX_SECONDS else number * 1000), field)
    except (TypeError, ValueError, OverflowError) as error:
        raise Invalid(field, f"is {value!r}"[:200], remedy) from error


_SOURCES = {"user": "user", "human": "user", "assistant": "agent", "tool": "tool", "function": "tool"}


async def import_chat(
    store: Any,
    path: Path,
    scope: Scope,
    *,
    thread: str | None = None,
    progress: ProgressCallback | None = None,
) -> ImportReport:
    """Write the messages of a chat log as entries, all or none; messages that are stored already are skipped.

    Args:
        store: a store that writes many entries at once.
        path: the file.
        scope: owner of the entries; it must name an agent.
        thread: name of the thread; by default the id in the file, or else the file's name.
        progress: called before and after the write.

    Raises:
        Invalid: the file is malformed, or a thread has another message at the same position.
    """
    check_instance(scope, "scope", kind=Scope)
    scope.require_agent_id()
    require(store, Store, "list its memories")
    writer: SupportsBatchWrite = require(store, SupportsBatchWrite, "keep many memories at once")
    found = await run_in_thread(read_chat_logs, path, thread)
    messages = {entry.id: (message, entry) for log in found for message, entry in _to_entries(log, scope)}
    stored = [entry for entry in await store.list_entries(scope) if entry.scope == scope]
    stored_ids = {entry.id for entry in stored}
    _refuse_changed_messages(messages.values(), stored)
    new = [entry for id, (_, entry) in messages.items() if id not in stored_ids]
    report = progress or ignore_progress
    report("remembering", 0, len(new))
    await writer.write_many([WriteRequest(entry=entry, expected_rev=0) for entry in new])
    report("remembering", len(new), len(new))
    return ImportReport(len(messages), len(new), sum(log.left_out for log in found))


def _to_entries(chat: ChatLog, scope: Scope) -> Iterator[tuple[ChatMessage, Entry]]:
    owner = [scope.agent_id, scope.session_id, scope.project_id, scope.namespace]
    if scope.user_id is not None:  # ids of messages without a user stay as they were before there were users
        owner.append(scope.user_id)
    for message in chat.messages:
        identity = [chat.thread, message.seq, message.role, message.speaker, message.content]
        try:
            entry = Entry(
                id=transfer.content_id("msg_", [owner, identity]),
                agent_id=scope.require_agent_id(),
                session_id=scope.session_id,
                project_id=scope.project_id,
                user_id=scope.user_id,
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
    """Raise if a thread has another message at the position of one of these."""
    stored_ids = {
        (entry.message.thread, entry.message.seq): entry.id for entry in stored if entry.message is not None
    }
    for message, entry in messages:
        assert entry.message is not None
        stored_id = stored_ids.get((entry.message.thread, message.seq), entry.id)
        if stored_id != entry.id:
            problem = f"is not the one that thread {entry.message.thread!r} has there ({stored_id})"
            raise Invalid(message.location, problem, "name another thread")
