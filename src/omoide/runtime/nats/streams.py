"""Where does NATS keep signals?

In three streams for each prefix. What is told to all stays until all who subscribed have accepted it; what is
told to an agent stays until that agent has, whether it lives at the moment or not; what could not be handled
stays to be looked at.
"""

from __future__ import annotations

from typing import Any

from omoide.errors import OmoideError, ServiceFailed, Unreachable
from omoide.runtime.nats import failures
from omoide.runtime.nats.link import Link
from omoide.runtime.nats.settings import Settings


async def opened(link: Link, settings: Settings) -> None:
    """Make the streams, or have them as they were set."""
    for config in configs(settings):
        try:
            await link.asked(lambda js, config=config: js.add_stream(config), within=settings.connect)  # type: ignore[misc]
        except OmoideError as error:
            if failures.code(error.__cause__ or error) != failures.OTHER_CONFIG:
                if not link.keeps and isinstance(error, Unreachable):
                    raise failures.no_jetstream(link.where) from error
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
