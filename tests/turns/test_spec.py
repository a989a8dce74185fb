"""Tests of agent specs: forms, equality, JSON and YAML."""

import re
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.strategies import json_data, maps, names, text

from omoide import Agent, Context, Plugin, action
from omoide.core import codec
from omoide.errors import (
    Invalid,
    InvalidDefinition,
    InvalidRecord,
    InvalidState,
    MissingExtra,
    NotFound,
    WrongType,
)
from omoide.turns import AgentSpec, Limits, MemoryPolicy, Window
from omoide.turns.spec import MAX_YAML_BYTES


@action
def look_up(ctx: Context, text: str) -> None:
    """Look something up."""


@action
def erase(ctx: Context) -> None:
    """Erase everything."""


@action
def note(ctx: Context) -> None:
    """Note something down."""


class NotesConfig(msgspec.Struct):
    limit: int = 3


class Notes(Plugin):
    name = "notes"
    actions = (note,)
    config_schema = NotesConfig


class Clock(Plugin):
    name = "clock"


class State(msgspec.Struct):
    """What it keeps."""

    visits: int = 0
    tags: list[str] = []


class Answer(pydantic.BaseModel):
    city: str


SCHEMA = {
    "type": "object",
    "properties": {"visits": {"type": "integer", "default": 0}, "name": {"type": "string"}},
}


def spec(**fields: Any) -> AgentSpec:
    return AgentSpec(**{"id": "helper", **fields})


FULL: dict[str, Any] = {
    "description": "Helps.",
    "model": "openai:gpt-4o-mini",
    "base_url": "http://localhost:8000/v1",
    "generation": {"temperature": 0.2, "stop": ["END"]},
    "instructions": "Be brief.",
    "tools": [look_up, "erase"],
    "approve": [erase],
    "plugins": [(Notes, {"limit": 5}), Notes({"limit": 6}, alias="old"), Clock, "other"],
    "memory": MemoryPolicy(scope="session", namespace=("context", "tenant")),
    "state_schema": State,
    "result": Answer,
    "limits": Limits(max_rounds=3),
    "window": Window(minimum_recent_turns=2),
    "metadata": {"since": datetime(2024, 1, 2, tzinfo=UTC), "$map": {"$set": 1}},
}


def test_a_spec_needs_nothing_but_an_id() -> None:
    """Everything else has a default, and the default of memory is none."""
    made = spec()
    plain = codec.to_builtins(made)
    assert plain.pop("limits") == codec.to_builtins(Limits())
    assert plain.pop("window") == codec.to_builtins(Window())
    assert plain == {
        "id": "helper",
        "description": "",
        "model": None,
        "base_url": None,
        "generation": {},
        "instructions": "",
        "tools": [],
        "approve": [],
        "plugins": {},
        "memory": None,
        "state_schema": None,
        "result": None,
        "metadata": {},
    }


def test_what_is_written_is_data_only() -> None:
    """Tools and plugins are named, a class becomes its JSON Schema, and no code goes into the JSON."""
    made = spec(**FULL)
    plain = codec.to_builtins(made)
    assert plain["tools"] == ["look_up", "erase"]
    assert plain["approve"] == ["erase"]
    assert plain["plugins"] == {"clock": {}, "notes": {"limit": 5}, "notes:old": {"limit": 6}, "other": {}}
    assert plain["state_schema"]["properties"]["visits"] == {"type": "integer", "default": 0}
    assert plain["result"]["required"] == ["city"]
    assert plain["memory"]["namespace"] == ["context", "tenant"]
    assert not AgentSpec.EXCLUDED_FIELDS & plain.keys()
    assert made.actions == (look_up,)
    assert [part.label for part in made.bound_plugins] == ["clock", "notes", "notes:old"]
    assert (made.state_class, made.result_class) == (State, Answer)


@pytest.mark.parametrize("field", FULL)
def test_every_field_survives_json_and_yaml(field: str) -> None:
    """Alone and beside the tools it may speak of, each field is read back as it was."""
    made = spec(**{"tools": FULL["tools"], field: FULL[field]})
    assert made != spec(tools=FULL["tools"]) or field == "tools"
    for again in (AgentSpec.from_json(made.to_json()), AgentSpec.from_yaml(made.to_yaml())):
        assert again == made
        assert hash(again) == hash(made)
        assert again.to_json() == made.to_json()
        assert again.to_yaml() == made.to_yaml()


specs = st.builds(
    AgentSpec,
    id=st.sampled_from(["helper", "a b", "名"]),
    description=text,
    model=st.none() | names,
    generation=maps,
    instructions=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    tools=st.just(("look_up", "erase")),
    approve=st.sampled_from([(), ("erase",)]),
    plugins=st.dictionaries(st.sampled_from(["notes", "notes:old", "clock"]), maps),
    memory=st.none() | st.builds(MemoryPolicy, metadata=maps),
    state_schema=st.none() | st.dictionaries(text, json_data, max_size=3),
    limits=st.builds(Limits, max_rounds=st.integers(1, 2**60)),
    metadata=maps,
)


@given(specs)
def test_any_spec_survives_json_and_yaml(made: AgentSpec) -> None:
    """The same spec is read from what was written, and writes the same bytes."""
    for again in (AgentSpec.from_json(made.to_json()), AgentSpec.from_yaml(made.to_yaml())):
        assert again == made
        assert again.to_json() == made.to_json()


def test_the_bytes_do_not_depend_on_the_order_of_keys() -> None:
    """Maps are written sorted, so equal specs have equal bytes."""
    one = spec(generation={"a": 1, "b": 2}, plugins={"notes": {}, "clock": {}}, metadata={"x": 1, "y": 2})
    other = spec(metadata={"y": 2, "x": 1}, plugins=["clock", "notes"], generation={"b": 2, "a": 1})
    assert one == other
    assert one.to_json() == other.to_json()
    assert one.to_yaml() == other.to_yaml()


def test_code_does_not_count_in_a_comparison() -> None:
    """A spec is equal to the one that was read from it, and to no other."""
    bare = AgentSpec.from_json(spec(**FULL).to_json())
    assert bare == spec(**FULL)
    assert bare.actions == bare.bound_plugins == ()
    assert bare != bare.replace(instructions="Be long.")
    assert bare != "helper"


def test_a_spec_is_made_from_a_mapping_or_another() -> None:
    """`new` takes the forms of the constructor, and keeps the code of a spec it is given."""
    made = spec(**FULL)
    assert AgentSpec.new({"id": "helper", **FULL}) == AgentSpec.new(id="helper", **FULL) == made
    again = AgentSpec.new(made, instructions="Be long.")
    assert again.instructions == "Be long."
    assert (again.actions, again.bound_plugins, again.state_class) == (
        made.actions,
        made.bound_plugins,
        made.state_class,
    )
    assert AgentSpec.new(id=7).id == "7"
    assert AgentSpec.new(id="a", limits={"max_rounds": 2}, memory={"retrieve": {"limit": 2}}) == AgentSpec(
        id="a", limits={"max_rounds": 2}, memory={"max_entries": 2}
    )


def test_code_that_is_not_listed_any_more_is_let_go() -> None:
    """A spec changed by `replace` holds the code of what it still names, as it still says it."""
    made = spec(**FULL)
    assert made.replace(tools=["erase"]).actions == ()
    changed = made.replace(plugins={"notes": {"limit": 9}, "clock": {}})
    assert [part.label for part in changed.bound_plugins] == ["clock"]
    assert made.replace(state_schema=SCHEMA).state_class is None


@pytest.mark.parametrize(
    ("given_as", "policy"),
    [
        (True, MemoryPolicy()),
        (False, None),
        (None, None),
        ({"namespace": "session"}, MemoryPolicy(scope="session")),
        ({"namespace": {"context": "tenant"}}, MemoryPolicy(namespace=("context", "tenant"))),
        ({"max_entries": "3", "metadata": {"a": 1}}, MemoryPolicy(max_entries=3, metadata={"a": 1})),
    ],
)
def test_memory_is_given_in_any_form(given_as: Any, policy: MemoryPolicy | None) -> None:
    """In Python, JSON and YAML the short and the older forms mean the same."""
    data = msgspec.json.encode({"id": "helper", "memory": given_as})
    assert spec(memory=given_as).memory == policy
    assert AgentSpec.new(id="helper", memory=given_as).memory == policy
    assert AgentSpec.from_json(data).memory == policy
    assert AgentSpec.from_yaml(data).memory == policy


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"id": ""}, "id"),
    ({"id": "a\nb"}, "id"),
    ({"description": 5}, "description"),
    ({"model": ""}, "model"),
    ({"instructions": None}, "instructions"),
    ({"instructions": "a\0b"}, "instructions"),
    ({"base_url": "localhost:8000"}, "base_url"),
    ({"base_url": "ftp://host/"}, "base_url"),
    ({"base_url": "http://"}, "base_url"),
    ({"base_url": "http://[::1"}, "base_url"),
    ({"base_url": "http://host:port"}, "base_url"),
    ({"base_url": "http://a host/"}, "base_url"),
    ({"generation": [1]}, "generation"),
    ({"tools": "look_up"}, "tools"),
    ({"tools": ["look up"]}, "tools[0]"),
    ({"tools": ["a", 5]}, "tools[1]"),
    ({"tools": ["a", "a"]}, "tools[1]"),
    ({"approve": ["a"]}, "approve[0]"),
    ({"approve": "a"}, "approve"),
    ({"plugins": 5}, "plugins"),
    ({"plugins": [5]}, "plugins"),
    ({"plugins": ["a b"]}, "plugins[0]"),
    ({"plugins": {"a:b:c": {}}}, "plugins[0]"),
    ({"plugins": {"a": 5}}, "plugins.a"),
    ({"memory": 5}, "memory"),
    ({"memory": {"scope": "all"}}, "memory.scope"),
    ({"memory": {"namespace": "shared"}}, "memory.shared_namespace"),
    ({"memory": {"retrieve": 5}}, "memory.retrieve"),
    ({"state_schema": 5}, "state_schema"),
    ({"result": []}, "result"),
    ({"limits": {"max_rounds": 0}}, "limits.max_rounds"),
    ({"limits": {"rounds": 1}}, "limits.rounds"),
    ({"limits": 5}, "limits"),
    ({"window": {"max_tokens": 0}}, "window.max_tokens"),
    ({"metadata": 5}, "metadata"),
    ({"colour": "red"}, "colour"),
]


@pytest.mark.parametrize(("wrong", "field"), WRONG)
def test_what_is_wrong_is_named(wrong: dict[str, Any], field: str) -> None:
    """Whether it was given or read, the error names the field, and a part of a spec names itself."""
    with pytest.raises(
        InvalidRecord, match=r"^invalid (agent spec|memory policy|limits|window): "
    ) as given_wrong:
        AgentSpec.new({"id": "helper", **wrong})
    assert field.endswith(given_wrong.value.field)
    data = msgspec.json.encode({"id": "helper", **wrong})
    for read in (AgentSpec.from_json, AgentSpec.from_yaml):
        with pytest.raises(Invalid) as read_wrong:
            read(data)
        at = read_wrong.value.field
        assert at.startswith("AgentSpec") or not read_wrong.value.FIELD_IS_PATH
        assert field.partition(".")[0].partition("[")[0] in at
        assert read_wrong.value.remedy


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"tools": [print]}, "tools[0]"),
        ({"tools": [look_up, "look_up"]}, "tools[1]"),
        ({"plugins": [Notes, Notes]}, "plugins[1]"),
        ({"plugins": [int]}, "plugins"),
        ({"plugins": [(Notes, {"limit": "x"})]}, "plugin 'notes': config.limit"),
        ({"state_schema": int}, "schema of state_schema"),
        ({"state_schema": {"default": datetime(2024, 1, 1)}}, "state_schema.default"),  # noqa: DTZ001
        ({"actions": [5]}, "actions[0]"),
        ({"bound_plugins": [5]}, "bound_plugins[0]"),
        ({}, "id"),
    ],
)
def test_wrong_code_is_named(wrong: dict[str, Any], field: str) -> None:
    """What is no action, no plugin and no shape is refused where it is given."""
    with pytest.raises(InvalidRecord, match=r"^invalid agent spec: ") as raised:
        AgentSpec.new(wrong if field == "id" else {"id": "helper", **wrong})
    assert raised.value.field == field


@pytest.mark.parametrize("name", sorted(AgentSpec.EXCLUDED_FIELDS))
def test_code_cannot_be_read(name: str) -> None:
    """A field that holds code is refused in JSON, and refused inside of other data."""

    class Holder(msgspec.Struct):
        held: AgentSpec

    plain = {"id": "helper", name: [{"name": "x"}]}
    for read in (AgentSpec.from_json, AgentSpec.from_yaml):
        with pytest.raises(Invalid, match=f"AgentSpec.{name} is code, not data"):
            read(msgspec.json.encode(plain))
    with pytest.raises(Invalid, match=name):
        codec.from_builtins({"held": plain}, Holder)
    made = spec(**FULL)
    assert codec.from_builtins({"held": codec.to_builtins(made)}, Holder).held == made


# With its code


def test_code_is_attached_by_name() -> None:
    """What was read does what was written, once it is bound to the same code."""
    made = spec(**FULL | {"tools": [look_up, erase], "plugins": [(Notes, {"limit": 5}), Clock]})
    code: dict[str, Any] = {
        "tools": [erase, look_up],
        "plugins": [Clock(), Notes],
        "schema": State,
        "result": Answer,
    }
    for again in (
        AgentSpec.from_json(made.to_json(), **code),
        AgentSpec.from_yaml(made.to_yaml(), **code),
        AgentSpec.from_json(made.to_json()).bind(**code),
    ):
        assert again == made
        assert set(again.actions) == {look_up, erase}
        assert (again.bound_plugins, again.state_class, again.result_class) == (
            made.bound_plugins,
            State,
            Answer,
        )
        assert again.definition() == made.definition()


def test_binding_changes_nothing_that_is_written() -> None:
    """A plugin may complete its configuration, and the spec still says what it said."""
    bare = AgentSpec.from_json(b'{"id": "helper", "plugins": {"notes": null, "notes:old": {"limit": 7}}}')
    bound = bare.bind(plugins=[Notes])
    assert bound.to_json() == bare.to_json()
    assert [(part.label, part.config.to_python()) for part in bound.bound_plugins] == [
        ("notes", {"limit": 3}),
        ("notes:old", {"limit": 7}),
    ]
    assert bare.bind(plugins=[Notes(), Notes({"limit": 7}, alias="old")]).bound_plugins == bound.bound_plugins


@pytest.mark.parametrize(
    ("code", "field"),
    [
        ({"tools": [note]}, "tools[0]"),
        ({"tools": ["erase"]}, "tools[0]"),
        ({"tools": erase}, "tools"),
        ({"plugins": [Clock]}, "plugins[0]"),
        ({"plugins": [Notes({"limit": 9})]}, "plugins[0]"),
        ({"plugins": [(Notes, {"limit": 9})]}, "plugins[0]"),
        ({"plugins": ["notes"]}, "plugins"),
        ({"schema": Answer}, "schema"),
        ({"result": Answer}, "result"),
    ],
)
def test_only_what_the_spec_names_can_be_attached(code: dict[str, Any], field: str) -> None:
    """Another action, plugin, configuration or class is refused."""
    with pytest.raises(Invalid) as raised:
        spec(tools=["erase"], plugins={"notes": {}}, state_schema=State).bind(**code)
    assert raised.value.field == field


def test_a_tool_is_found_by_its_name() -> None:
    """Its own tools and those of its plugins are; a missing one says how to attach it."""
    made = spec(tools=[look_up, "erase", "note"], plugins=[Notes])
    assert made.tool("look_up") is look_up
    assert made.tool("note") is note
    with pytest.raises(NotFound, match=r"tool 'erase' does not exist; attach its code with bind\(tools="):
        made.tool("erase")
    with pytest.raises(NotFound, match="list it in tools"):
        made.tool("other")
    with pytest.raises(NotFound, match="erase"):
        made.definition()
    assert made.bind(tools=[erase]).definition().action_names() == ("look_up", "erase", "note")


def test_a_plugin_without_code_defines_no_agent() -> None:
    """The error names it and says how to attach it."""
    with pytest.raises(
        NotFound, match=r"plugin 'notes' does not exist; attach its class with bind\(plugins="
    ):
        spec(plugins=["notes"]).definition()


def test_an_agent_is_made_of_a_spec() -> None:
    """Id, description, schema, plugins and tools become its definition."""
    made = spec(**FULL | {"tools": [look_up, erase], "plugins": [(Notes, {"limit": 5})]})
    definition = made.definition()
    assert (definition.name, definition.description) == ("helper", "Helps.")
    agent = Agent.new(definition)
    assert agent.state["visits"] == 0
    assert set(definition.action_names()) == {"look_up", "erase", "note"}
    with pytest.raises(InvalidState, match=r"state\.visits"):
        Agent.new(definition, state={"visits": "many"})


def test_a_schema_given_as_data_is_kept() -> None:
    """The state is checked without any class, and agents made at different times have the same one."""
    read = AgentSpec.from_json(spec(state_schema=SCHEMA).to_json())
    assert read.state_schema == SCHEMA
    assert Agent.new(read.definition()).state == {"visits": 0}
    assert Agent.new(read.definition(), state={"name": "Al"}).state == {"visits": 0, "name": "Al"}
    assert read.definition() == read.definition()
    for wrong in ({"visits": "many"}, {"name": None}, {"other": 1}):
        with pytest.raises(InvalidState, match=rf"state\.{min(wrong)}"):
            Agent.new(read.definition(), state=wrong)
    with pytest.raises(InvalidDefinition, match=r"state_schema\.properties\.a\.type is no JSON Schema"):
        spec(state_schema={"type": "object", "properties": {"a": {"type": "text"}}}).definition()


def test_references_in_a_schema_are_written_as_they_are() -> None:
    """A JSON Schema is the same in a file as in any other tool."""

    class Outer(msgspec.Struct):
        inner: State

    made = spec(state_schema=Outer)
    assert codec.to_builtins(made)["state_schema"]["properties"]["inner"] == {"$ref": "#/$defs/State"}
    again = AgentSpec.from_yaml(made.to_yaml())
    assert again == made
    with pytest.raises(InvalidState, match=r"state\.inner"):
        Agent.new(again.definition(), state={"inner": {"visits": "many"}})


# As text

WRITTEN = """
id: helper
model: openai:gpt-4o-mini
instructions: |
  Be brief.
tools: [look_up, erase]
approve: [erase]
plugins: [notes]
memory: {scope: session, capture: conversation, max_entries: 8}
state_schema:
  type: object
  properties:
    visits: {type: integer, minimum: 0, default: 0}
"""


def test_a_person_can_write_a_spec() -> None:
    """YAML in its shorter forms becomes a spec that can be used."""
    made = AgentSpec.from_yaml(WRITTEN, tools=[look_up, erase], plugins=[Notes])
    assert made.instructions == "Be brief.\n"
    assert made.memory == MemoryPolicy(scope="session", capture="conversation", max_entries=8)
    assert Agent.new(made.definition()).state["visits"] == 0


def test_a_spec_is_read_from_a_file(tmp_path: Path) -> None:
    """The ending of the name says what is in it."""
    made = spec(**FULL)
    for name, data in (("a.json", made.to_json()), ("a.yaml", made.to_yaml()), ("a.yml", made.to_yaml())):
        file = tmp_path / name
        file.write_bytes(data if isinstance(data, bytes) else data.encode())
        assert AgentSpec.from_file(file) == AgentSpec.from_file(str(file), tools=[look_up]) == made
    with pytest.raises(Invalid, match=r"path ends in '.txt'; use .json, .yaml or .yml"):
        AgentSpec.from_file(tmp_path / "a.txt")
    with pytest.raises(NotFound, match="file"):
        AgentSpec.from_file(tmp_path / "none.json")
    (tmp_path / "folder.yaml").mkdir()
    with pytest.raises(Invalid, match="path cannot be read"):
        AgentSpec.from_file(tmp_path / "folder.yaml")
    (tmp_path / "huge.yaml").write_bytes(b"#" * (MAX_YAML_BYTES + 1))
    with pytest.raises(Invalid, match="bytes of YAML"):
        AgentSpec.from_file(tmp_path / "huge.yaml")


BOMB = "\n".join(["a0: &a0 [x, x]", *(f"a{at}: &a{at} [*a{at - 1}, *a{at - 1}]" for at in range(1, 60))])


@pytest.mark.parametrize(
    "hostile",
    [
        BOMB,
        "id: &id helper\nmodel: *id",
        "id: !!python/object/apply:os.system [exit]",
        "id: !!python/name:os.system",
        "id: !!str helper",
        "id: ! helper",
        "id: helper\nmetadata: " + "[" * 100_000,
        "id: helper\nmetadata: " + "{a: " * 5_000,
        "id: helper\nmetadata: " + "[" * 500 + "]" * 500,
        "- " * 100_000,
        "id: helper\nmetadata: {a: 1" + ":59" * 100_000 + "}",
        "id: helper\nmetadata: {a: " + "9" * 10_000 + "}",
        "id: helper\nmetadata: {a: 0x" + "f" * 10_000 + "}",
        "id: helper\nmetadata: {a: 2024-99-99}",
        "id: helper\nmetadata: {a: 2024-01-01}",
        "id: helper\nmetadata: {a: .nan}",
        "id: helper\nmetadata: {1: 2}",
        "id: helper\nmetadata: {? [a] : b}",
        "id: helper\nmetadata: {<<: 5}",
        "id: helper\nmetadata: {=: 5, a: =}",
        "id: helper\n1: 2",
        "id: helper\nmemory: {1: 2}",
        "id: helper\nplugins: {1: 2}",
        "id: helper\nplugins: [1]",
        "id: helper\nmetadata: {a: {$secret: 1}}",
        "id: helper\n---\nid: other",
        "id: 'helper",
        "id: \x01",
        "id: \ud800",
        b"id: \xff\xfe",
        b"\xff\xfe\x00",
        "",
        "helper",
        "[]",
        "#" * (MAX_YAML_BYTES + 1),
        "é" * (MAX_YAML_BYTES // 2 + 1),
    ],
    ids=lambda hostile: f"{len(hostile)} of {hostile[:50]!r}",
)
def test_hostile_yaml_is_refused(hostile: str | bytes) -> None:
    """Bombs, tags, depth, size and nonsense end in a typed error, soon."""
    with pytest.raises(Invalid) as raised:
        AgentSpec.from_yaml(hostile)
    assert raised.value.field.startswith("AgentSpec")


@pytest.mark.parametrize("data", [b"", b"[]", b"5", b"{", b"\xff", "\ud800", b'{"id":1}', b"[" * 100_000])
def test_unreadable_json_is_refused(data: bytes | str) -> None:
    """What is no JSON, or no object, ends in a typed error."""
    with pytest.raises(Invalid) as raised:
        AgentSpec.from_json(data)
    assert raised.value.field.startswith("AgentSpec")


def test_only_text_is_read() -> None:
    """Other things are refused by their type."""
    number: Any = 5
    for read in (AgentSpec.from_json, AgentSpec.from_yaml):
        with pytest.raises(WrongType, match="AgentSpec must be"):
            read(number)


@given(st.text(max_size=30) | st.binary(max_size=30))
def test_no_text_does_worse_than_being_refused(data: str | bytes) -> None:
    """Whatever is read, there is a spec or a typed error."""
    inside = "id: helper\nmetadata:\n  " + data if isinstance(data, str) else b"metadata: " + data
    for written in (data, inside):
        for read in (AgentSpec.from_json, AgentSpec.from_yaml):
            with suppress(Invalid):
                assert isinstance(read(written), AgentSpec)


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("id: a\nmodel: b:c\nid: d", "id", 3),
        ("id: a\nmemory:\n  scope: agent\n  max_entries: 5\n  scope: session", "scope", 5),
        ('id: a\nmetadata: {list: [{x: 1, y: {x: 2}, "x": 3}]}', "x", 2),
        ("id: a\n? [x]\n: 1\nid: b", "id", 4),
    ],
)
def test_a_key_that_is_written_twice_is_refused(text: str, key: str, line: int) -> None:
    """Only one of the values would count; the error names the key and the line of its second value."""
    with pytest.raises(Invalid, match=f"repeats the key '{key}' in line {line}; keep one"):
        AgentSpec.from_yaml(text)


@pytest.mark.parametrize(
    ("text", "key", "place"),
    [
        ('{"id": "a", "model": "b:c", "id": "d"}', "id", "line 1, column 29"),
        ('{"id": "a",\n "memory": {"scope": "agent",\n  "scope": "session"}}', "scope", "line 3, column 3"),
        ('{"id": "a", "metadata": {"list": [{"x": 1, "y": {"x": 2}, "x": 3}]}}', "x", "line 1, column 59"),
        ('{"metadata": {"x\\"": "{[:", "x\\u0022" : 1}}', 'x"', "line 1, column 29"),
    ],
)
def test_a_key_that_json_repeats_is_refused(text: str, key: str, place: str) -> None:
    """Only one of the values would count; the error names the key and the place of its second value."""
    for data in (text, text.encode()):
        with pytest.raises(Invalid, match=re.escape(f"repeats the key {key!r} in {place}; keep one")):
            AgentSpec.from_json(data)


def test_keys_of_different_mappings_may_be_the_same() -> None:
    """A value that looks like a key of its mapping is none either."""
    wanted = {"id": {"id": "id"}, "list": [{"id": 1}, {"id": 2}]}
    made = AgentSpec.from_yaml("id: id\nmetadata: {id: {id: id}, list: [{id: 1}, {id: 2}]}")
    assert made.metadata.to_python() == wanted
    assert AgentSpec.from_json(made.to_json()).metadata == made.metadata
    assert AgentSpec.from_json(b'{"id": "id", "metadata": {"a": "b\\": {", "b": ["a", "a"]}}').id == "id"


def test_a_spec_too_large_for_yaml_is_not_written() -> None:
    """What could not be read back is refused before; JSON has no such limit."""
    made = spec(instructions="x" * MAX_YAML_BYTES)
    with pytest.raises(Invalid, match="use JSON"):
        made.to_yaml()
    assert AgentSpec.from_json(made.to_json()) == made


def test_yaml_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its package, the error says how to install it, and JSON still works."""
    monkeypatch.setitem(sys.modules, "yaml", None)
    assert AgentSpec.from_json(spec().to_json()) == spec()
    for attempt in (lambda: spec().to_yaml(), lambda: AgentSpec.from_yaml("id: helper")):
        with pytest.raises(MissingExtra, match=r"agent specs in YAML .* pip install 'omoide\[yaml\]'"):
            attempt()
