"""Whose memory does a turn read and write?

The spec's policy says how far memory reaches; the session and the context of the turn say which one it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omoide import ids
from omoide.core.frozen import EMPTY_MAP
from omoide.core.scope import DEFAULT_NAMESPACE, Scope
from omoide.errors import Invalid, MissingNamespace, MissingProject, MissingSession
from omoide.turns.context import Asked
from omoide.turns.policy import MemoryPolicy
from omoide.turns.spec import AgentSpec


def enabled(spec: AgentSpec) -> MemoryPolicy | None:
    """The policy, if the agent has memory at all."""
    return spec.memory if spec.memory is not None and spec.memory.enabled else None


def scope_of(
    spec: AgentSpec,
    policy: MemoryPolicy,
    *,
    session_id: str | None = None,
    project_id: str | None = None,
    context: Mapping[str, Any] = EMPTY_MAP,
    within: bool = False,
) -> Scope:
    """The scope of what the agent remembers in this session and context.

    `within` names the session also where memory is the agent's: for what was said in it, which goes with it.
    """
    session = None
    if policy.scope == "session" and not session_id:
        raise MissingSession()
    if policy.scope == "project" and not project_id:
        raise MissingProject()
    if session_id and (within or policy.scope == "session"):
        session = ids.check(session_id, "session_id")
    return Scope(
        agent_id=spec.id,
        session_id=session,
        project_id=project_id,
        namespace=namespace_of(policy, context),
    )


def reach_of(scope: Scope, policy: MemoryPolicy) -> Scope:
    """What recall sees of it: a project is a label on what an agent knows, unless the policy is about it."""
    if policy.scope == "project":
        return Scope(namespace=scope.namespace, project_id=scope.project_id)
    return scope.replace(project_id=None)


def namespace_of(policy: MemoryPolicy, context: Mapping[str, Any]) -> str:
    """The namespace, said by the policy or by the context; a context that does not say it is refused."""
    if policy.namespace is None:
        return DEFAULT_NAMESPACE
    if isinstance(policy.namespace, str):
        return policy.namespace
    key = policy.namespace[1]
    said = context.get(key)
    if said is None or said == "":
        raise MissingNamespace(key)
    return ids.check(str(said), f"context.{key}")


def taken_up(spec: AgentSpec, asked: Asked, context: Mapping[str, Any]) -> Mapping[str, Any]:
    """The context of a turn that is taken up again, whose memory stays in the namespace it had."""
    policy = enabled(spec)
    whole = {**asked.context, **context}
    if policy is None or asked.namespace is None:
        return whole
    if isinstance(policy.namespace, tuple):
        whole.setdefault(policy.namespace[1], asked.namespace)
    if namespace_of(policy, whole) != asked.namespace:
        raise Invalid("context", "names another namespace than the turn had", "leave it out, or correct it")
    return whole
