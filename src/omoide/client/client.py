"""HTTP clients of a served store, with an event loop (`AsyncClient`) and without (`Client`).

The functions of `requests` describe each call once; `ClientMethod` turns them into methods of both clients.
Errors of the service are raised as the same classes as without a service in between.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, closing, contextmanager
from functools import wraps
from typing import Any, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack, overload

import httpx2
import msgspec

from omoide.client import requests
from omoide.client.requests import DEFAULT_SCOPE, PageFields, ServiceRequest
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

_TOKEN_REMEDY = "make one with omoide token create, and pass its secret as token="


@contextmanager
def map_http_errors(url: str, timeout: float) -> Iterator[None]:
    """Raise transport errors as errors of the library."""
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
    """Return the error that an unsuccessful response describes."""
    try:
        problem = msgspec.json.decode(data, type=Problem)
    except (msgspec.DecodeError, UnicodeError):
        remedy = "check that the URL is that of an Omoide service"
        return ServiceFailed(url, f"answered {status} without saying why", remedy, status=status)
    detail = f"says: {problem.detail}"
    if problem.type in ("too-many-requests", "overloaded"):
        too_many = TooManyRequests(url, detail, "ask less often, or wait", status=status)
        too_many.retry_after = float(headers.get("retry-after", "1"))
        return too_many
    error = to_error(problem)
    if error is not None:
        return error
    if status in (401, 403):
        return NotAllowed(url, detail, _TOKEN_REMEDY, status=status)
    if status == 400:
        return Invalid(problem.field or "request", detail, "correct it and try again")
    return ServiceFailed(url, detail, problem.remedy or "see the log of the service", status=status)


P = ParamSpec("P")
T = TypeVar("T")


class SyncSender(Protocol):
    """Client that sends a request and returns its result."""

    def send(self, request: ServiceRequest[T]) -> T: ...


class AsyncSender(Protocol):
    """Client that sends a request and returns an awaitable of its result."""

    async def send(self, request: ServiceRequest[T]) -> T: ...


class ClientMethod(Generic[P, T]):
    """Descriptor that makes a client method from a function that builds its request.

    The method has the function's parameters; it returns the result, or an awaitable in an asynchronous
    client.
    """

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
        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.send(self._build(*args, **kwargs))

        return method


class ClientMethods:
    """Methods that both clients have."""

    remember = ClientMethod(requests.remember)
    add_document = ClientMethod(requests.add_document)
    recall = ClientMethod(requests.recall)
    forget = ClientMethod(requests.forget)
    reinstate = ClientMethod(requests.reinstate)
    pin = ClientMethod(requests.pin)
    unpin = ClientMethod(requests.unpin)
    pinned = ClientMethod(requests.pinned)
    erase = ClientMethod(requests.erase)
    erase_user = ClientMethod(requests.erase_user)
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
    owners = ClientMethod(requests.owners)
    namespaces = ClientMethod(requests.namespaces)


H = TypeVar("H", httpx2.Client, httpx2.AsyncClient)

DEFAULT_TIMEOUT = 30.0
_EVENT_PREFIX = "data: "


class _HTTPClient(ClientMethods, Generic[H]):
    """URL, requests and responses, shared by both clients."""

    def __init__(self, url: str, http: H, timeout: float) -> None:
        self.url = mask_url(url)
        self._http: H = http
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def _build_request(self, request: ServiceRequest[Any]) -> httpx2.Request:
        headers = dict(request.headers)
        if request.body is not None:
            headers["Content-Type"] = "application/json"
        http_request: httpx2.Request = self._http.build_request(
            "GET" if request.body is None else "POST",
            request.path,
            params=request.query,
            content=None if request.body is None else msgspec.json.encode(request.body),
            headers=headers,
        )
        return http_request

    def _event_request(self, scope: Scope, after: int) -> tuple[ServiceRequest[Change], httpx2.Request]:
        """Build the request for the event stream, without a read timeout: changes may be far apart."""
        request = requests.events(scope, after=after)
        http_request = self._build_request(request)
        http_request.extensions["timeout"] = {**http_request.extensions["timeout"], "read": None}
        return request, http_request

    def _parse_response(self, request: ServiceRequest[T], response: httpx2.Response) -> T:
        self._raise_for_status(response, response.content)
        return request.parse(response.content, response.headers)

    def _raise_for_status(self, response: httpx2.Response, content: bytes) -> None:
        if response.status_code != 200:
            raise error_from_response(self.url, response.status_code, response.headers, content)


class Client(_HTTPClient[httpx2.Client]):
    """Client of a served store, without an event loop."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        options = _http_options(url, token, timeout)
        super().__init__(url, httpx2.Client(transport=transport, **options), timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, request: ServiceRequest[T]) -> T:
        """Send a request and return its result, or raise the error that the service reports."""
        with map_http_errors(self.url, self._timeout):
            response = self._http.send(self._build_request(request))
        return self._parse_response(request, response)

    def list(self, scope: Scope, *, limit: int = 200, **filters: Unpack[PageFields]) -> Iterator[Entry]:
        """Yield all entries of a scope, newest first, page by page.

        Args:
            scope: the entries to list.
            limit: size of a page.
            filters: query parameters of `/v1/entries`, such as `type` or `since`.
        """
        cursor: str | None = None
        while True:
            page = self.page(scope, cursor=cursor, limit=limit, **filters)
            yield from page.entries
            cursor = page.cursor
            if cursor is None:
                return

    def events(self, scope: Scope = DEFAULT_SCOPE, *, after: int = 0) -> Iterator[Change]:
        """Yield the changes of a namespace as they happen; the stream does not end by itself.

        Args:
            scope: only its namespace counts.
            after: sequence number of the last change already seen.
        """
        request, http_request = self._event_request(scope, after)
        with (
            map_http_errors(self.url, self._timeout),
            closing(self._http.send(http_request, stream=True)) as response,
        ):
            self._raise_for_status(response, b"" if response.status_code == 200 else response.read())
            for line in response.iter_lines():
                if line.startswith(_EVENT_PREFIX):
                    yield request.parse(line.removeprefix(_EVENT_PREFIX).encode(), response.headers)


class AsyncClient(_HTTPClient[httpx2.AsyncClient]):
    """Client of a served store."""

    def __init__(
        self,
        url: str,
        token: str,
        *,
        timeout: float = DEFAULT_TIMEOUT,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        options = _http_options(url, token, timeout)
        super().__init__(url, httpx2.AsyncClient(transport=transport, **options), timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def send(self, request: ServiceRequest[T]) -> T:
        """Send a request and return its result, or raise the error that the service reports."""
        with map_http_errors(self.url, self._timeout):
            response = await self._http.send(self._build_request(request))
        return self._parse_response(request, response)

    async def list(
        self, scope: Scope, *, limit: int = 200, **filters: Unpack[PageFields]
    ) -> AsyncIterator[Entry]:
        """Yield all entries of a scope, newest first, page by page.

        Args:
            scope: the entries to list.
            limit: size of a page.
            filters: query parameters of `/v1/entries`, such as `type` or `since`.
        """
        cursor: str | None = None
        while True:
            page = await self.page(scope, cursor=cursor, limit=limit, **filters)
            for entry in page.entries:
                yield entry
            cursor = page.cursor
            if cursor is None:
                return

    async def events(self, scope: Scope = DEFAULT_SCOPE, *, after: int = 0) -> AsyncIterator[Change]:
        """Yield the changes of a namespace as they happen; the stream does not end by itself.

        Args:
            scope: only its namespace counts.
            after: sequence number of the last change already seen.
        """
        request, http_request = self._event_request(scope, after)
        with map_http_errors(self.url, self._timeout):
            async with aclosing(await self._http.send(http_request, stream=True)) as response:
                self._raise_for_status(
                    response, b"" if response.status_code == 200 else await response.aread()
                )
                async for line in response.aiter_lines():
                    if line.startswith(_EVENT_PREFIX):
                        yield request.parse(line.removeprefix(_EVENT_PREFIX).encode(), response.headers)


def _http_options(url: str, token: str, timeout: float) -> Mapping[str, Any]:
    if check_text(url, "url").partition("://")[0] not in ("http", "https"):
        raise Invalid("url", f"is {mask_url(url)!r}", "pass one such as http://localhost:8765")
    secret = check_text(token, "token", "pass the secret that omoide token create printed")
    if not secret.isascii() or not secret.isprintable():
        raise Invalid("token", "holds what no token does", "pass the secret that omoide token create printed")
    headers = {"Authorization": f"Bearer {secret}"}
    return {"base_url": url.rstrip("/"), "headers": headers, "timeout": timeout}
