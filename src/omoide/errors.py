"""Every exception that Omoide raises.

```
OmoideError
├── Invalid                 (ValueError)  an argument is wrong: field, problem, remedy
│   ├── WrongType           (TypeError)   a value of another type than the field takes
│   ├── Unsupported                       a value, at a path, that cannot be encoded without loss
│   ├── TooLarge                          a space or an item beyond the space's limit
│   ├── WrongSpaceType                    a map operation on a list space, or the reverse
│   ├── ReservedSpace                     deleting or retyping `world` or `tasks`
│   ├── InvalidParams                     parameters of an action that do not fit its schema
│   ├── InvalidState                      a state that does not fit its schema or its slots
│   ├── InvalidRecord                     an invalid entry, request or result of the store contract
│   ├── IdTaken                           an id that is in use elsewhere in its namespace
│   │   └── OwnedElsewhere                an agent that runs on another node of its fleet
│   ├── SignalTooLarge                    a signal larger than a transport accepts
│   ├── Refused                           content that a write hook refuses
│   ├── MissingStore                      memory is requested without a store
│   ├── MissingScope                      memory of a session, project or user is requested without its id
│   ├── MissingNamespace                  the namespace comes from the context, which lacks it
│   ├── OverBudget                        an input that does not fit into the context window
│   ├── InvalidQuery                      SPARQL that is invalid or not allowed
│   ├── InvalidDocument                   a file that cannot be read as a document
│   ├── InvalidRDF                        a file that is not valid RDF, or holds invalid memories
│   ├── Contradiction                     a memory that contradicts others, in strict mode
│   ├── Incomplete                        a memory that lacks what its type requires, in strict mode
│   └── InvalidDefinition                 an invalid action, plugin or agent definition
│       └── CapabilityDrift               an identity declares actions that nothing offers
├── NotFound                (LookupError) a named thing does not exist
│   ├── NotRunning                        no agent with this id is running here
│   └── Erased                            it was erased, and only its tombstone is left
├── Conflict                              the expected revision is not the current one
│   └── KeyReused                         an idempotency key that was used for another request
├── StoreFailed                           a store operation failed and changed nothing
│   ├── Corrupted                         its file, or a value in it, is damaged
│   ├── ReadOnly                          it cannot be written to
│   ├── DiskFull                          the disk is full
│   ├── Busy                              another process locked it for too long
│   ├── StoreUnreachable                  its server does not answer, or refuses the login
│   ├── Uncertain                         the connection broke during a commit, whose outcome is unknown
│   ├── WrongVersion                      it was written by a newer Omoide
│   ├── Closed                            it was used after it was closed
│   ├── Replaced                          its file was replaced or deleted while it was open
│   ├── Forked                            it was in use when its process was forked
│   ├── EndpointFailed                    a SPARQL endpoint is down, refuses, or responds invalidly
│   └── QueryStopped                      a query exceeded its time or memory
├── ServiceFailed                         a request to a service failed
│   ├── Unreachable                       there was no connection, or it broke
│   ├── NotAllowed                        the token is missing, or does not allow the request
│   └── TooManyRequests                   a limit of the service is exceeded
├── NotCapable                            an identity does not declare what a tool needs
├── MissingExtra            (ImportError) an optional dependency is not installed
├── ModelUnavailable                      files of a model are missing or damaged
├── EmbedderFailed                        an embedder raised, or returned something that is no vector
├── RerankerFailed                        a reranker raised, or returned something other than scores
├── ModelFailed                           a language model did not answer
│   ├── ModelRefused                      it rejected the request: key, quota, name, content
│   ├── ModelOverloaded                   it is overloaded
│   ├── ModelUnreachable                  there was no connection, or it broke
│   ├── ModelTimedOut                     it did not answer in time
│   └── ModelMisbehaved                   its answer is invalid
├── TurnFailed                            a turn could not be finished
│   ├── Blocked                           a control refused its input or its answer
│   ├── TooManyRounds                     the model requested tools in every round
│   ├── ReviewNeeded                      a review has to be decided before it can go on
│   └── Diverged                          a replay requests an effect that its journal does not hold
├── SessionBusy                           the session is running elsewhere
├── TurnPending                           the session has an unfinished turn
├── Unrouted                              a signal that an agent has no route for
├── ActionFailed                          an action that a signal led to failed
├── Dropped                               a signal that will not be handled
│   └── MailboxFull                       the mailbox of an agent is full
├── TimedOut                              an operation exceeded its timeout
├── TooManyAgents                         a limit of agents or sessions is reached
├── GaveUp                                it failed repeatedly and is not restarted any more
├── MountFailed                           a plugin could not be mounted
├── CheckpointFailed                      a plugin's slice could not be saved
└── RestoreFailed                         a checkpoint could not be restored
```

Every error says what happened, to which thing, and what to do next, and carries the same as attributes. Where
Python has an exception of the same meaning, it is a base too, so `except ValueError` works.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Any, ClassVar, Self


class OmoideError(Exception):
    """Base class of all errors that Omoide raises."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle message and attributes; constructors take other arguments than `args`."""
        return _rebuild_error, (type(self), self.args), self.__dict__


class Invalid(OmoideError, ValueError):
    """An argument is wrong: `field` is its name or path, `problem` and `remedy` complete the message."""

    FIELD_IS_PATH: ClassVar[bool] = True
    """True if `field` is a path inside a value, so that `with_path_prefix` may extend it."""

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(f"{field} {problem}; {remedy}")
        self.field = field
        self.problem = problem
        self.remedy = remedy

    def with_path_prefix(self, prefix: str) -> Self:
        """Return the error with `prefix` before its path, for a value that contains the field."""
        if not prefix or not self.FIELD_IS_PATH:
            return self
        # A copy, because constructors of subclasses take other arguments; it keeps their attributes.
        new = copy(self)
        joint = "" if not self.field or self.field.startswith("[") else "."
        new.field = _clip_path(f"{prefix}{joint}{self.field}")
        new.args = (f"{new.field} {self.problem}; {self.remedy}",)
        return new


class WrongType(Invalid, TypeError):
    """A value has another type than the field takes."""

    def __init__(self, field: str, expected: str, given: object, remedy: str | None = None) -> None:
        super().__init__(
            field, f"must be {expected}, not {type(given).__name__}", remedy or f"pass {expected}"
        )
        self.expected = expected


class Unsupported(Invalid):
    """A value that cannot be encoded without loss; `field` is the path to it."""

    def __init__(self, path: str, problem: str, remedy: str) -> None:
        super().__init__(_clip_path(path), problem, remedy)

    @property
    def path(self) -> str:
        """The path to the value."""
        return self.field


class TooLarge(Invalid):
    """A space, or one of its items, would exceed its limit."""

    FIELD_IS_PATH = False

    def __init__(self, space: str, limit: str, allowed: int, actual: int) -> None:
        super().__init__(
            f"space {space!r}",
            f"allows {limit} {allowed}, this would make {actual}",
            f"remove items first, store large data elsewhere, or raise {limit}",
        )
        self.space = space
        self.limit = limit
        self.allowed = allowed
        self.actual = actual


class WrongSpaceType(Invalid):
    """An operation does not fit the kind of the space: map or list."""

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
    """A change that `world` and `tasks` do not allow: they always exist and keep their kind."""

    FIELD_IS_PATH = False

    def __init__(self, space: str, attempt: str, remedy: str) -> None:
        super().__init__(f"space {space!r}", f"is reserved: cannot {attempt} {space!r}", remedy)
        self.space = space


class InvalidParams(Invalid):
    """Parameters of an action do not fit its schema."""

    FIELD_IS_PATH = False

    def __init__(self, action: str, field: str, problem: str, remedy: str) -> None:
        super().__init__(f"action {action!r}: parameter {field!r}", problem, remedy)
        self.action = action
        self.parameter = field


class InvalidState(Invalid):
    """A change would leave a state that does not fit its schema or its slots."""


class InvalidRecord(Invalid):
    """An entry, request or result of the store contract is invalid; `field` says which part of it."""

    def __init__(self, label: str, cause: Invalid) -> None:
        super().__init__(cause.field, cause.problem, cause.remedy)
        self.args = (f"invalid {label}: {cause}",)
        self.label = label


class IdTaken(Invalid):
    """An id is already in use."""

    def __init__(self, id: str) -> None:
        super().__init__(
            "id", f"{id!r} is in use elsewhere in its namespace", "choose another id, or leave it out"
        )
        self.id = id


class Refused(Invalid):
    """A write hook refuses content; `found` names what was detected, never the content itself."""

    def __init__(self, field: str, found: Iterable[str]) -> None:
        self.found = tuple(found)
        super().__init__(
            field, f"seems to hold {', '.join(self.found)}", "remove it, or let the store mask it"
        )


class MissingStore(Invalid):
    """Memory is requested and no store is given; there is no default store."""

    def __init__(self, field: str = "store") -> None:
        super().__init__(field, "is missing", f"pass {field}=, for example open_store(…)")


class MissingScope(Invalid):
    """Memory of a session, a project or a user is requested without its id."""

    def __init__(self, scope: str) -> None:
        super().__init__(
            f"{scope}_id",
            f"is missing for memory of scope {scope!r}",
            f"pass {scope}_id=, or use scope 'agent'",
        )
        self.scope = scope


class MissingNamespace(Invalid):
    """The namespace comes from the context, and the context lacks it."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"context.{key}",
            "is missing, and the namespace of the memory comes from it",
            f"pass context={{{key!r}: …}}",
        )
        self.key = key


class OverBudget(Invalid):
    """The input does not fit into the context window, even with everything optional left out."""

    def __init__(self, needed: int, allowed: int, *, pinned: int = 0) -> None:
        parts = "the required parts of the prompt" + (f", {pinned} of them for pins" if pinned else "")
        unpin = "unpin memories, " if pinned else ""
        super().__init__(
            "input",
            f"needs {needed} tokens with {parts}, and {allowed} are allowed",
            f"shorten it, {unpin}or raise window.max_tokens; in a session, token_budget as well",
        )
        self.needed = needed
        self.allowed = allowed
        self.pinned = pinned


class InvalidQuery(Invalid):
    """A SPARQL query is invalid, or uses something that is not allowed."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__("query", problem, remedy)


class InvalidDocument(Invalid):
    """A file cannot be read as a document, and nothing of it was stored; `field` is the name of the file."""


class InvalidRDF(Invalid):
    """A file is not valid in its format, or holds invalid memories; nothing was imported."""

    def __init__(self, place: str, problem: str, remedy: str) -> None:
        super().__init__(place, problem, remedy)


class Contradiction(Invalid):
    """A memory contradicts others, and strict mode refuses it.

    `others` are the ids of those that belong to the same agent and user; `hidden` counts the rest.
    """

    def __init__(self, id: str, others: Iterable[str], hidden: int = 0) -> None:
        self.id = id
        self.others = tuple(others)
        self.hidden = hidden
        rest = [f"{hidden} of other agents"] if hidden else []
        super().__init__(
            f"memory {id!r}",
            f"contradicts {', '.join([*map(repr, self.others), *rest])}",
            "supersede the outdated one, or keep both without strict",
        )


class Incomplete(Invalid):
    """A memory lacks what the ontology requires of its type, and strict mode refuses it."""

    def __init__(self, id: str, missing: Iterable[str]) -> None:
        self.id = id
        self.missing = tuple(missing)
        super().__init__(
            f"memory {id!r}", f"lacks {', '.join(self.missing)}", "add it, or keep it without strict"
        )


class InvalidDefinition(Invalid):
    """The definition of an action, plugin or agent cannot work."""

    FIELD_IS_PATH = False


class CapabilityDrift(InvalidDefinition):
    """An identity declares actions that the agent does not offer."""

    def __init__(self, agent: str, missing: Iterable[str]) -> None:
        self.missing = tuple(missing)
        super().__init__(
            f"identity of agent {agent!r}",
            f"declares actions that nothing offers: {', '.join(self.missing)}",
            "mount the plugin that offers them, give them to the agent, or call remove_action",
        )


def _clip_path(path: str) -> str:
    # Keys of data from outside are part of the path and may have any length.
    return path if len(path) <= 200 else f"{path[:200]}…"


def _rebuild_error(kind: type[OmoideError], args: tuple[Any, ...]) -> OmoideError:
    error = kind.__new__(kind)  # without the constructor; pickle and copy restore the attributes next
    error.args = args
    return error


# Models, turns and sessions


class ModelFailed(OmoideError):
    """A language model did not answer; `transient` is True if a retry may help."""

    TRANSIENT: ClassVar[bool] = False

    def __init__(self, model: str, problem: str, remedy: str, *, retry_after: float | None = None) -> None:
        super().__init__(f"model {model!r} {problem}; {remedy}")
        self.model = model
        self.problem = problem
        self.remedy = remedy
        self.retry_after = retry_after
        """Seconds to wait before a retry, if the provider named them."""

    @property
    def transient(self) -> bool:
        """True if the same request may succeed later."""
        return self.TRANSIENT


class ModelRefused(ModelFailed):
    """The provider rejected the request, and a retry will not help."""


class ModelOverloaded(ModelFailed):
    """The provider is overloaded."""

    TRANSIENT = True


class ModelUnreachable(ModelFailed):
    """The connection to the provider failed."""

    TRANSIENT = True


class ModelTimedOut(ModelFailed):
    """The provider did not answer in time."""

    TRANSIENT = True


class ModelMisbehaved(ModelFailed):
    """The answer of the model is invalid."""


class TurnFailed(OmoideError):
    """A turn could not be finished."""

    def __init__(self, request_id: str, problem: str, remedy: str) -> None:
        super().__init__(f"turn {request_id!r} {problem}; {remedy}")
        self.request_id = request_id
        self.problem = problem
        self.remedy = remedy


class Blocked(TurnFailed):
    """A control refused the input or the answer of a turn."""

    def __init__(self, request_id: str, boundary: str, reason: str) -> None:
        super().__init__(request_id, f"was refused at its {boundary}: {reason}", "rephrase it")
        self.boundary = boundary
        self.reason = reason


class TooManyRounds(TurnFailed):
    """The model requested tools in every round and gave no answer."""

    def __init__(self, request_id: str, rounds: int) -> None:
        super().__init__(
            request_id,
            f"asked for tools {rounds} times and gave no answer",
            "raise limits.max_rounds, or see which tool does not satisfy the model",
        )
        self.rounds = rounds


class ReviewNeeded(TurnFailed):
    """A review has to be decided before the turn can go on."""

    def __init__(self, request_id: str, reviews: Iterable[str]) -> None:
        self.reviews = tuple(reviews)
        super().__init__(
            request_id,
            f"waits for a decision on {', '.join(self.reviews)}",
            "approve, deny or settle it, then resume",
        )


class Diverged(TurnFailed):
    """A replay requests an effect that its journal does not hold."""

    def __init__(self, request_id: str, effect: str) -> None:
        super().__init__(
            request_id,
            f"asks for {effect}, which its journal does not hold",
            "replay it with the agent it was run with",
        )
        self.effect = effect


class SessionBusy(OmoideError):
    """The session is running elsewhere."""

    def __init__(self, session: str) -> None:
        super().__init__(f"session {session!r} is running elsewhere; wait for it to finish, then try again")
        self.session = session


class TurnPending(OmoideError):
    """The session has an unfinished turn."""

    def __init__(self, session: str, status: str) -> None:
        super().__init__(
            f"session {session!r} has an unfinished turn ({status}); resume() or cancel() it first"
        )
        self.session = session
        self.status = status


# Lookups, stores, services and plugins


class NotFound(OmoideError, LookupError):
    """A named thing does not exist."""

    def __init__(self, kind: str, name: object, remedy: str) -> None:
        super().__init__(f"{kind} {name!r} does not exist; {remedy}")
        self.kind = kind
        self.name = name
        self.remedy = remedy


class Erased(NotFound):
    """Something was erased on request; no version of its content is left."""

    def __init__(self, kind: str, name: object, at: int, reason: str | None) -> None:
        note = "" if reason is None else f" ({reason})"
        # Not NotFound.__init__: "does not exist" would be wrong here.
        OmoideError.__init__(
            self, f"{kind} {name!r} was erased at {at}{note}; its content cannot be brought back"
        )
        self.kind = kind
        self.name = name
        self.at = at
        self.reason = reason
        self.remedy = "its content cannot be brought back"


class Conflict(OmoideError):
    """The thing was changed since it was read."""

    def __init__(self, thing: str, expected: int, actual: int, problem: str | None = None) -> None:
        problem = problem or f"is at revision {actual}, not {expected}"
        super().__init__(f"{thing} {problem}; read it again and repeat the change")
        self.thing = thing
        self.expected = expected
        self.actual = actual


class KeyReused(Conflict):
    """An idempotency key was used for another request."""

    def __init__(self, key: str) -> None:
        OmoideError.__init__(
            self, f"idempotency key {key!r} was used for another request; choose another key"
        )
        self.key = key
        self.thing = f"idempotency key {key!r}"
        self.expected = self.actual = 0  # attributes of every Conflict; a key has no revision


class StoreFailed(OmoideError):
    """A store operation failed and changed nothing."""

    def __init__(self, store: str, problem: str, remedy: str) -> None:
        super().__init__(f"store {store!r} {problem}; {remedy}")
        self.store = store
        self.problem = problem
        self.remedy = remedy


class Corrupted(StoreFailed):
    """The store's file is damaged, or one value in it."""

    def __init__(self, store: str, problem: str, remedy: str, *, id: str | None = None) -> None:
        super().__init__(store, problem, remedy)
        self.id = id
        """Id of the damaged value; None if the damage is not that of a single one."""


class ReadOnly(StoreFailed):
    """The store cannot be written to."""


class DiskFull(StoreFailed):
    """The disk of the store is full."""


class Busy(StoreFailed):
    """Another process locked the store for too long."""


class StoreUnreachable(StoreFailed):
    """The server of a store does not answer, or refuses the login."""


class Uncertain(StoreFailed):
    """The connection broke during a commit: the write is stored completely or not at all."""


class WrongVersion(StoreFailed):
    """The store was written by a newer Omoide."""


class Closed(StoreFailed):
    """The store is closed."""


class Replaced(StoreFailed):
    """The file of the store was replaced or deleted while the store was open."""


class Forked(StoreFailed):
    """The store was in use at the moment of a fork, and the child cannot use its file."""


class EndpointFailed(StoreFailed):
    """A SPARQL endpoint cannot be reached, refuses the request, or returns an invalid response."""


class QueryStopped(StoreFailed):
    """A query exceeded its time or memory and was stopped."""


class ServiceFailed(OmoideError):
    """A request to a service failed."""

    def __init__(self, service: str, problem: str, remedy: str, *, status: int | None = None) -> None:
        super().__init__(f"service {service!r} {problem}; {remedy}")
        self.service = service
        self.problem = problem
        self.remedy = remedy
        self.status = status
        """The HTTP status, if there was an answer."""


class Unreachable(ServiceFailed):
    """The connection to a service failed."""


class NotAllowed(ServiceFailed):
    """The token for a service is missing, or does not allow the request."""


class TooManyRequests(ServiceFailed):
    """A limit of a service is exceeded; `retry_after` is the number of seconds to wait."""

    retry_after: float = 1.0


class NotCapable(OmoideError):
    """An agent's identity does not declare a capability that a tool needs."""

    def __init__(self, agent: str, capability: str) -> None:
        self.remedy = f"give its identity the capability {capability!r}, or another agent the task"
        super().__init__(f"agent {agent!r} does not declare {capability!r}; {self.remedy}")
        self.agent = agent
        self.capability = capability


class MissingExtra(OmoideError, ImportError):
    """A feature needs packages that are not installed."""

    def __init__(self, feature: str, extra: str) -> None:
        self.remedy = f"pip install 'omoide[{extra}]'"
        super().__init__(f"{feature} needs packages that are not installed; {self.remedy}")
        self.feature = feature
        self.extra = extra


class ModelUnavailable(OmoideError):
    """The files of a model are missing or damaged."""

    def __init__(self, model: str, problem: str, remedy: str) -> None:
        super().__init__(f"model {model!r} {problem}; {remedy}")
        self.model = model
        self.problem = problem
        self.remedy = remedy


class EmbedderFailed(OmoideError):
    """An embedder raised, or returned something that is no vector."""

    def __init__(self, embedder: str, problem: str, remedy: str) -> None:
        super().__init__(f"embedder {embedder!r} {problem}; {remedy}")
        self.embedder = embedder
        self.problem = problem
        self.remedy = remedy


class RerankerFailed(OmoideError):
    """A reranker raised, or returned something other than one finite score per text."""

    def __init__(self, reranker: str, problem: str, remedy: str) -> None:
        super().__init__(f"reranker {reranker!r} {problem}; {remedy}")
        self.reranker = reranker
        self.problem = problem
        self.remedy = remedy


class MountFailed(OmoideError):
    """The mount of a plugin failed, so no agent was created."""

    def __init__(self, plugin: str, reason: object) -> None:
        super().__init__(f"Plugin mount failed: {plugin!r}: {reason}")
        self.plugin = plugin
        self.reason = str(reason)


class CheckpointFailed(OmoideError):
    """A plugin's slice could not be saved, so no checkpoint was made."""

    def __init__(self, plugin: str, reason: object) -> None:
        super().__init__(f"cannot checkpoint plugin {plugin!r}: {reason}")
        self.plugin = plugin
        self.reason = str(reason)


class RestoreFailed(OmoideError):
    """A checkpoint could not be restored to an agent."""

    def __init__(self, thing: str, reason: object) -> None:
        super().__init__(f"cannot restore {thing}: {reason}")
        self.thing = thing
        self.reason = str(reason)


# Running agents


class NotRunning(NotFound):
    """No agent with this id is running here."""

    def __init__(self, id: str) -> None:
        super().__init__("running agent", id, "start it, or thaw it")


class OwnedElsewhere(IdTaken):
    """An agent runs on another node of its fleet, and may run on one node only."""

    def __init__(self, id: str, owner: str) -> None:
        Invalid.__init__(
            self, "id", f"{id!r} runs on node {owner!r}", "send to it from here, or stop it there first"
        )
        self.id = id
        self.owner = owner


class SignalTooLarge(Invalid):
    """A signal is larger than its transport accepts."""

    FIELD_IS_PATH = False

    def __init__(self, type: str, allowed: int, actual: int) -> None:
        super().__init__(
            f"signal {type!r}",
            f"has {actual} bytes, and the server accepts {allowed}",
            "store the content, and send a reference to it",
        )
        self.type = type
        self.allowed = allowed
        self.actual = actual


class Unrouted(OmoideError):
    """An agent has no route for the type of a signal."""

    def __init__(self, id: str, type: str, problem: str) -> None:
        super().__init__(f"agent {id!r}: {problem}")
        self.agent_id = id
        self.type = type


class ActionFailed(OmoideError):
    """An action that a signal led to failed; `error` is the `Error` directive about it."""

    def __init__(self, id: str, type: str, error: Any) -> None:
        # Many messages name the action already.
        known = error.action is None or repr(error.action) in error.message
        action = "" if known else f" in action {error.action!r}"
        super().__init__(f"signal {type!r} to agent {id!r} failed{action}: {error.message}")
        self.agent_id = id
        self.type = type
        self.error = error


class Dropped(OmoideError):
    """A signal will not be handled; `reason` says why."""

    def __init__(self, id: str, type: str, reason: str) -> None:
        super().__init__(f"signal {type!r} to agent {id!r} was dropped: {reason}; send it again if needed")
        self.agent_id = id
        self.type = type
        self.reason = reason


class MailboxFull(Dropped):
    """The mailbox of an agent is full."""

    def __init__(self, id: str, type: str, size: int) -> None:
        super().__init__(id, type, f"{size} signals are waiting already")
        self.size = size


class TimedOut(OmoideError):
    """An operation exceeded its timeout; it may still complete."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what} took longer than {seconds} s; raise the timeout, or try again later")
        self.what = what
        self.seconds = seconds


class TooManyAgents(OmoideError):
    """A runtime or a parent has reached its limit of agents or sessions."""

    def __init__(self, who: str, limit: int) -> None:
        super().__init__(f"{who} allows at most {limit}; stop some, or raise the limit")
        self.who = who
        self.limit = limit


class GaveUp(OmoideError):
    """Something failed repeatedly and is not restarted any more."""

    def __init__(self, who: str, times: int, seconds: float, last: str) -> None:
        super().__init__(
            f"{who} failed {times} times within {seconds} s, last with {last}; fix it and start it again"
        )
        self.who = who
        self.times = times
        self.last = last


__all__ = [
    name for name, value in sorted(globals().items())
    if isinstance(value, type) and issubclass(value, OmoideError)
]  # fmt: skip
