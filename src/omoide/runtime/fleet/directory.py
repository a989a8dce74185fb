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
from omoide.core.agent import Agent, experience_sort_key, rank
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


REPLY_ATTRIBUTE = "omoidereply"
"""The attribute that says where the answer goes."""
REPLY_TYPE = "omoide.answered"
MAX_CANDIDATES = 100
"""How many of its agents a runtime names at most."""

log = logging.getLogger("omoide.runtime")


class FleetCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """An agent somewhere in the fleet that can do what was asked, and the reason to think so."""

    agent_id: str
    name: str
    runtime: str
    """The name of the runtime where it lives."""
    reason: str
    age: int | None = None
    shown: FrozenMap[str, Any] = EMPTY_MAP
    """What it shows of itself."""


class FleetRequests:
    """The questions of one runtime, and what it answers to others."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._address = ids.uuid7()
        self._pending: dict[str, MemoryObjectSendStream[Signal]] = {}
        self._subscription: Subscription | None = None

    async def open(self) -> None:
        """Listen to answers."""
        transport = self._fleet.runtime.transport
        self._subscription = await transport.subscribe(f"{REPLY_TYPE}.{self._address}", self._on_reply)

    async def close(self) -> None:
        """Listen no more."""
        if self._subscription is not None:
            await self._subscription.close()

    # Asking

    async def ask(self, id: str, signal: Signal, timeout: float) -> Signal:
        """What comes back when an agent elsewhere has handled a signal, and was saved."""
        with anyio.move_on_after(timeout):
            async with self._open_replies(signal) as answers:
                await self._fleet.send_to_agent(id, self._with_reply_address(signal))
                answer = await answers.receive()
                return _check_reply(id, signal, answer)
        raise TimedOut(f"signal {signal.type!r} to agent {id!r}", timeout)

    async def who_can(
        self, action: str | None, tags: Iterable[str], limits: Mapping[str, Any], timeout: float
    ) -> list[FleetCandidate]:
        """The agents of all runtimes that can do something, best first."""
        tags = [*tags]
        found = self._local_candidates(action, tags, limits)
        data = {"action": action, "tags": tags, "limits": {**limits}}
        request = Signal(type=server.CAPABILITIES_REQUEST, data=data, source=self._fleet.runtime.source)
        async with self._open_replies(request) as answers:
            await self._fleet.runtime.transport.publish(self._with_reply_address(request))
            with anyio.move_on_after(timeout):
                while True:
                    found += _parse_candidates(await answers.receive())
        return sorted(found, key=lambda one: (experience_sort_key(one.age), one.runtime, one.agent_id))

    def _open_replies(self, signal: Signal) -> _ReplyStream:
        if signal.id in self._pending:
            raise Invalid("signal", f"{signal.id!r} is waiting for an answer", "ask with another one")
        return _ReplyStream(self._pending, signal.id)

    def _with_reply_address(self, signal: Signal) -> Signal:
        return signal.replace(extensions=signal.extensions.set(REPLY_ATTRIBUTE, self._address))

    async def _on_reply(self, reply: Signal) -> None:
        waiting = None if reply.subject is None else self._pending.get(reply.subject)
        if waiting is not None:  # otherwise it comes too late
            waiting.send_nowait(reply)

    # Answering

    async def reply(self, request: Signal, agent: Agent | None, error: Exception | None = None) -> None:
        """Tell whoever asked what became of a signal."""
        data: dict[str, Any] = {"runtime": self._fleet.name}
        if agent is not None:
            data |= {"agent_id": agent.id, "name": agent.name, "state": checkpoint(agent).state}
        if error is not None:
            data["error"] = {"kind": type(error).__name__, "message": str(error)}
        await self._publish_reply(request, data)

    async def reply_with_candidates(self, request: Signal) -> None:
        """Name those of our agents that can do what is asked."""
        if request.extensions.get(REPLY_ATTRIBUTE) == self._address:
            return
        asked = request.data if isinstance(request.data, FrozenMap) else EMPTY_MAP
        try:
            found = self._local_candidates(
                asked.get("action"), asked.get("tags") or (), asked.get("limits") or {}
            )
            await self._send_candidates(request, found[:MAX_CANDIDATES])
        except Invalid as error:  # to be asked the same again would not help
            log.warning("fleet: was asked what cannot be answered: %s", type(error).__name__)

    async def _send_candidates(self, request: Signal, candidates: list[FleetCandidate]) -> None:
        while True:
            try:
                await self._publish_reply(
                    request, {"found": [msgspec.structs.asdict(one) for one in candidates]}
                )
                return
            except SignalTooLarge:
                if not candidates:
                    raise
                candidates = candidates[: len(candidates) // 2]  # the best ones come first

    def _local_candidates(
        self, action: str | None, tags: Iterable[str], limits: Mapping[str, Any]
    ) -> list[FleetCandidate]:
        agents = self._fleet.runtime.agents()
        return [
            FleetCandidate(
                agent_id=one.agent.id,
                name=one.agent.name,
                runtime=self._fleet.name,
                reason=one.reason,
                age=one.age,
                shown=identity.snapshot(one.agent) or EMPTY_MAP,
            )
            for one in rank(agents, action, tags, limits)
        ]

    async def _publish_reply(self, request: Signal, data: dict[str, Any]) -> None:
        answer = Signal(
            type=f"{REPLY_TYPE}.{request.extensions[REPLY_ATTRIBUTE]}",
            data=data,
            subject=request.id,
            source=f"{self._fleet.runtime.source}/{self._fleet.name}",
        )
        await self._fleet.runtime.transport.publish(answer)


class _ReplyStream:
    """The answers to one question, as long as somebody waits for them."""

    def __init__(self, pending: dict[str, Any], id: str) -> None:
        self._pending, self._id = pending, id
        self._send, self._receive = anyio.create_memory_object_stream[Signal](1_000)

    async def __aenter__(self) -> MemoryObjectReceiveStream[Signal]:
        self._pending[self._id] = self._send
        return self._receive

    async def __aexit__(self, *_: object) -> None:
        self._pending.pop(self._id, None)
        self._send.close()
        self._receive.close()


def without_reply_address(signal: Signal) -> Signal:
    """A signal as whoever asked made it."""
    if REPLY_ATTRIBUTE not in signal.extensions:
        return signal
    return signal.replace(extensions=signal.extensions.delete(REPLY_ATTRIBUTE))


def as_agent(reply: Signal, definition_of: Callable[[str], Definition]) -> Agent:
    """The agent that an answer shows, without its thread, which is kept elsewhere."""
    data: Any = reply.data
    definition = definition_of(data["name"])
    saved = Checkpoint(
        id=data["agent_id"],
        name=data["name"],
        state=data["state"],
        definition_version=definition.version,
    )
    return restore(saved, definition)


def _check_reply(id: str, signal: Signal, reply: Signal) -> Signal:
    error = reply.data.get("error") if isinstance(reply.data, FrozenMap) else None
    if error is None:
        return reply
    if error["kind"] == Unrouted.__name__:
        raise Unrouted(id, signal.type, error["message"].removeprefix(f"agent {id!r}: "))
    raise Dropped(id, signal.type, error["message"])


def _parse_candidates(reply: Signal) -> list[FleetCandidate]:
    """Whom an answer names; one that cannot be read names nobody."""
    try:
        data: Any = reply.data
        return [FleetCandidate(**one) for one in data["found"]]
    except (AttributeError, KeyError, TypeError, ValueError):
        return []


# places: Where does each agent of a fleet live?


LOCATION_KIND = "place"
PAGE_SIZE = 100


class AgentLocation(Value, frozen=True, kw_only=True):
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


class AgentDirectory:
    """The places of all agents in a store."""

    def __init__(self, store: Any, namespace: str) -> None:
        self._store = store
        self._namespace = namespace

    async def find(self, id: str) -> tuple[AgentLocation | None, int]:
        """The place of an agent, and the revision of what is written about it."""
        document = await self._store.load(LOCATION_KIND, id, self._scope(id))
        return (None, 0) if document is None else (_parse_location(document), document.rev)

    async def save(self, location: AgentLocation, *, expected_rev: int) -> int:
        """Write a place down; `Conflict` where somebody else did so since."""
        body = {field: getattr(location, field) for field in AgentLocation.__struct_fields__}
        document = Document(
            kind=LOCATION_KIND,
            id=location.id,
            namespace=self._namespace,
            agent_id=location.id,
            body=FrozenMap(body),
        )
        return int((await self._store.save(document, expected_rev=expected_rev)).rev)

    async def set_owner(self, location: AgentLocation) -> int:
        """Write down who lets an agent live; whoever lost it may be writing at the same time."""
        for _ in range(3):
            _, rev = await self.find(location.id)
            try:
                return await self.save(location, expected_rev=rev)
            except Conflict:
                continue
        _, rev = await self.find(location.id)
        return await self.save(location, expected_rev=rev)

    async def iter_running(self) -> AsyncIterator[AgentLocation]:
        """The places of all agents that live, or would if their runtime did."""
        after: str | None = None
        scope = Scope(namespace=self._namespace)
        while page := await self._store.documents(LOCATION_KIND, scope, limit=PAGE_SIZE, after=after):
            for document in page:
                place = _parse_location(document)
                if place is not None and place.runtime is not None:
                    yield place
            after = page[-1].id

    def _scope(self, id: str) -> Scope:
        return Scope(namespace=self._namespace, agent_id=id)


def _parse_location(document: Document) -> AgentLocation | None:
    """What a document says; one that was emptied, or is something else, says nothing."""
    try:
        return AgentLocation(**document.body) if isinstance(document.body, FrozenMap) else None
    except (TypeError, ValueError):
        return None
