"""How does an agent come back with all that its plugins own?"""

from __future__ import annotations

from omoide.core.agent import Agent
from omoide.core.checkpoint import Checkpoint, restore
from omoide.core.definition import Definition
from omoide.core.frozen import EMPTY_MAP
from omoide.core.mounting import mounted
from omoide.core.slot import SLOTS
from omoide.errors import RestoreFailed


def restored(saved: Checkpoint, definition: Definition) -> Agent:
    """The agent with every plugin's slice: one that was dropped, or is new to the agent, is mounted anew."""
    agent = restore(saved, definition)
    keys = saved.externalized_keys or EMPTY_MAP
    pointed = {keys.get(key, key) for key in saved.externalized}
    lost = [key for key in pointed if key not in agent.state and key not in SLOTS]
    if lost:
        raise RestoreFailed(f"slice {lost[0]!r} of agent {saved.id!r}", "its plugin has no on_restore for it")
    absent = {plugin.key for plugin in definition.plugins} - {*saved.state} - pointed - {*SLOTS}
    return mounted(agent, absent) if absent else agent
