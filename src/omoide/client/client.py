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
from omoide.client.requests import DEFAULT_SCOPE, ServiceRequest
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
from omoide.service.problems import Problem, to_error
from omoide.stores.records import Change
from omoide.stores.redaction import mask_url

# told: What went wrong when a service was asked?


_TOKEN_REMEDY = "make one with omoide token create, and pass its secret as token="


@contextmanager
def map_http_errors(url: str, timeout: float) -> Iterator[None]:
    """Tell in our own words what keeps a request from being answered."""
    try:
        yield
    except httpx2.TimeoutException as error:
        raise TimedOut(f"asking {url}", timeout) from error
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
        raise Invalid("url", f"is {url!r}", "pass one such as http://localhost:8765") from error
    except httpx2.HTTPError as error:
        problem = f"cannot be reached ({type(error).__name__})"
        raise Unreachable(url, problem, "start it with omoide serve, or check the URL") from error


def error_from_response(url: str, status: int, headers: Mapping[str, str], data: bytes) -> OmoideError:
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
    known = to_error(found)
    if known is not None:
        return known
    if status in (401, 403):
        return NotAllowed(url, said, _TOKEN_REMEDY, status=status)
    if status == 400:
        return Invalid(found.field or "request", said, "correct it and try again")
    return ServiceFailed(url, said, found.remedy or "see the log of the service", status=status)


# verbs: Which verbs does a client have?


P = ParamSpec("P")
T = TypeVar("T")


class SyncSender(Protocol):
    """Sends a request and has its answer."""

    def send(self, request: ServiceRequest[T]) -> T: ...


class AsyncSender(Protocol):
    """Sends a request and gives its answer later."""

    async def send(self, request: ServiceRequest[T]) -> T: ...


class ClientMethod(Generic[P, T]):
    """One verb of a client, made from the function that says what it asks."""

    def __init__(self, build: Callable[P, ServiceRequest[T]]) -> None:
        self._build = build
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, client: None, owner: type) -> ClientMethod[P, T]: ...
    @overload
    def __get__(self, client: SyncSender, owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: AsyncSender, owner: type) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, client: Any, owner: type) -> Any:
        if client is None:
            return self

        @wraps(self._build)
        def verb(*given: P.args, **named: P.kwargs) -> Any:
            return client.ask(self._build(*given, **named))

        return verb


class ClientMethods:
    """What a client can ask for."""

    remember = ClientMethod(requests.remember)
    recall = ClientMethod(requests.recall)
    forget = ClientMethod(requests.forget)
    reinstate = ClientMethod(requests.reinstate)
    erase = ClientMethod(requests.erase)
    get = ClientMethod(requests.get)
    page = ClientMethod(requests.page)
    history = ClientMethod(requests.history)
    changes = ClientMethod(requests.changes)
    relate = ClientMethod(requests.relate)
    related = ClientMethod(requests.related)
    provenance = ClientMethod(requests.provenance)
    conflicts = ClientMethod(requests.conflicts)
    review = ClientMethod(requests.review)
    prune = ClientMethod(requests.prune)
    sparql = ClientMethod(requests.sparql)
    sessions = ClientMethod(requests.sessions)
    transcript = ClientMethod(requests.transcript)
    context = ClientMethod(requests.context)
    promote = ClientMethod(requests.promote)
    undo_promotion = ClientMethod(requests.undo_promotion)
    preflight = ClientMethod(requests.preflight)
    agents = ClientMethod(requests.agents)
    identity = ClientMethod(requests.identity)
    spaces = ClientMethod(requests.spaces)
    who_can = ClientMethod(requests.who_can)
    status = ClientMethod(requests.status)


# clients: Who asks a service, and waits for the answer or not?


H = TypeVar("H", httpx2.Client, httpx2.AsyncClient)

DEFAULT_TIMEOUT = 30.0
_EVENT_PREFIX = "data: "


class _HTTPClient(ClientMethods, Generic[H]):
    """What both clients have: where the service is, and how a request and an answer look."""

    def __init__(self, url: str, http: H, timeout: float) -> None:
        self.url = mask_url(url)
        self._http: H = http
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def _build_request(self, service_request: ServiceRequest[Any]) -> httpx2.Request:
        headers = dict(service_request.headers)
        if service_request.body is not None:
            headers["Content-Type"] = "application/json"
        request: httpx2.Request = self._http.build_request(
            "GET" if service_request.body is None else "POST",
            service_request.path,
            params=service_request.query,
            content=None if service_request.body is None else msgspec.json.encode(service_request.body),
            headers=headers,
        )
        return request

    def _event_request(self, scope: Scope, after: int) -> tuple[ServiceRequest[Change], httpx2.Request]:
        """A request whose answer goes on; between two changes any time may pass."""
        asked = requests.events(scope, after=after)
        request = self._build_request(asked)
        request.extensions["timeout"] = {**request.extensions["timeout"], "read": None}
        return asked, request

    def _parse_response(self, request: ServiceRequest[T], response: httpx2.Response) -> T:
        self._raise_for_status(response, response.content)
        return request.parse(response.content, response.headers)

    def _raise_for_status(self, response: httpx2.Response, content: bytes) -> None:
        if response.status_code != 200:
            raise error_from_response(self.url, response.status_code, response.headers, content)


class Client(_HTTPClient[httpx2.Client]):
    """A memory that is served elsewhere, for programs without an event loop."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        given = _http_options(url, token, timeout)
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

    def send(self, request: ServiceRequest[T]) -> T:
        """The answer to a request, or the error that the service tells of."""
        with map_http_errors(self.url, self._timeout):
            response = self._http.send(self._build_request(request))
        return self._parse_response(request, response)

    def list(self, scope: Scope, **narrowing: Any) -> Iterator[Entry]:
        """All memories of a scope, newest first; one page after another is asked for."""
        cursor: str | None = None
        while True:
            found = self.page(scope, cursor=cursor, **narrowing)
            yield from found.entries
            cursor = found.cursor
            if cursor is None:
                return

    def events(self, scope: Scope = DEFAULT_SCOPE, *, after: int = 0) -> Iterator[Change]:
        """What changes in a namespace, as it happens; it does not end by itself."""
        asked, request = self._event_request(scope, after)
        with (
            map_http_errors(self.url, self._timeout),
            closing(self._http.send(request, stream=True)) as response,
        ):
            self._raise_for_status(response, b"" if response.status_code == 200 else response.read())
            for line in response.iter_lines():
                if line.startswith(_EVENT_PREFIX):
                    yield asked.parse(line.removeprefix(_EVENT_PREFIX).encode(), response.headers)


class AsyncClient(_HTTPClient[httpx2.AsyncClient]):
    """A memory that is served elsewhere."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        given = _http_options(url, token, timeout)
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

    async def send(self, request: ServiceRequest[T]) -> T:
        """The answer to a request, or the error that the service tells of."""
        with map_http_errors(self.url, self._timeout):
            response = await self._http.send(self._build_request(request))
        return self._parse_response(request, response)

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

    async def events(self, scope: Scope = DEFAULT_SCOPE, *, after: int = 0) -> AsyncIterator[Change]:
        """What changes in a namespace, as it happens; it does not end by itself."""
        asked, request = self._event_request(scope, after)
        with map_http_errors(self.url, self._timeout):
            async with aclosing(await self._http.send(request, stream=True)) as response:
                self._raise_for_status(
                    response, b"" if response.status_code == 200 else await response.aread()
                )
                async for line in response.aiter_lines():
                    if line.startswith(_EVENT_PREFIX):
                        yield asked.parse(line.removeprefix(_EVENT_PREFIX).encode(), response.headers)


def _http_options(url: str, token: str, timeout: float) -> Mapping[str, Any]:
    if check_text(url, "url").partition("://")[0] not in ("http", "https"):
        raise Invalid("url", f"is {mask_url(url)!r}", "pass one such as http://localhost:8765")
    secret = check_text(token, "token", "pass the secret that omoide token create printed")
    if not secret.isascii() or not secret.isprintable():
        raise Invalid("token", "holds what no token does", "pass the secret that omoide token create printed")
    headers = {"Authorization": f"Bearer {secret}"}
    return {"base_url": url.rstrip("/"), "headers": headers, "timeout": timeout}
