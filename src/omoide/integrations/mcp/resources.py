"""What can a client read without calling a tool?

An index of what there is, single memories, the public side of agents that rest in the store, and the spaces
of the agent whose memory this is. What lies outside the scope is answered like what nobody has.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any
from urllib.parse import quote

from mcp.server.mcpserver import MCPServer, ResourceSecurity
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError

from omoide.errors import NotFound, OmoideError
from omoide.integrations.mcp.calling import House
from omoide.integrations.mcp.knowing import whose
from omoide.integrations.mcp.looking import whole
from omoide.longterm import reading
from omoide.service import agents
from omoide.service.agents import Card
from omoide.service.problems import line
from omoide.stores.protocols import Queries
from omoide.stores.records import Query
from omoide.turns.telling import clean, told

INDEX = "memory://index"
SPACE = "memory://spaces/{agent}/{space}"
ENTRY = "memory://entries/{id}"
IDENTITY = "memory://identity/{agent}"
LISTED = 50
"""How many memories the index names, the newest first."""

_JSON = "application/json"
_SHOWN = 100
# Ids may look like paths; they never become one.
_IDS = ResourceSecurity(reject_path_traversal=False, reject_absolute_paths=False)


def add_resources(server: MCPServer[Any], house: House) -> None:
    """Let a server's clients read these."""

    @server.resource(INDEX, name="index", title="What there is to read", mime_type=_JSON)
    async def index() -> str:
        """The agents that rest here, the spaces that can be read, and the newest memories."""
        return await _told(_index(house))

    @server.resource(ENTRY, name="memory", title="A memory", mime_type=_JSON, security=_IDS)
    async def entry(id: str) -> str:
        """One memory with everything known of it."""
        return await _told(_entry(house, id))

    @server.resource(IDENTITY, name="identity", title="An identity", mime_type=_JSON, security=_IDS)
    async def identity(agent: str) -> str:
        """What an agent is and can do, as far as it shows it."""
        return await _told(_identity(house, agent))

    @server.resource(SPACE, name="space", title="A space of memory", mime_type=_JSON, security=_IDS)
    async def space(agent: str, space: str) -> str:
        """What an agent believes and wants, of one kind: world, tasks, or a space of its own."""
        return await _told(_space(house, agent, space))


async def _told(answer: Awaitable[dict[str, Any]]) -> str:
    try:
        return told(await answer)
    except NotFound as error:
        raise ResourceNotFoundError(clean(line(error))) from error
    except OmoideError as error:
        raise ResourceError(clean(line(error))) from error


async def _index(house: House) -> dict[str, Any]:
    scope = house.scope
    cards = await agents.cards(house.store, namespace=scope.namespace)
    newest: list[dict[str, Any]] = []
    if isinstance(house.store, Queries):
        page = await house.store.query(Query(scope=scope, limit=LISTED))
        newest = [
            {"uri": _uri("entries", one.id), "type": one.type, "content": one.content[:_SHOWN]}
            for one in page.entries
        ]
    return {"scope": whose(scope), "agents": [_listed(house, card) for card in cards], "newest": newest}


def _listed(house: House, card: Card) -> dict[str, Any]:
    spaces = card.spaces if _own(house, card.id) else ()
    return {
        "id": card.id,
        "name": card.name,
        "identity": _uri("identity", card.id),
        "spaces": [_uri("spaces", card.id, name) for name in spaces],
    }


async def _entry(house: House, id: str) -> dict[str, Any]:
    return whole(await reading.get(house.store, id, house.scope))


async def _identity(house: House, agent: str) -> dict[str, Any]:
    card = await agents.card(house.store, agent, namespace=house.scope.namespace)
    return {
        "id": card.id,
        "name": card.name,
        "description": card.description,
        "identity": card.identity,
    }


async def _space(house: House, agent: str, name: str) -> dict[str, Any]:
    if not _own(house, agent):
        raise NotFound("agent at rest", agent, "see which there are")
    found = await agents.spaces(house.store, agent, namespace=house.scope.namespace)
    if name not in found:
        raise NotFound("space", name, f"use one of {', '.join(found) or 'none'}")
    return {"agent": agent, "space": name, "rev": found[name].rev, "data": found[name].data}


def _own(house: House, agent: str) -> bool:
    """Whether what an agent believes is for this server to tell."""
    return house.scope.agent_id in (None, agent)


def _uri(*parts: str) -> str:
    return "memory://" + "/".join(quote(part, safe="") for part in parts)
