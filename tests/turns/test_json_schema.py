"""Tests of checks against JSON Schemas."""

import json
import sys
import time as clock
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from tests.support.strategies import json_data, text

from omoide.core import Schema
from omoide.errors import Invalid, InvalidDefinition, MissingExtra, ModelMisbehaved
from omoide.turns import AgentSpec
from omoide.turns.json_schema import MAX_PARTS, SchemaDocument

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


BY_CLASS = AgentSpec(id="a", result=Whole)
READ_BACK = AgentSpec.from_json(BY_CLASS.to_json())


def answers(spec: AgentSpec, data: object) -> bool:
    """Return whether an answer has the shape of the spec's `result`."""
    try:
        spec.parse_output(json.dumps(data))
    except ModelMisbehaved:
        return False
    return True


def accepts(schema: dict[str, Any], data: dict[str, Any]) -> bool:
    try:
        SchemaDocument(schema, "s").check(data)
    except Invalid:
        return False
    return True


@pytest.mark.parametrize("name", FIELDS)
@given(data=st.data())
def test_a_schema_accepts_what_its_class_does(name: str, data: st.DataObject) -> None:
    """For every type that a struct may have, good and bad values get the same verdict from both."""
    given = {"count": 1, name: data.draw(OTHERS | json_data)}
    assert answers(READ_BACK, given) == answers(BY_CLASS, given)


@pytest.mark.parametrize("name", VALUES)
def test_good_values_are_accepted(name: str) -> None:
    """What is written in a special form is taken by both."""
    assert answers(BY_CLASS, {"count": 1, name: VALUES[name]})
    assert answers(READ_BACK, {"count": 1, name: VALUES[name]})


class Circle(BaseModel):
    kind: Literal["circle"] = "circle"
    radius: float


class Group(BaseModel):
    kind: Literal["group"]
    shapes: list[Annotated["Circle | Group", Field(discriminator="kind")]] = []


class Drawing(BaseModel):
    shape: Annotated[Circle | Group, Field(discriminator="kind")]


class Part(BaseModel):
    """Refers to itself, and so does its schema."""

    weight: int
    parts: list["Part"] = []


class Pets(msgspec.Struct):
    pet: Cat | Dog
    other: Cat | Dog | None = None


@dataclass
class Place:
    name: str
    at: datetime | None = None
    near: list["Place"] = field(default_factory=list)


class Links(TypedDict, total=False):
    name: str
    links: list["Links"]


SHAPES: list[tuple[type, list[object], list[object]]] = [
    (
        Drawing,
        [
            {"shape": {"kind": "circle", "radius": 1}},
            {"shape": {"kind": "group", "shapes": [{"kind": "circle", "radius": 1}, {"kind": "group"}]}},
        ],
        [
            {"shape": {"kind": "square"}},
            {"shape": {"radius": 1}},
            {"shape": {"kind": "circle", "radius": "1"}},
            {"shape": {"kind": "group", "shapes": [{"kind": "circle"}]}},
            {"shape": None},
            {},
        ],
    ),
    (
        Part,
        [{"weight": 1}, {"weight": 1.0}, {"weight": 1, "parts": [{"weight": 2, "parts": [{"weight": 3}]}]}],
        [
            {"weight": "1"},
            {"weight": 1.5},
            {"weight": True},
            {"weight": 1, "parts": [{"weight": 1, "parts": [{}]}]},
        ],
    ),
    (
        Pets,
        [
            {"pet": {"type": "cat"}},
            {"pet": {"type": "dog", "bones": [{"type": "cat", "lives": 1}]}, "other": None},
        ],
        [
            {"pet": {}},
            {"pet": {"type": "cow"}},
            {"pet": None},
            {"pet": {"type": "dog", "bones": [{"type": "cat", "lives": "1"}]}},
        ],
    ),
    (
        Place,
        [
            {"name": "A"},
            {"name": "A", "at": "2026-05-06T07:08:09Z", "near": [{"name": "B"}]},
            {"name": "A", "why": 1},
        ],
        [{"name": 1}, {"name": "A", "at": 5}, {"name": "A", "near": [{"name": "B", "near": [{}]}]}],
    ),
    (Links, [{}, {"links": [{"name": "a", "links": []}]}], [{"links": [{"name": 1}]}, {"links": {}}]),
]


@pytest.mark.parametrize(("kind", "good", "bad"), SHAPES, ids=[kind.__name__ for kind, _, _ in SHAPES])
def test_a_result_means_the_same_as_a_class_and_read_back(
    kind: type, good: list[object], bad: list[object]
) -> None:
    """Discriminated unions and recursive models get the verdict of the class from its JSON Schema."""
    given = AgentSpec(id="a", result=kind)
    read = AgentSpec.from_json(given.to_json())
    for spec in (given, read):
        assert [data for data in good if not answers(spec, data)] == []
        assert [data for data in bad if answers(spec, data)] == []


def test_an_error_names_the_field_of_the_chosen_variant() -> None:
    """The tag decides which variant is checked, so that the problem is one field's, not that of the union."""
    document = SchemaDocument(Schema(Drawing, "test").json_schema(), "s")
    deep = {"kind": "group", "shapes": [{"kind": "circle"}]}
    for data, field_, problem in (
        ({"shape": deep}, "shape.shapes[0].radius", "is missing"),
        ({"shape": {"kind": "circle", "radius": "x"}}, "shape.radius", '"number"'),
        ({"shape": {"kind": "square"}}, "shape.kind", '"circle" or "group"'),
        ({"shape": {}}, "shape.kind", "is missing"),
        ({"shape": {"kind": "circle", "radius": 1}, "spahe": 1}, "spahe", "unknown"),
    ):
        with pytest.raises(Invalid) as raised:
            document.check(data)
        assert raised.value.field == field_
        assert problem in str(raised.value)


def test_an_error_does_not_repeat_the_value() -> None:
    """What an answer holds may be a secret, or very long."""
    with pytest.raises(Invalid) as raised:
        SchemaDocument(inside({"type": "integer"}), "s").check({"age": "hunter2"})
    assert "hunter2" not in str(raised.value)


def test_defaults_are_kept_as_data() -> None:
    """Each default is what the schema says, made anew each time."""
    made = SchemaDocument(
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "default": "Al"},
                "tags": {"type": "array", "items": {"type": "string"}, "default": ["a"]},
                "part": {"type": "object", "properties": {"x": {"type": "integer"}}, "default": {"x": 1}},
                "none": {"type": ["integer", "null"], "default": None},
            },
            "required": ["name", "more"],
        },
        "s",
    )
    assert made.defaults() == {"name": "Al", "tags": ["a"], "part": {"x": 1}, "none": None}
    made.defaults()["tags"].append("spoilt")
    assert made.defaults()["tags"] == ["a"]


OBJECT = {"type": "object"}
FORMS: list[tuple[Any, list[Any], list[Any]]] = [
    ({"type": ["string", "null"], "minLength": 2}, ["ab", None], ["a", 5]),
    ({"type": "string", "maxLength": 2}, ["ab"], ["abc"]),
    ({"type": "string", "pattern": "^a+$"}, ["aa"], ["ab"]),
    ({"type": "string", "pattern": "^(?!.*secret).*$"}, ["plain"], ["a secret"]),
    (
        {"type": "string", "format": "date-time"},
        ["2026-05-06T07:08:09Z", "2026-05-06T07:08:09"],
        ["May", "2026"],
    ),
    ({"type": "string", "format": "date"}, ["2026-05-06"], ["2026-13-06"]),
    ({"type": "string", "format": "time"}, ["07:08:09Z"], ["25:00:00Z"]),
    ({"type": "string", "format": "duration"}, ["P1DT2H"], ["1 day"]),
    ({"type": "string", "format": "uuid"}, ["0190163d-8694-739b-aea5-966c26f8ad91"], ["0190163d"]),
    ({"type": "string", "format": "email"}, ["a@example.com"], ["a"]),
    ({"type": "string", "format": "ipv4"}, ["127.0.0.1"], ["127.0.0.256"]),
    ({"type": "string", "format": "uri"}, ["https://example.com/a"], ["not a uri"]),
    ({"type": "string", "format": "of-our-own"}, ["anything"], [5]),
    ({"type": "string", "contentEncoding": "base64"}, ["YWJj"], ["*"]),
    ({"type": "string", "enum": ["a", "b"]}, ["a"], ["c", 1]),
    ({"enum": ["a", 1.5, None, {"b": [1]}]}, ["a", 1.5, None, {"b": [1]}], ["b", 1, {}]),
    ({"const": {"a": 1}}, [{"a": 1}], [{"a": 2}, 1]),
    ({"type": "integer", "minimum": 1, "maximum": 3}, [1, 3], [0, 4, 1.5, True]),
    ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 2}, [1, 0.5], [0, 2, "1"]),
    ({"type": "number", "multipleOf": 0.5}, [1.5], [1.3]),
    ({"type": "boolean"}, [True], [1, "true"]),
    ({"type": "null"}, [None], [0]),
    ({"type": "array"}, [[1, "a"]], [{}, "a"]),
    (
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
        [["a"]],
        [[], [1], ["a"] * 3],
    ),
    ({"type": "array", "items": {"type": "array"}, "uniqueItems": True}, [[[1], [2]]], [[[1], [1]]]),
    (
        {"type": "array", "prefixItems": [{"type": "integer"}], "items": {"type": "string"}},
        [[1, "a"]],
        [["a"], [1, 2]],
    ),
    ({"type": "array", "contains": {"const": 1}, "maxContains": 1}, [[0, 1]], [[0], [1, 1]]),
    (OBJECT, [{}, {"a": 1}], [[], "a"]),
    ({**OBJECT, "additionalProperties": False}, [{}], [{"a": 1}]),
    ({**OBJECT, "additionalProperties": {"type": "integer"}}, [{"a": 1}], [{"a": "b"}]),
    (
        {**OBJECT, "properties": {"a": {}}, "additionalProperties": {"type": "integer"}},
        [{"a": "b", "c": 1}],
        [{"c": ""}],
    ),
    ({**OBJECT, "minProperties": 1, "maxProperties": 1}, [{"a": 1}], [{}, {"a": 1, "b": 2}]),
    ({**OBJECT, "properties": {"a": {}}, "minProperties": 2}, [{"a": 1, "b": 1}], [{"a": 1}]),
    ({**OBJECT, "properties": {"a": {}}, "required": ["a", "b"]}, [{"a": 1, "b": 2}], [{}, {"a": 1}]),
    ({**OBJECT, "patternProperties": {"^n_": {"type": "integer"}}}, [{"n_a": 1, "b": "c"}], [{"n_a": "b"}]),
    ({**OBJECT, "propertyNames": {"maxLength": 1}}, [{"a": 1}], [{"ab": 1}]),
    ({**OBJECT, "dependentRequired": {"a": ["b"]}}, [{"a": 1, "b": 1}, {}], [{"a": 1}]),
    ({**OBJECT, "dependentSchemas": {"a": {"required": ["b"]}}}, [{"a": 1, "b": 1}, {}], [{"a": 1}]),
    ({"allOf": [{"minimum": 1}, {"type": "integer"}]}, [1], [0, 1.5]),
    ({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}, [1, [1]], ["a"]),
    ({"oneOf": [{"multipleOf": 2}, {"multipleOf": 3}]}, [2, 3], [1, 6]),
    ({"not": {"type": "string"}}, [1], ["a"]),
    ({"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"minimum": 2}}, ["ab", 2], ["a", 1]),
    (
        {"allOf": [{**OBJECT, "properties": {"a": {}}}], "unevaluatedProperties": False},
        [{"a": 1}],
        [{"b": 1}],
    ),
    ({"prefixItems": [{}], "unevaluatedItems": False}, [[1]], [[1, 2]]),
    ({}, [1, None, "a", [], {}], []),
    (True, [1, None], []),
    (False, [], [1, None]),
    ({"title": "T", "description": "D", "x-own": "S", "type": "integer"}, [1], ["a"]),
]


@pytest.mark.parametrize(("schema", "good", "bad"), FORMS)
def test_each_keyword_means_what_it_says(schema: Any, good: list[Any], bad: list[Any]) -> None:
    """Good values pass, bad ones are refused by the name of their field."""
    document = SchemaDocument({"type": "object", "properties": {"it": schema}}, "s")
    document.check({})
    for value in good:
        document.check({"it": value})
    for value in bad:
        with pytest.raises(Invalid) as raised:
            document.check({"it": value})
        assert raised.value.field.startswith("it"), value


def test_references_are_followed_even_in_circles() -> None:
    """A definition may refer to itself and to others, by the older word as well, and so may the root."""
    tree = {
        "type": "object",
        "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/a~1b%20c"}}},
    }
    for schema in (
        {"type": "object", "properties": {"tree": {"$ref": "#/$defs/a~1b%20c"}}, "$defs": {"a/b c": tree}},
        {
            "$ref": "#/$defs/Top",
            "$defs": {"Top": {"type": "object", "properties": {"tree": tree}}, "a/b c": tree},
        },
    ):
        assert accepts(schema, {"tree": {"kids": [{"kids": []}]}})
        assert not accepts(schema, {"tree": {"kids": [{"kids": [5]}]}})
        assert not accepts(schema, {"tere": {}})
    older = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"pair": {"$ref": "#/definitions/Pair"}},
        "definitions": {"Pair": {"type": "array", "items": [{"type": "integer"}, {"type": "string"}]}},
    }
    assert accepts(older, {"pair": [1, "a"]})
    assert not accepts(older, {"pair": ["a", 1]})


HOSTILE_PATTERNS = [
    r"^(a+)+$", r"^(a|aa)+$", r"(a*)*b", r"^(\w+\s?)*$", r"(a+a+)+b", r"^(a?){25}a{25}$", r"^(?=(a+)+b)a",
    r".*.*b", r"^(.*)(.*)(.*)b", r"^(?:(?:){1000}){1000}", r"^(a+|b+|c+){1,20}$", r"^(?:a|(?:a|b)a){40}$",
    r"(?=.*c)a", r"(?<!b.*)c", r"((?=a)a+)+b", r"(.*)(.*)(.*)\1c", r"(?=(?:.*(?=.*c).*)*c)a",
    r"(?:[ab]{1,40}){1,40}c", r"[ab]*a[ab]{500}c", r"(?:a{1000}){1000}",
]  # fmt: skip


@pytest.mark.parametrize("pattern", HOSTILE_PATTERNS)
def test_no_pattern_takes_long(pattern: str) -> None:
    """It is refused when the spec is used, or ends soon on the texts that take it the longest."""
    start = clock.process_time()
    with pytest.raises(Invalid) as raised:  # noqa: PT012
        document = SchemaDocument(inside({"type": "string", "pattern": f"{pattern}never"}), "result")
        for text_ in ("a" * 999 + "!", "a" * 9_999 + "!", "ab" * 5_000, "a b" * 300):
            with pytest.raises(Invalid, match="age"):
                document.check({"age": text_})
        document.check({"age": "a" * 30_000})
    assert raised.value.field in ("age", "result.properties.age.pattern")
    assert clock.process_time() - start < 1  # backtracking takes days


def test_text_with_a_pattern_has_a_longest_length() -> None:
    """Look-around reads a text once for each of its characters, so it has a lower limit."""
    for pattern, most in (("^a*$", 10_000), ("^(?=a)a*$", 1_000)):
        schema = inside({"type": "string", "pattern": pattern})
        assert accepts(schema, {"age": "a" * most})
        with pytest.raises(Invalid, match=f"longer than {most} characters"):
            SchemaDocument(schema, "s").check({"age": "a" * (most + 1)})
    with pytest.raises(InvalidDefinition, match="looks around"):
        SchemaDocument({"type": "object", "patternProperties": {"(?=a)b": {}}}, "s")


def nested(levels: int, leaf: object = "bad") -> object:
    for _ in range(levels):
        leaf = [leaf]
    return leaf


def test_choices_do_not_multiply_without_bounds() -> None:
    """Schemas whose choices lead to each other would take 2 to the power of their number of steps."""
    defs: dict[str, Any] = {
        f"A{at}": {"anyOf": [{"$ref": f"#/$defs/A{at + 1}"}, {"$ref": f"#/$defs/A{at + 1}"}]}
        for at in range(60)
    }
    chain = inside({"$ref": "#/$defs/A0"}) | {"$defs": {**defs, "A60": {"type": "integer"}}}
    lists = [
        {"type": "array", "items": {"$ref": "#/$defs/E"}},
        {"type": "array", "items": {"$ref": "#/$defs/E"}},
    ]
    tree = inside({"$ref": "#/$defs/E"}) | {"$defs": {"E": {"anyOf": [*lists, {"type": "integer"}]}}}
    marks = {"anyOf": [{"properties": {"c": {"$ref": "#/$defs/T"}}}] * 2, "unevaluatedProperties": False}
    marked = inside({"$ref": "#/$defs/T"}) | {"$defs": {"T": marks}}
    links: Any = {}
    for _ in range(40):
        links = {"c": links}
    start = clock.process_time()
    for schema, value in ((chain, 1), (chain, "a"), (tree, nested(40)), (marked, links)):
        with pytest.raises(Invalid, match="nested too deep, for the choices"):
            SchemaDocument(schema, "s").check({"age": value})
    assert accepts(tree, {"age": nested(8, 1)})
    assert not accepts(tree, {"age": nested(8)})
    assert clock.process_time() - start < 1


def test_a_tag_leaves_one_choice() -> None:
    """Discriminated unions may be nested deep: only the variant with the tag is checked."""
    shape: dict[str, Any] = {"kind": "circle", "radius": 1}
    for _ in range(40):
        shape = {"kind": "group", "shapes": [{"kind": "circle", "radius": 2}, shape]}
    assert accepts(Schema(Drawing, "test").json_schema(), {"shape": shape})


def inside(schema: object) -> dict[str, Any]:
    return {"type": "object", "properties": {"age": schema}}


AGE = "s.properties.age"


@pytest.mark.parametrize(
    ("schema", "field", "said"),
    [
        ({"type": "array"}, "s", "array"),
        ({}, "s", "None"),
        ({"type": 5}, "s", "5"),
        ({"type": "object", "properties": []}, "s.properties", "object"),
        ({"type": "object", "required": "a"}, "s.required", "array"),
        ({"type": "object", "allOf": {}}, "s.allOf", "array"),
        ({"type": "object", "$defs": 5}, "s.$defs", "object"),
        ({"type": "object", "$schema": "https://example.com/own"}, "s", "example.com"),
        (inside(5), AGE, "5"),
        (inside({"type": "text"}), f"{AGE}.type", "type"),
        (inside({"if": 5}), f"{AGE}.if", "5"),
        (inside({"type": "integer", "minimum": "a"}), f"{AGE}.minimum", "number"),
        (inside({"type": "string", "minLength": -1}), f"{AGE}.minLength", "minimum"),
        (inside({"type": "string", "pattern": "("}), f"{AGE}.pattern", "regex"),
        (inside({"enum": "ab"}), f"{AGE}.enum", "array"),
        (inside({"anyOf": []}), f"{AGE}.anyOf", "item"),
        (inside({"anyOf": 5}), f"{AGE}.anyOf", "array"),
        (inside({"type": "integer", "default": "a"}), f"{AGE}.default", "fit"),
        (inside({"$ref": "#/$defs/A"}), f"{AGE}.$ref", "#/$defs/A"),
        (inside({"$ref": "other.json"}), f"{AGE}.$ref", "other.json"),
        (inside({"$ref": "https://example.com/a.json"}), f"{AGE}.$ref", "example.com"),
        (inside({"$ref": "file:///etc/passwd"}), f"{AGE}.$ref", "passwd"),
        (inside({"$ref": 5}), f"{AGE}.$ref", "5"),
        (inside({"$ref": "#/properties/age"}), "s.$ref", "back"),
        (inside({"$ref": "#/x"}) | {"x": {"anyOf": []}}, "s.$ref", "no schema"),
        (inside({"$dynamicRef": "#a"}), AGE, "$dynamicRef"),
        (inside({"$id": "https://example.com/b"}), AGE, "$id"),
        ({"$ref": "#"}, "s.$ref", "back"),
        (inside({"allOf": [{}] * MAX_PARTS}), "s", "parts"),
    ],
)
def test_what_is_no_schema_is_refused(schema: dict[str, Any], field: str, said: str) -> None:
    """The error names the place, and nothing outside the schema is read."""
    with pytest.raises(InvalidDefinition) as raised:
        SchemaDocument(schema, "s")
    assert raised.value.field == field
    assert said in str(raised.value)
    assert raised.value.remedy


def test_a_long_chain_of_references_is_refused() -> None:
    """It would not fit on the stack."""
    defs: dict[str, Any] = {f"A{at}": {"$ref": f"#/$defs/A{at + 1}"} for at in range(5_000)}
    with pytest.raises(InvalidDefinition, match="nested too deep"):
        SchemaDocument(inside({"$ref": "#/$defs/A0"}) | {"$defs": {**defs, "A5000": {}}}, "s")


@given(st.dictionaries(text, json_data, max_size=3), json_data)
def test_no_schema_does_worse_than_being_refused(properties: dict[str, Any], other: object) -> None:
    """Whatever the data is, there is a schema or a typed error."""
    for schema in (
        {"type": "object", "properties": properties},
        inside(other),
        {"type": "object", "$defs": other},
        {"type": "object", "allOf": [other]},
    ):
        try:
            made = SchemaDocument(schema, "s")
        except Invalid:
            continue
        assert made.json_schema() == schema


def test_a_spec_that_was_read_needs_the_extra_and_a_class_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the spec is read all the same, and its class can be attached."""
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)

    class Alone(msgspec.Struct):
        name: str

    given = AgentSpec(id="without", result=Alone, state_schema=Alone)
    read = AgentSpec.from_json(given.to_json())
    assert answers(given, {"name": "Al"})
    assert answers(read.bind(result=Alone), {"name": "Al"})
    for use in (read.output_schema, read.definition):
        with pytest.raises(MissingExtra, match=r"omoide\[schemas\]"):
            use()
