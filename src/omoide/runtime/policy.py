"""Options of a running agent, and policies for its errors.

An action that fails, a signal without a route, a directive that cannot be executed: each becomes an `Error`
that is passed to the agent's policy. No error is lost, and none ends the agent unless the policy says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self, TypedDict

from omoide.core.action import Directive, Emit, Error, Stop
from omoide.core.codec import MapField
from omoide.core.entry import check_positive
from omoide.core.frozen import freeze_map
from omoide.core.signal import Signal
from omoide.core.value import Value, check_choice
from omoide.errors import Invalid, WrongType

if TYPE_CHECKING:
    from omoide.runtime.server import AgentServer


log = logging.getLogger("omoide.runtime")

ERROR_SIGNAL = "jido.agent.error"
ERROR_REASON = "error"
"""The exit reason of an agent that was stopped because of an error; it counts as a failure."""

RESTART_MODES = ("permanent", "transient", "temporary")
PARENT_EXIT_MODES = ("stop", "continue")


class ErrorPolicy(Protocol):
    """A function that decides about an error of an agent."""

    def __call__(self, error: Error, server: AgentServer) -> Directive | None:
        """Return the directive to execute, for instance a `Stop`, or None."""


class LogErrors:
    """Log each error, and go on."""

    def __call__(self, error: Error, server: AgentServer) -> Directive | None:
        """Log the error."""
        log_error(error, server)
        return None


class StopOnError:
    """Stop the agent with the first error."""

    def __call__(self, error: Error, server: AgentServer) -> Directive | None:
        """Return a `Stop` with a reason that counts as a failure."""
        log_error(error, server)
        return Stop(reason=f"{ERROR_REASON}: {error.kind}")


class EmitErrors:
    """Emit a signal for each error."""

    def __init__(self, type: str = ERROR_SIGNAL, dispatch: Any = None) -> None:
        self.type = Signal(type=type).type
        self.dispatch = None if dispatch is None else freeze_map(dispatch, "dispatch")

    def __call__(self, error: Error, server: AgentServer) -> Directive | None:
        """Return the signal as a directive; an error about such a signal is only logged."""
        log_error(error, server)
        signal = server.current_signal
        # An error about an error signal would emit another one, without end.
        if signal is not None and signal.type == self.type:
            return None
        data = {
            "agent_id": server.id,
            "message": error.message,
            "context": error.context,
            "action": error.action,
            "field": error.field,
            "kind": error.kind,
            "signal_id": None if signal is None else signal.id,
        }
        return Emit(signal=Signal(type=self.type, data=data, source=server.source), dispatch=self.dispatch)


class MaxErrors:
    """Go on until a number of errors is reached, then stop the agent."""

    def __init__(self, limit: int) -> None:
        self.limit = check_positive(limit, "limit")

    def __call__(self, error: Error, server: AgentServer) -> Directive | None:
        """Return a `Stop` once the limit is reached."""
        log_error(error, server)
        if server.error_count < self.limit:
            return None
        return Stop(reason=f"{ERROR_REASON}: {server.error_count} errors")


_POLICIES: dict[str, Callable[[], ErrorPolicy]] = {"log": LogErrors, "stop": StopOnError, "emit": EmitErrors}


def as_policy(value: Any) -> ErrorPolicy:
    """Return a policy by its name, or a function as it is."""
    if isinstance(value, str) and value in _POLICIES:
        return _POLICIES[value]()
    if not callable(value) or isinstance(value, type):
        names = ", ".join(_POLICIES)
        raise WrongType("on_error", f"{names}, MaxErrors(n), EmitErrors(type) or a function", value)
    policy: ErrorPolicy = value
    return policy


def is_error_report(signal: Signal, server: AgentServer) -> bool:
    """Return whether a signal is one that the agent's own `EmitErrors` sent."""
    policy = server.options.on_error
    return isinstance(policy, EmitErrors) and (signal.type, signal.source) == (policy.type, server.source)


def log_error(error: Error, server: AgentServer) -> None:
    """Log an error without its message, which may quote what a user said."""
    log.warning(
        "agent %s: %s in %s%s",
        server.id, error.kind, error.context, f" of {error.action}" if error.action else "",
    )  # fmt: skip


class AgentKwargs(TypedDict, total=False):
    """Keyword arguments of `Runtime.start` and `thaw`: the fields of `AgentOptions`."""

    restart: str
    max_restarts: int
    restart_seconds: float
    on_error: ErrorPolicy | str
    mailbox: int
    max_directives: int
    dispatch: Mapping[str, Any] | None
    on_parent_exit: str
    max_children: int | None
    save_every: int | None


class AgentOptions(Value, frozen=True, kw_only=True):
    """Restarts, error policy, queue limits and default dispatch of a running agent."""

    restart: str = "transient"
    """`permanent`: always restarted; `transient`: after a failure; `temporary`: never."""
    max_restarts: int = 3
    """The number of restarts within `restart_seconds` before it is given up."""
    restart_seconds: float = 5.0
    on_error: Any = "log"
    """`log`, `stop`, `emit`, a `MaxErrors`, an `EmitErrors`, or a function of the error and the server."""
    mailbox: int = 1_000
    """The number of signals of others that may wait."""
    max_directives: int = 10_000
    """The number of directives that may wait; those beyond it are dropped and reported."""
    dispatch: MapField | None = None
    """The target of signals that it emits without one; None for the agent itself."""
    on_parent_exit: str = "stop"
    """Reaction to the end of its parent: `stop`, or `continue` without one."""
    max_children: int | None = None
    save_every: int | None = None
    """The number of signals after which it is saved; with 1, `call` returns once that is done."""

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
        """The function that decides about errors."""
        return as_policy(self.on_error)

    def merge(self, changes: Mapping[str, Any]) -> Self:
        """Return these options with some changed; an unknown one is `Invalid`."""
        for name in changes:
            if name not in type(self).__struct_fields__:
                names = ", ".join(type(self).__struct_fields__)
                raise Invalid(name, "is not an agent option", f"use {names}")
        if not changes:
            return self
        if changes.get("dispatch") is not None:
            changes = {**changes, "dispatch": freeze_map(changes["dispatch"], "dispatch")}
        return self.replace(**changes)
