"""How is an agent put aside, and is it the same when it is taken up again?"""

from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from tests.strategies import maps, names

from omoide import (
    Agent,
    Checkpoint,
    Context,
    Definition,
    Externalize,
    Plugin,
    checkpoint,
    identity,
    memory,
    restore,
    thread,
)
from omoide.errors import CheckpointFailed, Invalid, OmoideError, RestoreFailed, WrongType


def cached(
    on_checkpoint: Callable[[Any, Context], Any] = lambda slice, ctx: "keep",
    on_restore: Callable[[Any, Context], Any] = lambda pointer, ctx: None,
    **attributes: Any,
) -> type[Plugin]:
    """A plugin called `cache` with a slice and these answers."""
    members = {
        "name": "cache",
        "mount": lambda self, agent, config: {"items": [1, 2]},
        "on_checkpoint": lambda self, *given: on_checkpoint(*given),
        "on_restore": lambda self, *given: on_restore(*given),
        **attributes,
    }
    return type("Cached", (Plugin,), members)


def slept(agent: Agent) -> Agent:
    """The agent after a checkpoint that went through JSON."""
    return restore(Checkpoint.from_json(checkpoint(agent).to_json()), agent.definition)


def test_a_checkpoint_names_the_agent_and_holds_its_state() -> None:
    """Version 1, id, name, description and state; nothing externalized, so no keys of that either."""
    saved = checkpoint(Agent.new("a", id="me", description="Mine.", state={"own": [1]}))
    assert (saved.version, saved.id, saved.name, saved.description) == (1, "me", "a", "Mine.")
    assert saved.state == {"own": [1]}
    assert saved.externalized == {}
    assert saved.externalized_keys is None


@given(own=maps, world=maps, slice=maps, name=names)
def test_an_agent_is_the_same_after_a_checkpoint(own: Any, world: Any, slice: Any, name: str) -> None:
    """State, memory and identity come back as they were, through JSON."""
    agent = Agent.new(name, description=name, state={"own": own})
    agent = memory.update_space_data(memory.ensure(agent), "world", lambda old: world)
    agent = identity.evolve(identity.put_extension(agent, "p", slice), days=400)
    assert slept(agent) == agent


def test_memory_and_identity_are_part_of_the_checkpoint() -> None:
    """Their plugins keep them."""
    agent = identity.add_tag(memory.world_put(Agent.new("a"), "door", "open"), "web")
    saved = checkpoint(agent)
    assert saved.state["__memory__"] == memory.get(agent)
    assert saved.state["__identity__"] == identity.get(agent)


def test_the_thread_is_left_out_and_pointed_to() -> None:
    """Its id and revision stand for it, and whoever restores the agent puts the log back."""
    agent = thread.append(Agent.new("a"), [{}, {}])
    log = thread.of(agent)
    saved = checkpoint(agent)
    assert "__thread__" not in saved.state
    assert saved.externalized == {"thread": {"id": log.id, "rev": 2}}
    assert saved.externalized_keys == {"thread": "__thread__"}
    restored = slept(agent)
    assert not thread.has_thread(restored)
    assert thread.put(restored, log) == agent


def test_a_plugin_may_drop_its_slice() -> None:
    """It is gone from the checkpoint, and the agent starts again with the defaults of the slice."""

    class Slice(msgspec.Struct):
        items: list[int] = msgspec.field(default_factory=list)

    agent = Agent.new("a", plugins=[cached(lambda slice, ctx: "drop", schema=Slice)])
    assert agent.state["cache"] == {"items": [1, 2]}
    assert checkpoint(agent).state == {}
    assert slept(agent).state["cache"] == {"items": []}


def test_a_plugin_may_keep_its_slice_elsewhere() -> None:
    """It leaves a pointer under a key of its own, and turns it back into the slice."""
    kept: dict[str, Any] = {}

    def put_away(slice: Any, ctx: Context) -> Externalize:
        kept[ctx.agent.id] = slice
        return Externalize(key="cache_ref", pointer={"at": ctx.agent.id})

    plugin = cached(put_away, lambda pointer, ctx: kept[pointer["at"]])
    agent = Agent.new("a", plugins=[plugin], state={"own": 1})
    saved = checkpoint(agent)
    assert saved.state == {"own": 1}
    assert saved.externalized == {"cache_ref": {"at": agent.id}}
    assert saved.externalized_keys == {"cache_ref": "cache"}
    assert slept(agent) == agent


def test_a_pointer_answered_with_nothing_is_left_to_others() -> None:
    """The slice stays absent, and that is no error."""
    plugin = cached(lambda slice, ctx: Externalize(key="ref", pointer=1))
    assert "cache" not in slept(Agent.new("a", plugins=[plugin])).state


def test_a_plugin_knows_its_configuration_in_both_hooks() -> None:
    """As it was given."""
    seen: list[Any] = []

    class Configured(Plugin):
        name = "cache"

        def mount(self, agent: Agent, config: Any) -> dict[str, Any]:
            return {"a": 1}

        def on_checkpoint(self, state: Any, ctx: Context) -> Externalize:
            seen.append((self.config["where"], state))
            return Externalize(key="ref", pointer=[1])

        def on_restore(self, pointer: Any, ctx: Context) -> Any:
            seen.append((self.config["where"], pointer))
            return {"a": 1}

    slept(Agent.new("a", plugins=[(Configured, {"where": "disk"})]))
    assert seen == [("disk", {"a": 1}), ("disk", [1])]


def test_a_slice_that_is_not_there_is_not_asked_about() -> None:
    """A plugin without a slice has nothing to say."""
    plugin = cached(lambda slice, ctx: 1 / 0, mount=lambda self, agent, config: None)
    agent = Agent.new("a", plugins=[plugin])
    assert slept(agent) == agent


def test_a_checkpoint_without_the_keys_is_still_understood() -> None:
    """An older one names slots by their concept and slices by their key."""
    plugin = cached(on_restore=lambda pointer, ctx: {"items": pointer})
    definition = Definition.new("a", plugins=[plugin])
    old = Checkpoint(id="me", name="a", externalized={"thread": {"id": "t", "rev": 1}, "cache": [3]})
    agent = restore(old, definition)
    assert agent.state == {"cache": {"items": [3]}}


def test_a_key_added_to_the_schema_since_gets_its_default() -> None:
    """An agent put aside by an older program is taken up by a newer one."""

    class Older(msgspec.Struct):
        own: int = 1

    class Newer(msgspec.Struct):
        own: int = 0
        added: str = "new"

    saved = checkpoint(Agent.new("a", schema=Older))
    assert restore(saved, Definition.new("a", schema=Newer)).state == {"own": 1, "added": "new"}


@given(state=maps, pointers=maps)
def test_a_checkpoint_survives_json(state: dict[str, Any], pointers: dict[str, Any]) -> None:
    """Whatever it holds, and whatever the keys of its pointers are called."""
    keys = dict.fromkeys(pointers, "cache")
    for saved in (
        Checkpoint(id="me", name="a", state=state, externalized=pointers, externalized_keys=keys),
        Checkpoint(id="me", name="a", state={"inner": Checkpoint(id="me", name="a", externalized=pointers)}),
    ):
        assert Checkpoint.from_json(saved.to_json()) == saved


def raising(*given: Any) -> Any:
    """A hook that fails."""
    raise RuntimeError("disk full")


@pytest.mark.parametrize("answer", [None, 5, "throw away", True, {"key": "a"}])
def test_a_plugin_that_answers_nonsense_is_named(answer: Any) -> None:
    """Keep, drop or Externalize, and nothing else."""
    with pytest.raises(CheckpointFailed, match=r"'cache'.*Externalize"):
        checkpoint(Agent.new("a", plugins=[cached(lambda slice, ctx: answer)]))


def test_a_plugin_that_fails_while_saving_is_a_typed_error() -> None:
    """It names the plugin and the reason, and keeps the cause."""
    with pytest.raises(OmoideError, match=r"'cache'.*disk full") as raised:
        checkpoint(Agent.new("a", plugins=[cached(raising)]))
    assert isinstance(raised.value.__cause__, RuntimeError)


def test_two_plugins_cannot_leave_pointers_under_one_key() -> None:
    """One of them would be lost."""
    plugins = [cached(lambda s, c: Externalize(key="ref", pointer=1), name=name) for name in ("one", "two")]
    with pytest.raises(OmoideError, match="two"):
        checkpoint(Agent.new("a", plugins=plugins))


class Items(msgspec.Struct):
    """What the slice of the cache has to look like."""

    items: list[int] = msgspec.field(default_factory=list)


RESTORES: dict[str, Callable[[Any, Context], Any]] = {
    "raises": raising,
    "returns a number": lambda pointer, ctx: 5,
    "returns another shape": lambda pointer, ctx: {"items": "none"},
    "returns what no codec holds": lambda pointer, ctx: {"items": object()},
}


@pytest.mark.parametrize("on_restore", RESTORES.values(), ids=RESTORES)
def test_a_slice_that_cannot_be_restored_fails_the_whole(on_restore: Callable[..., Any]) -> None:
    """No agent comes back with a part of its mind missing or broken."""
    plugin = cached(lambda slice, ctx: Externalize(key="ref", pointer=1), on_restore, schema=Items)
    with pytest.raises(RestoreFailed, match="'cache'"):
        slept(Agent.new("a", id="me", plugins=[plugin]))


def test_a_checkpoint_of_another_version_is_refused() -> None:
    """It says which version this reads."""
    with pytest.raises(RestoreFailed, match="version 2"):
        restore(Checkpoint(id="me", name="a", version=2), Definition.new("a"))


def test_a_checkpoint_of_another_kind_of_agent_is_refused() -> None:
    """The definition has to be the agent's own."""
    with pytest.raises(RestoreFailed, match=r"'b'.*'a'"):
        restore(Checkpoint(id="me", name="b"), Definition.new("a"))


def test_a_pointer_that_nobody_owns_is_refused() -> None:
    """A plugin that is no longer mounted cannot be asked."""
    saved = checkpoint(Agent.new("a", plugins=[cached(lambda s, c: Externalize(key="ref", pointer=1))]))
    with pytest.raises(RestoreFailed, match="no plugin owns 'cache'"):
        restore(saved, Definition.new("a"))


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"id": ""}, "id"),
    ({"name": " "}, "name"),
    ({"description": 5}, "description"),
    ({"state": [1]}, "state"),
    ({"externalized": 5}, "externalized"),
    ({"externalized_keys": 5}, "externalized_keys"),
    ({"version": "1"}, "version"),
]


@pytest.mark.parametrize(("fields", "field"), WRONG)
def test_a_wrong_field_is_refused_by_name(fields: dict[str, Any], field: str) -> None:
    """Each field of a checkpoint is checked."""
    with pytest.raises(Invalid) as raised:
        Checkpoint(**{"id": "me", "name": "a", **fields})
    assert raised.value.field == field
    assert raised.value.remedy


def test_only_agents_are_put_aside_and_only_checkpoints_taken_up() -> None:
    """Each argument is checked."""
    saved = checkpoint(Agent.new("a"))
    for attempt in (
        lambda: checkpoint(cast("Agent", "a")),
        lambda: restore(cast("Checkpoint", {}), Definition.new("a")),
        lambda: restore(saved, cast("Definition", "a")),
    ):
        with pytest.raises(WrongType):
            attempt()
