"""Which verbs does a client have?

All that `asks` knows, written once: in a `Client` each of them gives its answer, and in an `AsyncClient`
something to wait for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, overload

from omoide.client import asks
from omoide.client.asks import Ask

P = ParamSpec("P")
T = TypeVar("T")


class Waits(Protocol):
    """Sends a request and has its answer."""

    def ask(self, asked: Ask[T]) -> T: ...


class Awaits(Protocol):
    """Sends a request and gives its answer later."""

    async def ask(self, asked: Ask[T]) -> T: ...


class Verb(Generic[P, T]):
    """One verb of a client, made from the function that says what it asks."""

    def __init__(self, asked: Callable[P, Ask[T]]) -> None:
        self._asked = asked
        self.__doc__ = asked.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> Verb[P, T]: ...
    @overload
    def __get__(self, client: Waits, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: Awaits, owner: type) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self

        @wraps(self._asked)
        def verb(*given: P.args, **named: P.kwargs) -> Any:
            return client.ask(self._asked(*given, **named))

        return verb


class Verbs:
    """What a client can ask for."""

    remember = Verb(asks.remember)
    recall = Verb(asks.recall)
    forget = Verb(asks.forget)
    restore = Verb(asks.restore)
    erase = Verb(asks.erase)
    get = Verb(asks.get)
    page = Verb(asks.page)
    history = Verb(asks.history)
    changes = Verb(asks.changes)
    relate = Verb(asks.relate)
    related = Verb(asks.related)
    provenance = Verb(asks.provenance)
    conflicts = Verb(asks.conflicts)
    review = Verb(asks.review)
    prune = Verb(asks.prune)
    sparql = Verb(asks.sparql)
    sessions = Verb(asks.sessions)
    transcript = Verb(asks.transcript)
    context = Verb(asks.context)
    promote = Verb(asks.promote)
    undo_promotion = Verb(asks.undo_promotion)
    preflight = Verb(asks.preflight)
    agents = Verb(asks.agents)
    identity = Verb(asks.identity)
    spaces = Verb(asks.spaces)
    who_can = Verb(asks.who_can)
    status = Verb(asks.status)
