"""Which effects does an agent ask for?

Directives are data that `cmd` returns and the runtime carries out, in order; none of them touches the state.
What a runtime has to look up (a sensor, a child, a provider) is named, so that every directive can be written
down and read back.
"""

from __future__ import annotations

import msgspec

from omoide import ids
from omoide.core.action import Instruction
from omoide.core.codec import Frozen, ListField, MapField
from omoide.core.frozen import EMPTY_MAP, freeze_map
from omoide.core.nesting import own
from omoide.core.signal import Signal
from omoide.core.texts import check_text
from omoide.core.value import Count, Id, Name, Value
from omoide.errors import Invalid

MEMORY_RESULT = "jido.memory.result"


class Directive(Value, frozen=True, kw_only=True):
    """The base of all effects; anyone may add their own."""


@own
class Emit(Directive, frozen=True, kw_only=True):
    """Send a signal: to the targets named, else by the default way, else back to the agent itself."""

    signal: Signal
    dispatch: MapField | None = None


@own
class Error(Directive, frozen=True, kw_only=True):
    """Something failed, in the context normalize, params, run, result, hook, strategy, signal or routing."""

    message: str
    context: Name = "run"
    action: str | None = None
    field: str | None = None
    kind: str = "Error"
    trace: str = ""


@own
class RunInstruction(Directive, frozen=True, kw_only=True):
    """Run an effectful action, and feed its result to `result_action` where one is named."""

    instruction: Instruction
    result_action: Name | None = None


@own
class Spawn(Directive, frozen=True, kw_only=True):
    """Start a process of the runtime's that is not an agent."""

    target: Name
    config: MapField = EMPTY_MAP
    tag: Id | None = None


@own
class SpawnAgent(Directive, frozen=True, kw_only=True):
    """Start a child agent of a kind the runtime knows, followed under `tag`."""

    kind: Name
    tag: Id
    id: Id | None = None
    state: MapField = EMPTY_MAP
    metadata: MapField = EMPTY_MAP


@own
class AdoptChild(Directive, frozen=True, kw_only=True):
    """Take a running agent as a child."""

    child: Id
    tag: Id
    metadata: MapField = EMPTY_MAP


@own
class StopChild(Directive, frozen=True, kw_only=True):
    """Stop the child under a tag."""

    tag: Id
    reason: str = "normal"


@own
class StartSensor(Directive, frozen=True, kw_only=True):
    """Start a sensor, whose signals come to this agent."""

    sensor: Name
    tag: Id
    config: MapField = EMPTY_MAP


@own
class StopSensor(Directive, frozen=True, kw_only=True):
    """Stop the sensor under a tag."""

    tag: Id


@own
class Schedule(Directive, frozen=True, kw_only=True):
    """Tell the agent something later; what is no signal is wrapped in one."""

    delay_ms: Count
    message: Frozen


@own
class Cron(Directive, frozen=True, kw_only=True):
    """Tell the agent something again and again."""

    expression: Name
    message: Frozen
    job_id: Id = msgspec.field(default_factory=lambda: ids.new("job_"))
    timezone: Name = "UTC"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.expression.startswith("@") and len(self.expression.split()) not in (5, 6):
            raise Invalid("expression", f"{self.expression!r} is no cron line", "use 5 fields, or @hourly")


@own
class CronCancel(Directive, frozen=True, kw_only=True):
    """End what `Cron` began."""

    job_id: Id


@own
class Stop(Directive, frozen=True, kw_only=True):
    """Stop this agent now; directives that wait are dropped."""

    reason: str = "normal"


@own
class MemoryQuery(Directive, frozen=True, kw_only=True):
    """Ask a memory provider; the answer comes as one signal with the same request id."""

    query: MapField
    provider: Name
    request_id: Id = msgspec.field(default_factory=lambda: ids.new("req_"))
    opts: MapField = EMPTY_MAP
    reply_signal_type: Name = MEMORY_RESULT


@own
class MemoryUpsert(Directive, frozen=True, kw_only=True):
    """Put items, `{"key", "value", "embedding"?}`, into a memory provider."""

    items: ListField
    provider: Name
    request_id: Id = msgspec.field(default_factory=lambda: ids.new("req_"))
    opts: MapField = EMPTY_MAP
    reply_signal_type: Name = MEMORY_RESULT

    def __post_init__(self) -> None:
        super().__post_init__()
        for at, item in enumerate(self.items):
            freeze_map(item, f"items[{at}]")
            if "key" not in item or "value" not in item:
                raise Invalid(f"items[{at}]", "lacks key or value", 'pass {"key": …, "value": …}')


@own
class MemoryDelete(Directive, frozen=True, kw_only=True):
    """Delete keys from a memory provider."""

    keys: ListField
    provider: Name
    request_id: Id = msgspec.field(default_factory=lambda: ids.new("req_"))
    opts: MapField = EMPTY_MAP
    reply_signal_type: Name = MEMORY_RESULT

    def __post_init__(self) -> None:
        super().__post_init__()
        for at, key in enumerate(self.keys):
            check_text(key, f"keys[{at}]")


BUILT_IN: tuple[type[Directive], ...] = tuple(Directive.__subclasses__())
"""Every directive that ships with Omoide."""
