"""What does an action know while it runs?"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from omoide.core import slot
from omoide.core.frozen import EMPTY_MAP, FrozenMap
from omoide.core.identity import Identity
from omoide.core.memory import Memory
from omoide.core.signal import Signal
from omoide.core.thread import Thread

if TYPE_CHECKING:
    from omoide.core.agent import Agent


class Context:
    """The agent as it is before the action, the signal that led to it, if one did, and a plugin's config.

    `memory`, `identity` and `thread` are always there: where the agent has none yet, they are the ones it
    would get.
    """

    def __init__(
        self, agent: Agent, signal: Signal | None = None, config: FrozenMap[str, Any] = EMPTY_MAP
    ) -> None:
        self.agent = agent
        self.signal = signal
        self.config = config

    @property
    def state(self) -> FrozenMap[str, Any]:
        """The agent's state."""
        return self.agent.state

    @cached_property
    def memory(self) -> Memory:
        """What the agent believes and wants."""
        return slot.MEMORY.value(self.agent)

    @cached_property
    def identity(self) -> Identity:
        """What the agent is and can do."""
        return slot.IDENTITY.value(self.agent)

    @cached_property
    def thread(self) -> Thread:
        """What happened to the agent."""
        return slot.THREAD.value(self.agent)
