"""How do agents of one process share values that need not last?

Tables live as long as the process. One that has a name is the same for everybody who names it; without a name
each agent has one of its own for each alias, which nobody else can reach.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import RLock
from typing import Any

from omoide.core.frozen import freeze
from omoide.core.texts import check_text
from omoide.errors import Invalid
from omoide.runtime.providers.items import check_key, matching
from omoide.runtime.providers.protocol import NOT_FOUND, Answered, Failed, Outcome

Place = tuple[str, ...]


class Items:
    """The items of one table; every operation happens at once, from any thread."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._held: dict[str, Any] = {}

    def get(self, key: str, default: Any) -> Any:
        """The value under a key, or the default."""
        with self._lock:
            return self._held.get(key, default)

    def put(self, key: str, value: Any) -> None:
        """Keep a frozen value."""
        with self._lock:
            self._held[key] = value

    def delete(self, key: str) -> None:
        """Remove a key."""
        with self._lock:
            self._held.pop(key, None)

    def seen(self) -> dict[str, Any]:
        """All items as they are in one moment."""
        with self._lock:
            return self._held.copy()


_tables: dict[Place, Items] = {}
_tables_lock = RLock()
_ABSENT = object()


def items_of(place: Place, *, make: bool = False) -> Items:
    """The table at a place; where there is none yet, an empty one, which lasts only if it is to be made."""
    with _tables_lock:
        return _tables.setdefault(place, Items()) if make else _tables.get(place, Items())


def drop_table(name: str) -> bool:
    """Remove a named table with all that is in it; whether there was one."""
    with _tables_lock:
        return _tables.pop(("named", name), None) is not None


def drop_tables_of(agent_id: str) -> None:
    """Remove the tables that belong to one agent alone."""
    with _tables_lock:
        for place in [place for place in _tables if place[:2] == ("agent", agent_id)]:
            del _tables[place]


class Table:
    """Values in tables of the process; `{"table": name}` among the options says which."""

    name = "table"
    instant = True

    def init(self, opts: Mapping[str, Any]) -> None:
        """Nothing but the table is kept; raises where its name is none."""
        _place(opts)

    def get(self, state: Any, key: str, opts: Mapping[str, Any]) -> Outcome:
        """The value under a key."""
        found = items_of(_place(opts)).get(key, _ABSENT)
        return Failed(state, NOT_FOUND) if found is _ABSENT else Answered(state, found)

    def put(self, state: Any, key: str, value: Any, opts: Mapping[str, Any]) -> Outcome:
        """Keep a value, frozen; a vector is passed over, for nothing here compares any."""
        try:
            items_of(_place(opts), make=True).put(check_key(key), freeze(value, "value"))
        except Invalid as error:
            return Failed(state, str(error))
        return Answered(state)

    def delete(self, state: Any, key: str, opts: Mapping[str, Any]) -> Outcome:
        """Remove a key."""
        items_of(_place(opts)).delete(key)
        return Answered(state)

    def query(self, state: Any, query: Mapping[str, Any], opts: Mapping[str, Any]) -> Outcome:
        """The items by `prefix` and `where`, in the order of their keys."""
        try:
            return Answered(state, matching(items_of(_place(opts)).seen(), query))
        except Invalid as error:
            return Failed(state, str(error))


def _place(opts: Mapping[str, Any]) -> Place:
    """Where a table is kept; what belongs to one agent has a place that no name leads to."""
    name = opts.get("table")
    if name is not None:
        return ("named", check_text(name, "table"))
    return ("agent", str(opts.get("agent_id", "")), str(opts.get("alias", "")))
