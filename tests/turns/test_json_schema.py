"""Tests of classes made from JSON Schemas."""

import re
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from random import Random
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.strategies import json_data, text
from tests.support.work import StepCounter, sample

from omoide.core import Schema
from omoide.errors import Invalid, InvalidDefinition
from omoide.turns.json_schema import MAX_PATTERN_STEPS, type_from_schema

Even = Annotated[int, msgspec.Meta(ge=0, lt=10, multiple_of=2)]
Code = Annotated[str, msgspec.Meta(min_length=1, max_length=3, pattern="^a")]


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Inner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part."""

    x: int = 1


class Cat(msgspec.Struct, frozen=True, tag="cat"):
    lives: int = 9


class Dog(msgspec.Struct, frozen=True, tag="dog"):
    bones: list["Cat | Dog"] = []


class Pair(NamedTuple):
    left: int
    right: str = "z"


class Loose(TypedDict, total=False):
    size: int


class Tree(msgspec.Struct):
    """Refers to itself."""

    label: str = ""
    branches: list["Tree"] = []


class Whole(msgspec.Struct):
    count: int
    name: str | None = None
    share: float = 0.5
    open: bool = False
    inner: Inner = Inner()
    inners: list[Inner] = []
    by_name: dict[str, int] = {}
    by_code: dict[Code, int] = {}
    kinds: set[int] = msgspec.field(default_factory=set)
    two: tuple[int, str] = (1, "x")
    many: tuple[int, ...] = ()
    word: Literal["a", 3, None] = "a"
    colour: Colour = Colour.RED
    pet: Cat | Dog = Cat()
    pets: list[Cat | Dog | None] = []
    on: date | None = None
    at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    key: UUID | None = None
    raw: bytes = b""
    price: Decimal = Decimal("1.5")
    even: Even = 0
    code: Code = "a"
    anything: Any = None
    either: int | str | None = None
    unset: int | msgspec.UnsetType = msgspec.UNSET
    pair: Pair | None = None
    loose: Loose = {}
    tree: Tree = msgspec.field(default_factory=Tree)
    listed: Annotated[list[int], msgspec.Meta(max_length=2)] = []
    renamed: int = msgspec.field(default=0, name="not-a-name")
    klass: int = msgspec.field(default=0, name="class")


VALUES: dict[str, Any] = {
    "at": "2024-05-06T07:08:09Z",
    "on": "2024-05-06",
    "key": "0190163d-8694-739b-aea5-966c26f8ad91",
    "raw": "YWJj",
    "price": "2.50",
    "pet": {"type": "dog", "bones": [{"type": "cat"}, {"type": "dog", "bones": []}]},
    "pets": [None, {"type": "cat", "lives": 1}],
    "inner": {"x": 2},
    "tree": {"label": "a", "branches": [{"branches": [{"label": "b"}]}]},
    "pair": [1],
    "two": [2, "y"],
    "loose": {"size": 1, "other": 2},
}
OTHERS = st.sampled_from(
    [
        *VALUES.values(),
        "red",
        "abc",
        "a",
        3,
        4,
        [1, 1],
        [1, "x", 2],
        [{"x": "y"}],
        {"y": 1},
        {"type": "cow"},
        {"type": "dog", "bones": [{"type": "cow"}]},
        {"branches": [{"branches": 5}]},
        {"size": "big"},
        {"a": 1},
        {"b": 1},
    ]
)
FIELDS = tuple(Schema(Whole, "test").fields)


def accepts(kind: type, data: dict[str, Any]) -> bool:
    try:
        Schema(kind, "test").check(data)
    except Invalid:
        return False
    return True


again = type_from_schema(Schema(Whole, "test").json_schema(), "state_schema")


@pytest.mark.parametrize("field", FIELDS)
@given(data=st.data())
def test_the_class_made_from_a_schema_accepts_what_the_first_one_does(
    field: str, data: st.DataObject
) -> None:
    """For every type that a struct may have, good and bad values get the same verdict from both."""
    value = data.draw(OTHERS | json_data)
    given = {"count": 1, field: value}
    assert accepts(again, given) == accepts(Whole, given)


@pytest.mark.parametrize("field", VALUES)
def test_good_values_are_accepted(field: str) -> None:
    """What is written in a special form is taken by both."""
    assert accepts(Whole, {"count": 1, field: VALUES[field]})
    assert accepts(again, {"count": 1, field: VALUES[field]})


def test_the_same_fields_are_required_and_unknown() -> None:
    """What is missing or unknown is refused by name."""
    for kind in (Whole, again):
        for data, field in (({}, "count"), ({"count": 1, "cuont": 2}, "cuont")):
            with pytest.raises(Invalid) as raised:
                Schema(kind, "test").check(data)
            assert raised.value.field == field


def test_defaults_are_kept_as_data() -> None:
    """Each default is what the schema says, made anew each time."""
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "default": "Al"},
            "tags": {"type": "array", "items": {"type": "string"}, "default": ["a"]},
            "part": {"type": "object", "properties": {"x": {"type": "integer"}}, "default": {"x": 1}},
            "none": {"type": ["integer", "null"], "default": None},
        },
    }
    made = Schema(type_from_schema(schema, "s"), "test")
    assert made.defaults() == {"name": "Al", "tags": ["a"], "part": {"x": 1}, "none": None}
    made.defaults()["tags"].append("spoilt")
    assert made.defaults()["tags"] == ["a"]


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": ["string", "null"], "minLength": 2}, ["ab", None], ["a", 5]),
        ({"type": "string", "enum": ["a", "b"]}, ["a"], ["c", 1]),
        ({"const": "a"}, ["a"], ["b"]),
        ({"type": "integer", "minimum": 1, "maximum": 3}, [1, 3], [0, 4, 1.5, True]),
        ({"type": "number", "exclusiveMinimum": 0}, [1, 0.5], [0, "1"]),
        ({"type": "boolean"}, [True], [1, "true"]),
        ({"type": "null"}, [None], [0]),
        ({"type": "array"}, [[1, "a"]], [{}, "a"]),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1}, [["a"]], [[], [1]]),
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, [["a"]], [[1]]),
        ({"type": "object"}, [{}, {"a": 1}], [[], "a"]),
        ({"type": "object", "additionalProperties": False}, [{}], [{"a": 1}]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, [{"a": 1}], [{"a": "b"}]),
        ({"type": "object", "maxProperties": 1}, [{"a": 1}], [{"a": 1, "b": 2}]),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, [{"a": 1, "b": 2}], [{}]),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": False}, [{"a": 1}], [{"b": 1}]),
        ({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}, [1, [1]], ["a"]),
        ({}, [1, None, "a", [], {}], []),
        ({"title": "T", "description": "D", "$schema": "S", "type": "integer"}, [1], ["a"]),
    ],
)
def test_each_keyword_means_what_it_says(schema: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    """Good values pass, bad ones are refused."""
    made = type_from_schema({"type": "object", "properties": {"it": schema}}, "s")
    assert accepts(made, {})
    for value in good:
        assert accepts(made, {"it": value}), value
    for value in bad:
        assert not accepts(made, {"it": value}), value


def test_local_references_are_followed_even_in_circles() -> None:
    """A definition may refer to itself and to others."""
    tree = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}}
    made = type_from_schema(
        {"type": "object", "properties": {"tree": {"$ref": "#/$defs/Tree"}}, "$defs": {"Tree": tree}}, "s"
    )
    assert accepts(made, {"tree": {"kids": [{"kids": []}]}})
    assert not accepts(made, {"tree": {"kids": [{"kids": [5]}]}})


def test_a_class_that_holds_itself_is_understood() -> None:
    """The root of a schema may be what its parts refer to."""
    made = type_from_schema(Schema(Tree, "test").json_schema(), "s")
    assert accepts(made, {"branches": [{"branches": [{"label": "a"}]}]})
    assert not accepts(made, {"branches": [{"branches": [{"label": 5}]}]})


SLOW = [
    r"^(a+)+$", r"^(a|aa)+$", r"(a*)*b", r"^(\w+\s?)*$", r"(a+a+)+b", r"^(a?){25}a{25}$", r"^(?=(a+)+b)a",
    r".*.*b", r"^(.*)(.*)(.*)b", r"^(?:(?:){1000}){1000}", r"^(a+|b+|c+){1,20}$", r"^(?:a|(?:a|b)a){40}$",
]  # fmt: skip
QUICK = [
    r"^[a-z]+$", r"\d+", r"^[A-Z]{2,5}-\d+$", r"^\d{4}-\d\d-\d\d$", r"^(?:\d{1,3}\.){3}\d{1,3}$",
    r"^\S+@\S+$", r"^(?:[a-z]{1,20}-){0,3}[a-z]{1,20}$", r"yes|no", r"^#(?:[0-9a-f]{3}){1,2}$",
    r"(?i)^v\d+(?:\.\d{1,9})?",
]  # fmt: skip


def patterned(pattern: str, **limits: int) -> Any:
    return type_from_schema(
        {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern, **limits}}}, "result"
    )


@pytest.mark.parametrize("pattern", SLOW)
def test_a_pattern_that_may_take_very_long_is_refused(pattern: str) -> None:
    """The spec may come from anyone, and nothing could stop the search for a match."""
    with pytest.raises(InvalidDefinition, match="a has a pattern that may take very long on 1000"):
        patterned(pattern)


@pytest.mark.parametrize("pattern", QUICK)
def test_a_pattern_that_is_taken_ends_soon(pattern: str) -> None:
    """Its steps on texts that almost match are few, and longer texts are refused unread."""
    made, random = patterned(pattern), Random(pattern)
    with pytest.raises(msgspec.ValidationError, match="length <= 1000"):
        msgspec.json.decode(msgspec.json.encode({"a": "a" * 1001}), type=made)
    for _ in range(5):
        part = sample(pattern, 0, random) or "a"
        counter = StepCounter(re.compile(pattern))
        counter.search((part * 1000)[:999] + "\n", 0, 1000)
        assert counter.steps < 10 * MAX_PATTERN_STEPS


def test_a_shorter_text_allows_for_more_repetitions() -> None:
    """`maxLength` bounds the work as well as `^` and limits of repetitions do."""
    assert patterned(r"^(.*)-(.*)-(.*)$", maxLength=100)
    with pytest.raises(InvalidDefinition, match="on 1000 characters"):
        patterned(r"^(.*)-(.*)-(.*)$")


def inside(schema: object) -> dict[str, Any]:
    return {"type": "object", "properties": {"age": schema}}


AGE = "s.properties.age"


@pytest.mark.parametrize(
    ("schema", "field", "said"),
    [
        ({"type": "array"}, "s", "array"),
        ({}, "s", "None"),
        ({"type": "object", "allOf": []}, "s", "'allOf'"),
        ({"type": "object", "properties": []}, "s.properties", "object"),
        ({"type": "object", "properties": {"a": {}}, "required": ["b"]}, "s.required", "'b'"),
        ({"type": "object", "properties": {"a": {}}, "required": "a"}, "s.required", "array"),
        ({"type": "object", "properties": {}, "minProperties": 1}, "s", "'minProperties'"),
        ({"type": "object", "additionalProperties": {}}, "s.additionalProperties", "true or false"),
        ({"type": "object", "$defs": 5}, "s.$defs", "object"),
        (inside(5), AGE, "5"),
        (inside(False), AGE, "False"),
        (inside({"type": "text"}), f"{AGE}.type", "'text'"),
        (inside({"type": 5}), f"{AGE}.type", "5"),
        (inside({"type": "integer", "if": {}}), AGE, "'if'"),
        (inside({"type": "integer", "minLength": 1}), AGE, "'minLength'"),
        (inside({"minimum": 1}), AGE, "'minimum'"),
        (inside({"type": "integer", "minimum": "a"}), AGE, "constraint"),
        (inside({"type": "string", "minLength": -1}), AGE, "constraint"),
        (inside({"type": "string", "pattern": "("}), AGE, "constraint"),
        (inside({"type": "string", "format": "email"}), AGE, "'email'"),
        (inside({"type": "string", "format": ["email"]}), AGE, "email"),
        (inside({"type": "string", "contentEncoding": "base32"}), AGE, "'base32'"),
        (inside({"type": "string", "format": "date", "minLength": 1}), AGE, "'minLength'"),
        (inside({"type": "string", "enum": ["a", 5]}), f"{AGE}.enum", "5"),
        (inside({"enum": [1.5]}), f"{AGE}.enum", "1.5"),
        (inside({"enum": []}), f"{AGE}.enum", "empty"),
        (inside({"enum": "ab"}), f"{AGE}.enum", "'ab'"),
        (inside({"anyOf": []}), f"{AGE}.anyOf", "empty"),
        (inside({"anyOf": 5}), f"{AGE}.anyOf", "5"),
        (inside({"anyOf": [{"type": "string"}, {"type": "string", "format": "date"}]}), "s", "str-like"),
        (inside({}) | {"properties": {'a"b': {}}}, "s.properties", "into a class"),
        (
            inside({"type": "array", "items": {"type": "array"}, "uniqueItems": True}),
            f"{AGE}.uniqueItems",
            "text",
        ),
        (inside({"type": "array", "items": {"oneOf": []}}), f"{AGE}.items", "'oneOf'"),
        (inside({"type": "array", "prefixItems": [{}], "items": {}}), AGE, "prefixItems"),
        (inside({"type": "integer", "default": "a"}), f"{AGE}.default", "fit"),
        (inside({"$ref": "#/$defs/A"}), f"{AGE}.$ref", "#/$defs/A"),
        (inside({"$ref": "other.json"}), f"{AGE}.$ref", "other.json"),
        (inside({"$ref": 5}), f"{AGE}.$ref", "5"),
        (inside({"$ref": "#/$defs/A"}) | {"$defs": {"A": {"$ref": "#/$defs/A"}}}, "s.$defs.A.$ref", "back"),
        (
            inside({"$ref": "#/$defs/A"}) | {"$defs": {"A": {"type": "integer", "not": {}}}},
            "s.$defs.A",
            "'not'",
        ),
    ],
)
def test_what_is_not_understood_is_refused(schema: dict[str, Any], field: str, said: str) -> None:
    """The error names the place and the keyword."""
    with pytest.raises(InvalidDefinition) as raised:
        type_from_schema(schema, "s")
    assert raised.value.field == field
    assert said in str(raised.value)
    assert raised.value.remedy


@given(st.dictionaries(text, json_data, max_size=3), json_data)
def test_no_schema_does_worse_than_being_refused(properties: dict[str, Any], other: object) -> None:
    """Whatever the data is, there is a class or a typed error."""
    for schema in (
        {"type": "object", "properties": properties},
        inside(other),
        {"type": "object", "$defs": other},
    ):
        try:
            made = type_from_schema(schema, "s")
        except Invalid:
            continue
        assert isinstance(made, type)


def test_many_references_do_not_multiply() -> None:
    """A schema whose parts each refer twice to the next is read in no time."""
    defs: dict[str, Any] = {
        f"A{at}": {"anyOf": [{"$ref": f"#/$defs/A{at + 1}"}, {"$ref": f"#/$defs/A{at + 1}"}]}
        for at in range(60)
    }
    made = type_from_schema(
        inside({"$ref": "#/$defs/A0"}) | {"$defs": {**defs, "A60": {"type": "integer"}}}, "s"
    )
    assert accepts(made, {"age": 1})
    assert not accepts(made, {"age": "a"})
