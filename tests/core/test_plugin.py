"""Declaration of plugins and validation of their requirements."""

from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec
import pytest

from omoide import Action, Agent, Context, Definition, Plugin, Signal, action, directives, identity
from omoide.errors import Invalid, InvalidDefinition, WrongType
from omoide.strategy import Route


@action
def fetch(ctx: Context) -> None:
    """Fetch something."""


@action(name="fetch")
def other_fetch(ctx: Context) -> None:
    """Fetch something else."""


class Web(Plugin):
    """The shortest plugin there is."""

    name = "web"


class Full(Plugin):
    """A plugin that says everything."""

    name = "full_2"
    state_key = "full_state"
    actions = (fetch,)
    description = "Says everything."
    category = "tests"
    vsn = "2.1"
    signal_patterns = ("web.**",)
    tags = ("web",)
    capabilities = ("fetching",)
    requires = ("plugin:identity",)
    subscriptions = ("bus",)
    schedules = ("@hourly",)
    singleton = True

    def router(self, config: Mapping[str, Any]) -> list[Any]:
        return [("web.fetch", fetch), (config.get("pattern", "web.other"), "fetch", 5)]


def make_plugin(**attributes: Any) -> Plugin:
    """A plugin of a class with these attributes."""
    return cast("Plugin", type("Declared", (Plugin,), {"name": "declared", **attributes})())


def test_a_plugin_needs_only_a_name() -> None:
    """Everything else has a default, and the name serves as the key of its slice."""
    web = Web()
    assert (web.name, web.key, web.label) == ("web", "web", "web")
    assert (web.description, web.category, web.vsn, web.singleton) == ("", "", "", False)
    assert (web.schema, web.config_schema, web.alias) == (None, None, None)
    for listed in (web.actions, web.signal_patterns, web.tags, web.capabilities, web.requires, web.routes):
        assert listed == ()
    assert (web.subscriptions, web.schedules) == ((), ())
    assert web.config == {}


def test_a_plugin_keeps_what_it_declares() -> None:
    """Key, actions, routes and the rest are as the class says."""
    full = Full({"pattern": "web.own"})
    assert (full.key, full.label, full.actions) == ("full_state", "full_2", (fetch,))
    assert full.routes == (
        Route(pattern="web.fetch", target=fetch, priority=-10),
        Route(pattern="web.own", target="fetch", priority=5),
    )


def test_routes_of_a_plugin_are_not_prefixed() -> None:
    """The router names full signal types, and gets the configuration."""
    assert [route.pattern for route in Full().routes] == ["web.fetch", "web.other"]


def test_patterns_gate_what_a_plugin_sees() -> None:
    """Without patterns every signal, with patterns those that fit."""
    assert Web().accepts_signal(Signal(type="anything.at.all"))
    assert Full().accepts_signal(Signal(type="web.a.b"))
    assert not Full().accepts_signal(Signal(type="mail.a"))


def test_a_plugin_is_given_as_class_instance_or_class_with_configuration() -> None:
    """All three forms mount the same plugin."""
    for like in (Web, Web(), (Web, {}), (Web, {"a": 1})):
        definition = Definition.new("a", plugins=[like])
        assert definition.plugins[-1].name == "web"
    assert Definition.new("a", plugins=[(Web, {"a": 1})]).plugins[-1].config == {"a": 1}


def test_the_configuration_is_frozen() -> None:
    """Changing what was given does not change the plugin."""
    config = {"list": [1]}
    web = Web(config)
    config["list"].append(2)
    assert web.config == {"list": [1]}


def test_plugins_are_equal_by_class_configuration_and_alias() -> None:
    """So that two agents of one kind are of one kind."""
    assert Web() == Web()
    assert hash(Web({"a": 1})) == hash(Web({"a": 1}))
    assert Web() != Web({"a": 1})
    assert Web() != Web(alias="b")
    assert Web() != Full()
    assert "web:b" in repr(Web(alias="b"))


def test_an_alias_lets_a_plugin_be_mounted_twice() -> None:
    """Each has its own key and label."""
    definition = Definition.new("a", plugins=[Web, Web(alias="second")])
    assert [plugin.key for plugin in definition.plugins[-2:]] == ["web", "web_second"]
    assert [plugin.label for plugin in definition.plugins[-2:]] == ["web", "web:second"]


def test_a_singleton_cannot_have_an_alias() -> None:
    """There is one of it."""
    with pytest.raises(InvalidDefinition, match="Cannot alias singleton plugin"):
        Full(alias="second")


@pytest.mark.parametrize("twice", [[Web, Web], [Full, Full], [Web(alias="x"), Web(alias="x")]])
def test_a_duplicate_is_refused(twice: list[Any]) -> None:
    """The same plugin under the same label, singleton or not."""
    with pytest.raises(InvalidDefinition, match="is a duplicate"):
        Definition.new("a", plugins=twice)


def test_two_plugins_cannot_own_one_key() -> None:
    """Not one of theirs, and not a default plugin's."""
    with pytest.raises(InvalidDefinition, match=r"'web'.*'other'|'other'.*'web'"):
        Definition.new("a", plugins=[Web, make_plugin(name="other", state_key="web")])
    with pytest.raises(InvalidDefinition, match="__memory__"):
        Definition.new("a", plugins=[make_plugin(state_key="__memory__")])


def test_a_plugin_cannot_own_a_key_of_the_agents_schema() -> None:
    """One of them has to be renamed."""

    class State(msgspec.Struct):
        web: int = 0

    with pytest.raises(InvalidDefinition, match="a key of the agent's schema"):
        Definition.new("a", schema=State, plugins=[Web])


@pytest.mark.parametrize(
    ("requires", "config", "others"),
    [
        ("config:token", {"token": "x"}, []),
        ("plugin:web", {}, [Web]),
        ("plugin:identity", {}, []),
        ("package:msgspec", {}, []),
        ("package:msgspec.json", {}, []),
    ],
)
def test_a_requirement_is_met(requires: str, config: dict[str, Any], others: list[Any]) -> None:
    """By configuration, by another plugin wherever it stands, or by an installed package."""
    kind = type(make_plugin(requires=(requires,)))
    Definition.new("a", plugins=[kind(config), *others])
    Definition.new("a", plugins=[*others, kind(config)])


@pytest.mark.parametrize(
    "requires",
    [
        "config:token",
        "plugin:web",
        "package:no_such_package",
        "package:no_such.sub",
        "token",
        "app:x",
        "plugin:",
    ],
)
def test_a_requirement_that_is_not_met_is_named(requires: str) -> None:
    """The definition fails with what to do about it."""
    with pytest.raises(InvalidDefinition, match=requires) as raised:
        Definition.new("a", plugins=[make_plugin(requires=(requires,))])
    assert raised.value.remedy


def test_actions_of_plugins_can_be_called_by_name() -> None:
    """The agent offers its own and its plugins', and an unknown one is an error that lists them."""
    agent = Agent.new("a", plugins=[Full])
    assert agent.definition.action_names() == ("fetch",)
    assert agent.cmd("fetch")[1] == []
    (error,) = agent.cmd("paint")[1]
    assert isinstance(error, directives.Error)
    assert "fetch" in error.message


def test_two_actions_cannot_answer_to_one_name() -> None:
    """The same action may be offered twice, two different ones may not."""
    Definition.new("a", plugins=[Full], actions=[fetch])
    with pytest.raises(InvalidDefinition, match=r"'fetch'.*offered twice"):
        Definition.new("a", plugins=[Full], actions=[other_fetch])


def test_what_plugins_bring_is_not_what_the_identity_says() -> None:
    """Two notions of capabilities, named apart."""
    agent = identity.add_tag(Agent.new("a", plugins=[Full]), "careful")
    assert agent.definition.plugin_capabilities() == ("thread", "identity", "memory", "fetching")
    assert identity.tags(agent) == ["careful"]
    assert not identity.has_tag(agent, "fetching")


def test_an_action_cannot_leave_a_slice_unlike_the_plugins_schema() -> None:
    """What a mount is held to, every action is held to."""

    class Tally(msgspec.Struct):
        n: int = 0

    @action
    def spoil(ctx: Context, value: Any) -> dict[str, Any]:
        return {"tally": {"n": value}}

    agent = Agent.new("a", plugins=[make_plugin(name="tally", schema=Tally)])
    after, (error,) = agent.cmd((spoil, {"value": "many"}))
    assert isinstance(error, directives.Error)
    assert (error.context, error.field) == ("result", "state.tally.n")
    assert after is agent
    assert agent.cmd((spoil, {"value": 3}))[0].state["tally"] == {"n": 3}


def fail_router(self: Plugin, config: Any) -> Any:
    """A router that raises."""
    raise RuntimeError("router broke")


WRONG: dict[str, dict[str, Any]] = {
    "no name": {"name": ""},
    "name with blank": {"name": "a b"},
    "name that starts with a digit": {"name": "2a"},
    "name that is no text": {"name": 5},
    "state_key": {"state_key": 5},
    "blank state_key": {"state_key": " "},
    "one action": {"actions": fetch},
    "actions": {"actions": 5},
    "function for action": {"actions": [fetch.run]},
    "description": {"description": 5},
    "category": {"category": 5},
    "vsn": {"vsn": 2},
    "schema": {"schema": 5},
    "config_schema": {"config_schema": int},
    "signal_patterns": {"signal_patterns": 5},
    "signal_patterns as text": {"signal_patterns": "a.b"},
    "pattern": {"signal_patterns": ["a..b"]},
    "pattern that is no text": {"signal_patterns": [5]},
    "tags": {"tags": 5},
    "tags as text": {"tags": "web"},
    "capabilities": {"capabilities": 5},
    "capabilities as text": {"capabilities": "web"},
    "requires": {"requires": 5},
    "requirement that is no text": {"requires": [5]},
    "singleton": {"singleton": "yes"},
    "router that raises": {"router": fail_router},
    "router that answers nothing": {"router": lambda self, config: None},
    "route that is none": {"router": lambda self, config: [5]},
    "route with a bad pattern": {"router": lambda self, config: [("a..b", fetch)]},
    "route with a bad target": {"router": lambda self, config: [("a.b", 5)]},
    "route with a bad priority": {"router": lambda self, config: [("a.b", fetch, 101)]},
}


@pytest.mark.parametrize("attributes", WRONG.values(), ids=WRONG)
def test_a_plugin_declared_wrongly_is_refused(attributes: dict[str, Any]) -> None:
    """Every attribute is checked before the plugin is used, and the error says what to do."""
    with pytest.raises(Invalid) as raised:
        Definition.new("a", plugins=[make_plugin(**attributes)])
    assert raised.value.remedy


MISTAKES: dict[str, Callable[[], object]] = {
    "configuration": lambda: Web(cast("Any", 5)),
    "alias": lambda: Web(alias=cast("str", 5)),
    "alias with blank": lambda: Web(alias="a b"),
    "no plugin": lambda: Definition.new("a", plugins=[cast("Any", 5)]),
    "another class": lambda: Definition.new("a", plugins=[cast("Any", Action)]),
    "class with bad configuration": lambda: Definition.new("a", plugins=[(Web, cast("Any", 5))]),
    "one plugin and no list": lambda: Definition.new("a", plugins=cast("Any", Web)),
    "a number of plugins": lambda: Definition.new("a", plugins=cast("Any", 5)),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_a_plugin_given_wrongly_is_refused(mistake: Callable[[], object]) -> None:
    """Instances, classes, or classes with their configuration, in a list."""
    with pytest.raises(Invalid) as raised:
        mistake()
    assert raised.value.remedy


def test_tags_as_text_are_a_wrong_type() -> None:
    """A string is not read letter by letter."""
    with pytest.raises(WrongType, match="capabilities"):
        make_plugin(capabilities="memory")
