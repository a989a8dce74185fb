"""What can a runtime be asked about the fleet that it is one of?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from omoide.core.frozen import EMPTY_MAP
from omoide.core.signal import Signal
from omoide.errors import Invalid
from omoide.runtime.fleet.asking import Found
from omoide.runtime.fleet.fleet import Fleet
from omoide.runtime.given import check_seconds, check_signal

ASK_S = 30.0
"""Longer than a takeover needs with the usual lease."""
WHO_CAN_S = 1.0


class Member:
    """A runtime with a name among others; one without has no fleet to ask."""

    fleet: Fleet | None = None
    """What the runtime does as one of several, if it has a name among them."""

    async def ask(self, id: str, signal: Signal, *, within: float | None = None) -> Signal:
        """The answer of an agent elsewhere in the fleet: `agent_id`, `name`, `runtime` and `state`, as data.

        It comes when the agent has handled the signal and was saved; `TimedOut` where it does not.
        """
        check_signal(signal)
        return await self._in_fleet().asking.ask(id, signal, check_seconds(within, "within") or ASK_S)

    async def who_can(
        self,
        *,
        action: str | None = None,
        tags: Iterable[str] = (),
        limits: Mapping[str, Any] = EMPTY_MAP,
        within: float = WHO_CAN_S,
    ) -> list[Found]:
        """The agents of the whole fleet that can do something, best first, as far as they answer in time."""
        seconds = check_seconds(within, "within") or WHO_CAN_S
        return await self._in_fleet().asking.who_can(action, tags, limits, seconds)

    async def where(self, id: str) -> str | None:
        """The name of the runtime where an agent lives, or did until it was gone; None for one at rest."""
        return await self._in_fleet().where(id)

    async def look(self) -> list[str]:
        """Take up agents whose runtime is gone, now; their ids. A fleet looks by itself, too."""
        return await self._in_fleet().look()

    def _in_fleet(self) -> Fleet:
        if self.fleet is None:
            raise Invalid("name", "is missing", "pass name= and a store that the fleet shares")
        return self.fleet

    async def _given_back(self, id: str) -> None:
        """Return when an agent that ended may be let live by others."""
        if self.fleet is not None:
            await self.fleet.given_back(id)
