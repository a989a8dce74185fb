"""Requests to REST and MCP are limited in size and time, by the same middleware."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from threading import Event
from typing import Any

import anyio
import msgspec
import pytest
from anyio import to_thread

from omoide.errors import TimedOut
from omoide.service.problems import Problem, to_error
from omoide.service.requests import BODY_START, RequestLimits

SOON = 0.05
LATE = 20.0
Message = dict[str, Any]
App = Callable[[Any, Any, Any], Awaitable[None]]


def part(body: bytes, *, more: bool = True) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


async def respond(send: Any, *bodies: bytes) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for body in bodies:
        await send({"type": "http.response.body", "body": body, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def run(app: App, *messages: Message, announced: int = 0, **limits: float) -> list[Message]:
    """What a client that sends these messages, and then nothing, is answered."""
    sent: list[Message] = []
    waiting = list(messages)

    async def receive() -> Message:
        if not waiting:
            await anyio.sleep_forever()
        return waiting.pop(0)

    async def send(message: Message) -> None:
        sent.append(message)

    options: Any = {"body_timeout": LATE, "request_timeout": LATE, **limits}
    with anyio.fail_after(LATE):
        scope = {"type": "http", "headers": [(b"content-length", b"%d" % announced)] if announced else []}
        await RequestLimits(app, **options)(scope, receive, send)
    return sent


def problem(sent: list[Message]) -> Problem:
    """The one answer, which is a problem."""
    start, body = sent
    found = msgspec.json.decode(body["body"], type=Problem)
    assert start["status"] == found.status
    assert (b"cache-control", b"no-store") in start["headers"]
    return found


class Reader:
    """An application that counts how often it is called, and reads its body."""

    def __init__(self) -> None:
        self.calls = 0
        self.body = b""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.calls += 1
        more = True
        while more:
            message = await receive()
            self.body += message["body"]
            more = message["more_body"]
        await respond(send, b"answer")


async def test_a_body_in_parts_is_passed_on() -> None:
    """Also one that is larger than what is read before the application is called."""
    app = Reader()
    parts = [b"a" * BODY_START, b"b", b"c"]
    sent = await run(app, *map(part, parts), part(b"d", more=False))
    assert (app.calls, app.body) == (1, b"".join(parts) + b"d")
    assert [message.get("body") for message in sent] == [None, b"answer", b""]


@pytest.mark.parametrize("sent", [b"", b"half"])
async def test_a_body_that_does_not_come_costs_the_application_nothing(sent: bytes) -> None:
    """It is not called, so that it checks no token, and the client is told 408."""
    app = Reader()
    found = problem(await run(app, part(sent), body_timeout=SOON))
    assert (app.calls, found.status, found.type) == (0, 408, "too-slow")


async def test_a_large_body_that_does_not_come_is_given_up_while_it_is_read() -> None:
    """The application is cancelled."""
    app = Reader()
    found = problem(await run(app, part(b"x" * BODY_START), body_timeout=SOON))
    assert (app.calls, found.status) == (1, 408)


@pytest.mark.parametrize("announced", [11, 0])
async def test_a_body_that_is_too_large_is_refused(announced: int) -> None:
    """By what it announces, or by what it turns out to be."""
    parts = [] if announced else [part(b"x" * 10), part(b"x", more=False)]
    found = problem(await run(Reader(), *parts, announced=announced, max_body_bytes=10))
    assert (found.status, found.type) == (413, "body-too-large")


async def test_a_client_that_left_before_its_body_was_there_is_dropped() -> None:
    """The application is not called, and nobody is answered."""
    app = Reader()
    assert await run(app, part(b"half"), {"type": "http.disconnect"}) == []
    assert app.calls == 0


async def test_an_answer_that_does_not_come_is_given_up() -> None:
    """The client is told 504, which is a `TimedOut`, and the application is cancelled."""
    cancelled = False

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal cancelled
        try:
            await anyio.sleep_forever()
        finally:
            cancelled = True

    found = problem(await run(app, part(b"", more=False), request_timeout=SOON))
    assert (found.status, found.type) == (504, "timed-out")
    error = to_error(found)
    assert isinstance(error, TimedOut)
    assert error.seconds == SOON
    assert cancelled


@pytest.mark.parametrize("fails", [False, True])
async def test_a_thread_does_not_hold_the_answer_up(fails: bool) -> None:
    """It cannot be cancelled: the client is answered before it ends, and what it returns then is dropped."""
    answered = Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert await to_thread.run_sync(answered.wait, LATE)
        if fails:
            raise ValueError("nobody waits for this")
        await respond(send)

    async def receive() -> Message:
        return part(b"", more=False)

    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)
        if not message.get("more_body", message["type"] == "http.response.start"):
            answered.set()

    with anyio.fail_after(LATE):
        await RequestLimits(app, request_timeout=SOON)({"type": "http", "headers": []}, receive, send)
    assert problem(sent).status == 504


async def test_an_answer_that_has_begun_goes_on() -> None:
    """An event stream takes longer than a request may."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await anyio.sleep(5 * SOON)
        await send({"type": "http.response.body", "body": b"event"})

    sent = await run(app, part(b"", more=False), request_timeout=SOON, body_timeout=SOON)
    assert [message.get("body") for message in sent] == [None, b"event"]


async def test_an_error_of_the_application_is_passed_on() -> None:
    """As it is, not in a group."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise ValueError("of the application")

    with pytest.raises(ValueError, match="of the application"):
        await run(app, part(b"", more=False))
