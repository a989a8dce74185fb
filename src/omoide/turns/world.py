"""What may a turn use, and who keeps what it does?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from omoide.core.frozen import EMPTY_MAP
from omoide.core.recalling import RecallResult
from omoide.core.scope import Scope
from omoide.core.thread import ThreadEntry
from omoide.stores.protocols import Store
from omoide.turns.context import Asked
from omoide.turns.controls import Control, Decision, Review
from omoide.turns.events import Events
from omoide.turns.model import Model
from omoide.turns.prompt import Counter
from omoide.turns.spec import AgentSpec
from omoide.turns.window import Sizes

Record = Callable[[Sequence[ThreadEntry]], Awaitable[None]]


class Paused(Exception):
    """The turn stops here for now."""

    def __init__(self, status: str, reviews: Sequence[Review] = ()) -> None:
        super().__init__(status)
        self.status = status
        self.reviews = tuple(reviews)


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What a turn may use."""

    spec: AgentSpec
    model: Model | None = None
    """None where nothing may be called: then everything has to be in the journal."""
    store: Store | None = None
    scope: Scope | None = None
    """Where the turn's memory lies."""
    reach: Scope | None = None
    """What recall sees."""
    data: Mapping[str, Any] = EMPTY_MAP
    secrets: Mapping[str, Any] = EMPTY_MAP
    hidden: tuple[str, ...] = ()
    """Texts that neither the model nor the thread gets to see, whoever says them."""
    controls: tuple[Control, ...] = ()
    decisions: Mapping[str, Decision] = EMPTY_MAP
    reviews: tuple[Review, ...] = ()
    """What the decisions are about."""
    count: Counter
    checkpoint: str | None = None
    events: Events
    begin: Callable[[Asked], Awaitable[None]] | None = None
    """Keeps what was asked, before anything is done about it."""
    record: Record | None = None
    """Keeps what the turn writes into the thread, before the turn goes on."""
    remember: Callable[[RecallResult | None], Awaitable[None]] | None = None
    """Keeps what was recalled."""
    streaming: bool = False
    sizes: Sizes | None = None
    """What the turns of the conversation take, where that was counted before."""

    @property
    def model_name(self) -> str | None:
        """What the model is called: the one that is used, whatever the spec says."""
        name: str | None = getattr(self.model, "name", None)
        return name or self.spec.model

    @property
    def watched(self) -> bool:
        """Whether an answer has to pass a control before anybody reads it."""
        return any(type(control).at_output is not Control.at_output for control in self.controls)
