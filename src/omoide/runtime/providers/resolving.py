"""Which provider does an agent mean by an alias?

The program says which providers there are. An agent's memory may choose among them, with
`world.pointers[alias] = {"provider": word, …}`, and narrow what it asks of one; it can never name a file or
an address, since a model may have written what stands there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import msgspec

from omoide import memory
from omoide.core.agent import Agent
from omoide.core.frozen import EMPTY_MAP, FrozenMap, freeze_map
from omoide.core.scope import Scope
from omoide.core.texts import check_text
from omoide.errors import Invalid, NotFound, WrongType
from omoide.runtime.providers.inline import Inline
from omoide.runtime.providers.protocol import Provider
from omoide.runtime.providers.store import StoreProvider
from omoide.runtime.providers.table import Table
from omoide.stores.protocols import Store

_OF_STORES = ("type", "tags", "name")


class Resolved(msgspec.Struct, frozen=True):
    """A provider, and what it is told with every operation."""

    alias: str
    provider: Any
    opts: FrozenMap[str, Any] = EMPTY_MAP


class _Known(NamedTuple):
    provider: Any
    opts: FrozenMap[str, Any] = EMPTY_MAP


class Providers:
    """The providers of a program, by their aliases, beside `inline`, `table`, and `store` where there is one.

    Each value is a provider, one of these words, a store or its URL, or a pair of one of them and options.
    What a URL names is opened by `open`, or when it is first needed, and closed by `close`.
    """

    def __init__(self, configured: Mapping[str, Any] = EMPTY_MAP, *, store: Store | None = None) -> None:
        if not isinstance(configured, Mapping):
            raise WrongType("providers", "a mapping from aliases to providers", configured)
        self._words: dict[str, Any] = {"inline": Inline(), "table": Table()}
        self._store = store
        if store is not None:
            self._words["store"] = StoreProvider(store)
        self._known = {
            check_text(alias, "alias"): self._configured(value, f"providers[{alias!r}]")
            for alias, value in configured.items()
        }

    def resolve(self, alias: str, agent: Agent) -> Resolved:
        """The provider that an agent means; options that were configured count more than its own."""
        pointer = self._pointer(alias, agent)
        word = pointer.get("provider", alias)
        found = self._find(word)
        if found is None:
            raise NotFound("memory provider", str(word)[:80], f"use one of {', '.join(self.words())}")
        own = {name: value for name, value in pointer.items() if name != "provider"}
        opts = {**own, **found.opts, "agent_id": agent.id, "alias": alias}
        return Resolved(alias, found.provider, freeze_map(opts, "opts"))

    def words(self) -> list[str]:
        """What a pointer may name."""
        return sorted({*self._words, *self._known, *self._names()})

    async def open(self) -> None:
        """Open every store that is named by a URL; all of them, or none."""
        async with AsyncExitStack() as opened:
            for provider in self._providers():
                await provider.open()
                opened.push_async_callback(provider.close)
            opened.pop_all()

    async def close(self) -> None:
        """Close what was opened here."""
        async with AsyncExitStack() as closing:
            for provider in self._providers():
                closing.push_async_callback(provider.close)

    def _configured(self, value: Any, field: str) -> _Known:
        opts: Mapping[str, Any] = EMPTY_MAP
        if isinstance(value, tuple):
            if len(value) != 2:
                raise Invalid(field, f"is a tuple of {len(value)}", "pass (provider, options)")
            value, opts = value[0], freeze_map(value[1], f"{field}[1]")
        if isinstance(value, str) and "://" not in value and value != "store":
            if value not in self._words:
                raise Invalid(field, f"is {value!r}", "use inline, table, store, a URL or a provider")
            return _Known(self._words[value], freeze_map(opts))
        if value == "store" and self._store is None:
            raise Invalid(field, "is the store of the runtime, which has none", "give the runtime a store")
        if isinstance(value, Provider):
            return _Known(value, freeze_map(opts))
        if isinstance(value, (str, Store)):
            return _over_a_store(self._store if value == "store" else value, opts)
        raise WrongType(field, "a provider, a word, a store or a URL", value)

    def _pointer(self, alias: str, agent: Agent) -> Mapping[str, Any]:
        """What an agent's memory says about an alias."""
        check_text(alias, "provider")
        held = memory.get(agent)
        pointers = None if held is None else held.world_get("pointers")
        pointer = pointers.get(alias) if isinstance(pointers, Mapping) else None
        if pointer is None:
            return EMPTY_MAP
        if not isinstance(pointer, Mapping):
            raise WrongType(f"world.pointers.{alias}"[:80], "a map with a provider in it", pointer)
        return pointer

    def _find(self, word: object) -> _Known | None:
        if not isinstance(word, str):
            return None
        if word in self._known:
            return self._known[word]
        if word in self._words:
            return _Known(self._words[word])
        return self._names().get(word)

    def _names(self) -> dict[str, _Known]:
        """The providers whose own name tells them from all others."""
        named = [(getattr(one.provider, "name", None), one) for one in self._known.values()]
        names = [name for name, _ in named]
        return {name: one for name, one in named if isinstance(name, str) and names.count(name) == 1}

    def _providers(self) -> Iterator[StoreProvider]:
        return (one.provider for one in self._known.values() if isinstance(one.provider, StoreProvider))


def _over_a_store(store: Any, opts: Mapping[str, Any]) -> _Known:
    """A provider over a store; options that say whose and of what kind its entries are belong to it."""
    places = {name: opts[name] for name in Scope.__struct_fields__ if name in opts}
    kinds = {name: opts[name] for name in _OF_STORES if name in opts}
    rest = {name: value for name, value in opts.items() if name not in (*places, *kinds)}
    return _Known(StoreProvider(store, Scope.new(places), **kinds), freeze_map(rest))
