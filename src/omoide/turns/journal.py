"""Events, journal, transcript.

Events tell what was done, with ids and figures and never with content. The one exception is `text`, a piece
of an answer on its way to the reader, which is streamed and not kept.

Every message, tool call and result is one entry of the thread, under the id of the request it belongs to. A
turn is part of the conversation once its answer is there.

The journal names every effect of a turn: what was recalled, what the model replied, what each tool answered.
A turn that is run again with its journal takes the answers from there and calls nothing.
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

# events: What happened in the course of a turn, in one vocabulary?


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
    "tool_started",
    "tool_finished",
    "tool_failed",
    "review_requested",
    "hibernated",
    "turn_finished",
    "memory_written",
    "memory_not_written",
    "text",
)


class Event(Value, frozen=True, kw_only=True):
    """One thing that happened in a turn."""

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
"""Somebody who is told each event as it happens."""


class EventEmitter:
    """The events of one turn, and who listens."""

    def __init__(self, listener: EventListener | None = None) -> None:
        self.log: list[Event] = []
        self._listener = listener

    async def emit(self, kind: str, **data: Any) -> None:
        """Keep an event and pass it on; what a listener raises ends the turn."""
        event = Event(kind=kind, data={key: value for key, value in data.items() if value is not None})
        if kind != "text":
            self.log.append(event)
        if self._listener is not None:
            answer = self._listener(event)
            if isinstance(answer, Awaitable):
                await answer


# transcript: How is a turn written down in a thread, and read back?


EntryFields = dict[str, Any]


def user_entry(request_id: str, content: str) -> EntryFields:
    """What was asked."""
    return _entry("message", request_id, role="user", content=content)


def assistant_entry(request_id: str, round: int, reply: Reply, *, final: bool) -> EntryFields:
    """What a model replied; the final reply ends the turn."""
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
    """A message that belongs to no turn: later prompts do not show it, and memory hears it."""
    return {"kind": "message", "payload": {**metadata, "role": role, "content": content}}


def tool_call_entry(request_id: str, call: ToolCall) -> EntryFields:
    """That a tool is about to run."""
    return _entry("tool_call", request_id, call_id=call.id, name=call.name, params=call.params)


def tool_result_entry(request_id: str, call: ToolCall, ok: bool, content: str) -> EntryFields:
    """What a tool answered."""
    status = "ok" if ok else "error"
    return _entry("tool_result", request_id, call_id=call.id, name=call.name, status=status, content=content)


def error_entry(request_id: str, error: str, problem: str) -> EntryFields:
    """That something went wrong in a turn; it may still go on."""
    return _entry("error", request_id, error=error, problem=problem)


def resumed_entry(request_id: str) -> EntryFields:
    """That somebody goes on with a turn."""
    return _entry("note", request_id, resumed=True)


def abandoned_entry(request_id: str, reason: str) -> EntryFields:
    """That a turn will not go on, and is no part of the conversation."""
    return _entry("error", request_id, given_up=True, problem=reason)


def _entry(kind: str, request_id: str, **payload: Any) -> EntryFields:
    given = {key: value for key, value in payload.items() if value is not None}
    return {"kind": kind, "payload": {"request_id": request_id, **given}}


class ToolResult(msgspec.Struct, frozen=True):
    """What a tool answered, and whether that was an error."""

    call: ToolCall
    ok: bool
    content: str


class TurnProgress(msgspec.Struct):
    """What a turn has done so far, read from the thread."""

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
        """What all replies took together."""
        given = [*self.replies.values(), *([] if self.final_reply is None else [self.final_reply])]
        return sum((reply.usage for reply in given), Usage())

    def add(self, entry: ThreadEntry) -> None:
        """Take in what comes next; what an action wrote into the thread in another form is passed over."""
        with suppress(KeyError, TypeError, Invalid):
            self._add(entry)

    def _add(self, entry: ThreadEntry) -> None:
        said = entry.payload
        match entry.kind, said.get("role"):
            case "message", "user":
                self.user = entry
            case "message", "assistant":
                reply = _decode_reply(said)
                self.rounds = said["round"] + 1
                if said.get("final"):
                    self.final_reply, self.final_seq = reply, entry.seq
                else:
                    self.replies[said["round"]] = reply
            case "tool_call", _:
                self.started_calls[said["call_id"]] = _decode_call(said)
                self.attempts[said["call_id"]] = self.attempts.get(said["call_id"], 0) + 1
            case "error", _:
                self.abandoned = self.abandoned or said.get("given_up", False)
            case "tool_result", _:
                call = self.started_calls.get(said["call_id"]) or _decode_call(said)
                self.results[call.id] = ToolResult(call, said["status"] == "ok", said["content"])
            case _:
                pass  # what an action wrote: not part of what was said

    def messages(self) -> list[Message]:
        """What was said in the turn after the user's words, as far as it is complete."""
        found: list[Message] = []
        for at in sorted(self.replies):
            reply = self.replies[at]
            results = [self.results.get(call.id) for call in reply.calls]
            if any(one is None for one in results):
                break
            found.append(
                Message(role="assistant", content=reply.content, calls=reply.calls, native=reply.native)
            )
            found += [
                Message(role="tool", content=one.content, call_id=one.call.id, name=one.call.name)
                for one in results
                if one is not None
            ]
        return found


def progress_of(entries: Iterable[ThreadEntry], request_id: str) -> TurnProgress:
    """What a request has led to, among the entries of a thread."""
    found = TurnProgress()
    for entry in entries:
        if entry.payload.get("request_id") == request_id:
            found.add(entry)
    return found


def progress_by_request(entries: Iterable[ThreadEntry]) -> dict[str, TurnProgress]:
    """What each request of a thread has led to."""
    found: dict[str, TurnProgress] = {}
    for entry in entries:
        request_id = entry.payload.get("request_id")
        if isinstance(request_id, str):
            found.setdefault(request_id, TurnProgress()).add(entry)
    return found


def conversation(entries: Iterable[ThreadEntry]) -> list[Exchange]:
    """The turns that are over, in the order of their answers; what was given up is not part of it."""
    over = [
        (id, done)
        for id, done in progress_by_request(entries).items()
        if done.final_reply and not done.abandoned
    ]
    return [to_exchange(done, id) for id, done in sorted(over, key=lambda one: one[1].final_seq or 0)]


def to_exchange(progress: TurnProgress, request_id: str) -> Exchange:
    """A turn that is over, as it stands in later prompts."""
    asked = "" if progress.user is None else progress.user.payload["content"]
    answer = "" if progress.final_reply is None else progress.final_reply.content
    return Exchange(
        request_id=request_id,
        messages=(
            Message(role="user", content=asked),
            *(one.replace(native=None) if one.native is not None else one for one in progress.messages()),
            Message(role="assistant", content=answer),
        ),
    )


def _decode_reply(said: Any) -> Reply:
    return Reply(
        content=said["content"],
        calls=tuple(_from_plain(call, ToolCall) for call in said.get("calls", ())),
        usage=_from_plain(said["usage"], Usage),
        model=said.get("model"),
    )


def _from_plain(plain: Any, kind: type[Any]) -> Any:
    return codec.from_builtins(thaw(plain), kind)


def _decode_call(said: Any) -> ToolCall:
    return ToolCall(id=said["call_id"], name=said["name"], params=said.get("params", EMPTY_MAP))


def request_ids(entries: Iterable[ThreadEntry]) -> list[str]:
    """The ids of the requests in a thread, in the order in which they were made."""
    return [
        entry.payload["request_id"]
        for entry in entries
        if entry.kind == "message" and entry.payload.get("role") == "user" and "request_id" in entry.payload
    ]


# journal: What did a turn do to the world, and what came back?


EFFECT_KINDS = ("recall", "model", "tool")
EFFECT_STATUSES = ("finished", "failed", "unknown")


class Effect(Value, frozen=True, kw_only=True):
    """One thing a turn did, and how it ended; `unknown` is what began and is not known to have ended."""

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
    """The effects of a turn in the order in which they began, with the entries they were read from."""

    request_id: Id
    entries: tuple[ThreadEntry, ...] = ()
    recalled: RecallResult | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        set_field(self, "entries", check_tuple(self.entries, "entries", ThreadEntry))

    @property
    def effects(self) -> tuple[Effect, ...]:
        """What was done, in order."""
        return (*self._recall_effects(), *_call_effects(progress_of(self.entries, self.request_id)))

    def __iter__(self) -> Iterator[Effect]:
        return iter(self.effects)

    def __len__(self) -> int:
        return len(self.effects)

    def get(self, key: str) -> Effect | None:
        """The effect of this key: `recall`, `model:0`, `tool:<call id>`."""
        return next((effect for effect in self.effects if effect.key == key), None)

    def _recall_effects(self) -> tuple[Effect, ...]:
        if self.recalled is None:
            return ()
        found = [entry.id for entry in self.recalled.entries]
        return (Effect(key="recall", kind="recall", params=self.recalled.request.query, output=found),)


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
