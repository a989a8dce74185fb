"""Events, thread entries and the journal of a turn.

Events report what a turn does, with ids and figures and never with content. The one exception is `text`, a
piece of an answer, which is streamed and not recorded.

Every message, tool call and result is one entry of the thread, with the id of its request. A turn is part of
the conversation once its final reply is there.

The journal lists every effect of a turn: the recall, the replies of the model, the results of tools. A replay
takes the results from there and calls nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from omoide import clock
from omoide.core import codec
from omoide.core.codec import Frozen, MapField
from omoide.core.entry import RecallResult
from omoide.core.frozen import EMPTY_MAP, FrozenList, thaw
from omoide.core.thread import ThreadEntry
from omoide.core.value import Id, Millis, Name, Value, check_choice, check_tuple, set_field
from omoide.errors import Invalid
from omoide.turns.model import Reply
from omoide.turns.prompt import Exchange, Message, ToolCall, Usage

EVENT_KINDS = (
    "turn_started",
    "resumed",
    "control_applied",
    "memory_recalled",
    "context_compacted",
    "prompt_assembled",
    "model_called",
    "model_retried",
    "model_replied",
    "answer_repaired",
    "tool_started",
    "tool_finished",
    "tool_failed",
    "review_requested",
    "hibernated",
    "turn_finished",
    "memory_written",
    "memory_not_written",
    "memories_extracted",
    "memories_not_extracted",
    "text",
)


class Event(Value, frozen=True, kw_only=True):
    """One event of a turn."""

    kind: str
    at: Millis = msgspec.field(default_factory=clock.now)
    data: MapField = EMPTY_MAP

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.kind, "kind", EVENT_KINDS)

    def __str__(self) -> str:
        return " ".join([self.kind, *(f"{key}={_format_value(self.data[key])}" for key in sorted(self.data))])


def _format_value(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, FrozenList) else str(value)


EventListener = Callable[[Event], Awaitable[Any] | Any]
"""A function that receives each event as it happens; it may be async."""


class EventEmitter:
    """Records the events of one turn and passes them to a listener."""

    def __init__(self, listener: EventListener | None = None) -> None:
        self.log: list[Event] = []
        self._listener = listener

    async def emit(self, kind: str, **data: Any) -> None:
        """Record an event and pass it on; an exception of the listener ends the turn."""
        event = Event(kind=kind, data={key: value for key, value in data.items() if value is not None})
        # Text is content, and the log has only ids and figures.
        if kind != "text":
            self.log.append(event)
        if self._listener is not None:
            pending = self._listener(event)
            if isinstance(pending, Awaitable):
                await pending


EntryFields = dict[str, Any]


def user_entry(request_id: str, content: str) -> EntryFields:
    """Return the entry of the user's input."""
    return _entry("message", request_id, role="user", content=content)


def assistant_entry(request_id: str, round: int, reply: Reply, *, final: bool) -> EntryFields:
    """Return the entry of a reply; the final one ends the turn."""
    calls = [codec.to_builtins(call) for call in reply.calls]
    return _entry(
        "message",
        request_id,
        role="assistant",
        content=reply.content,
        round=round,
        **({"final": True} if final else {"calls": calls}),
        usage=codec.to_builtins(reply.usage),
        model=reply.model,
    )


def message_entry(role: str, content: str, metadata: Mapping[str, Any]) -> EntryFields:
    """Return the entry of a message outside of turns: prompts do not show it, short-term memory reads it."""
    return {"kind": "message", "payload": {**metadata, "role": role, "content": content}}


def tool_call_entry(request_id: str, call: ToolCall) -> EntryFields:
    """Return the entry of a tool call that is about to run."""
    return _entry("tool_call", request_id, call_id=call.id, name=call.name, params=call.params)


def tool_result_entry(request_id: str, call: ToolCall, ok: bool, content: str) -> EntryFields:
    """Return the entry of a tool result."""
    status = "ok" if ok else "error"
    return _entry("tool_result", request_id, call_id=call.id, name=call.name, status=status, content=content)


def error_entry(request_id: str, error: str, problem: str) -> EntryFields:
    """Return the entry of an error; the turn may still be resumed."""
    return _entry("error", request_id, error=error, problem=problem)


def resumed_entry(request_id: str) -> EntryFields:
    """Return the entry that marks a resumed turn."""
    return _entry("note", request_id, resumed=True)


def abandoned_entry(request_id: str, reason: str) -> EntryFields:
    """Return the entry that marks a turn as abandoned, and so no part of the conversation."""
    # `given_up` is the name in stored threads; it cannot change.
    return _entry("error", request_id, given_up=True, problem=reason)


def _entry(kind: str, request_id: str, **payload: Any) -> EntryFields:
    fields = {key: value for key, value in payload.items() if value is not None}
    return {"kind": kind, "payload": {"request_id": request_id, **fields}}


class ToolResult(msgspec.Struct, frozen=True):
    """The result of a tool call, and whether it succeeded."""

    call: ToolCall
    ok: bool
    content: str


class TurnProgress(msgspec.Struct):
    """The state of a turn, computed from its thread entries."""

    # msgspec copies the empty dicts for each instance.
    user: ThreadEntry | None = None
    replies: dict[int, Reply] = {}
    started_calls: dict[str, ToolCall] = {}
    attempts: dict[str, int] = {}
    results: dict[str, ToolResult] = {}
    final_reply: Reply | None = None
    final_seq: int | None = None
    abandoned: bool = False
    rounds: int = 0

    @property
    def usage(self) -> Usage:
        """The token usage of all replies."""
        replies = [*self.replies.values(), *([] if self.final_reply is None else [self.final_reply])]
        return sum((reply.usage for reply in replies), Usage())

    def add(self, entry: ThreadEntry) -> None:
        """Add the next entry; entries that actions wrote in another form are ignored."""
        with suppress(KeyError, TypeError, Invalid):
            self._add(entry)

    def _add(self, entry: ThreadEntry) -> None:
        payload = entry.payload
        match entry.kind, payload.get("role"):
            case "message", "user":
                self.user = entry
            case "message", "assistant":
                reply = _decode_reply(payload)
                self.rounds = payload["round"] + 1
                if payload.get("final"):
                    self.final_reply, self.final_seq = reply, entry.seq
                else:
                    self.replies[payload["round"]] = reply
            case "tool_call", _:
                self.started_calls[payload["call_id"]] = _decode_call(payload)
                self.attempts[payload["call_id"]] = self.attempts.get(payload["call_id"], 0) + 1
            case "error", _:
                self.abandoned = self.abandoned or payload.get("given_up", False)
            case "tool_result", _:
                call = self.started_calls.get(payload["call_id"]) or _decode_call(payload)
                self.results[call.id] = ToolResult(call, payload["status"] == "ok", payload["content"])
            case _:
                pass  # written by an action, and no part of the conversation

    def messages(self) -> list[Message]:
        """Return the messages after the input, up to the first reply with an unanswered call."""
        messages: list[Message] = []
        for at in sorted(self.replies):
            reply = self.replies[at]
            results = [self.results.get(call.id) for call in reply.calls]
            # Providers refuse a conversation in which a call has no result.
            if any(item is None for item in results):
                break
            messages.append(
                Message(role="assistant", content=reply.content, calls=reply.calls, native=reply.native)
            )
            messages += [
                Message(role="tool", content=item.content, call_id=item.call.id, name=item.call.name)
                for item in results
                if item is not None
            ]
        return messages


def progress_of(entries: Iterable[ThreadEntry], request_id: str) -> TurnProgress:
    """Return the progress of a request among the entries of a thread."""
    progress = TurnProgress()
    for entry in entries:
        if entry.payload.get("request_id") == request_id:
            progress.add(entry)
    return progress


def progress_by_request(entries: Iterable[ThreadEntry]) -> dict[str, TurnProgress]:
    """Return the progress of each request of a thread."""
    by_request: dict[str, TurnProgress] = {}
    for entry in entries:
        request_id = entry.payload.get("request_id")
        if isinstance(request_id, str):
            by_request.setdefault(request_id, TurnProgress()).add(entry)
    return by_request


def conversation(entries: Iterable[ThreadEntry]) -> list[Exchange]:
    """Return the finished turns in the order of their answers, without abandoned ones."""
    finished = [
        (id, progress)
        for id, progress in progress_by_request(entries).items()
        if progress.final_reply and not progress.abandoned
    ]
    return [
        to_exchange(progress, id)
        for id, progress in sorted(finished, key=lambda item: item[1].final_seq or 0)
    ]


def to_exchange(progress: TurnProgress, request_id: str) -> Exchange:
    """Convert a finished turn to the form in which later prompts have it."""
    asked = "" if progress.user is None else progress.user.payload["content"]
    answer = "" if progress.final_reply is None else progress.final_reply.content
    return Exchange(
        request_id=request_id,
        messages=(
            Message(role="user", content=asked),
            *(item.replace(native=None) if item.native is not None else item for item in progress.messages()),
            Message(role="assistant", content=answer),
        ),
    )


def _decode_reply(payload: Any) -> Reply:
    return Reply(
        content=payload["content"],
        calls=tuple(_from_plain(call, ToolCall) for call in payload.get("calls", ())),
        usage=_from_plain(payload["usage"], Usage),
        model=payload.get("model"),
    )


def _from_plain(plain: Any, kind: type[Any]) -> Any:
    return codec.from_builtins(thaw(plain), kind)


def _decode_call(payload: Any) -> ToolCall:
    return ToolCall(id=payload["call_id"], name=payload["name"], params=payload.get("params", EMPTY_MAP))


def request_ids(entries: Iterable[ThreadEntry]) -> list[str]:
    """Return the ids of the requests in a thread, oldest first."""
    return [
        entry.payload["request_id"]
        for entry in entries
        if entry.kind == "message" and entry.payload.get("role") == "user" and "request_id" in entry.payload
    ]


EFFECT_KINDS = ("recall", "model", "tool")
EFFECT_STATUSES = ("finished", "failed", "unknown")


class Effect(Value, frozen=True, kw_only=True):
    """One effect of a turn; the status `unknown` means that it started and has no result."""

    key: Name
    kind: str
    status: str = "finished"
    name: str | None = None
    params: Frozen = None
    output: Frozen = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.kind, "kind", EFFECT_KINDS)
        check_choice(self.status, "status", EFFECT_STATUSES)


class Journal(Value, frozen=True, kw_only=True):
    """The effects of a turn in the order in which they started, with the entries they are read from."""

    request_id: Id
    entries: tuple[ThreadEntry, ...] = ()
    recalled: RecallResult | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        set_field(self, "entries", check_tuple(self.entries, "entries", ThreadEntry))

    @property
    def effects(self) -> tuple[Effect, ...]:
        """The effects in order."""
        return (*self._recall_effects(), *_call_effects(progress_of(self.entries, self.request_id)))

    def __iter__(self) -> Iterator[Effect]:
        return iter(self.effects)

    def __len__(self) -> int:
        return len(self.effects)

    def get(self, key: str) -> Effect | None:
        """Return the effect with a key: `recall`, `model:0`, `tool:<call id>`."""
        return next((effect for effect in self.effects if effect.key == key), None)

    def _recall_effects(self) -> tuple[Effect, ...]:
        if self.recalled is None:
            return ()
        ids = [entry.id for entry in self.recalled.entries]
        return (Effect(key="recall", kind="recall", params=self.recalled.request.query, output=ids),)


def _call_effects(done: TurnProgress) -> Iterator[Effect]:
    for at in sorted(done.replies):
        reply = done.replies[at]
        calls = [{"id": call.id, "name": call.name, "params": call.params} for call in reply.calls]
        output = {"content": reply.content, "calls": calls}
        yield Effect(key=f"model:{at}", kind="model", name=reply.model, output=output)
        for call in reply.calls:
            ran = done.started_calls.get(call.id)
            answered = done.results.get(call.id)
            if ran is None and answered is None:
                continue
            status = "unknown" if answered is None else "finished" if answered.ok else "failed"
            yield Effect(
                key=f"tool:{call.id}",
                kind="tool",
                name=call.name,
                status=status,
                params=(ran or call).params,
                output=None if answered is None else answered.content,
            )
    if done.final_reply is not None:
        output = {"content": done.final_reply.content, "calls": []}
        yield Effect(key=f"model:{done.rounds - 1}", kind="model", name=done.final_reply.model, output=output)
