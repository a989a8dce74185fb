"""Share agents among runtimes on several machines, each running in one place at a time.

Runtimes with the same store and transport are a fleet. `leases` says which runtime owns an agent, `directory`
where it runs and how to ask it, `fleet` starts, hands over and takes over agents.
"""

from __future__ import annotations

from omoide.runtime.fleet.directory import AgentLocation, FleetCandidate
from omoide.runtime.fleet.fleet import Fleet

__all__ = ["AgentLocation", "Fleet", "FleetCandidate"]
