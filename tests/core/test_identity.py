"""Identities, and the functions on agents that read and change them."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from omoide import Agent, Context, Identity, action, identity, memory
from omoide.core.state import SLOTS
from omoide.errors import CapabilityDrift, Conflict, Invalid, Unsupported, WrongType

EMPTY: dict[str, Any] = {"actions": [], "tags": [], "io": {}, "limits": {}}


def test_identity_lives_under_its_reserved_key() -> None:
    """The key is `__identity__`, and what is put there is found in the state."""
    agent = identity.ensure(Agent.new("a"))
    assert identity.key() == "__identity__"
    assert agent.state["__identity__"] is identity.get(agent)


def test_there_are_five_reserved_keys_and_no_more() -> None:
    """Identity is the last reserved key: no other concept got one."""
    assert set(SLOTS) == {"__strategy__", "__thread__", "__memory__", "__identity__", "__parent__"}


def test_a_new_identity_starts_empty_at_revision_zero() -> None:
    """Defaults: no age, nothing to do, no extensions, both times equal to `now`."""
    fresh = Identity.new(now=7)
    assert (fresh.rev, fresh.created_at, fresh.updated_at, fresh.days) == (0, 7, 7, 0)
    assert fresh.profile == {"age": None}
    assert fresh.capabilities == EMPTY
    assert fresh.extensions == {}


def test_partial_sections_are_merged_over_the_defaults() -> None:
    """A partial capabilities map keeps `io` and `limits`, a partial profile keeps `age`."""
    made = Identity.new(capabilities={"actions": ["fetch"]}, profile={"generation": 2, "origin": "spawned"})
    assert made.capabilities == {**EMPTY, "actions": ["fetch"]}
    assert made.profile == {"age": None, "generation": 2, "origin": "spawned"}


def test_identity_does_not_repeat_name_and_description() -> None:
    """Name and description stay on the agent."""
    assert not {"name", "description"} & set(Identity.__struct_fields__)


def test_ensure_makes_an_identity_from_its_parts() -> None:
    """`ensure` passes profile, capabilities, extensions and `now` on."""
    agent = identity.ensure(
        Agent.new("a"),
        profile={"age": 3},
        capabilities={"tags": ["web"]},
        extensions={"voice": {"tone": "dry"}},
        now=5,
    )
    made = identity.of(agent)
    assert (made.age, made.created_at) == (3, 5)
    assert made.tags() == ["web"]
    assert made.get_extension("voice") == {"tone": "dry"}


def test_ensure_never_overwrites() -> None:
    """An identity that is there stays exactly as it was."""
    agent = identity.ensure(Agent.new("a"), profile={"age": 3})
    assert identity.ensure(agent, profile={"age": 9}) is agent


def test_get_put_and_has_work_on_the_slot() -> None:
    """Absent at first, then what was put."""
    bare, mine = Agent.new("a"), Identity.new(now=1)
    assert identity.get(bare) is None
    assert identity.get(bare, "none") == "none"
    assert not identity.has_identity(bare)
    agent = identity.put(bare, mine)
    assert identity.has_identity(agent)
    assert identity.get(agent) is mine
    assert not identity.has_identity(bare)


def test_of_is_the_identity_or_the_one_that_ensure_would_make() -> None:
    """It reads and creates nothing."""
    bare = Agent.new("a")
    assert identity.of(bare).rev == 0
    assert bare.state == {}
    agent = identity.add_tag(bare, "web")
    assert identity.of(agent) is identity.get(agent)


def test_update_is_given_none_where_there_is_no_identity() -> None:
    """`update` hands over what is there, or None, and stores the answer."""
    seen: list[object] = []

    def change(old: Identity | None) -> Identity:
        seen.append(old)
        return Identity.new(now=1)

    agent = identity.update(Agent.new("a"), change)
    identity.update(agent, change)
    assert seen == [None, Identity.new(now=1)]


def test_age_is_none_without_identity_or_age() -> None:
    """No identity and no age both read as None."""
    bare = Agent.new("a")
    assert identity.age(bare) is None
    assert identity.age(identity.ensure(bare)) is None
    assert identity.age(identity.ensure(bare, profile={"age": 4})) == 4


def test_a_profile_fact_has_a_default() -> None:
    """`get_profile` answers the default without identity and without the key."""
    bare = Agent.new("a")
    assert identity.get_profile(bare, "origin", "unknown") == "unknown"
    assert identity.get_profile(identity.ensure(bare), "origin", "unknown") == "unknown"
    assert identity.get_profile(identity.put_profile(bare, "origin", "cloned"), "origin") == "cloned"


def test_put_profile_creates_the_identity_and_counts() -> None:
    """The first write makes the identity, and each write is one revision."""
    agent = identity.put_profile(Agent.new("a"), "generation", 1, now=1)
    agent = identity.put_profile(agent, "generation", 2, now=9)
    made = identity.of(agent)
    assert (made.rev, made.updated_at, made.profile["generation"]) == (2, 9, 2)


def test_an_agent_without_identity_can_do_nothing() -> None:
    """Capabilities are the empty default, lists are empty, questions are answered with no."""
    bare = Agent.new("a")
    assert identity.capabilities(bare) == EMPTY
    assert identity.actions(bare) == []
    assert identity.tags(bare) == []
    assert not identity.supports_action(bare, "fetch")
    assert not identity.has_tag(bare, "web")


def test_reading_never_creates_an_identity() -> None:
    """No question leaves a trace in the state."""
    bare = Agent.new("a")
    reads: list[Callable[[Agent], object]] = [
        identity.age,
        identity.capabilities,
        identity.actions,
        identity.tags,
        identity.drift,
        identity.snapshot,
        identity.known_agents,
        lambda a: identity.get_extension(a, "x"),
    ]
    for read in reads:
        read(bare)
    assert "__identity__" not in bare.state


def test_capabilities_without_a_key_answer_no_and_do_not_raise() -> None:
    """A manifest that never named actions or tags is asked about both."""
    agent = identity.ensure(Agent.new("a"), capabilities={"limits": {"max": 1}})
    assert not identity.supports_action(agent, "fetch")
    assert not identity.has_tag(agent, "web")


def test_actions_and_tags_are_appended_once() -> None:
    """Adding appends in order, without duplicates."""
    agent = Agent.new("a")
    for name in ("fetch", "parse", "fetch"):
        agent = identity.add_tag(identity.add_action(agent, name), name)
    assert identity.actions(agent) == ["fetch", "parse"]
    assert identity.tags(agent) == ["fetch", "parse"]


@pytest.mark.parametrize("add", [identity.add_action, identity.add_tag])
def test_adding_what_is_there_does_not_count_as_a_change(add: Callable[..., Agent]) -> None:
    """A duplicate bumps neither `rev` nor `updated_at`."""
    agent = add(Agent.new("a"), "web", now=1)
    assert identity.get(add(agent, "web", now=9)) is identity.get(agent)


def test_removing_an_action_that_is_not_there_does_not_count_as_a_change() -> None:
    """Only a real removal is a revision."""
    agent = identity.add_action(Agent.new("a"), "fetch", now=1)
    assert identity.get(identity.remove_action(agent, "parse", now=9)) is identity.get(agent)
    gone = identity.of(identity.remove_action(agent, "fetch", now=9))
    assert gone.actions() == []
    assert (gone.rev, gone.updated_at) == (2, 9)


def test_a_no_op_still_checks_the_expected_revision() -> None:
    """A stale expectation is a conflict even where nothing would change."""
    mine = Identity.new().add_action("fetch")
    for change in (mine.add_action, mine.remove_action):
        with pytest.raises(Conflict, match="revision 1, not 7"):
            change("fetch", expected_rev=7)


def test_limits_and_io_flags_are_set_one_by_one() -> None:
    """`set_limit` and `set_io` create what is missing and keep the rest."""
    agent = identity.set_limit(Agent.new("a"), "max_concurrency", 4)
    agent = identity.set_io(identity.set_limit(agent, "max_runtime_ms", 30_000), "network", True)
    assert identity.capabilities(agent)["limits"] == {"max_concurrency": 4, "max_runtime_ms": 30_000}
    assert identity.capabilities(agent)["io"] == {"network": True}


def test_limits_are_metadata_and_do_not_stop_the_agent() -> None:
    """A limit of zero forbids nothing to `cmd`."""

    @action
    def work(ctx: Context) -> dict[str, Any]:
        return {"done": True}

    agent = identity.set_limit(Agent.new("a"), "max_concurrency", 0)
    assert agent.cmd(work)[0].state["done"] is True


def test_declared_actions_are_joined_with_those_really_offered() -> None:
    """What plugins and agent offer is computed at the question, and never stored in the identity."""

    @action
    def fetch(ctx: Context) -> None:
        return None

    agent = identity.add_action(Agent.new("a", actions=[fetch]), "dream")
    stored = identity.of(agent)
    assert stored.actions() == ["dream"]
    assert identity.actions(agent) == ["dream", "fetch"]
    assert identity.supports_action(agent, "fetch")
    assert identity.capabilities(agent)["actions"] == ["dream", "fetch"]


def test_an_action_is_no_longer_offered_once_its_plugin_is_gone() -> None:
    """The same identity under another definition offers what that one has."""

    @action
    def fetch(ctx: Context) -> None:
        return None

    agent = identity.ensure(Agent.new("a", actions=[fetch]), capabilities={"actions": ["dream"]})
    bare = Agent.from_json(agent.to_json())
    assert identity.of(bare) == identity.of(agent)
    assert identity.actions(bare) == ["dream"]
    assert not identity.supports_action(bare, "fetch")


def test_drift_names_declared_actions_that_nothing_offers() -> None:
    """The check is optional: `ensure` raises only when asked to."""
    agent = identity.ensure(Agent.new("a"), capabilities={"actions": ["dream"]})
    assert identity.drift(agent) == ("dream",)
    assert identity.ensure(agent) is agent
    with pytest.raises(CapabilityDrift, match=r"dream.*mount the plugin") as raised:
        identity.ensure(agent, check_drift=True)
    assert raised.value.missing == ("dream",)


def test_world_profile_remains_plain_data_of_the_memory() -> None:
    """A key called profile in the world has nothing to do with the identity."""
    agent = memory.world_put(Agent.new("a"), "profile", {"mood": "calm"})
    assert memory.world_get(agent, "profile") == {"mood": "calm"}
    assert not identity.has_identity(agent)


def test_other_agents_are_kept_in_the_world_by_their_snapshot() -> None:
    """`add_known_agent` keeps snapshot, trust and time under `world.known_agents`, not the identity."""
    bob = identity.ensure(Agent.new("b", id="bob"), extensions={"p": {"secret": 1, "__public__": {"r": 2}}})
    agent = identity.add_known_agent(Agent.new("a"), bob, trust=0.8, now=9)
    known = memory.world_get(agent, "known_agents")["bob"]
    assert known == {"snapshot": identity.snapshot(bob), "trust": 0.8, "last_seen": 9}
    assert "secret" not in str(known)
    assert not identity.has_identity(agent)


def test_a_snapshot_from_elsewhere_joins_the_agents_known() -> None:
    """Snapshots of several agents stand beside each other; a newer one replaces its own."""
    agent = identity.add_known_snapshot(Agent.new("a"), "bob", {"profile": {}}, now=1)
    agent = identity.add_known_snapshot(agent, "eve", {"profile": {}}, trust=0, now=2)
    agent = identity.add_known_snapshot(agent, "bob", {"profile": {"age": 1}}, now=3)
    assert set(identity.known_agents(agent)) == {"bob", "eve"}
    assert identity.known_agents(agent)["bob"]["snapshot"] == {"profile": {"age": 1}}


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"rev": -1}, Invalid, "rev"),
    ({"rev": "1"}, WrongType, "rev"),
    ({"created_at": 1.5}, WrongType, "created_at"),
    ({"updated_at": -1}, Invalid, "updated_at"),
    ({"days": 365}, Invalid, "days"),
    ({"days": -1}, Invalid, "days"),
    ({"profile": [1]}, WrongType, "profile"),
    ({"profile": {"age": -1}}, Invalid, "profile.age"),
    ({"profile": {"age": True}}, Invalid, "profile.age"),
    ({"profile": {"generation": "two"}}, Invalid, "profile.generation"),
    ({"profile": {"origin": "found"}}, Invalid, "profile.origin"),
    ({"profile": {5: 1}}, Unsupported, "profile.5"),
    ({"capabilities": "web"}, WrongType, "capabilities"),
    ({"capabilities": {"skills": []}}, Invalid, "capabilities.skills"),
    ({"capabilities": {"actions": "fetch"}}, WrongType, "capabilities.actions"),
    ({"capabilities": {"actions": [""]}}, Invalid, "capabilities.actions[0]"),
    ({"capabilities": {"tags": [5]}}, WrongType, "capabilities.tags[0]"),
    ({"capabilities": {"io": 1}}, WrongType, "capabilities.io"),
    ({"capabilities": {"limits": [1]}}, WrongType, "capabilities.limits"),
    ({"extensions": 1}, WrongType, "extensions"),
    ({"extensions": {" ": {}}}, Invalid, "extension name"),
]


@pytest.mark.parametrize(("fields", "error", "field"), WRONG)
def test_a_wrong_field_is_refused_by_name(fields: dict[str, Any], error: type[Exception], field: str) -> None:
    """Each field of an identity is checked, and the error says which one and what to do."""
    with pytest.raises(error) as raised:
        Identity(**fields)
    assert isinstance(raised.value, Invalid)
    assert raised.value.field == field
    assert raised.value.remedy


CHANGES: dict[str, Callable[[Agent], object]] = {
    "profile key": lambda a: identity.put_profile(a, "", 1),
    "age": lambda a: identity.put_profile(a, "age", -1),
    "profile value": lambda a: identity.put_profile(a, "x", object()),
    "action": lambda a: identity.add_action(a, ""),
    "tag": lambda a: identity.add_tag(a, cast("str", 5)),
    "limit key": lambda a: identity.set_limit(a, "", 1),
    "io value": lambda a: identity.set_io(a, "x", {1: 2}),
    "days": lambda a: identity.evolve(a, days=-1),
    "years": lambda a: identity.evolve(a, years=True),
    "plugin": lambda a: identity.put_extension(a, "", {}),
    "slice": lambda a: identity.put_extension(a, "p", cast("Any", 5)),
    "patch": lambda a: identity.merge_extension(a, "p", cast("Any", 5)),
    "updated slice": lambda a: identity.update_extension(a, "p", lambda old: cast("Any", None)),
    "identity": lambda a: identity.put(a, cast("Any", {})),
    "updated identity": lambda a: identity.update(a, lambda old: cast("Any", None)),
    "now": lambda a: identity.add_action(a, "x", now=-1),
    "other id": lambda a: identity.add_known_snapshot(a, "", {}),
    "trust": lambda a: identity.add_known_snapshot(a, "bob", {}, trust=2),
    "snapshot": lambda a: identity.add_known_snapshot(a, "bob", cast("Any", 5)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_refused_change_leaves_the_agent_as_it_was(change: Callable[[Agent], object]) -> None:
    """Bad input is a typed error with a remedy, and the agent given is unchanged."""
    agent = Agent.new("a", id="a")
    before = agent.to_json()
    with pytest.raises(Invalid) as raised:
        change(agent)
    assert raised.value.remedy
    assert agent.to_json() == before
