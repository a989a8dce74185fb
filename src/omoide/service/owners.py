"""Tell who has memories: which users, agents, projects and namespaces, and how many.

Only for callers whose rights cover a whole namespace. What is limited to a scope, such as the tools of an
agent or an MCP server, learns nothing of others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from omoide.core.entry import Scope
from omoide.stores.records import Owner

_MAX_NAMED = 3
"""Number of other owners that an empty answer names."""


def describe_elsewhere(owners: Iterable[Owner], scope: Scope, assignment: str) -> str | None:
    """Return what an empty answer says of the memories outside its scope; None if there are none.

    Args:
        owners: those of the namespace.
        scope: the scope in which nothing was found.
        assignment: how a parameter is written, such as `--{name} {value}`; an empty value lifts it.
    """
    counts: Counter[tuple[tuple[str, str], ...]] = Counter()
    for owner in owners:
        path = _path_to(owner, scope)
        if path and owner.live:
            counts[path] += owner.live
    if not counts:
        return None
    named = sorted(counts.items(), key=lambda item: (len(item[0]), -item[1], item[0]))[:_MAX_NAMED]
    options = [
        " ".join(assignment.format(name=name, value=value or "''") for name, value in path)
        + (f" ({count:,})" if len(counts) > 1 else "")
        for path, count in named
    ]
    more = ", …" if len(counts) > _MAX_NAMED else ""
    searched = scope.describe().partition(", ")[2]  # without the namespace, which all of them share
    return f"nothing of {searched}; {counts.total():,} of others: {', '.join(options)}{more}"


def _path_to(owner: Owner, scope: Scope) -> tuple[tuple[str, str], ...]:
    """Return the parameters to change so that the scope contains the memories of an owner."""
    pairs = (
        ("user", scope.user_id, owner.user_id),
        ("agent", scope.agent_id, owner.agent_id),
        ("project", scope.project_id, owner.project_id),
    )
    path = [(name, actual or "") for name, wanted, actual in pairs if wanted not in (None, actual)]
    if scope.session_id is not None:  # owners are not told by session: it is lifted
        path.append(("session", ""))
    return tuple(path)


def group_owners(owners: Sequence[Owner], field: str) -> dict[str | None, Owner]:
    """Return the counts of owners by one of their fields, such as `agent_id`."""
    groups: dict[str | None, Owner] = {}
    for owner in owners:
        name = getattr(owner, field)
        before = groups.get(name)
        groups[name] = (
            owner
            if before is None
            else before.replace(entries=before.entries + owner.entries, live=before.live + owner.live)
        )
    return groups
