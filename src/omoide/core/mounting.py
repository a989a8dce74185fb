"""How does a new agent get its state?

Defaults of the schema, defaults of each plugin's slice, what the caller gives; then each plugin is mounted
and sees what those before it wrote.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING, Any

from omoide.core.definition import Definition
from omoide.core.frozen import EMPTY_MAP, FrozenMap, freeze_map
from omoide.core.plugin import Plugin
from omoide.core.slot import SLOTS, slot_of, with_state
from omoide.core.state import check_state
from omoide.errors import Invalid, MountFailed, OmoideError, WrongType

if TYPE_CHECKING:
    from omoide.core.agent import Agent


_ABSENT = object()


def initial_state(definition: Definition, given: FrozenMap[str, Any]) -> FrozenMap[str, Any]:
    """The state before any plugin is mounted."""
    base = (
        EMPTY_MAP
        if definition.schema is None
        else freeze_map(definition.schema.defaults(), "schema defaults")
    )
    state = base.update(given)
    for plugin in definition.plugins:
        if plugin.slice_schema is not None:
            defaults = freeze_map(plugin.slice_schema.defaults(), f"defaults of {plugin.label}")
            state = state.set(
                plugin.key, defaults.update(freeze_map(given.get(plugin.key, EMPTY_MAP), plugin.key))
            )
    return state


def mounted(agent: Agent, only: Set[str] | None = None) -> Agent:
    """The agent with its plugins mounted, all or those that own these keys, or `MountFailed` and no agent."""
    for plugin in agent.definition.plugins:
        if only is not None and plugin.key not in only:
            continue
        try:
            agent = _mount(agent, plugin)
        except MountFailed:
            raise
        except Exception as error:
            reason = error if isinstance(error, OmoideError) else f"{type(error).__name__}: {error}"
            raise MountFailed(plugin.label, reason) from error
    return agent


def _mount(agent: Agent, plugin: Plugin) -> Agent:
    before = agent.state
    result = plugin.mount(agent, plugin.config)
    slice, written = _taken_apart(result, agent)
    state = written.state
    for key in {*state, *before}:
        if key not in SLOTS and key != plugin.key and state.get(key, _ABSENT) is not before.get(key, _ABSENT):
            raise Invalid(
                f"state.{key}", "is not the plugin's to write", f"write {plugin.key!r}, memory or identity"
            )
    if slice is not None:
        state = state.set(plugin.key, _merged(state.get(plugin.key), slice, plugin))
    check_state(state)
    plugin.check_slice(state.get(plugin.key))
    return with_state(agent, state)


def _taken_apart(result: Any, agent: Agent) -> tuple[Any, Agent]:
    """The slice and the agent that a mount returned."""
    slice, written = result if isinstance(result, tuple) and len(result) == 2 else (result, agent)
    if isinstance(slice, type(agent)):
        slice, written = (None if written is agent else written), slice
    if not isinstance(written, type(agent)):
        raise WrongType("the agent that mount returned", "an Agent", written)
    return slice, written


def _merged(old: Any, slice: Any, plugin: Plugin) -> Any:
    """A slot takes its own kind of value whole; any other slice takes a mapping over what it holds."""
    slot = slot_of(slice)
    if slot is not None and slot.key == plugin.key:
        return slice
    return freeze_map(EMPTY_MAP if old is None else old, plugin.key).update(
        freeze_map(slice, "what mount returned")
    )
