"""What can go wrong, and what should be done about it?

```
OmoideError
├── Invalid                 (ValueError)  something given is wrong: field, problem, remedy
│   ├── WrongType           (TypeError)   it is of another type than the field takes
│   ├── Unsupported                       a value, at a path, that no codec can hold without loss
│   ├── TooLarge                          a space or an item beyond the space's limit
│   ├── WrongSpaceType                    a map operation on a list space, or the reverse
│   ├── ReservedSpace                     deleting or retyping `world` or `tasks`
│   ├── InvalidParams                     an action's parameters
│   ├── InvalidState                      an agent's state breaks its schema or its slots
│   ├── InvalidRecord                     an entry, a request or a result of the store contract
│   ├── IdTaken                           an id that is in use elsewhere in its namespace
│   │   └── OwnedElsewhere                an agent that lives in another place of its fleet
│   ├── SignalTooLarge                    a signal beyond what a transport takes
│   ├── Refused                           content that a hook before the write does not let pass
│   ├── EmbedderChanged                   a store whose vectors come from another embedder
│   ├── MissingStore                      memory was asked for without a store to keep it in
│   ├── MissingSession                    memory of a session was asked for without saying which
│   ├── MissingProject                    memory of a project was asked for without saying which
│   ├── MissingNamespace                  a namespace comes from the context, and the context lacks it
│   ├── OverBudget                        an input that does not fit into the context window
│   ├── InvalidQuery                      SPARQL that is wrong, or asks for what no query may do
│   ├── InvalidRDF                        a file that cannot be read as RDF, or as memories
│   ├── Contradiction                     a memory that contradicts others, where that is refused
│   ├── Incomplete                        a memory that lacks what its type needs, where that is refused
│   └── InvalidDefinition                 an action, plugin or agent declared wrongly
│       └── CapabilityDrift               an identity claims actions that nothing offers
├── NotFound                (LookupError) a named thing does not exist
│   ├── NotRunning                        no agent of this id lives here
│   └── Erased                            it was erased, and only its tombstone is left
├── Conflict                              the revision expected is not the revision found
│   └── KeyReused                         an idempotency key that came with another request before
├── StoreFailed                           a store could not do what was asked; nothing was changed
│   ├── Corrupted                         its file is damaged
│   ├── ReadOnly                          it cannot be written to
│   ├── DiskFull                          there is no room left for it
│   ├── Busy                              another process held it for too long
│   ├── StoreUnreachable                  its server does not answer, or lets nobody in
│   ├── Uncertain                         it was lost while it was to keep something
│   ├── WrongVersion                      its file was made by a newer Omoide
│   ├── Closed                            it was used after it had been closed
│   ├── EndpointFailed                    a SPARQL endpoint is down, refuses, or talks nonsense
│   └── QueryStopped                      a query took too long or too much memory
├── ServiceFailed                         a service could not be asked, or did not do it
│   ├── Unreachable                       there was no connection, or it broke
│   ├── NotAllowed                        there is no token, or it does not allow this
│   └── TooManyRequests                   it was asked more often than it allows
├── NotCapable                            an identity does not declare what a tool needs
├── MissingExtra            (ImportError) a part of Omoide needs packages that are not installed
├── ModelUnavailable                      model files are absent, wrong, or could not be fetched
├── EmbedderFailed                        an embedder raised, or gave something that is no vector
├── ModelFailed                           a language model did not answer
│   ├── ModelRefused                      it turned the request down: key, quota, name, content
│   ├── ModelOverloaded                   it is too busy to answer now
│   ├── ModelUnreachable                  there was no connection, or it broke
│   ├── ModelTimedOut                     it took too long
│   └── ModelMisbehaved                   what it answered makes no sense
├── TurnFailed                            a turn could not be finished
│   ├── Blocked                           a control refused its input or its answer
│   ├── TooManyRounds                     the model asked for tools again and again
│   ├── ReviewNeeded                      somebody has to decide before it can go on
│   └── Diverged                          a replay asks for something that its journal does not hold
├── SessionBusy                           somebody else is running the session
├── TurnPending                           the session has a turn that did not finish
├── Unrouted                              a signal that an agent has no route for
├── Dropped                               a signal that will not be handled
│   └── MailboxFull                       an agent has as many waiting as it takes
├── TimedOut                              something took longer than it was given
├── TooManyAgents                         a runtime or a parent takes no more
├── GaveUp                                something failed again and again, and is not started any more
├── MountFailed                           a plugin could not be mounted
├── CheckpointFailed                      a plugin's slice could not be saved
└── RestoreFailed                         a checkpoint could not be restored
```

Every error says what happened, to which thing, and what to do next, and carries the same as attributes.

"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Any, ClassVar, Self

# giving: What is wrong with something that was given?


class OmoideError(Exception):
    """Everything that Omoide raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and other processes get the words and the attributes; constructors are not asked again."""
        return _rebuild_error, (type(self), self.args), self.__dict__


class Invalid(OmoideError, ValueError):
    """Something given is wrong; `field` names it, `remedy` says what to do."""

    FIELD_IS_PATH: ClassVar[bool] = True
    """Whether `field` is a place inside a value; otherwise it names a thing."""

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(f"{field} {problem}; {remedy}")
        self.field = field
        self.problem = problem
        self.remedy = remedy

    def with_path_prefix(self, prefix: str) -> Self:
        """The same error, seen from a value that holds the field at `path`."""
        if not prefix or not self.FIELD_IS_PATH:
            return self
        new = copy(self)
        joint = "" if not self.field or self.field.startswith("[") else "."
        new.field = _clip_path(f"{prefix}{joint}{self.field}")
        new.args = (f"{new.field} {self.problem}; {self.remedy}",)
        return new


class WrongType(Invalid, TypeError):
    """A value of another type than the field takes."""

    def __init__(self, field: str, expected: str, given: object, remedy: str | None = None) -> None:
        super().__init__(
            field, f"must be {expected}, not {type(given).__name__}", remedy or f"pass {expected}"
        )
        self.expected = expected


class Unsupported(Invalid):
    """A value that cannot be kept without loss; `field` is the path to where it lies."""

    def __init__(self, path: str, problem: str, remedy: str) -> None:
        super().__init__(_clip_path(path), problem, remedy)

    @property
    def path(self) -> str:
        """Where it lies."""
        return self.field


class TooLarge(Invalid):
    """A space, or one of its items, would outgrow the limit set for it."""

    FIELD_IS_PATH = False

    def __init__(self, space: str, limit: str, allowed: int, actual: int) -> None:
        super().__init__(
            f"space {space!r}",
            f"allows {limit} {allowed}, this would make {actual}",
            f"remove something first, keep large things elsewhere, or raise {limit}",
        )
        self.space = space
        self.limit = limit
        self.allowed = allowed
        self.actual = actual


class WrongSpaceType(Invalid):
    """An operation met a space whose data is of another kind."""

    FIELD_IS_PATH = False

    def __init__(self, space: str, expected: str, data: object) -> None:
        super().__init__(
            f"space {space!r}",
            f"is not a {expected} space (it holds {type(data).__name__})",
            f"use the operations of its own kind, or another space made with "
            f"ensure_space(…, {'{}' if expected == 'map' else '[]'})",
        )
        self.space = space
        self.expected = expected


class ReservedSpace(Invalid):
    """`world` and `tasks` exist in every memory and keep their kind."""

    FIELD_IS_PATH = False

    def __init__(self, space: str, attempt: str, remedy: str) -> None:
        super().__init__(f"space {space!r}", f"is reserved: cannot {attempt} {space!r}", remedy)
        self.space = space


class InvalidParams(Invalid):
    """The parameters given to an action do not fit its schema."""

    FIELD_IS_PATH = False

    def __init__(self, action: str, field: str, problem: str, remedy: str) -> None:
        super().__init__(f"action {action!r}: parameter {field!r}", problem, remedy)
        self.action = action
        self.parameter = field


class InvalidState(Invalid):
    """A change would leave an agent's state unlike its schema or its slots."""


class InvalidRecord(Invalid):
    """An entry, a request or a result of the store contract that cannot be; `cause` says which part of it."""

    def __init__(self, label: str, cause: Invalid) -> None:
        super().__init__(cause.field, cause.problem, cause.remedy)
        self.args = (f"invalid {label}: {cause}",)
        self.label = label


class IdTaken(Invalid):
    """An id names something else already."""

    def __init__(self, id: str) -> None:
        super().__init__(
            "id", f"{id!r} is in use elsewhere in its namespace", "choose another id, or leave it out"
        )
        self.id = id


class Refused(Invalid):
    """What was to be kept must not be; `found` names what was found in it, never the thing itself."""

    def __init__(self, field: str, found: Iterable[str]) -> None:
        self.found = tuple(found)
        super().__init__(
            field, f"seems to hold {', '.join(self.found)}", "take it out, or let the store mask it"
        )


class EmbedderChanged(Invalid):
    """The vectors in a store come from another embedder than the one it was opened with."""

    FIELD_IS_PATH = False

    def __init__(self, store: str, kept: str, kept_dim: int, given: str, given_dim: int) -> None:
        super().__init__(
            f"store {store!r}",
            f"holds vectors of {kept!r} ({kept_dim} numbers), and was opened with {given!r} ({given_dim})",
            f"open it with {kept!r}, or open it with embedder='none' and reindex it",
        )
        self.kept = kept
        self.given = given


class MissingStore(Invalid):
    """Memory was asked for, and no store was given; it is never taken from anywhere else."""

    def __init__(self, field: str = "memory_store") -> None:
        super().__init__(field, "is missing", f"pass {field}=, for example open_store(…)")


class MissingSession(Invalid):
    """Memory of a session was asked for without saying of which."""

    def __init__(self) -> None:
        super().__init__(
            "session_id", "is missing for memory of scope 'session'", "pass session_id=, or use scope 'agent'"
        )


class MissingProject(Invalid):
    """Memory of a project was asked for without saying of which."""

    def __init__(self) -> None:
        super().__init__(
            "project_id", "is missing for memory of scope 'project'", "pass project_id=, or use scope 'agent'"
        )


class MissingNamespace(Invalid):
    """The namespace comes from the context, and the context does not have it."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"context.{key}",
            "is missing, and the namespace of the memory comes from it",
            f"pass context={{{key!r}: …}}",
        )
        self.key = key


class OverBudget(Invalid):
    """What has to be sent does not fit into the context window, whatever is left out."""

    def __init__(self, needed: int, allowed: int) -> None:
        super().__init__(
            "input",
            f"needs {needed} tokens with what must go with it, and {allowed} are allowed",
            "shorten it, or raise window.max_tokens",
        )
        self.needed = needed
        self.allowed = allowed


class InvalidQuery(Invalid):
    """A SPARQL query that is wrong, or that asks for what no query may do."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__("query", problem, remedy)


class InvalidRDF(Invalid):
    """A file that is not what its format says, or holds memories that cannot be; nothing was imported."""

    def __init__(self, place: str, problem: str, remedy: str) -> None:
        super().__init__(place, problem, remedy)


class Contradiction(Invalid):
    """A memory contradicts others, and was to be kept only if it does not."""

    def __init__(self, id: str, others: Iterable[str]) -> None:
        self.id = id
        self.others = tuple(others)
        super().__init__(
            f"memory {id!r}",
            f"contradicts {', '.join(map(repr, self.others))}",
            "supersede what no longer holds, or keep both without strict",
        )


class Incomplete(Invalid):
    """A memory lacks what the ontology asks of its type, and was to be kept only if it is complete."""

    def __init__(self, id: str, missing: Iterable[str]) -> None:
        self.id = id
        self.missing = tuple(missing)
        super().__init__(
            f"memory {id!r}", f"lacks {', '.join(self.missing)}", "add it, or keep it without strict"
        )


class InvalidDefinition(Invalid):
    """An action, plugin or agent is declared in a way that cannot work."""

    FIELD_IS_PATH = False


class CapabilityDrift(InvalidDefinition):
    """An identity declares actions that the agent does not really offer."""

    def __init__(self, agent: str, missing: Iterable[str]) -> None:
        self.missing = tuple(missing)
        super().__init__(
            f"identity of agent {agent!r}",
            f"declares actions that nothing offers: {', '.join(self.missing)}",
            "mount the plugin that offers them, give them to the agent, or remove_action them",
        )


def _clip_path(path: str) -> str:
    return path if len(path) <= 200 else f"{path[:200]}…"


def _rebuild_error(kind: type[OmoideError], args: tuple[Any, ...]) -> OmoideError:
    error = kind.__new__(kind)
    error.args = args
    return error


# answering: What keeps a model from answering, and a turn from ending?


class ModelFailed(OmoideError):
    """A language model did not answer; `transient` says whether trying again may help."""

    TRANSIENT: ClassVar[bool] = False

    def __init__(self, model: str, problem: str, remedy: str, *, retry_after: float | None = None) -> None:
        super().__init__(f"model {model!r} {problem}; {remedy}")
        self.model = model
        self.problem = problem
        self.remedy = remedy
        self.retry_after = retry_after
        """How many seconds the provider asked to wait, where it said so."""

    @property
    def transient(self) -> bool:
        """Whether the same request may succeed later."""
        return self.TRANSIENT


class ModelRefused(ModelFailed):
    """The provider turned the request down, and will do so again."""


class ModelOverloaded(ModelFailed):
    """The provider cannot answer just now."""

    TRANSIENT = True


class ModelUnreachable(ModelFailed):
    """There was no connection, or it broke."""

    TRANSIENT = True


class ModelTimedOut(ModelFailed):
    """No answer came in time."""

    TRANSIENT = True


class ModelMisbehaved(ModelFailed):
    """The answer is not one."""


class TurnFailed(OmoideError):
    """A turn could not be finished."""

    def __init__(self, request_id: str, problem: str, remedy: str) -> None:
        super().__init__(f"turn {request_id!r} {problem}; {remedy}")
        self.request_id = request_id
        self.problem = problem
        self.remedy = remedy


class Blocked(TurnFailed):
    """A control refused the input or the answer."""

    def __init__(self, request_id: str, boundary: str, reason: str) -> None:
        super().__init__(request_id, f"was refused at its {boundary}: {reason}", "say it in another way")
        self.boundary = boundary
        self.reason = reason


class TooManyRounds(TurnFailed):
    """The model asked for tools in every round it was given."""

    def __init__(self, request_id: str, rounds: int) -> None:
        super().__init__(
            request_id,
            f"asked for tools {rounds} times and gave no answer",
            "raise limits.max_rounds, or see which tool does not satisfy the model",
        )
        self.rounds = rounds


class ReviewNeeded(TurnFailed):
    """Somebody has to decide before the turn can go on."""

    def __init__(self, request_id: str, reviews: Iterable[str]) -> None:
        self.reviews = tuple(reviews)
        super().__init__(
            request_id,
            f"waits for a decision on {', '.join(self.reviews)}",
            "approve, deny or settle it, then resume",
        )


class Diverged(TurnFailed):
    """A replay asked for something that its journal does not hold."""

    def __init__(self, request_id: str, effect: str) -> None:
        super().__init__(
            request_id,
            f"asks for {effect}, which its journal does not hold",
            "replay it with the agent it was run with",
        )
        self.effect = effect


class SessionBusy(OmoideError):
    """Somebody else is running the session."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} is running elsewhere; wait for it to finish, then try again")
        self.session = session


class TurnPending(OmoideError):
    """The session has a turn that did not finish."""

    def __init__(self, session: str, status: str) -> None:
        super().__init__(
            f"session {session!r} has an unfinished turn ({status}); resume() or cancel() it first"
        )
        self.session = session
        self.status = status


# failing: What could not be done, found or kept?


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


# living: What can go wrong with agents that live?


class NotRunning(NotFound):
    """No agent of this id lives here."""

    def __init__(self, id: str) -> None:
        super().__init__("running agent", id, "start it, or thaw it")


class OwnedElsewhere(IdTaken):
    """An agent that lives in another place of its fleet, and can live in one place only."""

    def __init__(self, id: str, owner: str) -> None:
        Invalid.__init__(
            self, "id", f"{id!r} lives in {owner!r}", "send to it from here, or stop it there first"
        )
        self.id = id
        self.owner = owner


class SignalTooLarge(Invalid):
    """A signal that a transport takes no message of."""

    FIELD_IS_PATH = False

    def __init__(self, type: str, allowed: int, actual: int) -> None:
        super().__init__(
            f"signal {type!r}",
            f"has {actual} bytes, and the server takes {allowed}",
            "keep the content in a store, and send where it is",
        )
        self.type = type
        self.allowed = allowed
        self.actual = actual


class Unrouted(OmoideError):
    """A signal of a type that an agent has no route for."""

    def __init__(self, id: str, type: str, problem: str) -> None:
        super().__init__(f"agent {id!r}: {problem}")
        self.agent_id = id
        self.type = type


class Dropped(OmoideError):
    """A signal that will not be handled, and why."""

    def __init__(self, id: str, type: str, reason: str) -> None:
        super().__init__(f"signal {type!r} to agent {id!r} was dropped: {reason}; send it again if need be")
        self.agent_id = id
        self.type = type
        self.reason = reason


class MailboxFull(Dropped):
    """An agent that has as many signals waiting as it takes."""

    def __init__(self, id: str, type: str, size: int) -> None:
        super().__init__(id, type, f"{size} signals are waiting already")
        self.size = size


class TimedOut(OmoideError):
    """Something took longer than it was given; it may still be done."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what} took longer than {seconds} s; give it more time, or ask again later")
        self.what = what
        self.seconds = seconds


class TooManyAgents(OmoideError):
    """A runtime or a parent that takes no more agents or sessions."""

    def __init__(self, who: str, limit: int) -> None:
        super().__init__(f"{who} takes {limit} at most; stop some, or raise the limit")
        self.who = who
        self.limit = limit


class GaveUp(OmoideError):
    """Something that failed again and again, and is not started any more."""

    def __init__(self, who: str, times: int, seconds: float, last: str) -> None:
        super().__init__(
            f"{who} failed {times} times within {seconds} s, last with {last}; mend it and start it"
        )
        self.who = who
        self.times = times
        self.last = last


#   init  : What can go wrong, and what should be done about it?


__all__ = [
    "Blocked",
    "Busy",
    "CapabilityDrift",
    "CheckpointFailed",
    "Closed",
    "Conflict",
    "Contradiction",
    "Corrupted",
    "DiskFull",
    "Diverged",
    "Dropped",
    "EmbedderChanged",
    "EmbedderFailed",
    "EndpointFailed",
    "Erased",
    "GaveUp",
    "IdTaken",
    "Incomplete",
    "Invalid",
    "InvalidDefinition",
    "InvalidParams",
    "InvalidQuery",
    "InvalidRDF",
    "InvalidRecord",
    "InvalidState",
    "KeyReused",
    "MailboxFull",
    "MissingExtra",
    "MissingNamespace",
    "MissingProject",
    "MissingSession",
    "MissingStore",
    "ModelFailed",
    "ModelMisbehaved",
    "ModelOverloaded",
    "ModelRefused",
    "ModelTimedOut",
    "ModelUnavailable",
    "ModelUnreachable",
    "MountFailed",
    "NotAllowed",
    "NotCapable",
    "NotFound",
    "NotRunning",
    "OmoideError",
    "OverBudget",
    "OwnedElsewhere",
    "QueryStopped",
    "ReadOnly",
    "Refused",
    "ReservedSpace",
    "RestoreFailed",
    "ReviewNeeded",
    "ServiceFailed",
    "SessionBusy",
    "SignalTooLarge",
    "StoreFailed",
    "StoreUnreachable",
    "TimedOut",
    "TooLarge",
    "TooManyAgents",
    "TooManyRequests",
    "TooManyRounds",
    "TurnFailed",
    "TurnPending",
    "Uncertain",
    "Unreachable",
    "Unrouted",
    "Unsupported",
    "WrongSpaceType",
    "WrongType",
    "WrongVersion",
]
