"""What could not be done, found or kept?"""

from __future__ import annotations

from omoide.errors.giving import OmoideError, WrongType


class NotFound(OmoideError, LookupError):
    """A named thing does not exist."""

    def __init__(self, kind: str, name: object, remedy: str) -> None:
        super().__init__(f"{kind} {name!r} does not exist; {remedy}")
        self.kind = kind
        self.name = name
        self.remedy = remedy


class Erased(NotFound):
    """Something was erased on request; its content is gone from every version."""

    def __init__(self, kind: str, name: object, at: int, reason: str | None) -> None:
        said = "" if reason is None else f" ({reason})"
        OmoideError.__init__(
            self, f"{kind} {name!r} was erased at {at}{said}; its content cannot be brought back"
        )
        self.kind = kind
        self.name = name
        self.at = at
        self.reason = reason
        self.remedy = "its content cannot be brought back"


class Conflict(OmoideError):
    """Someone else changed the thing since it was read."""

    def __init__(self, thing: str, expected: int, actual: int) -> None:
        super().__init__(
            f"{thing} is at revision {actual}, not {expected}; read it again and repeat the change"
        )
        self.thing = thing
        self.expected = expected
        self.actual = actual

    @classmethod
    def check(cls, thing: str, expected: int | None, actual: int) -> None:
        """Raise unless nothing was expected or the expectation holds."""
        if expected is None:
            return
        if type(expected) is not int:
            raise WrongType(f"expected revision of {thing}", "an int", expected)
        if expected != actual:
            raise cls(thing, expected, actual)


class KeyReused(Conflict):
    """An idempotency key came with another request before."""

    def __init__(self, key: str) -> None:
        OmoideError.__init__(
            self, f"idempotency key {key!r} was used for another request; choose another key"
        )
        self.key = key
        self.thing = f"idempotency key {key!r}"
        self.expected = self.actual = 0


class StoreFailed(OmoideError):
    """A store could not do what was asked, and changed nothing."""

    def __init__(self, store: str, problem: str, remedy: str) -> None:
        super().__init__(f"store {store!r} {problem}; {remedy}")
        self.store = store
        self.problem = problem
        self.remedy = remedy


class Corrupted(StoreFailed):
    """The store's file is damaged."""


class ReadOnly(StoreFailed):
    """The store cannot be written to."""


class DiskFull(StoreFailed):
    """The store has no room left."""


class Busy(StoreFailed):
    """Another process held the store for too long."""


class StoreUnreachable(StoreFailed):
    """The server of a store does not answer, or lets nobody in."""


class Uncertain(StoreFailed):
    """A store was lost while it was to keep something: it may have kept it, all or nothing."""


class WrongVersion(StoreFailed):
    """The store was made by a newer Omoide."""


class Closed(StoreFailed):
    """The store was closed before."""


class EndpointFailed(StoreFailed):
    """A SPARQL endpoint cannot be reached, refuses, or answers something else."""


class QueryStopped(StoreFailed):
    """A query took too long or too much memory, and was stopped."""


class ServiceFailed(OmoideError):
    """A service could not be asked, or did not do what was asked."""

    def __init__(self, service: str, problem: str, remedy: str, *, status: int | None = None) -> None:
        super().__init__(f"service {service!r} {problem}; {remedy}")
        self.service = service
        self.problem = problem
        self.remedy = remedy
        self.status = status
        """The HTTP status, where there was an answer."""


class Unreachable(ServiceFailed):
    """There was no connection to a service, or it broke."""


class NotAllowed(ServiceFailed):
    """A service was asked without a token, or with one that does not allow it."""


class TooManyRequests(ServiceFailed):
    """A service was asked more often than it allows; `retry_after` says how many seconds to wait."""

    retry_after: float = 1.0


class NotCapable(OmoideError):
    """An agent's identity declares what it can do, and this is not among it."""

    def __init__(self, agent: str, capability: str) -> None:
        self.remedy = f"give its identity the capability {capability!r}, or another agent the task"
        super().__init__(f"agent {agent!r} does not declare {capability!r}; {self.remedy}")
        self.agent = agent
        self.capability = capability


class MissingExtra(OmoideError, ImportError):
    """A part of Omoide needs packages that are not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        self.remedy = f"pip install 'omoide[{extra}]'"
        super().__init__(f"{feature} needs packages that are not installed; {self.remedy}")
        self.feature = feature
        self.extra = extra


class ModelUnavailable(OmoideError):
    """The files of a model are absent, are not what they should be, or could not be fetched."""

    def __init__(self, model: str, problem: str, remedy: str) -> None:
        super().__init__(f"model {model!r} {problem}; {remedy}")
        self.model = model
        self.problem = problem
        self.remedy = remedy


class EmbedderFailed(OmoideError):
    """An embedder raised, or gave something that is no vector."""

    def __init__(self, embedder: str, problem: str, remedy: str) -> None:
        super().__init__(f"embedder {embedder!r} {problem}; {remedy}")
        self.embedder = embedder
        self.problem = problem
        self.remedy = remedy


class MountFailed(OmoideError):
    """A plugin's mount failed, so no agent was made."""

    def __init__(self, plugin: str, reason: object) -> None:
        super().__init__(f"Plugin mount failed: {plugin!r}: {reason}")
        self.plugin = plugin
        self.reason = str(reason)


class CheckpointFailed(OmoideError):
    """A plugin could not say what becomes of its slice, so nothing was saved."""

    def __init__(self, plugin: str, reason: object) -> None:
        super().__init__(f"cannot checkpoint plugin {plugin!r}: {reason}")
        self.plugin = plugin
        self.reason = str(reason)


class RestoreFailed(OmoideError):
    """A checkpoint could not be turned back into an agent."""

    def __init__(self, thing: str, reason: object) -> None:
        super().__init__(f"cannot restore {thing}: {reason}")
        self.thing = thing
        self.reason = str(reason)
