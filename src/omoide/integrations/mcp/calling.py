"""What does a tool know when an MCP client calls it?

The store and the scope, which whoever started the server has fixed. The client says neither.
"""

from __future__ import annotations

from typing import Any

from omoide import ids
from omoide.core.agent import Agent
from omoide.core.context import Context
from omoide.core.definition import Definition
from omoide.core.scope import Scope

READER = "reader"
"""Who asks where no agent is named; nothing can be written then."""


class Call(Context):
    """The surroundings of one call, as memory tools expect them of a turn."""

    def __init__(self, house: House) -> None:
        super().__init__(house.agent)
        self.house = house
        self.store = house.store
        self.scope = house.scope
        # A repeated call has another name here: what it says again is known by its words.
        self.idempotency_key = ids.new("call_")


class House:
    """Whose memory a server serves."""

    def __init__(self, store: Any, scope: Scope) -> None:
        self.store = store
        self.scope = scope
        id = scope.agent_id or READER
        self.agent = Agent.new(Definition.new(READER), id=id)
        self._graph: Any = None

    @property
    def writable(self) -> bool:
        """Whether what is remembered would have an owner."""
        return self.scope.agent_id is not None

    def call(self) -> Call:
        """The surroundings of a new call."""
        return Call(self)

    def graph(self) -> Any:
        """The graph over the store, in memory; it is built when first asked for, and then kept up."""
        if self._graph is None:
            from omoide import graph

            self._graph = graph.open(self.store)
        return self._graph
