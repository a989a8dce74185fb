"""Base classes of values: Value, RevisionedValue and Record, and the validation of their fields.

Values are frozen structs. Each field is validated against its annotation and frozen, on construction and on
decoding, and encoding to JSON and back is lossless.

Records are the values of the store contract. They are built from keywords, from a mapping or from one
another, and an error names the record: `invalid memory entry: content is empty; pass non-empty text`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar, Union, cast, get_args, get_origin

import msgspec

from omoide import clock, ids
from omoide.core import codec
from omoide.core.codec import Frozen
from omoide.core.frozen import (
    MAX_STORED_DEPTH,
    VALUE_TYPES,
    FrozenList,
    FrozenMap,
    check_depth,
    check_str,
    check_text,
    depth_of,
    freeze,
    freeze_key,
    freeze_list,
    freeze_map,
)
from omoide.errors import Conflict, Invalid, InvalidRecord, Unsupported, WrongType

Id = Annotated[str, msgspec.Meta(min_length=1, description="an id: up to 512 bytes, no control characters")]
Name = Annotated[str, msgspec.Meta(min_length=1, description="text that is not empty")]
Count = Annotated[int, msgspec.Meta(ge=0, description="an integer from 0 upwards")]
Millis = Annotated[int, msgspec.Meta(ge=0, description="milliseconds since 1970 UTC")]
Moment = Annotated[int, msgspec.Meta(ge=0, description="a time in milliseconds since 1970 UTC")]
"""Milliseconds; callers may pass whatever `clock.parse` reads: a datetime, a date, or ISO 8601 text."""
EndMoment = Annotated[int, msgspec.Meta(ge=0, description="a latest time in milliseconds since 1970 UTC")]
"""The same, a date being the whole of that day."""

Check = Callable[[Any, str], Any]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

CHANGED_MEANWHILE = "was changed meanwhile"
"""The problem of a `Conflict` between two changes of the same thing."""

_ABSENT: Any = object()

set_field = msgspec.structs.force_setattr
"""Sets a field of a value under construction: in `__post_init__`, or on a new copy."""

if TYPE_CHECKING:

    def shallow_copy(value: T) -> T:
        """Return a copy whose fields may still be set, because no other code has a reference to it."""

else:
    shallow_copy = msgspec.Struct.__copy__


class Value(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of every value."""

    EXCLUDED_FIELDS: ClassVar[frozenset[str]] = frozenset()
    """Fields that hold code, not data; they are not encoded."""

    def __post_init__(self) -> None:
        for field, check, default in _field_checks(type(self)):
            value = getattr(self, field)
            if value is default:  # known to be valid
                continue
            checked = check(value, field)
            if checked is not value:
                set_field(self, field, checked)

    def replace(self, **changes: Any) -> Self:
        """Return the value with other fields, validated."""
        check_fields(type(self), changes)
        return msgspec.structs.replace(self, **changes)

    def to_json(self) -> bytes:
        """Encode the value as JSON."""
        return codec.encode(self)

    @classmethod
    def from_json(cls, data: bytes | str) -> Self:
        """Decode and validate what `to_json` wrote."""
        return codec.decode(data, cls)


class RevisionedValue(Value, frozen=True, kw_only=True):
    """A value that counts its changes and has the time of the last one."""

    rev: Count = 0
    created_at: Millis = msgspec.field(default_factory=clock.now)
    updated_at: Millis = cast("int", msgspec.UNSET)  # a default cannot refer to another field

    def __post_init__(self) -> None:
        if cast("object", self.updated_at) is msgspec.UNSET:
            set_field(self, "updated_at", self.created_at)
        super().__post_init__()

    @classmethod
    def new(
        cls, attrs: Self | Mapping[str, Any] | None = None, /, *, now: int | None = None, **fields: Any
    ) -> Self:
        """Build a value created at `now`; fields that are left out, or None, get their defaults.

        Args:
            attrs: fields in a mapping, or another value of this kind.
            now: the time of creation in milliseconds.
            fields: fields by name, which take precedence.
        """
        if isinstance(attrs, cls):
            attrs = {name: getattr(attrs, name) for name in cls.__struct_fields__}
        if attrs is not None and not isinstance(attrs, Mapping):
            raise WrongType("attrs", f"a mapping or a {cls.__name__}", attrs)
        values = {freeze_key(name, "attrs"): value for name, value in (attrs or {}).items()} | fields
        if now is not None:
            values["created_at"] = clock.resolve(now)
        check_fields(cls, values)
        return cls(**cls._coerce({name: value for name, value in values.items() if value is not None}))

    @classmethod
    def _coerce(cls, fields: dict[str, Any]) -> dict[str, Any]:
        """Convert plain data in fields to values; subclasses with values in them override it."""
        return fields

    def _next_revision(self, now: int | None, by: int = 1) -> Self:
        """Return a copy with the next revision, for the caller to set fields of."""
        new = shallow_copy(self)
        set_field(new, "rev", self.rev + by)
        set_field(new, "updated_at", clock.now() if now is None else clock.resolve(now))
        return new


def merge_changes(base: T, own: T, other: T, conflict: Callable[[], Exception]) -> T:
    """Return `own` with what `other` made of the same base, where only one of them changed it, or both alike.

    Args:
        base: the value that both began with; None if there was none.
        own: what became of it here.
        other: what became of it there.
        conflict: returns the error that is raised if both changed it.
    """
    if other is base or own is other:
        return own
    if own is base:
        return other
    if other == base or own == other:
        return own
    if own == base:
        return other
    raise conflict()


def merge_maps(
    base: FrozenMap[str, T], own: FrozenMap[str, T], other: FrozenMap[str, T], thing: Callable[[str], str]
) -> FrozenMap[str, T]:
    """Return `own` with the keys that `other` set and deleted since `base`.

    Args:
        base: the map that both began with.
        own: what became of it here.
        other: what became of it there.
        thing: returns the name of a key's value, for the `Conflict` that is raised if both changed it.
    """
    for key in base | other:
        before, mine, theirs = (items.get(key, _ABSENT) for items in (base, own, other))

        def conflict(key: str = key, before: Any = before, mine: Any = mine) -> Conflict:
            return Conflict(thing(key), getattr(before, "rev", 0), getattr(mine, "rev", 0), CHANGED_MEANWHILE)

        value = merge_changes(before, mine, theirs, conflict)
        if value is _ABSENT:
            own = own.delete(key)
        elif value is not mine:
            own = own.set(key, value)
    return own


def check_fields(kind: type[Value], names: Iterable[str]) -> None:
    """Raise `Invalid` for a name that is not a field of the value."""
    for name in names:
        if name not in kind.__struct_fields__:
            known = ", ".join(kind.__struct_fields__)
            raise Invalid(f"{kind.__name__}.{name}", "is an unknown field", f"use {known}")


def check_revision(thing: str, expected: int | None, actual: int) -> None:
    """Raise `Conflict` if a revision is expected and differs from the actual one."""
    if expected is None:
        return
    if type(expected) is not int:  # True would pass as revision 1
        raise WrongType(f"expected revision of {thing}", "an int", expected)
    if expected != actual:
        raise Conflict(thing, expected, actual)


def check_count(value: object, field: str) -> int:
    """Return an int of at least 0, or raise `Invalid`."""
    if type(value) is not int:
        raise WrongType(field, "an int", value)
    if value < 0:
        raise Invalid(field, f"is {value}", "pass 0 or more")
    if value >= 1 << 63:  # SQL stores have signed 64-bit integers
        raise Invalid(field, f"is {value}", "pass less than 2 to the power of 63")
    return value


def check_number(value: object, field: str) -> float:
    """Return a number as a float, or raise `WrongType`; a bool is not a number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WrongType(field, "a number", value)
    return float(value)


def check_instance(value: object, field: str, *, kind: type) -> Any:
    """Return an instance of the type, or raise `WrongType`; a bool is not an int."""
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        article = "an" if kind.__name__[0] in "AEIOUaeiou" else "a"
        raise WrongType(field, f"{article} {kind.__name__}", value)
    return value


def check_function(change: F, field: str = "change") -> F:
    """Return a function, or raise `WrongType`."""
    if not callable(change):
        raise WrongType(field, "a function", change)
    return change


def check_texts(value: object, field: str) -> tuple[str, ...]:
    """Return several texts as a tuple, or raise `Invalid` if one is empty."""
    if value == ():
        return ()
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise WrongType(
            field, "a list of strings", value, f"pass [{value!r}]" if isinstance(value, str) else None
        )
    return tuple(check_text(item, f"{field}[{at}]") for at, item in enumerate(value))


def _freeze_field(value: object, field: str) -> Any:
    frozen = freeze(value, field)
    if type(frozen) in VALUE_TYPES:
        check_depth(1, frozen, field)
    elif depth_of(frozen) > MAX_STORED_DEPTH:  # a state with a deep memory in it may be deeper
        raise Unsupported(field, f"is nested deeper than {MAX_STORED_DEPTH} levels", "flatten it")
    return frozen


def _check_optional(value: object, field: str, *, check: Check) -> Any:
    return None if value is None else check(value, field)


def _pass_plain(value: object, field: str, *, check: Check) -> Any:
    """Return a short line of printable ASCII as it is, and leave all other values to the check."""
    # Nearly all ids, names and texts of fields are such lines, and every check of text accepts them.
    if type(value) is not str or len(value) > ids.MAX_BYTES or not value.strip():
        return check(value, field)
    return value if value.isascii() and value.isprintable() else check(value, field)


# By annotation, before the general rule in `_check_for`: an alias such as Id is a str with rules of its own.
_CHECKS_BY_TYPE: dict[Any, Check] = {
    Id: partial(_pass_plain, check=ids.check),
    Name: partial(_pass_plain, check=check_text),
    Count: check_count,
    Millis: clock.check,
    Moment: clock.parse,
    EndMoment: clock.parse_end,
    str: partial(_pass_plain, check=check_str),
    float: check_number,
    tuple[str, ...]: check_texts,
    Frozen: _freeze_field,
    FrozenMap: freeze_map,
    FrozenList: freeze_list,
}


def _check_for(kind: Any) -> Check | None:
    """Return the check for a field with this annotation, or None if there is nothing to check."""
    if kind is Any:
        return None
    origin = get_origin(kind)
    if kind in _CHECKS_BY_TYPE:
        return _CHECKS_BY_TYPE[kind]
    if origin in _CHECKS_BY_TYPE:
        return _CHECKS_BY_TYPE[origin]
    if origin in (Union, UnionType):
        inner = [arg for arg in get_args(kind) if arg is not NoneType]
        # `X | None` is checked as X; other unions are checked on decoding only, or by a subclass.
        check = _check_for(inner[0]) if len(inner) == 1 else None
        return None if check is None else partial(_check_optional, check=check)
    return partial(check_instance, kind=kind) if isinstance(kind, type) else None


@cache
def _field_checks(kind: type[Value]) -> tuple[tuple[str, Check, Any], ...]:
    """Return the fields to check; one at its default needs none, which is the common case."""
    checks = ((field, _check_for(field.type)) for field in msgspec.structs.fields(kind))
    return tuple((field.name, check, field.default) for field, check in checks if check is not None)


_UNIT_REMEDY = "pass a number from 0 to 1"


class Record(Value, frozen=True, kw_only=True):
    """A value of the store contract."""

    LABEL: ClassVar[str] = "record"

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
            self._check()
        except InvalidRecord:  # of a record inside this one: the inner label says more
            raise
        except Invalid as error:
            raise InvalidRecord(self.LABEL, error) from error

    def _check(self) -> None:
        """Check rules that annotations cannot express; subclasses override it."""

    @classmethod
    def new(cls, source: Self | Mapping[str, Any] | None = None, /, **fields: Any) -> Self:
        """Build a record from a mapping, another record of its kind, or keywords.

        Scalars become text where text is required, and mappings become the records that they describe.

        Raises:
            InvalidRecord: if a field is wrong, unknown or missing.
        """
        try:
            fields = {**_to_fields(source, cls), **fields}
            known = _field_infos(cls)
            for name in fields:
                if name not in known:
                    raise Invalid(str(name), "is an unknown field", f"use {', '.join(known)}")
            for name in known:
                if known[name].required and name not in fields:
                    raise Invalid(name, "is missing", "it is required")
            return cls(
                **{name: _coerce_field(value, known[name].type, name) for name, value in fields.items()}
            )
        except InvalidRecord:
            raise
        except Invalid as error:
            raise InvalidRecord(cls.LABEL, error) from error


def _to_fields(source: Any, cls: type[Record]) -> dict[str, Any]:
    if source is None:
        return {}
    if isinstance(source, cls):
        return {name: getattr(source, name) for name in cls.__struct_fields__}
    if isinstance(source, Mapping):
        return dict(source)
    raise WrongType(cls.LABEL, f"a mapping or a {cls.__name__}", source)


@cache
def _field_infos(cls: type[Record]) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(cls)}


def _coerce_field(value: Any, kind: Any, name: str) -> Any:
    """Convert a value to the type of its field where that is unambiguous."""
    # The key of a row in another database is often a number; it serves as an id.
    inner = [arg for arg in get_args(kind) if arg is not NoneType]
    if kind in (Id, Name) or any(arg in (Id, Name) for arg in inner):
        return str(value) if isinstance(value, (int, float)) else value
    for arg in [kind, *inner]:
        if isinstance(arg, type) and issubclass(arg, Value) and isinstance(value, Mapping):
            return build_value(arg, value, name)
    item = inner[0] if inner and isinstance(inner[0], type) else None
    if item is not None and issubclass(item, Value) and isinstance(value, (list, tuple)):
        return tuple(
            build_value(item, element, f"{name}[{at}]") if isinstance(element, Mapping) else element
            for at, element in enumerate(value)
        )
    return value


def build_value(kind: type[Value], fields: Mapping[str, Any], path: str) -> Value:
    """Build a value from a mapping that is at a path inside a larger one."""
    try:
        if issubclass(kind, Record):
            return kind.new(fields)
        return msgspec.convert({**fields}, kind)
    except InvalidRecord:
        raise
    except Invalid as error:
        raise error.with_path_prefix(path) from error
    except msgspec.ValidationError as error:
        cause = error.__cause__  # msgspec wraps what `__post_init__` raised
        if isinstance(cause, Invalid):
            raise cause.with_path_prefix(path) from error
        raise Invalid(path, f"is wrong: {error}", "correct it and try again") from error


def check_unit(value: object, field: str) -> float:
    """Return a number from 0 to 1 as a float, or raise `Invalid`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise WrongType(field, "a number from 0 to 1", value)
    if not 0 <= value <= 1:
        raise Invalid(field, f"is {value}", _UNIT_REMEDY)
    return float(value)


def check_choice(value: object, field: str, choices: tuple[str, ...]) -> str:
    """Return one of the choices, or raise `Invalid`."""
    if not isinstance(value, str) or value not in choices:
        raise Invalid(field, f"is {value!r}", f"use one of {', '.join(choices)}")
    return value


def check_tuple(value: object, field: str, kind: type[msgspec.Struct]) -> tuple[Any, ...]:
    """Return several values of one type as a tuple, or raise `WrongType`."""
    if not isinstance(value, (list, tuple)):
        raise WrongType(field, f"a list of {kind.__name__}", value)
    for at, item in enumerate(value):
        if not isinstance(item, kind):
            raise WrongType(f"{field}[{at}]", f"a {kind.__name__}", item)
    return tuple(value)
