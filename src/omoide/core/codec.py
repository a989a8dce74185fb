"""How is a value written down, and read back as exactly what it was?

One pair of functions serves every edge. `dump` turns a value into JSON types, `load` turns them back into
frozen data. What JSON has no word for is written as an object with one key: `{"$datetime": …}`, `{"$bytes":
…}`, `{"$set": […]}`, or `{"$Space": {…}}` for a value of our own inside free data; a map of the user's that
looks like one is written inside `{"$map": …}`. Reading revives these few kinds of data and nothing else: no
class is looked up by a name that came from outside.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

import msgspec
from immutables import Map

from omoide.core.frozen import OWN, FrozenList, FrozenMap, freeze, freeze_map
from omoide.errors import Invalid, OmoideError, Unsupported

T = TypeVar("T")

if TYPE_CHECKING:
    # Constructors take plain dicts and lists and freeze them, which no annotation can say.
    Frozen = Any
    MapField = Any
    ListField = Any
else:
    MapField = FrozenMap[str, Any]
    ListField = FrozenList[Any]

    class _Anything(type):
        def __instancecheck__(cls, value: object) -> bool:
            return True

    class Frozen(metaclass=_Anything):
        """A field that holds any frozen data; a class, so that msgspec asks `dec_hook` about it."""


def encode(value: object) -> bytes:
    """A value as JSON."""
    return msgspec.json.encode(to_builtins(value))


def decode(data: bytes | str, kind: type[T]) -> T:
    """A value of the given kind from JSON, validated."""
    try:
        plain = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(
            kind.__name__, f"is not readable JSON ({error})", "pass what to_json() wrote"
        ) from error
    except RecursionError:
        raise Unsupported(kind.__name__, "is nested too deeply", "flatten it") from None
    return from_builtins(plain, kind)


def to_builtins(value: object) -> Any:
    """A value as dicts, lists and scalars that JSON can hold; a struct becomes the dict of its fields."""
    return _fields(value) if isinstance(value, msgspec.Struct) else dump(value)


def from_builtins(plain: object, kind: type[T]) -> T:
    """The reverse of `to_builtins`, validated."""
    try:
        return msgspec.convert(plain, kind, dec_hook=dec_hook)
    except msgspec.ValidationError as error:
        raise explain(error, kind.__name__) from error
    except RecursionError:
        raise Unsupported(kind.__name__, "is nested too deeply", "flatten it") from None


def dump(value: Any) -> Any:
    """Free data as JSON types."""
    kind = type(value)
    if kind is str or kind is int or kind is float or kind is bool or value is None:
        return value
    if kind is FrozenMap:
        plain = {key: dump(value[key]) for key in sorted(value)}
        return {"$map": plain} if len(plain) == 1 and next(iter(plain)).startswith("$") else plain
    if kind is FrozenList:
        return [dump(item) for item in value]
    if kind in OWN:
        return {f"${OWN[kind]}": _fields(value)}
    if kind is datetime:
        return {"$datetime": value.isoformat()}
    if kind is bytes:
        return {"$bytes": b64encode(value).decode()}
    if kind is frozenset:
        return {"$set": sorted((dump(item) for item in value), key=msgspec.json.encode)}
    return dump(freeze(value))


def load(plain: Any, path: str = "data") -> Any:
    """Frozen data from JSON types."""
    if type(plain) is dict:
        if len(plain) == 1:
            ((key, inner),) = plain.items()
            if key == "$map" and type(inner) is dict:
                return _loaded_map(inner, path)
            if type(key) is str and key.startswith("$"):
                return _revived(key, inner, path)
        return _loaded_map(plain, path)
    if type(plain) is list:
        return FrozenList[Any]().extended([load(item, f"{path}[{at}]") for at, item in enumerate(plain)])
    return freeze(plain, path)


def enc_hook(value: Any) -> Any:
    """For msgspec encoders at an edge: frozen containers as JSON types."""
    if isinstance(value, (FrozenMap, FrozenList)):
        return dump(value)
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


def dec_hook(kind: Any, plain: Any) -> Any:
    """For msgspec decoders at an edge: frozen containers from JSON types."""
    if isinstance(plain, (FrozenMap, FrozenList)):
        return plain
    if kind is Frozen:
        return load(plain)
    origin, inner = get_origin(kind) or kind, get_args(kind)
    item = (
        inner[-1] if inner and isinstance(inner[-1], type) and issubclass(inner[-1], msgspec.Struct) else None
    )
    if origin is FrozenMap and isinstance(plain, Mapping):
        if item is None:
            return freeze_map(load(dict(plain)))
        return FrozenMap(Map({key: from_builtins(value, item) for key, value in plain.items()}))
    if origin is FrozenList and isinstance(plain, (list, tuple)):
        if item is None:
            return load(list(plain))
        return FrozenList[Any]().extended([from_builtins(value, item) for value in plain])
    expected = {FrozenMap: "an object", FrozenList: "an array"}.get(origin)
    if expected is None:
        raise NotImplementedError(f"{kind} has no reader")
    raise TypeError(f"Expected {expected}, got {type(plain).__name__}")


def schema_hook(kind: Any) -> dict[str, Any]:
    """For msgspec's JSON Schema: what frozen containers look like from outside."""
    shapes: dict[Any, dict[str, Any]] = {
        FrozenMap: {"type": "object"},
        FrozenList: {"type": "array"},
        Frozen: {},
    }
    try:
        return shapes[get_origin(kind) or kind]
    except KeyError:
        raise NotImplementedError(f"{kind} has no JSON Schema") from None


def explain(error: msgspec.ValidationError, what: str) -> OmoideError:
    """Our error for msgspec's: its cause when that is one of ours, else field, problem and remedy."""
    cause = error.__cause__
    if isinstance(cause, OmoideError):
        return cause
    field, problem = read_error(str(error))
    return Invalid(f"{what}.{field}" if field else what, problem, "correct it and try again")


def read_error(message: str) -> tuple[str, str]:
    """The field a msgspec message speaks of (empty for the whole), and what is wrong with it."""
    problem, _, path = message.partition(" - at `")
    field = path.removesuffix("`").removeprefix("$").removeprefix(".")
    for start, text in (
        ("Object missing required field `", "is missing"),
        ("Object contains unknown field `", "is unknown"),
    ):
        if problem.startswith(start):
            name = problem.removeprefix(start).removesuffix("`")
            return f"{field}.{name}" if field else name, text
    return field, f"is wrong: {problem[:1].lower()}{problem[1:]}"


def _fields(struct: msgspec.Struct) -> dict[str, Any]:
    return {name: write(getattr(struct, name)) for name, write in _plan(type(struct))}


@cache
def _plan(kind: type[msgspec.Struct]) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """How each field of a struct is written: as free data, or as what its annotation already says."""
    unwritten = getattr(kind, "UNWRITTEN", ())
    plan = []
    for field in msgspec.structs.fields(kind):
        items = get_args(field.type)
        typed = bool(items) and isinstance(items[-1], type) and issubclass(items[-1], msgspec.Struct)
        free = field.type is Frozen or (get_origin(field.type) or field.type) in (FrozenMap, FrozenList)
        if field.name not in unwritten:
            plan.append((field.name, dump if free and not typed else _typed))
    return tuple(plan)


def _typed(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return _fields(value)
    if type(value) is FrozenMap:
        return {key: _typed(value[key]) for key in sorted(value)}
    if isinstance(value, (FrozenList, tuple)):
        return [_typed(item) for item in value]
    return dump(value)


def _loaded_map(plain: dict[str, Any], path: str) -> FrozenMap[str, Any]:
    return FrozenMap({key: load(value, f"{path}.{key}") for key, value in plain.items()})


def _revived(tag: str, inner: Any, path: str) -> Any:
    try:
        if tag == "$datetime":
            return freeze(datetime.fromisoformat(inner), path)
        if tag == "$bytes":
            return b64decode(inner, validate=True)
        if tag == "$set":
            return frozenset(load(item, path) for item in inner)
    except (TypeError, ValueError) as error:
        raise Unsupported(path, f"holds an unreadable {tag} ({error})", "write it again") from error
    for kind, name in OWN.items():
        if tag == f"${name}":
            return from_builtins(inner, kind)
    raise Unsupported(
        path, f"holds {tag}, which is not a kind of value known here", "read it with a newer Omoide"
    )
