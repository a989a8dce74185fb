"""Streams and consumers.

A reader gets one message at a time, and the next when that one is confirmed: so nothing overtakes, whatever
breaks in between. An agent has one reader only; whoever takes its post up removes the one before.

In three streams for each prefix. What is told to all stays until all who subscribed have accepted it; what is
told to an agent stays until that agent has, whether it lives at the moment or not; what could not be handled
stays to be looked at.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from omoide import ids
from omoide.errors import OmoideError, OwnedElsewhere, ServiceFailed, Unreachable
from omoide.runtime.nats import connection
from omoide.runtime.nats.connection import Link, Settings

# consumers: Who of a stream's readers stands where?


IDLE_S = 300.0
"""After how long a reader of what is told to all is forgotten, when its process is gone."""
TRIES = 5
_SUSPECT, _STRIKES = "omoide-suspect", "omoide-strikes"


class Reader(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer of JetStream, by its name."""

    stream: str
    name: str
    suspect: int = 0
    """The number of the message that was being handled when another reader of the agent vanished."""
    strikes: int = 0
    """How many readers vanished so."""

    def before(self, number: int) -> int:
        """How often a message was brought to readers that vanished over it."""
        return self.strikes if number == self.suspect else 0


async def listening(link: Link, settings: Settings, subjects: list[str]) -> Reader:
    """A reader of what is told to all from now on."""
    from nats.js import api

    name = ids.uuid7()
    config = _config(settings, name, subjects).evolve(
        deliver_policy=api.DeliverPolicy.NEW, inactive_threshold=IDLE_S
    )
    await link.asked(lambda js: js.add_consumer(settings.all, config))
    return Reader(stream=settings.all, name=name)


async def reading(link: Link, settings: Settings, agent: str, subject: str, *, take: bool) -> Reader:
    """The reader of an agent's post; `take` says that whoever reads it now is to stop."""
    suspect = strikes = 0
    last: OmoideError | None = None
    for _ in range(TRIES):
        name = f"{sha256(agent.encode()).hexdigest()[:16]}-{ids.uuid7()}"
        config = _config(settings, name, [subject]).evolve(
            metadata={_SUSPECT: str(suspect), _STRIKES: str(strikes)}
        )
        try:
            await link.asked(lambda js, config=config: js.add_consumer(settings.to, config))  # type: ignore[misc]
            return Reader(stream=settings.to, name=name, suspect=suspect, strikes=strikes)
        except OmoideError as error:
            if connection.code(error.__cause__ or error) not in connection.NOT_UNIQUE:
                raise
            if not take:
                raise OwnedElsewhere(agent, "another reader") from error
            last = error
        suspect, strikes = await _removed(link, settings, subject)
    raise OwnedElsewhere(agent, "another reader") from last


async def dropped(link: Link, reader: Reader, *, within: float) -> None:
    """Remove a reader; one that is gone already is no error."""
    try:
        await link.asked(lambda js: js.delete_consumer(reader.stream, reader.name), within=within)
    except OmoideError as error:
        if not connection.is_missing(error.__cause__ or error):
            raise


async def is_there(link: Link, reader: Reader) -> bool:
    """Whether the server knows a reader."""
    try:
        await link.asked(lambda js: js.consumer_info(reader.stream, reader.name))
    except OmoideError as error:
        if connection.is_missing(error.__cause__ or error):
            return False
        raise
    return True


async def _removed(link: Link, settings: Settings, subject: str) -> tuple[int, int]:
    """Remove whoever reads a subject; the message it was about, and how many vanished over it so far."""
    suspect = strikes = offset = 0
    while page := await link.asked(lambda js, at=offset: js.consumers_info(settings.to, offset=at)):  # type: ignore[misc]
        offset += len(page)
        for info in page:
            if info.config.filter_subject == subject:
                if info.num_ack_pending:
                    suspect, strikes = info.delivered.stream_seq, _strikes(info)
                reader = Reader(stream=settings.to, name=info.name)
                await dropped(link, reader, within=settings.patience)
    return suspect, strikes


def _strikes(info: Any) -> int:
    known = info.config.metadata or {}
    try:
        same = int(known.get(_SUSPECT, 0)) == info.delivered.stream_seq
        return (int(known.get(_STRIKES, 0)) if same else 0) + 1
    except ValueError:
        return 1


def _config(settings: Settings, name: str, subjects: list[str]) -> Any:
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


async def opened(link: Link, settings: Settings) -> None:
    """Make the streams, or have them as they were set."""
    for config in configs(settings):
        try:
            await link.asked(lambda js, config=config: js.add_stream(config), within=settings.connect)  # type: ignore[misc]
        except OmoideError as error:
            if connection.code(error.__cause__ or error) != connection.OTHER_CONFIG:
                if not link.keeps and isinstance(error, Unreachable):
                    raise connection.no_jetstream(link.where) from error
                raise
            await _changed(link, settings, config)


async def _changed(link: Link, settings: Settings, config: Any) -> None:
    """Have a stream that is there as it was set; what kind of stream it is cannot change."""
    try:
        await link.asked(lambda js: js.update_stream(config), within=settings.connect)
    except ServiceFailed as error:
        raise ServiceFailed(
            link.where,
            f"has a stream {config.name!r} of another kind ({error.problem})",
            "choose another prefix, or remove that stream",
        ) from error


def configs(settings: Settings) -> list[Any]:
    """How each stream is kept."""
    from nats.js import api

    common: dict[str, Any] = {
        "storage": api.StorageType.FILE,
        "num_replicas": settings.replicas,
        "max_age": settings.max_age,
        "duplicate_window": settings.duplicates,
    }
    discard = api.DiscardPolicy.NEW if settings.discard == "new" else api.DiscardPolicy.OLD
    return [
        api.StreamConfig(
            name=settings.all,
            subjects=[f"{settings.prefix}.all.>"],
            retention=api.RetentionPolicy.INTEREST,
            discard=discard,
            max_bytes=settings.max_bytes,
            **common,
        ),
        api.StreamConfig(
            name=settings.to,
            subjects=[f"{settings.prefix}.to.>"],
            retention=api.RetentionPolicy.WORK_QUEUE,
            discard=discard,
            max_bytes=settings.max_bytes,
            **common,
        ),
        api.StreamConfig(
            name=settings.dead,
            subjects=[f"{settings.prefix}.dead.>"],
            retention=api.RetentionPolicy.LIMITS,
            discard=api.DiscardPolicy.OLD,  # here the newest matter
            max_bytes=settings.max_bytes,
            **common,
        ),
    ]
