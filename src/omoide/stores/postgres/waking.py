"""Who is told at once when something changes?

One connection of the store listens, while anybody waits, and rings for whoever waits for that namespace. A
message may be lost, with its server or in a pooler that does not pass it on: whoever waits looks from time to
time by himself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING

import anyio
import psycopg
from anyio import from_thread
from anyio.lowlevel import current_token

from omoide.errors import OmoideError
from omoide.stores.local import LocalStore, hop
from omoide.stores.postgres.connections import Connections, channel, message

if TYPE_CHECKING:
    from omoide.stores.postgres.store import PostgresStore

LOOK_S = 2.0
"""How often who waits looks by himself."""

_PORTION_S = 0.2  # that the listener waits before it sees whether it is still needed
_IDLE_S = 30.0  # that it stays when nobody waits
_JOIN_S = 2.0  # it may be about to ring for the very thread that waits for it
_AGAIN_S = 0.5  # until it tries again to reach a server that is gone

Ring = Callable[[], object]


class Bells:
    """Rings for those who wait for a change."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._lock = Lock()
        self._waiting: dict[str, list[Ring]] = {}
        self._thread: Thread | None = None
        self._closed = False

    @contextmanager
    def hung(self, namespace: str, ring: Ring) -> Iterator[None]:
        """Ring inside the block when a namespace changes, and sometimes without need."""
        key = message(self._connections.schema, namespace)
        with self._lock:
            self._waiting.setdefault(key, []).append(ring)
            if self._thread is None and not self._closed:
                self._thread = Thread(target=self._listen, name="omoide-listens", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._waiting[key].remove(ring)
                if not self._waiting[key]:
                    del self._waiting[key]

    def close(self) -> None:
        """Listen no more."""
        with self._lock:
            self._closed, thread = True, self._thread
        if thread is not None:
            thread.join(_JOIN_S)

    def _listen(self) -> None:
        while not self._closed:
            try:
                with self._connections.connected() as connection:
                    connection.execute(f"LISTEN {channel(self._connections.schema)}")
                    self._ring(None)  # something may have changed before
                    if self._hear(connection):
                        return
            except (psycopg.Error, OmoideError):
                if self._over(time.monotonic()):
                    return
                time.sleep(_AGAIN_S)

    def _hear(self, connection: psycopg.Connection[tuple[object, ...]]) -> bool:
        """Ring for what is heard; whether nobody has waited for long."""
        used = time.monotonic()
        while not self._closed:
            for told in connection.notifies(timeout=_PORTION_S, stop_after=1):
                self._ring(told.payload)
            if self._waiting:
                used = time.monotonic()
            elif self._over(used + _IDLE_S):
                return True
        return True

    def _over(self, until: float) -> bool:
        """Whether nobody waits, and a time has passed; then the next one starts another listener."""
        with self._lock:
            over = not self._waiting and time.monotonic() >= until
            if over:
                self._thread = None
            return over

    def _ring(self, key: str | None) -> None:
        with self._lock:
            chosen = self._waiting.values() if key is None else [self._waiting.get(key, [])]
            rings = [ring for some in chosen for ring in some]
        for ring in rings:
            with suppress(RuntimeError):  # whose event loop is over waits no more
                ring()


class WakingStore(LocalStore):
    """A store whose users can wait for a change."""

    def __init__(self, sync: PostgresStore, url: str) -> None:
        super().__init__(sync, url)
        self._core = sync

    async def wait(self, namespace: str, *, after: int, within: float) -> bool:
        """Wait for a change after a sequence number, at most so many seconds; whether there is one."""
        deadline = time.monotonic() + within
        token = current_token()
        rung = anyio.Event()

        def ring() -> None:
            from_thread.run_sync(rung.set, token=token)

        with self._core.bells.hung(namespace, ring):
            while True:
                if await hop(self._core.last_change, namespace) > after:
                    return True
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                with anyio.move_on_after(min(left, LOOK_S)):
                    await rung.wait()
                rung = anyio.Event()
