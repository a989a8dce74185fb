"""Actions, instructions and directives.

An action is declared once, from a function or a class, and its parameters are validated against the signature
on every call. A pure action runs inside `cmd`; an action marked `effectful` may be async and do I/O, so `cmd`
only returns a `RunInstruction` directive for it.

An action returns a mapping that is merged into the state, a slot value (`Memory`, `Identity`, `Thread`) that
replaces its slot, or None; each may come in a pair with a list of directives.

Directives are data: `cmd` returns them and the runtime executes them, in order. None of them changes the
state. A sensor, child or provider that the runtime has to look up is given by name, so every directive can be
serialized.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, is_dataclass
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any, ClassVar, TypeVar, cast, get_type_hints, overload

import msgspec

from omoide import ids
from omoide.core.codec import Frozen, ListField, MapField
from omoide.core.frozen import EMPTY_MAP, check_str, check_text, freeze_map, value_type
from omoide.core.schema import Schema
from omoide.core.signal import Signal
from omoide.core.value import Count, Id, Name, Value, check_instance, check_texts, set_field
from omoide.errors import Invalid, InvalidDefinition, InvalidParams, WrongType

F = TypeVar("F", bound=Callable[..., Any])

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*\Z")


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """An operation of an agent, with the schema of its parameters."""

    name: str
    run: Callable[..., Any]
    schema: Schema
    description: str = ""
    effectful: bool = False
    idempotent: bool = False
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_name(self.name, "action name")
        owner = f"action {self.name!r}"
        if not callable(self.run):
            raise WrongType(f"{owner}: run", "a function", self.run)
        if not isinstance(self.schema, Schema):
            raise WrongType(f"{owner}: schema", "a Schema", self.schema, "make it with @action")
        check_str(self.description, f"{owner}: description")
        for field in ("effectful", "idempotent"):
            check_instance(getattr(self, field), f"{owner}: {field}", kind=bool)
        set_field(self, "tags", check_texts(self.tags, f"{owner}: tags"))
        # `cmd` is pure and has no event loop, so it could only drop the coroutine.
        if inspect.iscoroutinefunction(inspect.unwrap(self.run)) and not self.effectful:
            raise InvalidDefinition(
                owner, "is async but not effectful", "declare it with @action(effectful=True)"
            )

    def check(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Validate parameters, fill in defaults and return the arguments for `run`.

        Raises:
            WrongType: if they are not a mapping.
            InvalidParams: if they do not fit the schema.
        """
        if not isinstance(params, Mapping):
            raise WrongType(f"action {self.name!r}: params", "a mapping", params, "pass a dict")

        value = self.schema.check(params, partial(InvalidParams, self.name))
        if isinstance(value, dict):  # the schema is a TypedDict
            return value
        return {name: getattr(value, name) for name in self.schema.fields.values()}

    def __repr__(self) -> str:
        return f"Action({self.name!r})"

    def json_schema(self) -> dict[str, Any]:
        """Return the schema of the parameters as JSON Schema."""
        return self.schema.json_schema()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as if it were not decorated."""
        return self.run(*args, **kwargs)


@value_type
class Instruction(Value, frozen=True, kw_only=True):
    """An action to run, by name, with its parameters."""

    EXCLUDED_FIELDS: ClassVar[frozenset[str]] = frozenset({"target"})

    action: str
    params: MapField = EMPTY_MAP
    target: Action | None = None
    """The action itself, if known; after decoding from JSON it is looked up by its name."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.action, "action")

    # `target` is code and not encoded: an instruction has to equal itself after a round trip through JSON.
    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Instruction):
            return NotImplemented
        return (self.action, self.params) == (other.action, other.params)

    def __hash__(self) -> int:
        return hash((self.action, self.params))

    @classmethod
    def of(cls, source: object, params: Mapping[str, Any] = EMPTY_MAP) -> Instruction:
        """Build an instruction from an action, a name, or either with its parameters."""
        match source:
            case Instruction():
                return msgspec.structs.replace(source, params=params) if params else source
            case Action():
                return cls(action=source.name, params=params, target=source)
            case str():
                return cls(action=source, params=params)
            case (first, Mapping() as arguments) if not isinstance(first, tuple):  # no nested pairs
                return cls.of(first, arguments)
            case (Action() | str(), other):
                raise WrongType("params", "a mapping", other, "pass (action, {…})")
            case _:
                raise WrongType("action", "an Action, its name, or (action, params)", source, "use @action")

    @classmethod
    def normalize(cls, source: object) -> tuple[Instruction, ...]:
        """Build instructions from one of the forms that `of` takes, or from a list of them."""
        # A list only: a tuple is a pair of action and parameters.
        return tuple(cls.of(item) for item in source) if isinstance(source, list) else (cls.of(source),)


ActionLike = Action | str | Instruction | tuple[Action | str, Mapping[str, Any]]
"""An action, its name, either with parameters, or an instruction."""


@overload
def action(run: F, /) -> Action: ...
@overload
def action(
    *,
    name: str | None = None,
    description: str | None = None,
    schema: type | None = None,
    effectful: bool = False,
    idempotent: bool = False,
    tags: tuple[str, ...] = (),
) -> Callable[[F], Action]: ...
def action(
    run: Any = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    schema: type | None = None,
    effectful: bool = False,
    idempotent: bool = False,
    tags: tuple[str, ...] = (),
) -> Any:
    """Declare an action: a function `f(ctx, …)`, or a class with its parameters and `run(self, ctx)`.

    Args:
        name: the name of the action; the function's name, or the class's in snake case, by default.
        description: the text that models and people read; the docstring by default.
        schema: a class with the parameters; read from the signature by default.
        effectful: True if it does I/O; it may then be async, and the runtime runs it.
        idempotent: True if running it twice has the effect of running it once.
        tags: labels to select it by.
    """

    def make(subject: Any) -> Action:
        action_name = name or _snake_case(getattr(subject, "__name__", ""))
        function, struct = _function_and_schema(subject, action_name, schema)
        return Action(
            name=action_name,
            run=function,
            schema=Schema(struct, f"action {action_name!r}"),
            description=inspect.cleandoc(subject.__doc__ or "") if description is None else description,
            effectful=effectful,
            idempotent=idempotent,
            tags=tags,
        )

    return make if run is None else make(run)


def check_name(value: object, field: str) -> str:
    """Check a name that is used across programs: letters, digits, `_`, `.` and `-`."""
    text = check_text(value, field)
    if not _NAME.match(text):
        raise InvalidDefinition(
            field, f"is {text!r}", "use letters, digits, _ . and -, starting with a letter"
        )
    return text


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _function_and_schema(subject: Any, name: str, schema: type | None) -> tuple[Callable[..., Any], type]:
    """Return the function to run and the struct of its parameters."""
    if isinstance(subject, type):
        if schema is not None:
            raise InvalidDefinition(f"action {name!r}", "is a class with schema=", "use its fields instead")
        return _from_class(subject, name)
    if not callable(subject):
        raise InvalidDefinition(
            f"action {name!r}", "is neither a function nor a class", "decorate one of them"
        )
    return cast("Callable[..., Any]", subject), schema or _parameter_struct(subject, name)


def _parameter_struct(function: Callable[..., Any], name: str) -> type:
    """Define a struct with a field for each parameter after the context."""
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        raise InvalidDefinition(f"action {name!r}", "takes no context", "make its first parameter ctx")
    hints = _type_hints(function, parameters[1:], name)
    fields: list[Any] = []
    for parameter in parameters[1:]:
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise InvalidDefinition(
                f"action {name!r}", f"has the parameter {parameter}", "name each parameter, or pass schema="
            )
        kind = hints.get(parameter.name, Any)
        fields.append(
            (parameter.name, kind)
            if parameter.default is parameter.empty
            else _field_with_default(parameter, kind)
        )
    return _define_struct(name, fields)


def _field_with_default(parameter: inspect.Parameter, kind: Any) -> tuple[str, Any, Any]:
    default = parameter.default
    # msgspec refuses mutable defaults that are not empty, and calls must not share one.
    if isinstance(default, (list, dict, set)):
        return parameter.name, kind, msgspec.field(default_factory=partial(deepcopy, default))
    return parameter.name, kind, default


def _from_class(subject: type, name: str) -> tuple[Callable[..., Any], type]:
    method = getattr(subject, "run", None)
    if not callable(method):
        raise InvalidDefinition(f"action {name!r}", "is a class without run", "give it run(self, ctx)")
    struct: Any = subject  # a struct, a dataclass or a pydantic model is used as it is
    if not any(hasattr(subject, name) for name in ("__struct_fields__", "model_fields")) and not is_dataclass(
        subject
    ):
        try:
            struct = dataclass(kw_only=True)(subject)
        except (TypeError, ValueError) as error:
            raise InvalidDefinition(
                f"action {name!r}", f"has wrong fields ({error})", "use field()"
            ) from error

    @wraps(method)
    def run(ctx: Any, **params: Any) -> Any:
        return struct(**params).run(ctx)

    return run, struct


def _define_struct(name: str, fields: list[Any]) -> type:
    try:
        return msgspec.defstruct(name, fields, kw_only=True, frozen=True)
    except (TypeError, ValueError) as error:
        raise InvalidDefinition(
            f"action {name!r}", f"has parameters that no schema can express ({error})", "simplify them"
        ) from error


def _type_hints(
    function: Callable[..., Any], parameters: list[inspect.Parameter], name: str
) -> dict[str, Any]:
    """Resolve the types of the parameters alone; those of the context may not be importable."""
    annotations = {item.name: item.annotation for item in parameters if item.annotation is not item.empty}
    names = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return get_type_hints(SimpleNamespace(__annotations__=annotations), names, include_extras=True)
    except Exception as error:
        raise InvalidDefinition(
            f"action {name!r}",
            f"has an annotation that cannot be resolved ({error})",
            "define it at module level",
        ) from error


MEMORY_RESULT = "jido.memory.result"  # the name in Jido, kept so that signals can be exchanged


class Directive(Value, frozen=True, kw_only=True):
    """Base class of all effects; subclass it to add your own."""


@value_type
class Emit(Directive, frozen=True, kw_only=True):
    """Send a signal: to the targets in `dispatch`, else by the default route, else to the agent itself."""

    signal: Signal
    dispatch: MapField | None = None


@value_type
class Error(Directive, frozen=True, kw_only=True):
    """A failure, in the context normalize, params, run, result, hook, strategy, signal or routing."""

    message: str
    context: Name = "run"
    action: str | None = None
    field: str | None = None
    kind: str = "Error"
    trace: str = ""


@value_type
class RunInstruction(Directive, frozen=True, kw_only=True):
    """Run an effectful action, and pass its result to `result_action` if one is named."""

    instruction: Instruction
    result_action: Name | None = None


@value_type
class Spawn(Directive, frozen=True, kw_only=True):
    """Start a process of the runtime that is not an agent."""

    target: Name
    config: MapField = EMPTY_MAP
    tag: Id | None = None


@value_type
class SpawnAgent(Directive, frozen=True, kw_only=True):
    """Start a child agent of a kind that the runtime knows, tracked under `tag`."""

    kind: Name
    tag: Id
    id: Id | None = None
    state: MapField = EMPTY_MAP
    metadata: MapField = EMPTY_MAP


@value_type
class AdoptChild(Directive, frozen=True, kw_only=True):
    """Make a running agent a child of this one."""

    child: Id
    tag: Id
    metadata: MapField = EMPTY_MAP


@value_type
class StopChild(Directive, frozen=True, kw_only=True):
    """Stop the child with a tag."""

    tag: Id
    reason: str = "normal"


@value_type
class StartSensor(Directive, frozen=True, kw_only=True):
    """Start a sensor that sends its signals to this agent."""

    sensor: Name
    tag: Id
    config: MapField = EMPTY_MAP


@value_type
class StopSensor(Directive, frozen=True, kw_only=True):
    """Stop the sensor with a tag."""

    tag: Id


@value_type
class Schedule(Directive, frozen=True, kw_only=True):
    """Send a message to the agent after a delay; a message that is no signal is wrapped in one."""

    delay_ms: Count
    message: Frozen


@value_type
class Cron(Directive, frozen=True, kw_only=True):
    """Send a message to the agent on a cron schedule."""

    expression: Name
    message: Frozen
    job_id: Id = msgspec.field(default_factory=lambda: ids.new("job_"))
    timezone: Name = "UTC"

    def __post_init__(self) -> None:
        super().__post_init__()
        # The shape only: core knows no calendar, the runtime parses the fields.
        if not self.expression.startswith("@") and len(self.expression.split()) not in (5, 6):
            raise Invalid(
                "expression", f"{self.expression!r} is no cron expression", "use 5 fields, or @hourly"
            )


@value_type
class CronCancel(Directive, frozen=True, kw_only=True):
    """Cancel a `Cron` schedule."""

    job_id: Id


@value_type
class Stop(Directive, frozen=True, kw_only=True):
    """Stop this agent now; its pending directives are dropped."""

    reason: str = "normal"


@value_type
class MemoryQuery(Directive, frozen=True, kw_only=True):
    """Query a memory provider; the result arrives as one signal with the same request id."""

    query: MapField
    provider: Name
    request_id: Id = msgspec.field(default_factory=lambda: ids.new("req_"))
    opts: MapField = EMPTY_MAP
    reply_signal_type: Name = MEMORY_RESULT


@value_type
class MemoryUpsert(Directive, frozen=True, kw_only=True):
    """Write items, `{"key", "value", "embedding"?}`, to a memory provider."""

    items: ListField
    provider: Name
    request_id: Id = msgspec.field(default_factory=lambda: ids.new("req_"))
    opts: MapField = EMPTY_MAP
    reply_signal_type: Name = MEMORY_RESULT

    def __post_init__(self) -> None:
        super().__post_init__()
        for at, item in enumerate(self.items):
            freeze_map(item, f"items[{at}]")
            if "key" not in item or "value" not in item:
                raise Invalid(f"items[{at}]", "lacks key or value", 'pass {"key": …, "value": …}')


@value_type
class MemoryDelete(Directive, frozen=True, kw_only=True):
    """Delete keys from a memory provider."""

    keys: ListField
    provider: Name
    request_id: Id = msgspec.field(default_factory=lambda: ids.new("req_"))
    opts: MapField = EMPTY_MAP
    reply_signal_type: Name = MEMORY_RESULT

    def __post_init__(self) -> None:
        super().__post_init__()
        for at, key in enumerate(self.keys):
            check_text(key, f"keys[{at}]")


BUILT_IN: tuple[type[Directive], ...] = tuple(Directive.__subclasses__())  # before a user can define any
"""The directives that ship with Omoide."""
