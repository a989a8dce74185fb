"""Limits on what clients of a service may use at the same time, and headers of its responses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import msgspec
from anyio import CapacityLimiter

from omoide.service.problems import Problem

RETRY_AFTER = 1
"""Seconds after which a refused client may ask again."""
PRIVATE_HEADERS = {b"x-content-type-options": b"nosniff", b"cache-control": b"no-store"}
"""Headers of every response: browsers take it for what it says it is, and nothing stores it."""


class Overloaded(Exception):
    """One client, or all of them, use as much as they may at the same time."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status
        """429 if the client itself has to wait, 503 if the service is busy."""
        self.detail = detail


class Slots:
    """Slots that requests hold while they run, limited for each client and in total.

    A request waits for a free slot for at most `patience` seconds. Requests of one client wait for one
    another first, so that they keep no slot from other clients.
    """

    def __init__(self, name: str, per_client: int, total: int, patience: float = 0.0) -> None:
        self.name = name
        self.per_client = per_client
        self.patience = patience
        self._clients: dict[str, CapacityLimiter] = {}
        self._total = CapacityLimiter(total)

    @property
    def used(self) -> int:
        """Number of slots that are held."""
        return self._total.borrowed_tokens

    @asynccontextmanager
    async def hold(self, client: str) -> AsyncIterator[None]:
        """Hold a slot inside the block.

        Raises:
            Overloaded: none becomes free in time.
        """
        limiter = self._clients.setdefault(client, CapacityLimiter(self.per_client))
        try:
            async with (
                self._slot(limiter, 429, f"this client has too many {self.name} at once"),
                self._slot(self._total, 503, f"there are too many {self.name} at once"),
            ):
                yield
        finally:
            if not limiter.borrowed_tokens and not limiter.statistics().tasks_waiting:
                self._clients.pop(client, None)

    @asynccontextmanager
    async def _slot(self, limiter: CapacityLimiter, status: int, detail: str) -> AsyncIterator[None]:
        holder = object()
        try:
            limiter.acquire_on_behalf_of_nowait(holder)
        except anyio.WouldBlock:
            with anyio.move_on_after(self.patience) as waiting:
                await limiter.acquire_on_behalf_of(holder)
            if waiting.cancelled_caught:
                raise Overloaded(status, detail) from None
        try:
            yield
        finally:
            limiter.release_on_behalf_of(holder)


def refusal(status: int, type: str, detail: str) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return headers and body of a response that refuses a request before an application answers it."""
    title = type.replace("-", " ").capitalize()
    return problem_response(Problem(type=type, title=title, status=status, detail=detail))


def problem_response(problem: Problem) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return headers and body of a response that reports a problem."""
    body = msgspec.json.encode(problem)
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", b"%d" % len(body)),
        *PRIVATE_HEADERS.items(),
    ]
    if problem.status in (429, 503):
        headers.append((b"retry-after", b"%d" % RETRY_AFTER))
    return headers, body
