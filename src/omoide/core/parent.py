"""Who started this agent?"""

from __future__ import annotations

from omoide.core.codec import MapField
from omoide.core.frozen import EMPTY_MAP
from omoide.core.nesting import own
from omoide.core.value import Id, Value


@own
class Parent(Value, frozen=True, kw_only=True):
    """The agent that spawned another, and under which tag; set once."""

    id: Id
    tag: Id | None = None
    metadata: MapField = EMPTY_MAP
