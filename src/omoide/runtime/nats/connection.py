"""Settings, connection, error mapping, subjects.

What nats-py raises becomes one of ours here, and nowhere else. No message repeats an address with a password.

The link holds one connection. When it breaks it is made again, on the same server or on another one of the
cluster; whoever waits for something is told, and asks again.

`prefix.all.door.opened` is told to all, `prefix.to.ada.door.opened` to the agent `ada`. Types and ids may
hold any characters, and subjects may not: a byte that is no letter, digit, `-` or `_` becomes `=` and two
hexadecimal digits, so that no two texts become one.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from typing import Any, TypeVar
from urllib.parse import urlsplit

import anyio
from anyio import CancelScope, current_time, fail_after, move_on_after

from omoide.core import signal
from omoide.core.requests import check_positive
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

# failures: What does it mean when NATS says no?


NO_JETSTREAM = (10039, 10076)
FULL = (10077, 10122)
"""That a stream has as many bytes, or messages, as it may."""
NO_ROOM = (10023, 10028, 10047)
NOT_UNIQUE = (10099, 10100)
"""That a queue has a consumer for these subjects already."""
OTHER_CONFIG = 10058
NO_PEERS = 10005
"""That a cluster has too few servers for a stream at the moment; the others may be on their way."""
NO_CLUSTER = 10074
LASTING = (*NO_JETSTREAM, *FULL, *NO_ROOM, *NOT_UNIQUE, OTHER_CONFIG, NO_CLUSTER)
_SIGN_IN = ("authorization", "authentication", "credentials", "nkey", "jwt", "permissions")


def said(error: BaseException) -> str:
    """What an error of nats-py says, in a few words."""
    told = getattr(error, "description", None) or str(error).removeprefix("nats: ")
    return str(told) or type(error).__name__


def code(error: BaseException) -> int | None:
    """The number that JetStream gives an error."""
    found = getattr(error, "err_code", None)
    return found if isinstance(found, int) else None


def is_missing(error: BaseException) -> bool:
    """Whether it says that there is no such stream or consumer."""
    return getattr(error, "code", None) == 404


def is_sign_in(error: BaseException) -> bool:
    """Whether it says that whoever signs in may not."""
    text = f"{type(error).__name__} {error}".lower()
    return any(word in text for word in _SIGN_IN)


def is_passing(error: BaseException) -> bool:
    """Whether asking again in a moment may help: a lost connection, a leader that is being chosen."""
    if code(error) in LASTING or is_missing(error):
        return False
    status = getattr(error, "code", None)
    return code(error) == NO_PEERS or status is None or status in (408, 500, 503)


def is_of_client(error: BaseException) -> bool:
    """Whether nats-py raised it: a connection that broke, which is made again and told elsewhere."""
    return type(error).__module__.partition(".")[0] == "nats"


def unreachable(where: str, problem: str) -> Unreachable:
    """There is no connection."""
    return Unreachable(where, problem, "start the server, or check the address and the network")


def mapped(error: BaseException, where: str) -> OmoideError:
    """The error of ours that stands for one of nats-py."""
    if isinstance(error, OmoideError):
        return error
    if is_sign_in(error):
        return NotAllowed(where, "does not let us in", "check the user, the password or the credentials")
    number = code(error)
    if number in NO_JETSTREAM:
        return no_jetstream(where)
    if number in FULL:
        return ServiceFailed(
            where, "is full: its stream takes no more", "let agents catch up, or raise max_bytes"
        )
    if number in NO_ROOM:
        return ServiceFailed(
            where, f"has no room for the streams ({said(error)})", "lower max_bytes or replicas"
        )
    if number == NO_CLUSTER:
        return ServiceFailed(
            where, "is no cluster, and keeps no replicas", "use replicas=1, or three servers"
        )
    if is_passing(error):
        return unreachable(where, f"did not answer ({said(error)})")
    return ServiceFailed(where, f"refused: {said(error)}", "see what it says")


def no_jetstream(where: str) -> ServiceFailed:
    """A server that keeps nothing."""
    return ServiceFailed(where, "has no JetStream", "start it with JetStream: nats-server -js")


def no_tls(where: str) -> ServiceFailed:
    """A server to which a password would travel in the open."""
    return ServiceFailed(where, "speaks no TLS", "set it up there, or use nats:// where nobody listens")


def closed() -> Closed:
    """A transport that was used after its end."""
    return Closed("nats", "is closed", "publish and subscribe before that, or open another one")


def wrong_loop() -> Invalid:
    """An event loop that nats-py cannot run on."""
    return Invalid("event loop", "is not asyncio's, which NATS needs", "run with asyncio, or use the Bus")


# settings: What can be set about signals over NATS?


DISCARDS = ("new", "old")
REPLICAS = (1, 3, 5)
_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SCHEMES = ("nats", "tls", "ws", "wss")


class Settings(Value, frozen=True, kw_only=True):
    """How long signals are kept, how often they are brought, and how long anybody waits."""

    prefix: str = "omoide"
    replicas: int = 1
    max_age: float = 7 * 86_400.0
    max_bytes: int = 256 * 1024 * 1024
    discard: str = "new"
    duplicates: float = 120.0
    max_deliver: int = 5
    ack_wait: float = 10.0
    in_flight: int = 256
    patience: float = 30.0
    connect: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.prefix, str) or not _PREFIX.fullmatch(self.prefix):
            raise Invalid("prefix", f"is {self.prefix!r}", "use 1 to 64 letters, digits, - and _")
        if self.replicas not in REPLICAS:
            raise Invalid("replicas", f"is {self.replicas!r}", "use 1, 3 or 5")
        check_choice(self.discard, "discard", DISCARDS)
        for field in ("max_bytes", "max_deliver", "in_flight"):
            check_positive(getattr(self, field), field)
        for field in ("max_age", "duplicates", "ack_wait", "patience", "connect"):
            if not check_number(getattr(self, field), field) > 0:
                raise Invalid(field, f"is {getattr(self, field)!r}", "use a number of seconds above 0")
        if self.duplicates > self.max_age:
            raise Invalid("duplicates", "lasts longer than signals are kept", "use at most max_age")

    @property
    def all(self) -> str:
        """The stream of what is told to all."""
        return f"{self.prefix}_all"

    @property
    def to(self) -> str:
        """The stream of what is told to one agent."""
        return f"{self.prefix}_to"

    @property
    def dead(self) -> str:
        """The stream of what could not be handled."""
        return f"{self.prefix}_dead"


def servers(url: Any) -> list[str]:
    """The addresses in a list, or in a text with commas between them."""
    given = url.split(",") if isinstance(url, str) else url
    if not isinstance(given, Iterable) or isinstance(given, (bytes, dict)):
        raise WrongType("url", "an address such as nats://host:4222", url)
    found = [one.strip() if isinstance(one, str) else "" for one in given]
    for one in found:
        try:
            parts = urlsplit(one)
            usable = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port != 0
        except ValueError:
            usable = False
        if not usable:  # it is not repeated here: there may be a password in it
            raise Invalid("url", "is no address of a NATS server", "use nats://host:4222")
    if not found:
        raise Invalid("url", "names no server", "use nats://host:4222")
    return found


def shown(addresses: list[str]) -> str:
    """The addresses as an error may show them, without whoever signs in."""
    parts = (urlsplit(one) for one in addresses)
    return ",".join(f"{one.scheme}://{one.hostname}:{one.port or 4222}" for one in parts)


# link: Is there a connection to NATS?


PAUSE_S = 0.1
"""How long to wait before something that failed is tried again."""

AGAIN_S = 0.2
LOOK_S = 0.25
PING_S = 5.0
ANSWER_S = 5.0
"""How long one question may take before it is asked again."""

_TLS = (b'"tls_required":true', b'"tls_available":true')

log = logging.getLogger("omoide.runtime")

T = TypeVar("T")


class Link:
    """One connection at a time, from `open` to `close`.

    nats-py could connect again by itself; it is not let do so, because what it does then leaves sockets open,
    and cannot be told from a connection that works. A new client is made instead.
    """

    def __init__(self, url: Any, settings: Settings, options: dict[str, Any]) -> None:
        self._addresses = servers(url)
        self.where = shown(self._addresses)
        self._settings = settings
        self._options = options
        self._client: Any = None
        self._js: Any = None
        self._up = anyio.Event()
        self._lost = anyio.Event()
        self._waiting: set[CancelScope] = set()
        self._closing = False

    @property
    def client(self) -> Any:
        """The connection of the moment."""
        return self._client

    @property
    def largest(self) -> int:
        """How many bytes the server takes at once."""
        return int(self._client.max_payload)

    @property
    def keeps(self) -> bool:
        """Whether the server that we are connected to says that it has JetStream."""
        return bool(self._client._server_info.get("jetstream"))

    async def open(self) -> None:
        """Connect, within the time that was set."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise wrong_loop() from None
        await self._connect(self._settings.connect)

    async def run(self) -> None:
        """Connect anew whenever the connection breaks, for as long as it takes."""
        while not self._closing:
            with move_on_after(LOOK_S):
                await self._lost.wait()
            if self._client.is_connected:
                continue
            # A client that fails while it closes does not say that it has.
            self._broke()
            try:
                await self._connect(self._settings.connect)
            except Exception as error:
                log.warning("nats: %s", error)
                await anyio.sleep(AGAIN_S)

    async def close(self) -> None:
        """Let go of the connection."""
        self._closing = True
        if self._client is not None:
            await self._client.close()

    async def up(self) -> None:
        """Return when there is a connection."""
        await self._up.wait()

    @contextmanager
    def until_changed(self) -> Iterator[CancelScope]:
        """A block that is left at once when the connection breaks."""
        with CancelScope() as scope:
            self._waiting.add(scope)
            try:
                yield scope
            finally:
                self._waiting.discard(scope)

    async def asked(self, call: Callable[[Any], Awaitable[T]], *, within: float | None = None) -> T:
        """What a question to JetStream gives; it is asked again while that may help, and not for ever."""
        seconds = self._settings.patience if within is None else within
        deadline, last = current_time() + seconds, None
        while (left := deadline - current_time()) > 0:
            try:
                with fail_after(left):
                    await self.up()
                    with self.until_changed():
                        return await call(self._js)
            except Exception as error:
                if not is_passing(error):
                    raise mapped(error, self.where) from error
                last = error
            await anyio.sleep(min(PAUSE_S, max(left, 0)))
        why = "no connection" if last is None else said(last)
        raise unreachable(self.where, f"did not do it within {seconds:g} s ({why})") from last

    async def _connect(self, within: float) -> None:
        """Connect to any of the servers; whoever is turned away is not let in by asking again."""
        deadline, last = current_time() + within, None
        while not self._closing and (left := deadline - current_time()) > 0:
            client = self._made()
            try:
                with fail_after(left):
                    await self._check_tls()
                    await client.connect(self._addresses, closed_cb=self._ending(client), **self._how(left))
                self._lost = anyio.Event()
                self._client, self._js = client, client.jetstream(timeout=ANSWER_S)
                self._up.set()
                return
            except BaseException as error:
                with CancelScope(shield=True), suppress(Exception):
                    await client.close()
                if not isinstance(error, Exception):
                    raise
                if isinstance(error, ServiceFailed):
                    raise
                if is_sign_in(error):
                    raise mapped(error, self.where) from error
                last = error
            await anyio.sleep(min(AGAIN_S, max(0.0, deadline - current_time())))
        why = "no answer" if last is None else said(last)
        raise unreachable(self.where, f"cannot be reached within {within:g} s ({why})") from last

    async def _check_tls(self) -> None:
        """Raise where TLS is wanted and a server has none: nats-py would sign in without it."""
        for address in self._addresses:
            parts = urlsplit(address)
            if parts.scheme != "tls" and "tls" not in self._options:
                continue
            try:
                reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 4222)
            except OSError:
                continue  # one that is not there learns nothing
            try:
                told = await reader.readline()
            finally:
                writer.close()
            if not any(sign in told for sign in _TLS):
                raise no_tls(self.where)

    def _made(self) -> Any:
        try:
            from nats.aio.client import Client
        except ImportError as error:
            raise MissingExtra("nats://", "nats") from error
        return Client()

    def _how(self, left: float) -> dict[str, Any]:
        return {
            "allow_reconnect": False,
            "max_reconnect_attempts": 1,
            "reconnect_time_wait": 0.01,
            "connect_timeout": max(0.1, left / 2),
            "ping_interval": PING_S,
            "max_outstanding_pings": 2,
            "error_cb": self._failed,
            **self._options,
        }

    # What nats-py tells

    async def _failed(self, error: Exception) -> None:
        log.info("nats: %s: %s", self.where, type(error).__name__)

    def _ending(self, client: Any) -> Callable[[], Awaitable[None]]:
        async def ended() -> None:
            if client is self._client:
                self._broke()

        return ended

    def _broke(self) -> None:
        if self._closing or self._lost.is_set():
            return
        log.warning("nats: %s: the connection broke", self.where)
        self._up = anyio.Event()
        self._lost.set()
        for scope in [*self._waiting]:
            scope.cancel()


# subjects: Which subject does a signal travel under?


LONGEST = 200
"""How long a token may be; a longer one is replaced by a digest, because a subject has to fit into a line."""

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


def token(text: str) -> str:
    """One part of a subject that stands for a text, and for no other one."""
    data = text.encode()
    made = "".join(chr(byte) if byte in _PLAIN else f"={byte:02X}" for byte in data)
    # `==` begins no other token: an escape is always `=` and a digit.
    return made if len(made) <= LONGEST else f"=={sha256(data).hexdigest()}"


def told(prefix: str, signal_type: str, to: str | None) -> str:
    """The subject of a signal to all, or to one agent."""
    parts = [token(segment) for segment in signal_type.split(".")]
    return ".".join((prefix, "all", *parts) if to is None else (prefix, "to", token(to), *parts))


def inbox(prefix: str, agent: str) -> str:
    """All subjects of signals to one agent."""
    return f"{prefix}.to.{token(agent)}.>"


def wanted(prefix: str, pattern: str) -> list[str]:
    """The subjects of all signals that a pattern speaks of, and of some more.

    What NATS has no word for is left to `signal.matches`: `>` stands for one part or more, and only at the
    end, where `**` stands for any number anywhere.
    """
    parts: list[str] = []
    for segment in pattern.split("."):
        if segment == signal.ANY:
            rest = ".".join((prefix, "all", *parts))
            return [rest, f"{rest}.>"] if parts else [f"{rest}.>"]
        parts.append("*" if segment == signal.ANY_ONE else token(segment))
    return [".".join((prefix, "all", *parts))]
