"""What is this agent, what can it do, and who of many should do this?

Functions on an agent: changes create the identity where it is missing, reads never do. What an agent can do
is what its identity declares, together with what its plugins really offer at the moment of the question.

"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Concatenate, ParamSpec

import msgspec

from omoide import ids
from omoide.core.action import action
from omoide.core.agent import Agent, Candidate, all_actions, rank
from omoide.core.frozen import EMPTY_LIST, EMPTY_MAP, FrozenList, FrozenMap
from omoide.core.identity import DEFAULT_CAPABILITIES, Identity, known_agent_record
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
    """The key of the state that holds the identity."""
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
    """The agent with an identity, made from these parts unless it has one.

    With `check_drift`, meant for development and tests, `CapabilityDrift` is raised for declared actions that
    nothing offers.
    """
    parts = {"profile": profile, "capabilities": capabilities, "extensions": extensions, "now": now}
    agent = IDENTITY.ensure(agent, **parts)
    missing = drift(agent) if check_drift else ()
    if missing:
        raise CapabilityDrift(agent.name, missing)
    return agent


def drift(agent: Agent) -> tuple[str, ...]:
    """The actions that the identity declares and the agent does not really have."""
    identity = get(agent)
    offered = agent.definition.action_names()
    return () if identity is None else tuple(name for name in identity.actions() if name not in offered)


def _agent_function(
    method: Callable[Concatenate[Identity, P], Identity],
) -> Callable[Concatenate[Agent, P], Agent]:
    """A method of Identity as a function on agents."""

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
    ctx: Context,
    days: Annotated[int, msgspec.Meta(ge=0)] = 0,
    years: Annotated[int, msgspec.Meta(ge=0)] = 0,
) -> Identity:
    """Evolve the agent's identity over simulated time."""
    return ctx.identity.evolve(years=years, days=days)


def age(agent: Agent) -> int | None:
    """Years lived, or None."""
    identity = get(agent)
    return None if identity is None else identity.age


def get_profile(agent: Agent, key: str, default: Any = None) -> Any:
    """A fact of the profile, or the default."""
    identity = get(agent)
    return default if identity is None else identity.get_profile(key, default)


def capabilities(agent: Agent) -> FrozenMap[str, Any]:
    """The manifest others route by; empty where there is no identity."""
    identity = get(agent)
    if identity is None:
        return DEFAULT_CAPABILITIES
    return identity.capabilities.set("actions", all_actions(agent, identity))


def actions(agent: Agent) -> FrozenList[str]:
    """The actions it declares, and those its plugins offer."""
    found: FrozenList[str] = capabilities(agent)["actions"]
    return found


def tags(agent: Agent) -> FrozenList[str]:
    """The tags it carries."""
    identity = get(agent)
    return EMPTY_LIST if identity is None else identity.tags()


def supports_action(agent: Agent, action: str) -> bool:
    """Whether it can do something."""
    return action in actions(agent)


def has_tag(agent: Agent, tag: str) -> bool:
    """Whether it carries a tag."""
    return tag in tags(agent)


def get_extension(agent: Agent, plugin: str, default: Any = None) -> Any:
    """A plugin's slice, or the default."""
    identity = get(agent)
    return default if identity is None else identity.get_extension(plugin, default)


def snapshot(agent: Agent) -> FrozenMap[str, Any] | None:
    """What others may see of it, or None where there is no identity."""
    identity = get(agent)
    return None if identity is None else identity.snapshot().set("capabilities", capabilities(agent))


def route(
    agents: Iterable[Agent],
    *,
    action: str | None = None,
    tags: Iterable[str] = (),
    limits: Mapping[str, Any] = EMPTY_MAP,
) -> list[Candidate]:
    """The agents that fit, each with its reason, the most experienced first; no declared limit is none."""
    return rank(agents, action, tags, limits)


def best(
    agents: Iterable[Agent],
    *,
    action: str | None = None,
    tags: Iterable[str] = (),
    limits: Mapping[str, Any] = EMPTY_MAP,
) -> Candidate | None:
    """The first of `route`, or None where nobody fits."""
    return next(iter(rank(agents, action, tags, limits)), None)


def add_known_agent(
    agent: Agent, other: Agent, *, trust: float | None = None, now: int | None = None
) -> Agent:
    """The agent with what another one shows of itself kept under `world.known_agents`."""
    shown = snapshot(other)
    if shown is None:
        raise NotFound("identity of agent", other.id, "give it one with identity.ensure first")
    return add_known_snapshot(agent, other.id, shown, trust=trust, now=now)


def add_known_snapshot(
    agent: Agent,
    other_id: str,
    snapshot: Mapping[str, Any],
    *,
    trust: float | None = None,
    now: int | None = None,
) -> Agent:
    """The same for a snapshot that came from elsewhere."""
    memory = MEMORY.get(agent)
    held = None if memory is None else memory.world_get("known_agents")
    if held is not None and not isinstance(held, FrozenMap):
        raise WrongType("world.known_agents", "a mapping", held, "move what is there to another key")
    known = known_agents(agent).set(ids.check(other_id, "other_id"), known_agent_record(snapshot, trust, now))
    return MEMORY.put(agent, MEMORY.get_or_new(agent).world_put("known_agents", known, now=now))


def known_agents(agent: Agent) -> FrozenMap[str, Any]:
    """What the agent knows of others: snapshot, trust and last_seen by id."""
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
