"""AgentOptions and error policies.

An action that fails, a signal without a route, a directive that cannot be carried out: each is an `Error`
that comes to the agent's policy. None is lost, and none ends the agent unless the policy says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self

from omoide.core.action import Directive, Emit, Error, Stop
from omoide.core.codec import MapField
from omoide.core.entry import check_positive
from omoide.core.frozen import freeze_map
from omoide.core.signal import Signal
from omoide.core.value import Value, check_choice
from omoide.errors import Invalid, WrongType

if TYPE_CHECKING:
    from omoide.runtime.server import AgentServer


# policies: What is done about an error?


log = logging.getLogger("omoide.runtime")

ERROR_SIGNAL = "jido.agent.error"
ERROR_REASON = "error"
"""The reason of an agent that was stopped because of an error."""


class ErrorPolicy(Protocol):
    """Looks at an error; returns what is to be done about it, a `Stop` for instance."""

    def __call__(self, error: Error, server: AgentServer) -> Directive | None:
        """What is to be done."""
        ...


class LogErrors:
    """Write down that it happened, and go on."""

    def __call__(self, error: Error, server: AgentServer) -> Directive | None:
        """Nothing is to be done."""
        log_error(error, server)
        return None


class StopOnError:
    """Stop with the first error."""

    def __call__(self, error: Error, server: AgentServer) -> Directive | None:
        """The agent is to stop, as failed."""
        log_error(error, server)
        return Stop(reason=f"{ERROR_REASON}: {error.kind}")


class EmitErrors:
    """Tell others, by a signal."""

    def __init__(self, type: str = ERROR_SIGNAL, dispatch: Any = None) -> None:
        self.type = Signal(type=type).type
        self.dispatch = None if dispatch is None else freeze_map(dispatch, "dispatch")

    def __call__(self, error: Error, server: AgentServer) -> Directive | None:
        """A signal is to be sent; an error about that very signal is only written down."""
        log_error(error, server)
        about = server.current_signal
        if about is not None and about.type == self.type:
            return None
        data = {
            "agent_id": server.id,
            "message": error.message,
            "context": error.context,
            "action": error.action,
            "field": error.field,
            "kind": error.kind,
            "signal_id": None if about is None else about.id,
        }
        return Emit(signal=Signal(type=self.type, data=data, source=server.source), dispatch=self.dispatch)


class MaxErrors:
    """Go on for so many errors; the last of them stops the agent."""

    def __init__(self, limit: int) -> None:
        self.limit = check_positive(limit, "limit")

    def __call__(self, error: Error, server: AgentServer) -> Directive | None:
        """The agent is to stop, once there are too many."""
        log_error(error, server)
        if server.error_count < self.limit:
            return None
        return Stop(reason=f"{ERROR_REASON}: {server.error_count} errors")


_POLICIES: dict[str, Callable[[], ErrorPolicy]] = {"log": LogErrors, "stop": StopOnError, "emit": EmitErrors}


def as_policy(value: Any) -> ErrorPolicy:
    """A policy by its name, or as it is."""
    if isinstance(value, str) and value in _POLICIES:
        return _POLICIES[value]()
    if not callable(value) or isinstance(value, type):
        known = ", ".join(_POLICIES)
        raise WrongType("on_error", f"{known}, MaxErrors(n), EmitErrors(type) or a function", value)
    policy: ErrorPolicy = value
    return policy


def is_error_report(signal: Signal, server: AgentServer) -> bool:
    """Whether it is what the policy of this agent itself sent about an error."""
    policy = server.options.on_error
    return isinstance(policy, EmitErrors) and (signal.type, signal.source) == (policy.type, server.source)


def log_error(error: Error, server: AgentServer) -> None:
    """Write down that an error happened. No message: it may quote what was said."""
    log.warning(
        "agent %s: %s in %s%s",
        server.id, error.kind, error.context, f" of {error.action}" if error.action else "",
    )  # fmt: skip


# terms: Under which terms does an agent live?


RESTART_MODES = ("permanent", "transient", "temporary")
PARENT_EXIT_MODES = ("stop", "continue")


class AgentOptions(Value, frozen=True, kw_only=True):
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
        check_choice(self.restart, "restart", RESTART_MODES)
        check_choice(self.on_parent_exit, "on_parent_exit", PARENT_EXIT_MODES)
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
    def error_policy(self) -> ErrorPolicy:
        """What is done about an error."""
        return as_policy(self.on_error)

    def merge(self, changes: Mapping[str, Any]) -> Self:
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
