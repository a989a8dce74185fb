"""How do signals travel between machines?

Over NATS with JetStream, which keeps a signal until whoever it is for has accepted it.

"""

from __future__ import annotations

from omoide.runtime.nats.transport import NatsTransport

__all__ = ["NatsTransport"]
