"""How far has this agent's strategy come?

For those who write strategies: the state that theirs keeps between two commands.

"""

from __future__ import annotations

from omoide.core.state import STRATEGY, StrategyState

get = STRATEGY.get
of = STRATEGY.get_or_new
put = STRATEGY.put
update = STRATEGY.update
ensure = STRATEGY.ensure
has_strategy = STRATEGY.has


def key() -> str:
    """The key of the state that holds the strategy's."""
    return STRATEGY.key


__all__ = ["StrategyState", "ensure", "get", "has_strategy", "key", "of", "put", "update"]
