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
│   ├── Refused                           content that a hook before the write does not let pass
│   ├── EmbedderChanged                   a store whose vectors come from another embedder
│   └── InvalidDefinition                 an action, plugin or agent declared wrongly
│       └── CapabilityDrift               an identity claims actions that nothing offers
├── NotFound                (LookupError) a named thing does not exist
│   └── Erased                            it was erased, and only its tombstone is left
├── Conflict                              the revision expected is not the revision found
│   └── KeyReused                         an idempotency key that came with another request before
├── StoreFailed                           a store could not do what was asked; nothing was changed
│   ├── Corrupted                         its file is damaged
│   ├── ReadOnly                          it cannot be written to
│   ├── DiskFull                          there is no room left for it
│   ├── Busy                              another process held it for too long
│   ├── WrongVersion                      its file was made by a newer Omoide
│   └── Closed                            it was used after it had been closed
├── MissingExtra            (ImportError) a part of Omoide needs packages that are not installed
├── ModelUnavailable                      model files are absent, wrong, or could not be fetched
├── EmbedderFailed                        an embedder raised, or gave something that is no vector
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


class OmoideError(Exception):
    """Everything that Omoide raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and other processes get the words and the attributes; constructors are not asked again."""
        return _again, (type(self), self.args), self.__dict__


class Invalid(OmoideError, ValueError):
    """Something given is wrong; `field` names it, `remedy` says what to do."""

    PLACED: ClassVar[bool] = True
    """Whether `field` is a place inside a value; otherwise it names a thing."""

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(f"{field} {problem}; {remedy}")
        self.field = field
        self.problem = problem
        self.remedy = remedy

    def under(self, path: str) -> Self:
        """The same error, seen from a value that holds the field at `path`."""
        if not path or not self.PLACED:
            return self
        new = copy(self)
        joint = "" if not self.field or self.field.startswith("[") else "."
        new.field = _clipped(f"{path}{joint}{self.field}")
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
        super().__init__(_clipped(path), problem, remedy)

    @property
    def path(self) -> str:
        """Where it lies."""
        return self.field


class TooLarge(Invalid):
    """A space, or one of its items, would outgrow the limit set for it."""

    PLACED = False

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

    PLACED = False

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

    PLACED = False

    def __init__(self, space: str, attempt: str, remedy: str) -> None:
        super().__init__(f"space {space!r}", f"is reserved: cannot {attempt} {space!r}", remedy)
        self.space = space


class InvalidParams(Invalid):
    """The parameters given to an action do not fit its schema."""

    PLACED = False

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

    PLACED = False

    def __init__(self, store: str, kept: str, kept_dim: int, given: str, given_dim: int) -> None:
        super().__init__(
            f"store {store!r}",
            f"holds vectors of {kept!r} ({kept_dim} numbers), and was opened with {given!r} ({given_dim})",
            f"open it with {kept!r}, or open it with embedder='none' and reindex it",
        )
        self.kept = kept
        self.given = given


class InvalidDefinition(Invalid):
    """An action, plugin or agent is declared in a way that cannot work."""

    PLACED = False


class CapabilityDrift(InvalidDefinition):
    """An identity declares actions that the agent does not really offer."""

    def __init__(self, agent: str, missing: Iterable[str]) -> None:
        self.missing = tuple(missing)
        super().__init__(
            f"identity of agent {agent!r}",
            f"declares actions that nothing offers: {', '.join(self.missing)}",
            "mount the plugin that offers them, give them to the agent, or remove_action them",
        )


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


class WrongVersion(StoreFailed):
    """The store was made by a newer Omoide."""


class Closed(StoreFailed):
    """The store was closed before."""


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


def _clipped(path: str) -> str:
    return path if len(path) <= 200 else f"{path[:200]}…"


def _again(kind: type[OmoideError], words: tuple[Any, ...]) -> OmoideError:
    error = kind.__new__(kind)
    error.args = words
    return error
