"""Checkpoint and restore of agents."""

from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from tests.support.strategies import maps, names

from omoide import (
    Agent,
    Checkpoint,
    Context,
    Definition,
    Plugin,
    checkpoint,
    identity,
    memory,
    restore,
    thread,
)
from omoide.core import Externalize
from omoide.core.checkpoint import mount_missing_plugins
from omoide.errors import CheckpointFailed, Invalid, OmoideError, RestoreFailed, WrongType


def cache_plugin(
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
    """Version 2, id, name, description and state; nothing externalized, so no keys of that either."""
    saved = checkpoint(Agent.new("a", id="me", description="Mine.", state={"own": [1]}))
    assert (saved.version, saved.id, saved.name, saved.description) == (2, "me", "a", "Mine.")
    assert saved.state == {"own": [1]}
    assert saved.externalized == {}
    assert saved.externalized_keys is None
    assert (saved.thread, saved.journal, saved.rev, saved.definition_version) == (None, None, 0, 1)


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
    assert saved.thread == {"id": log.id, "rev": 2}
    restored = slept(agent)
    assert not thread.has_thread(restored)
    assert thread.put(restored, log) == agent


class Keeping(Plugin):
    """A plugin that owns the thread and has nothing to say about it."""

    name = "log"
    state_key = "__thread__"


@pytest.mark.parametrize("default_plugins", [False, {"__thread__": False}, {"__thread__": Keeping}])
def test_no_checkpoint_holds_the_thread(default_plugins: Any) -> None:
    """Whoever owns it, or nobody: its entries are left out, and the pointer is there."""
    agent = thread.append(Agent.new("a", default_plugins=default_plugins), [{}, {}])
    saved = Checkpoint.from_json(checkpoint(agent).to_json())
    assert saved.state == {}
    assert saved.thread == {"id": thread.of(agent).id, "rev": 2}
    assert thread.put(restore(saved, agent.definition), thread.of(agent)) == agent


def test_a_thread_may_be_dropped_or_kept_by_a_plugin_of_its_own() -> None:
    """Dropped, there is no pointer; a pointer of another form is the plugin's own affair."""
    kept: dict[str, Any] = {}

    def put_away(slice: Any, ctx: Context) -> Externalize:
        kept["log"] = slice
        return Externalize(key="thread", pointer="the log")

    for answer, same in ((lambda slice, ctx: "drop", False), (put_away, True)):
        plugin = cache_plugin(
            answer, lambda pointer, ctx: kept["log"], state_key="__thread__", mount=lambda *given: None
        )
        agent = thread.append(Agent.new("a", default_plugins={"__thread__": plugin}), {})
        saved = checkpoint(agent)
        assert (saved.thread, "__thread__" in saved.state) == (None, False)
        assert (slept(agent) == agent) is same


def test_a_plugin_may_drop_its_slice() -> None:
    """It is gone from the checkpoint, and the agent starts again with the defaults of the slice."""

    class Slice(msgspec.Struct):
        items: list[int] = msgspec.field(default_factory=list)

    agent = Agent.new("a", plugins=[cache_plugin(lambda slice, ctx: "drop", schema=Slice)])
    assert agent.state["cache"] == {"items": [1, 2]}
    assert checkpoint(agent).state == {}
    assert slept(agent).state["cache"] == {"items": []}


def test_a_plugin_may_keep_its_slice_elsewhere() -> None:
    """It leaves a pointer under a key of its own, and turns it back into the slice."""
    kept: dict[str, Any] = {}

    def put_away(slice: Any, ctx: Context) -> Externalize:
        kept[ctx.agent.id] = slice
        return Externalize(key="cache_ref", pointer={"at": ctx.agent.id})

    plugin = cache_plugin(put_away, lambda pointer, ctx: kept[pointer["at"]])
    agent = Agent.new("a", plugins=[plugin], state={"own": 1})
    saved = checkpoint(agent)
    assert saved.state == {"own": 1}
    assert saved.externalized == {"cache_ref": {"at": agent.id}}
    assert saved.externalized_keys == {"cache_ref": "cache"}
    assert slept(agent) == agent


def test_a_pointer_answered_with_nothing_is_left_to_others() -> None:
    """The slice stays absent, and that is no error."""
    plugin = cache_plugin(lambda slice, ctx: Externalize(key="ref", pointer=1))
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
    plugin = cache_plugin(lambda slice, ctx: 1 / 0, mount=lambda self, agent, config: None)
    agent = Agent.new("a", plugins=[plugin])
    assert slept(agent) == agent


def test_a_checkpoint_without_the_keys_is_still_understood() -> None:
    """An older one names slots by their concept and slices by their key."""
    plugin = cache_plugin(on_restore=lambda pointer, ctx: {"items": pointer})
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


def fail_hook(*given: Any) -> Any:
    """A hook that fails."""
    raise RuntimeError("disk full")


@pytest.mark.parametrize("answer", [None, 5, "throw away", True, {"key": "a"}])
def test_a_plugin_that_answers_nonsense_is_named(answer: Any) -> None:
    """Keep, drop or Externalize, and nothing else."""
    with pytest.raises(CheckpointFailed, match=r"'cache'.*Externalize"):
        checkpoint(Agent.new("a", plugins=[cache_plugin(lambda slice, ctx: answer)]))


def test_a_plugin_that_fails_while_saving_is_a_typed_error() -> None:
    """It names the plugin and the reason, and keeps the cause."""
    with pytest.raises(OmoideError, match=r"'cache'.*disk full") as raised:
        checkpoint(Agent.new("a", plugins=[cache_plugin(fail_hook)]))
    assert isinstance(raised.value.__cause__, RuntimeError)


def test_two_plugins_cannot_leave_pointers_under_one_key() -> None:
    """One of them would be lost."""
    plugins = [
        cache_plugin(lambda s, c: Externalize(key="ref", pointer=1), name=name) for name in ("one", "two")
    ]
    with pytest.raises(OmoideError, match="two"):
        checkpoint(Agent.new("a", plugins=plugins))


class Items(msgspec.Struct):
    """What the slice of the cache has to look like."""

    items: list[int] = msgspec.field(default_factory=list)


RESTORES: dict[str, Callable[[Any, Context], Any]] = {
    "raises": fail_hook,
    "returns a number": lambda pointer, ctx: 5,
    "returns another shape": lambda pointer, ctx: {"items": "none"},
    "returns what no codec holds": lambda pointer, ctx: {"items": object()},
}


@pytest.mark.parametrize("on_restore", RESTORES.values(), ids=RESTORES)
def test_a_slice_that_cannot_be_restored_fails_the_whole(on_restore: Callable[..., Any]) -> None:
    """No agent comes back with a part of its mind missing or broken."""
    plugin = cache_plugin(lambda slice, ctx: Externalize(key="ref", pointer=1), on_restore, schema=Items)
    with pytest.raises(RestoreFailed, match="'cache'"):
        slept(Agent.new("a", id="me", plugins=[plugin]))


@pytest.mark.parametrize("version", [0, 3])
def test_a_checkpoint_of_an_unknown_version_is_refused(version: int) -> None:
    """It says which versions this reads."""
    with pytest.raises(RestoreFailed, match=f"version {version}, this reads 1 to 2"):
        restore(Checkpoint(id="me", name="a", version=version), Definition.new("a"))


def test_a_checkpoint_of_the_first_version_is_understood() -> None:
    """It said no more than where the thread is, among the other pointers, with the owners or without."""
    for owners in ("", ',"externalized_keys":{"thread":"__thread__","cache":"cache"}'):
        written = (
            '{"id":"me","name":"a","state":{"own":[1]},"version":1,'
            f'"externalized":{{"thread":{{"id":"t","rev":1}},"cache":[3]}}{owners}}}'
        )
        saved = Checkpoint.from_json(written)
        assert (saved.thread, saved.version) == ({"id": "t", "rev": 1}, 1)
        plugin = cache_plugin(on_restore=lambda pointer, ctx: {"items": pointer})
        agent = restore(saved, Definition.new("a", plugins=[plugin]))
        assert agent.state == {"own": [1], "cache": {"items": [3]}}


STEPS: list[Callable[[dict[str, Any]], dict[str, Any]]] = [
    lambda state: {"first": state["name"].split()[0], "last": state["name"].split()[1]},
    lambda state: {**state, "initials": state["first"][0] + state["last"][0]},
]


def test_an_older_state_is_migrated_one_version_at_a_time() -> None:
    """`migrate` is told which version it is given, and turns it into the next; memory goes with it."""
    seen: list[int] = []

    def migrate(state: Any, version: int) -> dict[str, Any]:
        seen.append(version)
        own = {key: value for key, value in state.items() if not key.startswith("__")}
        return {**STEPS[version - 1](own), "__memory__": state["__memory__"]}

    old = memory.world_put(Agent.new("a", state={"name": "Ada Byron"}), "door", "open")
    saved = Checkpoint.from_json(checkpoint(old).to_json())
    for version, own in (
        (1, {"name": "Ada Byron"}),
        (2, {"first": "Ada", "last": "Byron"}),
        (3, {"first": "Ada", "last": "Byron", "initials": "AB"}),
    ):
        seen.clear()
        agent = restore(saved, Definition.new("a", version=version, migrate=migrate))
        assert agent.state == {**own, "__memory__": memory.get(old)}
        assert seen == [*range(1, version)]
        assert checkpoint(agent).definition_version == version


def test_an_older_state_without_a_way_to_the_newer_is_refused() -> None:
    """The remedy is to say how."""
    with pytest.raises(RestoreFailed, match=r"version 1 of 'a' saved it, and this is 2; .*migrate="):
        restore(checkpoint(Agent.new("a")), Definition.new("a", version=2))


def test_a_newer_state_is_refused() -> None:
    """Nobody can say what an older program would make of it."""
    saved = checkpoint(Agent.new("a", version=3))
    with pytest.raises(RestoreFailed, match="version 3 of 'a' saved it, and this is 2"):
        restore(saved, Definition.new("a", version=2, migrate=lambda state, version: state))


def broken(state: Any, version: int) -> Any:
    """A migration that fails."""
    raise KeyError("name")


MIGRATIONS: dict[str, tuple[Callable[..., Any], str]] = {
    "raises": (broken, "from version 1: KeyError"),
    "returns nothing": (lambda state, version: None, "what migrate returned"),
    "returns what no codec holds": (lambda state, version: {"a": object()}, "what migrate returned"),
    "empties a slot": (lambda state, version: {"__memory__": 5}, "__memory__"),
    "breaks the schema": (lambda state, version: {"items": "none"}, "items"),
}


@pytest.mark.parametrize(("migrate", "told"), MIGRATIONS.values(), ids=MIGRATIONS)
def test_a_migration_that_goes_wrong_is_a_typed_error(migrate: Callable[..., Any], told: str) -> None:
    """No agent comes of it."""
    definition = Definition.new("a", schema=Items, version=2, migrate=migrate)
    with pytest.raises(RestoreFailed, match=told):
        restore(Checkpoint(id="me", name="a"), definition)


@pytest.mark.parametrize(
    "part", [{"version": 0}, {"version": -1}, {"version": "2"}, {"version": True}, {"migrate": 5}]
)
def test_a_version_is_a_number_from_one_and_a_migration_a_function(part: dict[str, Any]) -> None:
    """The definition names what is wrong with it."""
    with pytest.raises(Invalid, match=f"agent 'a': {min(part)}"):
        Definition.new("a", **part)


def test_a_restored_agent_is_completed_by_mounting() -> None:
    """What was dropped, or is new to the definition, is mounted; what has a pointer must have come back."""
    dropped = cache_plugin(lambda slice, ctx: "drop")
    agent = Agent.new("a", plugins=[dropped])
    saved = checkpoint(agent)
    assert mount_missing_plugins(restore(saved, agent.definition), saved) == agent
    lost = cache_plugin(lambda slice, ctx: Externalize(key="ref", pointer=1))
    agent = Agent.new("a", plugins=[lost])
    saved = checkpoint(agent)
    with pytest.raises(RestoreFailed, match=r"'cache'.*on_restore"):
        mount_missing_plugins(restore(saved, agent.definition), saved)


def test_a_checkpoint_of_another_kind_of_agent_is_refused() -> None:
    """The definition has to be the agent's own."""
    with pytest.raises(RestoreFailed, match=r"'b'.*'a'"):
        restore(Checkpoint(id="me", name="b"), Definition.new("a"))


def test_a_pointer_that_nobody_owns_is_refused() -> None:
    """A plugin that is no longer mounted cannot be asked."""
    saved = checkpoint(Agent.new("a", plugins=[cache_plugin(lambda s, c: Externalize(key="ref", pointer=1))]))
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
    ({"definition_version": "1"}, "definition_version"),
    ({"rev": -1}, "rev"),
    ({"journal": 5}, "journal"),
    ({"thread": "t"}, "thread"),
    ({"thread": {"id": "t"}}, "thread"),
    ({"thread": {"id": "", "rev": 1}}, "thread"),
    ({"thread": {"id": "t", "rev": -1}}, "thread"),
    ({"thread": {"id": "t", "rev": 1}, "externalized": {"thread": {"id": "t", "rev": 2}}}, "thread"),
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
