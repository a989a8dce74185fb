"""Declaration of actions and validation of their parameters."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import msgspec
import pydantic
import pytest
from hypothesis import given
from tests.support.strategies import maps

from omoide import Action, Agent, Context, Memory, action
from omoide.core import FrozenMap, Instruction, Schema
from omoide.errors import Invalid, InvalidDefinition, InvalidParams, WrongType

if TYPE_CHECKING:
    from decimal import Decimal as OnlyForTypeCheckers


@action
def greet(ctx: Context, name: str, times: Annotated[int, msgspec.Meta(ge=1)] = 1) -> dict[str, Any]:
    """Greet someone.

    As often as asked.
    """
    return {"greeting": " ".join([name] * times)}


def test_a_function_becomes_an_action() -> None:
    """Name and description come from the function."""
    assert isinstance(greet, Action)
    assert (greet.name, greet.description) == ("greet", "Greet someone.\n\nAs often as asked.")
    assert (greet.effectful, greet.idempotent, greet.tags) == (False, False, ())


def test_an_action_can_be_described_in_the_decorator() -> None:
    """What is given there goes before what the function says."""

    @action(name="my.action-2", description="Other", effectful=True, idempotent=True, tags=("web",))
    def own(ctx: Context) -> None:
        """Mine."""

    assert (own.name, own.description, own.tags) == ("my.action-2", "Other", ("web",))
    assert own.effectful
    assert own.idempotent


def test_an_action_can_be_called_as_the_function_it_was() -> None:
    """Decorating takes nothing away."""
    assert greet(cast("Context", None), "Al", times=2) == {"greeting": "Al Al"}


class CountWords:
    """Count the words of a text."""

    text: str
    most: int = 10

    def run(self, ctx: Context) -> dict[str, Any]:
        return {"words": min(len(self.parts()), self.most)}

    def parts(self) -> list[str]:
        return self.text.split()


class AsStruct(msgspec.Struct):
    text: str
    most: int = 10

    def run(self, ctx: Context) -> dict[str, Any]:
        return {"words": min(len(self.text.split()), self.most)}


@dataclass
class AsDataclass:
    text: str
    most: int = 10

    def run(self, ctx: Context) -> dict[str, Any]:
        return {"words": min(len(self.text.split()), self.most)}


class AsModel(pydantic.BaseModel):
    text: str
    most: int = 10

    def run(self, ctx: Context) -> dict[str, Any]:
        return {"words": min(len(self.text.split()), self.most)}


@pytest.mark.parametrize("kind", [CountWords, AsStruct, AsDataclass, AsModel])
def test_a_class_becomes_an_action_with_its_fields_for_parameters(kind: Any) -> None:
    """A plain class, a struct, a dataclass and a pydantic model, with methods of their own."""
    count: Action = action(kind)
    agent, effects = Agent.new("a").cmd((count, {"text": "one two three"}))
    assert (agent.state["words"], effects) == (3, [])
    assert Agent.new("a").cmd((count, {"text": "one two three", "most": 2}))[0].state["words"] == 2
    with pytest.raises(InvalidParams):
        count.check({"most": 1})


def test_a_class_is_named_in_snake_case() -> None:
    """`CountWords` is called count_words, and its docstring describes it."""
    count = action(CountWords)
    assert (count.name, count.description) == ("count_words", "Count the words of a text.")


def test_parameters_are_checked_and_completed() -> None:
    """Defaults are filled in; the arguments are the action's own."""
    assert greet.check({"name": "Al"}) == {"name": "Al", "times": 1}
    assert greet.check(FrozenMap({"name": "Al", "times": 3})) == {"name": "Al", "times": 3}


@pytest.mark.parametrize(
    ("params", "field", "problem"),
    [
        ({}, "name", "is missing"),
        ({"name": 5}, "name", "expected `str`"),
        ({"name": "Al", "times": "2"}, "times", "expected `int`"),
        ({"name": "Al", "times": 0}, "times", ">= 1"),
        ({"name": "Al", "tmies": 2}, "tmies", "is an unknown field; use name, times"),
    ],
)
def test_wrong_parameters_are_refused_by_name(params: dict[str, Any], field: str, problem: str) -> None:
    """The error names action and parameter, and says what is wrong."""
    with pytest.raises(InvalidParams) as raised:
        greet.check(params)
    assert (raised.value.action, raised.value.parameter) == ("greet", field)
    assert problem in str(raised.value)
    assert raised.value.remedy


def test_a_wrong_parameter_inside_another_is_found_by_its_path() -> None:
    """Nested parameters are checked too."""

    @action
    def send(
        ctx: Context, to: list[Annotated[str, msgspec.Meta(min_length=1)]], how: Literal["a", "b"]
    ) -> None:
        return None

    with pytest.raises(InvalidParams) as raised:
        send.check({"to": ["x", ""], "how": "a"})
    assert raised.value.parameter == "to[1]"
    with pytest.raises(InvalidParams, match="how"):
        send.check({"to": [], "how": "c"})


def test_parameters_have_to_be_a_mapping() -> None:
    """A list or a number is refused."""
    wrong: list[Any] = [[], 5, None]
    for params in wrong:
        with pytest.raises(WrongType, match="params must be a mapping"):
            greet.check(params)


def test_an_action_gets_its_own_copy_of_mutable_parameters() -> None:
    """What it does to its arguments does not reach the caller."""

    @action
    def grow(ctx: Context, items: list[int]) -> dict[str, Any]:
        items.append(9)
        return {"items": items}

    mine = [1]
    for _ in range(2):
        agent, _ = Agent.new("a").cmd((grow, {"items": mine}))
        assert agent.state["items"] == [1, 9]
    assert mine == [1]


def test_mutable_defaults_are_not_shared_between_runs() -> None:
    """Not even deep inside."""

    @action
    def grow(ctx: Context, items: list[list[int]] = [[1]]) -> dict[str, Any]:  # noqa: B006 - the point of the test
        items[0].append(9)
        return {"items": items}

    for _ in range(2):
        assert Agent.new("a").cmd(grow)[0].state["items"] == [[1, 9]]


def test_a_parameter_may_be_one_of_our_values() -> None:
    """A Memory is handed through as it is."""

    @action
    def adopt(ctx: Context, memory: Memory) -> Memory:
        return memory

    mine = Memory.new().world_put("a", 1)
    assert Agent.new("a").cmd((adopt, {"memory": mine}))[0].state["__memory__"] == mine


@given(maps)
def test_a_frozen_parameter_arrives_as_it_was_given(value: dict[str, Any]) -> None:
    """Data that looks like the codec's own words is still just data."""

    @action
    def keep(ctx: Context, value: FrozenMap[str, Any]) -> dict[str, Any]:
        return {"kept": value}

    assert keep.check({"value": value})["value"] == value


def test_an_unannotated_parameter_takes_anything() -> None:
    """No annotation, no check."""

    @action
    def keep(ctx, value, other=None):  # type: ignore[no-untyped-def]
        return None

    assert keep.check({"value": {"a": 1}}) == {"value": {"a": 1}, "other": None}


def test_parameters_are_described_by_a_json_schema() -> None:
    """Models are told names, types, defaults and which are required."""
    schema = greet.json_schema()
    assert schema["type"] == "object"
    assert schema["required"] == ["name"]
    assert schema["properties"]["times"] == {"type": "integer", "minimum": 1, "default": 1}


def test_an_instruction_is_made_from_every_form() -> None:
    """An action, its name, either with parameters, or an instruction."""
    plain, full = Instruction(action="greet"), Instruction(action="greet", params={"name": "Al"})
    assert [Instruction.of(like) for like in (greet, "greet", plain)] == [plain] * 3
    assert [Instruction.of((like, {"name": "Al"})) for like in (greet, "greet", plain)] == [full] * 3
    assert Instruction.normalize([greet, ("greet", {"name": "Al"})]) == (plain, full)
    assert Instruction.of(greet).target is greet


@given(maps)
def test_an_instruction_survives_json_by_name(params: dict[str, Any]) -> None:
    """The action itself is code and not written; name and parameters are."""
    instruction = Instruction.of((greet, params))
    again = Instruction.from_json(instruction.to_json())
    assert again == instruction
    assert hash(again) == hash(instruction)
    assert again.target is None
    assert again != Instruction(action="other", params=params)


@pytest.mark.parametrize("like", [5, None, (), (5, {}), ("greet", {}, {}), {"action": "greet"}])
def test_what_is_no_action_is_refused(like: object) -> None:
    """The error says what to pass."""
    with pytest.raises(WrongType, match="an Action, its name, or"):
        Instruction.of(like)


def test_parameters_that_are_no_mapping_are_refused_by_name() -> None:
    """The error speaks of the parameters, not of the action."""
    with pytest.raises(WrongType, match="params must be a mapping, not int"):
        Instruction.of(("greet", 5))


def test_an_async_action_has_to_be_effectful() -> None:
    """A function or a class alike: what awaits does I/O."""

    async def slow(ctx: Context) -> None:
        return None

    class Slow:
        async def run(self, ctx: Context) -> None:
            return None

    for subject in (slow, Slow):
        with pytest.raises(InvalidDefinition, match=r"@action\(effectful=True\)"):
            action(subject)
        assert action(effectful=True)(subject).effectful


def unresolved(ctx: Context, amount: "OnlyForTypeCheckers") -> None:
    """Has an annotation that does not exist when the program runs."""


def starred(ctx: Context, *numbers: int) -> None: ...
def double_starred(ctx: Context, **numbers: int) -> None: ...
def positional(ctx: Context, number: int, /) -> None: ...
def without_context() -> None: ...
def unkeepable(ctx: Context, number: Annotated[str, msgspec.Meta(ge=1)]) -> None: ...


DECLARATIONS: dict[str, Callable[[], object]] = {
    "star": lambda: action(starred),
    "double star": lambda: action(double_starred),
    "positional only": lambda: action(positional),
    "no context": lambda: action(without_context),
    "unresolvable annotation": lambda: action(unresolved),
    "impossible annotation": lambda: action(unkeepable),
    "no function": lambda: action(cast("Any", 5)),
    "class without run": lambda: action(type("Idle", (), {})),
    "lambda without a name": lambda: action(lambda ctx: None),
    "name with a blank": lambda: action(name="a b")(greet.run),
    "name that is no text": lambda: action(name=cast("str", 5))(greet.run),
    "schema": lambda: action(schema=cast("type", 5))(greet.run),
    "schema without fields": lambda: action(schema=int)(greet.run),
    "description": lambda: action(description=cast("str", 5))(greet.run),
    "effectful": lambda: action(effectful=cast("bool", "yes"))(greet.run),
    "idempotent": lambda: action(idempotent=cast("bool", 1))(greet.run),
    "tags as text": lambda: action(tags=cast("Any", "web"))(greet.run),
    "tags as number": lambda: action(tags=cast("Any", 5))(greet.run),
    "empty tag": lambda: action(tags=("",))(greet.run),
    "Action: run": lambda: Action(name="a", run=cast("Any", 5), schema=greet.schema),
    "Action: schema": lambda: Action(name="a", run=greet.run, schema=cast("Schema", 5)),
    "Action: name": lambda: Action(name="", run=greet.run, schema=greet.schema),
    "Instruction: action": lambda: Instruction(action=""),
    "Instruction: name": lambda: Instruction(action="a b"),
    "Instruction: params": lambda: Instruction(action="a", params=cast("Any", 5)),
    "Instruction: target": lambda: Instruction(action="a", target=cast("Any", "a")),
}


@pytest.mark.parametrize("declare", DECLARATIONS.values(), ids=DECLARATIONS)
def test_an_action_declared_wrongly_is_refused_at_once(declare: Callable[[], object]) -> None:
    """Every part is checked when the action is declared, and the error says what to do."""
    with pytest.raises(Invalid) as raised:
        declare()
    assert raised.value.remedy
