"""Streams and consumers.

A reader gets one message at a time, and the next when that one is confirmed: so nothing overtakes, whatever
breaks in between. An agent has one reader only; whoever takes its post up removes the one before.

In three streams for each prefix. What is told to all stays until all who subscribed have accepted it; what is
told to an agent stays until that agent has, whether it lives at the moment or not; what could not be handled
stays to be looked at.
"""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from typing import Any

import msgspec

from omoide import ids
from omoide.errors import OmoideError, OwnedElsewhere, ServiceFailed, Unreachable
from omoide.runtime.nats import connection
from omoide.runtime.nats.connection import NatsConnection, NatsSettings

# consumers: Who of a stream's readers stands where?


INACTIVE_TIMEOUT_S = 300.0
"""After how long a reader of what is told to all is forgotten, when its process is gone."""
MAX_ATTEMPTS = 5
_SUSPECT_METADATA, _CRASHES_METADATA = "omoide-suspect", "omoide-strikes"


class ConsumerRef(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer of JetStream, by its name."""

    stream: str
    name: str
    suspect_seq: int = 0
    """The number of the message that was being handled when another reader of the agent vanished."""
    crash_count: int = 0
    """How many readers vanished so."""

    def prior_deliveries(self, seq: int) -> int:
        """How often a message was brought to readers that vanished over it."""
        return self.crash_count if seq == self.suspect_seq else 0


async def create_broadcast_consumer(
    link: NatsConnection, settings: NatsSettings, subjects: list[str]
) -> ConsumerRef:
    """A reader of what is told to all from now on."""
    from nats.js import api

    name = ids.uuid7()
    config = _consumer_config(settings, name, subjects).evolve(
        deliver_policy=api.DeliverPolicy.NEW, inactive_threshold=INACTIVE_TIMEOUT_S
    )
    await link.request(lambda js: js.add_consumer(settings.broadcast_stream, config))
    return ConsumerRef(stream=settings.broadcast_stream, name=name)


async def create_agent_consumer(
    link: NatsConnection, settings: NatsSettings, agent: str, subject: str, *, takeover: bool
) -> ConsumerRef:
    """The reader of an agent's post; `take` says that whoever reads it now is to stop."""
    suspect = strikes = 0
    last: OmoideError | None = None
    for _ in range(MAX_ATTEMPTS):
        name = f"{sha256(agent.encode()).hexdigest()[:16]}-{ids.uuid7()}"
        config = _consumer_config(settings, name, [subject]).evolve(
            metadata={_SUSPECT_METADATA: str(suspect), _CRASHES_METADATA: str(strikes)}
        )
        try:
            await link.request(lambda js, config=config: js.add_consumer(settings.agent_stream, config))  # type: ignore[misc]
            return ConsumerRef(
                stream=settings.agent_stream, name=name, suspect_seq=suspect, crash_count=strikes
            )
        except OmoideError as error:
            if connection.error_code(error.__cause__ or error) not in connection.NOT_UNIQUE:
                raise
            if not takeover:
                raise OwnedElsewhere(agent, "another reader") from error
            last = error
        suspect, strikes = await _remove_consumers(link, settings, subject)
    raise OwnedElsewhere(agent, "another reader") from last


async def delete_consumer(link: NatsConnection, consumer: ConsumerRef, *, timeout: float) -> None:
    """Remove a reader; one that is gone already is no error."""
    try:
        await link.request(lambda js: js.delete_consumer(consumer.stream, consumer.name), timeout=timeout)
    except OmoideError as error:
        if not connection.is_not_found(error.__cause__ or error):
            raise


async def consumer_exists(link: NatsConnection, consumer: ConsumerRef) -> bool:
    """Whether the server knows a reader."""
    try:
        await link.request(lambda js: js.consumer_info(consumer.stream, consumer.name))
    except OmoideError as error:
        if connection.is_not_found(error.__cause__ or error):
            return False
        raise
    return True


async def _remove_consumers(link: NatsConnection, settings: NatsSettings, subject: str) -> tuple[int, int]:
    """Remove whoever reads a subject; the message it was about, and how many vanished over it so far."""
    suspect = strikes = offset = 0
    stream = settings.agent_stream
    while page := await link.request(lambda js, at=offset: js.consumers_info(stream, offset=at)):  # type: ignore[misc]
        offset += len(page)
        for info in page:
            if info.config.filter_subject == subject:
                if info.num_ack_pending:
                    suspect, strikes = info.delivered.stream_seq, _crash_count(info)
                reader = ConsumerRef(stream=settings.agent_stream, name=info.name)
                await delete_consumer(link, reader, timeout=settings.request_timeout)
    return suspect, strikes


def _crash_count(info: Any) -> int:
    known = info.config.metadata or {}
    try:
        same = int(known.get(_SUSPECT_METADATA, 0)) == info.delivered.stream_seq
        return (int(known.get(_CRASHES_METADATA, 0)) if same else 0) + 1
    except ValueError:
        return 1


def _consumer_config(settings: NatsSettings, name: str, subjects: list[str]) -> Any:
    from nats.js import api

    config = api.ConsumerConfig(
        name=name,
        durable_name=name,
        ack_policy=api.AckPolicy.EXPLICIT,
        ack_wait=settings.ack_wait,
        max_ack_pending=1,
    )
    if len(subjects) == 1:
        return config.evolve(filter_subject=subjects[0])
    return config.evolve(filter_subjects=subjects)


# streams: Where does NATS keep signals?


async def ensure_streams(link: NatsConnection, settings: NatsSettings) -> None:
    """Make the streams, or have them as they were set."""
    for config in stream_configs(settings):
        try:
            await link.request(partial(_add_stream, config=config), timeout=settings.connect_timeout)
        except OmoideError as error:
            if connection.error_code(error.__cause__ or error) != connection.CONFIG_MISMATCH:
                if not link.has_jetstream and isinstance(error, Unreachable):
                    raise connection.no_jetstream_error(link.address) from error
                raise
            await _update_stream(link, settings, config)


async def _add_stream(js: Any, *, config: Any) -> None:
    await js.add_stream(config)


async def _update_stream(link: NatsConnection, settings: NatsSettings, config: Any) -> None:
    """Have a stream that is there as it was set; what kind of stream it is cannot change."""
    try:
        await link.request(lambda js: js.update_stream(config), timeout=settings.connect_timeout)
    except ServiceFailed as error:
        raise ServiceFailed(
            link.address,
            f"has a stream {config.name!r} of another kind ({error.problem})",
            "choose another prefix, or remove that stream",
        ) from error


def stream_configs(settings: NatsSettings) -> list[Any]:
    """How each stream is kept."""
    from nats.js import api

    common: dict[str, Any] = {
        "storage": api.StorageType.FILE,
        "num_replicas": settings.replicas,
        "max_age": settings.max_age,
        "duplicate_window": settings.duplicate_window,
    }
    discard = api.DiscardPolicy.NEW if settings.discard == "new" else api.DiscardPolicy.OLD
    return [
        api.StreamConfig(
            name=settings.broadcast_stream,
            subjects=[f"{settings.prefix}.all.>"],
            retention=api.RetentionPolicy.INTEREST,
            discard=discard,
            max_bytes=settings.max_bytes,
            **common,
        ),
        api.StreamConfig(
            name=settings.agent_stream,
            subjects=[f"{settings.prefix}.to.>"],
            retention=api.RetentionPolicy.WORK_QUEUE,
            discard=discard,
            max_bytes=settings.max_bytes,
            **common,
        ),
        api.StreamConfig(
            name=settings.dead_letter_stream,
            subjects=[f"{settings.prefix}.dead.>"],
            retention=api.RetentionPolicy.LIMITS,
            discard=api.DiscardPolicy.OLD,  # here the newest matter
            max_bytes=settings.max_bytes,
            **common,
        ),
    ]
