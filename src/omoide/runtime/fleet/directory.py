"""Find agents of a fleet, and send them requests that get a reply.

A request carries the address of the runtime that asks, as an attribute of the signal. The reply is a signal
of a type that only that runtime subscribes to, with the id of the request as its subject.
Others can hear it, so it has the public part of an identity, and nothing of the state. Who needs the state
loads it from the shared store.

The directory is one document for each agent, beside its checkpoint: which runtime runs it, or that it
hibernates. The lease says which runtime may run it; the directory says which one does, so that others find
the agent after its lease has expired.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from omoide import identity, ids
from omoide.core.agent import Agent, Requirements, experience_sort_key, public_snapshot, rank
from omoide.core.codec import MapField
from omoide.core.entry import Scope
from omoide.core.frozen import EMPTY_MAP, FrozenMap
from omoide.core.signal import Signal
from omoide.core.value import Count, Id, Name, Value
from omoide.errors import Conflict, Dropped, Invalid, SignalTooLarge, TimedOut, Unrouted
from omoide.runtime import server
from omoide.runtime.checkpoints.store import iter_documents
from omoide.stores.records import Document

if TYPE_CHECKING:
    from omoide.runtime.fleet.fleet import Fleet
    from omoide.runtime.transport import Subscription


# Names that are stored or sent between runtimes; changing one would split a fleet during an update.
REPLY_ATTRIBUTE = "omoidereply"
"""The attribute of a signal with the address of the reply."""
REPLY_TYPE = "omoide.answered"
MAX_CANDIDATES = 100
"""The number of candidates in one reply."""

log = logging.getLogger("omoide.runtime")

LOCATION_KIND = "place"  # the name in stored documents


class FleetCandidate(msgspec.Struct, frozen=True, kw_only=True):
    """An agent of the fleet with the requested capability, and the reason."""

    agent_id: str
    name: str
    runtime: str
    """The name of the runtime that runs it."""
    reason: str
    age: int | None = None
    shown: FrozenMap[str, Any] = EMPTY_MAP
    """The public part of its identity."""


class FleetRequests:
    """The requests of one runtime, and its replies to those of others."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._address = ids.uuid7()
        self._pending: dict[str, MemoryObjectSendStream[Signal]] = {}
        self._subscription: Subscription | None = None

    async def open(self) -> None:
        """Subscribe to replies."""
        transport = self._fleet.runtime.transport
        self._subscription = await transport.subscribe(f"{REPLY_TYPE}.{self._address}", self._on_reply)

    async def close(self) -> None:
        """Unsubscribe."""
        if self._subscription is not None:
            await self._subscription.close()

    # Requests

    async def ask(self, id: str, signal: Signal, timeout: float) -> Signal:
        """Return the reply of an agent after it has handled a signal and was saved."""
        with anyio.move_on_after(timeout):
            async with self._open_replies(signal) as replies:
                await self._fleet.send_to_agent(id, self._with_reply_address(signal))
                reply = await replies.receive()
                return _check_reply(id, signal, reply)
        raise TimedOut(f"signal {signal.type!r} to agent {id!r}", timeout)

    async def who_can(self, requirements: Requirements, timeout: float) -> list[FleetCandidate]:
        """Return the agents of all runtimes with a capability, best first."""
        candidates = self._local_candidates(requirements)
        data = msgspec.structs.asdict(requirements)
        request = Signal(type=server.CAPABILITIES_REQUEST, data=data, source=self._fleet.runtime.source)
        async with self._open_replies(request) as replies:
            await self._fleet.runtime.transport.publish(self._with_reply_address(request))
            with anyio.move_on_after(timeout):
                while True:
                    candidates += _parse_candidates(await replies.receive())
        return sorted(
            candidates,
            key=lambda candidate: (experience_sort_key(candidate.age), candidate.runtime, candidate.agent_id),
        )

    def _open_replies(self, signal: Signal) -> _ReplyStream:
        if signal.id in self._pending:
            raise Invalid("signal", f"{signal.id!r} is waiting for an answer", "ask with another one")
        return _ReplyStream(self._pending, signal.id)

    def _with_reply_address(self, signal: Signal) -> Signal:
        return signal.replace(extensions=signal.extensions.set(REPLY_ATTRIBUTE, self._address))

    async def _on_reply(self, reply: Signal) -> None:
        stream = None if reply.subject is None else self._pending.get(reply.subject)
        if stream is not None:  # a reply after the timeout is ignored
            stream.send_nowait(reply)

    # Replies

    async def reply(self, request: Signal, agent: Agent | None, error: Exception | None = None) -> None:
        """Reply to a request with who handled it, or with an error."""
        data: dict[str, Any] = {"runtime": self._fleet.name}
        if agent is not None:
            shown = identity.snapshot(agent) or EMPTY_MAP
            data |= {"agent_id": agent.id, "name": agent.name, "shown": shown}
        if error is not None:
            data["error"] = {"kind": type(error).__name__, "message": str(error)}
        await self._publish_reply(request, data)

    async def reply_with_candidates(self, request: Signal) -> None:
        """Reply with those of our agents that have the requested capability."""
        # Our own request: `who_can` has the local candidates already.
        if request.extensions.get(REPLY_ATTRIBUTE) == self._address:
            return
        query = request.data if isinstance(request.data, FrozenMap) else EMPTY_MAP
        try:
            candidates = self._local_candidates(
                Requirements.new(
                    query.get("action"),
                    query.get("tags") or (),
                    query.get("limits") or EMPTY_MAP,
                    query.get("io") or EMPTY_MAP,
                )
            )
            await self._send_candidates(request, candidates[:MAX_CANDIDATES])
        except Invalid as error:  # the same request would fail again
            log.warning("fleet: received an invalid request: %s", type(error).__name__)

    async def _send_candidates(self, request: Signal, candidates: list[FleetCandidate]) -> None:
        while True:
            try:
                await self._publish_reply(
                    request, {"found": [msgspec.structs.asdict(candidate) for candidate in candidates]}
                )
                return
            except SignalTooLarge:
                if not candidates:
                    raise
                candidates = candidates[: len(candidates) // 2]  # the best ones are first

    def _local_candidates(self, requirements: Requirements) -> list[FleetCandidate]:
        agents = self._fleet.runtime.agents()
        return [
            FleetCandidate(
                agent_id=candidate.agent.id,
                name=candidate.agent.name,
                runtime=self._fleet.name,
                reason=candidate.reason,
                age=candidate.age,
                shown=public_snapshot(candidate.agent),
            )
            for candidate in rank(agents, requirements)
        ]

    async def _publish_reply(self, request: Signal, data: dict[str, Any]) -> None:
        reply = Signal(
            type=f"{REPLY_TYPE}.{request.extensions[REPLY_ATTRIBUTE]}",
            data=data,
            subject=request.id,
            source=f"{self._fleet.runtime.source}/{self._fleet.name}",
        )
        await self._fleet.runtime.transport.publish(reply)


class _ReplyStream:
    """The replies to one request, while the caller waits for them."""

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
    """Return a signal as its sender made it."""
    if REPLY_ATTRIBUTE not in signal.extensions:
        return signal
    return signal.replace(extensions=signal.extensions.delete(REPLY_ATTRIBUTE))


def _check_reply(id: str, signal: Signal, reply: Signal) -> Signal:
    error = reply.data.get("error") if isinstance(reply.data, FrozenMap) else None
    if error is None:
        return reply
    if error["kind"] == Unrouted.__name__:
        raise Unrouted(id, signal.type, error["message"].removeprefix(f"agent {id!r}: "))
    raise Dropped(id, signal.type, error["message"])


def _parse_candidates(reply: Signal) -> list[FleetCandidate]:
    """Return the candidates of a reply; one that cannot be read has none."""
    try:
        data: Any = reply.data
        return [FleetCandidate(**fields) for fields in data["found"]]
    except (AttributeError, KeyError, TypeError, ValueError):
        return []


class AgentLocation(Value, frozen=True, kw_only=True):
    """The runtime that runs an agent, or ran it last."""

    id: Id
    kind: Name
    """The name of its definition."""
    runtime: Name | None = None
    """The name of the runtime that runs it; None while it hibernates."""
    member: Name | None = None
    """The run of that runtime."""
    token: Count = 0
    """The token of the lease, which counts the owners so far."""
    metadata: MapField = EMPTY_MAP


class AgentDirectory:
    """The locations of all agents in a store."""

    def __init__(self, store: Any, namespace: str) -> None:
        self._store = store
        self._namespace = namespace

    async def find(self, id: str) -> tuple[AgentLocation | None, int]:
        """Return the location of an agent, and its revision."""
        document = await self._store.load(LOCATION_KIND, id, self._scope(id))
        return (None, 0) if document is None else (_parse_location(document), document.rev)

    async def save(self, location: AgentLocation, *, expected_rev: int) -> int:
        """Save a location, and return its revision; raise `Conflict` where it was changed since."""
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
        """Save the new owner of an agent; its former owner may be writing at the same time."""
        for _ in range(3):
            _, rev = await self.find(location.id)
            try:
                return await self.save(location, expected_rev=rev)
            except Conflict:
                continue
        _, rev = await self.find(location.id)
        return await self.save(location, expected_rev=rev)

    async def iter_running(self) -> AsyncIterator[AgentLocation]:
        """Yield the locations of all agents that run, or would if their runtime did."""
        async for document in iter_documents(self._store, LOCATION_KIND, Scope(namespace=self._namespace)):
            location = _parse_location(document)
            if location is not None and location.runtime is not None:
                yield location

    def _scope(self, id: str) -> Scope:
        return Scope(namespace=self._namespace, agent_id=id)


def _parse_location(document: Document) -> AgentLocation | None:
    """Return the location in a document, or None for one that was emptied or is something else."""
    try:
        return AgentLocation(**document.body) if isinstance(document.body, FrozenMap) else None
    except (TypeError, ValueError):
        return None
