"""Who of many agents should do this, and why?

A candidate supports the action, carries every tag and allows for every limit. The most experienced comes
first; agents without an age come last, and where two are of one age the order in which they were given
decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from omoide.core.agent import Agent
from omoide.core.frozen import EMPTY_MAP, FrozenList, FrozenMap, freeze_map
from omoide.core.identity import Identity
from omoide.core.slot import IDENTITY
from omoide.core.texts import check_text
from omoide.core.value import check_texts
from omoide.errors import WrongType


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that can do what was asked, and the reason to think so."""

    agent: Agent
    reason: str
    age: int | None = None


def all_actions(agent: Agent, identity: Identity) -> FrozenList[str]:
    """What the identity declares, then what the agent's plugins offer beyond that."""
    declared = identity.actions()
    return declared.extend(name for name in agent.definition.offered() if name not in declared)


def rank(
    agents: Iterable[Agent],
    action: str | None,
    tags: Iterable[str],
    limits: Mapping[str, Any],
) -> list[Candidate]:
    """The agents that fit, best first, each with its reason."""
    if action is not None:
        check_text(action, "action")
    wanted = check_texts(tags, "tags")
    needed = freeze_map(limits, "limits")
    if isinstance(agents, Agent) or not isinstance(agents, Iterable):
        raise WrongType("agents", "a list of Agents", agents)
    found = []
    for agent in agents:
        if not isinstance(agent, Agent):
            raise WrongType("agents", "Agents only", agent)
        candidate = _considered(agent, action, wanted, needed)
        if candidate is not None:
            found.append(candidate)
    return sorted(found, key=lambda one: by_experience(one.age))


def by_experience(age: int | None) -> int:
    """What candidates are sorted by, so that the most experienced comes first and one without an age last."""
    return 1 if age is None else -age


def _considered(
    agent: Agent, action: str | None, tags: tuple[str, ...], limits: FrozenMap[str, Any]
) -> Candidate | None:
    identity = IDENTITY.get(agent)
    if identity is None:
        return None
    reasons = []
    if action is not None:
        if action not in all_actions(agent, identity):
            return None
        how = "declares" if identity.supports_action(action) else "offers"
        reasons.append(f"{how} {action}")
    for tag in tags:
        if not identity.has_tag(tag):
            return None
        reasons.append(f"carries the tag {tag}")
    declared = identity.capabilities.get("limits", EMPTY_MAP)
    for name in sorted(limits):
        reason = _within(name, declared.get(name), limits[name])
        if reason is None:
            return None
        reasons.append(reason)
    reasons.append(_experience(identity.age))
    return Candidate(agent=agent, reason=f"{agent.name}: {'; '.join(reasons)}", age=identity.age)


def _within(name: str, allowed: Any, needed: Any) -> str | None:
    """Why a limit is no obstacle, or None. A number must reach what is needed, all else must equal it."""
    if allowed is None:
        return f"declares no {name}"
    numbers = all(isinstance(side, (int, float)) and not isinstance(side, bool) for side in (allowed, needed))
    if allowed < needed if numbers else allowed != needed:
        return None
    return f"{name} {allowed} allows for {needed}" if numbers else f"{name} is {allowed}"


def _experience(age: int | None) -> str:
    if age is None:
        return "has no age yet"
    return f"is {age} year old" if age == 1 else f"is {age} years old"
