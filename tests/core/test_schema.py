"""Schemas from msgspec structs, dataclasses, TypedDicts and pydantic models."""

from dataclasses import dataclass, field
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
import pydantic
import pytest

from omoide import Agent, Context, Plugin, action, directives
from omoide.core import Schema
from omoide.errors import Invalid, InvalidDefinition, InvalidState, MountFailed


class AsStruct(msgspec.Struct):
    name: str
    age: Annotated[int, msgspec.Meta(ge=0)] = 0
    tags: list[str] = msgspec.field(default_factory=list)


@dataclass
class AsDataclass:
    name: str
    age: Annotated[int, msgspec.Meta(ge=0)] = 0
    tags: list[str] = field(default_factory=list)


class AsModel(pydantic.BaseModel):
    name: str
    age: Annotated[int, pydantic.Field(ge=0)] = 0
    tags: list[str] = pydantic.Field(default_factory=list)


class AsTypedDict(TypedDict):
    name: str
    age: NotRequired[Annotated[int, msgspec.Meta(ge=0)]]
    tags: NotRequired[list[str]]


class Renamed(msgspec.Struct, rename="camel"):
    max_items: int = 1


SHAPES: list[Any] = [AsStruct, AsDataclass, AsModel, AsTypedDict]
every_shape = pytest.mark.parametrize("shape", SHAPES)
with_defaults = pytest.mark.parametrize("shape", SHAPES[:3])


@with_defaults
def test_defaults_are_known(shape: Any) -> None:
    """What need not be given has its value, made anew each time."""
    schema = Schema(shape, "test")
    assert schema.defaults() == {"age": 0, "tags": []}
    schema.defaults()["tags"].append("spoilt")
    assert schema.defaults()["tags"] == []


def test_a_typed_dict_has_no_defaults() -> None:
    """Keys that are not required are simply absent."""
    assert Schema(AsTypedDict, "test").defaults() == {}


@every_shape
def test_good_data_is_taken(shape: Any) -> None:
    """The checked value is an instance of the shape."""
    checked = Schema(shape, "test").check({"name": "Al", "age": 3})
    if isinstance(checked, dict):
        assert checked == {"name": "Al", "age": 3}
    else:
        assert (checked.name, checked.age, checked.tags) == ("Al", 3, [])


@every_shape
@pytest.mark.parametrize(
    ("data", "name"),
    [
        ({}, "name"),
        ({"name": 5}, "name"),
        ({"name": "Al", "age": "old"}, "age"),
        ({"name": "Al", "age": -1}, "age"),
        ({"name": "Al", "tags": [5]}, "tags"),
        ({"name": "Al", "nmae": "x"}, "nmae"),
    ],
)
def test_bad_data_is_refused_by_field(shape: Any, data: dict[str, Any], name: str) -> None:
    """Missing, of another type, out of range, deep inside or unknown: the field is named."""
    with pytest.raises(Invalid) as raised:
        Schema(shape, "test").check(data)
    assert raised.value.field.startswith(name)
    assert raised.value.remedy


@every_shape
def test_every_shape_has_a_json_schema(shape: Any) -> None:
    """An object with the three properties, one of them required."""
    schema = Schema(shape, "test").json_schema()
    assert schema["type"] == "object"
    assert set(schema["properties"]) == {"name", "age", "tags"}
    assert schema["required"] == ["name"]


def test_a_nested_shape_is_described_in_full() -> None:
    """References inside the JSON schema lead somewhere."""

    class Outer(msgspec.Struct):
        inner: AsStruct

    schema = Schema(Outer, "test").json_schema()
    reference = schema["properties"]["inner"]["$ref"]
    assert reference.startswith("#/$defs/")
    assert "name" in schema["$defs"][reference.removeprefix("#/$defs/")]["properties"]


@every_shape
def test_an_action_takes_any_shape_for_its_parameters(shape: Any) -> None:
    """The fields become arguments."""

    @action(schema=shape)
    def meet(ctx: Context, name: str, **rest: Any) -> dict[str, Any]:
        return {"met": name}

    assert Agent.new("a").cmd((meet, {"name": "Al"}))[0].state["met"] == "Al"
    agent, (error,) = Agent.new("a").cmd((meet, {"name": 5}))
    assert isinstance(error, directives.Error)
    assert (error.context, error.field, error.action) == ("params", "name", "meet")
    assert "met" not in agent.state


def test_an_action_takes_a_struct_that_renames_its_fields() -> None:
    """Callers use the names of the outside, the function those of the inside."""

    @action(schema=Renamed)
    def limit(ctx: Context, max_items: int) -> dict[str, Any]:
        return {"limit": max_items}

    assert Agent.new("a").cmd((limit, {"maxItems": 3}))[0].state["limit"] == 3
    assert Agent.new("a").cmd(limit)[0].state["limit"] == 1


@with_defaults
def test_an_agent_starts_with_the_defaults_of_its_schema(shape: Any) -> None:
    """What the caller gives goes over them."""
    agent = Agent.new("a", schema=shape, state={"name": "Al", "age": 3})
    assert agent.state == {"name": "Al", "age": 3, "tags": []}


@every_shape
def test_an_agent_cannot_start_unlike_its_schema(shape: Any) -> None:
    """Missing, wrong and unknown keys of the state are refused when the agent is made."""
    for state in ({}, {"name": 5}, {"name": "Al", "other": 1}):
        with pytest.raises(InvalidState, match=r"state\."):
            Agent.new("a", schema=shape, state=state)


@every_shape
def test_a_result_unlike_the_schema_is_refused(shape: Any) -> None:
    """The state stays as it was, and the error names action and field."""

    @action
    def spoil(ctx: Context, key: str) -> dict[str, Any]:
        return {key: "text"}

    agent = Agent.new("a", schema=shape, state={"name": "Al"})
    for key in ("age", "other"):
        after, (error,) = agent.cmd((spoil, {"key": key}))
        assert isinstance(error, directives.Error)
        assert (error.context, error.action, error.field) == ("result", "spoil", f"state.{key}")
        assert after is agent
    assert agent.cmd((spoil, {"key": "name"}))[0].state["name"] == "text"


@every_shape
def test_slots_and_slices_are_not_the_schemas_business(shape: Any) -> None:
    """Memory, identity and the slices of plugins stand beside the agent's own keys."""

    class Notes(Plugin):
        name = "notes"

        def mount(self, agent: Agent, config: Any) -> dict[str, Any]:
            return {"count": 0}

    @action
    def remember(ctx: Context) -> Any:
        return ctx.memory.world_put("a", 1)

    agent, effects = Agent.new("a", schema=shape, state={"name": "Al"}, plugins=[Notes]).cmd(remember)
    assert effects == []
    assert agent.state["notes"] == {"count": 0}


@every_shape
def test_a_plugin_slice_has_to_fit_the_plugins_schema(shape: Any) -> None:
    """A mount that leaves the slice unlike its schema fails."""

    class Card(Plugin):
        name = "card"
        schema = shape

        def mount(self, agent: Agent, config: Any) -> Any:
            return dict(config)

    assert Agent.new("a", plugins=[(Card, {"name": "Al"})]).state["card"]["name"] == "Al"
    for config in ({}, {"name": 5}):
        with pytest.raises(MountFailed, match="name"):
            Agent.new("a", plugins=[(Card, config)])


@every_shape
def test_a_plugin_configuration_has_to_fit_its_schema(shape: Any) -> None:
    """Wrong configuration is a wrong definition."""

    class Card(Plugin):
        name = "card"
        config_schema = shape

    assert Card({"name": "Al"}).config["name"] == "Al"
    for config in ({}, {"name": 5}, {"name": "Al", "other": 1}):
        with pytest.raises(InvalidDefinition, match=r"plugin 'card': config\."):
            Card(config)


@with_defaults
def test_a_plugin_configuration_is_completed(shape: Any) -> None:
    """Defaults of the schema are filled in."""

    class Card(Plugin):
        name = "card"
        config_schema = shape

    assert Card({"name": "Al"}).config == {"name": "Al", "age": 0, "tags": []}


@pytest.mark.parametrize("shape", [5, None, "AsStruct", int, dict, list[int], object, type])
def test_what_is_no_shape_is_refused_with_those_to_use(shape: Any) -> None:
    """The error lists the kinds of classes that serve."""
    with pytest.raises(InvalidDefinition, match="TypedDict") as raised:
        Schema(shape, "agent 'a'")
    assert "agent 'a'" in raised.value.field
