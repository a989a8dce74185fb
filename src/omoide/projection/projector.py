"""How does what happened become what the agent knows?

A projector reads entries of the thread and returns another memory. It is pure: what it wants done elsewhere
it returns as directives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from omoide.core.directives import Directive
from omoide.core.frozen import EMPTY_MAP, FrozenMap
from omoide.core.memory import Memory
from omoide.core.thread import Thread, ThreadEntry

Projected: TypeAlias = Memory | tuple[Memory, Sequence[Directive]]


class ProjectionContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a projector knows of the run it is part of."""

    agent_id: str
    now: int
    """The moment of the run, in milliseconds."""
    since: int
    """The position of the first entry that this projector has not covered yet."""
    fresh: tuple[ThreadEntry, ...]
    """The entries to project, from there on; never empty."""
    config: FrozenMap[str, Any] = EMPTY_MAP


@runtime_checkable
class Projector(Protocol):
    """Compiles entries of a thread into a memory.

    Its name says which mark is its own. One with `confirmed = True` has covered entries only when all that it
    asked memory providers for was done; it may be asked for the same entries again, and so uses the same keys
    for them each time. `retry_ms` is how long it waits for that, and after a failure.
    """

    @property
    def name(self) -> str:
        """What it is called among the projectors of an agent."""
        ...

    def project(self, memory: Memory, thread: Thread, ctx: ProjectionContext) -> Projected:
        """The memory with what the fresh entries add to it, and directives where it needs any."""
        ...
