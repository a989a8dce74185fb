"""Client and AsyncClient.

The same errors as without a service in between, made from what it said; and errors of their own where there
is no service, no token, or no time.

All that `asks` knows, written once: in a `Client` each of them gives its answer, and in an `AsyncClient`
something to wait for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, closing, contextmanager
from functools import wraps
from types import TracebackType
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar, overload

import httpx2
import msgspec

from omoide.client import requests
from omoide.client.requests import EVERYWHERE, Ask
from omoide.core.entry import Entry, Scope
from omoide.core.frozen import check_text
from omoide.errors import (
    Invalid,
    NotAllowed,
    OmoideError,
    ServiceFailed,
    TimedOut,
    TooManyRequests,
    Unreachable,
)
from omoide.service.problems import Problem, revived
from omoide.stores.records import Change
from omoide.stores.redaction import masked

# told: What went wrong when a service was asked?


_TOKEN = "make one with omoide token create, and pass its secret as token="


@contextmanager
def told(url: str, seconds: float) -> Iterator[None]:
    """Tell in our own words what keeps a request from being answered."""
    try:
        yield
    except httpx2.TimeoutException as error:
        raise TimedOut(f"asking {url}", seconds) from error
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
        raise Invalid("url", f"is {url!r}", "pass one such as http://localhost:8765") from error
    except httpx2.HTTPError as error:
        problem = f"cannot be reached ({type(error).__name__})"
        raise Unreachable(url, problem, "start it with omoide serve, or check the URL") from error


def error_of(url: str, status: int, headers: Mapping[str, str], data: bytes) -> OmoideError:
    """The error that an answer tells of."""
    try:
        found = msgspec.json.decode(data, type=Problem)
    except (msgspec.DecodeError, UnicodeError):
        remedy = "check that the URL is that of an Omoide service"
        return ServiceFailed(url, f"answered {status} without saying why", remedy, status=status)
    said = f"says: {found.detail}"
    if found.type == "too-many-requests":
        error = TooManyRequests(url, said, "ask less often, or wait", status=status)
        error.retry_after = float(headers.get("retry-after", "1"))
        return error
    known = revived(found)
    if known is not None:
        return known
    if status in (401, 403):
        return NotAllowed(url, said, _TOKEN, status=status)
    if status == 400:
        return Invalid(found.field or "request", said, "correct it and try again")
    return ServiceFailed(url, said, found.remedy or "see the log of the service", status=status)


# verbs: Which verbs does a client have?


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

    remember = Verb(requests.remember)
    recall = Verb(requests.recall)
    forget = Verb(requests.forget)
    restore = Verb(requests.restore)
    erase = Verb(requests.erase)
    get = Verb(requests.get)
    page = Verb(requests.page)
    history = Verb(requests.history)
    changes = Verb(requests.changes)
    relate = Verb(requests.relate)
    related = Verb(requests.related)
    provenance = Verb(requests.provenance)
    conflicts = Verb(requests.conflicts)
    review = Verb(requests.review)
    prune = Verb(requests.prune)
    sparql = Verb(requests.sparql)
    sessions = Verb(requests.sessions)
    transcript = Verb(requests.transcript)
    context = Verb(requests.context)
    promote = Verb(requests.promote)
    undo_promotion = Verb(requests.undo_promotion)
    preflight = Verb(requests.preflight)
    agents = Verb(requests.agents)
    identity = Verb(requests.identity)
    spaces = Verb(requests.spaces)
    who_can = Verb(requests.who_can)
    status = Verb(requests.status)


# clients: Who asks a service, and waits for the answer or not?


H = TypeVar("H", httpx2.Client, httpx2.AsyncClient)

SECONDS = 30.0
_EVENT = "data: "


class _Asking(Verbs, Generic[H]):
    """What both clients have: where the service is, and how a request and an answer look."""

    def __init__(self, url: str, http: H, seconds: float) -> None:
        self.url = masked(url)
        self._http: H = http
        self._seconds = seconds

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def _request(self, asked: Ask[Any]) -> httpx2.Request:
        headers = dict(asked.headers)
        if asked.body is not None:
            headers["Content-Type"] = "application/json"
        request: httpx2.Request = self._http.build_request(
            "GET" if asked.body is None else "POST",
            asked.path,
            params=asked.query,
            content=None if asked.body is None else msgspec.json.encode(asked.body),
            headers=headers,
        )
        return request

    def _listening(self, scope: Scope, after: int) -> tuple[Ask[Change], httpx2.Request]:
        """A request whose answer goes on; between two changes any time may pass."""
        asked = requests.events(scope, after=after)
        request = self._request(asked)
        request.extensions["timeout"] = {**request.extensions["timeout"], "read": None}
        return asked, request

    def _read(self, asked: Ask[T], response: httpx2.Response) -> T:
        self._check(response, response.content)
        return asked.read(response.content, response.headers)

    def _check(self, response: httpx2.Response, content: bytes) -> None:
        if response.status_code != 200:
            raise error_of(self.url, response.status_code, response.headers, content)


class Client(_Asking[httpx2.Client]):
    """A memory that is served elsewhere, for programs without an event loop."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout: float = SECONDS,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        given = _settings(url, token, timeout)
        super().__init__(url, httpx2.Client(transport=transport, **given), timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    def ask(self, asked: Ask[T]) -> T:
        """The answer to a request, or the error that the service tells of."""
        with told(self.url, self._seconds):
            response = self._http.send(self._request(asked))
        return self._read(asked, response)

    def list(self, scope: Scope, **narrowing: Any) -> Iterator[Entry]:
        """All memories of a scope, newest first; one page after another is asked for."""
        cursor: str | None = None
        while True:
            found = self.page(scope, cursor=cursor, **narrowing)
            yield from found.entries
            cursor = found.cursor
            if cursor is None:
                return

    def events(self, scope: Scope = EVERYWHERE, *, after: int = 0) -> Iterator[Change]:
        """What changes in a namespace, as it happens; it does not end by itself."""
        asked, request = self._listening(scope, after)
        with told(self.url, self._seconds), closing(self._http.send(request, stream=True)) as response:
            self._check(response, b"" if response.status_code == 200 else response.read())
            for line in response.iter_lines():
                if line.startswith(_EVENT):
                    yield asked.read(line.removeprefix(_EVENT).encode(), response.headers)


class AsyncClient(_Asking[httpx2.AsyncClient]):
    """A memory that is served elsewhere."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout: float = SECONDS,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        given = _settings(url, token, timeout)
        super().__init__(url, httpx2.AsyncClient(transport=transport, **given), timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the connections."""
        await self._http.aclose()

    async def ask(self, asked: Ask[T]) -> T:
        """The answer to a request, or the error that the service tells of."""
        with told(self.url, self._seconds):
            response = await self._http.send(self._request(asked))
        return self._read(asked, response)

    async def list(self, scope: Scope, **narrowing: Any) -> AsyncIterator[Entry]:
        """All memories of a scope, newest first; one page after another is asked for."""
        cursor: str | None = None
        while True:
            found = await self.page(scope, cursor=cursor, **narrowing)
            for entry in found.entries:
                yield entry
            cursor = found.cursor
            if cursor is None:
                return

    async def events(self, scope: Scope = EVERYWHERE, *, after: int = 0) -> AsyncIterator[Change]:
        """What changes in a namespace, as it happens; it does not end by itself."""
        asked, request = self._listening(scope, after)
        with told(self.url, self._seconds):
            async with aclosing(await self._http.send(request, stream=True)) as response:
                self._check(response, b"" if response.status_code == 200 else await response.aread())
                async for line in response.aiter_lines():
                    if line.startswith(_EVENT):
                        yield asked.read(line.removeprefix(_EVENT).encode(), response.headers)


def _settings(url: str, token: str, timeout: float) -> Mapping[str, Any]:
    if check_text(url, "url").partition("://")[0] not in ("http", "https"):
        raise Invalid("url", f"is {masked(url)!r}", "pass one such as http://localhost:8765")
    secret = check_text(token, "token", "pass the secret that omoide token create printed")
    if not secret.isascii() or not secret.isprintable():
        raise Invalid("token", "holds what no token does", "pass the secret that omoide token create printed")
    headers = {"Authorization": f"Bearer {secret}"}
    return {"base_url": url.rstrip("/"), "headers": headers, "timeout": timeout}
