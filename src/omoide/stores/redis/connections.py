"""How does a process talk to the server?

Through a pool of connections that threads share and a forked process does not. Questions are asked again when
a connection breaks; so are commits, which the server knows by their numbers and does at most once.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha1
from typing import Any
from weakref import WeakSet

from redis import BlockingConnectionPool, Redis, exceptions
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from omoide import ids
from omoide.errors import Closed
from omoide.stores.redis.failures import FOREIGN, REFUSED, translated, translating, uncertain, was_sent
from omoide.stores.redis.packing import pack
from omoide.stores.redis.scripts import COMMIT, LEAVE, READ

Ask = Sequence[Any]
"""A command: its word, its key, and what else it needs; further keys as bytes in a `Key`."""

_POOL = 64
_TRIES = 4
_PAUSE_S = 0.02
_KEEP_S = 600.0

_log = logging.getLogger("omoide")


class Key(bytes):
    """A key among the arguments of a command."""


class Writer:
    """One who commits one thing after another, each under the next number."""

    def __init__(self) -> None:
        self.token = ids.uuid7()
        self.number = 0


class Connections:
    """The server, as one process sees it."""

    def __init__(
        self, url: str, name: str, *, timeout: float, cluster: bool = False, options: Mapping[str, Any]
    ) -> None:
        self.name = name
        self.timeout = timeout
        self.cluster = cluster
        self.closed = False
        self.epoch = 0
        """Grows when a connection broke: another server may have taken over, which knows less."""
        given: dict[str, Any] = {
            "socket_timeout": timeout,
            "socket_connect_timeout": min(timeout, 10.0),
            "retry": Retry(NoBackoff(), 0),
            "redis_connect_func": self._connected,
            **options,
        }
        self._met: WeakSet[Any] = WeakSet()
        self.client: Any
        with translating(name):
            if cluster:
                self.client = RedisCluster.from_url(url, **given)
            else:
                pool = BlockingConnectionPool.from_url(url, max_connections=_POOL, timeout=timeout, **given)
                self.client = Redis(connection_pool=pool)
        self.begin()

    def _connected(self, connection: Any) -> None:
        """Note that a connection is new: the client replaces those that broke while idle without a word."""
        if not self.cluster:  # whose client has greeted the server already
            connection.on_connect()
        if self.cluster or connection in self._met:
            self.epoch += 1
        self._met.add(connection)

    def begin(self) -> None:
        """Begin anew, as a forked process does: numbers of commits are its own."""
        self._writers: deque[Writer] = deque()

    def close(self) -> None:
        """Let go of all connections."""
        self.closed = True
        with translating(self.name):
            self.client.close()
            if not self.cluster:  # a pool that is given to a client is not closed with it
                self.client.connection_pool.disconnect()

    @contextmanager
    def writer(self) -> Iterator[Writer]:
        """Somebody to commit as, whom nobody else is meanwhile."""
        try:
            one = self._writers.pop()
        except IndexError:
            one = Writer()
        try:
            yield one
        finally:
            self._writers.append(one)

    def read(self, asks: Sequence[Ask]) -> list[Any]:
        """The answers to some questions about keys of one namespace, at one moment."""
        keys: dict[bytes, int] = {}
        job = [[ask[0], _place(keys, ask[1]), *(_placed(keys, part) for part in ask[2:])] for ask in asks]
        found: list[Any] = self._run(READ, [*keys], _args(job))
        return found

    def commit(self, writer: Writer, keys: Sequence[bytes], job: dict[str, Any]) -> list[bytes]:
        """Do a job at most once; what the server said."""
        writer.number += 1
        job.update(
            number=writer.number,
            writer=writer.token,
            life=ids.uuid7(),
            keep=int(1_000 * max(_KEEP_S, 4 * self.timeout)),
        )
        told: list[bytes] = self._run(COMMIT, keys, _args(job), changing=not job["look"])
        return told

    def enter(self, gate: bytes, writer: Writer, ms: int) -> bool:
        """Whether a writer may now write alone for a while."""
        with translating(self.name):
            return bool(self.client.set(gate, writer.token, nx=True, px=ms)) or (
                self.client.get(gate) == writer.token.encode()
            )

    def leave(self, gate: bytes, writer: Writer) -> None:
        """Let the others write again."""
        self._run(LEAVE, [gate], [writer.token.encode()])

    def ask(self, *command: Any) -> Any:
        """The answer to a plain command that changes nothing, or nothing that counts when done twice."""
        return self._trying(lambda: self.client.execute_command(*command), changing=False)

    def _run(
        self, script: str, keys: Sequence[bytes], args: Sequence[bytes], *, changing: bool = False
    ) -> Any:
        def run() -> Any:
            try:
                return self.client.evalsha(_digest(script), len(keys), *keys, *args)
            except exceptions.NoScriptError:
                return self.client.eval(script, len(keys), *keys, *args)

        return self._trying(run, changing=changing)

    def _trying(self, run: Callable[[], Any], *, changing: bool) -> Any:
        """Ask again when a connection breaks; but not when the server takes too long, which helps nobody."""
        sent, left = False, _TRIES
        while True:
            if self.closed:
                raise Closed(self.name, "is closed", "open it again")
            try:
                return run()
            except (exceptions.TimeoutError, exceptions.ConnectionError, OSError) as error:
                self.epoch += 1
                left -= 1
                sent = sent or was_sent(error)
                if left and not isinstance(error, (exceptions.TimeoutError, *REFUSED)):
                    _log.info("%s: connection lost (%s), trying again", self.name, type(error).__name__)
                    time.sleep(_PAUSE_S * (_TRIES - left))
                    continue
                raise (uncertain(self.name) if changing and sent else translated(error, self.name)) from error
            except FOREIGN as error:
                raise translated(error, self.name) from error


def _place(keys: dict[bytes, int], key: bytes) -> int:
    return keys.setdefault(bytes(key), len(keys) + 1)


def _placed(keys: dict[bytes, int], part: Any) -> Any:
    return _place(keys, part) if isinstance(part, Key) else part


def _args(job: Any) -> list[bytes]:
    """A job as a script takes it: packed, and after it the bytes that it mentions."""
    blobs: list[bytes] = []

    def plain(value: Any) -> Any:
        if isinstance(value, bytes):
            blobs.append(value)
            return -1 - len(blobs)
        if isinstance(value, (list, tuple)):
            return [plain(part) for part in value]
        return {name: plain(part) for name, part in value.items()} if isinstance(value, dict) else value

    packed = pack(plain(job))
    return [packed, *blobs]


def _digest(script: str) -> str:
    found = _DIGESTS.get(script)
    if found is None:
        found = _DIGESTS[script] = sha1(script.encode(), usedforsecurity=False).hexdigest()
    return found


_DIGESTS: dict[str, str] = {}
