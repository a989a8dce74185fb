"""How do agents live on several machines, each in one place at a time?

Runtimes that share a store and a transport are a fleet. The store says who may let an agent live, and the
transport brings it its signals, wherever that is.

"""

from __future__ import annotations

from omoide.runtime.fleet.directory import AgentLocation, FleetCandidate
from omoide.runtime.fleet.fleet import Fleet

__all__ = ["AgentLocation", "Fleet", "FleetCandidate"]
