"""How does a question travel to a SPARQL server and back?

One request, one connection, no redirects, no more bytes and no more time than allowed. Whatever goes wrong is
told as `EndpointFailed` or `QueryStopped`, without the credentials that may be part of the URL.
"""

from __future__ import annotations

import base64
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from socket import socket
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from omoide.errors import EndpointFailed, Invalid, QueryStopped, StoreFailed, WrongType

_CHUNK = 1 << 16
_REMEDY = "use http://host:port/path or https://host/path"
_CHECK = "check the URL, and that the server is running"


class Reply(NamedTuple):
    """What a server answered."""

    kind: str
    """The media type it names."""
    body: bytes


class Endpoint:
    """One URL that SPARQL is sent to."""

    def __init__(
        self, url: str, *, headers: Mapping[str, str] | None = None, max_bytes: int = 64 << 20
    ) -> None:
        if not isinstance(url, str):
            raise WrongType("url", "text", url)
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise Invalid("url", f"cannot be read ({error})", _REMEDY) from None
        if parts.scheme not in ("http", "https") or not host or not url.isascii() or not url.isprintable():
            raise Invalid("url", f"with the scheme {parts.scheme[:20]!r} is no SPARQL endpoint", _REMEDY)
        if " " in url:
            raise Invalid("url", "has a space in it", "write it as %20")
        self._host, self._port, self._secure = host, port, parts.scheme == "https"
        self._target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        place = f"[{host}]" if ":" in host else host
        self.name = f"{parts.scheme}://{place}{f':{port}' if port else ''}{parts.path}"
        self._headers = {"User-Agent": "omoide", **_authorization(parts.username, parts.password)}
        self._headers.update(_checked(headers or {}))
        self._max_bytes = max_bytes

    def post(self, text: str, kind: str, accept: str, timeout: float) -> Reply:
        """What the server answers to a text of some media type."""
        headers = {**self._headers, "Content-Type": f"{kind}; charset=utf-8", "Accept": accept}
        until = time.monotonic() + timeout
        with self._failing(timeout):
            connection = self._connection(timeout)
            try:
                connection.connect()
                wire = connection.sock  # the connection lets go of it when it has the head of the answer
                connection.request("POST", self._target, text.encode(), headers)
                with connection.getresponse() as response:
                    body = self._read(wire, response, until)
            finally:
                connection.close()
        media = (response.getheader("Content-Type") or "").partition(";")[0].strip().lower()
        if not 200 <= response.status < 300:
            raise self._refused(response, media, body)
        return Reply(media, body)

    def misread(self, reply: Reply, reason: object) -> EndpointFailed:
        """The error for an answer that is none."""
        what = "a web page" if reply.kind == "text/html" else repr(reply.kind or "something")
        return EndpointFailed(self.name, f"answers with {what} that cannot be read ({reason})", _CHECK)

    def _connection(self, timeout: float) -> HTTPConnection:
        if self._secure:
            return HTTPSConnection(
                self._host, self._port, timeout=timeout, context=ssl.create_default_context()
            )
        return HTTPConnection(self._host, self._port, timeout=timeout)

    def _read(self, wire: socket, response: HTTPResponse, until: float) -> bytes:
        parts: list[bytes] = []
        size = 0
        while True:
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            wire.settimeout(left)
            part = response.read1(_CHUNK)
            if not part:
                break
            size += len(part)
            if size > self._max_bytes:
                raise QueryStopped(
                    self.name, f"answers with more than {self._max_bytes} bytes", "ask for less, or use LIMIT"
                )
            parts.append(part)
        if response.length:
            raise EndpointFailed(self.name, "broke off in the middle of its answer", "try again")
        return b"".join(parts)

    @contextmanager
    def _failing(self, timeout: float) -> Iterator[None]:
        try:
            yield
        except StoreFailed:
            raise
        except TimeoutError as error:
            raise QueryStopped(
                self.name, f"did not answer within {timeout:g} s", "ask for less, or allow more time"
            ) from error
        except ssl.SSLError as error:
            raise EndpointFailed(
                self.name, f"cannot be trusted ({error.reason})", "check its certificate, or use http://"
            ) from error
        except (OSError, HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise EndpointFailed(self.name, f"cannot be reached ({reason})", _CHECK) from error

    def _refused(self, response: HTTPResponse, media: str, body: bytes) -> StoreFailed:
        status = response.status
        said = "" if media == "text/html" else f": {_excerpt(body)}"
        match status:
            case 300 | 301 | 302 | 303 | 307 | 308:
                return EndpointFailed(self.name, "has moved to another place", "use the URL it has moved to")
            case 401 | 403 | 407:
                return EndpointFailed(self.name, f"does not let us in ({status})", "check user and password")
            case 408 | 504:
                return QueryStopped(self.name, f"gave up ({status}){said}", "ask for less")
            case 429 | 503:
                return EndpointFailed(self.name, f"is too busy ({status})", "try again later")
            case _:
                return EndpointFailed(self.name, f"refuses ({status}){said}", _CHECK)


def _authorization(user: str | None, password: str | None) -> dict[str, str]:
    if user is None and password is None:
        return {}
    said = f"{unquote(user or '')}:{unquote(password or '')}".encode()
    return {"Authorization": f"Basic {base64.b64encode(said).decode()}"}


def _checked(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise WrongType("headers", "a mapping of text to text", headers)
        if not (name + value).isprintable() or not name.isascii() or ":" in name or not name.strip():
            raise Invalid("headers", f"has {name[:40]!r}, which is no header", "use printable text")
    return dict(headers)


def _excerpt(body: bytes) -> str:
    text = " ".join(body[:2000].decode(errors="replace").split())
    return "".join(letter for letter in text if letter.isprintable())[:200]
