"""Which plugins does every agent have?

One for each of the three values an agent is made of. They own their slot, allocate nothing, and can be
replaced or left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omoide.core.context import Context
from omoide.core.plugin import Externalize, Kept, Plugin, as_plugin
from omoide.core.slot import IDENTITY, MEMORY, THREAD
from omoide.core.thread import Thread
from omoide.errors import InvalidDefinition, WrongType


class ThreadPlugin(Plugin):
    """Owns what happened. A checkpoint holds a pointer to it; the log itself is kept beside."""

    name = "thread"
    state_key = THREAD.key
    capabilities = ("thread",)
    singleton = True

    def on_checkpoint(self, state: Any, ctx: Context) -> Kept:
        """The log grows without bound, so only its id and revision go into the checkpoint."""
        if not isinstance(state, Thread):
            return "keep"
        return Externalize(key="thread", pointer={"id": state.id, "rev": state.rev})


class IdentityPlugin(Plugin):
    """Owns what the agent is."""

    name = "identity"
    state_key = IDENTITY.key
    capabilities = ("identity",)
    singleton = True


class MemoryPlugin(Plugin):
    """Owns what the agent believes and wants."""

    name = "memory"
    state_key = MEMORY.key
    capabilities = ("memory",)
    singleton = True


DEFAULTS: tuple[type[Plugin], ...] = (ThreadPlugin, IdentityPlugin, MemoryPlugin)

Overrides = None | bool | Mapping[str, Any]


def chosen_defaults(overrides: Overrides = None) -> list[Plugin]:
    """All of them for None, none for False; or changed by state key: False, a plugin, (class, config)."""
    if overrides is None or overrides is True:
        return [kind() for kind in DEFAULTS]
    if overrides is False:
        return []
    if not isinstance(overrides, Mapping):
        raise WrongType("default_plugins", "None, False or a mapping by state key", overrides)
    known = {kind.state_key: kind for kind in DEFAULTS}
    for key in overrides:
        if key not in known:
            raise InvalidDefinition(
                f"default_plugins[{key!r}]", "is not a default plugin", f"use {', '.join(known)}"
            )
    chosen = []
    for key, kind in known.items():
        wanted = overrides.get(key, True)
        if wanted is False:
            continue
        plugin = kind() if wanted is True else as_plugin(wanted)
        if plugin.key != key:
            raise InvalidDefinition(
                f"default_plugins[{key!r}]", f"would own {plugin.key!r}", f"give it state_key = {key!r}"
            )
        chosen.append(plugin)
    return chosen
