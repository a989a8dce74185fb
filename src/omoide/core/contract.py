"""What do the records that pass between an agent and a store have in common?

They are made from keywords, from a mapping or from one another, and an error names the record: `invalid
memory entry: content is empty; pass non-empty text`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import NoneType
from typing import Any, ClassVar, Self, get_args

import msgspec

from omoide.core.value import Id, Name, Value
from omoide.errors import Invalid, InvalidRecord, WrongType

_UNIT_REMEDY = "pass a number from 0 to 1"


class Record(Value, frozen=True, kw_only=True):
    """A value of the store contract."""

    LABEL: ClassVar[str] = "record"

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
            self._check()
        except InvalidRecord:
            raise
        except Invalid as error:
            raise InvalidRecord(self.LABEL, error) from error

    def _check(self) -> None:
        """What the annotations cannot say."""

    @classmethod
    def new(cls, given: Self | Mapping[str, Any] | None = None, /, **fields: Any) -> Self:
        """One made from a mapping, from keywords, or from another of its kind; each part is checked.

        Scalars become text where text is asked for, and mappings become the records they describe.
        """
        try:
            fields = {**_taken(given, cls), **fields}
            known = _fields(cls)
            for name in fields:
                if name not in known:
                    raise Invalid(str(name), "is no field", f"use {', '.join(known)}")
            for name in known:
                if known[name].required and name not in fields:
                    raise Invalid(name, "is missing", "it is required")
            return cls(**{name: _shaped(value, known[name].type, name) for name, value in fields.items()})
        except InvalidRecord:
            raise
        except Invalid as error:
            raise InvalidRecord(cls.LABEL, error) from error


def _taken(given: Any, cls: type[Record]) -> dict[str, Any]:
    if given is None:
        return {}
    if isinstance(given, cls):
        return {name: getattr(given, name) for name in cls.__struct_fields__}
    if isinstance(given, Mapping):
        return dict(given)
    raise WrongType(cls.LABEL, f"a mapping or a {cls.__name__}", given)


@cache
def _fields(cls: type[Record]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(cls)}


def _shaped(value: Any, kind: Any, name: str) -> Any:
    """The value as the field wants it, where that needs no guessing."""
    inner = [arg for arg in get_args(kind) if arg is not NoneType]
    if kind in (Id, Name) or any(arg in (Id, Name) for arg in inner):
        return str(value) if isinstance(value, (int, float)) else value
    for arg in [kind, *inner]:
        if isinstance(arg, type) and issubclass(arg, Value) and isinstance(value, Mapping):
            return made(arg, value, name)
    item = inner[0] if inner and isinstance(inner[0], type) else None
    if item is not None and issubclass(item, Value) and isinstance(value, (list, tuple)):
        return tuple(
            made(item, given, f"{name}[{at}]") if isinstance(given, Mapping) else given
            for at, given in enumerate(value)
        )
    return value


def made(kind: type[Value], given: Mapping[str, Any], at: str) -> Value:
    """A value of the kind from a mapping that stands at a place of something larger."""
    try:
        if issubclass(kind, Record):
            return kind.new(given)
        return msgspec.convert({**given}, kind)
    except InvalidRecord:
        raise
    except Invalid as error:
        raise error.under(at) from error
    except msgspec.ValidationError as error:
        cause = error.__cause__
        if isinstance(cause, Invalid):
            raise cause.under(at) from error
        raise Invalid(at, f"is wrong: {error}", "correct it and try again") from error


def check_unit(value: object, field: str) -> float:
    """A number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WrongType(field, "a number from 0 to 1", value)
    if not 0 <= value <= 1:
        raise Invalid(field, f"is {value}", _UNIT_REMEDY)
    return float(value)


def check_choice(value: object, field: str, choices: tuple[str, ...]) -> str:
    """One of a few words."""
    if not isinstance(value, str) or value not in choices:
        raise Invalid(field, f"is {value!r}", f"use one of {', '.join(choices)}")
    return value


def check_tuple(value: object, field: str, kind: type[msgspec.Struct]) -> tuple[Any, ...]:
    """Several values of one kind."""
    if not isinstance(value, (list, tuple)):
        raise WrongType(field, f"a list of {kind.__name__}", value)
    for at, item in enumerate(value):
        if not isinstance(item, kind):
            raise WrongType(f"{field}[{at}]", f"a {kind.__name__}", item)
    return tuple(value)
