"""How does an agent keep values in itself?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omoide.core.frozen import EMPTY_MAP, FrozenMap
from omoide.errors import Invalid
from omoide.runtime.providers.items import check_key, matching
from omoide.runtime.providers.protocol import NOT_FOUND, Answered, Failed, Outcome

Data = FrozenMap[str, Any]


class Inline:
    """Its state is the data: a frozen map, which lives in the agent's memory and is saved with it."""

    name = "inline"
    instant = True
    keeps_in_memory = True

    def init(self, opts: Mapping[str, Any]) -> Data:
        """No data yet."""
        return EMPTY_MAP

    def get(self, state: Data, key: str, opts: Mapping[str, Any]) -> Outcome:
        """The value under a key."""
        return Answered(state, state[key]) if key in state else Failed(state, NOT_FOUND)

    def put(self, state: Data, key: str, value: Any, opts: Mapping[str, Any]) -> Outcome:
        """The data with a value under a key; a vector is passed over, for nothing here compares any."""
        try:
            return Answered(state.set(check_key(key), value))
        except Invalid as error:
            return Failed(state, str(error))

    def delete(self, state: Data, key: str, opts: Mapping[str, Any]) -> Outcome:
        """The data without a key."""
        return Answered(state.delete(key))

    def query(self, state: Data, query: Mapping[str, Any], opts: Mapping[str, Any]) -> Outcome:
        """The items by `prefix` and `where`, in the order of their keys."""
        try:
            return Answered(state, matching(state, query))
        except Invalid as error:
            return Failed(state, str(error))
