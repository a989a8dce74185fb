"""Under which terms does an agent live?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from omoide.core.codec import MapField
from omoide.core.contract import check_choice
from omoide.core.frozen import freeze_map
from omoide.core.recalling import check_positive
from omoide.core.value import Value
from omoide.errors import Invalid
from omoide.runtime.policies import ErrorPolicy, as_policy

RESTARTS = ("permanent", "transient", "temporary")
PARTINGS = ("stop", "continue")


class Terms(Value, frozen=True, kw_only=True):
    """What becomes of an agent that fails, how much it may hold up, and where its signals go."""

    restart: str = "transient"
    """When it is started again: always, after a failure (`transient`), or never (`temporary`)."""
    max_restarts: int = 3
    """How often within `restart_seconds`, before it is given up."""
    restart_seconds: float = 5.0
    on_error: Any = "log"
    """`log`, `stop`, `emit`, a `MaxErrors`, an `EmitErrors`, or a function of the error and the server."""
    mailbox: int = 1_000
    """How many signals of others may wait."""
    max_directives: int = 10_000
    """How many directives may wait; what is beyond that is dropped, and reported."""
    dispatch: MapField | None = None
    """Where signals go that it emits without saying where; without it they come back to itself."""
    on_parent_exit: str = "stop"
    """What it does when its parent is gone: `stop`, or `continue` without one."""
    max_children: int | None = None
    save_every: int | None = None
    """After how many signals it is put into the vault; with 1, `call` answers once that is done."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.restart, "restart", RESTARTS)
        check_choice(self.on_parent_exit, "on_parent_exit", PARTINGS)
        for field in ("mailbox", "max_directives"):
            check_positive(getattr(self, field), field)
        for field in ("max_children", "save_every"):
            if getattr(self, field) is not None:
                check_positive(getattr(self, field), field)
        if type(self.max_restarts) is not int or self.max_restarts < 0:
            raise Invalid("max_restarts", f"is {self.max_restarts!r}", "use a whole number, 0 or more")
        if isinstance(self.restart_seconds, bool) or not self.restart_seconds > 0:
            raise Invalid("restart_seconds", f"is {self.restart_seconds!r}", "use a number above 0")
        as_policy(self.on_error)

    @property
    def policy(self) -> ErrorPolicy:
        """What is done about an error."""
        return as_policy(self.on_error)

    def but(self, changes: Mapping[str, Any]) -> Self:
        """These terms with some changed."""
        for name in changes:
            if name not in type(self).__struct_fields__:
                known = ", ".join(type(self).__struct_fields__)
                raise Invalid(name, "is no term that an agent lives under", f"use {known}")
        if not changes:
            return self
        if changes.get("dispatch") is not None:
            changes = {**changes, "dispatch": freeze_map(changes["dispatch"], "dispatch")}
        return self.replace(**changes)
