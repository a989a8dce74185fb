"""Strategies, and functions on the state that an agent's strategy keeps between two commands."""

from __future__ import annotations

from omoide.core.definition import Direct, Route, Strategy
from omoide.core.state import STRATEGY, StrategyState

get = STRATEGY.get
of = STRATEGY.get_or_new
put = STRATEGY.put
update = STRATEGY.update
ensure = STRATEGY.ensure
has_strategy = STRATEGY.has


def key() -> str:
    """Return the key of the state that holds the strategy's state."""
    return STRATEGY.key


__all__ = [
    "Direct",
    "Route",
    "Strategy",
    "StrategyState",
    "ensure",
    "get",
    "has_strategy",
    "key",
    "of",
    "put",
    "update",
]
