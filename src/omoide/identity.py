"""Functions on the identity of an agent, and selection of agents by capability.

Changes create the identity if it is missing, reads never do. The actions of an agent are those that its
identity declares and those that its plugins offer at the time of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Concatenate, ParamSpec

import msgspec

from omoide import ids
from omoide.core.action import Action, action
from omoide.core.agent import Agent, Candidate, Requirements, capabilities, rank
from omoide.core.frozen import EMPTY_LIST, EMPTY_MAP, FrozenList, FrozenMap
from omoide.core.identity import Identity, action_name, known_agent_record
from omoide.core.state import IDENTITY, MEMORY, Context, copy_method_metadata
from omoide.errors import CapabilityDrift, NotFound, WrongType

P = ParamSpec("P")

_KEY = IDENTITY.key
get = IDENTITY.get
of = IDENTITY.get_or_new
put = IDENTITY.put
update = IDENTITY.update
has_identity = IDENTITY.has


def key() -> str:
    """Return the key of the state that holds the identity."""
    return _KEY


def ensure(
    agent: Agent,
    *,
    profile: Mapping[str, Any] | None = None,
    capabilities: Mapping[str, Any] | None = None,
    extensions: Mapping[str, Any] | None = None,
    now: int | None = None,
    check_drift: bool = False,
) -> Agent:
    """Return the agent with an identity, created from these parts if it has none.

    Args:
        check_drift: True to raise `CapabilityDrift` for declared actions that nothing offers; for development
            and tests.
    """
    # The factory takes None for a default, so the parts can be passed as they came.
    parts = {"profile": profile, "capabilities": capabilities, "extensions": extensions, "now": now}
    agent = IDENTITY.ensure(agent, **parts)
    missing = drift(agent) if check_drift else ()
    if missing:
        raise CapabilityDrift(agent.name, missing)
    return agent


def drift(agent: Agent) -> tuple[str, ...]:
    """Return the actions that the identity declares and the agent does not have."""
    identity = get(agent)
    offered = agent.definition.action_names()
    return () if identity is None else tuple(name for name in identity.actions() if name not in offered)


def _agent_function(
    method: Callable[Concatenate[Identity, P], Identity],
) -> Callable[Concatenate[Agent, P], Agent]:
    """Wrap a method of Identity as a function on agents."""

    def on_agent(agent: Agent, /, *args: P.args, **kwargs: P.kwargs) -> Agent:
        before = IDENTITY.get_or_new(agent)
        after = method(before, *args, **kwargs)
        return agent if after is before and agent.state.get(_KEY) is before else IDENTITY.put(agent, after)

    return copy_method_metadata(on_agent, method, __name__)


evolve = _agent_function(Identity.evolve)
put_profile = _agent_function(Identity.put_profile)
add_action = _agent_function(Identity.add_action)
remove_action = _agent_function(Identity.remove_action)
add_tag = _agent_function(Identity.add_tag)
set_limit = _agent_function(Identity.set_limit)
set_io = _agent_function(Identity.set_io)
put_extension = _agent_function(Identity.put_extension)
update_extension = _agent_function(Identity.update_extension)
merge_extension = _agent_function(Identity.merge_extension)


@action
def identity_evolve(
    ctx: Context, days: Annotated[int, msgspec.Meta(ge=0)] = 0, years: Annotated[int, msgspec.Meta(ge=0)] = 0
) -> Identity:
    """Evolve the agent's identity over simulated time."""
    return ctx.identity.evolve(years=years, days=days)


def age(agent: Agent) -> int | None:
    """Return the age in years, or None."""
    identity = get(agent)
    return None if identity is None else identity.age


def get_profile(agent: Agent, key: str, default: Any = None) -> Any:
    """Return a fact of the profile, or the default."""
    identity = get(agent)
    return default if identity is None else identity.get_profile(key, default)


def actions(agent: Agent) -> FrozenList[str]:
    """Return the actions that the identity declares, and those that the agent's plugins offer."""
    names: FrozenList[str] = capabilities(agent)["actions"]
    return names


def tags(agent: Agent) -> FrozenList[str]:
    """Return the tags."""
    identity = get(agent)
    return EMPTY_LIST if identity is None else identity.tags()


def supports_action(agent: Agent, action: str | Action) -> bool:
    """Return True if the agent has an action, given by itself or by its name."""
    return action_name(action) in actions(agent)


def has_tag(agent: Agent, tag: str) -> bool:
    """Return True if the agent has a tag."""
    return tag in tags(agent)


def get_extension(agent: Agent, plugin: str, default: Any = None) -> Any:
    """Return a plugin's slice, or the default."""
    identity = get(agent)
    return default if identity is None else identity.get_extension(plugin, default)


def snapshot(agent: Agent) -> FrozenMap[str, Any] | None:
    """Return the public part of the identity, or None if there is no identity."""
    identity = get(agent)
    return None if identity is None else identity.snapshot().set("capabilities", capabilities(agent))


def route(
    agents: Iterable[Agent],
    *,
    action: str | Action | None = None,
    tags: Iterable[str] = (),
    limits: Mapping[str, Any] = EMPTY_MAP,
    io: Mapping[str, Any] = EMPTY_MAP,
) -> list[Candidate]:
    """Return the agents that fit, each with the reason, the most experienced first.

    Args:
        agents: the agents to choose from.
        action: the action that they must support.
        tags: the tags that they must all have.
        limits: the values that their limits must allow; an agent without such a limit allows any value.
        io: the I/O flags that they must have; a flag that is not declared is False.
    """
    return rank(agents, Requirements.new(action, tags, limits, io))


def best(
    agents: Iterable[Agent],
    *,
    action: str | Action | None = None,
    tags: Iterable[str] = (),
    limits: Mapping[str, Any] = EMPTY_MAP,
    io: Mapping[str, Any] = EMPTY_MAP,
) -> Candidate | None:
    """Return the first of `route`, or None if no agent fits."""
    return next(iter(rank(agents, Requirements.new(action, tags, limits, io))), None)


def add_known_agent(
    agent: Agent, other: Agent, *, trust: float | None = None, now: int | None = None
) -> Agent:
    """Return the agent with the snapshot of another one stored under `world.known_agents`.

    Raises:
        NotFound: if the other agent has no identity.
    """
    public = snapshot(other)
    if public is None:
        raise NotFound("identity of agent", other.id, "give it one with identity.ensure first")
    return add_known_snapshot(agent, other.id, public, trust=trust, now=now)


def add_known_snapshot(
    agent: Agent,
    other_id: str,
    snapshot: Mapping[str, Any],
    *,
    trust: float | None = None,
    now: int | None = None,
) -> Agent:
    """Return the agent with a snapshot from elsewhere stored under `world.known_agents`."""
    memory = MEMORY.get(agent)
    stored = None if memory is None else memory.world_get("known_agents")
    if stored is not None and not isinstance(stored, FrozenMap):
        raise WrongType("world.known_agents", "a mapping", stored, "move that value to another key")
    known = known_agents(agent).set(ids.check(other_id, "other_id"), known_agent_record(snapshot, trust, now))
    return MEMORY.put(agent, MEMORY.get_or_new(agent).world_put("known_agents", known, now=now))


def known_agents(agent: Agent) -> FrozenMap[str, Any]:
    """Return the known agents: snapshot, trust and last_seen by id."""
    memory = MEMORY.get(agent)
    known = None if memory is None else memory.world_get("known_agents")
    return known if isinstance(known, FrozenMap) else EMPTY_MAP


__all__ = [
    "Candidate",
    "actions",
    "add_action",
    "add_known_agent",
    "add_known_snapshot",
    "add_tag",
    "age",
    "best",
    "capabilities",
    "drift",
    "ensure",
    "evolve",
    "get",
    "get_extension",
    "get_profile",
    "has_identity",
    "has_tag",
    "identity_evolve",
    "key",
    "known_agents",
    "merge_extension",
    "of",
    "put",
    "put_extension",
    "put_profile",
    "remove_action",
    "route",
    "set_io",
    "set_limit",
    "snapshot",
    "supports_action",
    "tags",
    "update",
    "update_extension",
]
