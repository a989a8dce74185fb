"""Who are you, and what can you do?

An agent that is asked so answers from a snapshot of its identity. Nothing about it changes, and no route is
needed; one without an identity says what its plugins offer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omoide import identity
from omoide.core.agent import Agent
from omoide.core.directives import Directive, Emit
from omoide.core.frozen import FrozenMap
from omoide.core.identity import Identity
from omoide.core.routing import all_actions
from omoide.core.signal import Signal

if TYPE_CHECKING:
    from omoide.runtime.server import AgentServer

REQUEST = "jido.identity.capabilities.request"
RESPONSE = "jido.identity.capabilities.response"


def answer(server: AgentServer, request: Signal) -> list[Directive]:
    """The response, sent to whom the request says, else the agent's usual way, else over the bus."""
    data = request.data if isinstance(request.data, FrozenMap) else {}
    wanted = data.get("reply_to")
    dispatch = server.terms.dispatch or FrozenMap({"bus": True})
    if isinstance(wanted, str) and wanted:
        dispatch = FrozenMap({"to": wanted})
    return [Emit(signal=response(server.agent, request), dispatch=dispatch)]


def response(agent: Agent, request: Signal) -> Signal:
    """What an agent shows of itself, in answer to a request."""
    shown = identity.snapshot(agent)
    if shown is None:
        bare = Identity()
        shown = bare.snapshot().set(
            "capabilities", bare.capabilities.set("actions", all_actions(agent, bare))
        )
    data: dict[str, Any] = {
        "request_id": request.id,
        "agent_id": agent.id,
        "name": agent.name,
        **shown,
    }
    return Signal(type=RESPONSE, data=data, source=f"/omoide/agents/{agent.id}", subject=request.id)
