"""Which agents may this runtime let live, and until when?

Each is claimed in the store for a time, and claimed again when a third of it has passed. What could not be
claimed again in time is lost, whatever the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio
from anyio import create_task_group, move_on_after

from omoide.core.recalling import check_positive
from omoide.core.scope import DEFAULT_NAMESPACE, Scope
from omoide.errors import IdTaken
from omoide.runtime.fleet.held import Held, now
from omoide.runtime.vaults.store import CHECKPOINT

if TYPE_CHECKING:
    from omoide.runtime.fleet.fleet import Fleet

WINDOW = 512
"""How many signals are remembered with each agent, so that none of them is handled twice."""

log = logging.getLogger("omoide.runtime")


class Leases:
    """The leases of one runtime, kept up from `run` to the end of its scope."""

    def __init__(self, store: Any, member: str, lease_ms: int, lose: Callable[[Held, str], None]) -> None:
        self.ms = check_positive(lease_ms, "lease_ms")
        self.held: dict[str, Held] = {}
        self.scope = anyio.CancelScope()
        self._store, self._member = store, member
        self._lose = lose

    async def run(self) -> None:
        """Renew what is held, and let go of what could not be renewed in time."""
        with self.scope:
            async with create_task_group() as tasks:
                tasks.start_soon(self._watch)
                while True:
                    await anyio.sleep(self.ms / 3_000)
                    for held in [*self.held.values()]:
                        held.unstick()
                        if held.is_deaf:
                            self._lose(held, "its post is read elsewhere")
                        if held.token and not held.lost:
                            tasks.start_soon(self._renew, held)

    async def take(self, id: str, fleet: Fleet) -> Held | None:
        """The right to let an agent live; None while somebody else has it."""
        if id in self.held:
            raise IdTaken(id)
        # Written down at once, so that nobody here takes it a second time: for the store we are one.
        held = self.held[id] = Held(fleet, id, window=WINDOW)
        asked = now()
        try:
            lease = await self._claim(id)
        except BaseException:
            self.forget(held)
            raise
        if lease is None:
            self.forget(held)
            return None
        held.token, held.deadline = lease.token, asked + self.ms / 1000
        return held

    async def release(self, held: Held) -> None:
        """Let others have an agent; a lease that is another's already is no error."""
        held.released.set()
        # For the store we are one: a claim that is under way could be answered after this, and be ours again.
        with move_on_after(self.ms / 1000):
            while held.renewing:
                held.quiet = anyio.Event()
                await held.quiet.wait()
        await self._store.release(CHECKPOINT, held.id, _scope(held.id), owner=self._member)

    def forget(self, held: Held) -> None:
        """An agent is no business of ours any more."""
        if self.held.get(held.id) is held:
            del self.held[held.id]
        held.gone.set()

    async def _claim(self, id: str) -> Any:
        return await self._store.claim(CHECKPOINT, id, _scope(id), owner=self._member, ttl_ms=self.ms)

    async def _renew(self, held: Held) -> None:
        if held.released.is_set():
            return
        asked = now()
        held.renewing += 1
        try:
            lease = await self._claim(held.id)
        except Exception as error:
            log.warning("agent %s: its lease could not be renewed: %s", held.id, type(error).__name__)
            return
        finally:
            held.renewing -= 1
            held.quiet.set()
        if held.released.is_set():
            return
        if lease is None or lease.token != held.token:
            self._lose(held, "its lease is another's")
        else:  # an earlier claim may be answered after a later one
            held.deadline = max(held.deadline, asked + self.ms / 1000)

    async def _watch(self) -> None:
        """End agents whose lease ran out while the store could not be asked."""
        while True:
            await anyio.sleep(self.ms / 20_000)
            for held in [*self.held.values()]:
                if held.token and not held.lost and not held.holds():
                    self._lose(held, "its lease ran out")


def _scope(id: str) -> Scope:
    return Scope(namespace=DEFAULT_NAMESPACE, agent_id=id)
