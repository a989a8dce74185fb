"""Give every kind of store async methods: modules, classes with options, and stores of plain functions.

A store is an object, a module or a class with `write`, `recall` and `list_entries`, alone or as
`(module_or_class, options)`. What is async already is used as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from inspect import Parameter, getattr_static, isawaitable, isclass, iscoroutinefunction, isroutine, signature
from types import ModuleType
from typing import Any
from weakref import WeakSet

from omoide.core.entry import Scope
from omoide.core.frozen import EMPTY_MAP
from omoide.errors import Invalid, WrongType
from omoide.forks import ForkSafeLock

METHODS = ("write", "recall", "list_entries")
"""The methods that every store has."""
REMEDY = "open one with open_store, or pass an object, or (module or class, options), with " + ", ".join(
    METHODS
)
_OPTION_NAMES = ("options", "opts")

ASYNC_TYPES: WeakSet[type] = WeakSet()
"""Types that were found to have async methods."""
_made: dict[tuple[Any, ...], Any] = {}
_lock = ForkSafeLock()


def as_store(store: Any) -> Any:
    """Return a store with async methods; what is no store is returned unchanged."""
    if _is_async(type(store)):
        return store
    target, options = _split(store)
    if not has_methods(target) or (target is store and _is_async_object(store)):
        return store
    if isclass(target) and not _is_namespace(target):
        made = _make(target, options)
        return made if _is_async(type(made)) else AdaptedStore(made)
    return AdaptedStore(target, options)


def check_store(store: Any, hint: str = "") -> Any:
    """Return a store with async methods, or raise `WrongType` for what is no store.

    Args:
        store: The store, of any kind.
        hint: Text for the end of the remedy.
    """
    found = as_store(store)
    if not has_methods(found) or isclass(found):
        raise WrongType("store", "a store", store, REMEDY + hint)
    return found


def has_methods(target: object) -> bool:
    """Return True if an object, a module or a class has the methods of a store."""
    return all(callable(getattr(target, name, None)) for name in METHODS)


class AdaptedStore:
    """A store whose functions may be plain, and may take options, called as one with async methods."""

    def __init__(self, target: Any, options: Mapping[str, Any] | None = None) -> None:
        self._target = target
        for name in _operations(target):
            # On the instance: checks of protocols do not see what `__getattr__` would find.
            setattr(self, name, partial(_call, getattr(target, name), name, options))

    def __repr__(self) -> str:
        return repr(self._target)


def _split(store: Any) -> tuple[Any, Mapping[str, Any] | None]:
    """Return the target and the options of a store; options are None for an object that takes none."""
    if type(store) is tuple and len(store) == 2 and isinstance(store[1] or EMPTY_MAP, Mapping):
        return store[0], store[1] or EMPTY_MAP
    return store, EMPTY_MAP if isinstance(store, ModuleType) or isclass(store) else None


def _is_async(kind: type) -> bool:
    if kind in ASYNC_TYPES:
        return True
    if all(iscoroutinefunction(getattr(kind, name, None)) for name in METHODS):
        ASYNC_TYPES.add(kind)
        return True
    return False


def _is_async_object(store: Any) -> bool:
    """Return True for an object with async methods that its class does not show, such as a proxy."""
    if isinstance(store, ModuleType) or isclass(store):
        return False
    return all(iscoroutinefunction(getattr(store, name)) for name in METHODS)


def _is_namespace(kind: type) -> bool:
    """Return True if a class only groups functions, and is not made into an object."""
    return all(isinstance(getattr_static(kind, name), (staticmethod, classmethod)) for name in METHODS)


def _make(kind: type, options: Mapping[str, Any] | None) -> Any:
    """Return the store of a class and its options: the same one each time, so that nothing is lost."""
    values = dict(options or {})
    key = (kind, *((name, _identity(values[name])) for name in sorted(values)))
    with _lock:
        if key not in _made:
            try:
                signature(kind).bind(**values)
            except TypeError as error:
                raise Invalid(
                    "store", f"{kind.__name__} cannot be made ({error})", "pass (class, options) that fit"
                ) from error
            # The options are kept as well, so that no other object gets the identity of one of them.
            _made[key] = (kind(**values), values)
        return _made[key][0]


def _identity(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return id(value)
    return type(value), value


def _operations(target: Any) -> list[str]:
    static = {name: getattr_static(target, name) for name in dir(target) if not name.startswith("_")}
    return [
        name
        for name, value in static.items()
        if not isinstance(value, property) and isroutine(getattr(target, name, None))
    ] + [name for name in METHODS if not isroutine(getattr(target, name))]


async def _call(
    function: Callable[..., Any], name: str, options: Mapping[str, Any] | None, *args: Any, **kwargs: Any
) -> Any:
    """Call a function of a store with its options, if it takes them, and await what it returns."""
    scope = args[0] if name == "list_entries" and args and isinstance(args[0], Scope) else None
    takes_scope = True
    if options is not None:
        args, given, takes_scope = _with_options(function, name, args, options)
        kwargs = {**given, **kwargs}
    result = function(*args, **kwargs)
    if isawaitable(result):
        result = await result
    return result if takes_scope or scope is None else [entry for entry in result if scope.contains(entry)]


def _with_options(
    function: Callable[..., Any], name: str, args: tuple[Any, ...], options: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], bool]:
    """Return the arguments of a call with the options, and whether the first of them is still there."""
    parameters = [*signature(function).parameters.values()]
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    places = [one for one in parameters if one.kind in kinds]
    takes_all = any(one.kind is Parameter.VAR_KEYWORD for one in parameters)
    named = {one.name for one in parameters if one.kind is not Parameter.POSITIONAL_ONLY}
    # `list_entries` may list everything, and take its options alone.
    if name == "list_entries" and len(places) < 2 and (not places or places[0].name in _OPTION_NAMES):
        return ((options,) if places else ()), {}, False
    if len(places) > len(args) and (places[len(args)].name not in options):
        return (*args, options), {}, True
    return args, {key: options[key] for key in options if takes_all or key in named}, True
