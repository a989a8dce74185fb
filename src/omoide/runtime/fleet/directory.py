"""Where agents live; request and reply.

A question carries the address of the runtime that asks, as an attribute of the signal. Whoever answers tells
a signal of the type that only that runtime listens to, about the id of the question.

One document for each agent, beside its checkpoint: who lets it live, or that it is at rest. The lease says
who may; this says who does, so that others know where to look when the lease has run out.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from omoide import identity, ids
from omoide.core.agent import Agent, by_experience, rank
from omoide.core.checkpoint import Checkpoint, checkpoint, restore
from omoide.core.codec import MapField
from omoide.core.definition import Definition
from omoide.core.entry import Scope
from omoide.core.frozen import EMPTY_MAP, FrozenMap
from omoide.core.signal import Signal
from omoide.core.value import Count, Id, Name, Value
from omoide.errors import Conflict, Dropped, Invalid, SignalTooLarge, TimedOut, Unrouted
from omoide.runtime import server
from omoide.stores.records import Document

if TYPE_CHECKING:
    from omoide.runtime.fleet.fleet import Fleet
    from omoide.runtime.transport import Subscription


# asking: How does an answer come back from another machine?


REPLY = "omoidereply"
"""The attribute that says where the answer goes."""
ANSWERED = "omoide.answered"
MOST = 100
"""How many of its agents a runtime names at most."""

log = logging.getLogger("omoide.runtime")


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """An agent somewhere in the fleet that can do what was asked, and the reason to think so."""

    agent_id: str
    name: str
    runtime: str
    """The name of the runtime where it lives."""
    reason: str
    age: int | None = None
    shown: FrozenMap[str, Any] = EMPTY_MAP
    """What it shows of itself."""


class Asking:
    """The questions of one runtime, and what it answers to others."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._address = ids.uuid7()
        self._waiting: dict[str, MemoryObjectSendStream[Signal]] = {}
        self._subscription: Subscription | None = None

    async def open(self) -> None:
        """Listen to answers."""
        transport = self._fleet.runtime.transport
        self._subscription = await transport.subscribe(f"{ANSWERED}.{self._address}", self._heard)

    async def close(self) -> None:
        """Listen no more."""
        if self._subscription is not None:
            await self._subscription.close()

    # Asking

    async def ask(self, id: str, signal: Signal, within: float) -> Signal:
        """What comes back when an agent elsewhere has handled a signal, and was saved."""
        with anyio.move_on_after(within):
            async with self._answers(signal) as answers:
                await self._fleet.hand_over(id, self._addressed(signal))
                answer = await answers.receive()
                return _checked(id, signal, answer)
        raise TimedOut(f"signal {signal.type!r} to agent {id!r}", within)

    async def who_can(
        self, action: str | None, tags: Iterable[str], limits: Mapping[str, Any], within: float
    ) -> list[Found]:
        """The agents of all runtimes that can do something, best first."""
        tags = [*tags]
        found = self._own(action, tags, limits)
        data = {"action": action, "tags": tags, "limits": {**limits}}
        request = Signal(type=server.REQUEST, data=data, source=self._fleet.runtime.source)
        async with self._answers(request) as answers:
            await self._fleet.runtime.transport.publish(self._addressed(request))
            with anyio.move_on_after(within):
                while True:
                    found += _read(await answers.receive())
        return sorted(found, key=lambda one: (by_experience(one.age), one.runtime, one.agent_id))

    def _answers(self, signal: Signal) -> _Answers:
        if signal.id in self._waiting:
            raise Invalid("signal", f"{signal.id!r} is waiting for an answer", "ask with another one")
        return _Answers(self._waiting, signal.id)

    def _addressed(self, signal: Signal) -> Signal:
        return signal.replace(extensions=signal.extensions.set(REPLY, self._address))

    async def _heard(self, answer: Signal) -> None:
        waiting = None if answer.subject is None else self._waiting.get(answer.subject)
        if waiting is not None:  # otherwise it comes too late
            waiting.send_nowait(answer)

    # Answering

    async def answered(self, request: Signal, agent: Agent | None, error: Exception | None = None) -> None:
        """Tell whoever asked what became of a signal."""
        data: dict[str, Any] = {"runtime": self._fleet.name}
        if agent is not None:
            data |= {"agent_id": agent.id, "name": agent.name, "state": checkpoint(agent).state}
        if error is not None:
            data["error"] = {"kind": type(error).__name__, "message": str(error)}
        await self._tell(request, data)

    async def introduce(self, request: Signal) -> None:
        """Name those of our agents that can do what is asked."""
        if request.extensions.get(REPLY) == self._address:
            return
        asked = request.data if isinstance(request.data, FrozenMap) else EMPTY_MAP
        try:
            found = self._own(asked.get("action"), asked.get("tags") or (), asked.get("limits") or {})
            await self._named(request, found[:MOST])
        except Invalid as error:  # to be asked the same again would not help
            log.warning("fleet: was asked what cannot be answered: %s", type(error).__name__)

    async def _named(self, request: Signal, found: list[Found]) -> None:
        while True:
            try:
                await self._tell(request, {"found": [msgspec.structs.asdict(one) for one in found]})
                return
            except SignalTooLarge:
                if not found:
                    raise
                found = found[: len(found) // 2]  # the best ones come first

    def _own(self, action: str | None, tags: Iterable[str], limits: Mapping[str, Any]) -> list[Found]:
        agents = self._fleet.runtime.agents()
        return [
            Found(
                agent_id=one.agent.id,
                name=one.agent.name,
                runtime=self._fleet.name,
                reason=one.reason,
                age=one.age,
                shown=identity.snapshot(one.agent) or EMPTY_MAP,
            )
            for one in rank(agents, action, tags, limits)
        ]

    async def _tell(self, request: Signal, data: dict[str, Any]) -> None:
        answer = Signal(
            type=f"{ANSWERED}.{request.extensions[REPLY]}",
            data=data,
            subject=request.id,
            source=f"{self._fleet.runtime.source}/{self._fleet.name}",
        )
        await self._fleet.runtime.transport.publish(answer)


class _Answers:
    """The answers to one question, as long as somebody waits for them."""

    def __init__(self, waiting: dict[str, Any], id: str) -> None:
        self._waiting, self._id = waiting, id
        self._send, self._receive = anyio.create_memory_object_stream[Signal](1_000)

    async def __aenter__(self) -> MemoryObjectReceiveStream[Signal]:
        self._waiting[self._id] = self._send
        return self._receive

    async def __aexit__(self, *_: object) -> None:
        self._waiting.pop(self._id, None)
        self._send.close()
        self._receive.close()


def without_reply(signal: Signal) -> Signal:
    """A signal as whoever asked made it."""
    if REPLY not in signal.extensions:
        return signal
    return signal.replace(extensions=signal.extensions.delete(REPLY))


def as_agent(answer: Signal, kind: Callable[[str], Definition]) -> Agent:
    """The agent that an answer shows, without its thread, which is kept elsewhere."""
    data: Any = answer.data
    definition = kind(data["name"])
    saved = Checkpoint(
        id=data["agent_id"],
        name=data["name"],
        state=data["state"],
        definition_version=definition.version,
    )
    return restore(saved, definition)


def _checked(id: str, signal: Signal, answer: Signal) -> Signal:
    error = answer.data.get("error") if isinstance(answer.data, FrozenMap) else None
    if error is None:
        return answer
    if error["kind"] == Unrouted.__name__:
        raise Unrouted(id, signal.type, error["message"].removeprefix(f"agent {id!r}: "))
    raise Dropped(id, signal.type, error["message"])


def _read(answer: Signal) -> list[Found]:
    """Whom an answer names; one that cannot be read names nobody."""
    try:
        data: Any = answer.data
        return [Found(**one) for one in data["found"]]
    except (AttributeError, KeyError, TypeError, ValueError):
        return []


# places: Where does each agent of a fleet live?


PLACE = "place"
PAGE = 100


class Place(Value, frozen=True, kw_only=True):
    """Where an agent lives, or lived last."""

    id: Id
    kind: Name
    """What kind of agent it is."""
    runtime: Name | None = None
    """The name of the runtime that lets it live; None while it is at rest."""
    member: Name | None = None
    """Which life of that runtime."""
    token: Count = 0
    """How often the agent was taken by somebody."""
    metadata: MapField = EMPTY_MAP


class Places:
    """The places of all agents in a store."""

    def __init__(self, store: Any, namespace: str) -> None:
        self._store = store
        self._namespace = namespace

    async def find(self, id: str) -> tuple[Place | None, int]:
        """The place of an agent, and the revision of what is written about it."""
        document = await self._store.load(PLACE, id, self._scope(id))
        return (None, 0) if document is None else (_places_read(document), document.rev)

    async def put(self, place: Place, *, expected_rev: int) -> int:
        """Write a place down; `Conflict` where somebody else did so since."""
        body = {field: getattr(place, field) for field in Place.__struct_fields__}
        document = Document(
            kind=PLACE, id=place.id, namespace=self._namespace, agent_id=place.id, body=FrozenMap(body)
        )
        return int((await self._store.save(document, expected_rev=expected_rev)).rev)

    async def taken(self, place: Place) -> int:
        """Write down who lets an agent live; whoever lost it may be writing at the same time."""
        for _ in range(3):
            _, rev = await self.find(place.id)
            try:
                return await self.put(place, expected_rev=rev)
            except Conflict:
                continue
        _, rev = await self.find(place.id)
        return await self.put(place, expected_rev=rev)

    async def living(self) -> AsyncIterator[Place]:
        """The places of all agents that live, or would if their runtime did."""
        after: str | None = None
        scope = Scope(namespace=self._namespace)
        while page := await self._store.documents(PLACE, scope, limit=PAGE, after=after):
            for document in page:
                place = _places_read(document)
                if place is not None and place.runtime is not None:
                    yield place
            after = page[-1].id

    def _scope(self, id: str) -> Scope:
        return Scope(namespace=self._namespace, agent_id=id)


def _places_read(document: Document) -> Place | None:
    """What a document says; one that was emptied, or is something else, says nothing."""
    try:
        return Place(**document.body) if isinstance(document.body, FrozenMap) else None
    except (TypeError, ValueError):
        return None
