"""Whose is it?

Every operation on a store, by id too, takes a scope. Each field that is given narrows it: an entry lies
inside when its namespace is the same and every other field given is the same, byte by byte.
"""

from __future__ import annotations

from typing import Any, ClassVar

from omoide.core.contract import Record
from omoide.core.value import Id
from omoide.errors import Invalid

DEFAULT_NAMESPACE = "default"


class Scope(Record, frozen=True, kw_only=True):
    """The part of a store that an operation sees."""

    LABEL: ClassVar[str] = "scope"

    agent_id: Id | None = None
    session_id: Id | None = None
    project_id: Id | None = None
    namespace: Id = DEFAULT_NAMESPACE

    def holds(self, entry: Any) -> bool:
        """Whether an entry, or anything else that says whose it is, lies inside."""
        return (
            entry.namespace == self.namespace
            and self.agent_id in (None, entry.agent_id)
            and self.session_id in (None, entry.session_id)
            and self.project_id in (None, entry.project_id)
        )

    def owner(self) -> str:
        """The agent that what is written here belongs to."""
        if self.agent_id is None:
            raise Invalid("scope.agent_id", "is missing", "name the agent whose memory this becomes")
        return self.agent_id
