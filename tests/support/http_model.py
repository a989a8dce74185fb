"""A chat completions server on loopback, with scripted answers and failures."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from select import select
from threading import Event, Lock, Thread
from typing import Any

from omoide.turns import Message, Prompt, Request

USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


@dataclass(frozen=True)
class Answer:
    """The answer of the server to one request, and how it fails."""

    content: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    """Tools to run: name and the text of the arguments; their ids are call_1, call_2 and so on."""
    finish: str | None = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    """The body that is sent in place of a completion."""
    cut: int | None = None
    """Bytes of a body, or events of a stream, after which the connection is dropped."""
    hang: bool = False
    """Never answer; in a stream, send no more events."""


def answer_with_calls(*calls: tuple[str, Any]) -> Answer:
    """Return an answer that calls tools with arguments."""
    return Answer(calls=tuple((name, json.dumps(params)) for name, params in calls))


def error_answer(status: int, message: str = "no", code: str | None = None, **headers: str) -> Answer:
    """Return an error as the answer; `retry_after` is the header Retry-After."""
    said = {"error": {"message": message, "type": "test", "code": code}}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status=status, headers=named, body=json.dumps(said).encode())


def make_request(*messages: Message, **fields: Any) -> Request:
    """Return a request with these messages, or with one of a user, and other fields of a prompt."""
    said = messages or (Message(role="user", content="Who am I?"),)
    return Request(prompt=Prompt(messages=said, **fields), request_id="req_1", agent_id="greeter")


@dataclass
class HttpModel:
    """A server on loopback: its answers in order, its requests, and its connections."""

    answers: list[Answer]
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    connections: int = 0
    """Connections that were made."""
    open: int = 0
    """Connections that are open now."""
    over: Event = field(default_factory=Event)
    lock: Any = field(default_factory=Lock)

    def next(self) -> Answer:
        """Take the next answer."""
        with self.lock:
            return self.answers.pop(0) if self.answers else error_answer(500, "there are no more answers")


@contextmanager
def serve_model(*answers: Answer | str) -> Iterator[HttpModel]:
    """Run a server inside the block."""
    site = HttpModel([Answer(content=one) if isinstance(one, str) else one for one in answers])

    class Handler(_Handler):
        model = site

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield site
        finally:
            site.over.set()
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    model: HttpModel
    protocol_version = "HTTP/1.1"  # so that connections stay open, and a body that is cut can be told
    timeout = 10.0

    def handle(self) -> None:
        with self.model.lock:
            self.model.connections += 1
            self.model.open += 1
        try:
            with suppress(OSError):  # the client may leave when it wants to
                super().handle()
        finally:
            with self.model.lock:
                self.model.open -= 1

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.model.lock:
            self.model.requests.append(asked)
            self.model.headers.append({name.lower(): value for name, value in self.headers.items()})
        answer = self.model.next()
        if asked.get("stream") and answer.body is None and answer.status == 200:
            self._stream(answer, asked)
        else:
            self._send(answer, asked)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def _send(self, answer: Answer, asked: dict[str, Any]) -> None:
        if answer.hang:
            self._hang()
            return
        body = json.dumps(_completion(answer, asked)).encode() if answer.body is None else answer.body
        self.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: answer.cut])
        self.close_connection = self.close_connection or answer.cut is not None

    def _stream(self, answer: Answer, asked: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        events = [*(json.dumps(one) for one in _chunks(answer, asked)), "[DONE]"]
        for event in events[: answer.cut]:
            self._chunk(f"data: {event}\n\n".encode())
        if answer.hang:
            self._hang()
        elif answer.cut is not None:
            self.close_connection = True
        else:
            self._chunk(b"")

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
        self.wfile.flush()

    def _hang(self) -> None:
        self.close_connection = True
        while not self.model.over.wait(0.01):
            if select([self.connection], [], [], 0)[0]:  # the client has gone
                return


def _calls(answer: Answer) -> list[dict[str, Any]]:
    return [
        {"id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": given}}
        for at, (name, given) in enumerate(answer.calls, 1)
    ]


def _about(kind: str, asked: dict[str, Any]) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": kind, "created": 1_700_000_000, "model": f"{asked['model']}-v1"}


def _finish(answer: Answer) -> str:
    return answer.finish or ("tool_calls" if answer.calls else "stop")


def _completion(answer: Answer, asked: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.content or None}
    if answer.calls:
        message["tool_calls"] = _calls(answer)
    choice = {"index": 0, "message": message, "finish_reason": _finish(answer)}
    return {**_about("chat.completion", asked), "choices": [choice], "usage": USAGE}


def _chunks(answer: Answer, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    about = _about("chat.completion.chunk", asked)

    def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
        return {**about, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk(role="assistant", content="")
    for word in re.findall(r"\s*\S+", answer.content):
        yield chunk(content=word)
    for at, call in enumerate(_calls(answer)):
        given, call["function"]["arguments"] = call["function"]["arguments"], ""
        yield chunk(tool_calls=[{"index": at, **call}])
        half = len(given) // 2
        for part in (given[:half], given[half:]):
            yield chunk(tool_calls=[{"index": at, "function": {"arguments": part}}])
    yield chunk(finish=_finish(answer))
    if asked.get("stream_options", {}).get("include_usage"):
        yield {**about, "choices": [], "usage": USAGE}
