"""How is an agent told something later, or again and again?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omoide.core.directives import Cron, CronCancel, Schedule
from omoide.core.frozen import FrozenMap
from omoide.core.signal import Signal
from omoide.runtime.cron import next_after

if TYPE_CHECKING:
    from omoide.runtime.server import AgentServer
    from omoide.runtime.timing import Timer

SCHEDULED = "jido.agent.scheduled"
CRON = "cron"


def schedule(directive: Schedule, server: AgentServer) -> None:
    """Tell it once, so many milliseconds from now."""
    life, runtime = server.life, server.runtime

    def ring() -> None:
        life.timers.discard(timer)
        server.tell(signal_of(directive.message, server))

    timer: Timer = runtime.timers.after(directive.delay_ms, ring)
    life.timers.add(timer)


def repeat(directive: Cron, server: AgentServer) -> None:
    """Tell it at the times of a cron line; a job of the same id is replaced."""
    life, runtime = server.life, server.runtime
    key = (CRON, directive.job_id)

    def ring() -> None:
        wind(runtime.timing.now())
        server.tell(signal_of(directive.message, server, directive.job_id))

    def wind(after: int) -> None:
        at = next_after(directive.expression, after, directive.timezone)
        life.named[key] = runtime.timers.at(at, ring)

    before = life.named.get(key)
    wind(runtime.timing.now())
    if before is not None:
        before.cancel()


def cancel(directive: CronCancel, server: AgentServer) -> None:
    """End what a cron job began; one that is not there is no error."""
    job = server.life.named.pop((CRON, directive.job_id), None)
    if job is not None:
        job.cancel()


def signal_of(message: Any, server: AgentServer, job_id: str | None = None) -> Signal:
    """The message itself if it is a signal, named by a word, or wrapped in one."""
    if isinstance(message, Signal):
        # Each time it is another event.
        return Signal(
            type=message.type, data=message.data, source=message.source, subject=message.subject,
            extensions=message.extensions,
        )  # fmt: skip
    data = FrozenMap({"message": message} if job_id is None else {"message": message, "job_id": job_id})
    return Signal(type=SCHEDULED, data=data, source=server.source)
