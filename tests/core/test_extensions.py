"""Extensions of an identity: each plugin's slice and its public part."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from tests.support.strategies import maps, names

from omoide import Agent, Context, Identity, Plugin, action, identity
from omoide.errors import Conflict, WrongType

CHARACTER = {
    "persona": {"traits": [{"name": "analytical", "intensity": 0.9}], "values": ["accuracy", "clarity"]},
    "voice": {"tone": "professional", "style": "Concise and precise."},
    "__public__": {"persona": {"role": "Data analyst"}, "voice": {"tone": "professional"}},
}
SAFETY = {"guidelines": ["No medical advice"], "redlines": ["No keys"], "__public__": {}}


def test_a_slice_is_put_whole() -> None:
    """`put_extension` replaces what the plugin had, and only that."""
    agent = identity.put_extension(Agent.new("a"), "voice", {"tone": "dry", "style": "short"})
    agent = identity.put_extension(agent, "safety", {"redlines": []})
    agent = identity.put_extension(agent, "voice", {"tone": "warm"})
    assert identity.get_extension(agent, "voice") == {"tone": "warm"}
    assert identity.get_extension(agent, "safety") == {"redlines": []}


def test_a_missing_slice_is_the_default() -> None:
    """Without identity and without slice alike."""
    bare = Agent.new("a")
    assert identity.get_extension(bare, "voice") is None
    assert identity.get_extension(identity.ensure(bare), "voice", {}) == {}


def test_an_update_is_given_none_where_there_is_no_slice() -> None:
    """The function sees the current slice, or None."""
    seen: list[Any] = []

    def change(old: Mapping[str, Any] | None) -> dict[str, Any]:
        seen.append(old)
        return {"calls": len(seen)}

    agent = identity.update_extension(Agent.new("a"), "voice", change)
    agent = identity.update_extension(agent, "voice", change)
    assert seen == [None, {"calls": 1}]
    assert identity.get_extension(agent, "voice") == {"calls": 2}


def test_a_merge_is_one_level_deep() -> None:
    """Top-level entries are replaced whole, and a missing slice counts as empty."""
    agent = identity.merge_extension(Agent.new("a"), "voice", {"tone": {"pitch": 1}, "style": "short"})
    agent = identity.merge_extension(agent, "voice", {"tone": {"speed": 2}})
    assert identity.get_extension(agent, "voice") == {"tone": {"speed": 2}, "style": "short"}


@pytest.mark.parametrize("slice", [5, None, "text", ["a"]])
def test_a_slice_that_is_no_map_is_refused(slice: Any) -> None:
    """Put, merge and update take maps only, and the error names the plugin's slice."""
    mine = Identity.new()
    with pytest.raises(WrongType, match=r"extensions\.voice must be a mapping"):
        mine.put_extension("voice", slice)
    with pytest.raises(WrongType, match=r"extensions\.voice must be a mapping"):
        mine.update_extension("voice", lambda old: slice)
    with pytest.raises(WrongType, match="patch must be a mapping"):
        mine.merge_extension("voice", slice)


def test_every_write_counts_and_checks_its_revision() -> None:
    """Each of the three writes is one revision and refuses a stale expectation."""
    mine = Identity.new(now=1)
    for write in ("put_extension", "merge_extension"):
        after = getattr(mine, write)("voice", {}, expected_rev=0, now=9)
        assert (after.rev, after.updated_at) == (1, 9)
        with pytest.raises(Conflict):
            getattr(mine, write)("voice", {}, expected_rev=3)
    with pytest.raises(Conflict):
        mine.update_extension("voice", lambda old: {}, expected_rev=3)


@given(plugin=names, slice=maps)
def test_the_core_never_reads_a_slice(plugin: str, slice: dict[str, Any]) -> None:
    """Whatever a plugin keeps, under whatever name, comes back as it was, a version of its own included."""
    kept = Identity.new().put_extension(plugin, {**slice, "vsn": "2"})
    assert kept.get_extension(plugin) == {**slice, "vsn": "2"}
    assert Identity.from_json(kept.to_json()).get_extension(plugin) == {**slice, "vsn": "2"}


def test_a_snapshot_shows_capabilities_lifecycle_and_public_parts() -> None:
    """The whole manifest, the lifecycle facts that exist, and each plugin's public part."""
    agent = identity.ensure(
        Agent.new("a"),
        profile={"age": 3, "mood": "calm"},
        capabilities={"actions": ["fetch"], "limits": {"max": 1}},
        extensions={"character": CHARACTER, "safety": SAFETY},
    )
    assert identity.snapshot(agent) == {
        "capabilities": {"actions": ["fetch"], "tags": [], "io": {}, "limits": {"max": 1}},
        "profile": {"age": 3},
        "extensions": {"character": CHARACTER["__public__"], "safety": {}},
    }


def test_a_snapshot_shows_generation_and_origin_where_they_exist() -> None:
    """Lifecycle facts that are absent stay absent."""
    assert Identity.new().snapshot()["profile"] == {"age": None}
    born = Identity.new(profile={"age": 1, "generation": 2, "origin": "spawned"})
    assert born.snapshot()["profile"] == {"age": 1, "generation": 2, "origin": "spawned"}


def test_a_snapshot_without_identity_is_none() -> None:
    """There is nothing to show, and nothing crashes."""
    assert identity.snapshot(Agent.new("a")) is None


def test_slices_without_a_public_part_are_left_out() -> None:
    """What a plugin does not call public is not shared."""
    assert Identity.new().put_extension("voice", {"tone": "dry"}).snapshot()["extensions"] == {}


def test_an_empty_public_part_is_shown_as_an_empty_map() -> None:
    """The plugin is known to be there, and shows nothing."""
    assert Identity.new(extensions={"safety": SAFETY}).snapshot()["extensions"] == {"safety": {}}


@pytest.mark.parametrize("slice", [5, None, "__public__", ["__public__"]])
def test_slices_that_are_no_maps_are_skipped_in_a_snapshot(slice: Any) -> None:
    """An odd slice that came from elsewhere is passed over, not an error."""
    mine = Identity.new(extensions={"odd": slice, "voice": {"__public__": {"tone": "dry"}}})
    assert mine.snapshot()["extensions"] == {"voice": {"tone": "dry"}}


def test_a_snapshot_lists_the_actions_that_plugins_offer() -> None:
    """Others see what the agent can really do."""

    @action
    def fetch(ctx: Context) -> None:
        return None

    shown = identity.snapshot(identity.add_action(Agent.new("a", actions=[fetch]), "dream"))
    assert shown is not None
    assert shown["capabilities"]["actions"] == ["dream", "fetch"]


def set_persona(agent: Agent, persona: Mapping[str, Any]) -> Agent:
    """A plugin's own accessor: the public part follows the persona, whether there was one before or not."""

    def change(slice: Mapping[str, Any] | None) -> dict[str, Any]:
        known = slice or {}
        role = {key: persona[key] for key in ("role",) if key in persona}
        return {**known, "persona": persona, "__public__": {**known.get("__public__", {}), "persona": role}}

    return identity.update_extension(agent, "character", change)


@pytest.mark.parametrize("known", [None, {"voice": 1}, {"__public__": {"voice": 2}}])
def test_a_persona_is_public_by_its_role_from_the_first_time(known: dict[str, Any] | None) -> None:
    """Setting a persona shows its role, with no slice, with no public part, and with one."""
    persona = {"role": "Data analyst", "secret": 1}
    start = identity.ensure(Agent.new("a"), extensions=known and {"character": known})
    agent = set_persona(start, persona)
    shown = identity.snapshot(agent)
    assert shown is not None
    public = (known or {}).get("__public__", {})
    assert shown["extensions"]["character"] == {**public, "persona": {"role": "Data analyst"}}
    assert identity.get_extension(agent, "character")["persona"] == persona


class CharacterPlugin(Plugin):
    """Writes its slice of the identity when it is mounted."""

    name = "character"

    def mount(self, agent: Agent, config: Mapping[str, Any]) -> tuple[dict[str, Any], Agent]:
        persona = config.get("persona", {})
        public = {"persona": {key: persona[key] for key in ("role",) if key in persona}}
        slice = {"persona": persona, "__public__": public}
        return {"mounted_at": 9}, identity.put_extension(identity.ensure(agent), "character", slice)


def test_an_extension_written_at_mount_stays_in_the_agent() -> None:
    """The identity changed by a mount is the agent's identity, beside the plugin's own slice of the state."""
    agent = Agent.new("a", plugins=[(CharacterPlugin, {"persona": {"role": "Scout", "secret": 1}})])
    assert agent.state["character"] == {"mounted_at": 9}
    assert identity.get_extension(agent, "character")["persona"] == {"role": "Scout", "secret": 1}
    shown = identity.snapshot(agent)
    assert shown is not None
    assert shown["extensions"] == {"character": {"persona": {"role": "Scout"}}}
