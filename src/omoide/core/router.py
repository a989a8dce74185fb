"""Which instructions does a signal lead to?

Several routes may match; they run in this order: the more specific pattern, then the higher priority, then
the one registered earlier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from omoide.core import pattern
from omoide.core.action import Action, check_name
from omoide.core.frozen import freeze_map
from omoide.core.value import force
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
        match self.target:
            case (kind,) | kind if kind == STRATEGY_TICK:
                return
            case (kind, _) if kind == STRATEGY_CMD:
                return
            case Action():
                return
            case str(name):
                check_name(name, "target")
            case (Action() | str() as first, Mapping() as params):
                if isinstance(first, str):
                    check_name(first, "target")
                force(self, "target", (first, freeze_map(params, "target params")))
            case _:
                raise WrongType("target", "an Action, its name, or (action, params)", self.target)

    @property
    def action(self) -> str | None:
        """The name of the action it leads to, where it names one."""
        first = self.target[0] if isinstance(self.target, tuple) else self.target
        return first if isinstance(first, str) and first not in (STRATEGY_CMD, STRATEGY_TICK) else None

    @classmethod
    def of(cls, like: object, owner: str, priority: int) -> Route:
        """A route from `(pattern, target)`, `(pattern, target, priority)` or a Route."""
        match like:
            case Route():
                return like
            case (str(wanted), target):
                return cls(pattern=wanted, target=target, priority=priority)
            case (str(wanted), target, int(own)):
                return cls(pattern=wanted, target=target, priority=own)
            case _:
                raise InvalidDefinition(
                    f"route of {owner}",
                    f"is {like!r}",
                    "use (pattern, target) or (pattern, target, priority)",
                )


def as_routes(likes: object, owner: str, priority: int) -> tuple[Route, ...]:
    """Routes from a list of them in any of their forms."""
    if isinstance(likes, (str, bytes)) or not isinstance(likes, Sequence):
        raise WrongType(f"routes of {owner}", "a list of (pattern, target)", likes)
    return tuple(Route.of(like, owner, priority) for like in likes)


RouteLike = Route | tuple[str, Any] | tuple[str, Any, int]


def matching(routes: Iterable[Route], signal_type: str) -> list[Route]:
    """The routes for a signal type, in the order they run."""
    found = [route for route in routes if pattern.matches(route.pattern, signal_type)]
    return sorted(found, key=lambda route: (pattern.specificity(route.pattern), route.priority), reverse=True)
