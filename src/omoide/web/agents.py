"""How is it asked over HTTP who rests in a store, and who can do something?"""

from __future__ import annotations

from litestar.datastructures import State

from omoide.core.scope import Scope
from omoide.service import agents as resting
from omoide.service.agents import Card
from omoide.service.answers import Agents, Choices, Partition, Partitions
from omoide.web import bodies
from omoide.web.asking import asks, reads


@reads("/agents")
async def agents(state: State, within: Scope) -> Agents:
    """Everybody who rests in a namespace."""
    return Agents(agents=tuple(await resting.cards(state.store, namespace=within.namespace)))


@reads("/identity", 404)
async def identity(state: State, within: Scope, id: str) -> Card:
    """What an agent shows of itself."""
    return await resting.card(state.store, id, namespace=within.namespace)


@reads("/spaces", 404)
async def spaces(state: State, within: Scope, id: str) -> Partitions:
    """What an agent believes and wants."""
    found = await resting.spaces(state.store, id, namespace=within.namespace)
    return Partitions(
        spaces=tuple(Partition(name=name, data=one.data, rev=one.rev) for name, one in found.items())
    )


@asks("/who-can")
async def who_can(state: State, within: Scope, asked: bodies.WhoCan) -> Choices:
    """Who of those at rest can do something, best first, each with the reason."""
    found = await resting.who_can(
        state.store, asked.action, asked.tags, asked.limits or {}, namespace=within.namespace
    )
    return Choices(choices=tuple(found))


HANDLERS = [agents, identity, spaces, who_can]
