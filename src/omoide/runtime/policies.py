"""What is done about an error?

An action that fails, a signal without a route, a directive that cannot be carried out: each is an `Error`
that comes to the agent's policy. None is lost, and none ends the agent unless the policy says so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from omoide.core.directives import Directive, Emit, Error, Stop
from omoide.core.frozen import freeze_map
from omoide.core.recalling import check_positive
from omoide.core.signal import Signal
from omoide.errors import WrongType

if TYPE_CHECKING:
    from omoide.runtime.server import AgentServer

log = logging.getLogger("omoide.runtime")

ERROR = "jido.agent.error"
FAILED = "error"
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
        note(error, server)
        return None


class StopOnError:
    """Stop with the first error."""

    def __call__(self, error: Error, server: AgentServer) -> Directive | None:
        """The agent is to stop, as failed."""
        note(error, server)
        return Stop(reason=f"{FAILED}: {error.kind}")


class EmitErrors:
    """Tell others, by a signal."""

    def __init__(self, type: str = ERROR, dispatch: Any = None) -> None:
        self.type = Signal(type=type).type
        self.dispatch = None if dispatch is None else freeze_map(dispatch, "dispatch")

    def __call__(self, error: Error, server: AgentServer) -> Directive | None:
        """A signal is to be sent; an error about that very signal is only written down."""
        note(error, server)
        about = server.at
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
        note(error, server)
        if server.errors < self.limit:
            return None
        return Stop(reason=f"{FAILED}: {server.errors} errors")


_NAMED: dict[str, Callable[[], ErrorPolicy]] = {"log": LogErrors, "stop": StopOnError, "emit": EmitErrors}


def as_policy(wanted: Any) -> ErrorPolicy:
    """A policy by its name, or as it is."""
    if isinstance(wanted, str) and wanted in _NAMED:
        return _NAMED[wanted]()
    if not callable(wanted) or isinstance(wanted, type):
        known = ", ".join(_NAMED)
        raise WrongType("on_error", f"{known}, MaxErrors(n), EmitErrors(type) or a function", wanted)
    policy: ErrorPolicy = wanted
    return policy


def is_report(signal: Signal, server: AgentServer) -> bool:
    """Whether it is what the policy of this agent itself sent about an error."""
    policy = server.terms.on_error
    return isinstance(policy, EmitErrors) and (signal.type, signal.source) == (policy.type, server.source)


def note(error: Error, server: AgentServer) -> None:
    """Write down that an error happened. No message: it may quote what was said."""
    log.warning(
        "agent %s: %s in %s%s",
        server.id, error.kind, error.context, f" of {error.action}" if error.action else "",
    )  # fmt: skip
