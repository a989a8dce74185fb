"""How does a signal get from a stream to its handlers?

A channel reads one agent's post, or what is told to all under one pattern. It asks for a message, hands it to
every handler that wants it, confirms it when all have accepted, and asks for the next. A handler that raises
is told again after a pause, and what comes behind waits; a signal that fails too often is laid aside.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

import anyio
from anyio import CancelScope, create_task_group, get_cancelled_exc_class, move_on_after

from omoide.core.signal import Signal
from omoide.errors import Dropped, Invalid, OmoideError, OwnedElsewhere
from omoide.runtime.nats import consumers, failures, subjects
from omoide.runtime.nats.consumers import Reader
from omoide.runtime.nats.handing import Listener, Post, Report
from omoide.runtime.nats.link import PAUSE_S, Link
from omoide.runtime.nats.settings import Settings
from omoide.runtime.providers.calling import is_cancelled
from omoide.runtime.recent import Recent, mark

POLL_S = 20.0
"""How long one question for the next message stands."""
LEAVE_S = 2.0
"""How long leaving a stream may take."""
YIELD_S = 1.0
"""How long a reader of an agent's post that is gone waits: whoever removed it makes its own meanwhile."""
KNOWN = 4_096
"""So many signals are remembered, so that one that is brought again is not handled again."""

log = logging.getLogger("omoide.runtime")

_inside: ContextVar[Any] = ContextVar("omoide_nats_inside", default=None)


class Channel:
    """One reader of a stream, and the handlers it reads for."""

    def __init__(
        self,
        link: Link,
        settings: Settings,
        report: Report,
        bury: Callable[[bytes, str | None, str], Awaitable[None]],
        *,
        pattern: str,
        agent: str | None,
    ) -> None:
        self.name = pattern if agent is None else agent
        self.listeners: list[Listener] = []
        self._post = Post(self.name, settings.max_deliver, self.listeners, report)
        self.ending = False
        self.done = anyio.Event()
        self.scope = CancelScope()
        self.forget: Callable[[], None] = lambda: None
        self.counts = {"accepted": 0, "again": 0, "dropped": 0}
        self._link, self._settings = link, settings
        self._report, self._bury = report, bury
        self._pattern, self._agent = pattern, agent
        self._reader: Reader | None = None
        self._recent = Recent(KNOWN)
        self._client: Any = None
        self._subscription: Any = None
        self._inbox = ""
        self._asked = 0
        self._pulling: CancelScope | None = None
        self._at: Any = None
        self._stays = False

    async def open(self) -> None:
        """Have a reader on the server; of an agent's post there is one, and this is now it."""
        self._reader = await self._made(take=True)

    async def run(self) -> None:
        """Read until nobody listens any more."""
        _inside.set(self)
        try:
            with self.scope:
                async with create_task_group() as tasks:
                    tasks.start_soon(self._keep)
                    await self._read()
                    tasks.cancel_scope.cancel()
        finally:
            self.ending = True
            self.forget()
            with CancelScope(shield=True):
                await self._leave()
            self.done.set()

    async def left(self, listener: Listener) -> None:
        """A handler is told no more; with the last one the channel ends."""
        if listener in self.listeners:
            self.listeners.remove(listener)
        if self.listeners or self.ending:
            return
        self.ending = True
        self.forget()
        if self._pulling is not None:
            self._pulling.cancel()
        if self._at is None and _inside.get() is not self:
            with move_on_after(LEAVE_S):
                await self.done.wait()

    # Reading

    async def _read(self) -> None:
        while not self.ending:
            try:
                message = await self._next()
                if message is not None and not self.ending:
                    self._at = message
                    await self._take(message)
            except OwnedElsewhere as error:
                self._report(self.name, None, error)
                for listener in self.listeners:  # whoever has one can see that it is told no more
                    listener.closed = True
                return
            except Exception as error:
                # Whatever goes wrong here, the stream has the message still, and is read again.
                if failures.is_of_client(error):
                    log.info("nats: %s: reads again after: %s", self.name, type(error).__name__)
                else:
                    self._report(self.name, None, error)
                await anyio.sleep(PAUSE_S)
            finally:
                self._at = None

    async def _next(self) -> Any:
        """The next message, or None where there was none for a while."""
        await self._link.up()
        if self.ending:  # since then; nobody would cancel what begins now
            return None
        found: Any = None
        gone = False
        with self._link.until_changed(), CancelScope() as self._pulling:
            try:
                found, gone = await self._pulled()
            except get_cancelled_exc_class():
                if is_cancelled():
                    raise
                # The client was closed under us, and cancelled what was waited for.
        self._pulling = None
        if gone and not self.ending:
            await self._revive()
        return found

    async def _pulled(self) -> tuple[Any, bool]:
        """A message if one came, and whether the reader seems to be gone."""
        if self._client is not self._link.client:
            self._client = self._link.client
            self._inbox = self._client.new_inbox()
            self._subscription = await self._client.subscribe(f"{self._inbox}.*")
        assert self._reader is not None
        self._asked += 1
        mine = f"{self._inbox}.{self._asked}"
        question = json.dumps({"batch": 1, "expires": int(POLL_S * 1e9)}).encode()
        name = f"$JS.API.CONSUMER.MSG.NEXT.{self._reader.stream}.{self._reader.name}"
        await self._client.publish(name, question, mine)
        while True:
            try:
                message = await self._subscription.next_msg(timeout=POLL_S + 1)
            except TimeoutError:
                return None, False
            if not message.subject.startswith(self._inbox):
                return message, False
            if message.subject != mine:
                continue  # about an earlier question
            headers = message.headers or {}
            status, told = headers.get("Status"), str(headers.get("Description", "")).lower()
            if status == "503" or (status == "409" and "deleted" in told):
                return None, True
            if status == "409":
                await anyio.sleep(PAUSE_S)
            if status != "100":
                return None, False

    async def _revive(self) -> None:
        """Read on where the server has lost sight of the reader."""
        assert self._reader is not None
        if await consumers.is_there(self._link, self._reader):
            await anyio.sleep(PAUSE_S)  # a leader is being chosen
            return
        with CancelScope() as self._pulling:
            await anyio.sleep(0 if self._agent is None else YIELD_S)
        self._pulling = None
        if self.ending:
            return
        self._reader = await self._made(take=False)
        if self._agent is None:
            problem = "its place in the stream was lost, and signals in between with it"
            self._report(self.name, None, Dropped(self.name, "?", problem))

    async def _made(self, *, take: bool) -> Reader:
        prefix = self._settings.prefix
        if self._agent is None:
            return await consumers.listening(
                self._link, self._settings, subjects.wanted(prefix, self._pattern)
            )
        subject = subjects.inbox(prefix, self._agent)
        return await consumers.reading(self._link, self._settings, self._agent, subject, take=take)

    async def _keep(self) -> None:
        """Tell the server that what takes long is still worked on."""
        while True:
            await anyio.sleep(self._settings.ack_wait / 3)
            if self._at is not None:
                await self._confirm(self._at.in_progress)

    async def _leave(self) -> None:
        with move_on_after(LEAVE_S):
            try:
                if self._subscription is not None:
                    await self._subscription.unsubscribe()
                if self._reader is not None and not self._stays:
                    await consumers.dropped(self._link, self._reader, within=LEAVE_S)
            except Exception as error:
                # The next reader of the post removes it, or the server does after a while.
                log.info("nats: %s: its reader stays behind: %s", self.name, type(error).__name__)

    # Handing over

    async def _take(self, message: Any) -> None:
        number = message.metadata.sequence.stream
        try:
            signal = self._understood(message)
        except Exception as error:
            self.counts["dropped"] += 1
            self._report(self.name, None, error)
            await self._lay_aside(message, f"unreadable: {type(error).__name__}")
            return
        known = mark(signal)
        if known in self._recent:
            self.counts["again"] += 1
            await self._confirm(message.ack)
            return
        assert self._reader is not None
        tries = message.metadata.num_delivered - 1 + self._reader.before(number)
        accepted = await self._post.hand(signal, tries)
        if accepted is None and self._agent is not None and self._post.failed:
            self._stays = True  # so that the next reader knows that this one ended over the message
        elif accepted is None:
            await self._confirm(message.nak)
        elif accepted:
            self._recent.add(known)
            self.counts["accepted"] += 1
            await self._confirm(message.ack)
        else:
            self.counts["dropped"] += 1
            reason = f"it failed {self._settings.max_deliver} times, and lies in {self._settings.dead}"
            self._report(self.name, signal, Dropped(self.name, signal.type, reason))
            await self._lay_aside(message, "failed too often")

    def _understood(self, message: Any) -> Signal:
        signal = Signal.from_json(message.data)
        if message.subject != subjects.told(self._settings.prefix, signal.type, self._agent):
            raise Invalid("subject", "is not that of the signal in it", "publish with a NatsTransport")
        return signal

    async def _lay_aside(self, message: Any, reason: str) -> None:
        try:
            await self._bury(message.data, self._agent, reason)
        except OmoideError as error:
            # Better brought again than lost.
            self._report(self.name, None, error)
            await self._confirm(partial(message.nak, delay=self._settings.ack_wait))
            return
        await self._confirm(message.term)

    async def _confirm(self, saying: Callable[[], Awaitable[object]]) -> None:
        """Tell the server what became of a message; if it does not hear, it brings the message again."""
        try:
            await saying()
        except Exception as error:
            log.info("nats: %s: a message was not confirmed: %s", self.name, type(error).__name__)
