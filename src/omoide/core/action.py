"""Action, Instruction, directives.

An action is declared once, from a function or a class, and its parameters are checked against the signature
every time. A pure one runs inside `cmd`; one marked `effectful` may be async and do I/O, so `cmd` only asks
for it with a `RunInstruction` directive.

What an action returns is merged into the state: a mapping, a slot value (`Memory`, `Identity`, `Thread`) that
replaces its slot, or None; any of them may come in a pair with a list of directives.

Directives are data that `cmd` returns and the runtime carries out, in order; none of them touches the state.
What a runtime has to look up (a sensor, a child, a provider) is named, so that every directive can be written
down and read back.
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

# action: What can an agent do?


F = TypeVar("F", bound=Callable[..., Any])

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*\Z")


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """Something an agent can do, with the shape of its parameters."""

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
        if inspect.iscoroutinefunction(inspect.unwrap(self.run)) and not self.effectful:
            raise InvalidDefinition(
                owner, "is async but not effectful", "declare it with @action(effectful=True)"
            )

    def check(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters, checked and complete, as arguments of one's own."""
        if not isinstance(params, Mapping):
            raise WrongType(f"action {self.name!r}: params", "a mapping", params, "pass a dict")

        def refuse(field: str, problem: str, remedy: str) -> InvalidParams:
            return InvalidParams(self.name, field, problem, remedy)

        checked = self.schema.check(params, refuse)
        if isinstance(checked, dict):
            return checked
        return {name: getattr(checked, name) for name in self.schema.fields.values()}

    def __repr__(self) -> str:
        return f"Action({self.name!r})"

    def json_schema(self) -> dict[str, Any]:
        """The shape of the parameters as JSON Schema."""
        return self.schema.json_schema()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, as if it had not been decorated."""
        return self.run(*args, **kwargs)


@value_type
class Instruction(Value, frozen=True, kw_only=True):
    """An action to run, by name, with its parameters."""

    EXCLUDED_FIELDS: ClassVar[frozenset[str]] = frozenset({"target"})

    action: str
    params: MapField = EMPTY_MAP
    target: Action | None = None
    """The action itself where it is at hand; after a round trip through JSON it is found by its name."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name(self.action, "action")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Instruction):
            return NotImplemented
        return (self.action, self.params) == (other.action, other.params)

    def __hash__(self) -> int:
        return hash((self.action, self.params))

    @classmethod
    def of(cls, source: object, params: Mapping[str, Any] = EMPTY_MAP) -> Instruction:
        """An instruction from an action, a name, or either with its parameters."""
        match source:
            case Instruction():
                return msgspec.structs.replace(source, params=params) if params else source
            case Action():
                return cls(action=source.name, params=params, target=source)
            case str():
                return cls(action=source, params=params)
            case (first, Mapping() as given) if not isinstance(first, tuple):
                return cls.of(first, given)
            case (Action() | str(), other):
                raise WrongType("params", "a mapping", other, "pass (action, {…})")
            case _:
                raise WrongType("action", "an Action, its name, or (action, params)", source, "use @action")

    @classmethod
    def normalize(cls, source: object) -> tuple[Instruction, ...]:
        """Instructions from any of these forms, or from a list of them."""
        return tuple(cls.of(one) for one in source) if isinstance(source, list) else (cls.of(source),)


ActionLike = Action | str | Instruction | tuple[Action | str, Mapping[str, Any]]
"""What a command can be given: an action, its name, either with parameters, or an instruction."""


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
    """Make an action of a function `f(ctx, …)`, or of a class with its parameters and `run(self, ctx)`."""

    def make(subject: Any) -> Action:
        called = name or _snake_case(getattr(subject, "__name__", ""))
        function, shape = _function_and_schema(subject, called, schema)
        return Action(
            name=called,
            run=function,
            schema=Schema(shape, f"action {called!r}"),
            description=inspect.cleandoc(subject.__doc__ or "") if description is None else description,
            effectful=effectful,
            idempotent=idempotent,
            tags=tags,
        )

    return make if run is None else make(run)


def check_name(value: object, field: str) -> str:
    """A name by which things are called across programs."""
    text = check_text(value, field)
    if not _NAME.match(text):
        raise InvalidDefinition(
            field, f"is {text!r}", "use letters, digits, _ . and -, starting with a letter"
        )
    return text


def _snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _function_and_schema(subject: Any, name: str, schema: type | None) -> tuple[Callable[..., Any], type]:
    """The function to run and the shape of its parameters."""
    if isinstance(subject, type):
        if schema is not None:
            raise InvalidDefinition(f"action {name!r}", "is a class with a schema besides", "use its fields")
        return _from_class(subject, name)
    if not callable(subject):
        raise InvalidDefinition(
            f"action {name!r}", "is neither a function nor a class", "decorate one of them"
        )
    return cast("Callable[..., Any]", subject), schema or _parameter_struct(subject, name)


def _parameter_struct(function: Callable[..., Any], name: str) -> type:
    """A struct with a field for each parameter after the context."""
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
    if isinstance(default, (list, dict, set)):
        return parameter.name, kind, msgspec.field(default_factory=partial(deepcopy, default))
    return parameter.name, kind, default


def _from_class(subject: type, name: str) -> tuple[Callable[..., Any], type]:
    method = getattr(subject, "run", None)
    if not callable(method):
        raise InvalidDefinition(f"action {name!r}", "is a class without run", "give it run(self, ctx)")
    shape: Any = subject
    if not any(hasattr(subject, mark) for mark in ("__struct_fields__", "model_fields")) and not is_dataclass(
        subject
    ):
        try:
            shape = dataclass(kw_only=True)(subject)
        except (TypeError, ValueError) as error:
            raise InvalidDefinition(
                f"action {name!r}", f"has wrong fields ({error})", "use field()"
            ) from error

    @wraps(method)
    def run(ctx: Any, **params: Any) -> Any:
        return shape(**params).run(ctx)

    return run, shape


def _define_struct(name: str, fields: list[Any]) -> type:
    try:
        return msgspec.defstruct(name, fields, kw_only=True, frozen=True)
    except (TypeError, ValueError) as error:
        raise InvalidDefinition(
            f"action {name!r}", f"has parameters no schema can say ({error})", "simplify them"
        ) from error


def _type_hints(
    function: Callable[..., Any], parameters: list[inspect.Parameter], name: str
) -> dict[str, Any]:
    """The types of the parameters; those of the context and the result are nobody's business."""
    given = {one.name: one.annotation for one in parameters if one.annotation is not one.empty}
    names = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return get_type_hints(SimpleNamespace(__annotations__=given), names, include_extras=True)
    except Exception as error:
        raise InvalidDefinition(
            f"action {name!r}",
            f"has an annotation that cannot be resolved ({error})",
            "define it at module level",
        ) from error


# directives: Which effects does an agent ask for?


MEMORY_RESULT = "jido.memory.result"


class Directive(Value, frozen=True, kw_only=True):
    """The base of all effects; anyone may add their own."""


@value_type
class Emit(Directive, frozen=True, kw_only=True):
    """Send a signal: to the targets named, else by the default way, else back to the agent itself."""

    signal: Signal
    dispatch: MapField | None = None


@value_type
class Error(Directive, frozen=True, kw_only=True):
    """Something failed, in the context normalize, params, run, result, hook, strategy, signal or routing."""

    message: str
    context: Name = "run"
    action: str | None = None
    field: str | None = None
    kind: str = "Error"
    trace: str = ""


@value_type
class RunInstruction(Directive, frozen=True, kw_only=True):
    """Run an effectful action, and feed its result to `result_action` where one is named."""

    instruction: Instruction
    result_action: Name | None = None


@value_type
class Spawn(Directive, frozen=True, kw_only=True):
    """Start a process of the runtime's that is not an agent."""

    target: Name
    config: MapField = EMPTY_MAP
    tag: Id | None = None


@value_type
class SpawnAgent(Directive, frozen=True, kw_only=True):
    """Start a child agent of a kind the runtime knows, followed under `tag`."""

    kind: Name
    tag: Id
    id: Id | None = None
    state: MapField = EMPTY_MAP
    metadata: MapField = EMPTY_MAP


@value_type
class AdoptChild(Directive, frozen=True, kw_only=True):
    """Take a running agent as a child."""

    child: Id
    tag: Id
    metadata: MapField = EMPTY_MAP


@value_type
class StopChild(Directive, frozen=True, kw_only=True):
    """Stop the child under a tag."""

    tag: Id
    reason: str = "normal"


@value_type
class StartSensor(Directive, frozen=True, kw_only=True):
    """Start a sensor, whose signals come to this agent."""

    sensor: Name
    tag: Id
    config: MapField = EMPTY_MAP


@value_type
class StopSensor(Directive, frozen=True, kw_only=True):
    """Stop the sensor under a tag."""

    tag: Id


@value_type
class Schedule(Directive, frozen=True, kw_only=True):
    """Tell the agent something later; what is no signal is wrapped in one."""

    delay_ms: Count
    message: Frozen


@value_type
class Cron(Directive, frozen=True, kw_only=True):
    """Tell the agent something again and again."""

    expression: Name
    message: Frozen
    job_id: Id = msgspec.field(default_factory=lambda: ids.new("job_"))
    timezone: Name = "UTC"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.expression.startswith("@") and len(self.expression.split()) not in (5, 6):
            raise Invalid("expression", f"{self.expression!r} is no cron line", "use 5 fields, or @hourly")


@value_type
class CronCancel(Directive, frozen=True, kw_only=True):
    """End what `Cron` began."""

    job_id: Id


@value_type
class Stop(Directive, frozen=True, kw_only=True):
    """Stop this agent now; directives that wait are dropped."""

    reason: str = "normal"


@value_type
class MemoryQuery(Directive, frozen=True, kw_only=True):
    """Ask a memory provider; the answer comes as one signal with the same request id."""

    query: MapField
    provider: Name
    request_id: Id = msgspec.field(default_factory=lambda: ids.new("req_"))
    opts: MapField = EMPTY_MAP
    reply_signal_type: Name = MEMORY_RESULT


@value_type
class MemoryUpsert(Directive, frozen=True, kw_only=True):
    """Put items, `{"key", "value", "embedding"?}`, into a memory provider."""

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


BUILT_IN: tuple[type[Directive], ...] = tuple(Directive.__subclasses__())
"""Every directive that ships with Omoide."""
