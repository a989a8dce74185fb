"""Supervised sessions.

A session is found by its id, opened when somebody asks for it, opened anew when it died, and closed when
nobody needs it any more. Whoever wants to hold on to one for longer than a call holds it with `using`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self

from anyio import CapacityLimiter, Lock, create_task_group, get_cancelled_exc_class, move_on_after, sleep
from anyio.lowlevel import checkpoint

from omoide import clock, ids
from omoide.core.entry import DEFAULT_NAMESPACE, check_positive
from omoide.core.value import check_count, check_instance
from omoide.errors import GaveUp, Invalid, MissingStore, NotFound, SessionBusy, TooManyAgents
from omoide.sessions.session import Session
from omoide.turns.controls import check_context
from omoide.turns.memory import memory_policy, namespace_of
from omoide.turns.spec import AgentSpec

# supervised: How is a session that somebody else holds: alive, busy, the one that is asked for?


SessionKey = tuple[str, str]
"""A namespace, and an id in it."""


def is_busy(session: Session) -> bool:
    """Whether a turn or a promotion is going on in it."""
    return session._state._running


def is_closed(session: Session) -> bool:
    """Whether somebody has closed it."""
    return session._closed


def is_alive(session: Session) -> bool:
    """Whether it can be used; while a turn runs, it is not the time to ask what else died."""
    return not session._closed and (is_busy(session) or failure_cause(session) is None)


def failure_cause(session: Session) -> str | None:
    """What ended its background work, which should go on for as long as the session is open."""
    ticking = session._background_task
    if session._closed or ticking is None or not ticking.done():
        return None
    error = None if ticking.cancelled() else ticking.exception()
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return "cancellation" if error is None else type(error).__name__


class SessionSlot:
    """Where one session lives; the lock is held while it is opened or closed."""

    __slots__ = ("closing", "holders", "lock", "session", "used_at")

    def __init__(self) -> None:
        self.session: Session | None = None
        self.lock = Lock()
        self.used_at = clock.now()
        self.holders = 0
        self.closing: asyncio.Task[Exception | None] | None = None

    @property
    def last_used(self) -> int:
        """When somebody asked for it, or it did something."""
        session = self.session
        return self.used_at if session is None else max(self.used_at, session.record.updated_at)

    @property
    def live_session(self) -> Session | None:
        """The session, if it can be used."""
        session = self.session
        return session if session is not None and self.closing is None and is_alive(session) else None

    @property
    def is_idle(self) -> bool:
        """Whether nobody would miss it."""
        return self.session is not None and self.holders == 0 and not is_busy(self.session)


def session_options(session: Session) -> dict[str, Any]:
    """The options that a session was opened with."""
    own = {"project_id": session._project_id, "lease_ms": session._lease_ms}
    return {**session._options, **session._memory_options, **own}


def session_key(id: str, spec: AgentSpec | None, options: Mapping[str, Any]) -> SessionKey:
    """Where a session lies: in the namespace that is given, or else in that of the agent's memory."""
    if spec is not None:
        check_instance(spec, "spec", kind=AgentSpec)
    namespace = options.get("namespace")
    if namespace is None:
        policy = None if spec is None else spec.memory
        namespace = DEFAULT_NAMESPACE if policy is None else namespace_of(policy, _context(options))
    return ids.check(namespace, "namespace"), ids.check(id, "session_id")


def check_session_matches(session: Session, spec: AgentSpec | None, options: Mapping[str, Any]) -> None:
    """Raise where somebody asks for the session of another agent, project or tenant."""
    if spec is not None and spec.id != session.spec.id:
        raise Invalid("spec", f"is of agent {spec.id!r}, the session of {session.spec.id!r}", "pass its own")
    project, own = options.get("project_id"), session.record.project_id
    if project is not None and project != own:
        raise Invalid("project_id", f"is {project!r}, the session's is {own!r}", "leave it out")
    policy = memory_policy(session.spec)
    if policy is None or (spec is None and "context" not in options):
        return
    if namespace_of(policy, _context(options)) != session._memory_namespace:
        raise Invalid("context", "names another namespace", "open a session for each of them")


def _context(options: Mapping[str, Any]) -> Mapping[str, Any]:
    context: Mapping[str, Any] = options.get("context", {})
    check_context(context)
    return context


# conversations: Which sessions are alive here, and who looks after them?


log = logging.getLogger("omoide.runtime")

MAX_CONCURRENT_CLOSES = 16
"""How many sessions are closed at the same time."""
MAX_FAILURES = 1_000
"""How many failures are remembered."""
POLL_INTERVAL_S = 0.01
"""How often it is seen whether a turn is over."""


class SessionPool:
    """The live sessions of one store.

    `options` are those of `Session`, for all of them. With `idle_ms`, `sweep` closes what nobody used for
    so long. With `limit`, the session that was not used for the longest time is closed for a new one; where
    each of them is held or runs a turn, a new one is refused. Without it there is no limit. A session whose
    background work died is opened anew, `restarts` times within `within_ms`. Closing waits `patience_ms`
    for a turn that is running.
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
        **options: Any,
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
            if error is None:  # what was raised in the block is what matters
                raise

    # Found

    def find(self, id: str, *, namespace: str = DEFAULT_NAMESPACE) -> Session | None:
        """The session of this id, if it is alive."""
        place = self._slots.get((namespace, id))
        return None if place is None else place.live_session

    def ids(self, *, namespace: str | None = None) -> list[str]:
        """The ids of the sessions that are alive, in one namespace or in all."""
        return sorted(
            id for space, id in self._slots
            if namespace in (None, space) and self.find(id, namespace=space) is not None
        )  # fmt: skip

    @property
    def failures(self) -> dict[SessionKey, str]:
        """Sessions that were not closed well, and why: the type of an error, or that time was over."""
        return {**self._failures}

    # Opened

    async def get(self, id: str, spec: AgentSpec | None = None, **options: Any) -> Session:
        """The session of this id: the one that is alive, or else it is opened.

        `options` are those of `Session`; they count when it is opened. Without a spec, the session has the
        one it was begun with. Use what you get at once, or hold it with `using`.
        """
        given = {**self._options, **_check_options(options)}
        key = session_key(id, spec, given)
        while True:
            place = self._slots.get(key)
            if place is None:
                self._check_restarts(key)
                if self._is_full:
                    await self._evict()
                    continue
                place = self._slots[key] = SessionSlot()
            session = place.live_session
            if session is not None:
                check_session_matches(session, spec, given)
                place.used_at = clock.now()
                return session
            if place.closing is None:
                await self._open_slot(key, place, spec, options)
            elif place.closing is asyncio.current_task():  # it would wait for itself
                raise Invalid("session", f"{id!r} is just being closed", "ask for it later")
            else:
                await asyncio.wait([place.closing])

    @asynccontextmanager
    async def acquire(self, id: str, spec: AgentSpec | None = None, **options: Any) -> AsyncIterator[Session]:
        """A block that holds the session of this id: it is not closed meanwhile for being idle."""
        session = await self.get(id, spec, **options)
        place = self._slots[session_key(id, spec, {**self._options, **options})]
        place.holders += 1
        try:
            yield session
        finally:
            place.holders -= 1
            place.used_at = clock.now()

    async def _open_slot(
        self, key: SessionKey, slot: SessionSlot, spec: AgentSpec | None, options: Mapping[str, Any]
    ) -> None:
        """Open a session in its place, unless somebody else did; who waits for a place looks again."""
        async with slot.lock:
            if self._slots.get(key) is not slot or slot.closing is not None or slot.live_session is not None:
                return
            try:
                before, slot.session = slot.session, None
                known = self._options if before is None else session_options(before)
                if before is not None:
                    await self._close_crashed(key, before)
                    spec = before.spec if spec is None else spec
                slot.session = await self._open_session(key, spec, {**known, **options})
            finally:
                if slot.session is None:
                    self._slots.pop(key, None)

    async def _open_session(
        self, key: SessionKey, spec: AgentSpec | None, options: Mapping[str, Any]
    ) -> Session:
        given = {**options, "store": self._store, "namespace": key[0]}
        if spec is None:
            session = await Session.load(key[1], **given)
        else:
            session = Session.open(spec, key[1], **given)
        return await session.__aenter__()

    async def _close_crashed(self, key: SessionKey, session: Session) -> None:
        """Close what died; too many deaths in a short time are not followed by another life."""
        cause = failure_cause(session)
        if cause is None:
            return  # it was closed by whoever had it
        log.warning("session %s died of %s", key[1], cause)
        self._crashes[key] = [*self._recent_crashes(key), (clock.now(), cause)]
        try:
            await session.close()
        except Exception as error:
            self._record_failure(key, type(error).__name__)
        self._check_restarts(key)

    def _recent_crashes(self, key: SessionKey) -> list[tuple[int, str]]:
        now = clock.now()
        return [one for one in self._crashes.get(key, ()) if now - one[0] < self.restart_window_ms]

    def _check_restarts(self, key: SessionKey) -> None:
        recent = self._recent_crashes(key)
        if len(recent) > self.max_restarts:
            raise GaveUp(f"session {key[1]!r}", len(recent), self.restart_window_ms / 1000, recent[-1][1])

    # Closed

    async def close(self, id: str | None = None, *, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Close a session, or all of them, with their final promotions; one that fails hinders no other.

        What one session fails with is raised; of several it is an `ExceptionGroup`. Where there is no time
        to wait for all, `failures` says which of them were left.
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

        async def one(key: SessionKey) -> None:
            error = await self._close_session(key)
            waiting.discard(key)
            if error is not None:
                error.add_note(f"in session {key[1]!r}")
                errors.append(error)

        try:
            await _for_each(one, sorted(waiting))
        except get_cancelled_exc_class():
            for key in sorted(waiting & {*self._slots}):
                self._record_failure(key, "not closed in time")
            raise
        if errors:
            raise ExceptionGroup("some sessions were not closed well", errors)

    async def sweep(self, now: int | None = None) -> list[str]:
        """Close what nobody used for `idle_ms`, and what is not held; the ids of what was closed.

        A session that cannot be saved now stays, and is tried again with the next sweep.
        """
        at = clock.resolve(now)
        self._prune()
        if self.idle_ms is None:
            return []
        since, closed = at - self.idle_ms, []

        async def one(key: SessionKey) -> None:
            place = self._slots.get(key)
            if place is None or not place.is_idle or place.last_used > since:
                return  # somebody came for it meanwhile
            if await self._close_slot(key, place, keep_on_failure=True) is None:
                closed.append(key[1])

        await _for_each(one, [key for key, place in self._slots.items() if place.last_used <= since])
        return sorted(closed)

    async def _close_session(self, key: SessionKey) -> Exception | None:
        """Close it after the turn that is running; what went wrong."""
        place = self._slots.get(key)
        if place is None or place.closing is asyncio.current_task():
            return None
        async with place.lock:
            pass  # it may just be opened
        with move_on_after(self.close_timeout_ms / 1000):
            while place.session is not None and is_busy(place.session):  # noqa: ASYNC110 - it rings no bell
                await sleep(POLL_INTERVAL_S)
        return await self._close_slot(key, place)

    async def _close_slot(
        self, key: SessionKey, slot: SessionSlot, *, keep_on_failure: bool = False
    ) -> Exception | None:
        """Close it now; what went wrong. Who does it `gently` keeps what cannot be saved, or is in use."""
        closing = slot.closing
        if closing is None:
            # In a task of its own: what is being written is written, whoever stops waiting for it.
            closing = slot.closing = asyncio.create_task(self._run_close(key, slot, keep_on_failure))
        await asyncio.wait([closing])
        return closing.result()

    async def _run_close(self, key: SessionKey, slot: SessionSlot, keep_on_failure: bool) -> Exception | None:
        async with slot.lock:
            session = slot.session
            try:
                if session is not None and keep_on_failure and not is_closed(session):
                    await _pause(session)
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

    # Room

    @property
    def _is_full(self) -> bool:
        return self.limit is not None and len(self._slots) >= self.limit

    async def _evict(self) -> None:
        """Close what was not used for the longest time."""
        tried: set[SessionKey] = set()
        self._prune()
        while self._is_full:
            closing = [one.closing for one in self._slots.values() if one.closing is not None]
            free = [
                key for key, place in self._slots.items()
                if key not in tried and place.is_idle and place.closing is None
            ]  # fmt: skip
            if free:
                key = min(free, key=lambda one: self._slots[one].last_used)
                tried.add(key)
                await self._close_slot(key, self._slots[key], keep_on_failure=True)
            elif closing:
                await asyncio.wait(closing, return_when=asyncio.FIRST_COMPLETED)
                await checkpoint()
            else:
                raise TooManyAgents("this set of sessions", self.limit or 0)

    def _prune(self) -> None:
        """Drop sessions that others closed, and deaths that were long ago."""
        for key, place in [*self._slots.items()]:
            if place.session is not None and is_closed(place.session) and place.closing is None:
                del self._slots[key]
        self._crashes = {key: recent for key in self._crashes if (recent := self._recent_crashes(key))}

    def _record_failure(self, key: SessionKey, reason: str) -> None:
        log.warning("session %s: %s", key[1], reason)
        self._failures.pop(key, None)
        self._failures[key] = reason
        if len(self._failures) > MAX_FAILURES:
            del self._failures[next(iter(self._failures))]


def _check_options(options: dict[str, Any]) -> dict[str, Any]:
    if "store" in options:
        raise Invalid("store", "is that of all sessions here", "leave it out")
    return options


async def _pause(session: Session) -> None:
    """Keep what a session holds, so that it loses nothing when it cannot be closed well."""
    with suppress(NotFound):  # it was erased
        await session.pause()


async def _for_each(work: Callable[[SessionKey], Awaitable[None]], keys: Iterable[SessionKey]) -> None:
    """Do this for each, some at a time."""
    limiter = CapacityLimiter(MAX_CONCURRENT_CLOSES)

    async def one(key: SessionKey) -> None:
        async with limiter:
            await work(key)

    async with create_task_group() as group:
        for key in keys:
            group.start_soon(one, key)
