"""Checkpoint and restore of agents.

A checkpoint is data. Each plugin decides whether its slice is kept, dropped, or externalized, that is,
replaced by a pointer. A checkpoint store stores the checkpoint and the externalized data.
"""

from __future__ import annotations

from typing import Any

from omoide import ids
from omoide.core.action import Cron, Schedule
from omoide.core.agent import Agent, check_agent, initial_state, mount_plugins, public_snapshot
from omoide.core.codec import Frozen, MapField
from omoide.core.definition import Definition, Externalize
from omoide.core.frozen import EMPTY_LIST, EMPTY_MAP, FrozenList, FrozenMap, freeze_map, value_type
from omoide.core.state import SLOTS, THREAD, Context, check_state, with_state
from omoide.core.value import Count, Id, Millis, Name, Value, check_count, check_instance, set_field
from omoide.errors import CheckpointFailed, Invalid, OmoideError, RestoreFailed, WrongType

CHECKPOINT_VERSION = 2
"""Version of the format; version 1 lacks `thread` and `definition_version` and is still read."""


@value_type
class PendingSchedule(Value, frozen=True, kw_only=True):
    """A signal that an agent has scheduled: a `Schedule` with the time when it is due, or a `Cron`."""

    directive: Frozen
    due_at: Millis | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.directive, (Schedule, Cron)):
            raise WrongType("directive", "a Schedule or a Cron", self.directive)


@value_type
class Checkpoint(Value, frozen=True, kw_only=True):
    """A saved agent: its state, and pointers to data that is stored elsewhere."""

    id: Id
    name: Name
    description: str = ""
    state: MapField = EMPTY_MAP
    externalized: MapField = EMPTY_MAP
    externalized_keys: MapField | None = None
    thread: MapField | None = None
    """The agent's thread, by `id` and `rev`; its entries are stored elsewhere."""
    journal: MapField | None = None
    """Notes of the checkpoint store about the thread's journal."""
    snapshot: MapField | None = None
    """What the agent showed of itself when it was saved, with the actions that its plugins offered then."""
    schedules: FrozenList[PendingSchedule] = EMPTY_LIST
    """The schedules and cron jobs that were pending when the agent was saved."""
    rev: Count = 0
    """Number of times that the agent was saved, if the checkpoint store counts it."""
    definition_version: int = 1
    version: int = CHECKPOINT_VERSION

    def __post_init__(self) -> None:
        super().__post_init__()
        for at, pending in enumerate(self.schedules):
            check_instance(pending, f"schedules[{at}]", kind=PendingSchedule)
        pointer = self._thread_pointer()
        # The thread may be named twice, by its plugin and by `thread`; both have to agree.
        if self.thread is None:
            set_field(self, "thread", pointer)
            return
        if not _is_thread_pointer(self.thread):
            raise Invalid("thread", "does not name a thread", "give it an id and a rev")
        if pointer is not None and pointer != self.thread:
            raise Invalid("thread", "differs from the externalized thread", "leave it out")

    def _thread_pointer(self) -> Any:
        """Return the externalized pointer that names a thread by id and revision."""
        for key, pointer in self.externalized.items():
            if self.state_key(key) == THREAD.key and _is_thread_pointer(pointer):
                return pointer
        return None

    def state_key(self, key: str) -> str:
        """Return the key of the state that a pointer replaces."""
        # Older checkpoints lack `externalized_keys`: they name slots by their concept, slices by their key.
        guess = f"__{key}__" if f"__{key}__" in SLOTS else key
        state_key: str = (self.externalized_keys or EMPTY_MAP).get(key, guess)
        return state_key


def _is_thread_pointer(pointer: object) -> bool:
    if not isinstance(pointer, FrozenMap) or {*pointer} != {"id", "rev"}:
        return False
    try:
        return bool(ids.check(pointer["id"])) and check_count(pointer["rev"], "rev") >= 0
    except Invalid:
        return False


def checkpoint(agent: Agent) -> Checkpoint:
    """Save an agent as a value, after each plugin decided about its slice.

    Raises:
        CheckpointFailed: if a plugin fails, or returns something other than a `CheckpointDecision`.
    """
    check_agent(agent)
    state, pointers, keys = agent.state, EMPTY_MAP, EMPTY_MAP
    for plugin in agent.definition.plugins:
        slice = state.get(plugin.key)
        if slice is None:
            continue
        try:
            answer: object = plugin.on_checkpoint(slice, Context(agent, config=plugin.config))
        except Exception as error:
            raise CheckpointFailed(plugin.label, f"{type(error).__name__}: {error}") from error
        match answer:
            case "keep":
                continue
            case "drop":
                state = state.delete(plugin.key)
            case Externalize(key=key, pointer=pointer) if key not in pointers:
                state = state.delete(plugin.key)
                pointers, keys = pointers.set(key, pointer), keys.set(key, plugin.key)
            case Externalize(key=key):
                raise CheckpointFailed(
                    plugin.label, f"the key {key!r} is used by another plugin; choose another key"
                )
            case other:
                raise CheckpointFailed(
                    plugin.label, f'it returned {other!r}, not "keep", "drop" or Externalize'
                )
    log = state.get(THREAD.key)  # still there if its plugin answered "keep", or is not mounted
    return Checkpoint(
        id=agent.id,
        name=agent.name,
        description=agent.description,
        state=state if log is None else state.delete(THREAD.key),
        externalized=pointers,
        externalized_keys=keys or None,
        thread=None if log is None else {"id": log.id, "rev": log.rev},
        snapshot=public_snapshot(agent),
        definition_version=agent.definition.version,
    )


def restore(checkpoint: Checkpoint, definition: Definition) -> Agent:
    """Restore an agent from a checkpoint.

    A pointer for which its plugin returns None is left to the checkpoint store, which has the data.

    Raises:
        RestoreFailed: if the definition is of another kind or an older version, a migration fails, or a
            plugin cannot restore its slice.
    """
    if not isinstance(checkpoint, Checkpoint):
        raise WrongType("checkpoint", "a Checkpoint", checkpoint, "pass what checkpoint(agent) returned")
    if not isinstance(definition, Definition):
        raise WrongType("definition", "a Definition", definition)
    if not 1 <= checkpoint.version <= CHECKPOINT_VERSION:
        raise RestoreFailed(
            f"agent {checkpoint.id!r}",
            f"its checkpoint has version {checkpoint.version}, "
            f"this reads 1 to {CHECKPOINT_VERSION}; use another Omoide",
        )
    if definition.name != checkpoint.name:
        raise RestoreFailed(
            f"agent {checkpoint.id!r}",
            f"it is a {checkpoint.name!r}, the definition is of {definition.name!r}",
        )
    # No plugin is mounted here: its slice is in the state. `mount_missing_plugins` mounts the others.
    try:
        state = _migrate_state(checkpoint, definition)
        agent = Agent(
            id=checkpoint.id,
            name=checkpoint.name,
            description=checkpoint.description,
            state=state.update(initial_state(definition, state)),  # the saved keys first, in their order
            definition=definition,
        )
        for key in checkpoint.externalized:
            agent = _restore_slice(agent, checkpoint, key)
        definition.check_state(agent.state)
    except RestoreFailed:
        raise
    except OmoideError as error:
        raise RestoreFailed(f"agent {checkpoint.id!r}", error) from error
    return agent


def mount_missing_plugins(agent: Agent, checkpoint: Checkpoint) -> Agent:
    """Mount the plugins of a restored agent that have no slice: dropped ones, and new ones."""
    externalized = {checkpoint.state_key(key) for key in checkpoint.externalized}
    unrestored = sorted(key for key in externalized if key not in agent.state and key not in SLOTS)
    if unrestored:
        raise RestoreFailed(
            f"slice {unrestored[0]!r} of agent {checkpoint.id!r}", "its plugin has no on_restore for it"
        )
    absent = (
        {plugin.key for plugin in agent.definition.plugins} - {*checkpoint.state} - externalized - {*SLOTS}
    )
    return mount_plugins(agent, absent) if absent else agent


def _migrate_state(checkpoint: Checkpoint, definition: Definition) -> FrozenMap[str, Any]:
    """Migrate the state to the definition's version, one version after the other."""
    old, new = checkpoint.definition_version, definition.version
    if old > new:
        raise RestoreFailed(
            f"agent {checkpoint.id!r}",
            f"version {old} of {checkpoint.name!r} saved it, and this is {new}; use {old}",
        )
    if old < new and definition.migrate is None:
        raise RestoreFailed(
            f"agent {checkpoint.id!r}",
            f"version {old} of {checkpoint.name!r} saved it, and this is {new}; give the definition migrate=",
        )
    state: FrozenMap[str, Any] = checkpoint.state
    for version in range(old, new):
        try:
            state = freeze_map(definition.migrate(state, version), "what migrate returned")  # type: ignore[misc]
        except Exception as error:
            raise RestoreFailed(
                f"agent {checkpoint.id!r}", f"migrate from version {version}: {_reason(error)}"
            ) from error
    return state


def _reason(error: Exception) -> object:
    return error if isinstance(error, OmoideError) else f"{type(error).__name__}: {error}"


def _restore_slice(agent: Agent, checkpoint: Checkpoint, key: str) -> Agent:
    """Restore an externalized slice, as far as its plugin can."""
    state_key = checkpoint.state_key(key)
    plugin = next((plugin for plugin in agent.definition.plugins if plugin.key == state_key), None)
    if plugin is None:
        raise RestoreFailed(
            f"agent {checkpoint.id!r}", f"no plugin owns {state_key!r}, which was externalized"
        )
    try:
        slice = plugin.on_restore(checkpoint.externalized[key], Context(agent, config=plugin.config))
        if slice is None:
            return agent
        plugin.check_slice(slice)
        return with_state(agent, check_state(agent.state.set(state_key, slice)))
    except Exception as error:
        raise RestoreFailed(f"slice {state_key!r} of agent {checkpoint.id!r}", _reason(error)) from error
