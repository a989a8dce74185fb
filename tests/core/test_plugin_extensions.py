"""Plugins own the shape and the size of their slice of the identity, and no new reserved key."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest

from omoide import Agent, Context, Identity, Plugin, action, checkpoint, identity, restore
from omoide.core.action import Error
from omoide.core.state import SLOTS, SetPath
from omoide.errors import Invalid, InvalidDefinition, InvalidState, MountFailed, RestoreFailed, WrongType


class Persona(msgspec.Struct):
    """The shape of a slice."""

    role: str
    vsn: int = 1


class CharacterPlugin(Plugin):
    """Owns the extension `character`."""

    name = "character"
    extension_schema = Persona
    extension_max_bytes = 200


def character(**parts: Any) -> Agent:
    return Agent.new("a", plugins=[CharacterPlugin], **parts)


GOOD = {"role": "pilot"}


def test_a_slice_that_fits_is_taken() -> None:
    """Also its public part, which a schema need not name."""
    agent = identity.put_extension(character(), "character", {**GOOD, "__public__": {"role": "pilot"}})
    agent = identity.merge_extension(agent, "character", {"vsn": 2})
    agent = identity.update_extension(agent, "character", lambda old: {**old, "role": "captain"})
    assert identity.get_extension(agent, "character")["role"] == "captain"
    assert restore(checkpoint(agent), agent.definition) == agent


WAYS: dict[str, Callable[[Agent, Any], Agent]] = {
    "put": lambda agent, slice: identity.put_extension(agent, "character", slice),
    "merge": lambda agent, slice: identity.merge_extension(agent, "character", slice),
    "update": lambda agent, slice: identity.update_extension(agent, "character", lambda old: slice),
    "ensure": lambda agent, slice: identity.ensure(agent, extensions={"character": slice}),
    "whole": lambda agent, slice: identity.put(agent, Identity.new(extensions={"character": slice})),
    "identity": lambda agent, slice: identity.update(
        agent, lambda old: Identity.new(old).put_extension("character", slice)
    ),
    "new": lambda agent, slice: character(
        state={"__identity__": Identity.new(extensions={"character": slice})}
    ),
}
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "wrong": ({"role": 5}, "role"),
    "missing": ({"vsn": 1}, "role"),
    "unknown": ({**GOOD, "height": 3}, "height"),
    "large": ({"role": "x" * 200}, "extension_max_bytes 200"),
}


@pytest.mark.parametrize(("slice", "problem"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("write", WAYS.values(), ids=WAYS)
def test_a_slice_that_does_not_fit_is_refused(
    write: Callable[[Agent, Any], Agent], slice: dict[str, Any], problem: str
) -> None:
    """However it is written; the error names the plugin's slice and the field."""
    with pytest.raises(Invalid, match=f"extensions.character.*{problem}"):
        write(character(), slice)


@pytest.mark.parametrize(("slice", "problem"), BAD.values(), ids=BAD)
def test_neither_an_action_nor_a_mount_nor_a_checkpoint_brings_a_slice_that_does_not_fit(
    slice: dict[str, Any], problem: str
) -> None:
    """An action is an Error and changes nothing; an agent is not made, and not restored."""
    agent, given = character(), Identity.new(extensions={"character": slice})

    @action
    def act(ctx: Context) -> Any:
        return None, [SetPath(path=["__identity__"], value=given)]

    after, (error,) = agent.cmd(act)
    assert after is agent
    assert isinstance(error, Error)
    assert problem in error.message

    class Mounted(CharacterPlugin):
        def mount(self, agent: Agent, config: Any) -> Agent:
            return agent.replace(state={**agent.state, "__identity__": given})

    with pytest.raises(MountFailed, match=problem):
        Agent.new("a", plugins=[Mounted])
    with pytest.raises(RestoreFailed, match=problem):
        restore(checkpoint(agent).replace(state={"__identity__": given}), agent.definition)


def test_other_slices_are_their_own_business() -> None:
    """A plugin checks its own slice alone, and one without a schema has a limit of size only."""

    class Free(Plugin):
        name = "free"

    agent = Agent.new("a", plugins=[CharacterPlugin, Free])
    agent = identity.put_extension(agent, "other", {"role": 5, "text": "x" * 100_000})
    agent = identity.put_extension(agent, "free", {"role": 5})
    with pytest.raises(Invalid, match=r"extensions.free.*extension_max_bytes"):
        identity.put_extension(agent, "free", {"text": "x" * 100_000})
    unlimited = type("Free", (Plugin,), {"name": "free", "extension_max_bytes": None})
    identity.put_extension(Agent.new("a", plugins=[unlimited]), "free", {"text": "x" * 100_000})


def test_a_plugin_with_an_alias_owns_the_extension_of_its_label() -> None:
    """As it goes by that name among the plugins."""
    agent = Agent.new("a", plugins=[CharacterPlugin({}, alias="second")])
    with pytest.raises(Invalid, match="role"):
        identity.put_extension(agent, "character:second", {})
    identity.put_extension(agent, "character", {})


class PublicShape(TypedDict):
    """A shape that names its public part."""

    __public__: dict[str, int]


@dataclass
class Plain:
    """A shape as a dataclass."""

    role: str


def test_a_schema_may_be_of_any_kind_and_name_the_public_part() -> None:
    """A TypedDict or a dataclass; a public part that it names is checked."""
    for schema, good, bad in (
        (PublicShape, {"__public__": {"n": 1}}, {"__public__": {"n": "x"}}),
        (Plain, {"role": "pilot", "__public__": {}}, {"role": 1}),
    ):
        kind = type("P", (Plugin,), {"name": "p", "extension_schema": schema})
        agent = identity.put_extension(Agent.new("a", plugins=[kind]), "p", good)
        with pytest.raises(Invalid, match=r"extensions\.p"):
            identity.put_extension(agent, "p", bad)


@pytest.mark.parametrize(
    ("attributes", "error"),
    [
        ({"extension_schema": 5}, InvalidDefinition),
        ({"extension_max_bytes": -1}, Invalid),
        ({"extension_max_bytes": "much"}, WrongType),
    ],
)
def test_a_plugin_that_declares_nonsense_is_not_made(
    attributes: dict[str, Any], error: type[Exception]
) -> None:
    """The error names the attribute or the schema."""
    with pytest.raises(error, match=r"extension|schema"):
        type("P", (Plugin,), {"name": "p", **attributes})()


# Reserved keys


@pytest.mark.parametrize("key", ["__plans__", "__mood__", "__orphaned_from__"])
def test_a_plugin_declares_no_new_reserved_key(key: str) -> None:
    """The reserved keys are those of the framework; a plugin takes a key of its own."""
    kind = type("P", (Plugin,), {"name": "p", "state_key": key})
    with pytest.raises(InvalidDefinition, match=f"plugin 'p': state_key.*{key}.*memory space"):
        kind()
    with pytest.raises(InvalidDefinition, match="__p__"):
        type("P", (Plugin,), {"name": "__p__"})()


def test_a_plugin_may_own_a_slot_and_a_name_with_underscores() -> None:
    """Those that exist, and names that only begin or end like one."""
    for key in (*SLOTS, "__x", "x__", "_x_"):
        assert type("P", (Plugin,), {"name": "p", "state_key": key})().key == key
    with pytest.raises(InvalidState):
        Agent.new("a", state={"__memory__": 5})
