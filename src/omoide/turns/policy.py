"""What does an agent remember, and for whom?

A policy is data on the agent's spec. The store that it is about is given with each turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self

from omoide import ids
from omoide.core.contract import Record, check_choice
from omoide.core.frozen import EMPTY_MAP, FrozenMap
from omoide.core.recalling import check_positive
from omoide.core.texts import check_text
from omoide.core.value import Count, force
from omoide.errors import Invalid, InvalidRecord, WrongType

SCOPES = ("agent", "session", "project")
CAPTURES = ("manual", "conversation", "off")
INJECTIONS = ("instructions", "context")

Namespace = str | tuple[str, str] | None
"""A name, or ("context", key) for one that each turn's context holds; None is the default namespace."""

_OLDER = {"per_agent": "agent", "session": "session", "shared": None, "context": None}
"""Words that once stood for a kind of namespace, and the scope that some of them meant."""

_DIGITS = 18


class MemoryPolicy(Record, frozen=True, kw_only=True):
    """Whether, where and how much an agent remembers."""

    LABEL: ClassVar[str] = "memory policy"

    enabled: bool = True
    scope: str = "agent"
    """`agent`: everything the agent knows; `session`: what belongs to the conversation; `project`: what is
    known about the project, from earlier sessions and other agents as well."""
    namespace: Namespace = None
    capture: str = "manual"
    """`conversation` writes each finished turn down; `manual` and `off` write nothing by themselves."""
    inject: str = "instructions"
    """`instructions` shows memories to the model; `context` only puts them into `prompt.memory`."""
    max_entries: Count = 5
    max_tokens: Count = 1000
    metadata: FrozenMap[str, Any] = EMPTY_MAP

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            enabled: bool = True,
            scope: str = "agent",
            namespace: Namespace | Mapping[str, str] | list[str] = None,
            capture: str = "manual",
            inject: str = "instructions",
            max_entries: int | str = 5,
            max_tokens: int = 1000,
            metadata: Mapping[str, Any] = EMPTY_MAP,
        ) -> None: ...

    def __post_init__(self) -> None:
        force(self, "max_entries", _number(self.max_entries))
        super().__post_init__()

    def _check(self) -> None:
        check_choice(self.scope, "scope", SCOPES)
        check_choice(self.capture, "capture", CAPTURES)
        check_choice(self.inject, "inject", INJECTIONS)
        check_positive(self.max_entries, "max_entries")
        check_positive(self.max_tokens, "max_tokens")
        force(self, "namespace", _namespace(self.namespace))

    @classmethod
    def new(cls, given: Self | Mapping[str, Any] | None = None, /, **fields: Any) -> Self:
        """A policy from a mapping, from keywords or from another one; older forms are understood, too."""
        try:
            if isinstance(given, Mapping):
                return super().new(renewed({**given, **fields}))
            return super().new(given, **renewed(fields))
        except InvalidRecord:
            raise
        except Invalid as error:
            raise InvalidRecord(cls.LABEL, error) from error


def as_policy(given: object) -> MemoryPolicy | None:
    """A policy from True (the defaults), a mapping or a policy; False and None mean that there is none."""
    if given is None or given is False:
        return None
    if given is True:
        return MemoryPolicy()
    if isinstance(given, (Mapping, MemoryPolicy)):
        return MemoryPolicy.new(given)
    raise WrongType("memory", "True, False, a mapping or a MemoryPolicy", given)


def renewed(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a policy that may be written in an older form, as they are called today."""
    fields = dict(given)
    if "retrieve" in fields:
        _put(fields, "max_entries", _limit(fields.pop("retrieve")))
    if "max_entries" in fields:
        fields["max_entries"] = _number(fields["max_entries"])
    for beside in ("shared_namespace", "context_namespace_key"):
        if beside in fields and fields[beside] is None:
            del fields[beside]
    word = fields.get("namespace")
    if word == "shared":
        fields["namespace"] = f"shared:{_beside(fields, 'shared_namespace', word)}"
    elif word == "context":
        fields["namespace"] = ("context", _beside(fields, "context_namespace_key", word))
    elif isinstance(word, str) and word in _OLDER:
        fields["namespace"] = None
        _put(fields, "scope", _OLDER[word], f"contradicts namespace {word!r}")
    elif isinstance(word, (Mapping, list, tuple)):
        fields["namespace"] = _namespace(word)
    return fields


def _put(fields: dict[str, Any], name: str, value: object, problem: str = "contradicts retrieve") -> None:
    """Add what an older form means, unless the field says something else already."""
    if value is not None and _number(fields.setdefault(name, value)) != value:
        raise Invalid(name, f"is {fields[name]!r}, which {problem}", f"keep {name} and leave out the other")


def _beside(fields: dict[str, Any], name: str, word: str) -> str:
    if name not in fields:
        raise Invalid(name, f"is missing beside namespace {word!r}", "name it")
    return check_text(fields.pop(name), name)


def _limit(retrieve: object) -> object:
    if not isinstance(retrieve, Mapping):
        raise WrongType("retrieve", "a mapping", retrieve, "use max_entries instead")
    for name in retrieve:
        if name != "limit":
            raise Invalid(f"retrieve.{name}", "is no field", "use max_entries instead")
    return _number(retrieve.get("limit"))


def _number(value: object) -> Any:
    """A number that came as text, from a form or an environment, as what it is."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _DIGITS:
        return int(value)
    return value


def _namespace(given: object) -> Namespace:
    match given:
        case None:
            return None
        case str() if given in _OLDER:
            raise Invalid(
                "namespace",
                f"is {given!r}, a word of an older form",
                "use MemoryPolicy.new, which understands it, or choose another name",
            )
        case str():
            return ids.check(given, "namespace")
        case ["context", key]:
            return "context", check_text(key, "namespace key")
        case {"context": key, **others} if not others:
            return "context", check_text(key, "namespace key")
    raise Invalid("namespace", f"is {given!r}", 'pass None, a name, or ("context", key)')
