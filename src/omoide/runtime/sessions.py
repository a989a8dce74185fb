"""Keep a pool of live sessions.

A session is found by its id, opened when it is needed, opened again when its background work crashed, and
closed when it is idle. To keep one open for longer than a call, use `SessionPool.acquire`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self, Unpack

from anyio import CapacityLimiter, Lock, create_task_group, get_cancelled_exc_class, move_on_after, sleep
from anyio.lowlevel import checkpoint

from omoide import clock, ids
from omoide.core.entry import DEFAULT_NAMESPACE, check_positive
from omoide.core.value import check_count, check_instance
from omoide.errors import GaveUp, Invalid, MissingStore, NotFound, SessionBusy, TooManyAgents
from omoide.sessions.session import Session, SessionKwargs, merge_aliases
from omoide.turns.controls import check_context
from omoide.turns.memory import memory_policy, namespace_of
from omoide.turns.spec import AgentSpec

SessionKey = tuple[str, str]
"""A namespace, and an id in it."""

log = logging.getLogger("omoide.runtime")
MAX_CONCURRENT_CLOSES = 16
"""The number of sessions that are closed at the same time."""
MAX_FAILURES = 1_000
"""The number of failures that are remembered."""
POLL_INTERVAL_S = 0.01
"""The interval in which closing checks whether a turn is over."""


class PoolKwargs(SessionKwargs, total=False):
    """Keyword arguments for a session of a pool: those of `Session.open` without its store."""

    namespace: str | None


def is_alive(session: Session) -> bool:
    """Return whether a session can be used; during a turn its background work is not checked."""
    return not session.is_closed and (session.is_busy or session.background_failure is None)


class SessionSlot:
    """The place of one session in the pool; its lock is held while the session is opened or closed."""

    __slots__ = ("closing", "holders", "lock", "session", "used_at")

    def __init__(self) -> None:
        self.session: Session | None = None
        self.lock = Lock()
        self.used_at = clock.now()
        self.holders = 0
        self.closing: asyncio.Task[Exception | None] | None = None

    @property
    def last_used(self) -> int:
        """The moment of the last request for the session, or of its last activity."""
        session = self.session
        return self.used_at if session is None else max(self.used_at, session.record.updated_at)

    @property
    def live_session(self) -> Session | None:
        """The session, if it can be used."""
        session = self.session
        return session if session is not None and self.closing is None and is_alive(session) else None

    @property
    def is_idle(self) -> bool:
        """True if the session is open, no caller has acquired it, and no turn runs in it."""
        return self.session is not None and self.holders == 0 and not self.session.is_busy


def session_key(id: str, spec: AgentSpec | None, options: Mapping[str, Any]) -> SessionKey:
    """Return the key of a session: its namespace, given or that of the agent's memory, and its id."""
    if spec is not None:
        check_instance(spec, "spec", kind=AgentSpec)
    namespace = options.get("namespace")
    if namespace is None:
        policy = None if spec is None else spec.memory
        namespace = DEFAULT_NAMESPACE if policy is None else namespace_of(policy, _context(options))
    return ids.check(namespace, "namespace"), ids.check(id, "session_id")


def check_session_matches(session: Session, spec: AgentSpec | None, options: Mapping[str, Any]) -> None:
    """Raise `Invalid` where the session belongs to another agent, user, project or tenant than requested."""
    if spec is not None and spec.id != session.spec.id:
        raise Invalid("spec", f"is of agent {spec.id!r}, the session of {session.spec.id!r}", "pass its own")
    user = options.get("user_id")
    if user is not None and user != session.record.user_id:
        raise Invalid("user_id", f"is {user!r}, and the session is not of this user", "pass its own")
    project, own = options.get("project_id"), session.record.project_id
    if project is not None and project != own:
        raise Invalid("project_id", f"is {project!r}, the session's is {own!r}", "leave it out")
    policy = memory_policy(session.spec)
    if policy is None or (spec is None and "context" not in options):
        return
    if namespace_of(policy, _context(options)) != session.memory_namespace:
        raise Invalid("context", "names another namespace", "open a session for each of them")


def _context(options: Mapping[str, Any]) -> Mapping[str, Any]:
    context: Mapping[str, Any] = options.get("context", {})
    check_context(context)
    return context


class SessionPool:
    """The live sessions of one store.

    A session whose background work crashed is opened again, up to `max_restarts` times within
    `restart_window_ms`; then it is `GaveUp`.

    Args:
        store: The store of all sessions.
        idle_ms: Milliseconds of disuse after which `sweep` closes a session; None for never.
        limit: The number of live sessions. The least recently used one is closed for a new one; where each is
            held or runs a turn, a new one is refused. None for no limit.
        max_restarts: The number of crashes that are tolerated within the window.
        restart_window_ms: The length of that window.
        close_timeout_ms: Milliseconds that closing waits for a turn that is running.
        options: Options of `Session`, for all of them.
    """

    def __init__(
        self,
        store: Any,
        *,
        idle_ms: int | None = None,
        limit: int | None = None,
        max_restarts: int = 3,
        restart_window_ms: int = 60_000,
        close_timeout_ms: int = 10_000,
        **options: Unpack[PoolKwargs],
    ) -> None:
        if store is None:
            raise MissingStore("store")
        self.idle_ms = None if idle_ms is None else check_positive(idle_ms, "idle_ms")
        self.limit = None if limit is None else check_positive(limit, "limit")
        self.max_restarts = check_count(max_restarts, "max_restarts")
        self.restart_window_ms = check_positive(restart_window_ms, "restart_window_ms")
        self.close_timeout_ms = check_count(close_timeout_ms, "close_timeout_ms")
        self._store = store
        self._options = _check_options(options)
        self._slots: dict[SessionKey, SessionSlot] = {}
        self._crashes: dict[SessionKey, list[tuple[int, str]]] = {}
        self._failures: dict[SessionKey, str] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except Exception:
            if error is None:  # an error of the block matters more
                raise

    # Lookup

    def find(self, id: str, *, namespace: str = DEFAULT_NAMESPACE) -> Session | None:
        """Return the session of this id, if it is live."""
        slot = self._slots.get((namespace, id))
        return None if slot is None else slot.live_session

    def ids(self, *, namespace: str | None = None) -> list[str]:
        """Return the ids of the live sessions, in one namespace or in all."""
        return sorted(
            id for space, id in self._slots
            if namespace in (None, space) and self.find(id, namespace=space) is not None
        )  # fmt: skip

    @property
    def failures(self) -> dict[SessionKey, str]:
        """Sessions that were not closed cleanly, with the class name of the error or `not closed in time`."""
        return {**self._failures}

    # Opening

    async def get(self, id: str, spec: AgentSpec | None = None, **options: Unpack[PoolKwargs]) -> Session:
        """Return the live session of this id, or open it.

        Use the session at once, or keep it open with `acquire`.

        Args:
            id: The session.
            spec: Its agent; None for the one that the session was started with.
            options: Options of `Session`, which count when it is opened.

        Raises:
            GaveUp: The session crashed too often.
            TooManyAgents: The pool is full, and no session is idle.
        """
        given = _check_options(options)
        merged = {**self._options, **given}
        key = session_key(id, spec, merged)
        while True:
            slot = self._slots.get(key)
            if slot is None:
                self._check_restarts(key)
                if self._is_full:
                    await self._evict()
                    continue
                slot = self._slots[key] = SessionSlot()
            session = slot.live_session
            if session is not None:
                check_session_matches(session, spec, merged)
                slot.used_at = clock.now()
                return session
            if slot.closing is None:
                await self._open_slot(key, slot, spec, given)
            elif slot.closing is asyncio.current_task():  # it would wait for itself
                raise Invalid("session", f"{id!r} is being closed", "request it later")
            else:
                await asyncio.wait([slot.closing])

    @asynccontextmanager
    async def acquire(
        self, id: str, spec: AgentSpec | None = None, **options: Unpack[PoolKwargs]
    ) -> AsyncIterator[Session]:
        """Return the session of this id for a block, in which it is not closed for being idle."""
        session = await self.get(id, spec, **options)
        slot = self._slots[session_key(id, spec, {**self._options, **options})]
        slot.holders += 1
        try:
            yield session
        finally:
            slot.holders -= 1
            slot.used_at = clock.now()

    async def _open_slot(
        self, key: SessionKey, slot: SessionSlot, spec: AgentSpec | None, options: Mapping[str, Any]
    ) -> None:
        """Open the session of a slot, unless another task did; the caller looks at the slot again."""
        async with slot.lock:
            # Another task may have opened or closed it while this one waited for the lock.
            if self._slots.get(key) is not slot or slot.closing is not None or slot.live_session is not None:
                return
            try:
                crashed, slot.session = slot.session, None
                defaults = self._options if crashed is None else crashed.options
                if crashed is not None:
                    await self._close_crashed(key, crashed)
                    spec = crashed.spec if spec is None else spec
                slot.session = await self._open_session(key, spec, {**defaults, **options})
            finally:
                if slot.session is None:
                    self._slots.pop(key, None)

    async def _open_session(
        self, key: SessionKey, spec: AgentSpec | None, options: Mapping[str, Any]
    ) -> Session:
        merged = {**options, "store": self._store, "namespace": key[0]}
        if spec is None:
            session = await Session.load(key[1], **merged)
        else:
            session = Session.open(spec, key[1], **merged)
        return await session.__aenter__()

    async def _close_crashed(self, key: SessionKey, session: Session) -> None:
        """Close a session that crashed, and raise `GaveUp` if it crashed too often."""
        cause = session.background_failure
        if cause is None:
            return  # it was closed outside of the pool
        log.warning("session %s crashed with %s", key[1], cause)
        self._crashes[key] = [*self._recent_crashes(key), (clock.now(), cause)]
        try:
            await session.close()
        except Exception as error:
            self._record_failure(key, type(error).__name__)
        self._check_restarts(key)

    def _recent_crashes(self, key: SessionKey) -> list[tuple[int, str]]:
        now = clock.now()
        return [crash for crash in self._crashes.get(key, ()) if now - crash[0] < self.restart_window_ms]

    def _check_restarts(self, key: SessionKey) -> None:
        recent = self._recent_crashes(key)
        if len(recent) > self.max_restarts:
            raise GaveUp(f"session {key[1]!r}", len(recent), self.restart_window_ms / 1000, recent[-1][1])

    # Closing

    async def close(self, id: str | None = None, *, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Close a session, or all, with their final promotions; one failure does not prevent the others.

        Raises:
            ExceptionGroup: What several sessions failed with; the error itself for a single session. Where
                time ran out, `failures` has those that were left.
        """
        if id is not None:
            self._crashes.pop((namespace, id), None)
            error = await self._close_session((namespace, id))
            if error is not None:
                raise error
            return
        self._crashes.clear()
        waiting = {*self._slots}
        errors: list[Exception] = []

        async def close_one(key: SessionKey) -> None:
            error = await self._close_session(key)
            waiting.discard(key)
            if error is not None:
                error.add_note(f"in session {key[1]!r}")
                errors.append(error)

        try:
            await _for_each(close_one, sorted(waiting))
        except get_cancelled_exc_class():
            for key in sorted(waiting & {*self._slots}):
                self._record_failure(key, "not closed in time")
            raise
        if errors:
            raise ExceptionGroup("some sessions could not be closed", errors)

    async def sweep(self, now: int | None = None) -> list[str]:
        """Close the sessions that are not acquired and were not used for `idle_ms`, and return their ids.

        A session that cannot be saved now stays open, and is tried again with the next sweep.
        """
        at = clock.resolve(now)
        self._prune()
        if self.idle_ms is None:
            return []
        since, closed = at - self.idle_ms, []

        async def close_idle(key: SessionKey) -> None:
            slot = self._slots.get(key)
            if slot is None or not slot.is_idle or slot.last_used > since:
                return  # it was used meanwhile
            if await self._close_slot(key, slot, keep_on_failure=True) is None:
                closed.append(key[1])

        await _for_each(close_idle, [key for key, slot in self._slots.items() if slot.last_used <= since])
        return sorted(closed)

    async def _close_session(self, key: SessionKey) -> Exception | None:
        """Close a session after the turn that is running, and return its error."""
        slot = self._slots.get(key)
        if slot is None or slot.closing is asyncio.current_task():
            return None
        async with slot.lock:
            pass  # wait while it is being opened
        with move_on_after(self.close_timeout_ms / 1000):
            while slot.session is not None and slot.session.is_busy:  # noqa: ASYNC110 - there is no event for it
                await sleep(POLL_INTERVAL_S)
        return await self._close_slot(key, slot)

    async def _close_slot(
        self, key: SessionKey, slot: SessionSlot, *, keep_on_failure: bool = False
    ) -> Exception | None:
        """Close the session of a slot now, and return its error.

        With `keep_on_failure`, a session that cannot be saved, or is in use, stays open.
        """
        closing = slot.closing
        if closing is None:
            # In a task of its own: a caller that is cancelled does not interrupt the write.
            closing = slot.closing = asyncio.create_task(self._run_close(key, slot, keep_on_failure))
        await asyncio.wait([closing])
        return closing.result()

    async def _run_close(self, key: SessionKey, slot: SessionSlot, keep_on_failure: bool) -> Exception | None:
        async with slot.lock:
            session = slot.session
            try:
                if session is not None and keep_on_failure and not session.is_closed:
                    await _pause(session)
                # Saved: from here on it is closed, whatever happens.
                keep_on_failure = False
                if session is not None:
                    await session.close()
                self._failures.pop(key, None)
            except Exception as error:
                if not isinstance(error, SessionBusy):
                    self._record_failure(key, type(error).__name__)
                return error
            finally:
                if keep_on_failure:
                    slot.closing = None
                else:
                    slot.session = None
                    if self._slots.get(key) is slot:
                        del self._slots[key]
            return None

    # Capacity

    @property
    def _is_full(self) -> bool:
        return self.limit is not None and len(self._slots) >= self.limit

    async def _evict(self) -> None:
        """Close the least recently used sessions until there is room."""
        tried: set[SessionKey] = set()
        self._prune()
        while self._is_full:
            closing = [slot.closing for slot in self._slots.values() if slot.closing is not None]
            free = [
                key for key, slot in self._slots.items()
                if key not in tried and slot.is_idle and slot.closing is None
            ]  # fmt: skip
            if free:
                key = min(free, key=lambda candidate: self._slots[candidate].last_used)
                tried.add(key)
                await self._close_slot(key, self._slots[key], keep_on_failure=True)
            elif closing:
                await asyncio.wait(closing, return_when=asyncio.FIRST_COMPLETED)
                await checkpoint()
            else:
                raise TooManyAgents("the session pool", self.limit or 0)

    def _prune(self) -> None:
        """Remove sessions that others closed, and crashes outside of the window."""
        for key, slot in [*self._slots.items()]:
            if slot.session is not None and slot.session.is_closed and slot.closing is None:
                del self._slots[key]
        self._crashes = {key: recent for key in self._crashes if (recent := self._recent_crashes(key))}

    def _record_failure(self, key: SessionKey, reason: str) -> None:
        log.warning("session %s: %s", key[1], reason)
        self._failures.pop(key, None)
        self._failures[key] = reason
        if len(self._failures) > MAX_FAILURES:
            del self._failures[next(iter(self._failures))]


def _check_options(options: Mapping[str, Any]) -> dict[str, Any]:
    if "store" in options:
        raise Invalid("store", "is shared by all sessions of the pool", "leave it out")
    return merge_aliases(options)


async def _pause(session: Session) -> None:
    """Save what a session holds, so that nothing is lost when it cannot be closed cleanly."""
    with suppress(NotFound):  # it was erased
        await session.pause()


async def _for_each(work: Callable[[SessionKey], Awaitable[None]], keys: Iterable[SessionKey]) -> None:
    """Run work for each key, some of them at a time."""
    # Each close writes and may promote; all at once would crowd the store.
    limiter = CapacityLimiter(MAX_CONCURRENT_CLOSES)

    async def work_within_limit(key: SessionKey) -> None:
        async with limiter:
            await work(key)

    async with create_task_group() as group:
        for key in keys:
            group.start_soon(work_within_limit, key)
