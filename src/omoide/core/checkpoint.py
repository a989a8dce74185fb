"""How is an agent put aside, and taken up again?

Each plugin says what becomes of its slice. The checkpoint is data; keeping it, and what was kept out of it,
is the business of others.
"""

from __future__ import annotations

from omoide.core.agent import Agent, check_agent
from omoide.core.codec import MapField
from omoide.core.context import Context
from omoide.core.definition import Definition
from omoide.core.frozen import EMPTY_MAP
from omoide.core.mounting import initial_state
from omoide.core.nesting import own
from omoide.core.plugin import Externalize
from omoide.core.slot import SLOTS, with_state
from omoide.core.state import check_state
from omoide.core.value import Id, Name, Value
from omoide.errors import CheckpointFailed, OmoideError, RestoreFailed, WrongType

VERSION = 1


@own
class Checkpoint(Value, frozen=True, kw_only=True):
    """An agent at rest: its state, and pointers to what is kept elsewhere."""

    id: Id
    name: Name
    description: str = ""
    state: MapField = EMPTY_MAP
    externalized: MapField = EMPTY_MAP
    externalized_keys: MapField | None = None
    version: int = VERSION


def checkpoint(agent: Agent) -> Checkpoint:
    """The agent at rest, after each plugin said whether its slice is kept, dropped or externalized."""
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
                    plugin.label, f"the key {key!r} is another plugin's; choose one of its own"
                )
            case other:
                raise CheckpointFailed(
                    plugin.label, f'it answered {other!r}, not "keep", "drop" or Externalize'
                )
    return Checkpoint(
        id=agent.id,
        name=agent.name,
        description=agent.description,
        state=state,
        externalized=pointers,
        externalized_keys=keys or None,
    )


def restore(saved: Checkpoint, definition: Definition) -> Agent:
    """The agent again. A pointer whose plugin answers None is left to whoever keeps what it points to."""
    if not isinstance(saved, Checkpoint):
        raise WrongType("saved", "a Checkpoint", saved, "pass what checkpoint(agent) returned")
    if not isinstance(definition, Definition):
        raise WrongType("definition", "a Definition", definition)
    if saved.version != VERSION:
        raise RestoreFailed(
            f"agent {saved.id!r}", f"its checkpoint has version {saved.version}, this reads {VERSION}"
        )
    if definition.name != saved.name:
        raise RestoreFailed(
            f"agent {saved.id!r}", f"it is a {saved.name!r}, the definition is of {definition.name!r}"
        )
    try:
        agent = Agent(
            id=saved.id,
            name=saved.name,
            description=saved.description,
            state=initial_state(definition, saved.state),
            definition=definition,
        )
        for key in sorted(saved.externalized):
            agent = _restored(agent, saved, key)
        definition.check_state(agent.state)
    except RestoreFailed:
        raise
    except OmoideError as error:
        raise RestoreFailed(f"agent {saved.id!r}", error) from error
    return agent


def _restored(agent: Agent, saved: Checkpoint, key: str) -> Agent:
    """The agent with one externalized slice again, as far as its plugin can bring it back."""
    guess = f"__{key}__" if f"__{key}__" in SLOTS else key
    state_key = (saved.externalized_keys or EMPTY_MAP).get(key, guess)
    plugin = next((plugin for plugin in agent.definition.plugins if plugin.key == state_key), None)
    if plugin is None:
        raise RestoreFailed(f"agent {saved.id!r}", f"no plugin owns {state_key!r}, which was externalized")
    try:
        slice = plugin.on_restore(saved.externalized[key], Context(agent, config=plugin.config))
        if slice is None:
            return agent
        plugin.check_slice(slice)
        return with_state(agent, check_state(agent.state.set(state_key, slice)))
    except Exception as error:
        reason = error if isinstance(error, OmoideError) else f"{type(error).__name__}: {error}"
        raise RestoreFailed(f"slice {state_key!r} of agent {saved.id!r}", reason) from error
