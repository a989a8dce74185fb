"""Which instructions does a signal lead to?

Several routes may match; they run in this order: the more specific pattern, then the higher priority, then
the one registered earlier.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from omoide.core import pattern
from omoide.core.action import Action
from omoide.errors import Invalid, InvalidDefinition, WrongType

STRATEGY_PRIORITY, AGENT_PRIORITY, PLUGIN_PRIORITY = 50, 0, -10
STRATEGY_CMD, STRATEGY_TICK = "strategy_cmd", "strategy_tick"


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A pattern of signal types and where matching signals go."""

    pattern: str
    target: Any
    priority: int = AGENT_PRIORITY

    def __post_init__(self) -> None:
        pattern.check(self.pattern)
        if type(self.priority) is not int or not -100 <= self.priority <= 100:
            raise Invalid("priority", f"is {self.priority!r}", "use an int from -100 to 100")
        first = self.target[0] if isinstance(self.target, tuple) and self.target else self.target
        if not isinstance(first, (Action, str)) or not first:
            raise WrongType("target", "an Action, its name, or (action, params)", self.target)

    @classmethod
    def of(cls, like: RouteLike, owner: str, priority: int) -> Route:
        """A route from `(pattern, target)`, `(pattern, target, priority)` or a Route."""
        match like:
            case Route():
                return like
            case (wanted, target):
                return cls(pattern=wanted, target=target, priority=priority)
            case (wanted, target, int() as own):
                return cls(pattern=wanted, target=target, priority=own)
        raise InvalidDefinition(
            f"route of {owner}", f"is {like!r}", "use (pattern, target) or (pattern, target, priority)"
        )


RouteLike = Route | tuple[str, Any] | tuple[str, Any, int]


def matching(routes: Iterable[Route], signal_type: str) -> list[Route]:
    """The routes for a signal type, in the order they run."""
    found = [route for route in routes if pattern.matches(route.pattern, signal_type)]
    return sorted(found, key=lambda route: (pattern.specificity(route.pattern), route.priority), reverse=True)
