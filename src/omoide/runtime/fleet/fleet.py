"""Fleet: ownership and takeover.

When the agent has handled it and is saved, with what it sends. Then, and not before, the transport may forget
it. What hinders that for a while is waited for; only a signal over which the agent crashes is given back as
failed, so that one which always does is laid aside in the end.

A runtime of a fleet claims an agent before it lets it live, and renews that lease as long as it does. A lease
that was not given back and not renewed runs out; then another runtime takes the agent up as it was saved
last. Whoever loses a lease ends the agent at once, and can neither save it nor send for it any more.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from anyio import move_on_after

from omoide import ids
from omoide.core.agent import Agent
from omoide.core.definition import Definition
from omoide.core.entry import DEFAULT_NAMESPACE
from omoide.core.frozen import check_text
from omoide.core.requests import check_positive
from omoide.core.signal import Signal
from omoide.errors import (
    Dropped,
    IdTaken,
    Invalid,
    MissingStore,
    NotFound,
    NotRunning,
    OwnedElsewhere,
    Unrouted,
)
from omoide.runtime.fleet.directory import REPLY, Asking, Place, Places, without_reply
from omoide.runtime.fleet.leases import FencedVault, Held, Leases, Note, now
from omoide.runtime.mailbox import Letter, Reply, Save
from omoide.runtime.vaults import put_aside, taken_up
from omoide.stores.protocols import Claims, Documents, ListsDocuments
from omoide.verbs import offering

if TYPE_CHECKING:
    from omoide.runtime.runtime import Runtime
    from omoide.runtime.server import AgentServer


# arriving: When has a signal that came over the transport been handled?


PAUSES = (0.02, 0.05, 0.1, 0.2, 0.5)
"""How many seconds pass before something is tried again that was hindered."""

log = logging.getLogger("omoide.runtime")


class Arriving:
    """The handler of what is told to one agent of a fleet."""

    def __init__(self, fleet: Fleet, held: Held) -> None:
        self._fleet = fleet
        self._held = held

    async def __call__(self, request: Signal) -> None:
        """Return when a signal is handled and saved; raise when it could not be, here."""
        signal, tries = without_reply(request), 0
        lost: Unrouted | None = None
        while True:
            try:
                agent = await self._handled(signal)
            except Unrouted as error:
                lost = error  # it was handled: the agent reported that it knows no such signal
                continue  # what it did about that is not saved yet
            except Dropped:
                if not self._is_ending():
                    raise  # the agent crashed over it
            except NotRunning:
                raise
            except Exception as error:
                # The store, or the transport, is not there: the agent has handled it, and is saved later.
                self._fleet.note_hindered(self._held, error)
            else:
                await self._answer(request, agent if lost is None else None, lost)
                return
            await anyio.sleep(PAUSES[min(tries, len(PAUSES) - 1)])
            tries += 1

    async def _handled(self, signal: Signal) -> Agent:
        held = self._held
        server = self._fleet.runtime.whereis(held.id)
        if server is None or server.keeping.hold is not held or not held.holds():
            await held.gone.wait()  # by then nobody listens here, and the next owner is told
            raise NotRunning(held.id)
        if not held.knows(signal):
            return await self._fleet.runtime.handled_by(held.id, Letter(signal, Reply()))
        return server.agent if held.settled else await self._saved(server)

    async def _saved(self, server: AgentServer) -> Agent:
        reply = Reply()
        if not server.mailbox.push(Save(reply)):
            raise Invalid("mailbox", "is full", "try again later")
        agent: Agent = await reply.wait()
        return agent

    def _is_ending(self) -> bool:
        """Whether the agent is about to end here, or has: then nothing is wrong with the signal."""
        server = self._fleet.runtime.whereis(self._held.id)
        return server is None or server.mailbox.closed or not self._held.holds()

    async def _answer(self, request: Signal, agent: Agent | None, error: Exception | None = None) -> None:
        if REPLY not in request.extensions:
            return
        try:
            try:
                await self._fleet.asking.answered(request, agent, error)
            except Invalid as problem:  # a state that is too large to be sent
                await self._fleet.asking.answered(request, None, problem)
        except Exception as problem:
            # The signal was handled and saved: it did not fail because whoever asked cannot be told.
            log.warning("agent %s: could not answer: %s", self._held.id, type(problem).__name__)


# fleet: Who lets which agent live, and who takes over from a runtime that is gone?


LEASE_MS = 15_000


class Fleet:
    """What a runtime does as one of several."""

    def __init__(
        self, runtime: Runtime, store: Any, name: str, lease_ms: int, look_ms: int | None = None
    ) -> None:
        if store is None:
            raise MissingStore("store")
        for protocol in (Claims, Documents, ListsDocuments):
            offering(store, protocol, "say who lets an agent live")
        self.runtime = runtime
        self.store: Any = store
        self.name = check_text(name, "name")
        self.member = f"{self.name}@{ids.uuid7()}"
        """This life of the runtime: one that was started again has to wait until its old leases end."""
        self.leases = Leases(store, self.member, lease_ms, self.lose)
        self.places = Places(store, DEFAULT_NAMESPACE)
        self.asking = Asking(self)
        every = max(1, self.leases.ms // 3) if look_ms is None else look_ms
        self._look_ms = check_positive(every, "look_ms")
        self._seen: dict[str, float] = {}
        self._looking = False
        self._closing = False

    @property
    def keeps(self) -> bool:
        """Whether the transport keeps a signal until it was handled; then nobody is waited for in sending."""
        return bool(getattr(self.runtime.transport, "keeps", False))

    # From the beginning to the end

    async def open(self) -> None:
        """Listen to answers, keep leases, and look for agents that nobody lets live any more."""
        await self.asking.open()
        self.runtime.spawn(self.leases.run)
        self._look_later()

    async def close(self, within: float) -> None:
        """Give every agent back; all have ended by now."""
        self._closing = True
        with move_on_after(within):
            for held in [*self.leases.held.values()]:
                await held.gone.wait()
        self.leases.scope.cancel()
        await self.asking.close()

    def _look_later(self) -> None:
        def ring() -> None:
            if not self._closing:
                self.runtime.spawn(self.look)
                self._look_later()

        self.runtime.timers.after(self._look_ms, ring)

    def lose(self, held: Held, reason: str) -> None:
        """Somebody else may let an agent live: it ends here, and nothing of it is saved or sent."""
        held.lost = True
        log.warning("agent %s: ended here: %s", held.id, reason)
        server = self.runtime.whereis(held.id)
        if server is not None and server.keeping.hold is held:
            server.kill()

    async def _taken(self, id: str) -> Held:
        held = await self.leases.take(id, self)
        if held is None:
            place, _ = await self.places.find(id)
            raise OwnedElsewhere(id, (place and place.runtime) or "another runtime")
        return held

    # Agents

    async def start(self, agent: Agent, terms: Mapping[str, Any]) -> AgentServer:
        """Let a new agent live; it is saved at once, so that another runtime could take it up."""
        held = await self._taken(agent.id)
        try:
            note = Note(member=self.member, token=held.token)
            rev = await put_aside(agent, FencedVault(self.store, note), expected_rev=0)
            return await self._begin(held, agent, rev, terms)
        except BaseException:
            await self._undo(held)
            raise

    async def thaw(self, id: str, definition: Definition, terms: Mapping[str, Any]) -> AgentServer:
        """Take an agent up from the store; whoever had it before cannot save it any more."""
        held = await self._taken(id)
        try:
            return await self._wake(held, definition, terms)
        except BaseException:
            await self._undo(held)
            raise

    async def _wake(self, held: Held, definition: Definition, terms: Mapping[str, Any]) -> AgentServer:
        vault = FencedVault(self.store, Note(member=self.member, token=held.token))
        # Not before it is known that the agent can be taken up: one that cannot is left as it is.
        await taken_up(held.id, definition, vault)
        self._check(held)
        note = await vault.fence(held.id)
        agent, rev = await taken_up(held.id, definition, vault)
        if note is not None:
            held.restore(note)
        return await self._begin(held, agent, rev, terms)

    async def _begin(self, held: Held, agent: Agent, rev: int, terms: Mapping[str, Any]) -> AgentServer:
        place = Place(
            id=held.id, kind=agent.definition.name, runtime=self.name, member=self.member, token=held.token
        )
        self._check(held)
        held.place_rev = await self.places.taken(place)
        self._check(held)
        if self.runtime.terms.save_every is None:
            terms = {"save_every": 1, **terms}
        server = self.runtime.begin(agent, rev=rev, hold=held, **terms)
        rested, held.rests = held.rests, True
        try:
            arriving = Arriving(self, held)
            held.subscription = await self.runtime.transport.subscribe("**", arriving, agent=held.id)
        except BaseException:
            held.rests = rested
            server.kill()
            raise
        if server.ended.is_set():
            # Nobody knew of the subscription then: it would take the post of the next owner.
            with anyio.CancelScope(shield=True):
                await held.subscription.close()
            raise OwnedElsewhere(held.id, "another runtime")
        held.wake()
        return server

    def _check(self, held: Held) -> None:
        if not held.holds():
            raise OwnedElsewhere(held.id, "another runtime")

    async def _undo(self, held: Held) -> None:
        """Give back what was taken in vain, unless the agent lived already and is given back by its end."""
        server = self.runtime.whereis(held.id)
        if (server is not None and server.keeping.hold is held) or held.leaving:
            return
        held.leaving = True
        with anyio.CancelScope(shield=True):
            await self._give_back(held)

    def ended(self, held: Held) -> None:
        """An agent ended here; it is at rest, unless it was lost to another runtime."""
        held.leaving = True
        self.runtime.spawn(partial(self._give_back, held))

    async def given_back(self, id: str) -> None:
        """Return when an agent that ended may be let live by another runtime."""
        held = self.leases.held.get(id)
        if held is not None:
            await held.gone.wait()

    async def _give_back(self, held: Held) -> None:
        try:
            if held.subscription is not None:
                await held.subscription.close()
            if held.holds() and held.rests:
                place, rev = await self.places.find(held.id)
                if place is not None and rev == held.place_rev:
                    await self.places.put(place.replace(runtime=None, member=None), expected_rev=rev)
            await self.leases.release(held)
        except Exception as error:
            log.warning("agent %s: could not be given back: %s", held.id, type(error).__name__)
        finally:
            self.leases.forget(held)

    # Takeover

    async def look(self) -> list[str]:
        """Take up agents whose runtime is gone, as far as there is room; their ids."""
        taken: list[str] = []
        if self._looking or self._closing:
            return taken
        self._looking = True
        try:
            async for place in self.places.living():
                if self._closing or not self.runtime.has_room:
                    break
                if place.id not in self.leases.held and place.kind in self.runtime.known.kinds:
                    taken += await self._taken_over(place)
        except Exception as error:
            log.warning("fleet: could not look for agents: %s", type(error).__name__)
        finally:
            self._looking = False
        return taken

    async def _taken_over(self, place: Place) -> list[str]:
        try:
            held = await self._taken(place.id)
        except (OwnedElsewhere, IdTaken):
            return []
        held.rests = False
        try:
            found, _ = await self.places.find(place.id)
            if found is None or found.runtime is None:  # it was put to rest since
                await self._undo(held)
                return []
            await self._wake(held, self.runtime.known.kind(found.kind), {})
        except Exception as error:
            log.warning("agent %s: could not be taken over: %s", place.id, type(error).__name__)
            await self._undo(held)
            return []
        log.warning("agent %s: taken over from %s", place.id, place.runtime)
        return [place.id]

    # Signals

    def note_hindered(self, held: Held, error: Exception) -> None:
        """Something that was handled could not be saved or sent yet."""
        log.warning("agent %s: waits to be saved: %s", held.id, type(error).__name__)

    async def where(self, id: str) -> str | None:
        """The name of the runtime that lets an agent live, or did until it was gone; None for one at rest."""
        place, _ = await self.places.find(ids.check(id))
        if place is None:
            raise NotFound("agent of the fleet", id, "start it")
        return place.runtime

    async def deliver(self, signal: Signal, to: str | None) -> None:
        """Tell all, or hand over to one agent."""
        if to is None:
            await self.runtime.transport.publish(signal)
        else:
            await self.hand_over(to, signal)

    async def hand_over(self, id: str, signal: Signal) -> None:
        """Have a signal brought to an agent, wherever it lives, or is about to live."""
        if self.runtime.whereis(id) is None and self._seen.get(id, 0.0) < now():
            place, _ = await self.places.find(ids.check(id))
            if place is None or place.runtime is None:
                raise NotRunning(id)
            self._remember(id)
        await self.runtime.transport.publish(signal, to=id)

    def _remember(self, id: str) -> None:
        """That an agent lives somewhere is looked up once in the time of a lease."""
        if len(self._seen) >= 10_000:
            self._seen.clear()
        self._seen[id] = now() + self.leases.ms / 1000
