"""Calls are limited before the SDK sees them."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from omoide.integrations.mcp.middleware import CallLimits


async def request(*messages: dict[str, Any]) -> tuple[list[bytes], list[dict[str, Any]]]:
    """The bodies that the application got, and what was answered, for these messages and then silence."""
    seen: list[bytes] = []
    sent: list[dict[str, Any]] = []
    waiting = list(messages)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((await receive())["body"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> dict[str, Any]:
        if not waiting:
            await anyio.sleep_forever()
        return waiting.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    with anyio.fail_after(20):
        scope = {"type": "http", "method": "POST", "client": ("127.0.0.1", 1)}
        await CallLimits(app)(scope, receive, send)
    return seen, sent


def part(body: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_a_body_in_parts_is_passed_on_whole() -> None:
    """The application gets it in one message."""
    seen, sent = await request(part(b"a"), part(b"b", more=False))
    assert (seen, sent[0]["status"]) == ([b"ab"], 200)


@pytest.mark.parametrize("before", [[], [part(b"half")], [part(b"whole", more=False)]])
async def test_a_client_that_left_is_dropped(before: list[dict[str, Any]]) -> None:
    """Its call is not made, whether or not its body was complete."""
    assert await request(*before, {"type": "http.disconnect"}) == ([], [])
