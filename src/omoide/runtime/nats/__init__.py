"""Send signals between machines over NATS with JetStream, which stores each one until it is acknowledged.

`connection` has the settings, the connection and the mapping of errors, `streams` creates streams and
consumers, `transport` is the `Transport`.
"""

from __future__ import annotations

from omoide.runtime.nats.connection import NatsSettings
from omoide.runtime.nats.transport import NatsTransport

__all__ = ["NatsSettings", "NatsTransport"]
