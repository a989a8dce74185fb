"""Connect to NATS: settings, the connection, the mapping of errors, and subjects.

What nats-py raises becomes an error of Omoide here, and nowhere else. No message repeats an address with a
password.

`NatsConnection` holds one connection. When it breaks it is made again, on the same server or on another one
of the cluster; requests that wait on it are cancelled and sent again.

`prefix.all.door.opened` is the subject of a signal to all, `prefix.to.ada.door.opened` of one to the agent
`ada`. Types and ids may have any characters, and subjects may not: a byte that is no letter, digit, `-` or
`_` becomes `=` and two hexadecimal digits, so that no two texts become one.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any, TypedDict, TypeVar
from urllib.parse import urlsplit

import anyio
from anyio import CancelScope, current_time, fail_after, move_on_after

from omoide import forks
from omoide.core import signal
from omoide.core.entry import check_positive
from omoide.core.value import Value, check_choice, check_number
from omoide.errors import (
    Closed,
    Invalid,
    MissingExtra,
    NotAllowed,
    OmoideError,
    ServiceFailed,
    Unreachable,
    WrongType,
)
from omoide.forks import ForkListener

# Error numbers (`err_code`) of the JetStream API.
NO_JETSTREAM = (10039, 10076)
STREAM_FULL = (10077, 10122)
"""A stream has reached its limit of bytes or messages."""
NO_STORAGE = (10023, 10028, 10047)
NOT_UNIQUE = (10099, 10100)
"""A work queue has a consumer of these subjects already."""
CONFIG_MISMATCH = 10058
NO_PEERS = 10005
"""A cluster has too few servers for a stream at the moment; the others may be starting."""
NO_CLUSTER = 10074
PERMANENT_ERRORS = (*NO_JETSTREAM, *STREAM_FULL, *NO_STORAGE, *NOT_UNIQUE, CONFIG_MISMATCH, NO_CLUSTER)
_AUTH_WORDS = ("authorization", "authentication", "credentials", "nkey", "jwt", "permissions")

DISCARD_POLICIES = ("new", "old")
REPLICA_COUNTS = (1, 3, 5)
_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SCHEMES = ("nats", "tls", "ws", "wss")
RETRY_DELAY_S = 0.1
"""The pause before a failed request is repeated."""
RECONNECT_DELAY_S = 0.2
CHECK_INTERVAL_S = 0.25
PING_INTERVAL_S = 5.0
REQUEST_TIMEOUT_S = 5.0
"""The time that one request may take before it is repeated."""
_TLS_MARKERS = (b'"tls_required":true', b'"tls_available":true')
log = logging.getLogger("omoide.runtime")
T = TypeVar("T")
MAX_TOKEN_LENGTH = 200
"""The length of a token; a longer one is replaced by a digest, because a subject has to fit into a line."""
_SAFE_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


def error_text(error: BaseException) -> str:
    """Return the message of a nats-py error, without its prefix."""
    text = getattr(error, "description", None) or str(error).removeprefix("nats: ")
    return str(text) or type(error).__name__


def error_code(error: BaseException) -> int | None:
    """Return the number that JetStream gives an error, or None."""
    number = getattr(error, "err_code", None)
    return number if isinstance(number, int) else None


def is_not_found(error: BaseException) -> bool:
    """Return whether an error says that a stream or consumer does not exist."""
    return getattr(error, "code", None) == 404


def is_auth_error(error: BaseException) -> bool:
    """Return whether an error says that the client may not sign in."""
    text = f"{type(error).__name__} {error}".lower()
    return any(word in text for word in _AUTH_WORDS)


def is_transient(error: BaseException) -> bool:
    """Return whether asking again may help: a lost connection, a leader that is being elected."""
    if error_code(error) in PERMANENT_ERRORS or is_not_found(error):
        return False
    status = getattr(error, "code", None)
    return error_code(error) == NO_PEERS or status is None or status in (408, 500, 503)


def is_client_error(error: BaseException) -> bool:
    """Return whether nats-py raised an error: the connection broke, which is handled elsewhere."""
    return type(error).__module__.partition(".")[0] == "nats"


def unreachable_error(address: str, problem: str) -> Unreachable:
    """Return the error for a server without a connection."""
    return Unreachable(address, problem, "start the server, or check the address and the network")


def map_error(error: BaseException, address: str) -> OmoideError:
    """Return the error of Omoide for one of nats-py."""
    if isinstance(error, OmoideError):
        return error
    if is_auth_error(error):
        return NotAllowed(address, "rejected the login", "check the user, the password or the credentials")
    number = error_code(error)
    if number in NO_JETSTREAM:
        return no_jetstream_error(address)
    if number in STREAM_FULL:
        return ServiceFailed(
            address, "is full: its stream takes no more", "let agents catch up, or raise max_bytes"
        )
    if number in NO_STORAGE:
        return ServiceFailed(
            address, f"has no room for the streams ({error_text(error)})", "lower max_bytes or replicas"
        )
    if number == NO_CLUSTER:
        return ServiceFailed(
            address, "is not a cluster, and stores no replicas", "use replicas=1, or three servers"
        )
    if is_transient(error):
        return unreachable_error(address, f"did not answer ({error_text(error)})")
    return ServiceFailed(address, f"refused: {error_text(error)}", "see what it says")


def no_jetstream_error(address: str) -> ServiceFailed:
    """Return the error for a server without JetStream."""
    return ServiceFailed(address, "has no JetStream", "start it with JetStream: nats-server -js")


def no_tls_error(address: str) -> ServiceFailed:
    """Return the error for a server to which a password would travel unencrypted."""
    return ServiceFailed(address, "has no TLS", "enable it there, or use nats:// on a trusted network")


def closed_error() -> Closed:
    """Return the error for a transport that is used after it was closed."""
    return Closed("nats", "is closed", "publish and subscribe before that, or open another one")


def wrong_loop_error() -> Invalid:
    """Return the error for an event loop that nats-py cannot run on."""
    return Invalid("event loop", "is not asyncio's, which NATS needs", "run with asyncio, or use the Bus")


class NatsKwargs(TypedDict, total=False):
    """Keyword arguments of `NatsTransport`: the fields of `NatsSettings`."""

    prefix: str
    replicas: int
    max_age: float
    max_bytes: int
    discard: str
    duplicate_window: float
    max_deliver: int
    ack_wait: float
    max_in_flight: int
    request_timeout: float
    connect_timeout: float


class NatsSettings(Value, frozen=True, kw_only=True):
    """Settings of storage, delivery and timeouts.

    Args:
        prefix: Begins the names of all streams and subjects; it keeps fleets on one server apart.
        replicas: The number of servers that store each signal.
        max_age: Seconds that a signal is stored.
        max_bytes: The size of each stream.
        discard: What a full stream does: refuse `new` signals, or drop `old` ones.
        duplicate_window: Seconds in which the server recognises a signal that is published again.
        max_deliver: The number of deliveries before a signal becomes a dead letter.
        ack_wait: Seconds after which an unacknowledged signal is delivered again.
        max_in_flight: The number of signals that are published at the same time.
        request_timeout: Seconds that a call waits through an outage.
        connect_timeout: Seconds that connecting may take.
    """

    prefix: str = "omoide"
    replicas: int = 1
    max_age: float = 7 * 86_400.0
    max_bytes: int = 256 * 1024 * 1024
    discard: str = "new"
    duplicate_window: float = 120.0
    max_deliver: int = 5
    ack_wait: float = 10.0
    max_in_flight: int = 256
    request_timeout: float = 30.0
    connect_timeout: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.prefix, str) or not _PREFIX.fullmatch(self.prefix):
            raise Invalid("prefix", f"is {self.prefix!r}", "use 1 to 64 letters, digits, - and _")
        if self.replicas not in REPLICA_COUNTS:
            raise Invalid("replicas", f"is {self.replicas!r}", "use 1, 3 or 5")
        check_choice(self.discard, "discard", DISCARD_POLICIES)
        for field in ("max_bytes", "max_deliver", "max_in_flight"):
            check_positive(getattr(self, field), field)
        for field in ("max_age", "duplicate_window", "ack_wait", "request_timeout", "connect_timeout"):
            if not check_number(getattr(self, field), field) > 0:
                raise Invalid(field, f"is {getattr(self, field)!r}", "use a number of seconds above 0")
        if self.duplicate_window > self.max_age:
            raise Invalid("duplicate_window", "lasts longer than signals are kept", "use at most max_age")

    @property
    def broadcast_stream(self) -> str:
        """The stream of signals to all."""
        return f"{self.prefix}_all"

    @property
    def agent_stream(self) -> str:
        """The stream of signals to one agent."""
        return f"{self.prefix}_to"

    @property
    def dead_letter_stream(self) -> str:
        """The stream of signals that could not be handled."""
        return f"{self.prefix}_dead"


def parse_servers(url: Any) -> list[str]:
    """Return the addresses in a list, or in a text with commas between them."""
    items = url.split(",") if isinstance(url, str) else url
    if not isinstance(items, Iterable) or isinstance(items, (bytes, dict)):
        raise WrongType("url", "an address such as nats://host:4222", url)
    addresses = [item.strip() if isinstance(item, str) else "" for item in items]
    for item in addresses:
        try:
            parts = urlsplit(item)
            usable = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable:  # the message does not repeat it: it may have a password
            raise Invalid("url", "is not the address of a NATS server", "use nats://host:4222")
    if not addresses:
        raise Invalid("url", "names no server", "use nats://host:4222")
    return addresses


def redact_addresses(addresses: list[str]) -> str:
    """Return addresses for an error message, without user and password."""
    parts = (urlsplit(part) for part in addresses)
    return ",".join(f"{part.scheme}://{part.hostname}:{part.port or 4222}" for part in parts)


class NatsConnection(ForkListener):
    """One connection at a time, from `open` to `close`.

    nats-py could reconnect by itself; it is not allowed to, because what it does then leaves sockets open,
    and looks like a connection that works. A new client is made instead.
    """

    def __init__(self, url: Any, settings: NatsSettings, options: dict[str, Any]) -> None:
        self._addresses = parse_servers(url)
        self.address = redact_addresses(self._addresses)
        self._settings = settings
        self._options = options
        self._client: Any = None
        self._js: Any = None
        self._connected = anyio.Event()
        self._disconnected = anyio.Event()
        self._scopes: set[CancelScope] = set()
        self._closing = False
        forks.register(self)

    def after_fork_in_child(self) -> None:
        """Close the socket of the parent, without a word to the server."""
        transport = getattr(self._client, "_transport", None)
        writer = getattr(transport, "_io_writer", None)
        socket = None if writer is None else writer.get_extra_info("socket")
        if socket is not None and socket.fileno() >= 0:
            forks.detach_descriptor(socket.fileno())

    @property
    def client(self) -> Any:
        """The current client."""
        return self._client

    @property
    def max_payload(self) -> int:
        """The number of bytes that the server accepts in one message."""
        return int(self._client.max_payload)

    @property
    def has_jetstream(self) -> bool:
        """True if the connected server has JetStream."""
        # nats-py has no public accessor for the information that a server sends first.
        return bool(self._client._server_info.get("jetstream"))

    async def open(self) -> None:
        """Connect, within `connect_timeout`."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise wrong_loop_error() from None
        await self._connect(self._settings.connect_timeout)

    async def run(self) -> None:
        """Reconnect whenever the connection breaks, for as long as it takes."""
        while not self._closing:
            with move_on_after(CHECK_INTERVAL_S):
                await self._disconnected.wait()
            if self._client.is_connected:
                continue
            # A client that fails while it closes does not call its callback.
            self._on_disconnect()
            try:
                await self._connect(self._settings.connect_timeout)
            except Exception as error:
                log.warning("nats: %s", error)
                await anyio.sleep(RECONNECT_DELAY_S)

    async def close(self) -> None:
        """Close the connection."""
        self._closing = True
        if self._client is not None:
            await self._client.close()

    async def wait_connected(self) -> None:
        """Wait until there is a connection."""
        await self._connected.wait()

    @contextmanager
    def cancel_on_disconnect(self) -> Iterator[CancelScope]:
        """Cancel a block when the connection breaks."""
        with CancelScope() as scope:
            self._scopes.add(scope)
            try:
                yield scope
            finally:
                self._scopes.discard(scope)

    async def request(self, call: Callable[[Any], Awaitable[T]], *, timeout: float | None = None) -> T:
        """Return the result of a call to JetStream; repeat it while that may help, within a timeout."""
        seconds = self._settings.request_timeout if timeout is None else timeout
        deadline, last = current_time() + seconds, None
        while (remaining := deadline - current_time()) > 0:
            try:
                with fail_after(remaining):
                    await self.wait_connected()
                    with self.cancel_on_disconnect():
                        return await call(self._js)
            except Exception as error:
                if not is_transient(error):
                    raise map_error(error, self.address) from error
                last = error
            await anyio.sleep(min(RETRY_DELAY_S, max(remaining, 0)))
        cause = "no connection" if last is None else error_text(last)
        raise unreachable_error(self.address, f"did not answer within {seconds:g} s ({cause})") from last

    async def _connect(self, timeout: float) -> None:
        """Connect to any of the servers; a client that may not sign in does not try again."""
        deadline, last = current_time() + timeout, None
        while not self._closing and (remaining := deadline - current_time()) > 0:
            client = self._new_client()
            try:
                with fail_after(remaining):
                    await self._check_tls()
                    await client.connect(
                        self._addresses,
                        closed_cb=self._closed_callback(client),
                        **self._connect_options(remaining),
                    )
                self._disconnected = anyio.Event()
                self._client, self._js = client, client.jetstream(timeout=REQUEST_TIMEOUT_S)
                self._connected.set()
                return
            except BaseException as error:
                with CancelScope(shield=True), suppress(Exception):
                    await client.close()
                if not isinstance(error, Exception):
                    raise
                if isinstance(error, ServiceFailed):
                    raise
                # Another attempt with the same credentials would fail, too.
                if is_auth_error(error):
                    raise map_error(error, self.address) from error
                last = error
            await anyio.sleep(min(RECONNECT_DELAY_S, max(0.0, deadline - current_time())))
        cause = "no answer" if last is None else error_text(last)
        raise unreachable_error(self.address, f"cannot be reached within {timeout:g} s ({cause})") from last

    async def _check_tls(self) -> None:
        """Raise where TLS is wanted and a server has none: nats-py would sign in without it."""
        for address in self._addresses:
            parts = urlsplit(address)
            if parts.scheme != "tls" and "tls" not in self._options:
                continue
            try:
                reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 4222)
            except OSError:
                continue  # a server that is down learns no password
            try:
                banner = await reader.readline()
            finally:
                writer.close()
            if not any(marker in banner for marker in _TLS_MARKERS):
                raise no_tls_error(self.address)

    def _new_client(self) -> Any:
        try:
            from nats.aio.client import Client
        except ImportError as error:
            raise MissingExtra("nats://", "nats") from error
        return Client()

    def _connect_options(self, remaining: float) -> dict[str, Any]:
        return {
            # See the class: a broken client is replaced, never revived.
            "allow_reconnect": False,
            "max_reconnect_attempts": 1,
            "reconnect_time_wait": 0.01,
            "connect_timeout": max(0.1, remaining / 2),
            "ping_interval": PING_INTERVAL_S,
            "max_outstanding_pings": 2,
            "error_cb": self._on_error,
            **self._options,
        }

    # Callbacks of nats-py

    async def _on_error(self, error: Exception) -> None:
        log.info("nats: %s: %s", self.address, type(error).__name__)

    def _closed_callback(self, client: Any) -> Callable[[], Awaitable[None]]:
        async def on_closed() -> None:
            if client is self._client:
                self._on_disconnect()

        return on_closed

    def _on_disconnect(self) -> None:
        if self._closing or self._disconnected.is_set():
            return
        log.warning("nats: %s: the connection broke", self.address)
        # An event cannot be cleared, so those who wait for the next connection get a new one.
        self._connected = anyio.Event()
        self._disconnected.set()
        for scope in [*self._scopes]:
            scope.cancel()


def to_token(text: str) -> str:
    """Return the part of a subject that stands for a text, and for no other one."""
    data = text.encode()
    text_token = "".join(chr(byte) if byte in _SAFE_BYTES else f"={byte:02X}" for byte in data)
    # `==` begins no other token: an escape is always `=` and a digit.
    return text_token if len(text_token) <= MAX_TOKEN_LENGTH else f"=={sha256(data).hexdigest()}"


def subject_of(prefix: str, signal_type: str, to: str | None) -> str:
    """Return the subject of a signal to all, or to one agent."""
    parts = [to_token(segment) for segment in signal_type.split(".")]
    return ".".join((prefix, "all", *parts) if to is None else (prefix, "to", to_token(to), *parts))


def agent_subjects(prefix: str, agent: str) -> str:
    """Return the wildcard subject of all signals to one agent."""
    return f"{prefix}.to.{to_token(agent)}.>"


def pattern_subjects(prefix: str, pattern: str) -> list[str]:
    """Return the subjects of all signals that a pattern matches, and of some more.

    What NATS cannot express is left to `Signal.matches`: `>` stands for one part or more, and only at the
    end, where `**` stands for any number anywhere.
    """
    parts: list[str] = []
    for segment in pattern.split("."):
        if segment == signal.MULTI_WILDCARD:
            rest = ".".join((prefix, "all", *parts))
            return [rest, f"{rest}.>"] if parts else [f"{rest}.>"]
        parts.append("*" if segment == signal.SINGLE_WILDCARD else to_token(segment))
    return [".".join((prefix, "all", *parts))]
