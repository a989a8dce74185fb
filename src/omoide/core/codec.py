"""JSON encoding and decoding without loss.

`dump` converts a value to JSON types, `load` converts them back to frozen data. What JSON cannot express is
an object with one key: `{"$datetime": …}`, `{"$bytes": …}`, `{"$set": […]}`, or `{"$Space": {…}}` for a value
type inside free data; a user's map that looks like one is wrapped in `{"$map": …}`. Decoding recreates these
few kinds of data and nothing else: no class is looked up by a name from outside.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, get_args, get_origin

import msgspec

from omoide.core.frozen import (
    MAX_STORED_DEPTH,
    VALUE_TYPES,
    FrozenList,
    FrozenMap,
    freeze,
    freeze_key,
    freeze_list,
    freeze_map,
    is_storable_scalar,
    list_of,
    map_of,
    thaw,
)
from omoide.errors import Invalid, OmoideError, Unsupported, WrongType

T = TypeVar("T")

MAX_LEVELS = MAX_STORED_DEPTH + 16
"""Maximum depth of encoded data: that of stored data, and some levels for the values around it."""

if TYPE_CHECKING:
    # Constructors accept dicts and lists and freeze them, which no annotation can express.
    Frozen = Any
    MapField = Any
    ListField = Any
    TextsField = Any
else:
    MapField = FrozenMap[str, Any]
    ListField = FrozenList[Any]
    TextsField = tuple[str, ...]

    # msgspec checks the result of `dec_hook` with isinstance; frozen data is of many types.
    class _Anything(type):
        def __instancecheck__(cls, value: object) -> bool:
            return True

    class Frozen(metaclass=_Anything):
        """A field that holds any frozen data; a class, so that msgspec calls `dec_hook` for it."""


DECODABLE_TYPES: tuple[Any, ...] = (FrozenMap, FrozenList, Frozen)
"""The types, beside those of msgspec, that the hooks below can decode."""


def encode(value: object, *, sort_keys: bool = False) -> bytes:
    """Encode a value as JSON.

    Args:
        value: a value, or frozen data.
        sort_keys: sort the keys of maps, so that equal maps have equal bytes: for a digest.
    """
    return msgspec.json.encode(to_builtins(value, sort_keys=sort_keys))


def decode(data: bytes | str, kind: type[T]) -> T:
    """Decode and validate a value of a type from JSON."""
    if not isinstance(data, (bytes, bytearray, memoryview, str)):
        raise WrongType(kind.__name__, "JSON as bytes or text", data, "pass what to_json() wrote")
    try:
        plain = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Invalid(
            kind.__name__, f"is not readable JSON ({error})", "pass what to_json() wrote"
        ) from error
    except RecursionError:
        raise _too_deep_error(kind.__name__) from None
    return from_builtins(plain, kind)


def to_builtins(value: object, *, sort_keys: bool = False) -> Any:
    """Convert a value to dicts, lists and scalars of JSON; a struct becomes the dict of its fields."""
    if isinstance(value, msgspec.Struct):
        return _dump_struct(value, 0, sort_keys)
    return dump(freeze(value), 0, sort_keys)


def from_builtins(plain: object, kind: type[T]) -> T:
    """Convert what `to_builtins` returned back to a value of a type, and validate it."""
    try:
        return _convert(plain, kind)
    except Invalid as error:
        raise error.with_path_prefix(getattr(kind, "__name__", "value")) from error


def _convert(plain: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(plain, kind, dec_hook=dec_hook)
    except msgspec.ValidationError as error:
        raise translate_error(error) from error
    except RecursionError:
        raise _too_deep_error("") from None


def dump(value: Any, depth: int = 0, sort_keys: bool = False) -> Any:
    """Convert free data to JSON types."""
    kind = type(value)
    if kind is str or kind is int or kind is float or kind is bool or value is None:
        return value
    if depth > MAX_LEVELS:
        raise _too_deep_error("data")
    if kind is FrozenMap:
        items = sorted(value.items()) if sort_keys else value.items()
        plain = {key: dump(item, depth + 1, sort_keys) for key, item in items}
        return {"$map": plain} if len(plain) == 1 and next(iter(plain)).startswith("$") else plain
    if kind is FrozenList:
        return [dump(item, depth + 1, sort_keys) for item in value]
    if kind in VALUE_TYPES:
        return {f"${VALUE_TYPES[kind]}": _dump_struct(value, depth, sort_keys)}
    if kind is datetime:
        return {"$datetime": value.isoformat()}
    if kind is bytes:
        return {"$bytes": b64encode(value).decode()}
    if kind is frozenset:
        # By their JSON: members of different types cannot be compared.
        members = (dump(item, depth + 1, sort_keys) for item in value)
        return {"$set": sorted(members, key=msgspec.json.encode)}
    return dump(freeze(value), depth, sort_keys)


def load(plain: Any, depth: int = 0) -> Any:
    """Convert JSON types to frozen data; an error gets its path on the way out."""
    if is_storable_scalar(plain):
        return plain
    if depth > MAX_LEVELS:
        raise _too_deep_error("")
    if type(plain) is dict:
        if len(plain) == 1:
            ((key, inner),) = plain.items()
            if key == "$map" and type(inner) is dict:
                return _load_map(inner, depth)
            if type(key) is str and key.startswith("$"):
                return _load_tag(key, inner, depth)
        return _load_map(plain, depth)
    if type(plain) is list:
        return list_of(_load_list(plain, depth))
    return freeze(plain, "")


def _load_map(plain: dict[str, Any], depth: int) -> FrozenMap[str, Any]:
    loaded = {}
    for key, value in plain.items():
        try:
            loaded[freeze_key(key, "")] = value if is_storable_scalar(value) else load(value, depth + 1)
        except Invalid as error:
            raise error.with_path_prefix(str(key)) from error
    return map_of(loaded)


def _load_list(plain: list[Any], depth: int) -> list[Any]:
    loaded = []
    for at, value in enumerate(plain):
        try:
            loaded.append(value if is_storable_scalar(value) else load(value, depth + 1))
        except Invalid as error:
            raise error.with_path_prefix(f"[{at}]") from error
    return loaded


def _load_tag(tag: str, inner: Any, depth: int) -> Any:
    try:
        if tag == "$datetime":
            return freeze(datetime.fromisoformat(inner), "")
        if tag == "$bytes":
            return b64decode(inner, validate=True)
        if tag == "$set":
            return frozenset(_load_list(_as_list(inner), depth))
    except OmoideError:
        raise
    except (TypeError, ValueError) as error:
        raise Unsupported("", f"holds an unreadable {tag} ({error})", "write it again") from error
    # Only types that registered themselves can be named, so data cannot choose a class to construct.
    kind = next((kind for kind, name in VALUE_TYPES.items() if name == tag[1:]), None)
    if kind is None:
        raise Unsupported("", f"holds {tag}, an unknown value type", "use a newer Omoide")
    return _convert(inner, kind)


def dec_hook(kind: Any, plain: Any) -> Any:
    """Decode frozen containers from JSON types, as msgspec's `dec_hook`."""
    if isinstance(plain, (FrozenMap, FrozenList)):  # `load` already decoded the data around it
        return plain
    if kind is Frozen:
        return load(plain)
    origin, item = get_origin(kind) or kind, _item_struct(kind)
    if origin is FrozenMap and type(plain) is dict:
        if item is None:
            return _as_map(load(plain))
        return map_of({freeze_key(key): _convert_item(plain[key], item, str(key)) for key in plain})
    if origin is FrozenList and isinstance(plain, (list, tuple)):
        if item is None:
            return load(list(plain))
        return list_of([_convert_item(value, item, f"[{at}]") for at, value in enumerate(plain)])
    expected = {FrozenMap: "an object", FrozenList: "an array"}.get(origin)
    # msgspec turns a TypeError of the hook into a ValidationError with the path.
    if expected is None:
        raise NotImplementedError(f"{kind} has no reader")
    raise TypeError(f"Expected {expected}, got {type(plain).__name__}")


def freeze_hook(kind: Any, value: Any) -> Any:
    """Freeze a caller's Python data as it is, as msgspec's `dec_hook`; tags are not interpreted."""
    origin = get_origin(kind) or kind
    if origin is FrozenMap:
        return freeze_map(value)
    if origin is FrozenList:
        return freeze_list(value)
    if kind is Frozen:
        return freeze(value)
    raise NotImplementedError(f"{kind} has no reader")


def _item_struct(kind: Any) -> type[msgspec.Struct] | None:
    """Return the struct that a typed container holds, as in `FrozenMap[str, Space]`."""
    inner = get_args(kind)
    return (
        inner[-1] if inner and isinstance(inner[-1], type) and issubclass(inner[-1], msgspec.Struct) else None
    )


def _convert_item(plain: object, kind: type[msgspec.Struct], at: str) -> msgspec.Struct:
    try:
        return _convert(plain, kind)
    except Invalid as error:
        raise error.with_path_prefix(at) from error


def _as_list(value: object) -> list[Any]:
    if type(value) is not list:
        raise TypeError(f"it is a {type(value).__name__}, not an array")
    return value


def _as_map(value: object) -> FrozenMap[Any, Any]:
    """Freeze a decoded object; one that looked like a tag was wrapped in `$map`."""
    return freeze_map(value, "")


def schema_hook(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of frozen containers, as msgspec's `schema_hook`."""
    shapes: dict[Any, dict[str, Any]] = {
        FrozenMap: {"type": "object"},
        FrozenList: {"type": "array"},
        Frozen: {},
    }
    try:
        return shapes[get_origin(kind) or kind]
    except KeyError:
        raise NotImplementedError(f"{kind} has no JSON Schema") from None


def translate_error(error: msgspec.ValidationError) -> OmoideError:
    """Return our error for a msgspec error: its cause if that is ours, else field, problem and remedy."""
    cause = error.__cause__
    if isinstance(cause, Invalid):
        return cause.with_path_prefix(_error_path(str(error)))
    if isinstance(cause, OmoideError):
        return cause
    return Invalid(*parse_error_message(str(error)), "correct it and try again")


def _error_path(message: str) -> str:
    """Return the path that a msgspec message ends with; empty for the whole value."""
    _, found, path = message.rpartition(" - at `$")
    return path.removesuffix("`").removeprefix(".") if found else ""


def parse_error_message(message: str) -> tuple[str, str]:
    """Return the field that a msgspec message names (empty for the whole value), and the problem."""
    # msgspec has no other form of its errors: field and path are in the text only.
    problem, field = message.partition(" - at `")[0], _error_path(message)
    for start, text in (
        ("Object missing required field `", "is missing"),
        ("Object contains unknown field `", "is an unknown field"),
    ):
        if problem.startswith(start):
            name = problem.removeprefix(start).removesuffix("`")
            return f"{field}.{name}" if field else name, text
    return field, f"is wrong: {problem[:1].lower()}{problem[1:]}"


def _dump_struct(struct: msgspec.Struct, depth: int, sort_keys: bool) -> dict[str, Any]:
    writers = _field_writers(type(struct))
    return {name: write(getattr(struct, name), depth + 1, sort_keys) for name, write in writers}


@cache
def _field_writers(kind: type[msgspec.Struct]) -> tuple[tuple[str, Callable[[Any, int, bool], Any]], ...]:
    """Return the fields of a struct with their writers: `dump` for free data, else `_dump_field`."""
    excluded = getattr(kind, "EXCLUDED_FIELDS", ())
    plan = []
    for field in msgspec.structs.fields(kind):
        inner = [arg for arg in get_args(field.type) if arg is not NoneType]
        declared = (
            inner[0] if get_origin(field.type) in (Union, UnionType) and len(inner) == 1 else field.type
        )
        # `FrozenMap[str, Space]` is typed: its items are decoded as Space and need no `$Space` tag.
        free = declared is Frozen or (get_origin(declared) or declared) in (FrozenMap, FrozenList)
        if field.name not in excluded:
            plan.append((field.name, dump if free and _item_struct(declared) is None else _dump_field))
    return tuple(plan)


def _dump_field(value: Any, depth: int, sort_keys: bool) -> Any:
    if isinstance(value, msgspec.Struct):
        return _dump_struct(value, depth, sort_keys)
    if isinstance(value, FrozenMap):
        items = sorted(value.items()) if sort_keys else value.items()
        return {key: _dump_field(item, depth + 1, sort_keys) for key, item in items}
    if isinstance(value, (FrozenList, tuple)):
        return [_dump_field(item, depth + 1, sort_keys) for item in value]
    return dump(value, depth, sort_keys)


def _refuse_change(self: object, *args: object, **kwargs: object) -> Any:
    raise TypeError("this is a copy of frozen data; change the agent with world_put or world_update instead")


class ReadOnlyList(list[Any]):
    """A list that the json module can write, and that cannot be changed."""

    append = clear = extend = insert = pop = remove = reverse = sort = _refuse_change
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse_change

    def __reduce__(self) -> tuple[Any, ...]:  # a copy is a list of the caller's own
        return list, ([*self],)

    def to_python(self) -> list[Any]:
        """Return a list with all containers copied, which may be changed."""
        return [_thaw_copy(item) for item in self]


class ReadOnlyDict(dict[str, Any]):
    """A dict that the json module can write, and that cannot be changed."""

    clear = pop = popitem = setdefault = update = _refuse_change
    __setitem__ = __delitem__ = __ior__ = _refuse_change

    def __reduce__(self) -> tuple[Any, ...]:  # a copy is a dict of the caller's own
        return dict, ({**self},)

    def to_python(self) -> dict[str, Any]:
        """Return a dict with all containers copied, which may be changed."""
        return {key: _thaw_copy(item) for key, item in self.items()}


def _thaw_copy(value: Any) -> Any:
    return value.to_python() if isinstance(value, (ReadOnlyDict, ReadOnlyList)) else thaw(value)


def read_only(value: Any) -> Any:
    """Return read-only dicts and lists in place of frozen ones, which the json module cannot write."""
    if isinstance(value, FrozenMap):
        return ReadOnlyDict({key: read_only(item) for key, item in value.items()})
    if isinstance(value, FrozenList):
        return ReadOnlyList([read_only(item) for item in value])
    return value


def _too_deep_error(path: str) -> Unsupported:
    return Unsupported(path, f"is nested deeper than {MAX_LEVELS} levels", "flatten it")
