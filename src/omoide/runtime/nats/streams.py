"""Create the streams and consumers of JetStream.

There are three streams for each prefix. A signal to all stays until all subscribers have acknowledged it; a
signal to an agent stays until that agent has, whether it runs at the moment or not; a dead letter stays to be
inspected.

A consumer gets one message at a time, and the next when that one is acknowledged: so nothing overtakes,
whatever breaks in between. An agent has one consumer only; a new owner of the agent removes the one before.
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

INACTIVE_TIMEOUT_S = 300.0
"""The time after which the server removes a broadcast consumer whose process is gone."""
MAX_ATTEMPTS = 5
# Names in the metadata of consumers, which later versions read; they cannot change.
_SUSPECT_METADATA, _CRASHES_METADATA = "omoide-suspect", "omoide-strikes"


class ConsumerRef(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer of JetStream, by its name."""

    stream: str
    name: str
    suspect_seq: int = 0
    """The message that was being handled when an earlier consumer of the agent crashed."""
    crash_count: int = 0
    """The number of consumers that crashed over it."""

    def prior_deliveries(self, seq: int) -> int:
        """Return how often a message was delivered to consumers that crashed over it."""
        return self.crash_count if seq == self.suspect_seq else 0


async def create_broadcast_consumer(
    nats: NatsConnection, settings: NatsSettings, subjects: list[str]
) -> ConsumerRef:
    """Create a consumer of signals to all, from now on."""
    from nats.js import api

    name = ids.uuid7()
    config = _consumer_config(settings, name, subjects).evolve(
        deliver_policy=api.DeliverPolicy.NEW, inactive_threshold=INACTIVE_TIMEOUT_S
    )
    await nats.request(lambda js: js.add_consumer(settings.broadcast_stream, config))
    return ConsumerRef(stream=settings.broadcast_stream, name=name)


async def create_agent_consumer(
    nats: NatsConnection, settings: NatsSettings, agent: str, subject: str, *, takeover: bool
) -> ConsumerRef:
    """Create the consumer of an agent's signals; with `takeover`, remove the one that another process has.

    Raises:
        OwnedElsewhere: Another process has a consumer, and `takeover` is False, or it comes back each time.
    """
    suspect_seq = crash_count = 0
    last: OmoideError | None = None
    for _ in range(MAX_ATTEMPTS):
        # A new name each time: the former owner sees that its consumer is gone.
        name = f"{sha256(agent.encode()).hexdigest()[:16]}-{ids.uuid7()}"
        config = _consumer_config(settings, name, [subject]).evolve(
            metadata={_SUSPECT_METADATA: str(suspect_seq), _CRASHES_METADATA: str(crash_count)}
        )
        try:
            await nats.request(lambda js, config=config: js.add_consumer(settings.agent_stream, config))  # type: ignore[misc]
            return ConsumerRef(
                stream=settings.agent_stream, name=name, suspect_seq=suspect_seq, crash_count=crash_count
            )
        except OmoideError as error:
            if connection.error_code(error.__cause__ or error) not in connection.NOT_UNIQUE:
                raise
            if not takeover:
                raise OwnedElsewhere(agent, "another process") from error
            last = error
        suspect_seq, crash_count = await _remove_consumers(nats, settings, subject)
    raise OwnedElsewhere(agent, "another process") from last


async def delete_consumer(nats: NatsConnection, consumer: ConsumerRef, *, timeout: float) -> None:
    """Delete a consumer; one that is gone already is no error."""
    try:
        await nats.request(lambda js: js.delete_consumer(consumer.stream, consumer.name), timeout=timeout)
    except OmoideError as error:
        if not connection.is_not_found(error.__cause__ or error):
            raise


async def consumer_exists(nats: NatsConnection, consumer: ConsumerRef) -> bool:
    """Return whether the server knows a consumer."""
    try:
        await nats.request(lambda js: js.consumer_info(consumer.stream, consumer.name))
    except OmoideError as error:
        if connection.is_not_found(error.__cause__ or error):
            return False
        raise
    return True


async def _remove_consumers(nats: NatsConnection, settings: NatsSettings, subject: str) -> tuple[int, int]:
    """Remove the consumers of a subject; return the message that was being handled, and its crash count."""
    suspect_seq = crash_count = offset = 0
    stream = settings.agent_stream
    while page := await nats.request(lambda js, at=offset: js.consumers_info(stream, offset=at)):  # type: ignore[misc]
        offset += len(page)
        for info in page:
            if info.config.filter_subject == subject:
                # Delivered and not acknowledged: its reader may have crashed over it.
                if info.num_ack_pending:
                    suspect_seq, crash_count = info.delivered.stream_seq, _crash_count(info)
                consumer = ConsumerRef(stream=settings.agent_stream, name=info.name)
                await delete_consumer(nats, consumer, timeout=settings.request_timeout)
    return suspect_seq, crash_count


def _crash_count(info: Any) -> int:
    metadata = info.config.metadata or {}
    try:
        same = int(metadata.get(_SUSPECT_METADATA, 0)) == info.delivered.stream_seq
        return (int(metadata.get(_CRASHES_METADATA, 0)) if same else 0) + 1
    except ValueError:
        return 1


def _consumer_config(settings: NatsSettings, name: str, subjects: list[str]) -> Any:
    from nats.js import api

    config = api.ConsumerConfig(
        name=name,
        durable_name=name,
        ack_policy=api.AckPolicy.EXPLICIT,
        ack_wait=settings.ack_wait,
        # One message at a time keeps the order, also after a redelivery.
        max_ack_pending=1,
    )
    if len(subjects) == 1:
        return config.evolve(filter_subject=subjects[0])
    return config.evolve(filter_subjects=subjects)


async def ensure_streams(nats: NatsConnection, settings: NatsSettings) -> None:
    """Create the streams, or update them to the settings."""
    for config in stream_configs(settings):
        try:
            await nats.request(partial(_add_stream, config=config), timeout=settings.connect_timeout)
        except OmoideError as error:
            if connection.error_code(error.__cause__ or error) != connection.CONFIG_MISMATCH:
                if not nats.has_jetstream and isinstance(error, Unreachable):
                    raise connection.no_jetstream_error(nats.address) from error
                raise
            await _update_stream(nats, settings, config)


async def _add_stream(js: Any, *, config: Any) -> None:
    await js.add_stream(config)


async def _update_stream(nats: NatsConnection, settings: NatsSettings, config: Any) -> None:
    """Update a stream to its settings; its retention cannot change."""
    try:
        await nats.request(lambda js: js.update_stream(config), timeout=settings.connect_timeout)
    except ServiceFailed as error:
        raise ServiceFailed(
            nats.address,
            f"has a stream {config.name!r} of another kind ({error.problem})",
            "choose another prefix, or remove that stream",
        ) from error


def stream_configs(settings: NatsSettings) -> list[Any]:
    """Return the configuration of each stream."""
    from nats.js import api

    common: dict[str, Any] = {
        "storage": api.StorageType.FILE,
        "num_replicas": settings.replicas,
        "max_age": settings.max_age,
        "duplicate_window": settings.duplicate_window,
        "max_bytes": settings.max_bytes,
    }
    discard = api.DiscardPolicy.NEW if settings.discard == "new" else api.DiscardPolicy.OLD
    return [
        api.StreamConfig(
            name=settings.broadcast_stream,
            subjects=[f"{settings.prefix}.all.>"],
            # Removed when all consumers have acknowledged; without any, a signal is not stored.
            retention=api.RetentionPolicy.INTEREST,
            discard=discard,
            **common,
        ),
        api.StreamConfig(
            name=settings.agent_stream,
            subjects=[f"{settings.prefix}.to.>"],
            # A work queue allows one consumer of a subject, so that only one process reads for an agent.
            retention=api.RetentionPolicy.WORK_QUEUE,
            discard=discard,
            **common,
        ),
        api.StreamConfig(
            name=settings.dead_letter_stream,
            subjects=[f"{settings.prefix}.dead.>"],
            retention=api.RetentionPolicy.LIMITS,
            discard=api.DiscardPolicy.OLD,  # the newest dead letters matter most
            **common,
        ),
    ]
