"""What is wrong with something that was given?"""

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


def _clipped(path: str) -> str:
    return path if len(path) <= 200 else f"{path[:200]}…"


def _again(kind: type[OmoideError], words: tuple[Any, ...]) -> OmoideError:
    error = kind.__new__(kind)
    error.args = words
    return error
