"""Agent specs as data: `AgentSpec`, `MemoryPolicy`, `Limits`, `Window`.

A spec has instructions, model, tools, memory policy and limits, and can be written as JSON or YAML. Code is
attached to it and never written: a spec that was read names its tools and plugins, and `bind` attaches them.
The store for memory is passed with each turn.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypedDict, Unpack
from urllib.parse import urlsplit

import msgspec

from omoide import ids
from omoide.core import codec
from omoide.core.action import Action, check_name
from omoide.core.definition import Definition, Plugin, PluginLike, as_plugin
from omoide.core.entry import DEFAULT_MIN_RELEVANCE, check_positive
from omoide.core.frozen import EMPTY_MAP, FrozenList, FrozenMap, check_text, freeze_map
from omoide.core.schema import Schema
from omoide.core.value import Count, Id, Name, Record, check_choice, check_tuple, check_unit, set_field
from omoide.errors import (
    Invalid,
    InvalidDefinition,
    InvalidRecord,
    MissingExtra,
    ModelMisbehaved,
    NotFound,
    OmoideError,
    Unsupported,
    WrongType,
)
from omoide.turns.json_schema import SchemaDocument
from omoide.turns.repair import repair_object


class Limits(Record, frozen=True, kw_only=True):
    """Limits of a turn on its model and its tools."""

    LABEL: ClassVar[str] = "limits"

    max_rounds: Count = 8
    """Model calls in one turn."""
    tool_timeout_ms: Count = 30_000
    model_timeout_ms: Count = 60_000
    retries: Count = 2
    """Retries of a model call that failed with a transient error."""
    parallel: Count = 8
    """Tools that may run at once."""
    max_observation_tokens: Count = 4_000
    """Tokens of a tool result that the model is sent; the rest is cut."""

    def _check(self) -> None:
        for field in self.__struct_fields__:
            if field != "retries":
                check_positive(getattr(self, field), field)


class Window(Record, frozen=True, kw_only=True):
    """The context window of a model, and what of it is reserved for its answer."""

    LABEL: ClassVar[str] = "window"

    max_tokens: Count = 100_000
    reserve_output_tokens: Count = 4_000
    """Tokens reserved for the answer."""
    minimum_recent_turns: Count = 0
    """Latest exchanges that have to be in every prompt."""

    def _check(self) -> None:
        check_positive(self.max_tokens, "max_tokens")
        if self.reserve_output_tokens >= self.max_tokens:
            raise Invalid(
                "reserve_output_tokens",
                f"is {self.reserve_output_tokens}, of {self.max_tokens} tokens in all",
                "pass less than max_tokens",
            )

    @property
    def prompt_budget(self) -> int:
        """Tokens that a prompt may take."""
        return self.max_tokens - self.reserve_output_tokens


SCOPES = ("agent", "session", "project", "user")
CAPTURES = ("manual", "conversation", "messages", "user", "off")
AUTOMATIC_CAPTURES = ("conversation", "messages", "user")
"""Values of `capture` with which a finished turn is written to memory."""
INJECTIONS = ("instructions", "message", "context")

Namespace = str | tuple[str, str] | None
"""A name, or ("context", key) for one that each turn's context has; None is the default namespace."""

_LEGACY_NAMESPACES = {"per_agent": "agent", "session": "session", "shared": None, "context": None}
"""Values of an older form of `namespace`, and the scope that each of them meant."""

_MAX_DIGITS = 18  # a number of so many digits always fits into 64 bits


class MemoryPolicy(Record, frozen=True, kw_only=True):
    """The memory policy of an agent: scope, capture and how memories enter the prompt."""

    LABEL: ClassVar[str] = "memory policy"

    enabled: bool = True
    scope: str = "agent"
    """`agent`: everything the agent knows; `session`: what belongs to the conversation; `project`: what is
    known about the project, from earlier sessions and other agents as well; `user`: what is known about the
    user, from all agents. A `user_id` passed to the turn narrows each of them to that user."""
    namespace: Namespace = None
    capture: str = "manual"
    """What is written of each finished turn: with `messages` what the user and what the assistant said, as
    two memories; with `conversation` both as one; with `user` what the user said. `manual` and `off` write
    nothing automatically."""
    inject: str = "instructions"
    """`instructions` shows memories to the model after the instructions; `message` as a message of their own
    before the user's, so that what stands before it stays the same; `context` only puts them into
    `prompt.memory`."""
    max_entries: Count = 5
    max_tokens: Count = 1000
    min_relevance: float | None = DEFAULT_MIN_RELEVANCE
    """Least relevance of a memory in the prompt; None for any. Memories whose relevance is not known are
    shown."""
    max_pinned_tokens: Count = 500
    """Tokens of the pinned memories in the prompt, beside `max_tokens`."""
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
            min_relevance: float | None = DEFAULT_MIN_RELEVANCE,
            max_pinned_tokens: int = 500,
            metadata: Mapping[str, Any] = EMPTY_MAP,
        ) -> None: ...

    def __post_init__(self) -> None:
        set_field(self, "max_entries", _to_int(self.max_entries))
        super().__post_init__()

    def _check(self) -> None:
        check_choice(self.scope, "scope", SCOPES)
        check_choice(self.capture, "capture", CAPTURES)
        check_choice(self.inject, "inject", INJECTIONS)
        check_positive(self.max_entries, "max_entries")
        check_positive(self.max_tokens, "max_tokens")
        check_positive(self.max_pinned_tokens, "max_pinned_tokens")
        if self.min_relevance is not None:
            set_field(self, "min_relevance", check_unit(self.min_relevance, "min_relevance"))
        set_field(self, "namespace", _check_namespace(self.namespace))

    @classmethod
    def new(cls, source: Self | Mapping[str, Any] | None = None, /, **fields: Any) -> Self:
        """Return a policy from a mapping, keywords or another policy; older forms are accepted."""
        try:
            if isinstance(source, Mapping):
                return super().new(upgrade_policy_fields({**source, **fields}))
            return super().new(source, **upgrade_policy_fields(fields))
        except InvalidRecord:
            raise
        except Invalid as error:
            raise InvalidRecord(cls.LABEL, error) from error


def as_policy(source: object) -> MemoryPolicy | None:
    """Return a policy from True (the defaults), a mapping or a policy; None for False and None."""
    if source is None or source is False:
        return None
    if source is True:
        return MemoryPolicy()
    if isinstance(source, (Mapping, MemoryPolicy)):
        return MemoryPolicy.new(source)
    raise WrongType("memory", "True, False, a mapping or a MemoryPolicy", source)


def upgrade_policy_fields(source: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the fields of a policy from an older form."""
    fields = dict(source)
    if "retrieve" in fields:
        _set_legacy_field(fields, "max_entries", _legacy_limit(fields.pop("retrieve")))
    if "max_entries" in fields:
        fields["max_entries"] = _to_int(fields["max_entries"])
    for beside in ("shared_namespace", "context_namespace_key"):
        if beside in fields and fields[beside] is None:
            del fields[beside]
    word = fields.get("namespace")
    if word == "shared":
        fields["namespace"] = f"shared:{_pop_required(fields, 'shared_namespace', word)}"
    elif word == "context":
        fields["namespace"] = ("context", _pop_required(fields, "context_namespace_key", word))
    elif isinstance(word, str) and word in _LEGACY_NAMESPACES:
        fields["namespace"] = None
        _set_legacy_field(fields, "scope", _LEGACY_NAMESPACES[word], f"contradicts namespace {word!r}")
    elif isinstance(word, (Mapping, list, tuple)):
        fields["namespace"] = _check_namespace(word)
    return fields


def _set_legacy_field(
    fields: dict[str, Any], name: str, value: object, problem: str = "contradicts retrieve"
) -> None:
    """Set the field that an older form stands for; raise if it has another value already."""
    if value is not None and _to_int(fields.setdefault(name, value)) != value:
        raise Invalid(name, f"is {fields[name]!r}, which {problem}", f"keep {name} and leave out the other")


def _pop_required(fields: dict[str, Any], name: str, word: str) -> str:
    if name not in fields:
        raise Invalid(name, f"is missing beside namespace {word!r}", "name it")
    return check_text(fields.pop(name), name)


def _legacy_limit(retrieve: object) -> object:
    if not isinstance(retrieve, Mapping):
        raise WrongType("retrieve", "a mapping", retrieve, "use max_entries instead")
    for name in retrieve:
        if name != "limit":
            raise Invalid(f"retrieve.{name}", "is no field", "use max_entries instead")
    return _to_int(retrieve.get("limit"))


def _to_int(value: object) -> Any:
    """Convert digits to an int; forms and environment variables have numbers as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MAX_DIGITS:
        return int(value)
    return value


def _check_namespace(source: object) -> Namespace:
    match source:
        case None:
            return None
        case str() if source in _LEGACY_NAMESPACES:
            raise Invalid(
                "namespace",
                f"is {source!r}, a word of an older form",
                "use MemoryPolicy.new, which understands it, or choose another name",
            )
        case str():
            return ids.check(source, "namespace")
        case ["context", key]:
            return "context", check_text(key, "namespace key")
        case {"context": key, **others} if not others:
            return "context", check_text(key, "namespace key")
    raise Invalid("namespace", f"is {source!r}", 'pass None, a name, or ("context", key)')


MAX_YAML_BYTES = 1 << 20

_LIMITS = Limits()
_WINDOW = Window()

if TYPE_CHECKING:
    JsonSchema = FrozenMap[str, Any]
    Actions = tuple[Action, ...]
    Plugins = tuple[Plugin, ...]
    SchemaClass = type | None
else:
    JsonSchema = dict[str, Any]  # written as it is: `$ref` is no tag of the codec's
    Actions = Plugins = SchemaClass = Any  # code cannot be read, so whatever is read for it is refused

_SCHEMA_CLASSES = {"state_schema": "state_class", "result": "result_class"}
"""The fields with a JSON Schema, and the field of the class that goes with each."""

_PLUGIN_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(:[A-Za-z_][A-Za-z0-9_]*)?\Z")
_LONG_NUMBER = re.compile(r"[-+0-9_:.]{200,}")
_JSON_TOKEN = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")\s*(:)?|[][{}]')
"""A string, with the colon after it if it is a key, or a bracket; other tokens say nothing about keys."""


class CodeKwargs(TypedDict, total=False):
    """Keyword arguments of `AgentSpec.bind`: the code of a spec that was read."""

    tools: Sequence[Action]
    plugins: Sequence[PluginLike]
    schema: type | None
    result: type | None


class Output(NamedTuple):
    """The value of a structured answer."""

    value: Any
    repaired: bool = False
    """Whether the answer was no JSON until it was repaired."""


class AgentSpec(Record, frozen=True, kw_only=True):
    """An agent as data; specs are equal if their persisted fields are."""

    LABEL: ClassVar[str] = "agent spec"
    EXCLUDED_FIELDS: ClassVar[frozenset[str]] = frozenset(
        {"actions", "bound_plugins", "state_class", "result_class"}
    )

    id: Id
    description: str = ""
    model: Name | None = None
    """`provider:model`; a turn may be given another."""
    base_url: Name | None = None
    """The URL of the provider; default: its own."""
    generation: FrozenMap[str, Any] = EMPTY_MAP
    """Settings for the provider: temperature, max_tokens, top_p, stop, seed and the like."""
    instructions: str = ""
    tools: tuple[str, ...] = ()
    """The names of the actions that the model may call."""
    approve: tuple[str, ...] = ()
    """Those of them that need the approval of a person."""
    plugins: FrozenMap[str, Any] = EMPTY_MAP
    """The configuration of each plugin, by its name; they are mounted in the order of their names."""
    memory: MemoryPolicy | None = None
    state_schema: JsonSchema | None = None
    result: JsonSchema | None = None
    """The JSON Schema of a structured answer; None for text."""
    limits: Limits = _LIMITS
    window: Window = _WINDOW
    metadata: FrozenMap[str, Any] = EMPTY_MAP
    actions: Actions = ()
    bound_plugins: Plugins = ()
    state_class: SchemaClass = None
    result_class: SchemaClass = None

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            id: str,
            description: str = "",
            model: str | None = None,
            base_url: str | None = None,
            generation: Mapping[str, Any] = EMPTY_MAP,
            instructions: str = "",
            tools: Sequence[Action | str] = (),
            approve: Sequence[Action | str] = (),
            plugins: Mapping[str, Any] | Sequence[PluginLike | str] = (),
            memory: MemoryPolicy | Mapping[str, Any] | bool | None = None,
            state_schema: type | Mapping[str, Any] | None = None,
            result: type | Mapping[str, Any] | None = None,
            limits: Limits | Mapping[str, Any] = _LIMITS,
            window: Window | Mapping[str, Any] = _WINDOW,
            metadata: Mapping[str, Any] = EMPTY_MAP,
        ) -> None: ...

    def __post_init__(self) -> None:
        try:
            self._normalize()
        except InvalidRecord:
            raise
        except Invalid as error:
            raise InvalidRecord(self.LABEL, error) from error
        super().__post_init__()

    def _normalize(self) -> None:
        """Separate data from the code that came with it: names of tools from actions, and so on.

        Code of a tool or plugin that is not listed any more is dropped.
        """
        values: dict[str, Any] = {"memory": as_policy(self.memory)}
        values["tools"], values["actions"] = _split_tools(
            self.tools, check_tuple(self.actions, "actions", Action)
        )
        values["approve"] = tuple(_name_of(item) for item in _check_sequence(self.approve, "approve"))
        parts: Any = check_tuple(self.bound_plugins, "bound_plugins", Plugin)  # type: ignore[arg-type]
        values["plugins"], values["bound_plugins"] = _split_plugins(self.plugins, parts)
        for field, code in _SCHEMA_CLASSES.items():
            values[field], values[code] = _split_schema(getattr(self, field), getattr(self, code), field)
        for field, kind in (("limits", Limits), ("window", Window)):
            source = getattr(self, field)
            values[field] = kind.new(source) if isinstance(source, Mapping) else source
        for field, value in values.items():
            set_field(self, field, value)

    def _check(self) -> None:
        for at, name in enumerate(self.approve):
            if name not in self.tools:
                raise Invalid(f"approve[{at}]", f"is {name!r}, which is not among the tools", "list it there")
        if self.base_url is not None:
            _check_url(self.base_url)

    def __eq__(self, other: object) -> bool:
        return (
            self._comparison_key() == other._comparison_key()
            if isinstance(other, AgentSpec)
            else NotImplemented
        )

    def __hash__(self) -> int:
        return hash(self._comparison_key())

    def _comparison_key(self) -> tuple[Any, ...]:
        return tuple(
            getattr(self, name) for name in self.__struct_fields__ if name not in self.EXCLUDED_FIELDS
        )

    # With its code

    def bind(
        self,
        *,
        tools: Sequence[Action] = (),
        plugins: Sequence[PluginLike] = (),
        schema: type | None = None,
        result: type | None = None,
    ) -> Self:
        """Return the spec with code attached: actions, plugins, and the classes of state and answer.

        What is written of the spec stays as it is. A plugin's class is made with the configuration that the
        spec holds; an instance has to have the same.
        """
        actions = {action.name: action for action in self.actions}
        for at, action in enumerate(_check_sequence(tools, "tools")):
            if not isinstance(action, Action):
                raise WrongType(f"tools[{at}]", "an Action", action, "decorate it with @action")
            if action.name not in self.tools:
                raise Invalid(
                    f"tools[{at}]", f"is {action.name!r}, {_not_listed(self.tools)}", "list it first"
                )
            actions[action.name] = action
        bound = {plugin.label: plugin for plugin in self.bound_plugins}
        for at, like in enumerate(_check_sequence(plugins, "plugins")):
            bound |= self._bind_plugin(like, f"plugins[{at}]")
        return self.replace(
            actions=tuple(actions.values()),
            bound_plugins=tuple(bound.values()),
            state_class=self.state_class
            if schema is None
            else _check_class(schema, self.state_schema, "schema"),
            result_class=self.result_class if result is None else _check_class(result, self.result, "result"),
        )

    def _bind_plugin(self, like: PluginLike, at: str) -> dict[str, Plugin]:
        if isinstance(like, type) and issubclass(like, Plugin):
            found = {
                label: like(config, alias=label.partition(":")[2] or None)
                for label, config in self.plugins.items()
                if label.partition(":")[0] == like.name
            }
        else:
            plugin = as_plugin(like)
            found = {plugin.label: plugin} if plugin.label in self.plugins else {}
        if not found:
            raise Invalid(at, f"is {like!r}, {_not_listed(sorted(self.plugins))}", "list it first")
        for label, plugin in found.items():
            if not _has_config(plugin, self.plugins[label]):
                raise Invalid(at, f"has another configuration than {label!r} in the spec", "pass its class")
        return found

    def tool(self, name: str) -> Action:
        """Return the action with a name, of the spec itself or of one of its plugins."""
        for action in (
            *self.actions,
            *(offered for plugin in self.bound_plugins for offered in plugin.offered_actions),
        ):
            if action.name == name:
                return action
        listed = "list it in tools first"
        if name in self.tools:
            attached = {plugin.label for plugin in self.bound_plugins}
            missing = [label for label in sorted(self.plugins) if label not in attached]
            what = "plugins" if missing else "tools"
            listed = f"attach its code with bind({what}=[…])"
        raise NotFound("tool", name, f"{listed}; this agent has {', '.join(self.tools) or 'no tools'}")

    def definition(self) -> Definition:
        """Return the definition that all agents of this spec share."""
        for name in self.tools:
            self.tool(name)
        attached = {plugin.label for plugin in self.bound_plugins}
        for label in sorted(self.plugins):
            if label not in attached:
                raise NotFound("plugin", label, "attach its class with bind(plugins=[…])")
        schema: type | Schema | None = self.state_class
        if schema is None and self.state_schema is not None:
            schema = _schema_for(msgspec.json.encode(self.state_schema.to_python()), "state_schema")
        return Definition.new(
            self.id,
            description=self.description,
            schema=schema,
            plugins=self.bound_plugins,
            actions=self.actions,
        )

    # Structured output

    def output_schema(self) -> Schema | None:
        """Return the schema of the answer; None if the spec has no `result`.

        Raises:
            InvalidDefinition: the JSON Schema is none, or one that no answer can be checked against.
            MissingExtra: there is no class, and the package that checks JSON Schemas is missing.
        """
        if self.result is None:
            return None
        if self.result_class is not None:
            return Schema(self.result_class, "result")
        return _schema_for(msgspec.json.encode(self.result.to_python()), "result")

    def parse_output(self, content: str, model: str | None = None) -> Any:
        """Parse an answer as the spec's `result`; return None if the spec has none.

        Args:
            content: the answer of the model, with one JSON object in it.
            model: the name of the model, for the error.

        Raises:
            ModelMisbehaved: the answer has no JSON object, or one that does not fit.
        """
        return self.read_output(content, model).value

    def read_output(self, content: str, model: str | None = None) -> Output:
        """Parse an answer as `parse_output` does, and say whether it had to be repaired."""
        schema = self.output_schema()
        if schema is None:
            return Output(None)
        name = model or self.model or self.id
        plain, repaired = _find_json_object(content), False
        if plain is None:
            plain, repaired = repair_object(content), True
        if plain is None or (repaired and plain.keys().isdisjoint(schema.fields)):
            raise ModelMisbehaved(name, "answered with no JSON object", "ask again")
        # Models add fields that were not requested; they are dropped, not refused.
        known = {key: value for key, value in plain.items() if schema.is_open or key in schema.fields}
        try:
            value = schema.check(_with_integers(known), strict=True)
        except Invalid as error:
            raise ModelMisbehaved(name, f"answered in another shape ({error})", "ask again") from error
        return Output(value, repaired)

    # As text

    @classmethod
    def from_json(cls, data: bytes | str, **code: Unpack[CodeKwargs]) -> Self:
        """Read a spec from JSON and attach code to it, as `bind` does."""
        if not isinstance(data, (bytes, bytearray, memoryview, str)):
            raise WrongType(cls.__name__, "JSON as bytes or text", data)
        try:
            plain = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise Invalid(cls.__name__, f"is not readable JSON ({error})", "correct it") from error
        _check_json_keys(data if isinstance(data, str) else bytes(data).decode(), cls.__name__)
        return cls._from_plain(plain).bind(**code)

    @classmethod
    def from_yaml(cls, text: str | bytes, **code: Unpack[CodeKwargs]) -> Self:
        """Read a spec from YAML, with code as for `from_json`; tags and aliases are refused."""
        return cls._from_plain(_parse_yaml(text, cls.__name__)).bind(**code)

    def to_json(self) -> bytes:
        """Encode the spec as JSON with the keys of maps sorted: equal specs have equal bytes."""
        return codec.encode(self, sort_keys=True)

    def to_yaml(self) -> str:
        """Return the spec as YAML, its keys sorted as in JSON."""
        _import_yaml()
        text = msgspec.yaml.encode(codec.to_builtins(self, sort_keys=True))
        _check_yaml_size(text, type(self).__name__)
        return text.decode()

    @classmethod
    def from_file(cls, path: str | Path, **code: Unpack[CodeKwargs]) -> Self:
        """Read a spec from a .json, .yaml or .yml file, with code as for `from_json`."""
        file = Path(path)
        if file.suffix not in (".json", ".yaml", ".yml"):
            raise Invalid("path", f"ends in {file.suffix!r}", "use .json, .yaml or .yml")
        try:
            with file.open("rb") as opened:
                # One byte more than allowed: a larger file is refused without reading all of it.
                data = opened.read() if file.suffix == ".json" else opened.read(MAX_YAML_BYTES + 1)
        except FileNotFoundError as error:
            raise NotFound("file", str(path), "check the path") from error
        except OSError as error:
            raise Invalid("path", f"cannot be read ({error})", "pass a file that can be read") from error
        return cls.from_json(data, **code) if file.suffix == ".json" else cls.from_yaml(data, **code)

    @classmethod
    def _from_plain(cls, plain: object) -> Self:
        """Build a spec from JSON types, which may have the shorter forms that people write."""
        if not isinstance(plain, dict):
            raise WrongType(cls.__name__, "an object", plain)
        fields = dict(plain)
        for name in sorted(cls.EXCLUDED_FIELDS.intersection(fields)):
            raise Invalid(f"{cls.__name__}.{name}", "is code, not data", "attach it with bind()")
        if isinstance(fields.get("memory"), bool):
            fields["memory"] = {} if fields["memory"] else None
        try:
            if isinstance(fields.get("memory"), dict):
                fields["memory"] = upgrade_policy_fields(fields["memory"])
        except Invalid as error:
            raise error.with_path_prefix(f"{cls.__name__}.memory") from error
        plugins = fields.get("plugins")
        if isinstance(plugins, list) and all(isinstance(name, str) for name in plugins):
            fields["plugins"] = {name: {} for name in plugins}
        elif isinstance(plugins, dict):
            fields["plugins"] = {name: {} if config is None else config for name, config in plugins.items()}
        return codec.from_builtins(fields, cls)


def _check_sequence(source: object, field: str) -> Sequence[Any]:
    if isinstance(source, (str, bytes)) or not isinstance(source, Sequence):
        raise WrongType(field, "a list", source)
    return source


def _name_of(item: object) -> Any:
    return item.name if isinstance(item, Action) else item


def _not_listed(names: Sequence[str]) -> str:
    return f"which the spec does not list among {', '.join(names)}" if names else "and the spec lists none"


def _split_tools(source: object, bound: tuple[Action, ...]) -> tuple[tuple[str, ...], tuple[Action, ...]]:
    """Return the names of tools, and the actions of those that have code."""
    known = {action.name: action for action in bound}
    names: list[str] = []
    for at, item in enumerate(_check_sequence(source, "tools")):
        field = f"tools[{at}]"
        if callable(item) and not isinstance(item, Action):
            raise WrongType(field, "an Action or its name", item, "decorate it with @action")
        name = check_name(_name_of(item), field)
        if name in names:
            raise Invalid(field, f"repeats {name!r}", "list it once")
        names.append(name)
        if isinstance(item, Action):
            known[name] = item
    return tuple(names), tuple(known[name] for name in names if name in known)


def _split_plugins(
    source: object, bound: tuple[Plugin, ...]
) -> tuple[FrozenMap[str, Any], tuple[Plugin, ...]]:
    """Return the configuration of each plugin, and the plugins that have code."""
    known = {plugin.label: plugin for plugin in bound}
    configs: dict[str, Any] = {}
    listed = list(source.items()) if isinstance(source, Mapping) else _check_sequence(source, "plugins")
    for at, item in enumerate(listed):
        match item:
            case str():
                label, config = item, EMPTY_MAP
            case (str() as label, config):
                config = freeze_map(EMPTY_MAP if config is None else config, f"plugins.{label}")
            case _:
                plugin = as_plugin(item)
                label, config = plugin.label, plugin.config
                known[label] = plugin
        if not _PLUGIN_LABEL.match(label):
            raise Invalid(f"plugins[{at}]", f"is {label!r}", "use letters, digits and underscores")
        if label in configs:
            raise Invalid(f"plugins[{at}]", f"repeats {label!r}", "list it once, or with an alias")
        configs[label] = config
    attached = (known[label] for label in sorted(configs) if label in known)
    return freeze_map(configs), tuple(
        plugin for plugin in attached if _has_config(plugin, configs[plugin.label])
    )


def _has_config(plugin: Plugin, config: Mapping[str, Any]) -> bool:
    """Return whether a plugin has this configuration, completed by its defaults."""
    if plugin.config == config or plugin.config_schema is None:
        return plugin.config == config
    return plugin.config == {**freeze_map(Schema(plugin.config_schema, plugin.label).defaults()), **config}


def _split_schema(
    source: object, bound: object, field: str
) -> tuple[FrozenMap[str, Any] | None, type | None]:
    """Return the JSON Schema of a class or a mapping, and the class that goes with it."""
    if bound is not None and not isinstance(bound, type):
        raise WrongType(_SCHEMA_CLASSES[field], "a class", bound)
    if source is None:
        return None, None
    if isinstance(source, type):
        try:
            return freeze_map(Schema(source, field).json_schema(), field), source
        except (TypeError, ValueError, RuntimeError) as error:
            if isinstance(error, OmoideError):
                raise
            raise InvalidDefinition(field, f"has no JSON Schema ({error})", "simplify it") from error
    if not isinstance(source, Mapping):
        raise WrongType(field, "a class or a JSON Schema", source)
    schema = freeze_map(source, field)
    _check_json(schema, field)
    return schema, bound if bound is not None and _has_fields_of(bound, schema, field) else None


def _check_class(kind: type | None, schema: FrozenMap[str, Any] | None, field: str) -> type | None:
    if kind is None:
        return None
    if schema is None:
        raise Invalid(field, "is given, but the spec has none", "add it to the spec")
    if not _has_fields_of(kind, schema, field):
        raise Invalid(
            field,
            f"is {kind!r}, whose fields differ from the spec's",
            "pass the class that the spec was made with",
        )
    return kind


def _has_fields_of(kind: type, schema: FrozenMap[str, Any], field: str) -> bool:
    """Return whether a class has the fields of a schema; descriptions and limits may differ."""
    properties = schema.get("properties", EMPTY_MAP)
    return isinstance(properties, FrozenMap) and set(Schema(kind, field).fields) == set(properties)


def _check_json(value: object, path: str) -> None:
    """Raise unless a schema consists of JSON types."""
    if isinstance(value, FrozenMap):
        for key in value:
            _check_json(value[key], f"{path}.{key}")
    elif isinstance(value, FrozenList):
        for at, item in enumerate(value):
            _check_json(item, f"{path}[{at}]")
    elif value is not None and not isinstance(value, (str, int, float)):
        raise Unsupported(path, f"is a {type(value).__name__}", "use JSON types")


@lru_cache(maxsize=64)
def _schema_for(schema: bytes, name: str) -> SchemaDocument:
    """Return one schema for the same JSON, which is compiled once."""
    return SchemaDocument(msgspec.json.decode(schema), name)


def _find_json_object(content: str) -> dict[str, Any] | None:
    """Return the object in an answer: all of it, the last fenced block, or the text in braces."""
    # Models wrap JSON in prose or in a code block.
    blocks = [block.strip().removeprefix("json").strip() for block in content.split("```")[1:-1]]
    fenced = [block for block in blocks if block.startswith("{") and block.endswith("}")]
    braces = content[content.find("{") : content.rfind("}") + 1]
    for text in (content, *fenced[-1:], braces):
        try:
            plain = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            continue
        if isinstance(plain, dict):
            return plain
    return None


def _with_integers(value: Any) -> Any:
    """Return data with 1.0 as 1: JSON has one kind of number, and models write either."""
    if isinstance(value, dict):
        return {key: _with_integers(part) for key, part in value.items()}
    if isinstance(value, list):
        return [*map(_with_integers, value)]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fine = False
    if not fine or any(character.isspace() for character in url):
        raise Invalid("base_url", f"is {url!r}", "pass a URL such as https://localhost:8000/v1")


def _check_json_keys(text: str, name: str) -> None:
    """Raise for a key that its object has already, in JSON that is otherwise valid."""
    keys: list[set[str]] = []  # of each open object; of a list, it stays empty
    for token in _JSON_TOKEN.finditer(text):
        string, colon = token.groups()
        if string is None:
            if token[0] in "{[":
                keys.append(set())
            else:
                keys.pop()
        elif colon is not None:
            key = msgspec.json.decode(string)
            if key in keys[-1]:
                at = token.start()
                line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
                problem = f"repeats the key {key!r} in line {line}, column {column}"
                raise Invalid(name, problem, "keep one of them")
            keys[-1].add(key)


def _import_yaml() -> Any:
    try:
        return import_module("yaml")
    except ImportError as error:
        raise MissingExtra("agent specs in YAML", "yaml") from error


def _check_yaml_size(text: str | bytes, name: str) -> None:
    size = len(text if isinstance(text, bytes) else text.encode(errors="surrogatepass"))
    if size > MAX_YAML_BYTES:
        raise Invalid(name, f"has more than {MAX_YAML_BYTES} bytes of YAML", "make it smaller, or use JSON")


def _parse_yaml(text: object, name: str) -> object:
    yaml = _import_yaml()
    if not isinstance(text, (str, bytes)):
        raise WrongType(name, "YAML as text", text)
    _check_yaml_size(text, name)
    try:
        # Checked as events, before anything is built: aliases can expand a small file without bounds.
        events = yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        for event in _check_keys(yaml, _check_depth(yaml, events, name), name):
            if getattr(event, "anchor", None) is not None or getattr(event, "tag", None) is not None:
                raise Invalid(name, "holds an alias, an anchor or a tag", "write it out")
            # YAML 1.1 reads 1:30:59… as a sexagesimal number, digit by digit, which may take very long.
            if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and _LONG_NUMBER.match(event.value):
                raise Invalid(name, "holds a number that is too long", "put it into quotes")
        return msgspec.yaml.decode(text)
    except OmoideError:
        raise
    except (yaml.YAMLError, msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
        raise Invalid(name, f"is not readable YAML ({error})", "correct it") from error


def _check_depth(yaml: Any, events: Any, name: str) -> Any:
    """Yield the events; raise if they are nested too deep for the recursive loader."""
    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > codec.MAX_LEVELS:
            raise Unsupported(name, f"is nested deeper than {codec.MAX_LEVELS} levels", "flatten it")
        yield event


def _check_keys(yaml: Any, events: Any, name: str) -> Any:
    """Yield the events; raise for a key that its mapping has already: only one of the values would count."""
    keys: list[set[str] | None] = []  # of each open mapping; None for a list
    is_key: list[bool] = []
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            keys.pop()
            is_key.pop()
        elif isinstance(event, yaml.NodeEvent) and keys and (known := keys[-1]) is not None:
            if is_key[-1] and isinstance(event, yaml.ScalarEvent):
                if event.value in known:
                    line = event.start_mark.line + 1
                    raise Invalid(name, f"repeats the key {event.value!r} in line {line}", "keep one of them")
                known.add(event.value)
            is_key[-1] = not is_key[-1]
        if isinstance(event, yaml.CollectionStartEvent):
            keys.append(set() if isinstance(event, yaml.MappingStartEvent) else None)
            is_key.append(True)
        yield event
